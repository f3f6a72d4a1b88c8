//! Opens the place of a dataset whose files shall appear together.
//!
//! In: a directory of this host or beneath a served tree, the dataset's name, and whether it may
//! replace one. Out: a destination that writes beside that name, and gives it at its end. It knows
//! no connections.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, DatasetName, DatasetPart, Escaped, Fault, FaultCode, IfExists, RelPath};
use longhaul_disk::{
    DatasetError, DatasetOrder, DatasetStage, FsTarget, PathText, Replace, StageNote, StagePart, TargetSet, TargetTree,
    TreePolicy, VoidTarget, look_at_dataset,
};
use longhaul_proto::receiver::Landing;

use super::{Ground, LocalSite, Opening};
use crate::journals::claims::HeldClaim;
use crate::journals::presence::Presence;
use crate::journals::{Doubts, Principal, RootJournals};
use crate::session::dataset::{Appeared, StagedDataset};
use crate::session::opened::Destination;

/// A dataset as which everything that a session receives shall appear.
#[derive(Clone, Debug)]
pub(crate) struct DatasetWish {
    name: DatasetName,
    replace: Replace,
    /// The part of a campaign's dataset that is received. `None`: all of it is.
    part: Option<DatasetPart>,
    /// Where each session of the run says that it has appeared.
    appeared: Appeared,
}

/// The means with which a staged dataset is opened.
pub(super) struct Staging<'o> {
    /// The journals of the root, which keep claims.
    pub(super) root: &'o Arc<RootJournals>,
    /// Names that earlier sessions of the run left in doubt.
    pub(super) doubts: &'o Doubts,
    /// The policy of the root.
    pub(super) policy: TreePolicy,
    /// The principal whose partials are continued.
    pub(super) who: &'o Principal,
    /// The run whose session it is.
    pub(super) run: [u8; 16],
    /// The options of opening it.
    pub(super) opening: Opening,
    /// The part of a campaign's dataset that is received. `None`: all of it is.
    pub(super) part: Option<DatasetPart>,
    /// Where its session says that it has appeared.
    pub(super) appeared: Appeared,
    /// The claim of its session.
    pub(super) claimed: ShownClaim,
}

/// A claim that is kept already, if the session needs one, and the presence of that session.
#[derive(Default)]
pub(super) struct ShownClaim {
    presence: Arc<Presence>,
    claim: Option<HeldClaim>,
}

impl ShownClaim {
    /// Shows the claim of a session that is about to be opened.
    fn of(root: &RootJournals, who: &Principal, opening: &Opening) -> Result<ShownClaim, Fault> {
        let presence = Arc::<Presence>::default();
        let claim = opening.claim.map(|claim| root.claims().show(claim, who, &presence)).transpose()?;
        Ok(ShownClaim { presence, claim })
    }
}

impl DatasetWish {
    /// A dataset of this name, which may replace one if the rule for names that stand says so.
    pub(crate) fn new(name: DatasetName, if_exists: IfExists) -> DatasetWish {
        let replace = if if_exists == IfExists::Replace { Replace::Allowed } else { Replace::Never };
        DatasetWish { name, replace, part: None, appeared: Appeared::default() }
    }

    /// The same dataset, of which a session brings a part, if there is one. Its campaign is that of
    /// the session's claim.
    pub(crate) fn in_part(self, part: Option<DatasetPart>) -> DatasetWish {
        DatasetWish { part, ..self }
    }

    /// Refuses a dataset that cannot be staged in the directory `dir`. Makes nothing.
    pub(super) fn check(&self, dir: &Path) -> Result<(), Fault> {
        // What has the name may be the very dataset: it is looked at when it is staged.
        if self.part.is_some() {
            return Ok(());
        }
        look_at_dataset(dir, &self.name, self.replace).map_err(Fault::from)
    }

    /// Stages it in a directory that a user named.
    pub(super) fn stage(
        &self,
        dir: &Path,
        (who, opening): (&Principal, &Opening),
        patience: Duration,
    ) -> Result<DatasetStage, Fault> {
        Ok(DatasetStage::named(dir, self.order(who, opening)?, patience)?)
    }

