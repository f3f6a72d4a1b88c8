//! Puts another configuration in the place of the one that is served, all of it or nothing.
//!
//! In: a configuration that was read and checked. Out: the roots that it opens, the [`Daemon`] that
//! is served from then on, the end of the sessions that it denies, and what has changed; or the
//! reason why everything stays as it was. A root that stays where it is keeps its open tree and its
//! partials, as all sessions of a process on it must share them. It knows no file and no signal.

use std::collections::BTreeMap;

use longhaul_core::{Blame, Escaped, Fault, FaultCode, hint};
use longhaul_disk::{Affinity, Marks, TargetSet, Tree, Writing};

use super::current::Current;
use super::deputy::Deputies;
use super::{ClientConfig, Daemon, OpenRoot, RootConfig, Roots, ServeConfig, door};
use crate::journals::RootJournals;

/// The difference that a reload has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// The roots, by name.
    pub roots: Changes,
    /// The clients, by name.
    pub clients: Changes,
    /// The sessions that were ended as they are not allowed any more: `CLIENT: WHAT`.
    pub ended: Vec<String>,
}

/// The names that came, went and changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Names that are new.
    pub added: Vec<String>,
    /// Names that are there no more.
    pub removed: Vec<String>,
    /// Names of which something is different.
    pub changed: Vec<String>,
}

impl Changes {
    fn between<T: PartialEq>(old: &[T], new: &[T], name: impl Fn(&T) -> &str) -> Changes {
        let by_name = |all: &[T]| -> BTreeMap<String, usize> {
            all.iter().enumerate().map(|(n, one)| (name(one).to_owned(), n)).collect()
        };
        let (before, after) = (by_name(old), by_name(new));
        let mut changes = Changes::default();
        for (name, n) in &after {
            match before.get(name) {
                None => changes.added.push(name.clone()),
                Some(&was) if old[was] != new[*n] => changes.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        changes.removed = before.into_keys().filter(|name| !after.contains_key(name)).collect();
        changes
    }
}

/// Refuses what cannot change while the daemon runs.
pub(super) fn need_same_listen(old: &ServeConfig, new: &ServeConfig) -> Result<(), Fault> {
    if old.listen == new.listen {
        return Ok(());
    }
    let (old, new) = (old.listen.join(", "), new.listen.join(", "));
    let why = format_args!("a running daemon listens where it began to ({old}), and 'listen' says {new}");
    Err(Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Daemon::StartAgain))
}

/// Refuses clients that have a user where nobody can start a process for it.
pub(super) fn need_broker(deputies: &Deputies, config: &ServeConfig) -> Result<(), Fault> {
    let with_user = config.clients.iter().find(|client| client.user.is_some());
    match with_user.filter(|_| deputies.broker().is_none()) {
        None => Ok(()),
        Some(client) => {
            let why = "this client has a user, and the daemon was started without any such client";
            let fault = Fault::new(FaultCode::Usage, Blame::Local, why).about(Escaped(client.name.as_bytes()));
            Err(fault.hint(hint::Daemon::StartAgain))
        }
    }
}

/// Opens what another configuration needs besides what `old` has. Nothing of `old` changes.
pub(super) fn prepare(old: &Daemon, config: ServeConfig) -> Result<Daemon, Fault> {
    let affinity = affinity(&config)?;
    // A set that is to be made is made only once all others were found right.
    look_at_sets(&config, &old.roots.named)?;
    let roots = Roots { named: open_roots(&config, &old.roots.named)?, ..Roots::default() };
    Ok(Daemon { config, roots, affinity, ..old.clone() })
}

/// Serves `next` from now on. Sessions that run keep what they were given; those that it denies are
/// ended in order.
pub(super) fn put(current: &Current, next: Daemon) -> Reloaded {
    let old = current.now();
    let (was, is) = (&old.config, &next.config);
    let roots = Changes::between(&was.roots, &is.roots, |root: &RootConfig| &root.name);
    let clients = Changes::between(&was.clients, &is.clients, |client: &ClientConfig| &client.name);
    if was.sessions != is.sessions {
        // It says so if there are too few descriptors for them.
        door::limits(is, longhaul_sys::nofile_limit());
    }
    let next = current.put(next);
    let ended = end_denied(&next);
    set_limits(&next);
    next.live.rates.set_all(&next.config);
    next.roots.named.values().for_each(|(.., store)| store.keep_at_most(next.config.unfinished));
    Reloaded { roots, clients, ended }
}

/// Sets the limits of all clients together, and of each.
pub(super) fn set_limits(daemon: &Daemon) {
    let ServeConfig { clients, memory, sessions, roots, .. } = &daemon.config;
    daemon.live.quotas.bound(clients, roots);
    daemon.live.places.bound(roots);
    let of_memory = clients.iter().filter_map(|client| Some((client.key, client.memory?.get())));
    daemon.memory.limit(memory.get(), of_memory.collect());
    let of_sessions = clients.iter().filter_map(|client| Some((client.key, client.sessions? as u64)));
    daemon.sessions.limit(*sessions as u64, of_sessions.collect());
}

/// Ends the sessions that are not allowed any more. Those that begin at this moment look for
/// themselves, once they are in the list.
pub(super) fn end_denied(daemon: &Daemon) -> Vec<String> {
    let ended = daemon.live.end(FaultCode::Denied, |_, live| !daemon.allows(&live.key, &live.needs));
    ended.into_iter().map(|live| format!("{}: {}", live.client, live.what)).collect()
}

/// The CPUs of a configuration.
pub(super) fn affinity(config: &ServeConfig) -> Result<Affinity, Fault> {
    Affinity::new(&config.pin).map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e))
}

