//! The merge of lists in order: one list in order, with every name once.
//!
//! In: several iterators of items in order. Out: one. If two have one name, what both know is
//! united, and a contradiction is an error. Holds one item of each.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::error::ManifestError;
use crate::item::{Item, ItemKind};

/// Several lists as one.
pub struct Merge<I> {
    lists: Vec<I>,
    heap: BinaryHeap<Front>,
    failed: Option<ManifestError>,
}

/// The next item of a list.
struct Front {
    item: Item,
    list: usize,
}

impl<I: Iterator<Item = Result<Item, ManifestError>>> Merge<I> {
    /// Merges these lists, each of which is in order.
    pub fn new(lists: Vec<I>) -> Merge<I> {
        let mut merge = Merge { heap: BinaryHeap::with_capacity(lists.len()), lists, failed: None };
        (0..merge.lists.len()).for_each(|list| merge.refill(list));
        merge
    }

    fn refill(&mut self, list: usize) {
        match self.lists[list].next() {
            Some(Ok(item)) => self.heap.push(Front { item, list }),
            Some(Err(error)) => drop(self.failed.get_or_insert(error)),
            None => {}
        }
    }

    fn pop(&mut self) -> Option<Item> {
        let Front { item, list } = self.heap.pop()?;
        self.refill(list);
        Some(item)
    }

    fn step(&mut self) -> Result<Option<Item>, ManifestError> {
        let Some(mut item) = self.pop() else {
            return self.failed.take().map_or(Ok(None), Err);
        };
        while self.failed.is_none() && self.heap.peek().is_some_and(|front| front.item.path == item.path) {
            if let Some(other) = self.pop() {
                item = united(item, &other)?;
            }
        }
        self.failed.take().map_or(Ok(Some(item)), Err)
    }
}

impl<I: Iterator<Item = Result<Item, ManifestError>>> Iterator for Merge<I> {
    type Item = Result<Item, ManifestError>;

    fn next(&mut self) -> Option<Result<Item, ManifestError>> {
        let step = self.step();
        if step.is_err() {
            self.heap.clear();
        }
        step.transpose()
    }
}

/// All that two lists know of one name.
///
/// # Errors
/// [`ManifestError::Conflict`] if they contradict each other.
pub fn united(one: Item, other: &Item) -> Result<Item, ManifestError> {
    let conflict = |of| ManifestError::Conflict { path: other.path.clone(), of };
    let kind = match (one.kind, &other.kind) {
        (ItemKind::File { bytes: one }, ItemKind::File { bytes: other }) => {
            ItemKind::File { bytes: either(one, *other).ok_or_else(|| conflict("length"))? }
        }
        (one, other) if one == *other => one,
        (ItemKind::Link { .. }, ItemKind::Link { .. }) => return Err(conflict("target")),
        _ => return Err(conflict("kind")),
    };
    let mtime = either(one.mtime, other.mtime).ok_or_else(|| conflict("time"))?;
    let sums = one.sums.united(&other.sums).map_err(|algorithm| conflict(algorithm.name()))?;
    Ok(Item { path: one.path, kind, mtime, sums })
}

/// The one that is known. `None`: both are, and differ.
fn either<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => Some(one.or(other)),
    }
}

impl Ord for Front {
    /// The item with the first path is the greatest, as a heap gives that first; then that of the
    /// first list.
    fn cmp(&self, other: &Front) -> Ordering {
        (&other.item.path, other.list).cmp(&(&self.item.path, self.list))
    }
}

impl PartialOrd for Front {
    fn partial_cmp(&self, other: &Front) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Front {
    fn eq(&self, other: &Front) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Front {}
