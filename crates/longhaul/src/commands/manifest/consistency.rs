//! `manifest consistency`: compares what a storage has with what its catalogue says, by two lists
//! of the catalogue, from before and after that of the storage.
//!
//! In: sealed manifests, or lists of paths in any order. Out: names that are lost or dark, to
//! `output`. The crate of manifests sorts and compares.

use std::env::temp_dir;
use std::ffi::OsStr;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::Path;

use longhaul_manifest::{
    ConsistencySums, Format, HEAD_NAME, Item, ManifestError, Sealed, Sorted, Sorter, consistency, import,
};

use super::fault;
use crate::cli::ManifestConsistencyArgs;
use crate::exit::Exit;
use crate::output::ConsistencyTelling;
use crate::settings::Talk;

/// Runs the command.
pub(super) fn run(args: &ManifestConsistencyArgs, talk: Talk) -> Exit {
    let mut telling = ConsistencyTelling::new(BufWriter::new(std::io::stdout()), talk);
    let mut run = || {
        let mut open = |name: &OsStr| {
            let list = NameList::open(Path::new(name))?;
            if let NameList::Sealed(sealed) = &list
                && sealed.head().omitted > 0
            {
                telling.incomplete(Path::new(name), sealed.head().omitted);
            }
            Ok::<_, ManifestError>(list)
        };
        let mut lists = (open(&args.before)?, open(&args.storage)?, open(&args.after)?);
        consistency(lists.0.items(), lists.1.items(), lists.2.items(), |item, found| {
            telling.found(item, found);
            if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    };
    let compared = run();
    let sums = compared.unwrap_or_else(|error| {
        telling.failed(&fault(&error));
        ConsistencySums::default()
    });
    telling.end(sums)
}

/// A list of names.
enum NameList {
    Sealed(Box<Sealed>),
    Paths(Sorted),
}

impl NameList {
    /// A sealed manifest is a directory or its head; any other file has a path in each line.
    fn open(path: &Path) -> Result<NameList, ManifestError> {
        if path.is_dir() || path.file_name() == Some(OsStr::new(HEAD_NAME)) {
            return Sealed::open(path).map(|sealed| NameList::Sealed(Box::new(sealed)));
        }
        let mut sorter = Sorter::new(&temp_dir(), SORT_BYTES);
        import(path, Format::Paths, &mut sorter)?;
        Ok(NameList::Paths(sorter.finish()?))
    }

    /// Its names in order, once.
    fn items(&mut self) -> Box<dyn Iterator<Item = Result<Item, ManifestError>> + '_> {
        match self {
            NameList::Sealed(sealed) => Box::new(sealed.items()),
            NameList::Paths(sorted) => Box::new(sorted),
        }
    }
}

/// Memory in which each list of paths is sorted.
const SORT_BYTES: usize = 64 << 20;