/// Opens the roots of a configuration, but for those that are open and still in their places.
pub(super) fn open_roots(
    config: &ServeConfig,
    open: &BTreeMap<String, OpenRoot>,
) -> Result<BTreeMap<String, OpenRoot>, Fault> {
    let mut roots = BTreeMap::new();
    for root in config.roots.iter().filter(|root| config.opens(root)) {
        let (set, store) = match standing(root, open) {
            Some((_, set, store)) => (set.clone(), store.clone()),
            None => {
                let set = TargetSet::open(&root.targets, Marks::Made, writing(root));
                let set = set.map_err(|e| e.fault().about(&root.name))?;
                set.log_missing();
                let store = RootJournals::keeping(set.shelf(), config.unfinished);
                (set, store)
            }
        };
        roots.insert(root.name.clone(), (root.clone(), set, store));
    }
    Ok(roots)
}

/// Opens a root as a user, unless it is open and still in its place. What this user leaves there is
/// its own.
pub(super) fn open_for_user(
    root: &RootConfig,
    open: &BTreeMap<String, OpenRoot>,
    (uid, config): (u32, &ServeConfig),
) -> Result<OpenRoot, Fault> {
    if let Some((_, set, store)) = standing(root, open) {
        return Ok((root.clone(), set.clone(), store.clone()));
    }
    let [dir] = root.targets.dirs.as_slice() else {
        let why = "a target set cannot be served to a client that has a user";
        return Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).about(&root.name));
    };
    let set = Tree::open_for_user(dir, uid).map(TargetSet::plain).map_err(|e| e.fault().about(&root.name))?;
    let store = RootJournals::keeping(set.shelf(), config.unfinished);
    Ok((root.clone(), set, store))
}

impl ServeConfig {
    /// Whether the daemon itself opens a root. It does not where only clients with a user have
    /// rights.
    pub fn opens(&self, root: &RootConfig) -> bool {
        let has = |client: &&ClientConfig| client.roots.contains_key(&root.name);
        let (with, without): (Vec<_>, Vec<_>) =
            self.clients.iter().filter(has).partition(|client| client.user.is_some());
        with.is_empty() || !without.is_empty()
    }
}

/// Looks at the sets that are to be opened, and writes nothing.
fn look_at_sets(config: &ServeConfig, open: &BTreeMap<String, OpenRoot>) -> Result<(), Fault> {
    let sets = config.roots.iter().filter(|root| root.targets.dirs.len() > 1 && standing(root, open).is_none());
    for root in sets {
        let set = TargetSet::open(&root.targets, Marks::Imagined, writing(root));
        set.map_err(|e| e.fault().about(&root.name))?;
    }
    Ok(())
}

/// The open root of the same directories, used in the same way, that nothing took the place of.
fn standing<'o>(root: &RootConfig, open: &'o BTreeMap<String, OpenRoot>) -> Option<&'o OpenRoot> {
    let same = |(known, ..): &&OpenRoot| known.targets == root.targets && writing(known) == writing(root);
    open.values().find(same).filter(|(_, set, _)| set.missing().is_empty() && set.check_place().is_ok())
}

fn writing(root: &RootConfig) -> Writing {
    if root.allow.may_change() { Writing::Wanted } else { Writing::Never }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_by_name() {
        let (old, new) = ([("a", 1), ("b", 1), ("c", 1)], [("c", 1), ("b", 2), ("d", 1)]);
        let changes = Changes::between(&old, &new, |(name, _)| name);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let want = Changes { added: names(&["d"]), removed: names(&["a"]), changed: names(&["b"]) };
        assert_eq!(changes, want);
    }
}