    fn order<'o>(&'o self, who: &'o Principal, opening: &Opening) -> Result<DatasetOrder<'o>, Fault> {
        let part = match (&self.part, opening.claim) {
            (None, _) => StagePart::All,
            (Some(DatasetPart::Shard { .. }), Some(claim)) => StagePart::Shard(claim.campaign),
            (Some(DatasetPart::Commit), Some(claim)) => StagePart::Commit(claim.campaign),
            (Some(_), None) => {
                let why = "a part of a campaign's dataset is staged by a claim, and there is none";
                return Err(Fault::new(FaultCode::Usage, Blame::Local, why));
            }
        };
        Ok(DatasetOrder { name: &self.name, principal: &who.principal, replace: self.replace, part })
    }

    /// Opens it beneath a served tree, under the policy of its root.
    pub(crate) fn served(
        &self,
        (root, store, policy): (&Arc<TargetSet>, &Arc<RootJournals>, TreePolicy),
        (who, run): (&Principal, [u8; 16]),
        path: &RelPath,
        opening: Opening,
    ) -> Result<Destination, Fault> {
        if root.is_set() {
            return Err(no_set());
        }
        if self.replace == Replace::Allowed && !opening.may_modify {
            let why = "to replace a dataset needs the right 'modify'";
            return Err(Fault::new(FaultCode::Denied, Blame::Peer, why).about(self.name.escaped()));
        }
        // The name of the dataset is one of this root, and no longer than others.
        let base = path.join(self.name.as_bytes()).map_err(|e| Fault::new(FaultCode::Usage, Blame::Peer, e))?;
        let (place, base) = (base.clone(), base.escaped().to_string());
        if opening.dry_run {
            if root.stat(&path.join(self.name.as_bytes()).unwrap_or_default()).or_else(super::absent)?.is_some()
                && self.replace == Replace::Never
            {
                return Err(DatasetError::Stands { path: PathText::from(base.as_bytes()) }.into());
            }
            return Ok(planned(base));
        }
        let order = self.order(who, &opening)?;
        store.need_room_for_stage(root, &StageNote { place, principal: order.stager() })?;
        // Before it is staged: an older session of the shard ends for it, and lets go of that.
        let claimed = ShownClaim::of(store, who, &opening)?;
        let stage = DatasetStage::beneath((root.first(), path, policy.modes), order, PATIENCE)?;
        let doubts = &Doubts::default();
        let (part, appeared) = (self.part.clone(), self.appeared.clone());
        let staging = Staging { root: store, doubts, policy, who, run, opening, part, appeared, claimed };
        opened(stage, staging, base)
    }
}

/// The destination beneath a served tree, under the policy of its root; the dataset's, if one is
/// wished for.
pub(crate) fn served(
    root: (&Arc<TargetSet>, &Arc<RootJournals>, TreePolicy),
    who: (&Principal, [u8; 16]),
    path: &RelPath,
    (opening, dataset): (Opening, Option<DatasetWish>),
) -> Result<Destination, Fault> {
    match dataset {
        Some(wish) => wish.served(root, who, path, opening),
        None => super::served_destination(root, who, path, opening),
    }
}

