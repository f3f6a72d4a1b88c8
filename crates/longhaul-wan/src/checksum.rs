//! Owns the Internet checksum (RFC 1071). Takes bytes, gives sums. Must not know where in a packet
//! the bytes stand.

/// A sum under way, of 16-bit words in network order; not yet complemented.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes; an odd last one counts as if a zero followed, so only the last piece of a sum
    /// may be odd.
    pub(crate) fn add(self, bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks::<4>();
        let words: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        // No carry is lost: packets are shorter than 2^16 bytes, and a sum of 2^14 words of 32 bits
        // fits.
        Sum(self.0 + words + u64::from(u32::from_be_bytes(last)))
    }

    /// Adds a number, such as a protocol or a length.
    pub(crate) fn add_number(self, number: u32) -> Sum {
        Sum(self.0 + u64::from(number))
    }

    /// The sum in 16 bits, as it stands in a header whose checksum is left to the device.
    pub(crate) fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum.
    pub(crate) fn checksum(self) -> u16 {
        !self.folded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_header_has_its_known_checksum() {
        // The worked example of RFC 1071, section 3, and a header from Wikipedia's article on IPv4.
        assert_eq!(Sum::default().add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).folded(), 0xddf2);
        let mut header = *b"\x45\x00\x00\x73\x00\x00\x40\x00\x40\x11\x00\x00\xc0\xa8\x00\x01\xc0\xa8\x00\xc7";
        assert_eq!(Sum::default().add(&header).checksum(), 0xb861);
        header[10..12].copy_from_slice(&0xb861u16.to_be_bytes());
        assert_eq!(Sum::default().add(&header).checksum(), 0);
    }

    #[test]
    fn lengths_that_are_no_multiple_of_a_word_count_as_if_zeros_followed() {
        for len in 0..64usize {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 37) as u8).collect();
            let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
            let plain = words.fold(Sum::default(), Sum::add_number);
            assert_eq!(Sum::default().add(&bytes).folded(), plain.folded(), "{len}");
        }
    }

    #[test]
    fn the_longest_packet_of_ones_overflows_nothing() {
        assert_eq!(Sum::default().add(&[0xff; 65_535]).add_number(u32::MAX).folded(), 0xff00);
    }
}
