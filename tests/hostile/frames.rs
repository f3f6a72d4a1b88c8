//! A meddler that understands `safe` lanes: skips the join, shows each header and the payload
//! behind it to an editor.
//!
//! It follows the honest headers, whatever the editor changes, so that only the intended bytes are
//! altered.

use std::sync::{Arc, Mutex};

use longhaul_net::SAFE_MAGIC;
use longhaul_proto::join::{OPENING_BYTES, REPLY_BYTES};
use longhaul_proto::wire::data::{HEADER_BYTES, Header, Piece};

use super::proxy::{Meddler, Way};

/// A part of a lane's stream.
pub(super) enum Part<'a> {
    /// A header, before its payload.
    Header(&'a mut [u8; HEADER_BYTES]),
    /// Some of a unit's payload, from `offset` in it.
    Payload { piece: &'a Piece, bytes: &'a mut [u8] },
}

/// Edits the bytes of all lanes of a session.
pub(super) type Editor = Arc<Mutex<dyn FnMut(Part<'_>) + Send>>;

/// An editor from a closure.
pub(super) fn editor(edit: impl FnMut(Part<'_>) + Send + 'static) -> Editor {
    Arc::new(Mutex::new(edit))
}

/// The meddler of one lane that carries payload `way`.
pub(super) fn frames(way: Way, editor: Editor) -> Box<dyn Meddler> {
    Box::new(Frames { preamble: preamble(way), header: Vec::new(), payload: None, editor })
}

/// Bytes of the join that go `way` before the first header.
pub(super) fn preamble(way: Way) -> usize {
    match way {
        Way::ToDaemon => SAFE_MAGIC.len() + OPENING_BYTES + MAC_BYTES,
        Way::ToClient => REPLY_BYTES + 1,
    }
}

struct Frames {
    /// Bytes of the join that are still to pass.
    preamble: usize,
    header: Vec<u8>,
    /// The unit whose payload passes, and the bytes of it that have passed.
    payload: Option<(Piece, u64)>,
    editor: Editor,
}

impl Meddler for Frames {
    fn pass(&mut self, bytes: &mut Vec<u8>) {
        let mut input = std::mem::take(bytes);
        let mut rest = &mut input[..];
        while !rest.is_empty() {
            let taken = self.next(rest, bytes);
            rest = &mut rest[taken..];
        }
    }
}

impl Frames {
    /// Passes the next part at the front of `rest`. Returns its length.
    fn next(&mut self, rest: &mut [u8], out: &mut Vec<u8>) -> usize {
        if self.preamble > 0 {
            let taken = rest.len().min(self.preamble);
            self.preamble -= taken;
            out.extend_from_slice(&rest[..taken]);
            return taken;
        }
        let Some((piece, done)) = &mut self.payload else { return self.header(rest, out) };
        let taken = rest.len().min((piece.len - *done) as usize);
        let part = Part::Payload { piece, bytes: &mut rest[..taken] };
        self.editor.lock().expect("editor")(part);
        out.extend_from_slice(&rest[..taken]);
        *done += taken as u64;
        if *done == piece.len {
            self.payload = None;
        }
        taken
    }

    fn header(&mut self, rest: &[u8], out: &mut Vec<u8>) -> usize {
        let taken = rest.len().min(HEADER_BYTES - self.header.len());
        self.header.extend_from_slice(&rest[..taken]);
        if let Ok(mut header) = <[u8; HEADER_BYTES]>::try_from(self.header.as_slice()) {
            self.header.clear();
            if let Ok(Header::Piece(piece)) = Header::decode(&header) {
                self.payload = (piece.len > 0).then_some((piece, 0));
            }
            self.editor.lock().expect("editor")(Part::Header(&mut header));
            out.extend_from_slice(&header);
        }
        taken
    }
}

/// The length of the dialler's proof.
const MAC_BYTES: usize = 32;
