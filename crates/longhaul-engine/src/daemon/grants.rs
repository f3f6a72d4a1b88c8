//! Honours grants: a key that is no client's, or any other, may fetch, or write, what a client
//! lends it.
//!
//! In: a grant that was shown, and the key that its bearer proved. Out: [`LentRights`] with the
//! client whose rights are lent, cut down to what the grant names; or a refusal that says why. Used
//! up ones go to a [`StateFile`]. It knows no connection and opens nothing: what is lent goes
//! through the same admission as a client's own request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use longhaul_core::{Blame, Fault, FaultCode, Hash32, PathList, Rights, Role, ShardClaim, hint};
use longhaul_net::PublicKey;
use longhaul_proto::wire::grant::{
    GRANT_SECONDS_MAX, GRANT_SKEW_SECONDS, Grant, GrantFacts, GrantFlaw, GrantRight, SignedGrant, list_digest,
};
use longhaul_proto::wire::message::{Far, Follows, Placing, Request};

use super::access::need;
use super::request::Rest;
use super::state_file::StateFile;
use super::{ClientConfig, Daemon};
use crate::session::allowed::Allowed;
use crate::session::handshake::Shown;
use crate::third_party::hex;
use crate::workers::blocking;

/// The grants that a daemon has honoured. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Grants {
    book: Arc<Mutex<GrantBook>>,
    /// Where those that are used up outlive the daemon.
    file: Option<Arc<dyn StateFile>>,
    /// Held by the one that stores them.
    storing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct GrantBook {
    /// Conversations by key of their bearer: its lanes are let in too.
    bearers: HashMap<PublicKey, usize>,
    /// Grants whose run is complete, by their issuer, until they expire.
    used_up: UsedUp,
    /// Seconds since 1970 from which on it is known which are used up.
    since: u64,
}

/// The ids of grants whose run is complete, with the times of their end, by issuer.
type UsedUp = BTreeMap<PublicKey, BTreeMap<[u8; 16], u64>>;

/// Rights that are lent to the other side of a conversation.
pub(super) struct LentRights {
    grant: Grant,
    /// The client whose rights they are: with no others than the grant names.
    pub(super) client: ClientConfig,
    bearer: PublicKey,
    grants: Grants,
}

impl LentRights {
    /// Refuses a request for anything else than the grant names. Orders are not lent, and no claim
    /// but the one that its issuer has signed, which its bearer does not show.
    pub(super) fn need_covered(&self, (request, shown): (&Request, &Shown)) -> Result<(), Fault> {
        let other = Reason::OtherRequest(self.grant.right);
        let is_more = shown.claim.is_some() || shown.order.is_some() || shown.lends;
        let Request::Transfer(transfer) = request else { return Err(refused(other)) };
        let is_covered = match (&transfer.far, transfer.role, self.grant.right) {
            _ if is_more => return Err(refused(other)),
            (Far::Sources { sources, follows, .. }, Role::Receiver, GrantRight::Read) => {
                *follows != Follows::Sources && self.grant.covers(sources)
            }
            // The names are compared once they have come: see `need_list`.
            (Far::Sources { sources, follows, .. }, Role::Receiver, GrantRight::ReadListed(_)) => {
                *follows == Follows::Names && self.grant.covers(sources)
            }
            (Far::Destination { root, path, .. }, Role::Sender, GrantRight::Write) => {
                self.grant.covers_destination(root, path)
            }
            // As above. These are the names of a shard, which go beneath the destination. Of what
            // stands its bearer hears no more than its rule takes.
            (Far::Destination { root, path, placing, if_exists }, Role::Sender, GrantRight::WriteListed(terms)) => {
                let hears_more = transfer.dry_run || transfer.digests;
                if shown.dataset.is_some() || hears_more || *if_exists != terms.if_exists {
                    return Err(refused(other));
                }
                *placing == Placing::Beneath && self.grant.covers_destination(root, path)
            }
            _ => return Err(refused(other)),
        };
        match (is_covered, transfer.run == self.grant.id) {
            (true, true) => Ok(()),
            (false, _) => Err(refused(Reason::OtherPath)),
            (true, false) => Err(refused(Reason::OtherRun)),
        }
    }

    /// Refuses roots that its client knows and may not use so, in the words in which the client
    /// itself would hear it: of what is lent nothing is left there.
    pub(super) fn need_usable(&self, daemon: &Daemon) -> Result<(), Fault> {
        let issuer = daemon.client(&self.client.key)?;
        self.grant.sources.iter().try_for_each(|place| {
            let (root, rights) = daemon.root(issuer, &place.root)?;
            match self.grant.right {
                GrantRight::Read | GrantRight::ReadListed(_) => need(rights.read, "read", root),
                GrantRight::Write | GrantRight::WriteListed(_) => need(rights.create, "create", root)
                    .and_then(|()| need(rights.read || !self.grant.compares(), "read", root)),
            }
        })
    }

