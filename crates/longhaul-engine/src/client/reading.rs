//! Has files at a daemon read where they lie, and hears their digests.
//!
//! In: a path of a daemon, and names beneath it. Out: what has each name, the digest of each file,
//! and the names of directories. A finding is of a name that was asked about, once, or the daemon
//! is not believed at all; names of a directory are bare, in order and each once. A conversation
//! that is lost is begun anew for what was not heard; `lasting` says how long. It compares nothing.

mod lasting;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use longhaul_core::limits::{NAME_BYTES_MAX, PAGE_BYTES_MAX, READING_NAMES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, RelPath, hint};
use longhaul_proto::Message;
pub use longhaul_proto::wire::message::FoundThing;
use longhaul_proto::wire::message::{FoundName, FoundNames, Listed, Listing, ReadOrder, ReadingWord, Request};
use tokio::time::{sleep, timeout};

use self::lasting::{EmptyWords, LostTalks};
use super::connect;
use super::connect::Reached;
use crate::api::{Remote, RemotePath, Stop};
use crate::session::channel::{ReadHalf, read_message, write_message};
use crate::session::handshake::{self, Shown, Units};

/// A tree at a daemon of which files are read there.
pub struct FarReading {
    remote: Remote,
    path: RemotePath,
    /// The conversation, and when it was used last.
    talk: Option<(Reached, Instant)>,
    /// Names of directories that may still be listed.
    names_left: u64,
}

/// The kind of answer that an order has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    /// Nothing was read.
    Looked,
    /// Each file was read.
    Read,
}

impl FarReading {
    /// Asks a daemon whether files beneath a directory may be read there.
    ///
    /// # Errors
    /// A [`Fault`] as for a transfer; [`FaultCode::Usage`] from a daemon that does not know how,
    /// [`FaultCode::Denied`] without the right.
    pub async fn open(remote: Remote, path: RemotePath, stop: &Stop) -> Result<FarReading, Fault> {
        let mut reading = FarReading { remote, path, talk: None, names_left: LISTED_NAMES_MAX };
        reading.begin(stop).await?;
        Ok(reading)
    }

    /// Asks what has these names, each once. Nothing is read: a file is a [`FoundThing::File`].
    ///
    /// # Errors
    /// The fault of the conversation. That of one name stands in its place.
    pub async fn look(&mut self, names: &[RelPath], stop: &Stop) -> Result<Vec<FoundThing>, Fault> {
        let mut found = vec![FoundThing::Absent; names.len()];
        let word = |names: Vec<RelPath>| ReadingWord::Look(names);
        self.ask((names, Answered::Looked), word, stop, |at, thing| found[at] = thing).await?;
        Ok(found)
    }

    /// Has the files read that have these names, each once, at this rate in bytes/s. `None`: as
    /// fast as it goes. Gives `sink` each finding as it comes, with the place of its name: a file
    /// is a [`FoundThing::Read`].
    ///
    /// # Errors
    /// The fault of the conversation. That of one name is the finding on it.
    pub async fn read(
        &mut self,
        (names, rate): (&[RelPath], Option<u64>),
        stop: &Stop,
        sink: impl FnMut(usize, FoundThing),
    ) -> Result<(), Fault> {
        let rate = rate.unwrap_or(0);
        let word = |names: Vec<RelPath>| ReadingWord::Read(ReadOrder { names, rate });
        self.ask((names, Answered::Read), word, stop, sink).await
    }

    /// Gives `sink` the names in a directory, in order, a page at a time.
    ///
    /// # Errors
    /// The fault of the conversation. That of a directory which cannot be listed is within.
    pub async fn list(
        &mut self,
        dir: &RelPath,
        stop: &Stop,
        mut sink: impl FnMut(Vec<Listed>) -> ControlFlow<()>,
    ) -> Result<Result<(), Fault>, Fault> {
        let (mut lost, mut behind) = (LostTalks::default(), Vec::new());
        loop {
            let before = behind.clone();
            let fault = match self.list_on(dir, stop, (&mut behind, &mut sink)).await {
                Ok(listed) => return Ok(listed.map(drop)),
                Err(fault) => fault,
            };
            if behind > before {
                lost = LostTalks::default();
            }
            let pause = lost.pause_behind(fault)?;
            rested(stop, pause).await?;
        }
    }

