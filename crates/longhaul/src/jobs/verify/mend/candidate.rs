//! A bad file that is to be mended, and what has become of it.
//!
//! In: findings on a batch, and what was heard of copies. Out: the files of which the digest is
//! recorded, and the words for those that stay bad. Moves nothing, and reads nothing.

use std::fmt::Display;

use longhaul_core::{Fault, Hash32, PlainText, RelPath};
use longhaul_engine::Withdrawn;
use longhaul_jobs::pace::time_of;
use longhaul_jobs::queue::FoundBad;
use longhaul_manifest::Item;
use tokio::time::Instant;

use super::aside::FileAnswer;
use crate::jobs::verify::batch::BatchFindings;
use crate::jobs::verify::ground::FileRead;
use crate::jobs::verify::news::MendedFile;
use crate::jobs::verify::orders::MendOrders;
use crate::jobs::verify::shard::{NamesBatch, ShardFiles};

/// A bad file that is to be mended.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The file, as the manifest has it.
    pub(super) item: Item,
    /// The digest that is recorded of it.
    pub(super) b3: Hash32,
    /// The last finding on it.
    pub(super) found: FoundBad,
    /// The progress of its copy.
    pub(super) state: CandidateState,
    /// Where the file lies that stood under its name.
    pub(super) kept: AsideFile,
    /// The progress of the copy at the destination.
    pub(super) put: CopyPut,
    /// The reasons why it is not mended.
    pub(super) why: Vec<String>,
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CandidateState {
    /// No tree has given the right one yet.
    Wanted,
    /// The tree of this number has given it, and it lies on this host.
    Staged(usize),
    /// The file is not mended this time.
    GivenUp,
}

/// Where a file lies that stood under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AsideFile {
    /// Nothing was moved.
    Nowhere,
    /// It lies there.
    In(String),
    /// It lies there, or has its name still: nobody has said which.
    Perhaps(String),
}

/// The progress of a copy at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyPut {
    /// It was not sent.
    No,
    /// It was sent, and nobody has said that it has the name.
    Tried,
    /// It was sent, and the transfer says that it has not the name: something else may have it.
    Refused,
    /// The transfer says that it has the name.
    Done,
}

/// Takes the bad files that may be mended from the findings on a batch.
pub(super) fn candidates(
    orders: &MendOrders,
    (files, batch): (&ShardFiles, &NamesBatch),
    found: &mut BatchFindings,
) -> Vec<Candidate> {
    let (mut candidates, mut others) = (Vec::new(), Vec::new());
    for bad in std::mem::take(&mut found.bad) {
        let item = batch.items.iter().find(|item| item.path.as_bytes() == bad.path);
        let Some(item) = item.filter(|_| orders.kinds.contains(&bad.kind)) else {
            others.push(bad);
            continue;
        };
        match files.known(item).filter(|_| item.is_file()) {
            Some(b3) => candidates.push(Candidate::new(item.clone(), b3, bad)),
            None => others.push(unmended(bad, "no digest of it is recorded")),
        }
    }
    found.bad = others;
    candidates
}

/// Gives up candidates for which the time does not suffice that is left at a budget. A file is
/// copied, read once more, put and read back.
pub(super) fn give_up_long(candidates: &mut [Candidate], (budget, deadline): (Option<u64>, Option<Instant>)) {
    let (Some(budget), Some(deadline)) = (budget, deadline) else { return };
    let (left, mut bytes) = (deadline.saturating_duration_since(Instant::now()), 0_u64);
    for candidate in candidates.iter_mut().filter(|one| one.state == CandidateState::Wanted) {
        let sum = bytes.saturating_add(candidate.item.bytes());
        match time_of(sum, budget).saturating_mul(MENDING_PASSES) > left {
            true => candidate.give_up("at the budget that takes longer than is left of --max-time"),
            false => bytes = sum,
        }
    }
}

impl Candidate {
    fn new(item: Item, b3: Hash32, found: FoundBad) -> Candidate {
        Candidate {
            item,
            b3,
            found,
            state: CandidateState::Wanted,
            kept: AsideFile::Nowhere,
            put: CopyPut::No,
            why: Vec::new(),
        }
    }

    /// Its path.
    pub(super) fn path(&self) -> &RelPath {
        &self.item.path
    }

    /// Whether it is to be mended, and nothing was done to its name yet.
    pub(super) fn is_untouched(&self) -> bool {
        let is_left_alone = self.kept == AsideFile::Nowhere && self.put == CopyPut::No;
        is_left_alone && self.state != CandidateState::GivenUp
    }

