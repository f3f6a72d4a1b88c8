//! [`RecordedFiles`]: the files of a session that stand in journals, and what is recorded of them.
//!
//! In: files that are announced or continued, chunks that are synced, files that are committed or
//! given up. Out: records for the journal in which each file stands, and the steps that write them.
//! It makes and forgets no directories and opens nothing.

use std::collections::HashMap;

use longhaul_core::digest::Digest;
use longhaul_core::{ChunkIndex, ChunkMap, FileId, FileNode, Layout, RelPath, SessionTag, SourceStamp, TempName};

use super::choice::FoundPartial;
use super::dirs::TempDirs;
use super::step::{JournalWrites, KeeperStep};
use crate::journal::{FileRecord, Record, Stretch};

/// The files of a session that stand in journals: in its own those that it began, in earlier ones
/// those that it continues.
///
/// ```text
/// state      event              next state  steps
/// (none)     announced          Begun
/// (none)     continued          Held
/// Begun      chunks are synced  Held        append its temporary's identity and the chunks, sync
/// Held       chunks are synced  Held        append the chunks, sync
/// Begun/Held committed          (none)      append that it is done
/// Begun/Held given up           (none)      append that it is dropped; before that, in a journal
///                                           that may not name its directory any more, remove its
///                                           temporary and sync the names
/// Begun/Held the session ends   (none)
/// ```
#[derive(Debug)]
pub struct RecordedFiles {
    layout: Layout,
    files: HashMap<FileId, RecordedFile>,
}

/// Where a file of a session is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNumber {
    /// The journal's tag.
    pub journal: SessionTag,
    /// The number of the file in it.
    pub number: u32,
}

#[derive(Clone, Debug)]
struct RecordedFile {
    at: FileNumber,
    map: ChunkMap,
    temp: TempName,
    /// Whether any chunk of it is journalled, so that a later session has a use for it.
    is_held: bool,
    /// The identity of its temporary, until that is recorded.
    unrecorded: Option<FileNode>,
}

/// The findings when the held chunks of a partial were read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The chunks that the medium does not have.
    pub lost: Vec<Stretch>,
    /// The identity of the temporary now. `None` if it cannot be told.
    pub node: Option<FileNode>,
}

impl RecordedFiles {
    /// No file yet. Chunks lie as the layout of the destination says.
    pub fn new(layout: Layout) -> RecordedFiles {
        RecordedFiles { layout, files: HashMap::new() }
    }

    /// A file was announced under `record`, in the journal of this tag, and its temporary made, of
    /// which `node` is the identity.
    pub fn begun(&mut self, file: FileId, journal: SessionTag, record: &FileRecord, node: Option<FileNode>) {
        let recorded = RecordedFile { is_held: false, unrecorded: node, ..RecordedFile::of(journal, record) };
        self.files.insert(file, recorded);
    }

    /// A file continues the partial of an earlier session, under the record that it has.
    pub fn continued(&mut self, file: FileId, found: &FoundPartial) {
        self.files.insert(file, RecordedFile::of(found.journal, &found.taken.file));
    }

    /// Chunks of a file are synced under its temporary name: adds the records that say so. They are
    /// durable before anybody relies on the chunks.
    pub fn hold(&mut self, file: FileId, chunks: &[(ChunkIndex, Digest)], writes: &mut JournalWrites) {
        let Some(file) = self.files.get_mut(&file) else { return };
        let FileNumber { journal, number } = file.at;
        file.is_held = true;
        let temporary = file.unrecorded.take().map(|node| Record::Placed { number, node });
        let held = Record::held(number, self.layout, file.map, chunks);
        writes.append_durably(journal, temporary.into_iter().chain(held));
    }

    /// A file stands under its final name for good: adds the record that it is done. It need not be
    /// durable, as the file is found standing.
    pub fn done(&self, file: FileId, writes: &mut JournalWrites) {
        if let Some(RecordedFile { at: FileNumber { journal, number }, .. }) = self.files.get(&file) {
            writes.append(*journal, [Record::Done { number: *number }]);
        }
    }

