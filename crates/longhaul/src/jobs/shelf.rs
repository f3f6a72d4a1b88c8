//! The manifests of campaigns, and the files of a shard as its manifest lists them.
//!
//! In: the directory of the queue's manifests, and parts of segments. Out: the directory of each
//! manifest, and the items of a part. A segment's file is checked against the digest that the queue
//! keeps before anything in it is believed. Must not know the rules of the queue.

#![allow(
    clippy::disallowed_methods,
    reason = "the files are this side's own: no root holds them and no peer names them"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::io::{self, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::{Blame, Fault, FaultCode, Hash32};
use longhaul_jobs::{CampaignKey, Part, Segment, ShardId};
use longhaul_manifest::{Item, ItemKind, Sealed, SegmentReader, check_segment};

use super::faults::fault_of_manifest;
use super::mover::random;
use crate::error::Error;

/// The place of the manifests of a queue's campaigns. Clones know the same segments.
#[derive(Clone, Debug)]
pub struct Shelf {
    dir: PathBuf,
    /// Digests of segments whose files were found to be whole by this process.
    checked: Arc<Mutex<BTreeSet<Hash32>>>,
}

/// The files of a shard.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The number of the source in its campaign.
    pub source: usize,
    /// The files and links, in the order of the manifest.
    pub items: Vec<Item>,
}

impl Shelf {
    /// The place in a directory.
    pub fn at(dir: PathBuf) -> Shelf {
        Shelf { dir, checked: Arc::default() }
    }

    /// The directory of the manifest of a campaign's source.
    pub fn manifest(&self, campaign: CampaignKey, source: usize) -> PathBuf {
        let mut name = String::with_capacity(32);
        for byte in campaign.0 {
            // Writing to a String cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        self.dir.join(name).join(source.to_string())
    }

    /// Removes the manifest of a campaign's source, so that the next planner lists that anew.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be removed. One that is not there is no error.
    pub fn remove_manifest(&self, campaign: CampaignKey, source: usize) -> Result<(), Error> {
        let dir = self.manifest(campaign, source);
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome.map_err(Error::file("remove", &dir)),
        }
    }

