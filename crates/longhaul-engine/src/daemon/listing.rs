//! Answers requests to list: roots that a key may see, a key's partials, or names of a directory, a
//! page at a time.
//!
//! In: a tree and a path, or a client. Out: listings over control, each name once and in order.
//! Holds a bounded share of the daemon's memory whatever lies in the directory, and ends when the
//! other side does not read.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::limits::{PAGE_BYTES_MAX, PEER_TEXT_BYTES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, Meta, RelPath};
use longhaul_disk::{Lister, Tree};
use longhaul_net::PublicKey;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Listed, ListedKind, Listing};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::shares::{ClientShares, Share};
use super::{ClientConfig, Daemon};
use crate::journals::RootJournals;
use crate::name_page::{NAMES_BYTES, name_page};
use crate::session::channel::{WriteHalf, write_message};
use crate::workers::blocking;

/// Names that can be told.
pub(super) struct ListedNames {
    from: NameSource,
    /// Given back when all is told and nothing is read any more.
    places: Places,
}

/// Where names come from.
enum NameSource {
    Directory(Lister),
    Known(Vec<Listed>),
}

/// A listing's places: one of the listings that there may be, with memory for its first names, and
/// what it claims for more.
pub(super) struct Places {
    _listing: Share,
    memory: Share,
}

impl Places {
    /// Takes the places of one more listing of a client.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] when it has its share, or all are taken.
    pub(super) fn take(listings: &ClientShares, memory: &ClientShares, client: PublicKey) -> Result<Places, Fault> {
        let listing = listings.claim(client, 1).map_err(|full| listings.refusal(full))?;
        Ok(Places { _listing: listing, memory: memory.claim_later(client) })
    }
}

impl ListedNames {
    fn new(from: NameSource, places: Places) -> ListedNames {
        ListedNames { from, places }
    }

    /// What stands at a path.
    pub(super) async fn beneath(tree: Arc<Tree>, path: RelPath, places: Places) -> Result<ListedNames, Fault> {
        blocking(move || {
            let lister = Lister::new(&tree, &path)?;
            Ok(ListedNames::new(NameSource::Directory(lister), places))
        })
        .await
    }

    /// What is left of a principal's unfinished files at a path and beneath it.
    pub(super) async fn partials(
        (tree, store): (Arc<Tree>, Arc<RootJournals>),
        principal: String,
        path: RelPath,
        mut places: Places,
    ) -> Result<ListedNames, Fault> {
        blocking(move || {
            let mut left = NAMES_FIRST_BYTES as u64;
            let mut room = |bytes| {
                if left < bytes {
                    let more = PARTIALS_STEP_BYTES.max(bytes);
                    places.memory.grow(more).map_err(|full| too_many_partials(&places.memory.refusal(full)))?;
                    left += more;
                }
                left -= bytes;
                Ok(())
            };
            let names = partials(&tree, &store, (&principal, &path), &mut room)?;
            Ok(ListedNames::new(NameSource::Known(names), places))
        })
        .await
    }

    /// The roots that a client may see.
    pub(super) fn roots(daemon: &Daemon, client: &ClientConfig, places: Places) -> ListedNames {
        let listed = |name: &String| {
            let (_, rights) = daemon.root(client, name).ok()?;
            let kind = ListedKind::Root { rights };
            Some(Listed { name: name.clone().into_bytes(), kind, len: 0, meta: Meta::default() })
        };
        ListedNames::new(NameSource::Known(daemon.roots.keys().filter_map(listed).collect()), places)
    }

    /// Tells all of them. What goes wrong on the way is told too.
    ///
    /// # Errors
    /// [`FaultCode::TimedOut`] when the other side does not read; what breaks the connection.
    pub(super) async fn tell(self, writer: &mut WriteHalf) -> Result<(), Fault> {
        let mut telling = ListingWriter { writer, patience: PATIENCE };
        let told = match self.from {
            NameSource::Known(names) => telling.all(names).await,
            NameSource::Directory(lister) => telling.directory(lister, self.places).await,
        };
        match told {
            // Whoever does not read a page does not read why it was the last one.
            Err(fault) if !matches!(fault.code, FaultCode::TimedOut | FaultCode::Lost) => {
                telling.say(&Message::Refuse(fault)).await?;
            }
            told => told?,
        }
        let _ = timeout(PAGE_TAKEN_MAX, writer.shutdown()).await;
        Ok(())
    }
}

/// Somebody waits for the names of a directory, until this is dropped.
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A listing on its way to whom it is for.
struct ListingWriter<'a> {
    writer: &'a mut WriteHalf,
    /// How long it may still wait for the other side, all in all.
    patience: Duration,
}

