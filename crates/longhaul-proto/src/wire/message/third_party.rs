//! The messages of a third-party copy: a client orders a daemon to fetch from another one, the
//! daemon shows that one the client's grant, and the client hears how it goes.
//!
//! Plain data. [`grant`](crate::wire::grant) has the grant itself. An order stands behind a hello
//! for a push, so that whoever orders is authorised, and its destination opened, as for a push.

use serde::{Deserialize, Serialize};

use longhaul_core::filter::Rule;
use longhaul_core::{
    ChunkSize, DatasetName, Fault, FaultCode, Hash32, IfExists, Loss, Mtime, PlainText, RelPath, Sums, Transport, Word,
};

use super::{Limited, Placing, Protect};
use crate::wire::grant::SignedGrant;

/// Bit of [`Hello::caps`](super::Hello::caps): the initiator of a push sends no files, or that of a
/// pull receives none, and says an [`Order`] right behind its hello, and behind what else is shown
/// there. An acceptor that knows the bit answers with [`OrderTaken`]; an older one with a
/// [`Welcome`](super::Welcome), upon which the initiator ends the conversation.
pub const CAP_ORDER: u64 = 1 << 21;

/// Bit of [`Welcome::caps`](super::Welcome::caps): the session runs by the grant that was shown
/// before the hello, and by no right of the initiator's own.
pub const CAP_BY_GRANT: u64 = 1 << 22;

/// Bit of [`Hello::caps`](super::Hello::caps), beside a request to list roots: no roots are asked
/// for but what the acceptor knows to do with orders. One that knows the bit answers with
/// [`OrderSkills`], any other with a listing.
pub const CAP_ORDER_SKILLS: u64 = 1 << 28;

/// Bit of [`Hello::caps`](super::Hello::caps), of an initiator that lends a claim by a grant.
/// Beside a request to list roots it asks as [`CAP_ORDER_SKILLS`] does: an acceptor that answers
/// with [`OrderSkills`] to this bit alone knows grants to write a list. Beside
/// [`CAP_CLAIM`](super::CAP_CLAIM) in a push, the claim is to be kept and nothing is sent: an
/// acceptor that knows the bit answers with [`ClaimKept`], an older one with a
/// [`Welcome`](super::Welcome), upon which the initiator ends the conversation.
pub const CAP_LENDS_CLAIM: u64 = 1 << 29;

/// An order to fetch the sources of a grant from the daemon that it is for; or to send there what
/// is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The host of that daemon: a name, or an address without brackets.
    pub host: Word,
    /// Its port.
    pub port: u16,
    /// The grant, which the acceptor shows there.
    pub grant: SignedGrant,
    /// The filter rules, in order. The first match decides.
    pub rules: Vec<Rule>,
    /// Lanes that were asked for; 0: as many as do best.
    pub lanes: u32,
    /// The time in seconds since the last progress for which a lost session is dialled again.
    pub retry_seconds: u32,
    /// The destination to send to, for which the grant is then. `None`: to fetch.
    pub into: Option<OrderPlace>,
}

/// The destination of an order to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderPlace {
    /// Name of the root.
    pub root: Word,
    /// Path beneath it.
    pub path: RelPath,
    /// How the sources are placed there.
    pub placing: Placing,
    /// The rule where a name stands.
    pub if_exists: IfExists,
    /// The name under which all files shall appear together. `None`: each appears when it is done.
    pub dataset: Option<DatasetName>,
}

/// The next part of the list of an order whose grant names one by its digest. Parts stand right
/// behind the order; all but the last have [`ORDER_LIST_NAMES_MAX`] names, or 16 KiB of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderListPart {
    /// Its names, each behind the one before by its components, none beneath another.
    pub names: Vec<OrderListName>,
    /// Whether it is the last part.
    pub last: bool,
}

/// A name of the list of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderListName {
    /// Its path beneath the one source of the grant.
    pub path: RelPath,
    /// The file that is expected under it: another one is refused as changed.
    pub expected: OrderExpected,
}

/// The file that is expected under a name of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderExpected {
    /// Any, or a directory with all that lies in it.
    Anything,
    /// A regular file of this length in bytes and, if that is known, of this time.
    File {
        /// Its length.
        bytes: u64,
        /// Its time. `None`: any.
        mtime: Option<Mtime>,
    },
    /// A symbolic link, to anywhere.
    Link,
}

/// Names of one part of the list of an order, at most.
pub const ORDER_LIST_NAMES_MAX: usize = 1024;

/// The things that an acceptor knows to do with orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSkills {
    /// Whether it honours grants that name a list, and takes orders with such.
    pub lists: bool,
    /// Whether an order that was left can be stopped.
    pub stops: bool,
}

/// An order that its client left, and asked about by its name, is to be stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStop {
    /// The name of the order.
    pub id: [u8; 16],
}

/// The claim that a push has shown which sends nothing is kept: none of a lower fence publishes
/// there any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimKept {
    /// The shard of the claim.
    pub shard: u64,
    /// Its fence.
    pub fence: u64,
}

/// An order was taken: the acceptor begins to carry it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderTaken {
    /// Its name: the id of the grant.
    pub id: [u8; 16],
}

/// From the initiator: it leaves, and the order goes on without it. From the acceptor: so it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderLeft {
    /// The name of the order.
    pub id: [u8; 16],
}

