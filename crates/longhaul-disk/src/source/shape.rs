//! The shape of a transfer's sources before it begins: one directory, missing, or anything else.
//!
//! In: the sources as they are held. Out: a [`Shape`], by which a destination is placed, or not
//! made at all. Looks at each source itself and at nothing beneath it; a later scan may find other
//! things.

use longhaul_core::RelPath;
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind};
use crate::source::fs::{FsSource, Top};
use crate::source::scan::ScanPart;
use crate::stat::type_of;

/// The sources of a transfer, as far as their placing goes.
#[derive(Debug)]
pub enum Shape {
    /// One source, which is a directory and is sent itself, not only its content.
    Directory,
    /// None of the sources exists: the name of each beneath the destination, and the failure to
    /// find it.
    Missing(Vec<(RelPath, DiskError)>),
    /// Several sources, a file, a link, the content of a directory.
    Other,
}

/// The shape of all sources.
pub(super) fn of(source: &FsSource) -> Shape {
    let mut missing = Vec::new();
    for top in &source.tops {
        match look(source, top) {
            Ok(Some(FileType::Directory)) if source.tops.len() == 1 => return Shape::Directory,
            Err((name, error)) if error.kind() == ErrorKind::NotFound => missing.push((name, error)),
            _ => return Shape::Other,
        }
    }
    Shape::Missing(missing)
}

/// The kind of a source that is sent under its own name. `None` if the content of a directory is
/// sent.
fn look(source: &FsSource, top: &Top) -> Result<Option<FileType>, (RelPath, DiskError)> {
    let (path, name) = top.own_name();
    let parts = source.parts(top).map_err(|error| (path.clone(), source.out_of_reach(top, error)))?;
    let Some(name) = name else { return Ok(None) };
    let stat = |part: &ScanPart| statat(part.walk.root(), name, AtFlags::SYMLINK_NOFOLLOW);
    match parts.iter().map(stat).reduce(Result::or).unwrap_or(Err(Errno::NOENT)) {
        Ok(stat) => Ok(Some(type_of(&stat))),
        Err(error) => Err((path, source.whole(top, DiskError::call("examine", name, error)))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::direct::DirectMode;
    use crate::source::fs::SourceSpec;

    fn shape(top: &Path, sources: &[&str]) -> String {
        let spec = |text: &&str| {
            let contents = text.ends_with('/');
            SourceSpec { path: top.join(text.trim_end_matches('/')), contents }
        };
        match FsSource::open(sources.iter().map(spec).collect(), DirectMode::Auto).shape() {
            Shape::Directory => "directory".to_owned(),
            Shape::Other => "other".to_owned(),
            Shape::Missing(missing) => {
                missing.iter().map(|(name, _)| name.escaped().to_string()).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn one_directory_is_told_from_its_content_from_files_and_from_what_is_missing() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir(dir.path().join("d")).expect("dir");
        std::fs::write(dir.path().join("f"), b"").expect("file");
        symlink("d", dir.path().join("link")).expect("link");
        for (sources, expected) in [
            (&["d"][..], "directory"),
            (&["d/"], "other"),
            (&["f"], "other"),
            (&["link"], "other"),
            (&["d", "f"], "other"),
            (&["no"], "no"),
            (&["no", "such/deep"], "no deep"),
            (&["no/"], "."),
            (&["no", "f"], "other"),
            (&["f/"], "other"),
        ] {
            assert_eq!(shape(dir.path(), sources), expected, "{sources:?}");
        }
    }
}