    /// The same in one conversation, for names behind one, which it moves on.
    async fn list_on(
        &mut self,
        dir: &RelPath,
        stop: &Stop,
        (behind, sink): (&mut Vec<u8>, &mut impl FnMut(Vec<Listed>) -> ControlFlow<()>),
    ) -> Result<DirListed, Fault> {
        let (mut reached, mut left) = (self.reached(stop).await?, self.names_left);
        let asked = async {
            say(&mut reached, &Message::Reading(ReadingWord::List(dir.clone()))).await?;
            hear_names(&mut reached.control.reader, &mut left, (behind, sink)).await
        };
        let listed = unless_stopped(stop, asked).await;
        self.names_left = left;
        let listed = listed?;
        // One that was broken off is not gone on with.
        if listed != Ok(ControlFlow::Break(())) {
            self.talk = Some((reached, Instant::now()));
        }
        Ok(listed)
    }

    /// Asks about names until there is a finding on each. What was not heard as a conversation was
    /// lost is asked again, unless there is no finding for long.
    async fn ask(
        &mut self,
        (names, answered): (&[RelPath], Answered),
        word: impl Fn(Vec<RelPath>) -> ReadingWord,
        stop: &Stop,
        mut sink: impl FnMut(usize, FoundThing),
    ) -> Result<(), Fault> {
        let mut open: Vec<usize> = (0..names.len()).collect();
        let mut lost = LostTalks::default();
        while !open.is_empty() {
            let count = fitting(open.iter().map(|at| &names[*at]));
            let order = NamesOrder { places: open[..count].to_vec(), answered };
            let said = word(order.places.iter().map(|at| names[*at].clone()).collect());
            let mut heard = vec![false; count];
            let ended = self.hear_order((said, &order), stop, &mut heard, &mut sink).await;
            let mut place = 0..;
            open.retain(|_| place.next().and_then(|at: usize| heard.get(at)).is_none_or(|heard| !heard));
            let Err(fault) = ended else {
                lost = LostTalks::default();
                continue;
            };
            if heard.contains(&true) {
                lost = LostTalks::default();
            }
            let pause = lost.pause_behind(fault)?;
            rested(stop, pause).await?;
        }
        Ok(())
    }

    /// Gives one order, and hears the findings.
    async fn hear_order(
        &mut self,
        (word, order): (ReadingWord, &NamesOrder),
        stop: &Stop,
        heard: &mut [bool],
        sink: &mut impl FnMut(usize, FoundThing),
    ) -> Result<(), Fault> {
        let mut reached = self.reached(stop).await?;
        let asked = async {
            say(&mut reached, &Message::Reading(word)).await?;
            order.hear(&mut reached.control.reader, heard, sink).await
        };
        unless_stopped(stop, asked).await?;
        self.talk = Some((reached, Instant::now()));
        Ok(())
    }

    /// The conversation, which is not gone on with if an order in it fails.
    async fn reached(&mut self, stop: &Stop) -> Result<Reached, Fault> {
        // The daemon waits no longer for an order than twice as long.
        if self.talk.as_ref().is_none_or(|(_, used)| used.elapsed() > TALK_KEPT_FOR) {
            self.begin(stop).await?;
        }
        self.talk.take().map(|(reached, _)| reached).ok_or_else(ended)
    }

    /// Begins a conversation.
    async fn begin(&mut self, stop: &Stop) -> Result<(), Fault> {
        self.talk = None;
        let (root, path) = (self.path.root.clone(), self.path.path.clone());
        let begun = async {
            let mut reached = connect(&self.remote).await?;
            let hello = handshake::hello(Request::List { root, path }, Units::Any);
            let hello = Shown { reads: true, ..Shown::default() }.announced_by(hello);
            say(&mut reached, &hello).await?;
            match heard(&mut reached.control.reader).await? {
                Message::Reading(ReadingWord::Opened) => Ok(reached),
                // A build that does not know the bit.
                Message::Listing(_) => Err(unknown()),
                _ => Err(Fault::protocol("files were to be read there and something else came")),
            }
        };
        self.talk = Some((unless_stopped(stop, begun).await?, Instant::now()));
        Ok(())
    }
}

