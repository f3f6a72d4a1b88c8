//! Owns packets made for unit tests, as the kernel would hand them over. Takes a few numbers, gives
//! frames. Must share no code with the modules that it tests, except the checksum.

use crate::checksum::Sum;
use crate::packet::{NEEDS_CHECKSUM, OFFLOAD_BYTES, Offload, TCP, UDP};

pub(crate) const V4: u8 = 4;
pub(crate) const V6: u8 = 6;

/// A packet of TCP (with 12 bytes of options) or UDP.
pub(crate) struct Sample {
    pub(crate) version: u8,
    pub(crate) protocol: u8,
    pub(crate) payload: usize,
    /// Payload bytes of each segment. 0: the device is not asked to segment, and the checksum is
    /// whole.
    pub(crate) segment: usize,
}

impl Sample {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let ip = self.ip_headers();
        let headers = ip + self.transport_headers();
        let mut frame = vec![0; OFFLOAD_BYTES];
        frame.extend(self.ip());
        frame.extend(self.transport());
        frame.extend((0..self.payload).map(|at| (at * 31 + at / 251) as u8));
        let sum_at = OFFLOAD_BYTES + ip + self.sum_offset();
        let pseudo = self.pseudo(&frame[OFFLOAD_BYTES..]);
        if self.segment == 0 {
            let sum = pseudo.add(&frame[OFFLOAD_BYTES + ip..]).checksum();
            frame[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
            return frame;
        }
        frame[sum_at..sum_at + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
        let kinds = [(V4, TCP, 1), (V6, TCP, 4), (V4, UDP, 5), (V6, UDP, 5)];
        let kind = kinds.iter().find(|(version, protocol, _)| (*version, *protocol) == (self.version, self.protocol));
        let splits = self.payload > self.segment;
        Offload {
            flags: NEEDS_CHECKSUM,
            kind: if splits { kind.map_or(0, |(.., kind)| *kind) } else { 0 },
            headers: headers as u16,
            segment: if splits { self.segment as u16 } else { 0 },
            sum_start: ip as u16,
            sum_offset: self.sum_offset() as u16,
        }
        .write(&mut frame);
        frame
    }

    pub(crate) fn ip_headers(&self) -> usize {
        if self.version == V4 { 20 } else { 40 }
    }

    pub(crate) fn transport_headers(&self) -> usize {
        if self.protocol == TCP { 32 } else { 8 }
    }

    pub(crate) fn sum_offset(&self) -> usize {
        if self.protocol == TCP { 16 } else { 6 }
    }

    /// The pseudo header's sum of a packet like this one, of any length.
    pub(crate) fn pseudo(&self, packet: &[u8]) -> Sum {
        let addresses = if self.version == V4 { &packet[12..20] } else { &packet[8..40] };
        let len = (packet.len() - self.ip_headers()) as u32;
        Sum::default().add(addresses).add_number(self.protocol.into()).add_number(len)
    }

    fn ip(&self) -> Vec<u8> {
        let after = (self.transport_headers() + self.payload) as u16;
        if self.version == V6 {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend(after.to_be_bytes());
            header.extend([self.protocol, 64]);
            header.extend([0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
            header.extend([0xfd, 9, 8, 7, 6, 5, 4, 3, 2, 1, 10, 11, 12, 13, 14, 15]);
            return header;
        }
        let mut header = vec![0x45, 0];
        header.extend((after + 20).to_be_bytes());
        header.extend([0xff, 0xfe, 0x40, 0, 64, self.protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
        let sum = Sum::default().add(&header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn transport(&self) -> Vec<u8> {
        if self.protocol != TCP {
            let len = (8 + self.payload) as u16;
            return [&[0x30, 0x39, 0x30, 0x3a][..], &len.to_be_bytes(), &[0, 0]].concat();
        }
        // A sequence number about to wrap; CWR, PSH, FIN and ACK.
        let mut header = vec![0x30, 0x39, 0x30, 0x3a, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1, 0x80, 0x99, 1, 0, 0, 0, 0, 0];
        header.extend([1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9]);
        header
    }
}
