//! Opens the sources of a transfer on this host, and resolves its destination.
//!
//! In: paths as the user or a peer gave them. Out: trees for a session, and the mapping of names.
//! The rules are rsync's; `tests/mapping.rs` shows them. It knows no sessions and no connections.

pub(crate) mod dataset;
pub(crate) mod staged;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, Escaped, Fault, FaultCode, Layout, RelPath, SessionTag, ShardClaim, Word, hint};
use longhaul_disk::{
    DirectMode, FsSource, FsTarget, Marks, SameName, Shape, SourceSpec, SourceTree, SpreadTarget, Standing,
    SumsCatalogue, SyncMethod, TargetDirs, TargetSet, TargetTree, Tree, TreePolicy, VoidTarget, Writing,
};
use longhaul_proto::receiver::Landing;
use longhaul_proto::wire::message::Placing;

use crate::api::{ExpectedFiles, LocalDest, LocalSource, Settings};
use crate::journals::presence::Presence;
use crate::journals::{Doubts, Principal, RootJournals};
use crate::random::nonce;
use crate::session::allowed::Allowed;
use crate::session::course::ScanWish;
use crate::session::opened::Destination;
use dataset::DatasetWish;

/// The options for opening a destination.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// Direct I/O.
    pub(crate) direct: DirectMode,
    /// Whether to make nothing.
    pub(crate) dry_run: bool,
    /// How sources are placed.
    pub(crate) placing: Placing,
    /// Whether standing files may be changed.
    pub(crate) may_modify: bool,
    /// The claim without which nothing is published there. `None`: none is needed.
    pub(crate) claim: Option<ShardClaim>,
    /// The place of checksums that no file system keeps. `None`: there is none.
    pub(crate) catalogue: Option<SumsCatalogue>,
}

/// How sources are placed at a destination. A directory keeps its name beneath it, whether it
/// exists or not, so that the same command means the same when it is run again. So do several
/// sources, and any source of a destination with a slash.
pub(crate) fn placing(slash: bool, sources: usize, contents: bool, shape: &Shape) -> Placing {
    let one_file = sources == 1 && !contents && !matches!(shape, Shape::Directory);
    if one_file && !slash { Placing::BeneathIfDir } else { Placing::Beneath }
}

/// Opens sources of this host: all of them beneath one set, or none.
///
/// # Errors
/// A [`Fault`] if the set cannot be opened.
pub(crate) fn local_source(sources: &[LocalSource], direct: DirectMode) -> Result<Arc<dyn SourceTree>, Fault> {
    Ok(Arc::new(opened_sources(sources, direct)?))
}

/// Opens sources of this host to send their `wanted` entries. May read their directories, and so
/// blocks.
///
/// # Errors
/// As [`local_source`]; a [`Fault`] if two of them have one name.
pub(crate) fn local_sources(
    sources: &[LocalSource],
    direct: DirectMode,
    wanted: &ScanWish,
) -> Result<(Arc<dyn SourceTree>, Shape), Fault> {
    let source = opened_sources(sources, direct)?;
    let shown = |at: usize| {
        let slash = if sources[at].contents { "/" } else { "" };
        format!("{}{slash}", Escaped(sources[at].path.as_os_str().as_bytes()))
    };
    refuse_same_name(&source, wanted, shown)?;
    let shape = source.shape();
    Ok((Arc::new(source), shape))
}

fn opened_sources(sources: &[LocalSource], direct: DirectMode) -> Result<FsSource, Fault> {
    let Some(dirs) = sources.first().and_then(|source| source.set.as_ref()) else {
        return Ok(FsSource::open(sources.iter().map(spec).collect(), direct));
    };
    if sources.iter().any(|source| source.set.as_ref() != Some(dirs)) {
        let why = "some sources lie beneath a target set, and others do not";
        return Err(Fault::new(FaultCode::Usage, Blame::Local, why));
    }
    let set = TargetSet::open(dirs, Marks::Needed, Writing::Never)?;
    set.log_missing();
    let beneath = |source: &LocalSource| Ok((set.clone(), beneath_set(&source.path)?, source.contents));
    Ok(FsSource::beneath(sources.iter().map(beneath).collect::<Result<_, Fault>>()?, direct))
}

/// A path beneath a root that a daemon serves: the root's name, its tree, the path, and whether its
/// content is meant.
pub(crate) type ServedSource = (Word, Arc<TargetSet>, RelPath, bool);

