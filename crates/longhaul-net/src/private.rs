//! The two buffers of a private lane: payload becomes sealed records for the socket, and the
//! reverse.
//!
//! Owns ciphertext that waits to be sent or opened. Takes keys from `handshake` and a [`Wire`] from
//! `lane`; gives payload. Sealing reads the caller's buffer and opening writes into it, so that
//! payload is copied only where the caller asks for less than a record holds. Must not know what
//! the bytes mean.

use std::ops::Range;

use rustls::AlertDescription;
use serde::{Deserialize, Serialize};

use crate::error::NetError;
use crate::handshake::Secured;
use crate::records::{
    BODY_BYTES_MAX, FRAGMENT_BYTES_MAX, HEADER_BYTES, Heard, PAYLOAD, RECORD_BYTES_MAX, Records, TAG_BYTES,
};
use crate::secrets::{HandedOverKeys, TrafficSecrets};
use crate::wire::{More, Want, Wire};

/// The state of a private lane beside its socket.
pub(crate) struct Private {
    records: Records,
    outbox: Box<[u8]>,
    outbox_len: usize,
    /// `plain` (opened, not yet taken) lies before `sealed` (received, not yet opened).
    inbox: Box<[u8]>,
    plain: Range<usize>,
    sealed: Range<usize>,
    /// The peer has announced that it sends no more.
    ended: bool,
    /// This side has announced it.
    finished: bool,
    /// The secrets of the handshake, as long as the lane may be handed over.
    secrets: Option<TrafficSecrets>,
}

/// A private lane on its way to another process.
#[derive(Serialize, Deserialize)]
pub(crate) struct PrivateParts {
    keys: HandedOverKeys,
    /// Payload that was opened.
    plain: Vec<u8>,
    /// Ciphertext that was received.
    sealed: Vec<u8>,
}

impl Private {
    /// Continues where the handshake ended.
    pub(crate) fn new(secured: Secured) -> Private {
        let Secured { records, early, leftover, secrets, .. } = secured;
        Private { secrets, ..Private::begin(records, &early, &leftover) }
    }

    fn begin(records: Records, early: &[u8], leftover: &[u8]) -> Private {
        let (plain, sealed) = (0..early.len(), early.len()..early.len() + leftover.len());
        let mut inbox = vec![0; sealed.end.max(INBOX_BYTES)].into_boxed_slice();
        inbox[plain.clone()].copy_from_slice(early);
        inbox[sealed.clone()].copy_from_slice(leftover);
        let outbox = vec![0; OUTBOX_BYTES].into_boxed_slice();
        let (ended, finished) = (false, false);
        Private { records, outbox, outbox_len: 0, inbox, plain, sealed, ended, finished, secrets: None }
    }

    /// Takes a lane apart that has carried nothing since its handshake. `None` if it cannot be.
    pub(crate) fn into_parts(self) -> Option<PrivateParts> {
        if self.outbox_len > 0 || self.ended || self.finished {
            return None;
        }
        let keys = HandedOverKeys::of(self.secrets?, self.records.numbers());
        let bytes = |range: Range<usize>| self.inbox[range].to_vec();
        Some(PrivateParts { keys, plain: bytes(self.plain), sealed: bytes(self.sealed) })
    }

    /// Puts a lane together. `None` if its keys are none.
    pub(crate) fn from_parts(parts: PrivateParts) -> Option<Private> {
        Some(Private::begin(Records::handed_over(parts.keys)?, &parts.plain, &parts.sealed))
    }

    /// Seals and sends all of the parts. Each part begins a record, so that a receiver who asks for
    /// the same parts gets nearly all of them opened in its own buffer.
    pub(crate) fn send(&mut self, wire: &Wire, parts: &[&[u8]], more: More) -> Result<(), NetError> {
        if self.finished {
            return Err(NetError::Closed { peer: wire.peer().to_owned() });
        }
        for piece in parts.iter().flat_map(|part| part.chunks(FRAGMENT_BYTES_MAX)) {
            self.make_room(wire)?;
            let room = &mut self.outbox[self.outbox_len..];
            let renewed = self.records.renew(room).map_err(|e| NetError::record(wire.peer(), e))?;
            let sealed =
                self.records.seal(piece, &mut room[renewed..]).map_err(|e| NetError::record(wire.peer(), e))?;
            self.outbox_len += renewed + sealed;
        }
        self.flush(wire, more)
    }

    /// Fills `into`; fewer bytes mean that the peer ended the stream in good order.
    pub(crate) fn recv(&mut self, wire: &Wire, into: &mut [u8]) -> Result<usize, NetError> {
        let mut filled = 0;
        loop {
            filled += self.take_plain(&mut into[filled..]);
            if filled == into.len() || self.ended {
                return Ok(filled);
            }
            let body = self.receive_record(wire)?;
            let opened = self.open(body, &mut into[filled..]);
            filled += opened.map_err(|e| self.fault(wire, e))?;
        }
    }

    /// Announces that nothing more will be sent.
    pub(crate) fn finish(&mut self, wire: &Wire) {
        if !self.finished {
            self.finished = true;
            // If it cannot be said, the peer sees a truncated stream, which is then the truth.
            let _ = self.last_words(wire, AlertDescription::CloseNotify);
        }
        wire.end();
    }

