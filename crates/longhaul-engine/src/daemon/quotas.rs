//! Owns the counts of what is stored: bytes and files that each client had committed in each root,
//! less what it replaced there.
//!
//! In: claims of sessions before they make a file, and the file once it has its name. Out: whether
//! the bounds of the client and of the root leave room, and the counts as text for a
//! [`StateFile`], from which the next daemon begins. It knows no directory: what others remove is
//! taken out by whoever writes the text. It decides nothing about free space.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use longhaul_net::PublicKey;

use super::bounds::Bounds;
use super::state_file::StateFile;
use super::{ClientConfig, RootConfig};
use crate::workers::blocking;

/// Bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Bytes of files.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
}

/// A client's part of a root.
pub(super) type ClientInRoot = (PublicKey, String);

/// The counts of one daemon. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Quotas {
    book: Arc<Mutex<Book>>,
    file: Option<Arc<dyn StateFile>>,
}

#[derive(Default)]
struct Book {
    /// Names that stand, by client and root.
    kept: BTreeMap<ClientInRoot, Stored>,
    /// The same with what is claimed, by client and by root.
    of_clients: HashMap<PublicKey, Stored>,
    of_roots: HashMap<String, Stored>,
    client_bounds: HashMap<PublicKey, Bounds>,
    root_bounds: HashMap<String, Bounds>,
    /// Whether it differs from the text that was stored last.
    changed: bool,
}

impl Stored {
    /// One file of this length.
    pub(super) fn file(bytes: u64) -> Stored {
        Stored { bytes, files: 1 }
    }

    fn plus(self, more: Stored) -> Stored {
        Stored { bytes: self.bytes.saturating_add(more.bytes), files: self.files.saturating_add(more.files) }
    }

    fn less(self, gone: Stored) -> Stored {
        Stored { bytes: self.bytes.saturating_sub(gone.bytes), files: self.files.saturating_sub(gone.files) }
    }

    fn least(self, other: Stored) -> Stored {
        Stored { bytes: self.bytes.min(other.bytes), files: self.files.min(other.files) }
    }
}

impl Book {
    /// The rest that an account may take.
    fn left(&self, (client, root): &ClientInRoot) -> Stored {
        let left = |bounds: Option<&Bounds>, has: Option<&Stored>| {
            bounds.map_or(UNBOUNDED, |bounds| bounds.stored().less(has.copied().unwrap_or_default()))
        };
        let of_client = left(self.client_bounds.get(client), self.of_clients.get(client));
        of_client.least(left(self.root_bounds.get(root), self.of_roots.get(root)))
    }

    fn add(&mut self, (client, root): &ClientInRoot, more: Stored) {
        for has in [self.of_clients.entry(*client).or_default(), self.of_roots.entry(root.clone()).or_default()] {
            *has = has.plus(more);
        }
    }

    fn take(&mut self, (client, root): &ClientInRoot, gone: Stored) {
        for has in [self.of_clients.get_mut(client), self.of_roots.get_mut(root)].into_iter().flatten() {
            *has = has.less(gone);
        }
    }

    /// The bound that keeps an account from `more`, in words.
    fn refusal(&self, (client, root): &ClientInRoot, more: Stored) -> String {
        let whose = [
            ("this client", self.client_bounds.get(client), self.of_clients.get(client)),
            ("this root", self.root_bounds.get(root), self.of_roots.get(root)),
        ];
        for (who, bounds, has) in whose {
            let (Some(bounds), has) = (bounds, has.copied().unwrap_or_default()) else { continue };
            let (most, would) = (bounds.stored(), has.plus(more));
            if would.bytes > most.bytes {
                let (has, most, more) = (ByteCount(has.bytes), ByteCount(most.bytes), ByteCount(more.bytes));
                return format!("{who} has {has} of the {most} that it may have stored here, and this takes {more}");
            }
            if would.files > most.files {
                return format!("{who} has {} of the {} files that it may have stored here", has.files, most.files);
            }
        }
        "it is more than may be stored here".to_owned()
    }
}

impl Quotas {
    /// The counts of the last daemon.
    ///
    /// # Errors
    /// The fault of the file, or [`FaultCode::Usage`] with the line that is wrong: what nobody can
    /// read bounds nobody.
    pub(super) fn open(file: Option<Arc<dyn StateFile>>) -> Result<Quotas, Fault> {
        let mut book = Book::default();
        let text = file.as_ref().map_or(Ok(None), |file| file.load())?;
        for (account, stored) in parse(text.as_deref().unwrap_or_default())? {
            book.add(&account, stored);
            book.kept.insert(account, stored);
        }
        Ok(Quotas { book: Arc::new(Mutex::new(book)), file })
    }