/// Opens sources beneath served trees, likewise.
///
/// # Errors
/// As [`local_sources`].
pub(crate) fn served_sources(
    sources: Vec<ServedSource>,
    direct: DirectMode,
    wanted: &ScanWish,
) -> Result<(Arc<dyn SourceTree>, Shape), Fault> {
    let shown = |at: usize| {
        let (root, _, path, contents) = &sources[at];
        let below = if path.is_root() { String::new() } else { format!("/{}", path.escaped()) };
        format!("{root}{below}{}", if *contents { "/" } else { "" })
    };
    let places = sources.iter().map(|(_, set, path, contents)| (set.clone(), path.clone(), *contents)).collect();
    let source = FsSource::beneath(places, direct).called(sources.iter().map(|(root, ..)| &**root));
    refuse_same_name(&source, wanted, shown)?;
    let shape = source.shape();
    Ok((Arc::new(source), shape))
}

/// Refuses sources of which two would go under one name: the later one would meet the other, or
/// replace it. Where all top-level names differ, no deeper names can meet either.
fn refuse_same_name(source: &FsSource, wanted: &ScanWish, shown: impl Fn(usize) -> String) -> Result<(), Fault> {
    let Some(SameName { name, sources: (first, second) }) = source.same_name(&wanted.request()) else {
        return Ok(());
    };
    let (name, first, second) = (Escaped(&name).to_string(), shown(first), shown(second));
    let message = format!("'{name}' would come from {first} and from {second}, and both would go under this name");
    Err(Fault::new(FaultCode::Usage, Blame::Local, message).about(name).hint(hint::Names::RenameOrLeaveOut))
}

fn spec(source: &LocalSource) -> SourceSpec {
    SourceSpec { path: source.path.clone(), contents: source.contents }
}

/// A resolved destination on this host: all sessions of one run go to the same place, whatever the
/// first of them made there.
#[derive(Clone, Debug)]
pub(crate) struct LocalSite {
    ground: Ground,
    /// The targets that are the ground, if it is a set.
    targets: Option<TargetDirs>,
    expected: Option<Arc<ExpectedFiles>>,
    dir: PathBuf,
    landing: Landing,
    opening: Opening,
    /// The run whose sessions go there.
    run: [u8; 16],
    /// Names that its sessions left in doubt, by their paths from the root that keeps the journals.
    doubts: Doubts,
    /// How long a journal of another process is waited for. `None`: as by default.
    patience: Option<Duration>,
    /// The dataset as which everything appears together. `None`: each file appears when it is done.
    dataset: Option<DatasetWish>,
}

/// The ground that a destination of this host lies on.
#[derive(Clone, Debug)]
enum Ground {
    /// The file tree of this host.
    Host,
    /// A target set, beneath which the paths lie.
    Set(Arc<TargetSet>),
}

impl Ground {
    /// Looks at the ground of a destination, and makes nothing.
    fn of(dest: &LocalDest) -> Result<Ground, Fault> {
        let Some(targets) = &dest.targets else { return Ok(Ground::Host) };
        beneath_set(&dest.path)?;
        Ok(Ground::Set(TargetSet::open(targets, Marks::Imagined, Writing::Wanted)?))
    }

    /// Whether a directory stands at a path.
    fn has_directory(&self, path: &Path) -> Result<bool, Fault> {
        match self {
            Ground::Host => Ok(is_directory(path)),
            Ground::Set(set) => Ok(matches!(set.stat(&beneath_set(path)?)?, Some(Standing::Dir { .. }))),
        }
    }
}

/// A path as the user gave it, beneath a set.
fn beneath_set(path: &Path) -> Result<RelPath, Fault> {
    let bytes = path.as_os_str().as_bytes();
    let mut beneath = RelPath::root();
    for name in bytes.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        beneath = beneath.join(name).map_err(|e| {
            Fault::new(FaultCode::Usage, Blame::Local, format_args!("the path in the set: {e}")).about(Escaped(bytes))
        })?;
    }
    match path.is_absolute() {
        false => Ok(beneath),
        true => {
            let why = "it is a path beneath the targets of a set: leave out the slash at its beginning";
            Err(Fault::new(FaultCode::Usage, Blame::Local, why).about(Escaped(bytes)))
        }
    }
}

