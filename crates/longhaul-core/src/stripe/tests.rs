//! Tests of the draft of a striped file.

use super::*;
use crate::digest::digest_of;
use crate::units::{ChunkSize, FileOffset};

const MIB: u64 = 1 << 20;

fn draft(len: u64) -> Draft {
    Draft::new(ChunkMap::new(len, ChunkSize::from_log2(20).expect("a size")))
}

fn begin(draft: &mut Draft, index: u64, target: u32, bytes: &[u8]) -> Spot {
    let map = draft.map();
    let digest = digest_of(bytes, map.kind(), map.start_of(ChunkIndex(index)));
    draft.note_digest(ChunkIndex(index), *digest.bytes());
    draft.begin_write(ChunkIndex(index), TargetId(target))
}

fn put(draft: &mut Draft, index: u64, target: u32, bytes: &[u8]) -> Spot {
    let spot = begin(draft, index, target, bytes);
    assert_eq!(draft.end_write(ChunkIndex(index), spot), WriteOutcome::Placed);
    spot
}

fn synced(draft: &mut Draft) -> Vec<PlacedChunk> {
    draft.begin_sync().synced(&Unsynced::new())
}

#[test]
fn each_chunk_has_a_slot_of_its_own_and_the_root_is_that_of_the_content() {
    let content: Vec<u8> = (0..2 * MIB + 5).map(|n| (n % 251) as u8).collect();
    let mut draft = draft(content.len() as u64);
    let (a, b) = content.split_at(MIB as usize);
    let (b, c) = b.split_at(MIB as usize);
    assert_eq!(put(&mut draft, 2, 1, c), Spot { target: TargetId(1), slot: 0 });
    assert_eq!(put(&mut draft, 0, 1, a), Spot { target: TargetId(1), slot: 1 });
    assert_eq!(draft.root(), None, "a chunk is missing");
    put(&mut draft, 1, 0, b);
    let whole = digest_of(&content, DigestKind::Root, FileOffset(0));
    assert_eq!(draft.root(), Some(*whole.bytes()));
    assert_eq!((draft.bytes_there(), draft.end_needed(TargetId(1))), (2 * MIB + 5, 2 * MIB));
    let slots = draft.slots_on(TargetId(1));
    assert_eq!(slots.iter().map(|slot| slot.expect("used").0.0).collect::<Vec<_>>(), [2, 0]);
}

#[test]
fn what_is_written_is_recorded_once_and_again_if_its_record_failed() {
    let mut draft = draft(3 * MIB);
    put(&mut draft, 0, 0, &[1; MIB as usize]);
    let pass = draft.begin_sync();
    assert_eq!((pass.synced(&Unsynced::new()).len(), pass.targets().len()), (1, 1));
    assert!(synced(&mut draft).is_empty());
    draft.put_back(&pass);
    assert_eq!(synced(&mut draft), pass.synced(&Unsynced::new()));
    begin(&mut draft, 1, 0, &[2; MIB as usize]);
    assert!(synced(&mut draft).is_empty(), "it is not written yet");
}

