//! The rules, one by one, on records with a right frame and forbidden content.

use std::num::NonZeroU32;

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, DigestKind, FileOffset, Layout, Place, TargetId};
use longhaul_proto::journal::{
    End, FileRecord, JournalError, PRELUDE_BYTES, RECORD_BYTES_MAX, Record, Replay, Run, VERSION, Writer, replay,
};

use super::model::{ID, Sound, State, chunks, file, node, opened, origin, paths, run, stamp, stretch};

/// The format a second time, as it is documented: frames any kind and body.
struct Framer {
    key: [u8; 32],
    last: [u8; 8],
    bytes: Vec<u8>,
}

impl Framer {
    fn behind(records: &[Record]) -> Framer {
        let bytes = Sound::of(records).bytes;
        let last = bytes[bytes.len() - 8..].try_into().expect("eight bytes");
        Framer { key: blake3::derive_key("longhaul 1 journal record check", &ID.0), last, bytes }
    }

    fn put(mut self, kind: u8, body: &[u8]) -> Framer {
        let framed = [&(body.len() as u32).to_le_bytes()[..], &[kind], body].concat();
        let covered = [&self.last[..], &(self.bytes.len() as u64).to_le_bytes(), &framed].concat();
        self.last.copy_from_slice(&blake3::keyed_hash(&self.key, &covered).as_bytes()[..8]);
        self.bytes = [self.bytes, framed, self.last.to_vec()].concat();
        self
    }
}

/// A prelude of another version, sound otherwise.
fn prelude(version: u16) -> Vec<u8> {
    let mut bytes = Sound::of(&[opened(0)]).bytes;
    bytes[6..8].copy_from_slice(&version.to_le_bytes());
    let check = blake3::hash(&bytes[..24]);
    bytes[24..32].copy_from_slice(&check.as_bytes()[..8]);
    bytes
}

/// Asserts that the last of `records` is not believed, and all before it are.
fn ends_before_last(records: &[Record]) {
    let sound = Sound::of(&records[..records.len() - 1]);
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(ID, &mut bytes);
    records.iter().for_each(|record| writer.record(record, &mut bytes));
    let mut behind = Vec::new();
    writer.record(&opened(u64::MAX), &mut behind);
    bytes.extend(behind);
    let replayed = replay(&bytes).expect("opened");
    let (end, state) = sound.ends.last().expect("a record");
    assert_eq!((replayed.valid_len as usize, replayed.end), (*end, End::Corrupt), "{records:?}");
    assert_eq!(State::of(&replayed), *state, "{records:?}");
}

/// JOURNAL-1.
#[test]
fn a_foreign_file_is_told_from_a_newer_journal_and_from_a_damaged_one() {
    assert_eq!(replay(b"\x7fELF and so on").err(), Some(JournalError::NotAJournal));
    assert_eq!(replay(&prelude(VERSION + 1)).err(), Some(JournalError::NewerVersion { version: VERSION + 1 }));
    assert_eq!(replay(&prelude(u16::MAX)).err(), Some(JournalError::NewerVersion { version: u16::MAX }));
    assert_eq!(replay(&prelude(0)).err(), Some(JournalError::NotAJournal));
    assert!(replay(&prelude(VERSION)).is_ok());
    let mut flipped = prelude(VERSION);
    flipped[6] ^= 2;
    assert_eq!(replay(&flipped).err(), Some(JournalError::Unopened), "a flipped version is no newer one");
}

/// JOURNAL-2.
#[test]
fn a_journal_begins_with_its_opening_and_each_takeover_raises_the_generation() {
    let mut bytes = Vec::new();
    Writer::begin(ID, &mut bytes).record(&file(0, 3), &mut bytes);
    assert_eq!(replay(&bytes).err(), Some(JournalError::NotOpened));
    let taken = replay(&Sound::of(&[opened(3), file(0, 3), opened(4)]).bytes).expect("sound");
    assert_eq!((taken.opened.generation, taken.files.len()), (4, 1), "partials outlive a takeover");
    for late in [3, 2] {
        ends_before_last(&[opened(3), file(0, 3), opened(late)]);
    }
}

