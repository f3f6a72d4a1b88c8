//! The file in which this user's runs keep what they found out about paths.
//!
//! In: its place from `config::Places`; facts from the engine. Out: facts to the engine. Owns the
//! format: JSON, so that people can read it. It is a cache: a file that is damaged, too long or
//! open to others counts as empty, entries of a day ago are dropped, and nothing fails for want of
//! it. Knows no sessions.

#![allow(clippy::disallowed_methods, reason = "the file is this side's own: no root holds it and no peer names it")]

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::limits::LANES_MAX;
use longhaul_engine::{PathFacts, PathKey, PathMemory, PathRate};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// The file of this user. See the module.
#[derive(Debug)]
pub struct PathFile(PathBuf);

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    v: u32,
    paths: Vec<StoredPath>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredPath {
    peer: String,
    remote: IpAddr,
    local: IpAddr,
    interface: Option<u32>,
    rtt_us: u64,
    #[serde(default)]
    lanes: Option<Dated<u32>>,
    #[serde(default)]
    congestion: Option<Dated<String>>,
    #[serde(default)]
    rate: Option<Dated<StoredRate>>,
}

/// A rate, and the round trip with which it was found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct StoredRate {
    bytes_per_second: u64,
    rtt_us: u64,
}

/// A fact, and when it was found out, in seconds of Unix time.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Dated<T> {
    is: T,
    at: u64,
}

impl PathFile {
    /// The file at this path, which need not exist.
    pub fn at(path: PathBuf) -> PathFile {
        PathFile(path)
    }

    /// The entries that are of use at the time `now`, in the order in which they were written.
    fn entries(&self, now: u64) -> Vec<StoredPath> {
        let content = match read(&self.0) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                tracing::debug!(file = %self.0.display(), %error, "what is known of paths is of no use");
                return Vec::new();
            }
        };
        content.paths.into_iter().filter_map(|path| path.young(now)).collect()
    }

    fn recall_at(&self, path: &PathKey, now: u64) -> Option<PathFacts> {
        self.entries(now).iter().rfind(|entry| entry.is_of(path)).map(StoredPath::facts)
    }

    fn remember_at(&self, path: &PathKey, facts: &PathFacts, now: u64) -> io::Result<()> {
        let mut paths = self.entries(now);
        paths.retain(|entry| !entry.is_of(path));
        paths.extend(StoredPath::new(path, facts).young(now));
        let too_many = paths.len().saturating_sub(PATHS_MAX);
        paths.drain(..too_many);
        write(&self.0, &serde_json::to_vec_pretty(&Content { v: VERSION, paths })?)
    }
}

impl PathMemory for PathFile {
    fn recall(&self, path: &PathKey) -> Option<PathFacts> {
        self.recall_at(path, now())
    }

    fn remember(&self, path: &PathKey, facts: &PathFacts) {
        if let Err(error) = self.remember_at(path, facts, now()) {
            tracing::debug!(file = %self.0.display(), %error, "this path is not remembered");
        }
    }
}

impl StoredPath {
    fn new(path: &PathKey, facts: &PathFacts) -> StoredPath {
        StoredPath {
            peer: path.peer.to_string(),
            remote: path.remote,
            local: path.local,
            interface: path.interface,
            rtt_us: facts.rtt.as_micros() as u64,
            lanes: facts.lanes.map(|(is, at)| Dated { is, at: seconds(at) }),
            congestion: facts.congestion.clone().map(|(is, at)| Dated { is, at: seconds(at) }),
            rate: facts.rate.map(|(rate, at)| Dated { is: StoredRate::new(rate), at: seconds(at) }),
        }
    }

    /// The path with what is of use at the time `now`. `None` if nothing is.
    fn young(self, now: u64) -> Option<StoredPath> {
        let (lanes, congestion) = (self.lanes.filter(|l| l.is_young(now)), self.congestion.filter(|c| c.is_young(now)));
        let rate = self.rate.filter(|rate| rate.is_young(now));
        let is_of_use = lanes.is_some() || congestion.is_some() || rate.is_some();
        is_of_use.then_some(StoredPath { lanes, congestion, rate, ..self })
    }

