//! The queue of bulk replication: campaigns, cut into shards, which movers claim, move and settle.
//!
//! Pure: it decides, and never does. No clock, file, socket, thread or database: time, random bytes
//! and rows are arguments. Its rules are written once, over the rows of one transaction
//! ([`Rows`]); a backend is a [`Store`] that keeps those rows, and [`Memory`] is the one for tests.
//!
//! In: what users ask for, what movers report, what a destination kept. Out: shards to move, and
//! what is left. Must not know how anything is moved, nor where manifests lie.

pub mod alike;
pub mod calendar;
pub mod codes;
pub mod columns;
pub mod error;
pub mod gate;
pub mod ids;
pub mod left;
pub mod memory;
pub mod pace;
pub mod plan;
pub mod queue;
pub mod retry;
pub mod rows;
pub mod store;
pub mod tenure;

pub use alike::AlikeWatch;
pub use calendar::{Allowance, Calendar, CalendarError};
pub use error::JobsError;
pub use gate::{Gate, GateAction, Kept};
pub use ids::{
    Amount, CampaignId, CampaignKey, Claim, ClaimId, Due, Fence, LinkId, Micros, MoverId, QueueId, SessionId, ShardId,
    SiteId,
};
pub use left::{FaultLeft, Left, LinkLeft, TimeLeft};
pub use memory::Memory;
pub use pace::{Pace, pace};
pub use plan::{Cut, PlanLimits, Planner};
pub use retry::{RetryError, RetryRules, Treatment, treatment};
pub use rows::{
    BackOff, BadFile, BadKind, Campaign, CampaignSignature, CampaignState, Delivery, FailedFile, FaultState, Hold,
    HookError, HookKey, HookWish, HookWishes, Leader, Lease, Link, LinkState, LinkWait, ManifestSignature, Meter,
    Notice, NoticeEvent, NoticeKind, NoticeShard, OmittedName, Part, Permit, PermitPlace, Priority, Segment, Shard,
    ShardKind, ShardNews, ShardState, ShardTurn, Site, Tries, UnlistedBad, Verification, Weight,
};
pub use store::{BadSum, FaultSum, Rows, ShardSum, Store, VerificationRows, VerificationSums};
pub use tenure::Tenure;