    /// Gives up a file whose bytes are good for nothing, and whose temporary was, or was to be,
    /// removed from `dir`, which has the second name beneath the destination: forgets the file, and
    /// gives the steps by which its journal does.
    ///
    /// If it is recorded in the session's `own` journal and `dirs` names that directory, the
    /// journal does so until its names are synced. Otherwise the journal, which may be that of an
    /// earlier session, may have left it already, so that nobody would look for a temporary there
    /// that could not be removed, or that a power cut brought back: then that is made sure of
    /// first.
    pub fn given_up(
        &mut self,
        file: FileId,
        (own, dirs): (SessionTag, &TempDirs),
        dir: Option<(RelPath, RelPath)>,
    ) -> Vec<KeeperStep> {
        let Some(RecordedFile { at: FileNumber { journal, number }, temp, .. }) = self.files.remove(&file) else {
            return Vec::new();
        };
        let dropped = KeeperStep::Append { journal, records: vec![Record::Dropped { number }] };
        match dir.filter(|(dir, _)| journal != own || !dirs.names(dir)) {
            Some((_, dir)) => vec![KeeperStep::RemoveTemp(temp), KeeperStep::SyncNames(vec![dir]), dropped],
            None => vec![dropped],
        }
    }

    /// Whether any chunk of a file is worth keeping for another session.
    pub fn is_held(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|file| file.is_held)
    }

    /// Where a file is recorded. `None` if it is not.
    pub fn number(&self, file: FileId) -> Option<FileNumber> {
        self.files.get(&file).map(|file| file.at)
    }

    /// Forgets a file. Where it was recorded is for the journal, if it lets the file go.
    pub fn forget(&mut self, file: FileId) -> Option<FileNumber> {
        self.files.remove(&file).map(|file| file.at)
    }

    /// Forgets all files. Gives where they were recorded.
    pub fn forget_all(&mut self) -> Vec<FileNumber> {
        self.files.drain().map(|(_, file)| file.at).collect()
    }
}

impl RecordedFile {
    fn of(journal: SessionTag, record: &FileRecord) -> RecordedFile {
        let at = FileNumber { journal, number: record.number };
        RecordedFile { at, map: record.map, temp: record.temp, is_held: true, unrecorded: None }
    }
}

impl FoundPartial {
    /// Whether its temporary is what its records say, unless something else speaks against it: the
    /// same boot wrote it, so that no power cut came between the writing and the syncs.
    pub fn is_of_boot(&self, boot: [u8; 16]) -> bool {
        self.taken.placed.is_some_and(|placed| placed.origin.is_of_boot(boot))
    }

