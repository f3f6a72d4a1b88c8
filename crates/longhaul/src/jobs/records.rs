//! The digests with which files of campaigns were delivered: a file for each shard, beside the
//! manifests.
//!
//! In: digests of movers, and of verifiers that were the first to read a file. Out: the same, to
//! whoever reads the files again. A record that is damaged or missing is none: its files are read
//! as for the first time. Must not know the queue, nor how a file is read.

#![allow(
    clippy::disallowed_methods,
    reason = "the files are this side's own: no root holds them and no peer names them"
)]

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use longhaul_core::{Blame, Escaped, Fault, FaultCode, Hash32, Mtime, RelPath};
use longhaul_jobs::ClaimId;
use longhaul_manifest::{Algorithm, Item, ItemKind, SegmentReader, SegmentWriter, Sums};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The digests of a shard's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestRecord(BTreeMap<RelPath, KnownDigest>);

/// The digest of a file that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownDigest {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its BLAKE3.
    pub b3: Hash32,
    /// Where that is from.
    pub origin: DigestOrigin,
}

/// The origin of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestOrigin {
    /// The transfer that delivered the file, which verified it.
    Delivery,
    /// The first reading of the file where it was delivered: nothing was known of it before.
    FirstReading,
}

impl DigestRecord {
    /// Reads the record of a shard. If there is none, it is empty.
    ///
    /// # Errors
    /// Those of the file system; `InvalidData` if it is damaged.
    pub fn read(path: &Path) -> io::Result<DigestRecord> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(DigestRecord::default()),
            opened => BufReader::with_capacity(BUFFER_BYTES, opened?),
        };
        let mut said = Hash32::default();
        let damaged = |why| io::Error::new(ErrorKind::InvalidData, why);
        file.read_exact(&mut said).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => damaged("it is cut"),
            _ => error,
        })?;
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut file, &mut hasher)?;
        if *hasher.finalize().as_bytes() != said {
            return Err(damaged("its content is not what its digest says"));
        }
        file.seek(SeekFrom::Start(said.len() as u64))?;
        let (mut reader, mut files) = (SegmentReader::new(file)?, BTreeMap::new());
        while let Some(item) = reader.next_item()? {
            let b3 = item.sums.get(Algorithm::Blake3).and_then(|b3| Hash32::try_from(b3).ok());
            let b3 = b3.ok_or_else(|| damaged("it has a file without a digest"))?;
            let origin = if item.mtime.is_none() { DigestOrigin::Delivery } else { DigestOrigin::FirstReading };
            files.insert(item.path.clone(), KnownDigest { bytes: item.bytes(), b3, origin });
        }
        Ok(DigestRecord(files))
    }

    /// Adds digests to the record that stands there, whoever else adds some meanwhile. `tag` is in
    /// the name of what is not whole yet.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn add(path: &Path, tag: &str, fresh: Vec<(RelPath, KnownDigest)>) -> io::Result<RecordFound> {
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let lock = File::create(path.with_extension("lock"))?;
        match flock(&lock, FlockOperation::LockExclusive) {
            // A file system without locks: what two write at one time, one of them may lose.
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            locked => locked?,
        }
        let (mut record, found) = match DigestRecord::read(path) {
            Err(error) if error.kind() == ErrorKind::InvalidData => (DigestRecord::default(), RecordFound::Damaged),
            read => (read?, RecordFound::Well),
        };
        for (path, known) in fresh {
            record.note(path, known);
        }
        record.write(path, tag)?;
        Ok(found)
    }

    /// Writes it in place of the one that stands there.
    fn write(&self, path: &Path, tag: &str) -> io::Result<()> {
        let fresh = path.with_extension(format!("new-{tag}"));
        let mut file = File::create(&fresh)?;
        file.write_all(&Hash32::default())?;
        let hashing =
            HashingWriter { out: BufWriter::with_capacity(BUFFER_BYTES, file), hasher: blake3::Hasher::new() };
        let mut writer = SegmentWriter::new(hashing)?;
        for (path, known) in &self.0 {
            writer.add(&item_of(path, known))?;
        }
        let HashingWriter { out, hasher } = writer.finish()?.0;
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        file.write_all(hasher.finalize().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    }

    /// The digest of a file.
    pub fn get(&self, path: &RelPath) -> Option<&KnownDigest> {
        self.0.get(path)
    }

    /// Notes the digest of a file, in place of the one that was known. That of a transfer is never
    /// replaced by one of a reading.
    pub fn note(&mut self, path: RelPath, known: KnownDigest) {
        let before = self.0.get(&path).map(|before| before.origin);
        if (before, known.origin) != (Some(DigestOrigin::Delivery), DigestOrigin::FirstReading) {
            self.0.insert(path, known);
        }
    }
}

/// The record that stood where digests were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFound {
    /// It was well, or there was none.
    Well,
    /// It was damaged, and is begun anew.
    Damaged,
}

