//! The places of a session that came through ssh: paths of the account that ssh logged in to, or
//! paths beneath the one root that it is confined to.
//!
//! In: paths as the client's user wrote them, which the requests of the session name by number.
//! Out: the destination, the sources or the tree at such a path. A path of the account means what
//! it means to any command of its user: links in it are followed. A path beneath a root is walked
//! like that of any client. It knows no connections.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{AccountMap, Blame, Escaped, Fault, FaultCode, PathList, RelPath, Rights, Role, hint};
use longhaul_disk::{DirectMode, ErrorKind, Marks, Shape, SumsCatalogue, TargetDirs, TargetSet, TreePolicy, Writing};
use longhaul_net::Protection;
use longhaul_proto::receiver::Policy;
use longhaul_proto::wire::message::{Far, FarSource, Placing, Transfer};

use super::side::{Side, contradiction};
use super::{Bounds, RootConfig};
use crate::api::{LocalDest, LocalSource};
use crate::journals::{Principal, RootJournals, run_of};
use crate::place::dataset::{self, DatasetWish};
use crate::place::{self, EARLIER_SESSION_ENDS, LocalSite, Opening};
use crate::session::course::ScanWish;
use crate::session::handshake::{self, Shown};
use crate::session::opened::Destination;
use crate::workers::blocking;

/// A tree, its journals, and a path beneath it.
pub(super) type Spot = (Arc<TargetSet>, Arc<RootJournals>, RelPath);

/// See the module.
pub(super) struct PipeAccount {
    /// The root as which each of the places is known.
    root: RootConfig,
    ground: AccountGround,
    direct: DirectMode,
    /// Unfinished transfers that are kept beneath a root.
    unfinished: usize,
    /// The place of checksums that no file system keeps. `None`: there is none.
    catalogue: Option<SumsCatalogue>,
}

enum AccountGround {
    /// Everything that the user may do.
    Whole { places: Vec<PathBuf> },
    /// One root. A path that leads out of it is refused when it is asked for.
    Root { set: Arc<TargetSet>, store: Arc<RootJournals>, places: Vec<Result<RelPath, Fault>> },
}

impl PipeAccount {
    /// The places `written` by the client's user, of the whole account, or beneath `confined`.
    ///
    /// # Errors
    /// A [`Fault`] of a root that cannot be opened.
    pub(super) fn open(
        confined: Option<RootConfig>,
        written: Vec<Vec<u8>>,
        (direct, unfinished): (DirectMode, usize),
        catalogue: Option<SumsCatalogue>,
    ) -> Result<PipeAccount, Fault> {
        let Some(root) = confined else {
            let places = written.iter().map(|path| of_home(path)).collect();
            let (root, ground) = (whole(), AccountGround::Whole { places });
            return Ok(PipeAccount { root, ground, direct, unfinished, catalogue });
        };
        let places = written.iter().map(|path| beneath(path)).collect();
        let writing = if root.allow.may_change() { Writing::Wanted } else { Writing::Never };
        let set = TargetSet::open(&root.targets, Marks::Made, writing)?;
        set.log_missing();
        let store = RootJournals::keeping(set.shelf(), unfinished);
        store.wait_for_others(EARLIER_SESSION_ENDS);
        let ground = AccountGround::Root { set, store, places };
        Ok(PipeAccount { root, ground, direct, unfinished, catalogue })
    }

    /// The names of the places, each with its rights.
    pub(super) fn rights(&self) -> impl Iterator<Item = (String, Rights)> {
        let count = match &self.ground {
            AccountGround::Whole { places } => places.len(),
            AccountGround::Root { places, .. } => places.len(),
        };
        (0..count).map(|number| (number.to_string(), self.root.allow))
    }

    /// The root as which all places are known.
    pub(super) fn root(&self) -> &RootConfig {
        &self.root
    }