/// An order about names: the places of its names among those that were asked about.
struct NamesOrder {
    places: Vec<usize>,
    answered: Answered,
}

impl NamesOrder {
    /// Hears the findings until the last, one for each name.
    async fn hear(
        &self,
        reader: &mut ReadHalf,
        is_heard: &mut [bool],
        sink: &mut impl FnMut(usize, FoundThing),
    ) -> Result<(), Fault> {
        let mut signs = EmptyWords::new();
        loop {
            let FoundNames { names, last } = match heard(reader).await? {
                Message::Reading(ReadingWord::Found(found)) => found,
                _ => return Err(Fault::protocol("something else in place of findings on files")),
            };
            if names.is_empty() && !last {
                signs.count()?;
            }
            for FoundName { at, found } in names {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let (Some(place), Some(is_heard)) = (self.places.get(at), is_heard.get_mut(at)) else {
                    return Err(Fault::protocol("a finding on a name that was not asked about"));
                };
                if std::mem::replace(is_heard, true) {
                    return Err(Fault::protocol("two findings on one name"));
                }
                let found = match (found, self.answered) {
                    (FoundThing::Read { .. }, Answered::Looked) => {
                        return Err(Fault::protocol("a file was read that was only to be looked at"));
                    }
                    (FoundThing::File { .. }, Answered::Read) => {
                        return Err(Fault::protocol("a file was only looked at that was to be read"));
                    }
                    (FoundThing::Failed(fault), _) => FoundThing::Failed(fault.seen_from_afar()),
                    (found, _) => found,
                };
                sink(*place, found);
            }
            if last {
                return match is_heard.contains(&false) {
                    true => Err(Fault::protocol("no findings on some of the names that were asked about")),
                    false => Ok(()),
                };
            }
        }
    }
}

/// The outcome of a listing: whether it was broken off, or the fault of the directory.
type DirListed = Result<ControlFlow<()>, Fault>;

/// Hears the names of a directory, of which `left` is taken. Gives `sink` those behind one, which
/// moves on with them.
async fn hear_names(
    reader: &mut ReadHalf,
    left: &mut u64,
    (behind, sink): (&mut Vec<u8>, &mut impl FnMut(Vec<Listed>) -> ControlFlow<()>),
) -> Result<DirListed, Fault> {
    let (mut before, mut signs): (Vec<u8>, _) = (Vec::new(), EmptyWords::new());
    loop {
        let Listing { mut names, last } = match heard(reader).await? {
            Message::Reading(ReadingWord::Names(listing)) => listing,
            Message::Reading(ReadingWord::Found(found)) => match (found.last, found.names.into_iter().next()) {
                (true, Some(FoundName { found: FoundThing::Failed(fault), .. })) => {
                    return Ok(Err(fault.seen_from_afar()));
                }
                (false, None) => {
                    signs.count()?;
                    continue;
                }
                _ => return Err(Fault::protocol("findings on files in place of the names of a directory")),
            },
            _ => return Err(Fault::protocol("something else in place of the names of a directory")),
        };
        if names.is_empty() && !last {
            signs.count()?;
        }
        for name in &names {
            if !is_bare(&name.name) {
                return Err(Fault::protocol("a listing with a name that is none"));
            }
            if name.name <= before {
                return Err(Fault::protocol("a listing that is not in order, or has a name twice"));
            }
            before.clone_from(&name.name);
            *left = left.checked_sub(1).ok_or_else(|| Fault::protocol("more names than any tree may have"))?;
        }
        names.retain(|name| name.name > *behind);
        if let Some(name) = names.last() {
            behind.clone_from(&name.name);
        }
        if sink(names).is_break() {
            return Ok(Ok(ControlFlow::Break(())));
        }
        if last {
            return Ok(Ok(ControlFlow::Continue(())));
        }
    }
}

/// Whether a name is one component, which leads nowhere else.
fn is_bare(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name != b"." && name != b".." && !name.contains(&b'/')
}