impl LocalSite {
    /// Resolves a destination. A link to a directory that the user names is followed, as by rsync.
    pub(crate) fn new(dest: &LocalDest, opening: Opening) -> Result<LocalSite, Fault> {
        let ground = Ground::of(dest)?;
        if let Ground::Set(set) = &ground {
            set.log_missing();
        }
        let (dir, name) = landing_at(dest, opening.placing, &ground)?;
        let landing = match name {
            Some(name) => Landing::beneath().renamed_to(checked_name(name.as_bytes())?),
            None => Landing::beneath(),
        };
        Ok(LocalSite {
            ground,
            targets: dest.targets.clone(),
            expected: dest.expected.clone(),
            dir: dir.to_owned(),
            landing,
            opening,
            run: nonce()?,
            doubts: Doubts::default(),
            patience: None,
            dataset: None,
        })
    }

    /// The same place for a session of this run, whose earlier session may still end in another
    /// process: its journal is waited for.
    pub(crate) fn of_run(self, run: [u8; 16]) -> LocalSite {
        LocalSite { run, patience: Some(EARLIER_SESSION_ENDS), ..self }
    }

    /// The same place for one source that turned out to be a directory: it keeps its name beneath
    /// the destination.
    pub(crate) fn for_directory(&self, dest: &LocalDest) -> LocalSite {
        match self.is_renamed() {
            true => {
                let (dir, landing, doubts) = (dest.path.clone(), Landing::beneath(), Doubts::default());
                LocalSite { dir, landing, doubts, ..self.clone() }
            }
            false => self.clone(),
        }
    }

    /// Whether the one source takes the destination's name.
    pub(crate) fn is_renamed(&self) -> bool {
        self.landing.renamed().is_some()
    }

    /// Whether its directory stands already, and so may hold partials.
    pub(crate) fn stands(&self) -> bool {
        self.ground.has_directory(&self.dir).unwrap_or(false)
    }

    /// How small files and names are made durable there. `None` in a dry run, or where nothing is
    /// known.
    pub(crate) fn sync_method(&self) -> Option<SyncMethod> {
        let dir = match &self.ground {
            Ground::Host => &self.dir,
            Ground::Set(set) => set.first().named(),
        };
        SyncMethod::at(dir).filter(|_| !self.opening.dry_run)
    }

    /// Opens it for a session, and makes its directory if that is missing.
    pub(crate) fn open(&self) -> Result<Destination, Fault> {
        if let Some(wish) = &self.dataset {
            return self.open_dataset(wish);
        }
        let (opening, landing) = (self.opening.clone(), self.landing.clone());
        let base = Escaped(self.dir.as_os_str().as_bytes()).to_string();
        if opening.dry_run && !self.stands() {
            return Ok(Destination::fleeting(Arc::new(VoidTarget), landing, base));
        }
        if let (Ground::Set(imagined), Some(targets)) = (&self.ground, &self.targets) {
            let set = match opening.dry_run {
                true => imagined.clone(),
                false => TargetSet::open(targets, Marks::Made, Writing::Wanted)?,
            };
            let store = RootJournals::new(set.shelf(), Layout::WHOLE, &self.doubts);
            let (who, dir) = ((&Principal::local(), self.run), beneath_set(&self.dir)?);
            let destination = opened_in_tree((&set, &store, TreePolicy::default()), who, dir, landing, opening)?;
            let place = format!("set {}", set.shown());
            return Ok(Destination { place, names_standing: true, expected: self.expected.clone(), ..destination });
        }
        let target = FsTarget::open(&self.dir, opening.direct)?.cataloguing(opening.catalogue.clone());
        let store = RootJournals::new(target.shelf().clone(), target.layout(), &self.doubts);
        if let Some(patience) = self.patience {
            store.wait_for_others(patience);
        }
        let destination = written(
            |tag| Arc::new(target.tagged(tag)),
            landing,
            base,
            opening,
            (&store, &Principal::local(), self.run),
            RelPath::root(),
        )?;
        let whole = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
        let place = Escaped(whole.as_os_str().as_bytes()).to_string();
        Ok(Destination { place, names_standing: true, expected: self.expected.clone(), ..destination })
    }
}

