//! Campaigns of this user: the queue, what a campaign says of its transfers, its manifests, and the
//! mover.
//!
//! `spec` has the form in which a campaign keeps its transfers, `signing` and `owners` are whose
//! campaigns they are, `families` are those that one name stands for, `queue` opens the queue, in a
//! file or in a database, `shelf` knows where manifests lie and reads the files of a shard from
//! them, `plan` cuts manifests into shards, `parts` writes lists for movers without a queue,
//! `mover` moves shards, `discard` removes what a cancelled campaign has staged, `verify` reads
//! back what was delivered, against the digests of `records`, `hooks` are what this host runs or
//! calls for campaigns. In: what `commands` were asked for. Out: rows of the queue, and transfers
//! of the engine. Must not know the command line, nor how anything is told.

pub mod discard;
pub mod families;
mod faults;
pub mod hooks;
pub mod mover;
pub mod owners;
pub mod parts;
pub mod plan;
pub mod queue;
pub mod records;
pub mod shelf;
pub mod signing;
pub mod spec;
pub mod verify;

pub use discard::{Discarded, discard_staged, page_of};
pub use families::{campaigns_named, family_of, member_key, member_name, members, name_clash, refuse_number};
pub use faults::{fault_of_jobs, fault_of_manifest, fault_of_postgres, fault_of_sqlite};
pub use hooks::{Hook, HookFailure, HookMeans, HookUrl, Hooks};
pub use mover::{KeyRing, LocalGround, Mover, MoverEnd, MoverObserver, MoverOrders, ShardEnd};
pub use owners::{Owners, Refusal, Unsigned};
pub use queue::{QueuePlace, QueueStore, SharedQueue, is_drained};
pub use shelf::Shelf;
pub use signing::{Signed, sign_campaign, sign_plan, signed};
pub use spec::{CampaignKeys, CampaignPlace, CampaignSource, CampaignSpec, ShardBounds};
pub use verify::{
    AbsenceUse, BadNews, ChangedUse, MendOrders, MendedFile, ShardRead, Verifier, VerifyEnd, VerifyObserver,
    VerifyOrders, VerifyUntil,
};