/// How many of the names fit a message.
fn fitting<'n>(names: impl Iterator<Item = &'n RelPath>) -> usize {
    let mut bytes = 0;
    let fits = |name: &&RelPath| {
        let before = bytes;
        bytes += name.as_bytes().len() + NAME_LENGTH_BYTES;
        before == 0 || bytes <= PAGE_BYTES_MAX
    };
    names.take(READING_NAMES_MAX).take_while(fits).count()
}

/// Waits for a time, unless a stop comes.
async fn rested(stop: &Stop, pause: Duration) -> Result<(), Fault> {
    let rest = async {
        sleep(pause).await;
        Ok(())
    };
    unless_stopped(stop, rest).await
}

async fn unless_stopped<T>(stop: &Stop, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let mut stop = stop.clone();
    tokio::select! {
        biased;
        code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the daemon had read all")),
        done = work => done,
    }
}

/// Says something in a conversation. A daemon that has stopped may take nothing for ever.
async fn say(reached: &mut Reached, message: &Message) -> Result<(), Fault> {
    match timeout(READER_SILENT_FOR, write_message(&mut reached.control.writer, message)).await {
        Ok(said) => said,
        Err(_) => Err(silent("took")),
    }
}

/// The next message of a conversation.
async fn heard(reader: &mut ReadHalf) -> Result<Message, Fault> {
    let Ok(heard) = timeout(READER_SILENT_FOR, read_message(reader)).await else {
        return Err(silent("said"));
    };
    match heard? {
        Some(Message::Refuse(fault)) => Err(fault.seen_from_afar()),
        Some(message) => Ok(message),
        None => Err(ended()),
    }
}

fn silent(did: &str) -> Fault {
    let why = format_args!("the daemon {did} nothing for {} s", READER_SILENT_FOR.as_secs());
    Fault::new(FaultCode::TimedOut, Blame::Peer, why).hint(hint::Again::Now)
}

fn ended() -> Fault {
    Fault::new(FaultCode::Lost, Blame::Peer, "the daemon ended the conversation").hint(hint::Daemon::SeeItsLog)
}

fn unknown() -> Fault {
    let why = "the other side does not know how to read files for the digests alone";
    Fault::new(FaultCode::Usage, Blame::Peer, why)
        .hint_in_words("have the other side run a newer build, or check the files on its host")
}

