//! A sealed manifest of a stranger: a segment, or (after a byte that is odd) a head. Items that are
//! read have one form, and reading takes no more memory than a block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::within;
use longhaul_manifest::{Head, SegmentReader, SegmentWriter, check_segment};

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    if kind % 2 == 1 {
        if let Ok(head) = Head::parse(bytes) {
            assert_eq!(head.text().as_bytes(), bytes);
        }
        return;
    }
    let is_whole = within(MEMORY, || {
        let Ok(mut reader) = SegmentReader::new(bytes) else { return false };
        loop {
            match reader.next_item() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    });
    if !is_whole {
        return;
    }
    let (Ok(mut reader), Ok(mut writer)) = (SegmentReader::new(bytes), SegmentWriter::new(Vec::new())) else { return };
    while let Ok(Some(item)) = reader.next_item() {
        writer.add(&item).expect("memory takes everything");
    }
    let (again, _) = writer.finish().expect("memory takes everything");
    assert_eq!(check_segment(again.as_slice()).ok(), check_segment(bytes).ok());
});

/// Bytes of a block, packed and not, and of the one before it, which is given up as it comes.
const MEMORY: usize = 4 << 20;
