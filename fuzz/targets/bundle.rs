//! A bundle. A table that parses covers the unit exactly, in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::limits::{BUNDLE_FILES_MAX, BUNDLED_FILE_BYTES_MAX};
use longhaul_fuzz::within;
use longhaul_proto::wire::bundle::{self, table_bytes};

fuzz_target!(|unit: &[u8]| {
    within(128 * BUNDLE_FILES_MAX, || {
        let Ok(rows) = bundle::parse(unit) else { return };
        let mut at = rows.first().map_or(unit.len(), |row| row.bytes.start);
        assert!(at >= table_bytes(rows.len()));
        for row in rows {
            assert_eq!(row.bytes.start, at);
            assert!(row.bytes.len() as u64 <= BUNDLED_FILE_BYTES_MAX);
            at = row.bytes.end;
        }
        assert_eq!(at, unit.len());
    });
});