#[test]
fn a_chunk_that_was_moved_leaves_a_slot_that_nobody_uses_again() {
    let mut draft = draft(2 * MIB);
    put(&mut draft, 0, 0, &[1; MIB as usize]);
    let failed = begin(&mut draft, 1, 0, &[2; MIB as usize]);
    draft.fail_write(ChunkIndex(1), failed);
    put(&mut draft, 1, 1, &[2; MIB as usize]);
    assert_eq!(put(&mut draft, 0, 0, &[3; MIB as usize]).slot, 2);
    let slots = draft.slots_on(TargetId(0));
    assert_eq!(slots.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
    draft.is_hole(ChunkIndex(1));
    assert_eq!(draft.holes().len(), 1);
    assert!(draft.slots_on(TargetId(1)).is_empty());
}

#[test]
fn of_two_writes_of_a_chunk_the_first_to_complete_is_its_place() {
    let mut draft = draft(2 * MIB);
    let hung = begin(&mut draft, 0, 0, &[1; MIB as usize]);
    let hedge = draft.begin_hedge(ChunkIndex(0), TargetId(1));
    assert_eq!((draft.writes_on(TargetId(0)), draft.writes_on(TargetId(1))), (1, 1));
    assert_eq!(draft.end_write(ChunkIndex(0), hedge), WriteOutcome::Placed);
    assert_eq!(draft.spot(ChunkIndex(0)), Some(hedge));
    assert_eq!(draft.writes_on(TargetId(0)), 1, "it is waited for");
    assert_eq!(draft.end_write(ChunkIndex(0), hung), WriteOutcome::Late);
    assert_eq!(draft.spot(ChunkIndex(0)), Some(hedge));
    assert!(!draft.uses(TargetId(0)));
    assert_eq!(put(&mut draft, 1, 0, &[2; MIB as usize]).slot, 1, "the loser's slot is never used again");
    let spots: Vec<_> = synced(&mut draft).into_iter().map(|chunk| chunk.spot.expect("a place").target.0).collect();
    assert_eq!(spots, [1, 0]);
}

#[test]
fn chunks_on_a_target_whose_sync_does_not_come_back_are_given_up_and_the_others_recorded() {
    let mut draft = draft(4 * MIB);
    put(&mut draft, 0, 0, &[1; MIB as usize]);
    assert_eq!(synced(&mut draft).len(), 1);
    put(&mut draft, 1, 0, &[2; MIB as usize]);
    put(&mut draft, 2, 1, &[3; MIB as usize]);
    let pass = draft.begin_sync();
    put(&mut draft, 3, 0, &[4; MIB as usize]);
    let hung = Unsynced::from([TargetId(0)]);
    assert_eq!(pass.synced(&hung).iter().map(|chunk| chunk.index.0).collect::<Vec<_>>(), [2]);
    assert_eq!(draft.give_up(&pass, &hung), [ChunkIndex(1)]);
    assert_eq!(draft.spot(ChunkIndex(1)), None);
    assert_eq!(draft.root(), None);
    assert!(draft.uses(TargetId(0)), "what was recorded there before, and what came later, lies there");
    // Its record failing afterwards brings nothing back that was given up.
    draft.put_back(&pass);
    assert_eq!(synced(&mut draft).iter().map(|chunk| chunk.index.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(put(&mut draft, 1, 1, &[2; MIB as usize]).slot, 1);
    assert!(draft.root().is_some());
}

#[test]
fn records_bring_the_same_places_back() {
    let mut draft = draft(2 * MIB);
    put(&mut draft, 0, 3, &[1; MIB as usize]);
    put(&mut draft, 1, 3, &[2; MIB as usize]);
    let records = synced(&mut draft);
    let mut again = Draft::new(draft.map());
    assert!(records.iter().all(|record| again.recorded(*record)));
    assert_eq!((again.root(), again.spot(ChunkIndex(1))), (draft.root(), draft.spot(ChunkIndex(1))));
    assert_eq!(again.begin_write(ChunkIndex(0), TargetId(3)).slot, 2, "no slot is given twice");
    let beyond = PlacedChunk { index: ChunkIndex(2), spot: None, digest: [0; 32] };
    assert!(!again.recorded(beyond));
}

#[test]
fn a_slot_before_the_end_of_a_body_that_is_continued_is_not_given_away() {
    let mut draft = draft(4 * MIB);
    let record =
        PlacedChunk { index: ChunkIndex(0), spot: Some(Spot { target: TargetId(0), slot: 1 }), digest: [7; 32] };
    assert!(draft.recorded(record));
    draft.reopened(TargetId(0), 3 * MIB + 500);
    assert_eq!(put(&mut draft, 1, 0, &[2; MIB as usize]).slot, 4, "the last one has begun");
    draft.reopened(TargetId(0), MIB);
    assert_eq!(put(&mut draft, 2, 0, &[3; MIB as usize]).slot, 5, "what was given stays so");
    assert_eq!(put(&mut draft, 3, 1, &[4; MIB as usize]).slot, 0, "other bodies are not concerned");
    let used: Vec<_> = draft.slots_on(TargetId(0)).iter().map(Option::is_some).collect();
    assert_eq!(used, [false, true, false, false, true, true]);
}

#[test]
fn a_chunk_that_is_written_anew_does_not_get_the_place_of_an_earlier_write_that_is_under_way() {
    let mut draft = draft(2 * MIB);
    let hung = begin(&mut draft, 0, 0, &[1; MIB as usize]);
    let hedge = draft.begin_hedge(ChunkIndex(0), TargetId(1));
    assert_eq!(draft.end_write(ChunkIndex(0), hedge), WriteOutcome::Placed);
    assert_eq!(synced(&mut draft).len(), 1);
    // Its target fails, and it comes again while the first write still hangs.
    let again = begin(&mut draft, 0, 2, &[1; MIB as usize]);
    assert_eq!(draft.spot(ChunkIndex(0)), None, "what was recorded counts no more");
    assert_eq!(draft.end_write(ChunkIndex(0), hung), WriteOutcome::Late);
    assert_eq!(draft.spot(ChunkIndex(0)), None);
    assert_eq!(draft.end_write(ChunkIndex(0), again), WriteOutcome::Placed);
    assert_eq!(draft.spot(ChunkIndex(0)), Some(again));
    assert_eq!(synced(&mut draft).iter().map(|chunk| chunk.spot).collect::<Vec<_>>(), [Some(again)]);
    assert_eq!(draft.writes_on(TargetId(0)), 0);
}