    /// Bounds clients and roots by these from now on. What they have stays, be it more.
    pub(super) fn bound(&self, clients: &[ClientConfig], roots: &[RootConfig]) {
        let mut book = self.lock();
        book.client_bounds = clients.iter().map(|client| (client.key, client.bounds)).collect();
        book.root_bounds = roots.iter().map(|root| (root.name.clone(), root.bounds)).collect();
    }

    /// The rest that an account may take, with what is claimed counted as taken.
    pub(super) fn left(&self, account: &ClientInRoot) -> Stored {
        self.lock().left(account)
    }

    /// The reserves of a client and of a root that hold now.
    pub(super) fn bounds(&self, (client, root): &ClientInRoot) -> [Bounds; 2] {
        let book = self.lock();
        [book.client_bounds.get(client), book.root_bounds.get(root)].map(|bounds| bounds.copied().unwrap_or_default())
    }

    /// The count of a client in all roots, with its claims.
    pub(super) fn of_client(&self, client: &PublicKey) -> Stored {
        self.lock().of_clients.get(client).copied().unwrap_or_default()
    }

    /// The count of all clients in a root, with their claims.
    pub(super) fn of_root(&self, root: &str) -> Stored {
        self.lock().of_roots.get(root).copied().unwrap_or_default()
    }

    /// Claims room for what is to be made.
    ///
    /// # Errors
    /// The bound that stands in the way, in words.
    pub(super) fn claim(&self, account: &ClientInRoot, more: Stored) -> Result<(), String> {
        let mut book = self.lock();
        let left = book.left(account);
        if more.bytes > left.bytes || more.files > left.files {
            return Err(book.refusal(account, more));
        }
        book.add(account, more);
        Ok(())
    }

    /// Gives a claim back.
    pub(super) fn release(&self, account: &ClientInRoot, claimed: Stored) {
        self.lock().take(account, claimed);
    }

    /// Turns a claim into what stands now, in place of what was `replaced`. Whoever put that there,
    /// its bytes are taken from the account of the client that replaced it.
    pub(super) fn keep(&self, account: &ClientInRoot, claimed: Stored, stands: Stored, replaced: Stored) {
        let mut book = self.lock();
        book.take(account, claimed);
        let before = book.kept.get(account).copied().unwrap_or_default();
        let after = before.plus(stands).less(replaced);
        book.take(account, before);
        book.add(account, after);
        book.kept.insert(account.clone(), after);
        book.changed = true;
    }

    /// Stores the counts, if they have changed and there is a file for them.
    ///
    /// # Errors
    /// The fault of the file. They are stored again at the next call.
    pub(super) fn store(&self) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = {
            let mut book = self.lock();
            if !std::mem::take(&mut book.changed) {
                return Ok(());
            }
            written(&book.kept)
        };
        file.store(&text).inspect_err(|_| self.lock().changed = true)
    }

    /// No code that holds the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores the counts once a second, for as long as they change, until it is aborted.
pub(super) async fn keep(quotas: Quotas) {
    loop {
        tokio::time::sleep(STORE_EVERY).await;
        store(&quotas).await;
    }
}

/// Stores the counts. A failure is told; the next call tries again.
pub(super) async fn store(quotas: &Quotas) {
    let storing = quotas.clone();
    if let Err(fault) = blocking(move || storing.store()).await {
        tracing::error!(target: "longhaul::serve", %fault, "what clients have stored cannot be written down");
    }
}

/// The counts as text.
fn written(kept: &BTreeMap<ClientInRoot, Stored>) -> String {
    let lines = kept
        .iter()
        .filter(|(_, stored)| **stored != Stored::default())
        .map(|((client, root), Stored { bytes, files })| format!("{client} {bytes} {files} {root}\n"));
    std::iter::once(HEAD.to_owned()).chain(lines).collect()
}

/// Reads such a text.
fn parse(text: &str) -> Result<Vec<(ClientInRoot, Stored)>, Fault> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let wrong = || {
                let why = format_args!("line {} of what is stored here is not KEY BYTES FILES ROOT", number + 1);
                Fault::new(FaultCode::Usage, Blame::Local, why)
            };
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().ok_or_else(wrong);
            let client = word()?.parse().map_err(|_| wrong())?;
            let bytes = word()?.parse().map_err(|_| wrong())?;
            let files = word()?.parse().map_err(|_| wrong())?;
            let root = word().ok().filter(|root| !root.is_empty()).ok_or_else(wrong)?;
            Ok(((client, root.to_owned()), Stored { bytes, files }))
        })
        .collect()
}

