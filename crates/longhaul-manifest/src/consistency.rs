//! The comparison of a storage with what its catalogue says, by three lists in order: of the
//! catalogue before and after the storage was listed, and of the storage.
//!
//! In: three iterators of items. Out: names that are lost or dark, and counts. A name that comes or
//! goes while the storage is listed is neither: that is what the two lists of the catalogue are
//! for. Holds one item of each. Knows no file.

use std::ops::ControlFlow;

use crate::error::ManifestError;
use crate::item::{Item, ItemKind};

/// The finding on a name on which catalogue and storage disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inconsistency {
    /// Both lists of the catalogue have it, and the storage does not.
    Lost,
    /// The storage has it, and neither list of the catalogue does.
    Dark,
}

/// Names by what the three lists say of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsistencySums {
    /// Names that the storage has, and a list of the catalogue too.
    pub consistent: u64,
    /// [`Inconsistency::Lost`].
    pub lost: u64,
    /// [`Inconsistency::Dark`].
    pub dark: u64,
    /// Names that one list of the catalogue has, and nothing else: they came or went meanwhile.
    pub passing: u64,
}

/// Compares the lists, and gives each name that is lost or dark to `sink` until that breaks off.
/// Directories are left out.
///
/// # Errors
/// The first error of any list.
pub fn consistency(
    before: impl Iterator<Item = Result<Item, ManifestError>>,
    storage: impl Iterator<Item = Result<Item, ManifestError>>,
    after: impl Iterator<Item = Result<Item, ManifestError>>,
    mut sink: impl FnMut(&Item, Inconsistency) -> ControlFlow<()>,
) -> Result<ConsistencySums, ManifestError> {
    let mut lists = (Names::of(before)?, Names::of(storage)?, Names::of(after)?);
    let mut sums = ConsistencySums::default();
    loop {
        let fronts = [&lists.0.front, &lists.1.front, &lists.2.front];
        let Some(first) = fronts.into_iter().flatten().map(|item| &item.path).min().cloned() else { return Ok(sums) };
        let found = (lists.0.take(&first)?, lists.1.take(&first)?, lists.2.take(&first)?);
        let flow = match found {
            (Some(item), None, Some(_)) => {
                sums.lost += 1;
                sink(&item, Inconsistency::Lost)
            }
            (None, Some(item), None) => {
                sums.dark += 1;
                sink(&item, Inconsistency::Dark)
            }
            (_, Some(_), _) => {
                sums.consistent += 1;
                ControlFlow::Continue(())
            }
            (_, None, _) => {
                sums.passing += 1;
                ControlFlow::Continue(())
            }
        };
        if flow.is_break() {
            return Ok(sums);
        }
    }
}

/// A list of which the first name is held.
struct Names<I> {
    items: I,
    front: Option<Item>,
}

impl<I: Iterator<Item = Result<Item, ManifestError>>> Names<I> {
    fn of(items: I) -> Result<Names<I>, ManifestError> {
        let mut names = Names { items, front: None };
        names.advance()?;
        Ok(names)
    }

    fn advance(&mut self) -> Result<(), ManifestError> {
        self.front = loop {
            match self.items.next().transpose()? {
                Some(item) if matches!(item.kind, ItemKind::Dir) => {}
                next => break next,
            }
        };
        Ok(())
    }

    /// The first name, if it is this one.
    fn take(&mut self, path: &longhaul_core::RelPath) -> Result<Option<Item>, ManifestError> {
        let Some(item) = self.front.take_if(|item| item.path == *path) else { return Ok(None) };
        self.advance()?;
        Ok(Some(item))
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::RelPath;

    use super::*;

    fn list(names: &str) -> impl Iterator<Item = Result<Item, ManifestError>> {
        let items = names.split_whitespace().map(|name| {
            let path = RelPath::new(name.trim_end_matches('/')).unwrap();
            Ok(if name.ends_with('/') { Item::dir(path) } else { Item::file(path, None, Default::default()) })
        });
        items.collect::<Vec<_>>().into_iter()
    }

    fn found(before: &str, storage: &str, after: &str) -> (String, ConsistencySums) {
        let mut told = String::new();
        let sums = consistency(list(before), list(storage), list(after), |item, found| {
            told.push_str(&format!("{found:?} {} ", item.path.escaped()));
            ControlFlow::Continue(())
        });
        (told, sums.unwrap())
    }

    #[test]
    fn a_name_is_judged_by_which_of_the_three_lists_have_it() {
        for (before, storage, after, told) in [
            ("a", "a", "a", ""),
            ("a", "a", "", ""),
            ("", "a", "a", ""),
            ("a", "", "a", "Lost a "),
            ("", "a", "", "Dark a "),
            ("a", "", "", ""),
            ("", "", "a", ""),
            ("", "", "", ""),
        ] {
            assert_eq!(found(before, storage, after).0, told, "{before}|{storage}|{after}");
        }
    }

    #[test]
    fn lists_of_any_lengths_are_compared_to_their_ends_and_directories_are_left_out() {
        let (told, sums) = found("a b/ c f", "b b/x c d z", "b/ b/x c e f");
        assert_eq!(told, "Dark b Dark d Lost f Dark z ");
        assert_eq!(sums, ConsistencySums { consistent: 2, lost: 1, dark: 3, passing: 2 });
    }

    #[test]
    fn an_error_of_any_list_ends_the_comparison() {
        for failing in 0..3 {
            let of = |at: usize| {
                let error = (at == failing).then_some(Err(ManifestError::Thread));
                list("a b").chain(error)
            };
            let compared = consistency(of(0), of(1), of(2), |_, _| ControlFlow::Continue(()));
            assert!(compared.is_err(), "list {failing}");
        }
    }
}
