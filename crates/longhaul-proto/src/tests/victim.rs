//! A receiver alone, for tests that speak to it by hand.

use longhaul_core::{
    Algorithm, Algorithms, Attempt, ChunkIndex, ChunkSize, Digest, DigestKind, Entry, FaultCode, FileId, IfExists,
    LaneId, Preserve, Unit,
};

use super::items::{CHUNK, file};
use crate::receiver::{
    Cut, Landed, Landing, Policy, Receiver, ReceiverAction, ReceiverConfig, Seen, SyncGroup, Ticket, WantOrder,
};
use crate::time::Timestamp;
use crate::wire::data::Piece;
use crate::wire::message::{Ending, FileFault, Message, Page};

pub(crate) const NOW: Timestamp = Timestamp(0);

fn config(policy: Policy, order: WantOrder, read_back: bool) -> ReceiverConfig {
    ReceiverConfig {
        chunk: ChunkSize::from_bytes(CHUNK as u64).expect("a size"),
        chunk_max: ChunkSize::from_bytes(CHUNK as u64).expect("a size"),
        bundled_max: 256,
        policy,
        landing: Landing::beneath(),
        preserve: Preserve::default(),
        dry_run: false,
        group: SyncGroup::default(),
        read_back,
        digests: Default::default(),
        order,
        cut: None,
    }
}

pub(crate) struct Victim {
    pub(crate) receiver: Receiver,
    pub(crate) next: u64,
    seq: u64,
}

impl Victim {
    pub(crate) fn new() -> Victim {
        Victim::with(Policy { if_exists: IfExists::SkipSame, may_modify: true })
    }

    /// One with another policy.
    pub(crate) fn with(policy: Policy) -> Victim {
        Victim::under(policy, WantOrder::Any, false)
    }

    /// One that asks for chunks in this order.
    pub(crate) fn asking(order: WantOrder) -> Victim {
        Victim::under(Policy { if_exists: IfExists::SkipSame, may_modify: true }, order, false)
    }

    /// One that reads back what was written.
    pub(crate) fn reading_back() -> Victim {
        Victim::under(Policy { if_exists: IfExists::SkipSame, may_modify: true }, WantOrder::Any, true)
    }

    /// One that computes further checksums.
    pub(crate) fn summing() -> Victim {
        let config = config(Policy { if_exists: IfExists::SkipSame, may_modify: true }, WantOrder::Any, false);
        let sums = Algorithms::NONE.with(Algorithm::Adler32);
        Victim::of(ReceiverConfig { preserve: Preserve { sums, ..config.preserve }, ..config })
    }

    /// One that computes a further checksum that needs all bytes in order.
    pub(crate) fn summing_in_order() -> Victim {
        let config = config(Policy { if_exists: IfExists::SkipSame, may_modify: true }, WantOrder::Any, false);
        let sums = Algorithms::NONE.with(Algorithm::Adler32).with(Algorithm::Md5);
        Victim::of(ReceiverConfig { preserve: Preserve { sums, ..config.preserve }, ..config })
    }

    /// One that agreed to take extras.
    pub(crate) fn taking_extras() -> Victim {
        let config = config(Policy { if_exists: IfExists::SkipSame, may_modify: true }, WantOrder::Any, false);
        Victim::of(ReceiverConfig { preserve: Preserve::EVERYTHING, ..config })
    }

    /// One whose files come in chunks of this size, unless they are cut.
    pub(crate) fn cutting(chunk: ChunkSize, cut: Cut, policy: Policy, order: WantOrder) -> Victim {
        let config = config(policy, order, false);
        Victim::of(ReceiverConfig { chunk, chunk_max: chunk, cut: Some(cut), ..config })
    }

    fn under(policy: Policy, order: WantOrder, read_back: bool) -> Victim {
        Victim::of(config(policy, order, read_back))
    }

    fn of(config: ReceiverConfig) -> Victim {
        Victim { receiver: Receiver::new(config, "/base".to_owned()), next: 0, seq: 0 }
    }

    /// A victim that wants `large` (entry 0, four chunks) and `small` (entry 1).
    pub(crate) fn wanting() -> Victim {
        let mut victim = Victim::new();
        victim.page(vec![file("large", 4 * CHUNK).entry, file("small", 100).entry]);
        victim.obey();
        victim
    }

    pub(crate) fn say(&mut self, message: Message) {
        self.receiver.handle_message(NOW, message);
    }

    pub(crate) fn page(&mut self, entries: Vec<Entry>) {
        let first = FileId(self.next);
        self.next += entries.len() as u64;
        self.say(Message::Page(Page { first, last: false, entries }));
    }

    /// The next action, if the target does not tell its room.
    pub(crate) fn poll(&mut self) -> Option<ReceiverAction> {
        let action = self.receiver.poll_action()?;
        if let ReceiverAction::MeasureRoom { .. } = action {
            self.receiver.handle_measure_room(NOW, None);
        }
        Some(action)
    }

    /// Carries out the orders to the disk at once. Gives all actions.
    pub(crate) fn obey(&mut self) -> Vec<ReceiverAction> {
        let mut all = Vec::new();
        while let Some(action) = self.poll() {
            match &action {
                ReceiverAction::Survey(held) => {
                    let seen = held.iter().map(|_| Ok(Seen::Absent.into())).collect();
                    self.receiver.handle_survey(NOW, held[0].id, seen);
                }
                ReceiverAction::Tidy => self.receiver.handle_tidy(Ok(())),
                ReceiverAction::Create(held, ..) => {
                    self.receiver.handle_create(NOW, held.id, Ok(crate::receiver::Created::Fresh))
                }
                _ => {}
            }
            all.push(action);
        }
        self.receiver.audit();
        all
    }

    pub(crate) fn landed(&mut self, unit: Unit, attempt: u32, computed: Digest, declared: Option<Digest>) -> Landed {
        let ticket = Ticket { lane: LaneId(0), seq: self.seq };
        self.seq += 1;
        let piece = Piece {
            unit,
            attempt: Attempt(attempt),
            offset: 0,
            len: CHUNK as u64,
            unit_len: CHUNK as u64,
            chunk: ChunkSize::from_bytes(CHUNK as u64).expect("a size"),
            digest: DigestKind::Cv,
            hole: false,
            same: false,
            trailer: declared.is_some(),
        };
        Landed { ticket, piece, computed, declared, rows: Vec::new() }
    }

    pub(crate) fn land(&mut self, landed: Landed) {
        self.receiver.handle_landed(NOW, landed);
    }

    pub(crate) fn assert_refused(mut self, code: FaultCode, what: &str) {
        let actions = self.obey();
        let Some(ReceiverAction::Abort(fault)) = actions.last() else { panic!("{what} passes: {actions:?}") };
        assert_eq!(fault.code, code, "{what}: {fault}");
        let landed = self.landed(chunk(0), 1, CV, Some(CV));
        self.land(landed);
        self.receiver.handle_timeout(Timestamp(u64::MAX));
        self.say(Message::Bye(Ending::default()));
        assert!(self.receiver.poll_action().is_none(), "{what}: the end is the end");
    }
}

pub(crate) const CV: Digest = Digest::Cv([1; 32]);

/// A chunk of entry 0.
pub(crate) fn chunk(index: u64) -> Unit {
    Unit::Chunk { file: FileId(0), index: ChunkIndex(index) }
}

/// The sender cannot send an entry.
pub(crate) fn fault(file: u64, code: FaultCode) -> Message {
    Message::FileFault(FileFault { file: FileId(file), code, message: "no".into() })
}