/// How much of the counts a crash may cost.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// No bound at all.
const UNBOUNDED: Stored = Stored { bytes: u64::MAX, files: u64::MAX };
/// The first line of the text.
const HEAD: &str = "# What clients have stored: KEY BYTES FILES ROOT. Change it only while the daemon does not run.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Page(Mutex<Option<String>>);

    impl StateFile for Page {
        fn load(&self) -> Result<Option<String>, Fault> {
            Ok(self.0.lock().expect("whole").clone())
        }

        fn store(&self, text: &str) -> Result<(), Fault> {
            *self.0.lock().expect("whole") = Some(text.to_owned());
            Ok(())
        }
    }

    fn account(client: u8, root: &str) -> ClientInRoot {
        (PublicKey::from_bytes([client; 32]), root.to_owned())
    }

    fn bounded(quotas: &Quotas, client: (u8, Stored), root: (&str, Stored)) {
        let bounds =
            |most: Stored| Bounds { stored: Some(ByteCount(most.bytes)), files: Some(most.files), ..Bounds::default() };
        let mut book = quotas.lock();
        book.client_bounds.insert(account(client.0, "").0, bounds(client.1));
        book.root_bounds.insert(root.0.to_owned(), bounds(root.1));
    }

    fn of(bytes: u64, files: u64) -> Stored {
        Stored { bytes, files }
    }

    #[test]
    fn a_claim_must_fit_the_bounds_of_its_client_in_all_roots_and_of_its_root() {
        let quotas = Quotas::default();
        bounded(&quotas, (1, of(100, 3)), ("small", of(60, 9)));
        let (here, there) = (account(1, "small"), account(1, "large"));
        let said = quotas.claim(&here, Stored::file(61)).expect_err("the root is smaller");
        assert!(said.contains("this root has 0 B of the 60 B"), "{said}");
        assert_eq!(quotas.claim(&here, Stored::file(60)), Ok(()));
        let said = quotas.claim(&there, Stored::file(41)).expect_err("the client has 60");
        assert!(said.contains("this client has 60 B of the 100 B"), "{said}");
        assert_eq!(quotas.claim(&there, Stored::file(0)), Ok(()));
        assert_eq!(quotas.claim(&there, Stored::file(0)), Ok(()));
        let said = quotas.claim(&there, Stored::file(0)).expect_err("a fourth file");
        assert!(said.contains("3 of the 3 files"), "{said}");
        assert_eq!(quotas.claim(&account(2, "large"), Stored::file(u64::MAX)), Ok(()), "nobody bounds that one");
        quotas.release(&here, Stored::file(60));
        assert_eq!(quotas.left(&here), of(60, 1));
    }

    #[test]
    fn what_is_replaced_is_taken_from_the_count_and_never_below_nothing() {
        let quotas = Quotas::default();
        bounded(&quotas, (1, of(100, 10)), ("r", of(1000, 10)));
        let mine = account(1, "r");
        for (len, replaced, stands) in [(40, of(0, 0), of(40, 1)), (50, Stored::file(40), of(50, 1))] {
            quotas.claim(&mine, Stored::file(len)).expect("room");
            quotas.keep(&mine, Stored::file(len), Stored::file(len), replaced);
            assert_eq!(quotas.of_client(&mine.0), stands);
            assert_eq!(quotas.of_root("r"), stands);
        }
        // A file of somebody else, which is longer than all that this client has.
        quotas.claim(&mine, Stored::file(1)).expect("room");
        quotas.keep(&mine, Stored::file(1), Stored::file(1), Stored::file(900));
        assert_eq!(quotas.of_client(&mine.0), of(0, 1));
    }

    #[test]
    fn the_counts_outlive_the_daemon_and_claims_do_not() {
        let page: Arc<dyn StateFile> = Arc::new(Page::default());
        let quotas = Quotas::open(Some(page.clone())).expect("a new one");
        let (mine, yours) = (account(1, "a b"), account(2, "r"));
        quotas.claim(&mine, Stored::file(5)).expect("room");
        quotas.keep(&mine, Stored::file(5), Stored::file(5), Stored::default());
        quotas.claim(&yours, Stored::file(7)).expect("room");
        quotas.store().expect("stored");
        let again = Quotas::open(Some(page.clone())).expect("what was stored");
        assert_eq!((again.of_client(&mine.0), again.of_root("a b")), (of(5, 1), of(5, 1)));
        assert_eq!(again.of_client(&yours.0), Stored::default());
        for text in ["lhk1:x 1 1 r", &format!("{} 1 r", mine.0), &format!("{} -1 1 r", mine.0)] {
            page.store(text).expect("stored");
            let fault = Quotas::open(Some(page.clone())).err().expect("no such line");
            assert!(fault.code == FaultCode::Usage && fault.message.contains("line 1"), "{text}: {fault}");
        }
    }
}