/// The words of a claim in the names of what is not whole yet.
pub fn tag_of(claim: ClaimId) -> String {
    format!("{:032x}", u128::from_be_bytes(claim.0))
}

/// The fault of digests that cannot be kept.
pub fn unkept(path: &Path, error: &io::Error) -> Fault {
    let shown = Escaped(path.as_os_str().as_encoded_bytes()).to_string();
    let message = format_args!("the digests of delivered files cannot be kept in '{shown}': {error}");
    Fault::new(FaultCode::Io, Blame::Local, message).hint_in_words(
        "see that the directory of the queue's manifests can be written; these files are read as for the first time",
    )
}

/// The fault of a record that is damaged.
pub fn damaged(path: &Path) -> Fault {
    let shown = Escaped(path.as_os_str().as_encoded_bytes()).to_string();
    let message = format_args!("the digests of delivered files in '{shown}' are damaged, and are not used");
    Fault::new(FaultCode::Io, Blame::Local, message).hint_in_words(
        "see that the disk of the queue's manifests is well: the files of this shard are read as for the first time",
    )
}

/// A digest as an item of a segment. A time, which is none of a file, says that it is of a reading.
fn item_of(path: &RelPath, known: &KnownDigest) -> Item {
    let sums = Sums::one(Algorithm::Blake3, &known.b3).unwrap_or_default();
    let mtime = match known.origin {
        DigestOrigin::Delivery => None,
        DigestOrigin::FirstReading => Some(Mtime::default()),
    };
    Item { path: path.clone(), kind: ItemKind::File { bytes: Some(known.bytes) }, mtime, sums }
}

/// Hashes what is written.
struct HashingWriter {
    out: BufWriter<File>,
    hasher: blake3::Hasher,
}

impl Write for HashingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

const BUFFER_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    fn path(name: &str) -> RelPath {
        RelPath::new(name).unwrap()
    }

    #[test]
    fn a_record_comes_back_from_its_file_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("delivered/7");
        assert_eq!(DigestRecord::read(&file).unwrap(), DigestRecord::default());
        let mut record = DigestRecord::default();
        let of = |b3, origin| KnownDigest { bytes: 3, b3: [b3; 32], origin };
        record.note(path("a/b"), of(1, DigestOrigin::Delivery));
        record.note(path("a\n"), of(2, DigestOrigin::FirstReading));
        fs::create_dir(file.parent().unwrap()).unwrap();
        record.write(&file, "1").unwrap();
        assert_eq!(DigestRecord::read(&file).unwrap(), record);
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&file, &bytes).unwrap();
            assert!(DigestRecord::read(&file).is_err(), "byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert!(DigestRecord::read(&file).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_many_add_at_one_time_is_all_kept_and_a_reading_never_replaces_a_delivery() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("delivered/7");
        let of = |b3, origin| KnownDigest { bytes: 3, b3: [b3; 32], origin };
        thread::scope(|scope| {
            for at in 0..8_u8 {
                let file = &file;
                scope.spawn(move || {
                    let mine = (path(&format!("own-{at}")), of(at, DigestOrigin::FirstReading));
                    let both = match at % 2 {
                        0 => (path("both"), of(100, DigestOrigin::Delivery)),
                        _ => (path("both"), of(at, DigestOrigin::FirstReading)),
                    };
                    DigestRecord::add(file, &at.to_string(), vec![mine, both]).unwrap();
                });
            }
        });
        let record = DigestRecord::read(&file).unwrap();
        assert_eq!(record.0.len(), 9);
        assert_eq!(record.get(&path("both")), Some(&of(100, DigestOrigin::Delivery)));
        fs::write(&file, b"nothing of it makes sense any more").unwrap();
        let fresh = || vec![(path("a"), of(1, DigestOrigin::Delivery))];
        assert_eq!(DigestRecord::add(&file, "1", fresh()).unwrap(), RecordFound::Damaged);
        assert_eq!(DigestRecord::add(&file, "1", fresh()).unwrap(), RecordFound::Well);
        assert_eq!(fs::read_dir(dir.path().join("delivered")).unwrap().count(), 2, "the record and its lock");
    }

    #[test]
    fn a_record_of_many_files_takes_less_than_a_hundred_bytes_for_each() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("1");
        let mut record = DigestRecord::default();
        for at in 0..10_000_u32 {
            let b3 = *blake3::hash(&at.to_le_bytes()).as_bytes();
            let name = format!("CMIP6/model-{}/experiment/variable/file-{at:08}.nc", at / 2000);
            record.note(path(&name), KnownDigest { bytes: u64::from(at), b3, origin: DigestOrigin::Delivery });
        }
        record.write(&file, "1").unwrap();
        let bytes = fs::metadata(&file).unwrap().len();
        assert!(bytes < 10_000 * 100, "{bytes}");
    }
}