/// A destination that a library user opened. Its sessions are journalled like those of a
/// destination that a command names.
pub(crate) fn opened_destination(target: FsTarget, settings: &Settings) -> Result<Destination, Fault> {
    let (direct, dry_run, placing) = (settings.io, settings.dry_run, Placing::Beneath);
    let opening = Opening { direct, dry_run, placing, may_modify: true, claim: None, catalogue: None };
    let store = RootJournals::new(target.shelf().clone(), target.layout(), &Doubts::default());
    written(
        |tag| Arc::new(target.tagged(tag)),
        Landing::beneath(),
        String::new(),
        opening,
        (&store, &Principal::local(), nonce()?),
        RelPath::root(),
    )
}

/// A destination whose sessions are journalled, unless it is a dry run. `target` gives the tree in
/// which small files are made under names of a tag.
fn written(
    target: impl FnOnce(SessionTag) -> Arc<dyn TargetTree>,
    landing: Landing,
    base: String,
    opening: Opening,
    (store, who, run): (&Arc<RootJournals>, &Principal, [u8; 16]),
    prefix: RelPath,
) -> Result<Destination, Fault> {
    if opening.dry_run {
        return Ok(Destination::fleeting(target(SessionTag([0; 8])), landing, base));
    }
    let presence = Arc::<Presence>::default();
    // Before partials are looked for, which an older session of the shard may have.
    let claim = opening.claim.map(|claim| store.claims().show(claim, who, &presence)).transpose()?.map(Arc::new);
    let ledger = store.begin(who, run, prefix, presence.clone())?;
    let fleeting = Destination::fleeting(target(ledger.tag()), landing, base);
    Ok(Destination { ledger: Some(Arc::new(ledger)), presence, claim, ..fleeting })
}

/// The directory into which names go, and the name that the one source takes there if it does not
/// keep its own.
fn landing_at<'d>(
    dest: &'d LocalDest,
    placing: Placing,
    ground: &Ground,
) -> Result<(&'d Path, Option<&'d OsStr>), Fault> {
    let is_beneath = match placing {
        Placing::Beneath => true,
        Placing::BeneathIfDir => ground.has_directory(&dest.path)?,
        Placing::Named => false,
    };
    if is_beneath {
        return Ok((&dest.path, None));
    }
    let name = dest.path.file_name().ok_or_else(|| no_name(dest.path.as_os_str().as_bytes()))?;
    let parent = dest.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent, Some(name)))
}

/// Refuses to copy a directory onto or into itself, where the scan would find its own output and
/// never end. A destination that is not `asked` for may lie in its source. Makes nothing.
pub(crate) fn refuse_into_itself(
    sources: &[LocalSource],
    dest: &LocalDest,
    placing: Placing,
    asked: &Allowed,
) -> Result<(), Fault> {
    let ground = Ground::of(dest)?;
    let (dir, new_name) = landing_at(dest, placing, &ground)?;
    let tops: Vec<PathBuf> = match &ground {
        Ground::Host => vec![PathBuf::new()],
        Ground::Set(set) => set.loads().map(|target| target.dir().to_owned()).collect(),
    };
    let stand: Vec<LocalSource> = sources.iter().flat_map(on_targets).collect();
    for (source, on) in stand.iter().flat_map(|source| tops.iter().map(move |top| (source, top))) {
        let own_name = if source.contents { None } else { source.path.file_name() };
        let becomes = match (new_name, own_name) {
            (Some(_), _) => dest.path.clone(),
            (None, Some(name)) => dir.join(name),
            (None, None) => dir.to_owned(),
        };
        let Some(way) = longhaul_disk::way_into(&spec(source), &on.join(becomes)) else { continue };
        let top = own_name.and_then(|name| RelPath::new(name.as_bytes()).ok()).unwrap_or_default();
        if way.is_root() || top.concat(&way).is_ok_and(|found| asked.has_dir(&found)) {
            let whose =
                if way.is_root() { "is the directory to be copied" } else { "lies in the directory to be copied" };
            return Err(Fault::new(FaultCode::Usage, Blame::Local, format_args!("the destination {whose}"))
                .about(Escaped(source.path.as_os_str().as_bytes()))
                .hint(hint::Names::NameOutside));
        }
    }
    Ok(())
}

/// The places at which a source stands on this host: of one in a set, one on each target.
fn on_targets(source: &LocalSource) -> Vec<LocalSource> {
    let Some(set) = &source.set else { return vec![source.clone()] };
    let on = |dir: &PathBuf| LocalSource { path: dir.join(&source.path), contents: source.contents, set: None };
    set.dirs.iter().map(on).collect()
}