    /// The number of the tree that has given its copy.
    pub(super) fn staged(&self) -> Option<usize> {
        match self.state {
            CandidateState::Staged(at) => Some(at),
            CandidateState::Wanted | CandidateState::GivenUp => None,
        }
    }

    /// Judges what the tree of a number has given: only content with the recorded digest is right.
    pub(super) fn judge(&mut self, heard: Option<FileRead>, fault: Option<&Fault>, (at, tree): (usize, &str)) {
        let why = match heard {
            Some(Ok((_, b3))) if b3 == self.b3 => {
                self.state = CandidateState::Staged(at);
                self.why.clear();
                return;
            }
            Some(Ok((_, b3))) => {
                format!("{tree} has other content, with the BLAKE3 {}", blake3::Hash::from_bytes(b3).to_hex())
            }
            Some(Err(why)) => format!("{tree}: {why}"),
            None => format!("{tree}: {}", fault.map_or("it has no such file", |fault| fault.message.as_str())),
        };
        self.why.push(why);
    }

    /// Gives it up: what has its name stays as it is.
    pub(super) fn give_up(&mut self, why: impl Display) {
        self.state = CandidateState::GivenUp;
        self.why.push(why.to_string());
    }

    /// Notes what was heard of its name, which was to be moved to a place.
    pub(super) fn moved(&mut self, end: Option<FileAnswer<Withdrawn>>, place: String) {
        match end {
            Some(Ok(Withdrawn::Moved | Withdrawn::MovedBefore)) => self.kept = AsideFile::In(place),
            Some(Ok(Withdrawn::Changed | Withdrawn::NotEmpty)) => {
                self.give_up("what has its name is another one by now, and stays");
            }
            Some(Ok(Withdrawn::Gone)) => self.give_up("nothing has its name any more: somebody has removed it"),
            Some(Err(fault)) => {
                self.kept = AsideFile::Perhaps(place);
                self.why.push(format!("it could not be moved aside: {}", fault.message));
            }
            None => {
                self.kept = AsideFile::Perhaps(place);
                self.why.push("nobody has said whether it was moved aside".to_owned());
            }
        }
    }

    /// Notes what was heard of its copy, which was sent.
    pub(super) fn sent(&mut self, heard: Option<&FileRead>, fault: Option<&Fault>) {
        self.put = CopyPut::Tried;
        match heard {
            Some(Ok((_, b3))) if *b3 == self.b3 => self.put = CopyPut::Done,
            Some(Ok(_)) => self.why.push("its copy has changed on this host since it came".to_owned()),
            Some(Err(why)) => {
                self.put = CopyPut::Refused;
                self.why.push(why.to_string());
            }
            None => self.why.extend(fault.map(|fault| fault.message.to_string())),
        }
    }

    /// The news of it, if it is well and was given its copy. `None`: another may have given it what
    /// it has.
    pub(super) fn mended(&self, from: String) -> Option<MendedFile> {
        let kept = match &self.kept {
            AsideFile::Nowhere | AsideFile::Perhaps(_) if self.put != CopyPut::Done => return None,
            AsideFile::In(_) if self.put == CopyPut::Refused => return None,
            AsideFile::Nowhere => None,
            AsideFile::In(kept) | AsideFile::Perhaps(kept) => Some(kept.clone()),
        };
        let path = self.path().as_bytes().to_vec();
        Some(MendedFile { path, bytes: self.found.bytes, kind: self.found.kind, from, kept })
    }

    /// The file, which stays bad, with the reasons. The last one may be a fault that ended the
    /// mending.
    pub(super) fn unmended(mut self, ended: Option<&Fault>) -> FoundBad {
        if let Some(ended) = ended.filter(|_| self.state != CandidateState::GivenUp) {
            self.why.push(ended.message.to_string());
        }
        match &self.kept {
            AsideFile::Nowhere => {}
            AsideFile::In(kept) => self.why.push(format!("what stood under its name lies in {kept}")),
            AsideFile::Perhaps(kept) => {
                self.why.push(format!("what stood under its name lies in {kept}, if nothing has the name any more"));
            }
        }
        unmended(self.found, self.why.join("; "))
    }
}

fn unmended(bad: FoundBad, why: impl Display) -> FoundBad {
    let message = PlainText::of(format_args!("{}; it was not mended: {why}", bad.message));
    FoundBad { message, ..bad }
}

/// Times that the bytes of a file are carried or read while it is mended.
pub(super) const MENDING_PASSES: u32 = 4;

#[cfg(test)]
mod tests {
    use longhaul_core::{Blame, FaultCode};
    use longhaul_jobs::BadKind;

