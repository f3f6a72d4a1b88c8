//! Owns the cutting of super-packets into runs of segments, and the changing of bits. Takes a
//! frame, its shape and the wanted part of it, gives the bytes to write. Must not know why.

use std::ops::Range;

use crate::checksum::Sum;
use crate::fate::Damage;
use crate::packet::{FRAME_BYTES_MAX, NEEDS_CHECKSUM, OFFLOAD_BYTES, Offload, Shape, TCP, UDP};

/// Part of a frame: consecutive segments, and the bit that changes in them. Only a part of one
/// segment is ever damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) first: u16,
    pub(crate) count: u16,
    pub(crate) damage: Option<Damage>,
}

/// Renders cuts, reusing its memory.
#[derive(Debug)]
pub(crate) struct Cutter {
    scratch: Box<[u8]>,
}

impl Cutter {
    pub(crate) fn new() -> Cutter {
        Cutter { scratch: vec![0; FRAME_BYTES_MAX].into_boxed_slice() }
    }

    /// The bytes to write for a cut, in two parts: unchanged payload is not copied.
    pub(crate) fn render<'a>(&'a mut self, frame: &'a [u8], shape: &Shape, cut: &Cut) -> (&'a [u8], &'a [u8]) {
        if cut.count == shape.segments && cut.damage.is_none() {
            return (frame, &[]);
        }
        let payload = OFFLOAD_BYTES + usize::from(shape.headers);
        let body = &frame[body(shape, cut)];
        let head = &mut self.scratch[..payload];
        head.copy_from_slice(&frame[..payload]);
        if cut.count < shape.segments {
            rewrite(head, shape, cut, body.len());
        }
        let Some(damage) = cut.damage else { return (&self.scratch[..payload], body) };
        let all = &mut self.scratch[..payload + body.len()];
        all[payload..].copy_from_slice(body);
        match damage {
            Damage::Told(bit) => tell(all, shape, bit),
            Damage::Silent(bit) => silence(all, shape, bit),
        }
        (all, &[])
    }
}

/// The range of the frame in which the payload of a cut lies.
fn body(shape: &Shape, cut: &Cut) -> Range<usize> {
    let payload = OFFLOAD_BYTES + usize::from(shape.headers);
    let segment = shape.segment as usize;
    let (from, to) = (usize::from(cut.first) * segment, usize::from(cut.first + cut.count) * segment);
    payload + from..payload + to.min(shape.payload() as usize)
}

/// Turns the headers of a super-packet into those of a run of its segments.
fn rewrite(head: &mut [u8], shape: &Shape, cut: &Cut, body: usize) {
    let packet = &mut head[OFFLOAD_BYTES..];
    let len = usize::from(shape.headers) + body;
    if is_v4(packet) {
        put(packet, 2, len as u16);
        let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(cut.first);
        put(packet, 4, id);
        put(packet, 10, 0);
        let sum = Sum::default().add(&packet[..usize::from(packet[0] & 15) * 4]).checksum();
        put(packet, 10, sum);
    } else {
        put(packet, 4, (len - 40) as u16);
    }
    let pseudo = pseudo(packet, shape, len).folded();
    let transport = &mut packet[usize::from(shape.transport)..];
    if is_tcp(shape) {
        rewrite_tcp(transport, shape, cut);
    } else {
        put(transport, 4, (len - usize::from(shape.transport)) as u16);
    }
    put(transport, sum_offset(shape), pseudo);
    let Some(mut offload) = Offload::read(head) else { return };
    offload.headers = shape.headers;
    if cut.count == 1 {
        (offload.kind, offload.segment) = (0, 0);
    }
    offload.write(head);
}

fn rewrite_tcp(header: &mut [u8], shape: &Shape, cut: &Cut) {
    let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let sequence = sequence.wrapping_add(shape.segment * u32::from(cut.first));
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    // As the kernel segments: only the last segment has the flag of the end, only the first that of
    // a reduced window.
    if cut.first + cut.count < shape.segments {
        header[13] &= !(TCP_FIN | TCP_PSH);
    }
    if cut.first > 0 {
        header[13] &= !TCP_CWR;
    }
}

/// Changes a bit of the payload (or of the headers, if there is no payload) after the checksum was
/// made.
fn tell(frame: &mut [u8], shape: &Shape, bit: u32) {
    if shape.transport > 0 {
        complete(frame, shape);
    }
    let after_ip = if shape.transport > 0 { shape.transport } else { shape.headers };
    let from = if shape.payload() > 0 { shape.headers } else { after_ip };
    flip(&mut frame[OFFLOAD_BYTES + usize::from(from)..], bit);
}

/// Changes a bit of the payload before the checksum is made.
fn silence(frame: &mut [u8], shape: &Shape, bit: u32) {
    if !shape.has_checked_payload() {
        return;
    }
    flip(&mut frame[OFFLOAD_BYTES + usize::from(shape.headers)..], bit);
    let sum_at = OFFLOAD_BYTES + usize::from(shape.transport) + sum_offset(shape);
    // A checksum that is left to the device covers the bytes that stand there; a missing one (UDP
    // over IPv4) covers nothing.
    if frame[0] & NEEDS_CHECKSUM == 0 && frame[sum_at..sum_at + 2] != [0, 0] {
        complete(frame, shape);
    }
}

/// Computes the transport's checksum over the present bytes.
fn complete(frame: &mut [u8], shape: &Shape) {
    let Some(mut offload) = Offload::read(frame) else { return };
    offload.flags &= !NEEDS_CHECKSUM;
    (offload.sum_start, offload.sum_offset) = (0, 0);
    offload.write(frame);
    let packet = &mut frame[OFFLOAD_BYTES..];
    let start = usize::from(shape.transport);
    put(&mut packet[start..], sum_offset(shape), 0);
    let sum = pseudo(packet, shape, packet.len()).add(&packet[start..]).checksum();
    // UDP says "no checksum" by a zero.
    let sum = if sum == 0 && !is_tcp(shape) { 0xffff } else { sum };
    put(&mut packet[start..], sum_offset(shape), sum);
}

/// The pseudo header's sum of a packet of `len` bytes with these headers.
fn pseudo(packet: &[u8], shape: &Shape, len: usize) -> Sum {
    let addresses = if is_v4(packet) { &packet[12..20] } else { &packet[8..40] };
    let protocol = if is_tcp(shape) { TCP } else { UDP };
    let after_ip = (len - usize::from(shape.transport)) as u32;
    Sum::default().add(addresses).add_number(protocol.into()).add_number(after_ip)
}

fn flip(bytes: &mut [u8], bit: u32) {
    let bits = bytes.len() * 8;
    if bits > 0 {
        let bit = bit as usize % bits;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

fn is_v4(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4
}

fn is_tcp(shape: &Shape) -> bool {
    shape.protocol == crate::packet::Protocol::Tcp
}

/// The offset of the transport's checksum in its header.
fn sum_offset(shape: &Shape) -> usize {
    if is_tcp(shape) { 16 } else { 6 }
}

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

#[cfg(test)]
#[path = "cut/tests.rs"]
mod tests;