    fn make_room(&mut self, wire: &Wire) -> Result<(), NetError> {
        match self.outbox.len() - self.outbox_len < 2 * RECORD_BYTES_MAX {
            true => self.flush(wire, More::Follows),
            false => Ok(()),
        }
    }

    fn flush(&mut self, wire: &Wire, more: More) -> Result<(), NetError> {
        let len = std::mem::take(&mut self.outbox_len);
        wire.send(&[&self.outbox[..len]], more)
    }

    fn last_words(&mut self, wire: &Wire, alert: AlertDescription) -> Result<(), NetError> {
        let sealed = self.records.seal_alert(alert, &mut self.outbox).map_err(|e| NetError::record(wire.peer(), e))?;
        match alert {
            AlertDescription::CloseNotify => wire.send(&[&self.outbox[..sealed]], More::No),
            _ => {
                wire.send_if_it_fits(&self.outbox[..sealed]);
                Ok(())
            }
        }
    }

    fn take_plain(&mut self, into: &mut [u8]) -> usize {
        let n = self.plain.len().min(into.len());
        into[..n].copy_from_slice(&self.inbox[self.plain.start..self.plain.start + n]);
        self.plain.start += n;
        n
    }

    /// Receives until a whole record is in the inbox; takes it off and returns where its body lies.
    fn receive_record(&mut self, wire: &Wire) -> Result<Range<usize>, NetError> {
        loop {
            let whole = self.record_len().map_err(|e| self.fault(wire, e))?;
            if self.sealed.len() >= whole {
                let body = self.sealed.start + HEADER_BYTES..self.sealed.start + whole;
                self.sealed.start = body.end;
                return Ok(body);
            }
            self.fill(wire)?;
        }
    }

    /// The length of the record at the front, as far as it is known.
    fn record_len(&self) -> Result<usize, rustls::Error> {
        let Some(header) = self.inbox[self.sealed.clone()].first_chunk::<HEADER_BYTES>() else {
            return Ok(HEADER_BYTES);
        };
        let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
        match header[0] {
            PAYLOAD if body > BODY_BYTES_MAX => Err(rustls::Error::PeerSentOversizedRecord),
            PAYLOAD if body > TAG_BYTES => Ok(HEADER_BYTES + body),
            _ => Err(rustls::Error::DecryptError),
        }
    }

    /// Receives the bytes that are there, as many as fit. (Waiting for all bytes that the wanted
    /// payload takes saved nothing measurable, and would miss a peer's alert before it hangs up.)
    fn fill(&mut self, wire: &Wire) -> Result<(), NetError> {
        debug_assert!(self.plain.is_empty(), "opened bytes are taken before the inbox is filled again");
        if self.sealed.is_empty() || self.inbox.len() - self.sealed.start < HEADER_BYTES + BODY_BYTES_MAX {
            self.inbox.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        match wire.recv(&mut self.inbox[self.sealed.end..], Want::Some)? {
            // The socket ended, but TLS did not.
            0 => Err(NetError::Truncated { peer: wire.peer().to_owned() }),
            n => {
                self.sealed.end += n;
                Ok(())
            }
        }
    }

    /// Opens one record: its payload goes into `into` if all of it fits, otherwise it stays in
    /// place. Returns how much of `into` is filled.
    fn open(&mut self, body: Range<usize>, into: &mut [u8]) -> Result<usize, rustls::Error> {
        let start = body.start;
        let (before, rest) = self.inbox.split_at_mut(start);
        let body = &mut rest[..body.len()];
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&before[start - HEADER_BYTES..]);
        if body.len() - TAG_BYTES <= into.len() {
            let opened = self.records.open_into(header, body, into)?;
            if opened.kind == PAYLOAD {
                return Ok(opened.len);
            }
            self.ended |= self.records.absorb(opened.kind, &into[..opened.len])? == Heard::End;
        } else {
            let opened = self.records.open_in_place(header, body)?;
            if opened.kind == PAYLOAD {
                self.plain = start..start + opened.len;
                return Ok(0);
            }
            self.ended |= self.records.absorb(opened.kind, &body[..opened.len])? == Heard::End;
        }
        Ok(0)
    }

    /// Handles a stream that the peer, or something on the way, broke: tells the peer why, and
    /// gives the stream up.
    fn fault(&mut self, wire: &Wire, error: rustls::Error) -> NetError {
        if !self.finished && !matches!(error, rustls::Error::AlertReceived(_)) {
            self.finished = true;
            let alert = match error {
                rustls::Error::DecryptError => AlertDescription::BadRecordMac,
                _ => AlertDescription::UnexpectedMessage,
            };
            let _ = self.last_words(wire, alert);
        }
        wire.abandon();
        (self.plain, self.sealed) = (0..0, 0..0);
        NetError::record(wire.peer(), error)
    }

    /// The records, for tests that renew keys early.
    #[cfg(test)]
    pub(crate) fn records(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// A header and a piece of 256 KiB, seventeen records, go out by one system call; room for two more
/// is always kept.
const OUTBOX_BYTES: usize = 19 * RECORD_BYTES_MAX;
/// Room for seventeen of the largest records that a peer may send.
const INBOX_BYTES: usize = 17 * (HEADER_BYTES + BODY_BYTES_MAX);