    /// The steps that come before anything of the partial is written anew. `offered` is the version
    /// of the source if that has changed; `proof` is there if the chunks were read back.
    ///
    /// No chunk of another version is held until it was compared with that version: a crash in the
    /// middle must not leave a journal that calls the old version's chunks those of the new.
    pub fn continuing(&self, offered: Option<SourceStamp>, proof: Option<Proof>) -> Vec<KeeperStep> {
        let (number, file) = (self.taken.number, &self.taken.file);
        let (lost, temporary) = proof.map_or((Vec::new(), None), |proof| (proof.lost, proof.node));
        let revised = match offered {
            Some(source) => {
                let lost = vec![Stretch { start: ChunkIndex(0), count: file.map.chunks() }];
                Some(Record::Revised { number, source, lost })
            }
            None if lost.is_empty() => None,
            None => Some(Record::Revised { number, source: file.source, lost }),
        };
        let mut writes = JournalWrites::default();
        let records: Vec<Record> =
            revised.into_iter().chain(temporary.map(|node| Record::Placed { number, node })).collect();
        if !records.is_empty() {
            writes.append_durably(self.journal, records);
        }
        writes.into_steps()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::ChunkSize;

    use super::*;
    use crate::journal::HeldChunks;
    use crate::journal::keeper::TakenPartial;

    const OWN: SessionTag = SessionTag([1; 8]);
    const EARLIER: SessionTag = SessionTag([2; 8]);
    const NODE: FileNode = FileNode { dev: 1, ino: 2, born: None };

    fn map() -> ChunkMap {
        ChunkMap::new(9 << 10, ChunkSize::from_bytes(1024).expect("a size"))
    }

    fn chunk(index: u64) -> (ChunkIndex, Digest) {
        (
            ChunkIndex(index),
            longhaul_core::digest::digest_of(&[7; 1024], map().kind(), map().start_of(ChunkIndex(index))),
        )
    }

    fn record(number: u32) -> FileRecord {
        let temp = TempName::new(EARLIER, [number as u8; 8]);
        let (path, source) =
            (RelPath::new("f").expect("a path"), SourceStamp { len: 9 << 10, ..SourceStamp::default() });
        FileRecord { number, path, map: map(), source, sparse: false, temp }
    }

    fn found(number: u32) -> FoundPartial {
        let taken = TakenPartial { number, file: record(number), held: HeldChunks::new(), placed: None };
        FoundPartial { journal: EARLIER, taken }
    }

    #[test]
    fn the_identity_of_a_temporary_is_recorded_once_with_the_first_chunks_that_are_synced() {
        let mut files = RecordedFiles::new(Layout::WHOLE);
        files.begun(FileId(5), OWN, &record(3), Some(NODE));
        assert!(!files.is_held(FileId(5)));
        for (index, is_first) in [(0, true), (1, false)] {
            let mut writes = JournalWrites::default();
            files.hold(FileId(5), &[chunk(index)], &mut writes);
            let steps = writes.into_steps();
            let [KeeperStep::Append { journal: OWN, records }, KeeperStep::Sync(OWN)] = &steps[..] else {
                panic!("{steps:?}")
            };
            assert_eq!(records.first() == Some(&Record::Placed { number: 3, node: NODE }), is_first);
            assert!(matches!(records.last(), Some(Record::Chunks { number: 3, .. })));
        }
        assert!(files.is_held(FileId(5)));
    }

    #[test]
    fn each_journal_is_written_once_and_synced_only_for_chunks() {
        let mut files = RecordedFiles::new(Layout::WHOLE);
        files.begun(FileId(1), OWN, &record(0), None);
        files.continued(FileId(2), &found(7));
        let mut writes = JournalWrites::default();
        files.done(FileId(1), &mut writes);
        files.hold(FileId(2), &[chunk(0)], &mut writes);
        files.hold(FileId(9), &[chunk(0)], &mut writes);
        let steps = writes.into_steps();
        let shapes = steps.iter().map(|step| match step {
            KeeperStep::Append { journal, records } => (*journal, records.len()),
            KeeperStep::Sync(journal) => (*journal, 0),
            other => panic!("{other:?}"),
        });
        assert_eq!(shapes.collect::<Vec<_>>(), [(OWN, 1), (EARLIER, 1), (EARLIER, 0)]);
    }

    #[test]
    fn a_temporary_is_gone_for_good_before_an_earlier_sessions_journal_forgets_its_file() {
        let (dir, full) = (RelPath::new("d").expect("a path"), RelPath::new("root/d").expect("a path"));
        let gone = || Some((full.clone(), dir.clone()));
        let mut files = RecordedFiles::new(Layout::WHOLE);
        files.begun(FileId(1), OWN, &record(0), None);
        files.continued(FileId(2), &found(7));
        let dropped = |journal, number| KeeperStep::Append { journal, records: vec![Record::Dropped { number }] };
        let (mut dirs, left) = (TempDirs::default(), TempDirs::default());
        dirs.named(vec![(full.clone(), FileId(3))]);
        assert_eq!(files.given_up(FileId(1), (OWN, &dirs), gone()), [dropped(OWN, 0)]);
        let removed = |number| KeeperStep::RemoveTemp(record(number).temp);
        let synced = || KeeperStep::SyncNames(vec![dir.clone()]);
        let expected = [removed(7), synced(), dropped(EARLIER, 7)];
        assert_eq!(files.given_up(FileId(2), (OWN, &dirs), gone()), expected);
        assert_eq!(files.given_up(FileId(2), (OWN, &dirs), gone()), []);
        // The own journal has left the directory already.
        files.begun(FileId(3), OWN, &record(1), None);
        let expected = [removed(1), synced(), dropped(OWN, 1)];
        assert_eq!(files.given_up(FileId(3), (OWN, &left), gone()), expected);
    }

    #[test]
    fn what_is_lost_of_a_partial_is_revised_away_durably_before_it_is_continued() {
        let (found, source) = (found(4), record(4).source);
        let other = SourceStamp { ino: 9, ..source };
        let all = vec![Stretch { start: ChunkIndex(0), count: 9 }];
        let one = vec![Stretch { start: ChunkIndex(2), count: 1 }];
        let proof = |lost: &[Stretch], node| Some(Proof { lost: lost.to_vec(), node });
        let revised = |source, lost: &[Stretch]| Record::Revised { number: 4, source, lost: lost.to_vec() };
        let placed = Record::Placed { number: 4, node: NODE };
        for (offered, proof, records) in [
            (None, None, vec![]),
            (None, proof(&[], None), vec![]),
            (None, proof(&one, Some(NODE)), vec![revised(source, &one), placed.clone()]),
            (Some(other), None, vec![revised(other, &all)]),
            (Some(other), proof(&one, Some(NODE)), vec![revised(other, &all), placed]),
        ] {
            let steps = found.continuing(offered, proof);
            if records.is_empty() {
                assert_eq!(steps, []);
            } else {
                assert_eq!(steps, [KeeperStep::Append { journal: EARLIER, records }, KeeperStep::Sync(EARLIER)]);
            }
        }
    }
}