/// JOURNAL-3.
#[test]
fn an_unknown_kind_or_a_body_of_another_shape_ends_the_journal() {
    let before = [opened(0), file(1, 3)];
    let sound = Sound::of(&before).bytes;
    let digest = [5; 32];
    let one_run = [&1_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &1_u32.to_le_bytes(), &digest].concat();
    let none = [&1_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &0_u32.to_le_bytes()].concat();
    for (kind, body, believed) in [
        (0, vec![], false),
        (13, vec![1], false),
        (12, vec![0], true),
        (12, vec![1], false),
        (9, vec![1, 1, b'a'], true),
        (9, vec![1, 1, b'/'], false),
        (7, vec![1; 32], true),
        (7, vec![1; 33], false),
        (255, vec![], false),
        (4, vec![1], true),
        (4, vec![], false),
        (4, vec![1, 0], false),
        (4, vec![0x80], false),
        (3, one_run.clone(), true),
        (3, one_run[..one_run.len() - 1].to_vec(), false),
        (3, [one_run.clone(), vec![0]].concat(), false),
        (3, one_run[..4].to_vec(), false),
        (3, none, false),
    ] {
        let framed = Framer::behind(&before).put(kind, &body).bytes;
        let replayed = replay(&framed).expect("opened");
        let (valid, end) = if believed { (framed.len(), End::Clean) } else { (sound.len(), End::Corrupt) };
        assert_eq!((replayed.valid_len as usize, replayed.end), (valid, end), "{kind} {body:?}");
    }
}

/// JOURNAL-3: an old tail that comes back behind a newer record, though it is sound and stands
/// where it stood.
#[test]
fn a_record_behind_another_than_its_own_past_is_not_believed() {
    let one = Sound::of(&[opened(0), file(1, 9), chunks(1, 0, 2), chunks(1, 5, 2)]);
    let two = Sound::of(&[opened(0), file(1, 9), chunks(1, 2, 2)]);
    let split = two.bytes.len();
    assert_eq!(split, one.ends[2].0, "of the same length");
    let mixed = [&two.bytes[..], &one.bytes[split..]].concat();
    let replayed = replay(&mixed).expect("opened");
    assert_eq!((replayed.valid_len as usize, replayed.end), (split, End::Corrupt));
    assert_eq!(State::of(&replayed), two.ends[2].1);
}

/// JOURNAL-3: blocks of another journal.
#[test]
fn a_record_of_another_journal_is_not_believed() {
    let ours = Sound::of(&[opened(0), file(1, 9), chunks(1, 0, 2)]);
    let mut theirs = Vec::new();
    let mut writer = Writer::begin(longhaul_proto::journal::JournalId([1; 16]), &mut theirs);
    [opened(0), file(1, 9), chunks(1, 0, 2)].iter().for_each(|record| writer.record(record, &mut theirs));
    let (split, state) = &ours.ends[1];
    let replayed = replay(&[&ours.bytes[..*split], &theirs[*split..]].concat()).expect("opened");
    assert_eq!((replayed.valid_len as usize, replayed.end), (*split, End::Corrupt));
    assert_eq!(State::of(&replayed), *state);
}

/// JOURNAL-4.
#[test]
fn a_record_that_claims_to_be_too_long_ends_the_journal_at_once() {
    let bytes = Sound::of(&[opened(0)]).bytes;
    let mut replay = Replay::new();
    replay.push(&bytes);
    let fits = (RECORD_BYTES_MAX as u32 - 13).to_le_bytes();
    replay.push(&fits);
    assert!(!replay.ended());
    let mut replay = Replay::new();
    replay.push(&bytes);
    replay.push(&(RECORD_BYTES_MAX as u32 - 12).to_le_bytes());
    assert!(replay.ended(), "no more bytes are asked for");
    let replayed = replay.finish().expect("opened");
    assert_eq!((replayed.valid_len as usize, replayed.end), (bytes.len(), End::Corrupt));
}

