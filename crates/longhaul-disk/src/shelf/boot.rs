//! The identity of this boot of the host: data that was only in memory is gone with the boot
//! before. Asks the kernel; knows no journals.

/// The kernel's name of this boot, random each time. Zeros if the kernel gives none.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file, which is no destination's")]
pub fn boot_id() -> [u8; 16] {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().and_then(|text| parse(&text)).unwrap_or_default()
}

/// Reads 32 hex digits with hyphens between them.
fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b'-').collect();
    let mut id = [0; 16];
    if digits.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_a_name_that_stays() {
        assert_eq!(boot_id(), boot_id());
        assert_ne!(boot_id(), [0; 16], "Linux names each boot");
        assert_eq!(
            parse("0badcafe-0102-0304-0506-0708090a0b0c\n").map(|id| id[..5].to_vec()),
            Some(vec![0x0b, 0xad, 0xca, 0xfe, 1])
        );
        assert_eq!((parse(""), parse("0badcafe"), parse(&"z".repeat(32))), (None, None, None));
    }
}
