//! Cuts a stream into blocks of one size, as a tape wants them: each leaves in one write.
//!
//! In: bytes in pieces of any length. Out: whole blocks, and at the end the rest, padded only if
//! that was asked for. It knows no files and no threads.

use std::io::{self, Write};

use super::LastBlock;

/// A writer of blocks.
#[derive(Debug)]
pub(super) struct Blocks<W> {
    sink: W,
    block_bytes: usize,
    last: LastBlock,
    /// The bytes of a block that is not whole. Empty as long as pieces end where blocks do.
    rest: Vec<u8>,
    blocks: u64,
    bytes: u64,
}

impl<W: Write> Blocks<W> {
    /// Writes blocks of `block_bytes`, which is not 0.
    pub(super) fn new(sink: W, block_bytes: usize, last: LastBlock) -> Blocks<W> {
        Blocks { sink, block_bytes, last, rest: Vec::new(), blocks: 0, bytes: 0 }
    }

    /// The place to which blocks go.
    pub(super) fn sink(&self) -> &W {
        &self.sink
    }

    /// Blocks that were written, the last one included.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes that were written, padding included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes bytes, and writes the blocks that they make whole. Bytes that fill a block of their
    /// own are written from where they lie.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.rest.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.block_bytes - self.rest.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() < self.block_bytes {
                return Ok(());
            }
            let block = std::mem::take(&mut self.rest);
            self.write(&block)?;
            self.rest = block;
            self.rest.clear();
        }
        let mut blocks = bytes.chunks_exact(self.block_bytes);
        for block in blocks.by_ref() {
            self.write(block)?;
        }
        self.rest.extend_from_slice(blocks.remainder());
        Ok(())
    }

    /// Takes so many zeros.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn put_zeros(&mut self, count: usize) -> io::Result<()> {
        self.put(&vec![0; count])
    }

    /// Writes the rest: nothing follows.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let mut rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return self.sink.flush();
        }
        if self.last == LastBlock::Padded {
            rest.resize(self.block_bytes, 0);
        }
        self.write(&rest)?;
        self.sink.flush()
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.sink.write_all(block)?;
        self.blocks += 1;
        self.bytes += block.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes each write.
    #[derive(Debug, Default)]
    struct Noted(Vec<Vec<u8>>);

    impl Write for Noted {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0.push(buf.to_vec());
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(pieces: &[usize], last: LastBlock) -> (Vec<usize>, Vec<u8>) {
        let mut blocks = Blocks::new(Noted::default(), 8, last);
        let mut byte = 0u8;
        for len in pieces {
            let piece: Vec<u8> = (0..*len).map(|at| byte.wrapping_add(at as u8 + 1)).collect();
            byte = byte.wrapping_add(*len as u8);
            blocks.put(&piece).expect("it takes everything");
        }
        blocks.end().expect("it takes everything");
        let lens = blocks.sink().0.iter().map(Vec::len).collect();
        assert_eq!(blocks.blocks(), blocks.sink().0.len() as u64);
        assert_eq!(blocks.bytes(), blocks.sink().0.concat().len() as u64);
        (lens, blocks.sink().0.concat())
    }

    #[test]
    fn every_write_is_one_block_whatever_the_pieces_are() {
        for pieces in [&[24][..], &[8, 8, 8], &[1, 7, 9, 7], &[3, 21], &[5, 5, 5, 5, 4]] {
            let (lens, bytes) = written(pieces, LastBlock::Short);
            assert_eq!(lens, [8, 8, 8], "{pieces:?}");
            assert_eq!(bytes, (1..=24).collect::<Vec<u8>>(), "{pieces:?}");
        }
    }

    #[test]
    fn the_last_block_is_short_unless_padding_is_asked_for() {
        assert_eq!(written(&[8, 3], LastBlock::Short).0, [8, 3]);
        let (lens, bytes) = written(&[8, 3], LastBlock::Padded);
        assert_eq!((lens, &bytes[8..]), (vec![8, 8], &[9, 10, 11, 0, 0, 0, 0, 0][..]));
        for last in [LastBlock::Short, LastBlock::Padded] {
            assert_eq!(written(&[16], last).0, [8, 8], "a whole block needs no padding");
            assert_eq!(written(&[], last).0, [0; 0], "nothing is no block");
        }
    }
}
