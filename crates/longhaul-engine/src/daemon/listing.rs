//! Answers requests to list: roots that a key may see, a key's partials, or names of a directory, a
//! page at a time.
//!
//! In: a tree and a path, or a client. Out: listings over control, each name once and in order. It
//! holds a bounded share of the daemon's memory however large the directory is, and ends when the
//! other side does not read. It knows no sessions.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::limits::{PAGE_BYTES_MAX, PEER_TEXT_BYTES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, Meta, RelPath, Rights, Whereabouts, hint};
use longhaul_disk::{Lister, TargetSet};
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

/// The names of one listing.
pub(super) struct ListedNames {
    from: NameSource,
    /// Given back when all names are sent and no thread reads any more.
    places: Places,
}

/// The origin of the names.
enum NameSource {
    Directory(Lister),
    Known(Vec<Listed>),
    /// None: where the directory lies was asked.
    Located(Whereabouts),
}

/// A listing's claims: one of the listings that there may be, and memory beyond that of its first
/// names.
pub(super) struct Places {
    _listing: Share,
    memory: Share,
}

impl Places {
    /// Claims one more listing of a client.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] when the client has its share, or all are taken.
    pub(super) fn take(listings: &ClientShares, memory: &ClientShares, client: PublicKey) -> Result<Places, Fault> {
        let listing = listings.claim(client, 1).map_err(|full| listings.refusal(full))?;
        Ok(Places { _listing: listing, memory: memory.claim_later(client) })
    }
}

impl ListedNames {
    fn new(from: NameSource, places: Places) -> ListedNames {
        ListedNames { from, places }
    }

    /// The names at a path.
    pub(super) async fn beneath(set: Arc<TargetSet>, path: RelPath, places: Places) -> Result<ListedNames, Fault> {
        blocking(move || {
            let lister = Lister::new(&set, &path)?;
            Ok(ListedNames::new(NameSource::Directory(lister), places))
        })
        .await
    }

    /// Where the directory at a path lies, in place of names.
    pub(super) async fn located(set: Arc<TargetSet>, path: RelPath, places: Places) -> Result<ListedNames, Fault> {
        blocking(move || Ok(ListedNames::new(NameSource::Located(set.whereabouts(&path)?), places))).await
    }

    /// The partials of a principal at a path and beneath it.
    pub(super) async fn partials(
        (set, store): (Arc<TargetSet>, Arc<RootJournals>),
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
            let names = partials(&set, &store, (&principal, &path), &mut room)?;
            Ok(ListedNames::new(NameSource::Known(names), places))
        })
        .await
    }

    /// The roots that a client may see, with those of its rights there that it knows.
    pub(super) fn roots(daemon: &Daemon, (client, known): (&ClientConfig, Rights), places: Places) -> ListedNames {
        let listed = |name: &String| {
            let (_, rights) = daemon.root(client, name).ok()?;
            let kind = ListedKind::Root { rights: rights.and(known) };
            Some(Listed { name: name.clone().into_bytes(), kind, len: 0, meta: Meta::default() })
        };
        ListedNames::new(NameSource::Known(daemon.roots.named.keys().filter_map(listed).collect()), places)
    }

    /// Sends all names. A fault on the way is sent too.
    ///
    /// # Errors
    /// [`FaultCode::TimedOut`] when the other side does not read; the fault of a connection that
    /// breaks.
    pub(super) async fn tell(self, writer: &mut WriteHalf) -> Result<(), Fault> {
        let mut telling = ListingWriter { writer, patience: PATIENCE };
        let told = match self.from {
            NameSource::Known(names) => telling.all(names).await,
            NameSource::Located(whereabouts) => telling.say(&Message::Whereabouts(whereabouts)).await,
            NameSource::Directory(lister) => telling.directory(lister, self.places).await,
        };
        match told {
            // A reader that does not take a page does not take the reason for its end either.
            Err(fault) if !matches!(fault.code, FaultCode::TimedOut | FaultCode::Lost) => {
                telling.say(&Message::Refuse(fault)).await?;
            }
            told => told?,
        }
        let _ = timeout(PAGE_TAKEN_MAX, writer.shutdown()).await;
        Ok(())
    }
}

/// The mark of a reader that waits for the names of a directory. Dropping it stops the reading
/// thread.
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a listing to its reader.
struct ListingWriter<'a> {
    writer: &'a mut WriteHalf,
    /// How much longer it waits for the reader in all.
    patience: Duration,
}

impl ListingWriter<'_> {
    /// Sends known names, in messages of a bounded size.
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
            // The claims go with the thread, so that a thread that reads on after the reader has
            // hung up still has them.
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
            // Each reading of a large directory costs as much as the first. With more memory there
            // are fewer.
            if names < NAMES_BYTES && lister.is_read_again() && places.memory.grow(MORE).is_ok() {
                names = NAMES_BYTES;
            }
        }
    }

    /// Waits for names, and meanwhile sends a sign of life now and then: the other side takes
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

/// The partials of a principal at a path, which may have no other name yet.
fn partials(
    set: &TargetSet,
    store: &RootJournals,
    (principal, path): (&str, &RelPath),
    room: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<Vec<Listed>, Fault> {
    let mut partials = store.partials_within(principal, path, room)?;
    partials.extend(store.stages_within(set, (principal, path), room)?);
    partials.sort_by(|a, b| a.name.cmp(&b.name));
    if partials.is_empty() && set.stat(path)?.is_none() {
        // Fails as any other listing of this path does.
        Lister::new(set, path)?;
    }
    Ok(partials)
}

/// The fault of more partials than there is memory for. A directory further down may have fewer.
fn too_many_partials(refusal: &Fault) -> Fault {
    let why = format_args!("there are more partials than the daemon has memory to list just now: {}", refusal.message);
    Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Names::ListFurtherDown)
}

/// Bytes that a listing claims for names beyond the first ones.
const MORE: u64 = (NAMES_BYTES - NAMES_FIRST_BYTES) as u64;
/// Bytes of names of a directory that are held between pages at first, enough for a directory of
/// 15,000 names. With a page, and its message, that is 2 MiB, which each listing has besides the
/// daemon's memory: a client that fills the memory with sessions can still see how they are doing.
const NAMES_FIRST_BYTES: usize = 1 << 20;
/// Bytes that a listing of partials claims at a time, beyond its first: some thousand partials.
const PARTIALS_STEP_BYTES: u64 = 1 << 20;
/// Listings of one client at a time. A person needs one, a script that looks at several directories
/// a few.
pub(super) const LISTINGS_OF_CLIENT_MAX: u64 = 4;
/// Listings of all clients at a time: 64 MiB at first and half a GiB of names at most, and as many
/// of the runtime's threads that read directories.
pub(super) const LISTINGS_MAX: u64 = 32;
/// A listing ends if its reader does not take a page for this long.
const PAGE_TAKEN_MAX: Duration = Duration::from_secs(30);
/// How long a listing waits for its reader in all ...
const PATIENCE: Duration = Duration::from_secs(60);
/// ... and for each page more: a full page is 64 KiB, so that 128 kbit/s are fast enough.
const PATIENCE_A_PAGE: Duration = Duration::from_secs(4);
/// Time between two signs of life. A reader waits for 30 s, and in builds before this one for 10 s.
const SAY_EVERY: Duration = Duration::from_secs(4);
/// Bytes that a listed name adds to a message beside its own, at most.
const LISTED_NUMBERS_BYTES: usize = 64;
/// Bytes that the texts of a partial add, at most.
const LISTED_TEXTS_BYTES: usize = 3 * PEER_TEXT_BYTES_MAX;

#[cfg(test)]
mod tests;
