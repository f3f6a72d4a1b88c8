//! The comparison of two lists in order.
//!
//! In: two iterators of items. Out: a finding on each name that either has. Holds one item of each.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::error::ManifestError;
use crate::head::Lists;
use crate::item::{Item, ItemKind};
use longhaul_core::checksum::Agreement;

/// The finding on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Both have it, with the same checksum, or with the same length and time where they have no
    /// checksum in common.
    Same,
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Both have it, and its kind, length, checksum or target differs.
    Changed,
    /// Both have it, and what is known of it says neither that it is the same nor that it differs.
    Unknown,
}

/// Compares two lists, and gives each name of the first or the second to `sink` until that breaks
/// off. Kinds that are not in `lists` are left out; a name that is a file in one list is compared
/// whatever it is in the other.
///
/// # Errors
/// The first error of either list.
pub fn diff(
    one: impl Iterator<Item = Result<Item, ManifestError>>,
    other: impl Iterator<Item = Result<Item, ManifestError>>,
    lists: Lists,
    mut sink: impl FnMut(&Item, Difference) -> ControlFlow<()>,
) -> Result<(), ManifestError> {
    let (mut one, mut other) = (one.fuse(), other.fuse());
    let (mut first, mut second) = (one.next().transpose()?, other.next().transpose()?);
    loop {
        let order = match (&first, &second) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(first), Some(second)) => first.path.cmp(&second.path),
        };
        let before = match order {
            Ordering::Greater => None,
            Ordering::Less | Ordering::Equal => std::mem::replace(&mut first, one.next().transpose()?),
        };
        let after = match order {
            Ordering::Less => None,
            Ordering::Equal | Ordering::Greater => std::mem::replace(&mut second, other.next().transpose()?),
        };
        let is_listed = |item: &Item| lists.has(&item.kind);
        let flow = match (&before, &after) {
            (Some(before), Some(after)) if is_listed(before) || is_listed(after) => sink(after, compare(before, after)),
            (Some(item), None) if is_listed(item) => sink(item, Difference::Removed),
            (None, Some(item)) if is_listed(item) => sink(item, Difference::Added),
            _ => ControlFlow::Continue(()),
        };
        if flow.is_break() {
            return Ok(());
        }
    }
}

fn compare(one: &Item, other: &Item) -> Difference {
    let (ItemKind::File { bytes: one_bytes }, ItemKind::File { bytes: other_bytes }) = (&one.kind, &other.kind) else {
        return if one.kind == other.kind { Difference::Same } else { Difference::Changed };
    };
    let differs = |one: &Option<u64>, other: &Option<u64>| one.is_some() && other.is_some() && one != other;
    if differs(one_bytes, other_bytes) {
        return Difference::Changed;
    }
    let is_alike = one_bytes.is_some() && one_bytes == other_bytes && one.mtime.is_some() && one.mtime == other.mtime;
    match one.sums.compare(&other.sums) {
        Agreement::Same => Difference::Same,
        Agreement::Differ(_) => Difference::Changed,
        Agreement::Nothing if is_alike => Difference::Same,
        Agreement::Nothing => Difference::Unknown,
    }
}
