//! Moves bad files aside at the destination, as `sync --delete` moves names away: each by the facts
//! of a look at it, into a directory where it stays until a person removes it.
//!
//! In: paths, and the facts by which what has them is known again. Out: each name where it was, or
//! under its path in that directory. A daemon does so itself, for clients with the right `delete`.
//! Must not know why a file goes.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::{Blame, Escaped, Fault, FaultCode, PlanName, RelPath};
use longhaul_engine::{Credentials, FarRemoval, Grace, NameFacts, Reach, RemotePath, Stop, Tree, Withdrawn};

use crate::jobs::spec::{CampaignPlace, beneath};
use crate::jobs::verify::blocking;
use crate::location::host_port;

/// A destination of which files are moved aside.
pub(super) struct AsideGround {
    place: AsidePlace,
    /// The path beneath the destination beneath which the files stand.
    onto: RelPath,
    plan: PlanName,
}

/// Where the destination is.
enum AsidePlace {
    /// On this host.
    Here { tree: Arc<Tree>, top: PathBuf },
    /// At a daemon.
    There {
        removal: Box<FarRemoval>,
        /// The root of the daemon, for people.
        root: String,
        /// The path of the destination in that root.
        path: RelPath,
    },
}

/// The answer for one name: the fault is of that name alone.
pub(super) type FileAnswer<T> = Result<T, Fault>;

impl AsideGround {
    /// Opens a destination. Files of one plan go to one directory.
    ///
    /// # Errors
    /// The fault of a directory that cannot be opened; [`FaultCode::Denied`] of a daemon without
    /// the right.
    pub(super) async fn open(
        (dest, onto): (CampaignPlace, RelPath),
        credentials: Option<Credentials>,
        plan: PlanName,
        stop: &Stop,
    ) -> Result<AsideGround, Fault> {
        let place = match dest {
            CampaignPlace::Here(top) => {
                let named = top.clone();
                AsidePlace::Here { tree: blocking(move || Tree::open(&named)).await??, top }
            }
            CampaignPlace::Daemon { host, port, path } => {
                let no_key = || Fault::new(FaultCode::Usage, Blame::Local, "there is no key for the daemon");
                let root = format!("lh://{}/{}", host_port(&host, port), Escaped(path.root.as_bytes()));
                let remote = credentials.ok_or_else(no_key)?.at(Reach::Address { host, port });
                let path = RemotePath { slash: true, ..path };
                let removal = Box::new(FarRemoval::open(remote, path.clone(), stop).await?);
                AsidePlace::There { removal, root, path: path.path }
            }
        };
        Ok(AsideGround { place, onto, plan })
    }

    /// Says what has these names. `None` for one that nothing has.
    ///
    /// # Errors
    /// The fault by which none can be looked at. That of one name stands in its place.
    pub(super) async fn look(
        &mut self,
        names: Vec<RelPath>,
        stop: &Stop,
    ) -> Result<Vec<FileAnswer<Option<NameFacts>>>, Fault> {
        let paths = self.paths(&names)?;
        match &mut self.place {
            AsidePlace::Here { tree, .. } => {
                let tree = Arc::clone(tree);
                blocking(move || paths.iter().map(|path| Ok(tree.facts(path)?)).collect()).await
            }
            AsidePlace::There { removal, .. } => {
                let found = removal.look(&paths, stop).await?;
                // Files are read before they go, which may take longer than the conversation lasts.
                removal.rest();
                Ok(found.into_iter().map(|name| Ok(name?.map(|name| name.facts))).collect())
            }
        }
    }

    /// Moves names aside, each if it is still what these facts say, for good.
    ///
    /// # Errors
    /// The fault by which none can be moved any more. That of one name stands in its place.
    pub(super) async fn withdraw(
        &mut self,
        names: Vec<(RelPath, NameFacts)>,
        stop: &Stop,
    ) -> Result<Vec<FileAnswer<Withdrawn>>, Fault> {
        let paths = self.paths(names.iter().map(|(path, _)| path))?;
        let names: Vec<_> = paths.into_iter().zip(names).map(|(path, (_, facts))| (path, facts)).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let plan = self.plan;
        match &mut self.place {
            AsidePlace::Here { tree, .. } => {
                let tree = Arc::clone(tree);
                blocking(move || withdraw_here(&tree, plan, &names)).await?
            }
            AsidePlace::There { removal, .. } => removal.withdraw(plan, &names, stop).await,
        }
    }

    /// Where a file lies that went, for people.
    pub(super) fn kept_in(&self, name: &RelPath) -> String {
        let label = self.plan.label();
        let path = self.onto.concat(name).unwrap_or_else(|_| name.clone());
        match &self.place {
            AsidePlace::Here { tree, top } => {
                let kept = top.join(Grace::place(tree)).join(label);
                Escaped(beneath(&kept, &path).as_os_str().as_encoded_bytes()).to_string()
            }
            AsidePlace::There { removal, root, path: dest } => {
                let path = dest.concat(&path).unwrap_or(path);
                format!("{root}/{}/{label}/{}", removal.grace(), path.escaped())
            }
        }
    }

    fn paths<'n>(&self, names: impl IntoIterator<Item = &'n RelPath>) -> Result<Vec<RelPath>, Fault> {
        let paths = names.into_iter().map(|name| self.onto.concat(name)).collect::<Result<_, _>>();
        paths.map_err(|error| Fault::new(FaultCode::Usage, Blame::Local, error))
    }
}

fn withdraw_here(
    tree: &Tree,
    plan: PlanName,
    names: &[(RelPath, NameFacts)],
) -> Result<Vec<FileAnswer<Withdrawn>>, Fault> {
    let mut grace = Grace::open(tree, &plan.label())?;
    let ends = names.iter().map(|(path, facts)| Ok(grace.withdraw(path, facts)?)).collect();
    // They have gone all the same: their names must be given something.
    if let Err(error) = grace.sync() {
        tracing::warn!(%error, "names that were moved aside may have their files again after a crash");
    }
    Ok(ends)
}