/// Opens a staged dataset for a session.
pub(super) fn opened(stage: DatasetStage, with: Staging<'_>, base: String) -> Result<Destination, Fault> {
    let onto = match &with.part {
        Some(DatasetPart::Shard { onto }) => onto.clone(),
        Some(DatasetPart::Commit) | None => RelPath::root(),
    };
    let top = DatasetStage::path_of(&onto)?;
    let target = stage.target(&onto, with.opening.direct, with.policy)?.cataloguing(with.opening.catalogue.clone());
    let store = with.root.staged(stage.tree().shelf(), target.layout(), with.doubts);
    // It is kept before partials are looked for, which an older session of the shard may have.
    let ShownClaim { presence, claim } = with.claimed;
    let ledger = store.begin(with.who, with.run, top, presence.clone())?;
    let tree = Arc::new(target.tagged(ledger.tag()));
    let fleeting = Destination::fleeting(tree, Landing::beneath(), base.clone());
    let (ledger, claim) = (Some(Arc::new(ledger)), claim.map(Arc::new));
    let base = if onto.is_root() { base } else { format!("{base}/{}", onto.escaped()) };
    let fleeting = Destination { base, ..fleeting };
    let dataset = match with.part {
        None => StagedDataset::new(stage, with.appeared),
        Some(DatasetPart::Commit) => StagedDataset::of_campaign(stage, with.appeared),
        Some(DatasetPart::Shard { .. }) => StagedDataset::of_shard(stage, with.appeared),
    };
    let dataset = Some(Arc::new(dataset));
    Ok(Destination { ledger, presence, claim, dataset, is_whole: true, ..fleeting })
}

impl LocalSite {
    /// The same place for files that appear together, if a dataset is wished for.
    pub(crate) fn for_dataset(self, wish: Option<DatasetWish>) -> Result<LocalSite, Fault> {
        let Some(wish) = wish else { return Ok(self) };
        if !matches!(self.ground, Ground::Host) {
            return Err(no_set());
        }
        wish.check(&self.dir)?;
        Ok(LocalSite { dataset: Some(wish), ..self })
    }

    /// Whether a session has had its dataset appear.
    pub(crate) fn has_appeared(&self) -> bool {
        self.dataset.as_ref().is_some_and(|wish| wish.appeared.get().is_some())
    }

    /// Opens the place where its dataset is staged. In a dry run nothing is staged, and nothing is
    /// known of what is.
    pub(super) fn open_dataset(&self, wish: &DatasetWish) -> Result<Destination, Fault> {
        let base = shown(&self.dir, wish);
        wish.check(&self.dir)?;
        if self.opening.dry_run {
            return Ok(planned(base));
        }
        let who = &Principal::local();
        // On this host an earlier session of the run has let go by now; other movers may have not.
        let patience = if wish.part.is_some() { PATIENCE } else { self.patience.map_or(Duration::ZERO, |_| PATIENCE) };
        let stage = wish.stage(&self.dir, (who, &self.opening), patience)?;
        let dir = FsTarget::open(&self.dir, self.opening.direct)?;
        let root = &RootJournals::new(dir.shelf().clone(), dir.layout(), &Doubts::default());
        let (policy, run) = (TreePolicy::default(), self.run);
        let (doubts, opening, appeared) = (&self.doubts, self.opening.clone(), wish.appeared.clone());
        let part = wish.part.clone();
        // Behind it: it made the directory in which claims are kept.
        let claimed = ShownClaim::of(root, who, &opening)?;
        let staging = Staging { root, doubts, policy, who, run, opening, part, appeared, claimed };
        let destination = opened(stage, staging, base)?;
        let whole = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
        Ok(Destination {
            place: shown(&whole, wish),
            names_standing: true,
            expected: self.expected.clone(),
            ..destination
        })
    }
}

/// The destination of a dry run.
fn planned(base: String) -> Destination {
    let fleeting = Destination::fleeting(Arc::new(VoidTarget), Landing::beneath(), base);
    Destination { is_whole: true, ..fleeting }
}

/// The refusal of a dataset on a target set.
pub(super) fn no_set() -> Fault {
    let why = "a dataset cannot appear at once on a target set: its files lie on several file systems";
    Fault::new(FaultCode::Usage, Blame::Local, why)
}

/// The path of a dataset in a directory, for people.
pub(super) fn shown(dir: &Path, wish: &DatasetWish) -> String {
    let dir = Escaped(dir.as_os_str().as_encoded_bytes()).to_string();
    format!("{}/{}", dir.trim_end_matches('/'), wish.name.escaped())
}

/// An earlier session of the same run lets go of what it staged within this.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
