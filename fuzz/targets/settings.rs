//! Texts that an operator writes: see `parsers/settings.rs`.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "../parsers/settings.rs"]
mod settings;

/// The file for parsers that take only files, in memory where there is such a place.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = ["/dev/shm", "/tmp"].into_iter().find(|dir| Path::new(dir).is_dir()).unwrap_or(".");
    Path::new(dir).join(format!("longhaul-fuzz-{}", std::process::id()))
});

fuzz_target!(|bytes: &[u8]| settings::parse(bytes, &FILE));
