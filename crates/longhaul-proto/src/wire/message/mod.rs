//! Control messages. Numbers and fields are only ever appended; `docs/WIRE.md` and the golden bytes
//! hold them fast.
//!
//! Each message says which side may send it, and under which credit. No message holds a `String`: a
//! peer's text has a type that cleans or refuses it as it is read.

mod extras;
mod fault;
mod flow;
mod limiting;
mod listing;
mod opening;
mod reading;
mod removal;
mod targets;
mod third_party;
mod unasked;

use longhaul_core::{DatasetName, DatasetPart, Fault, FileId, Loss, ShardClaim, Whereabouts};

pub use extras::*;
pub use flow::*;
pub use limiting::*;
pub use listing::*;
pub use opening::*;
pub use reading::*;
pub use removal::*;
pub use targets::*;
pub use third_party::*;
pub use unasked::*;

use self::fault::FaultBody;
use super::frame::{self, FrameError};
use super::grant::SignedGrant;

/// The protocol version that this build speaks.
pub const VERSION: u16 = 1;

/// Defines [`Message`] from a table of number and body, so that number, encoder and decoder cannot
/// part. A body that has another form on the wire names it behind `as`.
macro_rules! messages {
    (@wire $body:ident) => { $body };
    (@wire $body:ident $wire:ty) => { &<$wire>::from($body) };
    (@read $read:expr, $name:path) => { $read.map($name) };
    (@read $read:expr, $name:path, $wire:ty) => { $read.map(|body: $wire| $name(body.into())) };
    ($($(#[$doc:meta])* $number:literal $name:ident($body:ty $(as $wire:ty)?) $class:ident,)*) => {
        /// A control message.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Message { $($(#[$doc])* $name($body),)* }

        impl Message {
            /// The message with its length and number, ready to be sent; texts for people are cut.
            /// Messages of the machines always fit the bound; for content of a user or a directory,
            /// see [`Message::try_encode`].
            pub fn encode(&self) -> Vec<u8> {
                match self { $(Message::$name(body) => frame::encode($number, messages!(@wire body $($wire)?)),)* }
            }

            /// Reads number and body (the length is consumed already). Every text in it is a
            /// [`PlainText`](longhaul_core::PlainText), a [`Word`](longhaul_core::Word) or of a set
            /// that is known here.
            ///
            /// # Errors
            /// [`FrameError`] says which part does not fit.
            pub fn decode(bytes: &[u8]) -> Result<Message, FrameError> {
                let (&number, body) = bytes.split_first().ok_or(FrameError::Empty)?;
                match number {
                    $($number => messages!(@read frame::decode(number, body), Message::$name $(, $wire)?),)*
                    number => Err(FrameError::Unknown { number }),
                }
            }

            /// Gives the body behind the number to a serializer of any format, for code that walks
            /// its fields.
            ///
            /// # Errors
            /// The error of the serializer.
            pub fn serialize_body<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Message::$name(body) => {
                        serde::Serialize::serialize(messages!(@wire body $($wire)?), serializer)
                    })*
                }
            }

            /// The number under which it travels.
            pub fn number(&self) -> u8 {
                match self { $(Message::$name(_) => $number,)* }
            }

            /// The class in which it leaves.
            pub fn class(&self) -> Class {
                match self { $(Message::$name(_) => Class::$class,)* }
            }

            /// Its name, for logs.
            pub fn name(&self) -> &'static str {
                match self { $(Message::$name(_) => stringify!($name),)* }
            }
        }
    };
}

/// The order in which waiting messages leave: a lower class never waits behind a higher one.
/// Messages of one class keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Heartbeats, verdicts, settlements, ends.
    Verdict,
    /// Digests, wants, answers, credits.
    Want,
    /// Manifest pages.
    Page,
}

