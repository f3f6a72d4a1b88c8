//! Owns the format of a frame read from a TUN device: the kernel's offload header, then one IP
//! packet that may stand for many segments. Takes bytes, gives a [`Shape`]. Must not know what
//! happens to packets.

/// Bytes of the offload header (`struct virtio_net_hdr`) before each packet.
pub(crate) const OFFLOAD_BYTES: usize = 10;
/// The longest frame: an IPv6 packet's length does not count its header.
pub(crate) const FRAME_BYTES_MAX: usize = OFFLOAD_BYTES + 40 + 65_535;

/// The flag that the header's checksum holds the sum of the pseudo header only, and the device is
/// to do the rest.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ICMP: [u8; 2] = [1, 58];
/// The bit that each packet of QUIC has set in its first byte (RFC 9000, section 17).
const QUIC_BIT: u8 = 0x40;

/// The offload header, in the machine's byte order as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Offload {
    pub(crate) flags: u8,
    pub(crate) kind: u8,
    /// Bytes of all headers before the payload.
    pub(crate) headers: u16,
    /// Payload bytes of each segment but the last.
    pub(crate) segment: u16,
    /// The offset at which checksumming starts, and the offset of the checksum from there.
    pub(crate) sum_start: u16,
    pub(crate) sum_offset: u16,
}

impl Offload {
    pub(crate) fn read(frame: &[u8]) -> Option<Offload> {
        let bytes: &[u8; OFFLOAD_BYTES] = frame.first_chunk()?;
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let (flags, kind) = (bytes[0], bytes[1]);
        Some(Offload { flags, kind, headers: word(2), segment: word(4), sum_start: word(6), sum_offset: word(8) })
    }

    pub(crate) fn write(self, frame: &mut [u8]) {
        frame[0] = self.flags;
        frame[1] = self.kind;
        let words = [self.headers, self.segment, self.sum_start, self.sum_offset];
        for (to, word) in frame[2..OFFLOAD_BYTES].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

/// The protocol of a packet, by which a firewall decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    /// UDP that no firewall takes for QUIC.
    StrangeUdp,
    Icmp,
    Other,
}

/// The structure of a packet. Offsets and lengths count from the start of the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) protocol: Protocol,
    /// The offset of the TCP or UDP header; 0 if there is none that can be told, as in a fragment.
    pub(crate) transport: u16,
    /// Bytes before the payload: the IP header and, if it can be told, the transport's.
    pub(crate) headers: u16,
    /// Payload bytes of each segment; of the whole packet, if it is one segment.
    pub(crate) segment: u32,
    pub(crate) segments: u16,
    pub(crate) bytes: u32,
    /// Whether it is meant for the link's other end alone (multicast): no path over several hops
    /// would carry it.
    pub(crate) local: bool,
}

impl Shape {
    /// The shape of a frame. `None` if it holds no IP packet.
    pub(crate) fn read(frame: &[u8]) -> Option<Shape> {
        let offload = Offload::read(frame)?;
        let packet = &frame[OFFLOAD_BYTES..];
        let ip = Ip::read(packet)?;
        let transport = ip.transport.filter(|_| !ip.fragment).and_then(|start| headers_of(ip.protocol, start, packet));
        let (start, headers) = transport.unwrap_or((0, ip.headers));
        let payload = packet.len().checked_sub(headers)?;
        let size = usize::from(offload.segment);
        let splits =
            start > 0 && offload.kind != 0 && offload.flags & NEEDS_CHECKSUM != 0 && (1..payload).contains(&size);
        let segment = if splits { size } else { payload };
        Some(Shape {
            protocol: match ip.protocol {
                TCP => Protocol::Tcp,
                UDP if start > 0 && packet.get(headers).is_some_and(|first| first & QUIC_BIT == 0) => {
                    Protocol::StrangeUdp
                }
                UDP => Protocol::Udp,
                icmp if ICMP.contains(&icmp) => Protocol::Icmp,
                _ => Protocol::Other,
            },
            transport: u16::try_from(start).ok()?,
            headers: u16::try_from(headers).ok()?,
            segment: u32::try_from(segment).ok()?,
            segments: if splits { u16::try_from(payload.div_ceil(size)).ok()? } else { 1 },
            bytes: u32::try_from(packet.len()).ok()?,
            local: ip.multicast,
        })
    }

    /// Bytes of payload in all segments.
    pub(crate) fn payload(&self) -> u32 {
        self.bytes - u32::from(self.headers)
    }

    /// Bytes of one segment as a packet of its own, with its headers.
    pub(crate) fn packet_bytes(&self, index: u16) -> u32 {
        let before = self.segment * u32::from(index);
        u32::from(self.headers) + (self.payload() - before).min(self.segment)
    }

    /// Bytes of `count` segments from `first` on, each as a packet of its own.
    pub(crate) fn bytes_of(&self, first: u16, count: u16) -> u64 {
        let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
        let (payload, segment) = (u64::from(self.payload()), u64::from(self.segment));
        u64::from(count) * u64::from(self.headers) + (end * segment).min(payload) - (first * segment).min(payload)
    }

    /// Whether there is payload whose checksum can be made to fit.
    pub(crate) fn has_checked_payload(&self) -> bool {
        self.transport > 0 && self.payload() > 0
    }
}