    /// Gives a campaign's source the sealed manifest of another campaign: the same files under
    /// further names, so that they take no room twice, and one campaign's can go without the
    /// other's. It appears whole or not at all. Gives whether it did: another planner may have
    /// begun one at `manifest`, and the other one may be gone by now.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be made.
    pub fn share(&self, sealed: &Sealed, manifest: &Path) -> Result<bool, Error> {
        self.make_room(manifest)?;
        let mut begun = manifest.as_os_str().to_owned();
        // Planners on several hosts may be at it at once.
        begun.push(format!(".shared-{:016x}", u64::from_le_bytes(random()?)));
        let begun = PathBuf::from(begun);
        let shared = link_all(sealed, &begun).and_then(|()| std::fs::rename(&begun, manifest));
        if shared.is_err() {
            // What stays of it is in nobody's way.
            let _ = std::fs::remove_dir_all(&begun);
        }
        match shared {
            Ok(()) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                    return Ok(false);
                }
                _ => return Err(Error::file("make", manifest)(error)),
            },
        }
        let above = manifest.parent().map_or(Ok(()), synced);
        above.map_err(Error::file("sync the directory of", manifest))?;
        Ok(true)
    }

    /// The file with the digests of a shard's delivered files.
    pub fn record(&self, campaign: CampaignKey, shard: ShardId) -> PathBuf {
        self.manifest(campaign, 0).with_file_name("delivered").join(shard.0.to_string())
    }

    /// Makes the directory above that of a manifest, for this user alone.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be made.
    pub fn make_room(&self, manifest: &Path) -> Result<(), Error> {
        let Some(dir) = manifest.parent() else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Error::file("make", dir))
    }

    /// The items of a part of a segment. The segments of a campaign are numbered through all of its
    /// sources. `roots` are the digests of its manifests that its owner signed, `None` if nobody
    /// did.
    ///
    /// # Errors
    /// The fault of a manifest that is not there, is damaged, or is not the one that was planned.
    pub fn listing(
        &self,
        (campaign, roots): (CampaignKey, Option<&[Hash32]>),
        segment: &Segment,
        part: Part,
    ) -> Result<Listing, Fault> {
        let mut before = 0;
        for source in 0.. {
            let sealed = self.sealed((campaign, roots), source)?;
            let segments = &sealed.head().segments;
            let found = usize::try_from(segment.number - before).ok().and_then(|at| segments.get(at));
            let Some(found) = found else {
                before += segments.len() as u64;
                continue;
            };
            let path = sealed.file(found);
            if found.digest != segment.digest {
                return Err(damaged(&path, ANOTHER_SEGMENT));
            }
            let items = self.items(&path, segment, part).map_err(|error| unread(&path, &error))?;
            return Ok(Listing { source, items });
        }
        Err(damaged(&self.dir, "no source has the segment"))
    }

    /// The whole manifests of a campaign's sources, one for each, whose segments are those that
    /// were planned. `roots` are as in [`Shelf::listing`].
    ///
    /// # Errors
    /// As [`Shelf::listing`].
    pub fn whole(
        &self,
        (campaign, roots): (CampaignKey, Option<&[Hash32]>),
        segments: &[Segment],
        sources: usize,
    ) -> Result<Vec<Sealed>, Fault> {
        let (mut planned, mut all) = (segments.iter(), Vec::with_capacity(sources));
        for source in 0..sources {
            let sealed = self.sealed((campaign, roots), source)?;
            for found in &sealed.head().segments {
                let path = sealed.file(found);
                if planned.next().map(|segment| segment.digest) != Some(found.digest) {
                    return Err(damaged(&path, ANOTHER_SEGMENT));
                }
                self.check(&path, found.digest).map_err(|error| unread(&path, &error))?;
            }
            all.push(sealed);
        }
        if planned.next().is_some() {
            return Err(damaged(&self.dir, "a segment that was planned is in none of its manifests"));
        }
        Ok(all)
    }

    /// The manifest of a source, if it is the one that was signed.
    fn sealed(&self, (campaign, roots): (CampaignKey, Option<&[Hash32]>), source: usize) -> Result<Sealed, Fault> {
        let dir = self.manifest(campaign, source);
        let sealed = Sealed::open(&dir).map_err(|error| fault_of_manifest(&error))?;
        if roots.is_some_and(|roots| roots.get(source) != Some(&sealed.digest())) {
            return Err(damaged(&dir, "it is another manifest than the campaign's owner signed"));
        }
        Ok(sealed)
    }

    /// Reads a segment's file once, and compares its content with its digest.
    fn check(&self, path: &Path, digest: Hash32) -> io::Result<()> {
        let checked = || self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if !checked().contains(&digest) {
            if check_segment(BufReader::with_capacity(READ_BYTES, File::open(path)?))? != digest {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its content is not what its digest says"));
            }
            checked().insert(digest);
        }
        Ok(())
    }

    fn items(&self, path: &Path, segment: &Segment, part: Part) -> io::Result<Vec<Item>> {
        self.check(path, segment.digest)?;
        let mut reader = SegmentReader::new(BufReader::with_capacity(READ_BYTES, File::open(path)?))?;
        let mut items = Vec::new();
        for at in 0..part.end {
            let Some(item) = reader.next_item()? else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has fewer names than the shard"));
            };
            if at >= part.first && !matches!(item.kind, ItemKind::Dir) {
                items.push(item);
            }
        }
        Ok(items)
    }
}

/// Gives the files of a sealed manifest names in a new directory, that of the head last.
fn link_all(sealed: &Sealed, dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)?;
    for segment in &sealed.head().segments {
        link(&sealed.file(segment), dir)?;
    }
    link(&sealed.head_file(), dir)?;
    synced(dir)
}

/// Gives a file a name in another directory, or makes a copy where the file system has no such
/// names.
fn link(file: &Path, dir: &Path) -> io::Result<()> {
    let to = dir.join(file.file_name().unwrap_or_default());
    match std::fs::hard_link(file, &to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            std::fs::copy(file, &to)?;
            File::open(&to)?.sync_all()
        }
        linked => linked,
    }
}

