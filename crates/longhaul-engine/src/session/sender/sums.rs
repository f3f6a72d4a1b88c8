//! Computes further checksums of what is sent, and compares them with those that the receiver says
//! it has computed of what it wrote.
//!
//! In: the sums of chunks that lanes computed as they sent them, and messages of the receiver. Out:
//! the checksums of each settled file, or the fault of a receiver that says others. This side knows
//! none of a file of which an earlier session sent a part, whose chunks the receiver had, or of
//! which a chunk was sent twice.

use std::collections::HashMap;

use longhaul_core::{Agreement, Algorithms, ChunkSums, Fault, FileId, PartSums, Sums, Unit};
use longhaul_proto::sender::Sent;
use longhaul_proto::wire::message::SettledSums;

use super::SenderLoop;

/// The checksums of files that have no outcome. See the module.
#[derive(Default)]
pub(in crate::session) struct SentSums {
    /// The receiver says these.
    agreed: Algorithms,
    /// This side computes those of them.
    compared: Algorithms,
    /// The sums of the chunks that were sent. `None`: one was sent twice, and the two may differ.
    chunks: HashMap<FileId, Option<ChunkSums>>,
    /// The receiver has said these, and the outcomes follow.
    said: HashMap<FileId, Sums>,
}

impl SentSums {
    /// Nothing was sent. The receiver computes those that are `agreed`, and this side those that
    /// are `compared`.
    pub(super) fn new(agreed: Algorithms, compared: Algorithms) -> SentSums {
        SentSums { agreed, compared, ..SentSums::default() }
    }

    /// The checksums that this side computes.
    pub(super) fn compared(&self) -> Algorithms {
        self.compared
    }

    /// Notes a unit that was sent.
    fn note(&mut self, sent: &Sent, sums: Option<PartSums>) {
        if let (Unit::Chunk { file, index }, Some(sums)) = (sent.unit, sums) {
            let known = self.chunks.entry(file).or_insert_with(|| Some(ChunkSums::default()));
            match known.take_if(|known| known.has(index)) {
                Some(_) => {}
                None => known.iter_mut().for_each(|known| known.note(index, sums)),
            }
        }
    }

    /// Takes what the receiver says of a file of `len` bytes, `None` for a stream.
    fn hear(&mut self, said: &SettledSums, len: Option<u64>) -> Result<(), Fault> {
        let sums = Sums::of_bytes(self.agreed, &said.sums).filter(|_| !self.agreed.is_empty());
        let sums = sums.ok_or_else(|| Fault::protocol("checksums that were not agreed on, or are cut short"))?;
        let ours = self.chunks.get(&said.file).and_then(|chunks| chunks.as_ref()?.whole(self.compared, len?));
        if let Some(Agreement::Differ(algorithm)) = ours.map(|ours| ours.compare(&sums)) {
            let name = algorithm.name();
            return Err(Fault::protocol(format_args!("the other side says another {name} than what was sent has")));
        }
        match self.said.insert(said.file, sums) {
            Some(_) => Err(Fault::protocol("checksums of a file that has had some")),
            None => Ok(()),
        }
    }

    /// The checksums of a file that has its outcome, which is forgotten. Empty if it has none.
    fn settle(&mut self, file: FileId) -> Sums {
        self.chunks.remove(&file);
        self.said.remove(&file).unwrap_or_default()
    }
}

impl SenderLoop<'_> {
    /// A lane has sent a unit. Nothing is noted of a file whose outcome has come first.
    pub(super) fn sent(&mut self, sent: Sent, sums: Option<PartSums>) {
        if let Unit::Chunk { file, .. } = sent.unit
            && self.offered.file(file).is_some()
        {
            self.offered.sums.note(&sent, sums);
        }
        self.machine.handle_sent(sent);
    }

    /// Hears the checksums of files whose outcome follows.
    pub(super) fn hear_sums(&mut self, list: &[SettledSums]) {
        for said in list {
            let Some((len, placed)) = self.offered.file(said.file) else {
                let fault = Fault::protocol("checksums of something that is no file, or has its outcome");
                return self.machine.abort(fault);
            };
            let name = placed.escaped().to_string();
            if let Err(fault) = self.offered.sums.hear(said, len) {
                return self.machine.abort(fault.about(name));
            }
        }
    }

    /// The checksums of a file that has its outcome.
    pub(super) fn settled_sums(&mut self, file: FileId) -> Sums {
        self.offered.sums.settle(file)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::{Algorithm, Attempt, ChunkIndex, Digest, LaneId};

    use super::*;

    const FILE: FileId = FileId(7);

    fn agreed() -> Algorithms {
        Algorithms::NONE.with(Algorithm::Adler32)
    }

    fn part(bytes: &[u8]) -> PartSums {
        let mut part = PartSums::empty(agreed());
        part.update(bytes);
        part
    }

    fn sent(index: u64) -> Sent {
        let unit = Unit::Chunk { file: FILE, index: ChunkIndex(index) };
        let (attempt, digest, lane) = (Attempt::FIRST, Digest::Cv([0; 32]), LaneId(0));
        Sent { unit, attempt, digest, len: 1, unit_len: 1, lane, seq: index, declared: true }
    }

    fn said(bytes: &[u8]) -> SettledSums {
        SettledSums { file: FILE, sums: part(bytes).sums().bytes().to_vec() }
    }

    #[test]
    fn a_receiver_that_says_another_checksum_than_what_was_sent_has_is_found() {
        let mut sums = SentSums::new(agreed(), agreed());
        sums.note(&sent(1), Some(part(b"b")));
        sums.note(&sent(0), Some(part(b"a")));
        assert!(sums.hear(&said(b"ba"), Some(2)).is_err());
        assert!(sums.hear(&said(b"ab"), Some(2)).is_ok());
        assert!(sums.hear(&said(b"ab"), Some(2)).is_err(), "once is all");
        assert_eq!(sums.settle(FILE), part(b"ab").sums());
        assert_eq!(sums.settle(FILE), Sums::default());
    }

    #[test]
    fn an_honest_receiver_is_believed_when_a_chunk_was_sent_twice_and_its_source_had_changed() {
        let mut sums = SentSums::new(agreed(), agreed());
        for bytes in [b"a", b"b", b"c"] {
            sums.note(&sent(0), Some(part(bytes)));
        }
        assert!(sums.hear(&said(b"b"), Some(1)).is_ok(), "which of them came is not known here");
        assert_eq!(sums.settle(FILE), part(b"b").sums());
    }

    #[test]
    fn of_a_file_that_was_sent_in_part_the_receiver_alone_knows_the_checksum() {
        let mut sums = SentSums::new(agreed(), agreed());
        sums.note(&sent(1), Some(part(b"b")));
        assert!(sums.hear(&said(b"ab"), Some(2)).is_ok());
        assert_eq!(sums.settle(FILE), part(b"ab").sums());
    }

    #[test]
    fn checksums_that_nobody_agreed_on_break_the_protocol() {
        assert!(SentSums::new(Algorithms::NONE, Algorithms::NONE).hear(&said(b"ab"), Some(2)).is_err());
        assert!(
            SentSums::new(Algorithms::NONE, Algorithms::NONE)
                .hear(&SettledSums { file: FILE, sums: vec![] }, Some(2))
                .is_err()
        );
        let mut short = said(b"ab");
        short.sums.pop();
        assert!(SentSums::new(agreed(), agreed()).hear(&short, Some(2)).is_err());
    }
}