    use super::*;

    fn candidate() -> Candidate {
        let item = Item::file(RelPath::new("a").unwrap(), Some(3), Default::default());
        let found = FoundBad { path: b"a".to_vec(), bytes: 3, kind: BadKind::Damaged, message: "it is bad".into() };
        Candidate::new(item, [1; 32], found)
    }

    #[test]
    fn only_content_with_the_recorded_digest_is_taken_and_the_next_tree_is_asked_for_any_other() {
        let mut candidate = candidate();
        let fault = Fault::new(FaultCode::Lost, Blame::Path, "the link is down");
        candidate.judge(Some(Ok((3, [2; 32]))), None, (0, "/one"));
        candidate.judge(Some(Err("it cannot be read".into())), None, (1, "/two"));
        candidate.judge(None, Some(&fault), (2, "/three"));
        candidate.judge(None, None, (3, "/four"));
        assert_eq!((candidate.state, candidate.why.len()), (CandidateState::Wanted, 4));
        candidate.judge(Some(Ok((3, [1; 32]))), None, (4, "/five"));
        assert_eq!((candidate.staged(), candidate.why.len()), (Some(4), 0));
    }

    #[test]
    fn a_file_that_stays_bad_has_the_reasons_and_the_place_of_what_was_moved_aside() {
        let mut candidate = candidate();
        candidate.judge(Some(Ok((3, [2; 32]))), None, (0, "/one"));
        candidate.kept = AsideFile::In("/to/grace/a".to_owned());
        let bad = candidate.unmended(Some(&Fault::new(FaultCode::Lost, Blame::Path, "the link is down")));
        let message = bad.message.as_str();
        for part in ["it is bad; it was not mended: /one has other content", "the link is down", "/to/grace/a"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let mut given_up = self::candidate();
        given_up.give_up("it stays");
        let fault = Fault::new(FaultCode::Lost, Blame::Path, "later");
        assert_eq!(given_up.unmended(Some(&fault)).message.as_str(), "it is bad; it was not mended: it stays");
    }

    #[test]
    fn a_name_of_which_nobody_says_whether_it_went_is_given_its_copy_and_its_place_is_told() {
        let staged = || {
            let mut candidate = candidate();
            candidate.judge(Some(Ok((3, [1; 32]))), None, (0, "/one"));
            candidate
        };
        for end in [None, Some(Err(Fault::new(FaultCode::Lost, Blame::Path, "the link is down")))] {
            let mut unsure = staged();
            unsure.moved(end, "/to/grace/a".to_owned());
            assert_eq!(unsure.staged(), Some(0), "its copy is put all the same");
            unsure.sent(Some(&Ok((3, [1; 32]))), None);
            assert_eq!(unsure.mended(String::new()).unwrap().kept.unwrap(), "/to/grace/a");
            unsure.sent(None, None);
            assert_eq!(unsure.mended(String::new()), None, "somebody else may have put it");
            assert!(unsure.unmended(None).message.as_str().contains("lies in /to/grace/a, if"));
        }
        let mut moved = staged();
        moved.moved(Some(Ok(Withdrawn::Moved)), "/to/grace/a".to_owned());
        moved.sent(Some(&Ok((3, [2; 32]))), None);
        assert_eq!(moved.put, CopyPut::Tried, "its copy has another digest than it came with");
        moved.sent(None, None);
        assert!(moved.mended(String::new()).is_some(), "nobody else had the name");
        moved.sent(Some(&Err("the name is taken".into())), None);
        assert_eq!(moved.mended(String::new()), None, "another verifier has mended it");
        assert!(moved.unmended(None).message.as_str().contains("lies in /to/grace/a"));
        for end in [Withdrawn::Changed, Withdrawn::NotEmpty, Withdrawn::Gone] {
            let mut other = staged();
            other.moved(Some(Ok(end)), "/to/grace/a".to_owned());
            assert_eq!((other.staged(), other.kept), (None, AsideFile::Nowhere));
        }
    }

    #[test]
    fn a_file_is_mended_only_if_the_time_suffices_that_is_left() {
        let state = |budget, seconds| {
            let mut one = [candidate()];
            let deadline = Instant::now() + std::time::Duration::from_secs(seconds);
            give_up_long(&mut one, (budget, Some(deadline)));
            one[0].state
        };
        let bytes = candidate().item.bytes();
        assert_eq!(state(Some(bytes), 3), CandidateState::GivenUp);
        assert_eq!(state(Some(bytes), 60), CandidateState::Wanted);
        assert_eq!(state(None, 0), CandidateState::Wanted);
    }
}