impl ListingWriter<'_> {
    /// Names that are known, in messages of a bounded size.
    async fn all(&mut self, names: Vec<Listed>) -> Result<(), Fault> {
        let mut names = names.into_iter().peekable();
        loop {
            let (mut some, mut bytes) = (Vec::new(), 0);
            while bytes < PAGE_BYTES_MAX
                && let Some(name) = names.next()
            {
                let more = if matches!(name.kind, ListedKind::Partial(_)) { LISTED_TEXTS_BYTES } else { 0 };
                bytes += name.name.len() + more + LISTED_NUMBERS_BYTES;
                some.push(name);
            }
            let last = names.peek().is_none();
            self.page(some, last).await?;
            if last {
                return Ok(());
            }
        }
    }

    async fn directory(&mut self, mut lister: Lister, mut places: Places) -> Result<(), Fault> {
        let mut names = NAMES_FIRST_BYTES;
        let _wanted = Abandoned(lister.unwanted());
        loop {
            // The places go with it: a thread that reads on behind a reader who has hung up still
            // has them.
            let read = blocking(move || {
                let page = name_page(&mut lister, names)?;
                Ok((page, lister, places))
            });
            let (page, rest, kept) = self.while_it_reads(read).await?;
            (lister, places) = (rest, kept);
            self.page(page, lister.is_over()).await?;
            if lister.is_over() {
                return Ok(());
            }
            // Each reading of a large directory costs as much as the first: with more memory there
            // are fewer.
            if names < NAMES_BYTES && lister.is_read_again() && places.memory.grow(MORE).is_ok() {
                names = NAMES_BYTES;
            }
        }
    }

    /// Waits for names, and says now and then that they are looked for: the other side takes
    /// silence for an end.
    async fn while_it_reads<T>(&mut self, read: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let mut read = std::pin::pin!(read);
        loop {
            match timeout(SAY_EVERY, &mut read).await {
                Ok(read) => return read,
                Err(_) => self.page(Vec::new(), false).await?,
            }
        }
    }

    async fn page(&mut self, names: Vec<Listed>, last: bool) -> Result<(), Fault> {
        if !names.is_empty() {
            self.patience += PATIENCE_A_PAGE;
        }
        self.say(&Message::Listing(Listing { names, last })).await
    }

    async fn say(&mut self, message: &Message) -> Result<(), Fault> {
        let began = Instant::now();
        let most = PAGE_TAKEN_MAX.min(self.patience);
        let Ok(said) = timeout(most, write_message(self.writer, message)).await else {
            let why = format_args!("the listing was not read for {} s", began.elapsed().as_secs());
            return Err(Fault::new(FaultCode::TimedOut, Blame::Peer, why));
        };
        self.patience = self.patience.saturating_sub(began.elapsed());
        said
    }
}

/// What is left of a principal's unfinished files at a path, which may be what has no other name
/// yet.
fn partials(
    tree: &Tree,
    store: &RootJournals,
    (principal, path): (&str, &RelPath),
    room: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<Vec<Listed>, Fault> {
    let partials = store.partials_within(principal, path, room)?;
    if partials.is_empty() && tree.stat(path)?.is_none() {
        // Says so as for any other listing.
        Lister::new(tree, path)?;
    }
    Ok(partials)
}

/// There are more of them than there is memory for: those of one directory may be fewer.
fn too_many_partials(refusal: &Fault) -> Fault {
    let why = format_args!("there are more partials than the daemon has memory to list just now: {}", refusal.message);
    Fault::new(FaultCode::Busy, Blame::Local, why).hint("list a directory further down, or try again later")
}

/// What a listing claims for the names that it does not hold at first.
const MORE: u64 = (NAMES_BYTES - NAMES_FIRST_BYTES) as u64;
/// Names of a directory that are held between pages at first, in bytes, which is all that a
/// directory of 15,000 names needs. With a page, and the message that it becomes, that is 2 MiB,
/// which each listing has besides the daemon's memory: whoever fills that with sessions can still
/// see what has come of them.
const NAMES_FIRST_BYTES: usize = 1 << 20;
/// What a listing of partials claims at a time, beyond its first: some thousand of them.
const PARTIALS_STEP_BYTES: u64 = 1 << 20;
/// Listings of one client at a time. A person has one, a script that looks at several directories a
/// few.
pub(super) const LISTINGS_OF_CLIENT_MAX: u64 = 4;
/// Listings of all clients at a time: 64 MiB at first and half a GiB of names at most, and threads
/// of the runtime's that read directories.
pub(super) const LISTINGS_MAX: u64 = 32;
/// A page that is not taken for so long was the last one.
const PAGE_TAKEN_MAX: Duration = Duration::from_secs(30);
/// How long a listing waits for its reader in all ...
const PATIENCE: Duration = Duration::from_secs(60);
/// ... and for each page more: a full page is 64 KiB, so that 128 kbit/s are fast enough.
const PATIENCE_A_PAGE: Duration = Duration::from_secs(4);
/// A reader hears something so often: it waits for 30 s, and builds before this one for 10 s.
const SAY_EVERY: Duration = Duration::from_secs(4);
/// What a listed name adds to a message beside its bytes, at most.
const LISTED_NUMBERS_BYTES: usize = 64;
/// What the texts of a partial add, at most.
const LISTED_TEXTS_BYTES: usize = 3 * PEER_TEXT_BYTES_MAX;

#[cfg(test)]
mod tests;
