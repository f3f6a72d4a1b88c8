//! The commit of a campaign: the list of all of its files, as its sealed manifests have them.
//!
//! In: a commit that was granted. Out: its work, whose one session offers the list to the place
//! where all of it is staged. Reads no source. Must not know which claim it is shown by.

use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_engine::{CampaignFiles, Settings};
use longhaul_jobs::queue::Granted;
use longhaul_manifest::{Item, ItemKind, Items, Sealed};

use super::Mover;
use super::session::{Unprepared, Work, admit_ground, blocking, credentials_of, of_shard};
use super::tally::Tally;
use crate::jobs::faults::fault_of_manifest;
use crate::jobs::spec::CampaignSpec;

/// Reads what the commit is. Its manifests are read whole once, and compared with what was planned.
pub(super) async fn prepare(mover: &Mover, granted: &Granted) -> Result<Work, Unprepared> {
    let spec = CampaignSpec::decode(&granted.campaign.spec)?;
    let missing = || Fault::new(FaultCode::Usage, Blame::Local, "the campaign has a commit and no dataset");
    let job = spec.commit().ok_or_else(missing)?.cataloguing(mover.catalogue.clone());
    let (admitting, campaign) = (Arc::clone(&mover.admitting), granted.campaign.clone());
    let read = mover.queue.transact(move |rows| Ok((rows.segments(campaign.id)?, admitting.admit(rows, &campaign)?)));
    let (segments, admitted) = read.await.map_err(|error| Unprepared::of_queue(&error))?;
    let roots = admitted.map_err(Unprepared::of_campaign)?;
    let (shelf, key, sources) = (mover.shelf.clone(), granted.campaign.key, spec.sources.len());
    let manifests = blocking(move || shelf.whole((key, roots.as_deref()), &segments, sources)).await??;
    let credentials = credentials_of(mover, &spec).await?;
    admit_ground(mover, &job).await?;
    let places = spec.sources.iter().map(|source| source.onto.clone());
    let preserves_links = spec.settings.metadata.preserve.links;
    let kinds = if preserves_links { ListedKinds::FilesAndLinks } else { ListedKinds::Files };
    let list = Arc::new(CampaignList { parts: places.zip(manifests).collect(), kinds });
    let mut settings = Settings { filter: Filter::default(), ..spec.settings };
    settings.memory = mover.orders.memory.unwrap_or(settings.memory);
    let tally = Arc::new(Tally::of_commit());
    Ok(Work { of: of_shard(granted), job, credentials, settings, tally, list: Some(list) })
}

/// The files of all sources of a campaign, each at its place in the dataset.
struct CampaignList {
    /// The place of each source, and its manifest.
    parts: Vec<(RelPath, Sealed)>,
    kinds: ListedKinds,
}

/// The kinds of names that a campaign moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListedKinds {
    FilesAndLinks,
    Files,
}

impl CampaignFiles for CampaignList {
    fn each(&self, sink: &mut dyn FnMut(Item) -> ControlFlow<()>) -> Result<(), Fault> {
        let mut parts: Vec<Peekable<PlacedItems<'_>>> = Vec::with_capacity(self.parts.len());
        for (onto, sealed) in &self.parts {
            parts.push(PlacedItems { onto, items: sealed.items(), kinds: self.kinds }.peekable());
        }
        while let Some(item) = next_of(&mut parts)? {
            if sink(item).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The first of the next items of some lists.
fn next_of<'a>(parts: &mut [Peekable<impl Iterator<Item = Result<Item, Fault>> + 'a>]) -> Result<Option<Item>, Fault> {
    let mut first: Option<(usize, RelPath)> = None;
    for (at, part) in parts.iter_mut().enumerate() {
        match part.peek() {
            Some(Ok(item)) if first.as_ref().is_none_or(|(_, path)| item.path < *path) => {
                first = Some((at, item.path.clone()));
            }
            Some(Err(fault)) => return Err(fault.clone()),
            _ => {}
        }
    }
    first.and_then(|(at, _)| parts[at].next()).transpose()
}

/// The items of a manifest that are moved, at their places.
struct PlacedItems<'a> {
    onto: &'a RelPath,
    items: Items<'a>,
    kinds: ListedKinds,
}

impl Iterator for PlacedItems<'_> {
    type Item = Result<Item, Fault>;

    fn next(&mut self) -> Option<Result<Item, Fault>> {
        loop {
            let item = match self.items.next()? {
                Ok(item) => item,
                Err(error) => return Some(Err(fault_of_manifest(&error))),
            };
            match item.kind {
                ItemKind::File { .. } => {}
                ItemKind::Link { .. } if self.kinds == ListedKinds::FilesAndLinks => {}
                ItemKind::Link { .. } | ItemKind::Dir => continue,
            }
            let too_long = |error| Fault::new(FaultCode::Unsupported, Blame::Local, error);
            return Some(self.onto.concat(&item.path).map(|path| Item { path, ..item }).map_err(too_long));
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_manifest::{Draft, Lists};

    use super::*;

    #[test]
    fn files_of_all_sources_are_listed_in_the_order_of_their_places_without_directories() {
        let dir = tempfile::tempdir().unwrap();
        let sealed = |name: &str, items: Vec<Item>| {
            let mut draft = Draft::begin(&dir.path().join(name)).unwrap();
            items.iter().for_each(|item| _ = draft.add(item).unwrap());
            draft.seal(Lists::ALL, 0).unwrap()
        };
        let path = |path: &str| RelPath::new(path).unwrap();
        let file = |name: &str| Item::file(path(name), Some(3), Default::default());
        let link = Item { kind: ItemKind::Link { target: b"x".to_vec() }, ..file("l") };
        let one = sealed("one", vec![Item::dir(path("a")), file("a/f"), link]);
        let two = sealed("two", vec![file("g")]);
        let (first, second) = ((path("b"), one), (path("a"), two));
        let mut list = CampaignList { parts: vec![first, second], kinds: ListedKinds::FilesAndLinks };
        let listed = |list: &CampaignList| {
            let mut all = Vec::new();
            list.each(&mut |item| {
                all.push(item.path.escaped().to_string());
                ControlFlow::Continue(())
            })
            .unwrap();
            all.join(" ")
        };
        assert_eq!(listed(&list), "a/g b/a/f b/l");
        list.kinds = ListedKinds::Files;
        assert_eq!(listed(&list), "a/g b/a/f");
    }
}