/// The fields of an IP header that matter here.
struct Ip {
    protocol: u8,
    headers: usize,
    /// The offset of the transport header. `None` if it does not follow at once.
    transport: Option<usize>,
    fragment: bool,
    multicast: bool,
}

impl Ip {
    fn read(packet: &[u8]) -> Option<Ip> {
        match packet.first()? >> 4 {
            4 if packet.len() >= 20 => {
                let headers = usize::from(packet[0] & 15) * 4;
                let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
                let fits = (20..=packet.len()).contains(&headers);
                fits.then(|| Ip {
                    protocol: packet[9],
                    headers,
                    transport: Some(headers),
                    fragment,
                    multicast: packet[16] >> 4 == 14,
                })
            }
            // Extension headers are not walked: a packet with them is neither split nor told apart.
            6 if packet.len() >= 40 => Some(Ip {
                // A report of multicast listeners is ICMP behind a hop-by-hop header.
                protocol: packet[6],
                headers: 40,
                transport: Some(40),
                fragment: false,
                multicast: packet[24] == 0xff,
            }),
            _ => None,
        }
    }
}

/// The offsets where a known transport header begins and ends.
fn headers_of(protocol: u8, start: usize, packet: &[u8]) -> Option<(usize, usize)> {
    let len = match protocol {
        TCP => usize::from(packet.get(start + 12)? >> 4) * 4,
        UDP => 8,
        _ => return None,
    };
    let least = if protocol == TCP { 20 } else { 8 };
    (len >= least && start + len <= packet.len()).then_some((start, start + len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, V4, V6};
    use proptest::prelude::*;

    #[test]
    fn a_super_packet_is_as_many_segments_as_the_kernel_would_make_of_it() {
        for (payload, segments, last) in [(1, 1, 1), (1448, 1, 1448), (1449, 2, 1), (2896, 2, 1448), (64_000, 45, 288)]
        {
            let shape = Shape::read(&Sample { version: V4, protocol: TCP, payload, segment: 1448 }.frame()).unwrap();
            assert_eq!((shape.segments, shape.headers, shape.transport), (segments, 52, 20), "{payload}");
            assert_eq!(shape.packet_bytes(segments - 1), 52 + last, "{payload}");
            for first in 0..segments {
                let bytes: u32 = (first..segments).map(|index| shape.packet_bytes(index)).sum();
                assert_eq!(shape.bytes_of(first, segments - first), u64::from(bytes), "{payload}");
            }
            assert_eq!(shape.bytes_of(0, segments), (payload as u64) + u64::from(segments) * 52, "{payload}");
        }
    }

    #[test]
    fn both_versions_and_both_transports_are_told() {
        for (version, protocol, told, transport, headers) in [
            (V4, TCP, Protocol::Tcp, 20, 52),
            (V4, UDP, Protocol::StrangeUdp, 20, 28),
            (V6, TCP, Protocol::Tcp, 40, 72),
            (V6, UDP, Protocol::StrangeUdp, 40, 48),
        ] {
            let shape = Shape::read(&Sample { version, protocol, payload: 3000, segment: 1200 }.frame()).unwrap();
            assert_eq!((shape.protocol, shape.transport, shape.headers, shape.segments), (told, transport, headers, 3));
            assert!(!shape.local);
        }
    }

    #[test]
    fn a_datagram_passes_for_quic_by_its_first_byte() {
        let mut frame = Sample { version: V4, protocol: UDP, payload: 100, segment: 0 }.frame();
        for (first, told) in [(0x40, Protocol::Udp), (0xc0, Protocol::Udp), (0x21, Protocol::StrangeUdp)] {
            frame[OFFLOAD_BYTES + 28] = first;
            assert_eq!(Shape::read(&frame).unwrap().protocol, told, "{first:#x}");
        }
    }

    #[test]
    fn a_fragment_is_one_packet_without_a_transport() {
        let mut frame = Sample { version: V4, protocol: UDP, payload: 1000, segment: 0 }.frame();
        frame[OFFLOAD_BYTES + 6] = 0x20;
        let shape = Shape::read(&frame).unwrap();
        assert_eq!((shape.transport, shape.headers, shape.segments, shape.protocol), (0, 20, 1, Protocol::Udp));
    }

    #[test]
    fn multicast_stays_on_the_link() {
        let mut frame = Sample { version: V4, protocol: UDP, payload: 10, segment: 0 }.frame();
        frame[OFFLOAD_BYTES + 16] = 224;
        assert!(Shape::read(&frame).unwrap().local);
        let mut frame = Sample { version: V6, protocol: 58, payload: 10, segment: 0 }.frame();
        frame[OFFLOAD_BYTES + 24] = 0xff;
        let shape = Shape::read(&frame).unwrap();
        assert!(shape.local && shape.protocol == Protocol::Icmp);
    }

    proptest! {
        #[test]
        fn no_frame_breaks_the_reader(frame in proptest::collection::vec(any::<u8>(), 0..200), version in 0u8..16) {
            let mut frame = frame;
            if let Some(first) = frame.get_mut(OFFLOAD_BYTES) {
                *first = version << 4 | *first & 15;
            }
            if let Some(shape) = Shape::read(&frame) {
                let wire: u64 = (0..shape.segments).map(|index| u64::from(shape.packet_bytes(index))).sum();
                let headers = u64::from(shape.headers) * u64::from(shape.segments);
                prop_assert_eq!(wire, headers + u64::from(shape.payload()));
            }
        }
    }
}
