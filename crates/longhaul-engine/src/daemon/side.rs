//! Opens the daemon's side of a transfer: its destination, or its sources.
//!
//! In: a transfer that is allowed. Out: a [`Side`] and its name in the log. It knows no rights, no
//! memory and no lanes.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{AccountMap, Blame, ChunkSize, Fault, FaultCode, PathList, RelPath, Role, hint};
use longhaul_disk::{ErrorKind, Shape, SourceTree, TargetSet};
use longhaul_proto::receiver::Policy;
use longhaul_proto::wire::message::{Far, FarSource, Transfer};

use super::account::Spot;
use super::audit::SessionAudit;
use super::audit::source::RecordedSource;
use super::{ClientConfig, Daemon};
use crate::journals::{Principal, RootJournals, run_of};
use crate::place::dataset::DatasetWish;
use crate::place::{self, Opening};
use crate::session::course::ScanWish;
use crate::session::handshake::{self, Shown};
use crate::session::opened::Destination;
use crate::workers::blocking;

/// The daemon's side of a transfer.
pub(super) enum Side {
    /// It receives, under this policy.
    Receive(Destination, Policy),
    /// It sends the wanted entries of its sources. The last field is the bits of its `Welcome` that
    /// describe them.
    Send(Arc<dyn SourceTree>, ScanWish, u64),
}

impl Side {
    /// The largest chunk that this side may need: partials at a destination keep their chunk size.
    pub(super) fn chunk_max(&self, transfer: &Transfer) -> ChunkSize {
        match self {
            Side::Receive(destination, _) => destination.chunk_max(transfer.chunk).min(transfer.chunk_max),
            Side::Send(..) => transfer.chunk_max,
        }
    }
}

/// Opens this side of a transfer that is allowed. Only `names` are sent of its one source, or those
/// of an order, if any are given. Its destination publishes by the claim that is `shown`, and
/// stages the dataset, if there is one. Its files are recorded in `audit`.
pub(super) async fn open(
    daemon: &Arc<Daemon>,
    client: &ClientConfig,
    transfer: &Transfer,
    (names, shown): (Option<PathList>, Shown),
    audit: &Arc<SessionAudit>,
) -> Result<(Side, String), Fault> {
    if let Some(account) = &daemon.roots.account {
        return account.side(transfer, names, shown).await;
    }
    let direct = daemon.config.io;
    match (&transfer.far, transfer.role) {
        (Far::Destination { root, path, placing, if_exists }, Role::Sender) => {
            let (config, rights) = daemon.root(client, root)?;
            let policy = Policy { if_exists: *if_exists, may_modify: rights.modify };
            let (dry_run, placing, may_modify) = (transfer.dry_run, *placing, rights.modify);
            let (claim, catalogue) = (shown.claim, daemon.config.state.catalogue.clone());
            let opening = Opening { direct, dry_run, placing, may_modify, claim, catalogue };
            let dataset = shown.dataset.map(|name| DatasetWish::new(name, *if_exists).in_part(shown.part));
            let ((set, store), path) = (daemon.root_parts(root).await?, path.clone());
            let who = Principal::client(&client.key, &client.name);
            let run = run_of(transfer.run);
            let within = config.policy;
            let place = move || place::dataset::served((&set, &store, within), (&who, run), &path, (opening, dataset));
            let destination = blocking(place).await?;
            audit.placed(root, &destination.base);
            let (place, names_standing) = (format!("root {root}"), rights.read && rights.modify);
            let destination = Destination { place, names_standing, ..destination };
            Ok((Side::Receive(destination, policy), described(transfer)))
        }
        (Far::Sources { sources, rules, .. }, Role::Receiver) => {
            let mut roots = BTreeMap::new();
            for source in sources {
                if !roots.contains_key(&source.root) {
                    let (set, _) = daemon.root_parts(&source.root).await?;
                    roots.insert(source.root.clone(), set);
                }
            }
            let place = |source: &FarSource| {
                let set = roots.get(&source.root).cloned().ok_or_else(contradiction)?;
                Ok((source.root.clone(), set, source.path.clone(), source.contents))
            };
            let places = sources.iter().map(place).collect::<Result<Vec<_>, Fault>>()?;
            let filter = Filter::new(rules.clone()).map_err(|e| Fault::new(FaultCode::Usage, Blame::Peer, e))?;
            let (names, accounts) = (names.map(Arc::new).or(shown.names), AccountMap::default());
            let wanted = ScanWish { filter, names, preserve: transfer.preserve, accounts };
            let open =
                move || place::served_sources(places, direct, &wanted).map(|(source, shape)| (source, shape, wanted));
            let (source, shape, wanted) = blocking(open).await?;
            if let Shape::Missing(missing) = &shape {
                // This fails before the client makes anything of its destination.
                return Err(missing.first().map_or_else(contradiction, |(_, error)| error.fault()));
            }
            let caps = handshake::source_caps(&shape);
            Ok((Side::Send(RecordedSource::over(source, audit.clone()), wanted, caps), described(transfer)))
        }
        _ => Err(contradiction()),
    }
}

/// A transfer of files, as the log says it.
pub(super) fn described(transfer: &Transfer) -> String {
    match &transfer.far {
        Far::Destination { root, path, .. } => format!("push to {root}/{}", path.escaped()),
        Far::Sources { sources, .. } => {
            let more = if sources.len() > 1 { format!(" and {} more", sources.len() - 1) } else { String::new() };
            let first = sources.first().map(|first| format!("{}/{}", first.root, first.path.escaped()));
            format!("pull from {}{more}", first.unwrap_or_default())
        }
        Far::Memory { .. } => "bench".to_owned(),
    }
}

pub(super) fn contradiction() -> Fault {
    Fault::protocol("a transfer whose roles contradict each other")
}

impl Daemon {
    /// The tree in which `path` of a root lies, and the path beneath that tree.
    pub(super) async fn spot(&self, root: &str, path: RelPath) -> Result<Spot, Fault> {
        match &self.roots.account {
            Some(account) => account.spot(root, path).await,
            None => self.root_parts(root).await.map(|(set, store)| (set, store, path)),
        }
    }

    /// A root's tree and its partials, if the directory that is open for it is still the one at its
    /// path.
    pub(super) async fn root_parts(&self, root: &str) -> Result<(Arc<TargetSet>, Arc<RootJournals>), Fault> {
        if let Some(fault) = self.roots.failed.get(root) {
            return Err(fault.clone());
        }
        let known = self.roots.named.get(root).map(|(_, set, store)| (set.clone(), store.clone()));
        let (set, store) =
            known.ok_or_else(|| Fault::new(FaultCode::Internal, Blame::Bug, "a root without its tree"))?;
        let root = root.to_owned();
        blocking(move || match set.check_place() {
            Ok(()) => Ok((set, store)),
            Err(error) if error.kind() == ErrorKind::Moved => Err(Fault::new(
                FaultCode::Io,
                Blame::Local,
                format_args!("something was mounted over or replaced root '{root}' since this daemon started"),
            )
            .about(&root)
            .hint(hint::Daemon::Restart)),
            Err(error) => Err(error.fault().about(&root)),
        })
        .await
    }
}