/// The destination beneath a served tree, under the policy of its root.
pub(crate) fn served_destination(
    (root, store, policy): (&Arc<TargetSet>, &Arc<RootJournals>, TreePolicy),
    (who, run): (&Principal, [u8; 16]),
    path: &RelPath,
    opening: Opening,
) -> Result<Destination, Fault> {
    let standing = root.stat(path).or_else(absent)?;
    let is_dir = matches!(standing, Some(Standing::Dir { .. }));
    let (dir, landing) = match (path.parent(), path.name()) {
        (Some(parent), Some(name))
            if opening.placing == Placing::Named || opening.placing == Placing::BeneathIfDir && !is_dir =>
        {
            (parent, Landing::beneath().renamed_to(name.to_vec()))
        }
        _ => (path.clone(), Landing::beneath()),
    };
    opened_in_tree((root, store, policy), (who, run), dir, landing, opening)
}

/// The directory at a path of a tree as a destination.
fn opened_in_tree(
    (root, store, policy): (&Arc<TargetSet>, &Arc<RootJournals>, TreePolicy),
    (who, run): (&Principal, [u8; 16]),
    dir: RelPath,
    landing: Landing,
    opening: Opening,
) -> Result<Destination, Fault> {
    let stands = matches!(root.stat(&dir).or_else(absent)?, Some(Standing::Dir { .. }));
    let base = dir.escaped().to_string();
    if opening.dry_run && !stands {
        return Ok(Destination::fleeting(Arc::new(VoidTarget), landing, base));
    }
    if root.is_set() {
        // It is made on the other targets as well, where it stands on some: not in a dry run.
        let set = if opening.dry_run { root.standing_at(&dir)? } else { root.clone() };
        let target = SpreadTarget::beneath(&set, &dir, opening.direct, policy)?.cataloguing(opening.catalogue.clone());
        let target = if opening.may_modify { target } else { target.keeping_standing_dirs() };
        return written(|tag| Arc::new(target.tagged(tag)), landing, base, opening, (store, who, run), dir);
    }
    let target = FsTarget::beneath(root.first(), &dir, opening.direct, policy)?.cataloguing(opening.catalogue.clone());
    // All sessions on it are one load.
    let target = match root.loads().next() {
        Some(load) => target.as_part_of(load),
        None => target,
    };
    let target = if opening.may_modify { target } else { target.keeping_standing_dirs() };
    written(|tag| Arc::new(target.tagged(tag)), landing, base, opening, (store, who, run), dir)
}

/// Maps a missing parent to `None`: nothing stands there.
fn absent(e: longhaul_disk::DiskError) -> Result<Option<Standing>, longhaul_disk::DiskError> {
    if e.kind() == longhaul_disk::ErrorKind::NotFound { Ok(None) } else { Err(e) }
}

/// The place to which a path of the user leads, links followed, and whether anything stands there.
/// The last name may be missing; its directory must stand.
pub(crate) fn resolved(path: &Path) -> Result<(PathBuf, bool), Fault> {
    if let Ok(place) = std::fs::canonicalize(path) {
        return Ok((place, true));
    }
    let name = path.file_name().ok_or_else(|| no_name(path.as_os_str().as_bytes()))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::canonicalize(parent) {
        Ok(parent) => Ok((parent.join(name), false)),
        Err(_) => Err(Tree::open(parent).map_or_else(|e| e.fault(), |_| no_name(path.as_os_str().as_bytes()))),
    }
}

#[expect(clippy::disallowed_methods, reason = "a look at the name that the user gave; links are followed there")]
fn is_directory(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_dir())
}

/// A session whose connection broke journals what came and ends within this; one that hears nothing
/// more notices after 30 s.
pub(crate) const EARLIER_SESSION_ENDS: Duration = Duration::from_secs(45);

fn checked_name(name: &[u8]) -> Result<Vec<u8>, Fault> {
    RelPath::root()
        .join(name)
        .map(|_| name.to_vec())
        .map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e).about(Escaped(name)))
}

fn no_name(path: &[u8]) -> Fault {
    Fault::new(FaultCode::Usage, Blame::Local, "the destination has no name to give to the source").about(Escaped(path))
}

#[cfg(test)]
mod tests;