    /// The tree in which `path` beneath a place lies: the place itself, or the directory above it
    /// if it is none.
    pub(super) async fn spot(&self, name: &str, path: RelPath) -> Result<Spot, Fault> {
        match &self.ground {
            AccountGround::Root { set, store, places } => {
                let path = numbered(places, name)?.clone()?.concat(&path).map_err(Fault::protocol)?;
                Ok((set.clone(), store.clone(), path))
            }
            AccountGround::Whole { places } => {
                let (place, unfinished) = (numbered(places, name)?.clone(), self.unfinished);
                blocking(move || spot_at(&place, &path, unfinished)).await
            }
        }
    }

    /// Opens this side of a transfer that is allowed.
    pub(super) async fn side(
        &self,
        transfer: &Transfer,
        names: Option<PathList>,
        shown: Shown,
    ) -> Result<(Side, String), Fault> {
        match (&transfer.far, transfer.role) {
            (Far::Destination { root, path, placing, if_exists }, Role::Sender) => {
                let may_modify = self.root.allow.modify;
                let policy = Policy { if_exists: *if_exists, may_modify };
                let (direct, dry_run, placing) = (self.direct, transfer.dry_run, *placing);
                let (claim, catalogue) = (shown.claim, self.catalogue.clone());
                let opening = Opening { direct, dry_run, placing, may_modify, claim, catalogue };
                let dataset = shown.dataset.map(|name| DatasetWish::new(name, *if_exists).in_part(shown.part));
                let run = run_of(transfer.run);
                let destination = match &self.ground {
                    AccountGround::Whole { places } => {
                        let path = joined(numbered(places, root)?, path);
                        let slash = placing == Placing::Beneath;
                        let dest = LocalDest { slash, ..LocalDest::directory(path) };
                        blocking(move || LocalSite::new(&dest, opening)?.for_dataset(dataset)?.of_run(run).open())
                            .await?
                    }
                    AccountGround::Root { .. } => {
                        let within = self.root.policy;
                        let (set, store, path) = self.spot(root, path.clone()).await?;
                        let who = Principal::local();
                        let (ends, wished) = ((set, store, within), (opening, dataset));
                        let open = move || dataset::served((&ends.0, &ends.1, ends.2), (&who, run), &path, wished);
                        blocking(open).await?
                    }
                };
                let names_standing = self.root.allow.read && may_modify;
                let destination = Destination { names_standing, ..destination };
                let what = format!("push to {}", destination.base);
                Ok((Side::Receive(destination, policy), what))
            }
            (Far::Sources { sources, rules, .. }, Role::Receiver) => {
                let filter = Filter::new(rules.clone()).map_err(|e| Fault::new(FaultCode::Usage, Blame::Peer, e))?;
                let (names, accounts) = (names.map(Arc::new), AccountMap::default());
                let wanted = ScanWish { filter, names, preserve: transfer.preserve, accounts };
                self.sources(sources, wanted).await
            }
            _ => Err(contradiction()),
        }
    }

    async fn sources(&self, sources: &[FarSource], wanted: ScanWish) -> Result<(Side, String), Fault> {
        let direct = self.direct;
        let what = format!("pull of {} sources", sources.len());
        let (source, shape, wanted) = match &self.ground {
            AccountGround::Whole { places } => {
                let local = |source: &FarSource| {
                    let path = joined(numbered(places, &source.root)?, &source.path);
                    Ok(LocalSource { path, contents: source.contents, set: None })
                };
                let sources = sources.iter().map(local).collect::<Result<Vec<_>, Fault>>()?;
                blocking(move || {
                    let (source, shape) = place::local_sources(&sources, direct, &wanted)?;
                    Ok((source, shape, wanted))
                })
                .await?
            }
            AccountGround::Root { set, places, .. } => {
                let served = |source: &FarSource| {
                    let place = numbered(places, &source.root)?.clone()?;
                    let path = place.concat(&source.path).map_err(Fault::protocol)?;
                    Ok((source.root.clone(), set.clone(), path, source.contents))
                };
                let sources = sources.iter().map(served).collect::<Result<Vec<_>, Fault>>()?;
                blocking(move || {
                    let (source, shape) = place::served_sources(sources, direct, &wanted)?;
                    Ok((source, shape, wanted))
                })
                .await?
            }
        };
        if let Shape::Missing(missing) = &shape {
            // This fails before the client makes anything of its destination.
            return Err(missing.first().map_or_else(contradiction, |(_, error)| error.fault()));
        }
        Ok((Side::Send(source, wanted, handshake::source_caps(&shape)), what))
    }
}