    /// The digest of the list of names for which alone it is good. `None`: it is bound to none.
    pub(super) fn list(&self) -> Option<Hash32> {
        self.grant.list()
    }

    /// The claim by which alone its bearer publishes, as its issuer has signed it. `None`: none is
    /// needed.
    pub(super) fn claim(&self) -> Option<ShardClaim> {
        self.grant.claim()
    }

    /// Refuses it again once the session has its place, for which it may have waited until an
    /// earlier session of the same run was complete.
    pub(super) fn need_unused(&self) -> Result<(), Fault> {
        self.need_unused_at(seconds_since_1970()).map_err(refused)
    }

    fn need_unused_at(&self, now: u64) -> Result<(), Reason> {
        self.grants.need_unused(&self.grant, now)
    }

    /// The time that a session by it may last. `None`: any. A bearer that keeps a session open
    /// publishes nothing by the claim of a shard later than 61 s after the end of its grant, and
    /// what it is at then: a mover that is still at that shard signs another. It is taken from this
    /// host's clock once, as the session begins: a clock that is set meanwhile changes nothing.
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.time_left_at(seconds_since_1970())
    }

    fn time_left_at(&self, now: u64) -> Option<Duration> {
        let over = self.grant.not_after.saturating_add(GRANT_SKEW_SECONDS + 1);
        let is_of_shard = matches!(self.grant.right, GrantRight::WriteListed(_));
        is_of_shard.then(|| Duration::from_secs(over.saturating_sub(now)))
    }

    /// The grant and its bearer, as the log says them.
    pub(super) fn described(&self) -> String {
        format!("by grant {} to {}", hex(&self.grant.id), self.bearer)
    }

    /// Records that its run is complete: it is good for nothing any more, be this daemon started
    /// anew.
    pub(super) async fn used_up(&self) {
        // As if it had been good for as long as any may be: see `GrantBook::forget`.
        let until = self.grant.not_before.saturating_add(GRANT_SECONDS_MAX + GRANT_SKEW_SECONDS);
        self.grants.lock().used_up.entry(self.client.key).or_default().insert(self.grant.id, until);
        let grants = self.grants.clone();
        if let Err(fault) = blocking(move || grants.store()).await {
            tracing::error!(target: "longhaul::serve", %fault, "that a grant is used up cannot be written down");
        }
    }
}

impl Drop for LentRights {
    fn drop(&mut self) {
        let mut book = self.grants.lock();
        let left = book.bearers.get_mut(&self.bearer).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == 0 {
            book.bearers.remove(&self.bearer);
        }
    }
}

/// The reason why a grant is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It is not sound in itself.
    Flaw(GrantFlaw),
    /// Its issuer is no client, or is one no more.
    Issuer,
    /// Its issuer is served as a user of this host, or this is no daemon of several clients.
    Kind,
    /// Its run is complete.
    UsedUp,
    /// It is older than what this daemon remembers of grants.
    Forgotten,
    /// Its issuer has too many that are remembered.
    TooMany,
    /// Something else was asked for than a transfer by its right.
    OtherRequest(GrantRight),
    /// A place was asked for that it does not name.
    OtherPath,
    /// It was shown for another run than its own.
    OtherRun,
    /// It was shown with other names than those of its list.
    OtherList,
}

impl Reason {
    fn words(self) -> String {
        match self {
            Reason::Flaw(flaw) => flaw.to_string(),
            Reason::Issuer => "its issuer is no client of this daemon".to_owned(),
            Reason::Kind => "keys that are served as a user of the daemon's host cannot lend their rights".to_owned(),
            Reason::UsedUp => "it was used: its copy is complete".to_owned(),
            Reason::Forgotten => {
                "it is older than this daemon's memory of the grants that were used: run the copy again, which goes on \
                 where it ended"
                    .to_owned()
            }
            Reason::TooMany => "its issuer has had too many of them carried out today".to_owned(),
            Reason::OtherRequest(GrantRight::Read | GrantRight::ReadListed(_)) => "it is for fetching alone".to_owned(),
            Reason::OtherRequest(GrantRight::Write) => "it is for sending alone".to_owned(),
            Reason::OtherRequest(GrantRight::WriteListed(_)) => {
                "it is for sending the names of a list, by its own claim and its own rule for names that stand, and \
                 for nothing else"
                    .to_owned()
            }
            Reason::OtherPath => "it does not name what is asked for".to_owned(),
            Reason::OtherRun => "it is for another run".to_owned(),
            Reason::OtherList => "it is for another list of names".to_owned(),
        }
    }
}