    fn is_of(&self, path: &PathKey) -> bool {
        (self.remote, self.local, self.interface) == (path.remote, path.local, path.interface)
            && self.peer == path.peer.to_string()
    }

    fn facts(&self) -> PathFacts {
        PathFacts {
            rtt: Duration::from_micros(self.rtt_us),
            lanes: self.lanes.as_ref().map(|lanes| (lanes.is.clamp(1, LANES_MAX), time(lanes.at))),
            congestion: self.congestion.clone().map(|congestion| (congestion.is, time(congestion.at))),
            rate: self.rate.as_ref().map(|rate| (rate.is.rate(), time(rate.at))),
        }
    }
}

impl StoredRate {
    fn new(rate: PathRate) -> StoredRate {
        StoredRate { bytes_per_second: rate.bytes_per_second, rtt_us: rate.rtt.as_micros() as u64 }
    }

    fn rate(self) -> PathRate {
        let bytes_per_second = self.bytes_per_second.clamp(1, PATH_RATE_MAX);
        PathRate { bytes_per_second, rtt: Duration::from_micros(self.rtt_us) }
    }
}

impl<T> Dated<T> {
    fn is_young(&self, now: u64) -> bool {
        self.at <= now && now - self.at < GOOD_FOR.as_secs()
    }
}

/// Reads the file, if no other user could have written it.
fn read(path: &Path) -> io::Result<Content> {
    // A pipe of that name is not waited for.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user could have written it"));
    }
    let mut bytes = Vec::new();
    if file.take(KNOWN_PATHS_BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > KNOWN_PATHS_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    let content: Content = serde_json::from_slice(&bytes)?;
    if content.v != VERSION {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is of another version"));
    }
    Ok(content)
}

/// Replaces the file as a whole, so that runs at the same time never see a part of it. It is not
/// synced: the loss of a cache does no harm.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Mode 0600.
    let mut file = NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

fn now() -> u64 {
    seconds(SystemTime::now())
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}