/// JOURNAL-4.
#[test]
fn chunks_too_many_for_one_record_become_several() {
    let per_record = (RECORD_BYTES_MAX - 13 - 4 - 12) / 32;
    for count in [per_record - 1, per_record, per_record + 1, 3 * per_record + 7] {
        let digests = |from: usize, count: usize| (from..from + count).map(|n| n as u8);
        let runs = vec![run(5, digests(0, 1)), run(10, digests(1, count)), run(10 + count as u64, digests(9, 2))];
        let runs = [runs, vec![Run { start: ChunkIndex(0), digests: vec![] }]].concat();
        let mut bytes = Sound::of(&[opened(0), file(1, 10 + count as u64 + 2)]).bytes;
        let mut writer = replay(&bytes).expect("sound").writer;
        let start = bytes.len();
        writer.record(&Record::Chunks { number: 1, runs }, &mut bytes);
        let (mut at, mut records) = (start, 0);
        while at < bytes.len() {
            let body = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
            assert!(body + 13 <= RECORD_BYTES_MAX);
            (at, records) = (at + body + 13, records + 1);
        }
        assert_eq!(records, (count + 3).div_ceil(per_record).max(1 + usize::from(count + 3 > per_record - 2)));
        let replayed = replay(&bytes).expect("sound");
        assert_eq!((replayed.end, replayed.files[&1].held.len()), (End::Clean, count as u64 + 3));
        let last = replayed.files[&1].held.get(ChunkIndex(10 + count as u64 - 1));
        assert_eq!(last, Some(&[count as u8; 32]));
    }
}

#[test]
fn no_chunks_are_no_record() {
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(ID, &mut bytes);
    writer.record(&Record::Chunks { number: 1, runs: vec![] }, &mut bytes);
    writer.record(&Record::Chunks { number: 1, runs: vec![run(0, [])] }, &mut bytes);
    assert_eq!(bytes.len(), PRELUDE_BYTES);
}

/// JOURNAL-5.
#[test]
fn numbers_only_rise_and_only_open_files_are_spoken_of() {
    let revised = |number| Record::Revised { number, source: stamp(2), lost: vec![] };
    let placed = |number| Record::Placed { number, node: node(2) };
    for last in [chunks(2, 0, 1), Record::Done { number: 2 }, Record::Dropped { number: 2 }, revised(2), placed(2)] {
        ends_before_last(&[opened(0), file(1, 9), last.clone()]);
        for end in [Record::Done { number: 2 }, Record::Dropped { number: 2 }] {
            ends_before_last(&[opened(0), file(2, 9), end, last.clone()]);
        }
    }
    ends_before_last(&[opened(0), file(3, 9), file(3, 9)]);
    ends_before_last(&[opened(0), file(3, 9), Record::Dropped { number: 3 }, file(3, 9)]);
    ends_before_last(&[opened(0), file(3, 9), file(2, 9)]);
    let replayed = replay(&Sound::of(&[opened(0), file(3, 9), Record::Dropped { number: 3 }]).bytes).expect("sound");
    assert_eq!(replayed.next_number, 4);
}

/// JOURNAL-6.
#[test]
fn chunks_beyond_the_file_end_the_journal() {
    let lost = |stretch| Record::Revised { number: 1, source: stamp(2), lost: vec![stretch] };
    for last in [
        chunks(1, 9, 1),
        chunks(1, 8, 2),
        chunks(1, u64::MAX, 1),
        chunks(1, u64::MAX, 2),
        Record::Chunks { number: 1, runs: vec![run(0, [1]), run(9, [1])] },
        lost(stretch(8, 2)),
        lost(stretch(u64::MAX, 2)),
        lost(stretch(0, u64::MAX)),
    ] {
        ends_before_last(&[opened(0), file(1, 9), chunks(1, 7, 2), last]);
    }
    let Record::File(mut empty) = file(2, 1) else { unreachable!() };
    empty.map = ChunkMap::new(0, ChunkSize::DEFAULT);
    let bytes = Sound::of(&[opened(0), Record::File(empty), chunks(2, 0, 1)]).bytes;
    assert_eq!(replay(&bytes).expect("an empty file has one chunk").end, End::Clean);
}

/// JOURNAL-7.
#[test]
fn the_later_digest_counts_and_what_was_revised_away_is_not_held() {
    let again = Record::Chunks { number: 1, runs: vec![run(1, [77])] };
    let revised = Record::Revised { number: 1, source: stamp(99), lost: vec![stretch(0, 1), stretch(2, 7)] };
    let replayed = replay(&Sound::of(&[opened(0), file(1, 9), chunks(1, 0, 4), again, revised]).bytes).expect("sound");
    let partial = &replayed.files[&1];
    assert_eq!(partial.file.source, stamp(99));
    assert!(partial.held.iter().eq([(ChunkIndex(1), &[77; 32])]));
}