messages! {
    /// Initiator, first: the versions that it speaks and its request.
    1 Hello(Hello) Verdict,
    /// Acceptor: agreed, here is the session.
    2 Welcome(Welcome) Verdict,
    /// Either, at any time: the session ends, and why.
    3 Refuse(Fault as FaultBody) Verdict,
    /// Acceptor, after its welcome and in place of lanes that were lost: lane ids that may join
    /// now, each good once for 10 s.
    4 Lanes(GrantedLanes) Want,
    /// Receiver, once, after the handshake: its first page credit and its mapping of names. Every
    /// session begins with it.
    5 Offer(Offer) Want,
    /// Receiver: manifest pages that the sender may have sent since the start.
    6 PageCredit(PageCredit) Want,
    /// Sender, under page credit: the next part of the manifest.
    7 Page(Page) Page,
    /// Receiver, one for each page: which of its files it wants.
    8 Answer(Answer) Want,
    /// Receiver: chunks of a file that it wants, once each.
    9 WantChunks(WantChunks) Want,
    /// Sender, one for each sent unit of a `safe` lane: its digest.
    10 Digests(Vec<Declared>) Want,
    /// Sender, one for each wanted file of chunks: all was read, and this is its root.
    11 FileEnd(FileEnd) Want,
    /// Sender, at most one for each wanted file: it cannot be sent.
    12 FileFault(FileFault) Want,
    /// Receiver, one for each unit that arrived.
    13 Verdicts(Vec<Verdict>) Verdict,
    /// Receiver, one for each entry: its outcome. The sender forgets the entry.
    14 Settled(Vec<Settlement>) Verdict,
    /// Receiver, about each second: its counters.
    15 Tally(Tally) Verdict,
    /// Receiver, last: every entry of the last page is settled.
    16 Complete(Ending) Verdict,
    /// Sender, last, in answer.
    17 Bye(Ending) Verdict,
    /// Either, when nothing else was sent for a while.
    18 Heartbeat(Heartbeat) Verdict,
    /// Acceptor, in answer to a `List` request: names; the last one says so.
    19 Listing(Listing) Page,
    /// Receiver, before it wants any chunk of the file: it holds part of it from an earlier
    /// session.
    20 Resume(Resume) Want,
    /// Receiver: chunks that it has of another version of the file, for the sender to compare; each
    /// counts as wanted.
    21 CheckChunks(CheckChunks) Want,
    /// Receiver, right before the outcomes of the files that it names, where further checksums are
    /// agreed on: those of committed files.
    22 SettledSums(Vec<SettledSums>) Verdict,
    /// Either, at most once for each lane: it is of no more use and this side's end is being
    /// closed.
    23 LaneLost(LaneLost) Verdict,
    /// Receiver, once its end of a lane is closed, and in answer to a `LaneLost` that crossed it.
    24 LaneClosed(LaneClosed) Verdict,
    /// Receiver, after the answer to their page: small files that it did not want, for the sender
    /// to compare; they are wanted by this.
    25 CheckFiles(CheckFiles) Want,
    /// Sender, to an acceptor: the number of lanes that there shall be, from 1 to the number that
    /// was agreed.
    26 LaneTarget(LaneTarget) Want,
    /// Receiver: from now on the sender keeps this rate, or its own if that is lower.
    27 Rate(Rate) Want,
    /// Either, about each second: the limit of the transfer, as it sees it.
    28 Limiting(Limiting) Verdict,
    /// Initiator, right behind a hello that says that something follows: the next part of its
    /// request.
    29 RequestPart(RequestPart) Verdict,
    /// Sender, once for each stream, after the receiver wanted chunks of it or said which it holds:
    /// its length.
    30 StreamEnd(StreamEnd) Want,
    /// Receiver, in answer to the end of a stream whose last chunk is shorter than the others: it
    /// wants that chunk.
    31 WantLast(WantLast) Want,
    /// Receiver: chunks of a stream that are durable, so that the sender keeps them no longer.
    32 DurableChunks(DurableChunks) Verdict,
    /// Receiver that writes to several targets, about each second: how each of them does.
    33 Targets(Vec<TargetReport>) Verdict,
    /// Receiver, behind the good verdict on each: chunks whose bytes it has lost since. They count
    /// as wanted.
    34 SendAgain(SendAgain) Verdict,
    /// Sender, right before a page, where extras are carried: the extras of its entries.
    35 Extras(PageExtras) Page,
    /// Either, before the outcome of the entries that it counts: the metadata that this side could
    /// not read or keep, since the session's start.
    36 Losses(Vec<Loss>) Verdict,
    /// Sender, right before a page and behind its extras, where hard links are carried: the files
    /// of the page that have several names.
    37 Names(PageNames) Page,
    /// Receiver, instead of `LaneClosed`, where units came of a lane over UDP beyond one that did
    /// not.
    39 UdpLaneClosed(UdpLaneClosed) Verdict,
    /// Sender, at most once and before its first page and what belongs to that, where the receiver
    /// takes them: small files of the page, which nobody has asked for.
    40 Unasked(Unasked) Page,
    /// Initiator that sends, right behind a hello that says so: its claim on the shard that it
    /// moves.
    41 ShownClaim(ShardClaim) Verdict,
    /// Initiator that sends, behind a hello that says so: the name under which all files of the
    /// transfer shall appear together, in the directory that the hello names.
    42 AsDataset(DatasetName) Verdict,
    /// Initiator, behind a hello for a push that says so, and behind a claim and a dataset if those
    /// are shown: nothing is sent, the acceptor is to fetch it from another daemon.
    43 Order(Order) Verdict,
    /// Initiator, before its hello: the grant by which its request is to be judged.
    44 ShownGrant(SignedGrant) Verdict,
    /// Acceptor, instead of a welcome: it carries out the order.
    45 OrderTaken(OrderTaken) Verdict,
    /// Acceptor, while it carries out an order: what happened.
    46 OrderEvents(Vec<OrderEvent>) Verdict,
    /// Acceptor, last: how the order ended.
    47 OrderEnded(Box<OrderEnd>) Verdict,
    /// Initiator, once an order was taken: it leaves, and the order goes on. Acceptor, last, in
    /// answer.
    48 OrderLeft(OrderLeft) Verdict,
    /// Receiver, right before the outcomes of the files that it names, where that is agreed on:
    /// something else stood under the names of these, and was replaced.
    49 Replaced(Vec<FileId>) Verdict,
    /// Acceptor, in answer to a request to list a path whose hello says that names are to be moved
    /// away: they may be.
    50 RemovalOpened(RemovalOpened) Want,
    /// Initiator, when the order before it was answered: names to look at, or to move away.
    51 RemovalOrder(RemovalOrder) Want,
    /// Acceptor, in answer to an order, until the one that says it is the last: what became of the
    /// names.
    52 RemovalAnswer(RemovalAnswer) Page,
    /// Acceptor, in answer to a request to list a path whose hello asks for this alone: where that
    /// directory lies.
    53 Whereabouts(Whereabouts) Page,
    /// Initiator that sends, right behind the name of a dataset and where its hello says so: the
    /// part of a campaign's dataset that this session brings.
    54 DatasetPart(DatasetPart) Verdict,
    /// Either, behind a request to list a path whose hello says that files are to be read: an order
    /// of the initiator, or what the acceptor found.
    55 Reading(ReadingWord) Page,
    /// Initiator, right behind an order whose grant names a list: the next part of that.
    56 OrderListPart(OrderListPart) Verdict,
    /// Acceptor, in answer to a request to list roots whose hello asks for this alone: what it
    /// knows to do with orders.
    57 OrderSkills(OrderSkills) Page,
    /// Initiator, once it is told that an order which it left goes on: it shall not.
    58 OrderStop(OrderStop) Verdict,
    /// Acceptor, in answer to a push whose hello says that it only shows its claim: that is kept.
    59 ClaimKept(ClaimKept) Verdict,
}

impl Message {
    /// As [`Message::encode`], for messages whose size others decide: a hello with patterns, a
    /// listing.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] when no peer would accept it.
    pub fn try_encode(&self) -> Result<Vec<u8>, FrameError> {
        frame::check(self.encode())
    }
}