/// Makes the names in a directory durable.
fn synced(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The fault of a segment's file that could not be read: another host may have it whole.
fn unread(path: &Path, error: &io::Error) -> Fault {
    let code = match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => FaultCode::Mismatch,
        io::ErrorKind::NotFound => FaultCode::NotFound,
        io::ErrorKind::PermissionDenied => FaultCode::Denied,
        _ => FaultCode::Io,
    };
    unusable(code, path, error)
}

fn damaged(path: &Path, why: &str) -> Fault {
    unusable(FaultCode::Mismatch, path, why)
}

fn unusable(code: FaultCode, path: &Path, why: impl std::fmt::Display) -> Fault {
    let message = format_args!("the campaign's manifest '{}' cannot be used: {why}", path.display());
    Fault::new(code, Blame::Local, message)
        .hint_in_words("bring the queue's directory of manifests back (beside its file, or manifests= in its URL), and release the campaign")
}

const ANOTHER_SEGMENT: &str = "it is another segment than the one that was planned";
/// Bytes of a read of a segment's file.
const READ_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use longhaul_core::RelPath;
    use longhaul_jobs::{Amount, CampaignId};
    use longhaul_manifest::{Draft, Lists};

    use super::*;

    #[test]
    fn a_manifest_is_shared_whole_and_outlives_the_one_that_it_was_taken_from() {
        let dir = tempfile::tempdir().unwrap();
        let (shelf, one, other) = (Shelf::at(dir.path().to_owned()), CampaignKey([1; 16]), CampaignKey([2; 16]));
        let out = shelf.manifest(one, 0);
        shelf.make_room(&out).unwrap();
        let mut draft = Draft::begin(&out).unwrap();
        draft.add(&Item::file(RelPath::new("f").unwrap(), Some(3), Default::default())).unwrap();
        let sealed = draft.seal(Lists::ALL, 2).unwrap();
        let to = shelf.manifest(other, 0);
        assert!(shelf.share(&sealed, &to).unwrap());
        assert!(!shelf.share(&sealed, &to).unwrap(), "one stands there");
        shelf.remove_manifest(one, 0).unwrap();
        let taken = Sealed::open(&to).unwrap();
        assert_eq!((taken.digest(), taken.head().omitted), (sealed.digest(), 2));
        assert_eq!(taken.items().map(Result::unwrap).count(), 1);
        assert!(!shelf.share(&sealed, &shelf.manifest(other, 1)).unwrap(), "it is gone by now");
        let names = std::fs::read_dir(to.parent().unwrap()).unwrap().count();
        assert_eq!(names, 1, "nothing is left of what could not be shared");
    }

    #[test]
    fn a_manifest_that_the_owner_did_not_sign_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (shelf, key) = (Shelf::at(dir.path().to_owned()), CampaignKey([1; 16]));
        let out = shelf.manifest(key, 0);
        shelf.make_room(&out).unwrap();
        let mut draft = Draft::begin(&out).unwrap();
        draft.add(&Item::file(RelPath::new("f").unwrap(), Some(3), Default::default())).unwrap();
        let sealed = draft.seal(Lists::ALL, 0).unwrap();
        let (digest, total) = (sealed.head().segments[0].digest, Amount { files: 1, bytes: 3 });
        let segment = Segment { campaign: CampaignId(1), number: 0, digest, total };
        let part = Part { segment: 0, first: 0, end: 1 };
        for (roots, is_read) in
            [(None, true), (Some(vec![sealed.digest()]), true), (Some(vec![[9; 32]]), false), (Some(Vec::new()), false)]
        {
            let read = shelf.listing((key, roots.as_deref()), &segment, part);
            assert_eq!(read.is_ok(), is_read, "{roots:?}: {read:?}");
            let whole = shelf.whole((key, roots.as_deref()), std::slice::from_ref(&segment), 1);
            assert_eq!(whole.is_ok(), is_read, "{roots:?}");
        }
        let other = Segment { number: 1, digest: [9; 32], ..segment.clone() };
        for (segments, sources) in [(vec![], 1), (vec![other.clone()], 1), (vec![segment, other], 1)] {
            assert!(shelf.whole((key, None), &segments, sources).is_err(), "{segments:?}");
        }
    }
}