/// JOURNAL-8.
#[test]
fn a_kind_that_is_newer_than_the_journal_ends_it() {
    let mut bytes = Framer::behind(&[opened(0), file(1, 9)]).put(7, &[1; 32]).bytes;
    assert_eq!(replay(&bytes).expect("opened").end, End::Clean);
    bytes[..PRELUDE_BYTES].copy_from_slice(&prelude(1)[..PRELUDE_BYTES]);
    let replayed = replay(&bytes).expect("opened");
    assert_eq!((replayed.end, replayed.files.len()), (End::Corrupt, 1));
}

/// JOURNAL-11. Each chunk of a file lies at one place, which the layout gives it.
#[test]
fn chunks_at_other_places_than_the_layouts_end_the_journal_and_whole_files_lie_on_one_target() {
    let Record::File(of_nine) = file(1, 9) else { unreachable!() };
    let digests: Vec<(ChunkIndex, Digest)> = (2..9).map(|at| (ChunkIndex(at), digest())).collect();
    for written in 1..=4 {
        let records = Record::held(1, over(written), of_nine.map, &digests);
        assert_eq!(records.len() as u32, written, "a record for each target");
        let mut bytes = Vec::new();
        let mut writer = Writer::begin_over(over(written), ID, &mut bytes);
        [opened(0), file(1, 9)].iter().chain(&records).for_each(|record| writer.record(record, &mut bytes));
        for read in 1..=4 {
            let mut replay = Replay::over(over(read));
            replay.push(&bytes);
            let replayed = replay.finish().expect("opened");
            let (is_same, held) = (read == written, &replayed.files[&1].held);
            assert_eq!(replayed.end, if is_same { End::Clean } else { End::Misplaced }, "{written} as {read}");
            assert_eq!(held.iter().map(|(at, _)| at.0).eq(2..9), is_same, "{written} as {read}");
        }
    }
}

/// JOURNAL-11.
#[test]
fn a_chunk_at_the_place_of_another_is_not_believed_nor_one_beyond_any_offset() {
    let place = |target, offset| Place { target: TargetId(target), offset };
    for (place, runs, end) in [
        (place(1, 1024), vec![run(3, [1]), run(5, [1])], End::Clean),
        (place(0, 1024), vec![run(3, [1])], End::Misplaced),
        (place(2, 1024), vec![run(3, [1])], End::Misplaced),
        (place(1, 0), vec![run(3, [1])], End::Misplaced),
        (place(1, 1025), vec![run(3, [1])], End::Misplaced),
        (place(1, 1024), vec![run(3, [1, 1])], End::Misplaced),
        (place(1, 1024), vec![run(5, [1]), run(3, [1])], End::Misplaced),
        (place(1, u64::MAX), vec![run(3, [1]), run(5, [1])], End::Misplaced),
        (place(1, 1024), vec![run(3, [1]), run(9, [1])], End::Corrupt),
    ] {
        let record = Record::ChunksAt { number: 1, place, runs };
        let mut bytes = Vec::new();
        let mut writer = Writer::begin_over(over(2), ID, &mut bytes);
        [opened(0), file(1, 9), record.clone()].iter().for_each(|record| writer.record(record, &mut bytes));
        let mut replay = Replay::over(over(2));
        replay.push(&bytes);
        assert_eq!(replay.finish().expect("opened").end, end, "{record:?}");
    }
}

/// JOURNAL-4.
#[test]
fn as_many_chunks_as_anybody_holds_become_records_that_fit() {
    let map = ChunkMap::new(100_000 << 10, ChunkSize::from_log2(10).expect("a size"));
    let digests: Vec<_> = (0..100_000).map(|at| (ChunkIndex(at), digest())).collect();
    let Record::File(large) = file(1, 9) else { unreachable!() };
    let mut bytes = Vec::new();
    let mut writer = Writer::begin_over(over(2), ID, &mut bytes);
    let records = [opened(0), Record::File(FileRecord { map, ..large })];
    records.iter().chain(&Record::held(1, over(2), map, &digests)).for_each(|record| writer.record(record, &mut bytes));
    let mut replay = Replay::over(over(2));
    replay.push(&bytes);
    let replayed = replay.finish().expect("opened");
    assert_eq!((replayed.end, replayed.files[&1].held.len()), (End::Clean, 100_000));
}