/// One thing that happened while an order was carried out. Kinds are only ever appended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderEvent {
    /// The first session stands.
    Started(OrderStart),
    /// About once a second: the counters.
    Moved(OrderProgress),
    /// A name is settled.
    Settled(Box<OrderFile>),
    /// Something at the source is never sent.
    Unsent(OrderUnsent),
    /// The session is lost, and another will be dialled after so many milliseconds.
    Lost(#[serde(with = "super::fault")] Fault, u64),
    /// Another session stands in its place.
    Restarted([u8; 16]),
    /// Metadata that was to be carried over and could not be: at the source, or else at the
    /// destination.
    NotKept {
        /// Whether it could not be read at the source.
        at_source: bool,
        /// The loss.
        loss: Loss,
    },
    /// At the end: so many names did not fail, and were not told of one by one, as whoever follows
    /// took in too slowly what it was told.
    Unheard(u64),
}

/// The facts of a session that stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStart {
    /// Its name.
    pub session: [u8; 16],
    /// The kind of lane that it begins with.
    pub transport: Transport,
    /// The protection of its lanes.
    pub protect: Protect,
    /// Lanes that it begins with.
    pub lanes: u32,
    /// The chunk size.
    pub chunk: ChunkSize,
    /// The congestion control of the lanes, by its name in the kernel.
    pub congestion: Word,
    /// Bits that say how names and small files become durable, as in
    /// [`Welcome::caps`](super::Welcome::caps).
    pub caps: u64,
}

/// A number of files and links, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderSum {
    /// Files and links.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The counters of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderProgress {
    /// Milliseconds in which a session stood.
    pub millis: u64,
    /// Known so far.
    pub found: OrderSum,
    /// Whether the scan has ended.
    pub scanned: bool,
    /// Under their final names.
    pub committed: OrderSum,
    /// Skipped or failed.
    pub without: OrderSum,
    /// Payload bytes that arrived over lanes.
    pub received: u64,
    /// Bytes of the files that are there.
    pub arrived: u64,
    /// Bytes among them that were not sent in this run.
    pub resumed: u64,
    /// Bytes that are verified and synced.
    pub durable: u64,
    /// The part that limited the last second. `None` if it is not known.
    pub limited: Option<Limited>,
}

/// A settled name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderFile {
    /// Its path as the source named it.
    pub path: RelPath,
    /// Where it stands at the destination.
    pub placed: RelPath,
    /// The outcome there.
    pub outcome: OrderOutcome,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its BLAKE3, when it was sent.
    pub b3: Option<Hash32>,
    /// Whether it is a regular file.
    pub regular: bool,
    /// Whether the one source took the destination's name.
    pub renamed: bool,
    /// Whether something stood under the name. `None`: it is not known.
    pub replaced: Option<bool>,
    /// The further checksums that were asked for.
    pub sums: Sums,
}

/// The outcome of a name. Outcomes are only ever appended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderOutcome {
    /// It is durable under its final name.
    Committed,
    /// It is whole and staged until all files of its dataset appear.
    Staged,
    /// The destination has it already.
    Skipped,
    /// It is another name of a file that was sent or stood.
    Linked,
    /// It would be sent (dry run).
    Planned,
    /// It failed.
    Failed(#[serde(with = "super::fault")] Fault),
}

/// Something at the source that is never sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderUnsent {
    /// Where it lies.
    pub path: Vec<u8>,
    /// Where it would go.
    pub placed: Vec<u8>,
    /// Why it is not sent, in one or two words.
    pub reason: PlainText,
    /// All of that for people.
    pub message: PlainText,
}

/// How the run of an order ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderVerdict {
    /// All that there was to do was done, though files may have failed one by one.
    Complete,
    /// A fault ended it early.
    Ended(#[serde(with = "super::fault")] Fault),
}

/// The files of an order, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderFiles {
    /// Committed.
    pub committed: u64,
    /// Skipped.
    pub skipped: u64,
    /// Failed.
    pub failed: u64,
    /// Failed only because the source changed or vanished.
    pub changed: u64,
    /// Failed by a mismatch.
    pub mismatched: u64,
    /// Found.
    pub total: u64,
}

/// The bytes of an order, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderBytes {
    /// Under their final names.
    pub committed: u64,
    /// Payload that arrived.
    pub moved: u64,
    /// Holes.
    pub holes: u64,
    /// Bytes of all files that were found, but for those that were there.
    pub wanted: u64,
    /// Sent again.
    pub resent: u64,
    /// Bytes of received files, not sent in this run.
    pub resumed: u64,
    /// Durable in files that have not come to their end.
    pub held: u64,
    /// Read back from the medium.
    pub read_back: u64,
    /// Read back, and not what had been written.
    pub misread: u64,
}

/// The end of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEnd {
    /// How it ended.
    pub verdict: OrderVerdict,
    /// Its files.
    pub files: OrderFiles,
    /// Its bytes.
    pub bytes: OrderBytes,
    /// The codes of files that failed one by one, the first 1000.
    pub failures: Vec<FaultCode>,
    /// Whether the scan came to its end.
    pub scanned: bool,
    /// Milliseconds from the first dial to the last commit.
    pub millis: u64,
    /// The parts that limited it, the largest first.
    pub limits: Vec<Limited>,
}