/// Refuses names that are not those of the list with this digest. It is asked before anything of
/// them is opened.
pub(super) fn need_list(names: Option<&PathList>, digest: Hash32) -> Result<(), Fault> {
    let is_that = names.is_some_and(|names| list_digest(names) == digest);
    if is_that { Ok(()) } else { Err(refused(Reason::OtherList)) }
}

/// The entries that may come to a destination by a grant for the list with this digest, in a
/// transfer of whose initiator this is the role. Only names of that list do, where the initiator
/// sends, and nothing beneath them: they are those of files and links. Where it receives they stay
/// in `rest`, as what is wanted.
///
/// # Errors
/// See [`need_list`].
pub(super) fn allowed(rest: &mut Rest, (role, list): (Role, Option<Hash32>)) -> Result<Allowed, Fault> {
    let Some(digest) = list else { return Ok(Allowed::default()) };
    need_list(rest.names.as_ref(), digest)?;
    let names = rest.names.take_if(|_| role == Role::Sender);
    Ok(names.map_or_else(Allowed::default, |names| Allowed::exactly(Arc::new(names))))
}

fn refused(reason: Reason) -> Fault {
    let code = match reason {
        Reason::Kind => FaultCode::Unsupported,
        Reason::TooMany => FaultCode::Busy,
        _ => FaultCode::Denied,
    };
    let why = format_args!("the grant is refused: {}", reason.words());
    Fault::new(code, Blame::Local, why).hint(hint::Daemon::SignAnotherGrant)
}

impl Grants {
    /// The grants that are used up, as the last daemon left them in `file`. Without one, or where
    /// there is none yet, it is not known what became of grants before now.
    ///
    /// # Errors
    /// The fault of the file, or [`FaultCode::Usage`] with the line that is wrong.
    pub(super) fn open(file: Option<Arc<dyn StateFile>>) -> Result<Grants, Fault> {
        Grants::open_at(file, seconds_since_1970())
    }

    fn open_at(file: Option<Arc<dyn StateFile>>, now: u64) -> Result<Grants, Fault> {
        let text = file.as_ref().map_or(Ok(None), |file| file.load())?;
        let book = match &text {
            None => GrantBook { since: now, ..GrantBook::default() },
            Some(text) => parse(text, now)?,
        };
        let grants = Grants { book: Arc::new(Mutex::new(book)), file, storing: Arc::default() };
        if text.is_none() {
            grants.store()?;
        }
        Ok(grants)
    }

    /// Stores those that are used up, if there is a file for them.
    fn store(&self) -> Result<(), Fault> {
        let Some(file) = &self.file else { return Ok(()) };
        // An older text must not come after a newer one.
        let _alone = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
        let text = written(&self.lock());
        file.store(&text)
    }

    /// Whether a conversation by a grant goes on with the holder of this key.
    pub(super) fn has_bearer(&self, key: &PublicKey) -> bool {
        self.lock().bearers.contains_key(key)
    }