fn digest() -> Digest {
    digest_of(&[1], DigestKind::Cv, FileOffset(0))
}

fn over(targets: u32) -> Layout {
    Layout::over(NonZeroU32::new(targets).expect("some"))
}

/// JOURNAL-9.
#[test]
fn an_origin_counts_for_what_follows_it_until_the_next_opening() {
    let done = |number| Record::Done { number };
    let placed = |number| Record::Placed { number, node: node(7) };
    let files = [file(1, 9), file(2, 9), file(3, 9), file(4, 9)];
    let records =
        [&[opened(0), origin(1, 2)], &files[..], &[placed(3), done(1), opened(1), placed(4), done(2)]].concat();
    let replayed = replay(&Sound::of(&records).bytes).expect("sound");
    let origins: Vec<_> = replayed.done.iter().map(|done| done.origin).collect();
    assert!(origins[0].is_of_run([2; 16]) && origins[0].is_of_boot([1; 16]));
    assert!(!origins[0].is_of_run([1; 16]) && !origins[0].is_of_boot([2; 16]));
    assert!(!origins[1].is_of_run([2; 16]) && !origins[1].is_of_run([0; 16]), "unknown is equal to nothing");
    let of_boot = |number| replayed.files[&number].placed.expect("placed").origin.is_of_boot([1; 16]);
    assert!(of_boot(3) && !of_boot(4));
}

/// JOURNAL-10.
#[test]
fn a_journal_speaks_of_files_or_of_doubts() {
    let (doubtful, dirs) = (Record::Doubtful { paths: paths([1, 2]) }, Record::Dirs { paths: paths([1]) });
    ends_before_last(&[opened(0), doubtful.clone(), file(1, 3)]);
    ends_before_last(&[opened(0), doubtful.clone(), dirs.clone()]);
    ends_before_last(&[opened(0), file(1, 3), doubtful.clone()]);
    ends_before_last(&[opened(0), dirs, doubtful.clone()]);
    let certain = Record::Certain { paths: paths([2, 3]) };
    let sound = Sound::of(&[opened(0), origin(1, 1), doubtful, certain]);
    let mut pieces = Replay::new();
    pieces.push(&sound.bytes);
    assert!(pieces.may_be_of_doubts());
    assert!(replay(&sound.bytes).expect("sound").doubts.into_iter().eq(paths([1])));
    let mut pieces = Replay::new();
    pieces.push(&Sound::of(&[opened(0), file(1, 3)]).bytes);
    assert!(!pieces.may_be_of_doubts());
}

/// JOURNAL-4.
#[test]
fn paths_too_many_for_one_record_become_several() {
    let long = "x".repeat(200);
    let many: Vec<_> =
        (0..12_000).map(|n| longhaul_core::RelPath::new(format!("{n}/{long}")).expect("a path")).collect();
    for record in [Record::Dirs { paths: many.clone() }, Record::Doubtful { paths: many.clone() }] {
        let mut bytes = Sound::of(&[opened(0)]).bytes;
        let mut writer = replay(&bytes).expect("sound").writer;
        writer.record(&record, &mut bytes);
        let replayed = replay(&bytes).expect("sound");
        assert_eq!((replayed.end, replayed.dirs.len() + replayed.doubts.len()), (End::Clean, many.len()));
    }
}

#[test]
fn a_clone_from_before_takes_the_place_of_what_was_not_appended() {
    let mut bytes = Sound::of(&[opened(0), file(1, 9)]).bytes;
    let mut writer = replay(&bytes).expect("sound").writer;
    let before = writer.clone();
    writer.record(&chunks(1, 0, 2), &mut Vec::new());
    writer = before;
    writer.record(&chunks(1, 4, 2), &mut bytes);
    assert_eq!(writer.len(), bytes.len() as u64);
    let replayed = replay(&bytes).expect("sound");
    assert_eq!((replayed.end, replayed.files[&1].held.len()), (End::Clean, 2));
}
