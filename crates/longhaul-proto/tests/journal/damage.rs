//! Any sound journal reads back, however it is cut to pieces; cut short or changed, it leads to the
//! state before the damage.

use longhaul_proto::journal::{End, JournalError, PRELUDE_BYTES, Replay, Replayed, replay};
use proptest::prelude::*;

use super::model::{Sound, State, chunks, file, opened, sound};

fn came_to(replayed: Result<Replayed, JournalError>) -> Result<(usize, State, End), JournalError> {
    replayed.map(|replayed| {
        assert_eq!(replayed.valid_len, replayed.writer.len());
        (replayed.valid_len as usize, State::of(&replayed), replayed.end)
    })
}

/// Checks the replay of bytes that are sound up to `at` and no further.
fn check_damaged(sound: &Sound, bytes: &[u8], at: usize) {
    match (came_to(replay(bytes)), sound.before(at)) {
        (Ok((valid, state, end)), Some((wanted, before))) => {
            assert_eq!((valid, &state), (*wanted, before), "damaged at {at}");
            assert_eq!(end == End::Clean, bytes.len() == valid, "damaged at {at}");
        }
        (Err(JournalError::Unopened), None) => {}
        (Err(JournalError::NotAJournal), None) if at < 6 => {}
        (outcome, _) => panic!("damaged at {at}: {outcome:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_reads_back_in_any_pieces(records in sound(40), piece in 1usize..5000) {
        let sound = Sound::of(&records);
        let mut pieces = Replay::new();
        sound.bytes.chunks(piece).for_each(|piece| pieces.push(piece));
        let (end, state) = sound.ends.last().expect("a record");
        prop_assert_eq!(came_to(pieces.finish()), Ok((*end, state.clone(), End::Clean)));
        prop_assert_eq!(came_to(replay(&sound.bytes)), Ok((*end, state.clone(), End::Clean)));
    }

    /// JOURNAL-3.
    #[test]
    fn a_journal_cut_at_any_byte_comes_to_exactly_the_records_before(records in sound(6)) {
        let sound = Sound::of(&records);
        for at in 0..=sound.bytes.len() {
            check_damaged(&sound, &sound.bytes[..at], at);
        }
    }

    /// JOURNAL-3.
    #[test]
    fn zeros_in_place_of_a_tail_are_not_believed(records in sound(12), at in any::<prop::sample::Index>()) {
        let sound = Sound::of(&records);
        let at = at.index(sound.bytes.len());
        let mut bytes = sound.bytes.clone();
        // A byte that is zero anyway is not damaged.
        let at = at + bytes[at..].iter().take_while(|byte| **byte == 0).count();
        if at < bytes.len() {
            bytes[at..].fill(0);
            check_damaged(&sound, &bytes, at);
        }
    }

    /// JOURNAL-3: a writer continues behind the believed records, and all of them read back.
    #[test]
    fn a_journal_goes_on_behind_its_damage(records in sound(12), at in any::<prop::sample::Index>()) {
        let sound = Sound::of(&records);
        let Ok(cut) = replay(&sound.bytes[..at.index(sound.bytes.len())]) else { return Ok(()) };
        let (state, mut writer) = (State::of(&cut), cut.writer);
        let mut bytes = sound.bytes[..cut.valid_len as usize].to_vec();
        writer.record(&opened(u64::MAX), &mut bytes);
        writer.record(&file(cut.next_number, 9), &mut bytes);
        writer.record(&chunks(cut.next_number, 3, 6), &mut bytes);
        let (valid, now, end) = came_to(replay(&bytes)).expect("it goes on");
        prop_assert_eq!((valid, end), (bytes.len(), End::Clean));
        prop_assert_eq!(now.files.len(), state.files.len() + 1);
        prop_assert_eq!(now.files[&cut.next_number].1.keys().copied().collect::<Vec<_>>(), vec![3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn noise_is_no_journal(bytes in prop::collection::vec(any::<u8>(), 1..400)) {
        prop_assume!(bytes.iter().any(|byte| *byte != 0) && !b"LHjrnl".starts_with(&bytes[..bytes.len().min(6)]));
        prop_assert_eq!(came_to(replay(&bytes)), Err(JournalError::NotAJournal));
    }
}

/// JOURNAL-1, 3: every bit of a journal that has every kind of record.
#[test]
fn any_flipped_bit_ends_the_journal_before_it() {
    let sound = Sound::of(&super::golden::one_of_each());
    let mut bytes = sound.bytes.clone();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            check_damaged(&sound, &bytes, at);
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn what_ends_before_its_first_record_has_promised_nothing() {
    let sound = Sound::of(&[opened(0)]);
    for len in 0..sound.bytes.len() {
        assert_eq!(came_to(replay(&sound.bytes[..len])), Err(JournalError::Unopened), "{len}");
        assert_eq!(came_to(replay(&vec![0; len])), Err(JournalError::Unopened), "{len} zeros");
    }
    assert!(sound.bytes.len() > PRELUDE_BYTES);
}