    /// Refuses a grant whose run is complete, or of which it is not known, and one of an issuer
    /// that has too many such.
    fn need_unused(&self, grant: &Grant, now: u64) -> Result<(), Reason> {
        let mut book = self.lock();
        let issuer = PublicKey::from_bytes(grant.issuer);
        book.forget(now);
        if let Some(used) = book.used_up.get(&issuer)
            && used.contains_key(&grant.id)
        {
            return Err(Reason::UsedUp);
        }
        if grant.not_before < book.since {
            return Err(Reason::Forgotten);
        }
        let used = book.used_up.get(&issuer).map_or(0, BTreeMap::len);
        // One that could not be remembered could be used again.
        if used >= USED_UP_OF_ISSUER_MAX { Err(Reason::TooMany) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, GrantBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GrantBook {
    /// Forgets what has expired by the clock. Should the clock go back, a grant that was forgotten
    /// is one of a time of which nothing is known; and no such time begins in the future.
    fn forget(&mut self, now: u64) {
        // No grant begins later than that.
        let mut since = self.since.min(now.saturating_add(GRANT_SKEW_SECONDS + 1));
        for used in self.used_up.values_mut() {
            used.retain(|_, until| {
                let is_kept = *until >= now;
                since = if is_kept { since } else { since.max(until.saturating_sub(GRANT_SECONDS_MAX)) };
                is_kept
            });
        }
        self.used_up.retain(|_, used| !used.is_empty());
        self.since = since;
    }
}

impl Daemon {
    /// Honours a grant that the holder of `bearer` shows, or says why not.
    ///
    /// # Errors
    /// A [`Fault`] whose message names the reason.
    pub(super) fn honour(&self, shown: &SignedGrant, bearer: PublicKey) -> Result<LentRights, Fault> {
        self.honour_at(shown, bearer, seconds_since_1970()).map_err(refused)
    }

    /// Whether a stranger's grant could be honoured at all: there is a client that may lend.
    pub(super) fn may_honour(&self) -> bool {
        let lends = |client: &ClientConfig| client.user.is_none();
        self.live.abroad.is_some() && self.live.link.is_none() && self.config.clients.iter().any(lends)
    }

    fn honour_at(&self, shown: &SignedGrant, bearer: PublicKey, now: u64) -> Result<LentRights, Reason> {
        let verifies = |issuer: &Hash32, bytes: &[u8], signature: &[u8]| {
            PublicKey::from_bytes(*issuer).has_signed(bytes, signature)
        };
        self.honour_by(shown, (bearer, now), verifies)
    }

    /// The same, where `verifies` says whether a key has made a signature of bytes.
    fn honour_by(
        &self,
        shown: &SignedGrant,
        (bearer, now): (PublicKey, u64),
        verifies: impl FnOnce(&Hash32, &[u8], &[u8]) -> bool,
    ) -> Result<LentRights, Reason> {
        let Some(abroad) = self.live.abroad.as_ref().filter(|_| self.live.link.is_none()) else {
            return Err(Reason::Kind);
        };
        let (audience, holder) = (*abroad.identity.public().as_bytes(), *bearer.as_bytes());
        let grant = shown.open(&GrantFacts { audience, holder, now }, verifies).map_err(Reason::Flaw)?;
        let issuer = PublicKey::from_bytes(grant.issuer);
        let client = self.client(&issuer).map_err(|_| Reason::Issuer)?;
        if client.user.is_some() {
            return Err(Reason::Kind);
        }
        self.live.grants.need_unused(&grant, now)?;
        let lends = |(root, rights): (&String, &Rights)| {
            let is_named = grant.sources.iter().any(|source| *source.root == **root);
            let rights = match grant.right {
                GrantRight::Read | GrantRight::ReadListed(_) => Rights { read: rights.read, ..Rights::default() },
                GrantRight::Write | GrantRight::WriteListed(_) => {
                    let read = rights.read && grant.compares();
                    Rights { read, create: rights.create, modify: rights.modify, ..Rights::default() }
                }
            };
            is_named.then(|| (root.clone(), rights))
        };
        let roots = client.roots.iter().filter_map(lends).collect();
        let client = ClientConfig { roots, bench: false, ..client.clone() };
        *self.live.grants.lock().bearers.entry(bearer).or_default() += 1;
        Ok(LentRights { grant, client, bearer, grants: self.live.grants.clone() })
    }
}

/// The grants that are used up as text.
fn written(book: &GrantBook) -> String {
    let line = |issuer: &PublicKey, (id, until): (&[u8; 16], &u64)| format!("{issuer} {} {until}\n", hex(id));
    let lines = book.used_up.iter().flat_map(|(issuer, used)| used.iter().map(move |used| line(issuer, used)));
    [HEAD.to_owned(), format!("since {}\n", book.since)].into_iter().chain(lines).collect()
}

/// Reads such a text, but for grants that have ended.
fn parse(text: &str, now: u64) -> Result<GrantBook, Fault> {
    let (mut book, mut since) = (GrantBook::default(), None);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || {
            let why = format_args!("line {} of the grants that are used up is not KEY ID SECONDS", number + 1);
            Fault::new(FaultCode::Usage, Blame::Local, why)
        };
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["since", seconds] => since = Some(seconds.parse().map_err(|_| wrong())?),
            [issuer, id, until] => {
                let issuer: PublicKey = issuer.parse().map_err(|_| wrong())?;
                let id = u128::from_str_radix(id, 16).map_err(|_| wrong())?.to_be_bytes();
                let until: u64 = until.parse().map_err(|_| wrong())?;
                book.used_up.entry(issuer).or_default().insert(id, until);
            }
            _ => return Err(wrong()),
        }
    }
    // Without that line, others may have been lost.
    book.since = since.unwrap_or(now);
    book.forget(now);
    Ok(book)
}

/// The time of this host's clock.
pub(super) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The first line of the text.
const HEAD: &str = "# Grants that are used up: KEY ID SECONDS, and since when they are known.\n";
/// Grants of one issuer whose runs are complete and that have not expired, at most: one for each
/// twenty seconds of a day, at some hundred bytes.
const USED_UP_OF_ISSUER_MAX: usize = 4096;

#[cfg(test)]
mod tests;
