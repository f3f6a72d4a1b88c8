//! What an operator writes: keys, known hosts, config files, locations. The first byte chooses the parser.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use longhaul::config::{ClientFile, CommandLineRoot, Daemon};
use longhaul::location::Location;
use longhaul_net::{KnownHosts, PublicKey};

/// Some parsers take only files: this one, in memory where there is such a place.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = ["/dev/shm", "/tmp"].into_iter().find(|dir| Path::new(dir).is_dir()).unwrap_or(".");
    Path::new(dir).join(format!("longhaul-fuzz-{}", std::process::id()))
});

fuzz_target!(|bytes: &[u8]| {
    let Some((parser, bytes)) = bytes.split_first() else { return };
    let text = std::str::from_utf8(bytes);
    match (parser, text) {
        (b'k', Ok(text)) => {
            let Ok(key) = text.parse::<PublicKey>() else { return };
            assert_eq!(key.to_string().parse().ok(), Some(key));
        }
        (b'c', Ok(text)) => drop(ClientFile::parse(Path::new("config.toml"), text)),
        (b'l', _) => drop(Location::parse(OsStr::from_bytes(bytes))),
        (b'r', _) => drop(CommandLineRoot::parse(OsStr::from_bytes(bytes))),
        (b'h', _) if std::fs::write(&*FILE, bytes).is_ok() => drop(KnownHosts::load(&FILE)),
        (b's', _) if std::fs::write(&*FILE, bytes).is_ok() => drop(Daemon::load(Some(&FILE), Vec::new())),
        _ => return,
    }
    let _ = std::fs::remove_file(&*FILE);
});