/// The root of an account that is not confined: what its user may do is the system's matter.
fn whole() -> RootConfig {
    // Names are moved away at daemons alone.
    let allow = Rights { read: true, create: true, modify: true, delete: false };
    let protect = vec![Protection::Private, Protection::Safe];
    let (name, targets) = ("this account".to_owned(), TargetDirs::one("."));
    RootConfig {
        name,
        targets,
        allow,
        protect,
        rate: None,
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        policy: TreePolicy::default(),
    }
}

/// A path as a shell of the user would take it; the process was started in the user's home.
fn of_home(path: &[u8]) -> PathBuf {
    let path = match path {
        b"" | b"~" => b".",
        [b'~', b'/', rest @ ..] if rest.iter().any(|byte| *byte != b'/') => {
            let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
            &rest[slashes..]
        }
        [b'~', b'/', ..] => b".",
        path => path,
    };
    PathBuf::from(OsStr::from_bytes(path))
}

/// A path beneath the root that a session is confined to. One that begins with a slash begins at
/// the root.
fn beneath(path: &[u8]) -> Result<RelPath, Fault> {
    let inside = match path {
        b"~" => b"",
        [b'~', b'/', rest @ ..] => rest,
        path => path,
    };
    let names = inside.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.into_iter().try_fold(RelPath::root(), |path, name| path.join(name)).map_err(|e| {
        let why = format_args!("a path beneath the directory that this key is confined to: {e}");
        Fault::new(FaultCode::Denied, Blame::Peer, why).about(Escaped(path)).hint(hint::Daemon::StayBeneath)
    })
}

fn numbered<'p, P>(places: &'p [P], name: &str) -> Result<&'p P, Fault> {
    name.parse::<usize>().ok().and_then(|number| places.get(number)).ok_or_else(contradiction)
}

fn joined(place: &std::path::Path, path: &RelPath) -> PathBuf {
    if path.is_root() { place.to_owned() } else { place.join(OsStr::from_bytes(path.as_bytes())) }
}

/// The tree at `place`, or the one above it if `place` is no directory.
fn spot_at(place: &std::path::Path, path: &RelPath, unfinished: usize) -> Result<Spot, Fault> {
    let open = |dir: &std::path::Path| TargetSet::open(&TargetDirs::one(dir), Marks::Imagined, Writing::Never);
    let (set, above) = match (open(place), place.file_name()) {
        (Ok(set), _) => (set, RelPath::root()),
        (Err(error), Some(name)) if path.is_root() && error.kind() != ErrorKind::NotFound => {
            let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
            let set = open(parent.unwrap_or(std::path::Path::new("."))).map_err(|_| error.fault())?;
            (set, RelPath::new(name.as_bytes()).map_err(|_| error.fault())?)
        }
        (Err(error), _) => return Err(error.fault()),
    };
    let store = RootJournals::keeping(set.shelf(), unfinished);
    Ok((set, store, above.concat(path).map_err(Fault::protocol)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_an_account_mean_what_they_mean_to_its_shell() {
        for (written, path) in
            [("", "."), ("~", "."), ("~/", "."), ("~/a/b", "a/b"), ("~//a", "a"), ("/x", "/x"), ("a/../b", "a/../b")]
        {
            assert_eq!(of_home(written.as_bytes()), PathBuf::from(path), "{written}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_directory_that_a_key_is_confined_to() {
        for (written, path) in [("", ""), ("/", ""), ("/a/./b/", "a/b"), ("~/a", "a"), ("a/~/b", "a/~/b")] {
            assert_eq!(beneath(written.as_bytes()).expect("a path").as_bytes(), path.as_bytes(), "{written}");
        }
        for written in ["..", "a/../..", "/../x", "a/.longhaul/b"] {
            assert!(beneath(written.as_bytes()).is_err_and(|fault| fault.code == FaultCode::Denied), "{written}");
        }
    }
}