/// Names of directories that are listed in one run: more are no tree, but a daemon that never ends.
const LISTED_NAMES_MAX: u64 = 1 << 32;
/// Bytes of the length of a name in a message.
const NAME_LENGTH_BYTES: usize = 3;
/// A conversation in which nothing was asked for so long is begun anew.
const TALK_KEPT_FOR: Duration = Duration::from_secs(40);
/// A daemon that is at work says so every few seconds. One that is silent for this long is gone.
const READER_SILENT_FOR: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use longhaul_core::{Meta, Mtime};
    use longhaul_proto::wire::message::ListedKind;
    use tokio::io::duplex;

    use super::*;
    use crate::session::channel::WriteHalf;

    /// The reader of a conversation in which a daemon has said this.
    async fn said(words: Vec<ReadingWord>) -> ReadHalf {
        let (here, there) = duplex(1 << 20);
        let mut writer: WriteHalf = Box::new(there);
        for word in words {
            write_message(&mut writer, &Message::Reading(word)).await.expect("said");
        }
        Box::new(here)
    }

    fn page(names: &[&[u8]], last: bool) -> ReadingWord {
        let listed =
            |name: &&[u8]| Listed { name: name.to_vec(), kind: ListedKind::File, len: 0, meta: Meta::default() };
        ReadingWord::Names(Listing { names: names.iter().map(listed).collect(), last })
    }

    fn found(places: &[u32], last: bool) -> ReadingWord {
        let name = |at: &u32| FoundName { at: *at, found: FoundThing::Read { bytes: 1, b3: [7; 32] } };
        ReadingWord::Found(FoundNames { names: places.iter().map(name).collect(), last })
    }

    #[tokio::test]
    async fn names_that_climb_repeat_or_never_end_are_a_breach() {
        for (pages, why) in [
            (vec![page(&[b"a", b".."], true)], "is none"),
            (vec![page(&[b"a/b"], true)], "is none"),
            (vec![page(&[b""], true)], "is none"),
            (vec![page(&[b"a"], false), page(&[b"a"], true)], "twice"),
            (vec![page(&[b"b", b"a"], true)], "not in order"),
            (vec![page(&[b"a", b"b", b"c"], false), page(&[b"d"], true)], "more names than"),
            (vec![found(&[0], true)], "in place of the names"),
            (vec![ReadingWord::Opened], "something else"),
            (vec![page(&[], false); 40], "that say nothing"),
            (vec![found(&[], false); 40], "that say nothing"),
        ] {
            let mut reader = said(pages).await;
            let mut sink = |_| ControlFlow::Continue(());
            let heard = hear_names(&mut reader, &mut 3, (&mut Vec::new(), &mut sink)).await;
            let fault = heard.expect_err(why);
            assert!(fault.code == FaultCode::Protocol && fault.message.contains(why), "{fault}");
        }
        let failed = FoundThing::Failed(Fault::new(FaultCode::Denied, Blame::Local, "no"));
        let refused = ReadingWord::Found(FoundNames { names: vec![FoundName { at: 0, found: failed }], last: true });
        let mut reader = said(vec![page(&[], false), refused]).await;
        let mut sink = |_| ControlFlow::Continue(());
        let heard = hear_names(&mut reader, &mut 3, (&mut Vec::new(), &mut sink)).await;
        assert_eq!(heard.expect("it goes on").expect_err("it is not listed").code, FaultCode::Denied);
    }

    #[tokio::test]
    async fn a_listing_that_was_lost_goes_on_behind_the_last_name() {
        let (mut behind, mut given) = (Vec::new(), Vec::new());
        let lost = vec![page(&[b"a", b"b"], false)];
        let whole = vec![page(&[b"a", b"aa"], false), page(&[b"b", b"c"], true)];
        for (pages, is_lost) in [(lost, true), (whole, false)] {
            let mut reader = said(pages).await;
            let mut sink = |names: Vec<Listed>| {
                given.extend(names.into_iter().map(|listed| listed.name));
                ControlFlow::Continue(())
            };
            let heard = hear_names(&mut reader, &mut 9, (&mut behind, &mut sink)).await;
            assert_eq!(heard.is_err_and(|fault| fault.code == FaultCode::Lost), is_lost);
        }
        assert_eq!(given, [b"a", b"b", b"c"]);
    }

    #[tokio::test]
    async fn findings_on_other_names_or_twice_or_too_few_are_a_breach() {
        let mtime = Mtime { secs: 0, nanos: 0 };
        let seen = FoundName { at: 0, found: FoundThing::File { bytes: 1, mtime } };
        for (words, why) in [
            (vec![found(&[2], true)], "not asked about"),
            (vec![found(&[u32::MAX], true)], "not asked about"),
            (vec![found(&[0], false), found(&[0], true)], "two findings"),
            (vec![found(&[0], true)], "no findings"),
            (vec![ReadingWord::Found(FoundNames { names: vec![seen], last: false })], "only looked at"),
            (vec![page(&[b"a"], true)], "something else"),
            (vec![found(&[], false); 40], "that say nothing"),
        ] {
            let (mut reader, mut heard) = (said(words).await, [false; 2]);
            let order = NamesOrder { places: vec![4, 9], answered: Answered::Read };
            let fault = order.hear(&mut reader, &mut heard, &mut |_, _| {}).await.expect_err(why);
            assert!(fault.code == FaultCode::Protocol && fault.message.contains(why), "{fault}");
        }
        let (mut reader, mut heard, mut places) =
            (said(vec![found(&[1], false), found(&[0], true)]).await, [false; 2], vec![]);
        let order = NamesOrder { places: vec![4, 9], answered: Answered::Read };
        order.hear(&mut reader, &mut heard, &mut |at, _| places.push(at)).await.expect("each has its finding");
        assert_eq!(places, [9, 4]);
    }
}
