//! [`PartialChoice`]: which of several partials of a name is continued, and how the others are
//! given up.
//!
//! In: the partials that journals have of a name, and whether their temporaries stand. Out: steps
//! on journals and names, to be carried out in order. It knows no content.

use longhaul_core::{RelPath, SessionTag};

use super::TakenPartial;
use super::step::KeeperStep;
use crate::journal::{FileRecord, Record};

/// A partial, and the journal that it was taken from.
#[derive(Debug)]
pub struct FoundPartial {
    /// The journal's tag.
    pub journal: SessionTag,
    /// The partial.
    pub taken: TakenPartial,
}

/// The partials of one name.
#[derive(Debug)]
pub struct PartialChoice {
    /// The one that is continued.
    pub winner: FoundPartial,
    /// The others, which are given up.
    pub losers: Vec<FoundPartial>,
}

impl PartialChoice {
    /// Chooses among partials, in the order in which they were found. `None` if there are none.
    ///
    /// One whose temporary stands is better than one without: such a record was given up, and the
    /// crash that followed took the record of that. Among equals the one of which most is held is
    /// better, and then the first.
    pub fn of(found: Vec<FoundPartial>, stands: impl Fn(&TakenPartial) -> bool) -> Option<PartialChoice> {
        let is_alone = found.len() == 1;
        let worth = |found: &FoundPartial| (is_alone || stands(&found.taken), found.taken.held.len());
        let mut found = found.into_iter().map(|found| (worth(&found), found));
        let (mut most, mut winner) = found.next()?;
        let mut losers = Vec::new();
        for (worth, found) in found {
            let loser = if worth > most { std::mem::replace(&mut winner, found) } else { found };
            most = most.max(worth);
            losers.push(loser);
        }
        Some(PartialChoice { winner, losers })
    }

    /// The steps: the journal of the partial that is continued is taken over, durably, before
    /// anything of another one goes. `placed` is the final name, beneath the destination.
    pub fn steps(&self, placed: &RelPath) -> Vec<KeeperStep> {
        let first = KeeperStep::TakeOver(self.winner.journal);
        std::iter::once(first).chain(self.losers.iter().flat_map(|loser| loser.given_up(placed))).collect()
    }
}

impl FoundPartial {
    /// The steps by which it is given up: its temporary is removed, durably, before its journal
    /// forgets it. That journal may have left the directory already, so that nobody would look for
    /// a temporary there. `placed` is the final name, beneath the destination.
    pub fn given_up(&self, placed: &RelPath) -> Vec<KeeperStep> {
        let (journal, FileRecord { temp, .. }) = (self.journal, &self.taken.file);
        let records = vec![Record::Dropped { number: self.taken.number }];
        let dropped = [KeeperStep::TakeOver(journal), KeeperStep::RemoveTemp(*temp)].into_iter();
        let dir = placed.parent().map(|dir| KeeperStep::SyncNames(vec![dir]));
        dropped.chain(dir).chain([KeeperStep::Append { journal, records }]).collect()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, SourceStamp, TempName};

    use super::*;
    use crate::journal::HeldChunks;

    const STANDS: u8 = 1;

    fn found(tag: u8, chunks: u64, stands: u8) -> FoundPartial {
        let map = ChunkMap::new(9 << 10, ChunkSize::from_bytes(1024).expect("a size"));
        let temp = TempName::new(SessionTag([tag; 8]), [stands; 8]);
        let (path, source) = (RelPath::new("f").expect("a path"), SourceStamp::default());
        let file = FileRecord { number: 4, path, map, source, sparse: false, temp };
        let mut held = HeldChunks::new();
        for at in 0..chunks {
            held.insert(ChunkIndex(at), [0; 32]);
        }
        FoundPartial { journal: SessionTag([tag; 8]), taken: TakenPartial { number: 4, file, held, placed: None } }
    }

    #[test]
    fn a_temporary_that_stands_counts_more_than_chunks_and_these_more_than_the_order() {
        let rows: [(&str, Vec<FoundPartial>, u8); 4] = [
            ("alone", vec![found(1, 0, 0)], 1),
            ("most held", vec![found(1, 2, STANDS), found(2, 3, STANDS)], 2),
            ("first", vec![found(1, 2, STANDS), found(2, 2, STANDS)], 1),
            ("standing", vec![found(1, 5, 0), found(2, 1, STANDS)], 2),
        ];
        for (case, found, winner) in rows {
            let stands = |taken: &TakenPartial| taken.file.temp == TempName::new(taken.file.temp.tag(), [STANDS; 8]);
            let choice = PartialChoice::of(found, stands).expect("some");
            assert_eq!(choice.winner.journal, SessionTag([winner; 8]), "{case}");
        }
        assert!(PartialChoice::of(Vec::new(), |_| true).is_none());
    }

    #[test]
    fn nothing_of_a_loser_goes_before_the_winner_is_durable() {
        let (winner, loser) = (SessionTag([2; 8]), SessionTag([1; 8]));
        let choice = PartialChoice::of(vec![found(1, 2, STANDS), found(2, 3, STANDS)], |_| true).expect("some");
        let dir = RelPath::new("d").expect("a path");
        let expected = [
            KeeperStep::TakeOver(winner),
            KeeperStep::TakeOver(loser),
            KeeperStep::RemoveTemp(TempName::new(loser, [STANDS; 8])),
            KeeperStep::SyncNames(vec![dir.clone()]),
            KeeperStep::Append { journal: loser, records: vec![Record::Dropped { number: 4 }] },
        ];
        assert_eq!(choice.steps(&dir.join(b"f").expect("a path")), expected);
    }
}