/// The version of the format.
const VERSION: u32 = 1;
/// How long facts are of use: traffic of a network repeats itself from day to day at best.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3600);
/// The highest rate that is believed, bytes per second: 100 Gbit/s.
const PATH_RATE_MAX: u64 = 12_500_000_000;
/// The most paths that are kept; the oldest give way.
const PATHS_MAX: usize = 128;
/// The longest file that is read: some 500 bytes a path.
const KNOWN_PATHS_BYTES_MAX: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use longhaul_net::PublicKey;

    use super::*;

    fn key(n: u8) -> PathKey {
        let (remote, local) = ([10, 0, 0, n].into(), [10, 0, 0, 1].into());
        PathKey { peer: PublicKey::from_bytes([7; 32]), remote, local, interface: Some(2) }
    }

    fn facts(lanes: u32, at: u64) -> PathFacts {
        PathFacts {
            rtt: Duration::from_millis(100),
            lanes: Some((lanes, time(at))),
            congestion: Some(("bbr".to_owned(), time(at))),
            rate: Some((PathRate { bytes_per_second: 100_000_000, rtt: Duration::from_millis(99) }, time(at))),
        }
    }

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 24 * 3600;

    #[test]
    fn the_newest_facts_of_a_path_are_known_for_a_day_to_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/longhaul/paths.json");
        let file = PathFile::at(path.clone());
        assert_eq!(file.recall_at(&key(2), NOW), None);
        file.remember_at(&key(2), &facts(8, NOW), NOW).unwrap();
        file.remember_at(&key(3), &facts(4, NOW + 1), NOW + 1).unwrap();
        file.remember_at(&key(2), &facts(16, NOW + 2), NOW + 2).unwrap();
        assert_eq!(file.recall_at(&key(2), NOW + 1 + DAY), Some(facts(16, NOW + 2)));
        assert_eq!(file.recall_at(&key(2), NOW + 2 + DAY), None);
        assert_eq!(file.recall_at(&key(2), NOW + 1), None, "from a clock that was wrong");
        assert_eq!(file.recall_at(&key(3), NOW + DAY), Some(facts(4, NOW + 1)));
        for other in [
            PathKey { interface: None, ..key(2) },
            PathKey { local: [10, 0, 0, 9].into(), ..key(2) },
            PathKey { peer: PublicKey::from_bytes([8; 32]), ..key(2) },
        ] {
            assert_eq!(file.recall_at(&other, NOW + 3), None, "{other:?}");
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn each_fact_has_an_age_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = PathFile::at(dir.path().join("paths.json"));
        let both = PathFacts { lanes: facts(8, NOW).lanes, ..facts(8, NOW - DAY / 2) };
        file.remember_at(&key(2), &both, NOW).unwrap();
        assert_eq!(file.recall_at(&key(2), NOW + 1), Some(both.clone()));
        let later = file.recall_at(&key(2), NOW + DAY / 2);
        assert_eq!(later, Some(PathFacts { congestion: None, rate: None, ..both }));
        let rate = PathFacts { lanes: None, congestion: None, ..facts(8, NOW) };
        file.remember_at(&key(3), &rate, NOW).unwrap();
        assert_eq!(file.recall_at(&key(3), NOW + 1), Some(rate), "a rate is of use alone");
    }

    #[test]
    fn a_file_of_a_build_that_knew_no_rates_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paths.json");
        let file = PathFile::at(path.clone());
        let known = PathFacts { rate: None, ..facts(8, NOW) };
        file.remember_at(&key(2), &known, NOW).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let older = text.replace(",\n      \"rate\": null", "");
        assert_ne!(text, older);
        fs::write(&path, older).unwrap();
        assert_eq!(file.recall_at(&key(2), NOW), Some(known));
    }

    #[test]
    fn the_file_keeps_so_many_paths_and_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = PathFile::at(dir.path().join("paths.json"));
        for n in 0..=PATHS_MAX as u8 {
            let long = PathKey { remote: [0xfd00, 1, 2, 3, 4, 5, 6, u16::from(n)].into(), ..key(n) };
            file.remember_at(&long, &facts(8, NOW), NOW).unwrap();
        }
        let kept = file.entries(NOW);
        assert_eq!((kept.len(), kept[0].remote), (PATHS_MAX, [0xfd00, 1, 2, 3, 4, 5, 6, 1].into()));
    }

    #[test]
    fn a_file_that_is_damaged_or_open_to_others_counts_as_empty_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paths.json");
        let file = PathFile::at(path.clone());
        file.remember_at(&key(2), &facts(8, NOW), NOW).unwrap();
        let good = fs::read(&path).unwrap();
        let long = [b' '; KNOWN_PATHS_BYTES_MAX as usize + 1];
        for bytes in [&good[..good.len() / 2], b"", b"[]", b"{\"v\":2,\"paths\":[]}", &long] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(file.recall_at(&key(2), NOW), None);
        }
        fs::write(&path, &good).unwrap();
        assert_eq!(file.recall_at(&key(2), NOW), Some(facts(8, NOW)));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o620)).unwrap();
        assert_eq!(file.recall_at(&key(2), NOW), None);
        file.remember_at(&key(2), &facts(4, NOW), NOW).unwrap();
        assert_eq!(file.recall_at(&key(2), NOW), Some(facts(4, NOW)));
        let link = PathFile::at(dir.path().join("link.json"));
        symlink(&path, dir.path().join("link.json")).unwrap();
        assert_eq!(link.recall_at(&key(2), NOW), None);
    }

    #[test]
    fn numbers_that_no_run_could_use_are_brought_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let file = PathFile::at(dir.path().join("paths.json"));
        for (written, read) in [(0, 1), (7, 7), (u32::MAX, LANES_MAX)] {
            file.remember_at(&key(2), &facts(written, NOW), NOW).unwrap();
            assert_eq!(file.recall_at(&key(2), NOW).and_then(|facts| facts.lanes).map(|l| l.0), Some(read));
        }
        for (written, read) in [(0, 1), (7, 7), (u64::MAX, PATH_RATE_MAX)] {
            let rate = PathRate { bytes_per_second: written, rtt: Duration::ZERO };
            file.remember_at(&key(2), &PathFacts { rate: Some((rate, time(NOW))), ..facts(8, NOW) }, NOW).unwrap();
            let recalled =
                file.recall_at(&key(2), NOW).and_then(|facts| facts.rate).map(|found| found.0.bytes_per_second);
            assert_eq!(recalled, Some(read));
        }
    }
}
