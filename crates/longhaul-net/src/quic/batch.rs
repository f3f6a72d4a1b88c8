//! Datagrams that leave in one system call.
//!
//! In: transmissions of a connection, one after the other. Out: one transmission of as many
//! segments as the kernel takes. It knows no sockets and no times.
//!
//! Quinn makes no more than ten segments at a time. With 44, which is as many as fit into an IP
//! packet at an MTU of 1500, a gigabyte takes a quarter of the system calls, and wakes the other
//! end as often.

use std::net::{IpAddr, SocketAddr};

use quinn::udp::{EcnCodepoint, Transmit};

/// Datagrams that wait: see the module.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    head: Option<BatchHead>,
}

/// The marks that all datagrams of a batch share.
#[derive(Clone, Copy, Debug)]
struct BatchHead {
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    src_ip: Option<IpAddr>,
    /// Bytes of each segment but the last.
    segment: usize,
    /// Whether more may be appended.
    is_open: bool,
}

impl Batch {
    /// Appends a transmission, if it can leave in one call with those that wait. `segments_max`:
    /// the most segments of a call.
    pub(crate) fn push(&mut self, transmit: &Transmit<'_>, segments_max: usize) -> bool {
        let (len, segment) = (transmit.contents.len(), transmit.segment_size.unwrap_or(transmit.contents.len()));
        if let Some(head) = &self.head {
            let is_alike = head.is_open
                && (head.destination, head.ecn, head.src_ip) == (transmit.destination, transmit.ecn, transmit.src_ip)
                && transmit.segment_size == Some(head.segment);
            let bytes = self.bytes.len() + len;
            if !is_alike || bytes > BATCH_BYTES_MAX || bytes.div_ceil(segment) > segments_max {
                return false;
            }
        }
        self.bytes.extend_from_slice(transmit.contents);
        let is_open = transmit.segment_size.is_some() && self.bytes.len().is_multiple_of(segment);
        let Transmit { destination, ecn, src_ip, .. } = *transmit;
        self.head = Some(BatchHead { destination, ecn, src_ip, segment, is_open });
        true
    }

    /// All that waits. `None` if nothing does.
    pub(crate) fn transmit(&self) -> Option<Transmit<'_>> {
        let head = self.head.as_ref()?;
        Some(Transmit {
            destination: head.destination,
            ecn: head.ecn,
            contents: &self.bytes,
            segment_size: (self.bytes.len() > head.segment).then_some(head.segment),
            src_ip: head.src_ip,
        })
    }

    /// Forgets what waits: it has left.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.head = None;
    }
}

/// UDP payload of the largest IPv4 packet.
pub(crate) const BATCH_BYTES_MAX: usize = 65_507;

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(contents: &[u8], segment_size: Option<usize>) -> Transmit<'_> {
        let destination = SocketAddr::from(([192, 0, 2, 1], 7214));
        Transmit { destination, ecn: None, contents, segment_size, src_ip: None }
    }

    #[test]
    fn equal_segments_leave_together_until_one_is_shorter_or_the_call_is_full() {
        let bytes = vec![7; 14_720];
        let mut batch = Batch::default();
        assert!(batch.transmit().is_none());
        for count in 1..=4 {
            assert!(batch.push(&transmit(&bytes, Some(1472)), 44));
            assert_eq!(batch.transmit().expect("it waits").contents.len(), count * 14_720);
        }
        assert!(!batch.push(&transmit(&bytes, Some(1472)), 44), "50 are more than 44");
        assert!(batch.push(&transmit(&bytes[..5000], Some(1472)), 44));
        assert!(!batch.push(&transmit(&bytes[..1472], Some(1472)), 64), "only the last is shorter");
        assert_eq!(batch.transmit().expect("it waits").segment_size, Some(1472));
        batch.clear();
        assert!(batch.transmit().is_none());
        let large = vec![7; 8 * 8000];
        assert!(batch.push(&transmit(&large, Some(8000)), 64));
        assert!(!batch.push(&transmit(&large[..8000], Some(8000)), 64), "no IP packet is as long");
    }

    #[test]
    fn a_datagram_that_came_alone_leaves_alone_as_it_may_be_a_probe_of_the_path() {
        let bytes = vec![7; 8972];
        let mut batch = Batch::default();
        assert!(batch.push(&transmit(&bytes, None), 64));
        assert_eq!(batch.transmit().expect("it waits").segment_size, None);
        for (len, segment) in [(8972, None), (2944, Some(1472)), (40, None)] {
            assert!(!batch.push(&transmit(&bytes[..len], segment), 64), "{len}");
        }
    }

    #[test]
    fn datagrams_of_another_mark_or_to_another_host_do_not_mix() {
        let bytes = vec![7; 2944];
        let mut batch = Batch::default();
        let first = transmit(&bytes, Some(1472));
        assert!(batch.push(&first, 64));
        let other = SocketAddr::from(([192, 0, 2, 2], 7214));
        assert!(!batch.push(&Transmit { destination: other, ..transmit(&bytes, Some(1472)) }, 64));
        assert!(!batch.push(&Transmit { ecn: Some(EcnCodepoint::Ect0), ..transmit(&bytes, Some(1472)) }, 64));
        assert!(!batch.push(&transmit(&bytes, Some(1200)), 64));
        assert!(batch.push(&first, 64));
    }
}
