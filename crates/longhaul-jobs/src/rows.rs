//! The rows of the queue, as a store keeps them.
//!
//! In: what the rules decide. Out: plain data with the questions that one row alone can answer.
//! Must not know other rows, nor the form in which a store writes them down.

use std::num::NonZero;

use longhaul_core::{Blame, FaultCode, Hash32, PlainText};

use crate::calendar::Calendar;
use crate::ids::{Amount, CampaignId, CampaignKey, Claim, LinkId, Micros, MoverId, ShardId, SiteId};
use crate::retry::RetryRules;

mod link;
mod notice;
mod shard;
mod signature;
pub use link::{BackOff, Link, LinkState, LinkWait, MISMATCHES_MAX, Meter};
pub use notice::{Delivery, HookError, HookKey, HookWish, HookWishes, Notice, NoticeEvent, NoticeKind, NoticeShard};
pub use signature::{CampaignSignature, ManifestSignature};
mod verification;
pub use verification::{BadFile, BadKind, UnlistedBad, Verification};

/// A campaign: sources, destinations and the rules by which its shards are moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// Its number.
    pub id: CampaignId,
    /// Its name at destinations, which keep the claims of its shards by it.
    pub key: CampaignKey,
    /// Its name, which no other campaign has.
    pub name: String,
    /// How far it is.
    pub state: CampaignState,
    /// Campaigns of a higher one go first.
    pub priority: Priority,
    /// Its share among campaigns of one priority.
    pub weight: Weight,
    /// The time at which it should be done. `None` if there is none.
    pub deadline: Option<Micros>,
    /// When it may move, and how fast on each link.
    pub calendar: Calendar,
    /// How often files are tried.
    pub retry: RetryRules,
    /// Sources, destinations, filters and rules of its transfers, in a form that movers know.
    pub spec: Vec<u8>,
    /// Names of its sources that could not be read when it was planned, and so are in no shard.
    pub omitted: u64,
    /// The hooks that are told of it.
    pub hooks: HookWishes,
}

/// A name of a source that could not be read when a campaign was planned. Of many such names the
/// first are kept, and all are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmittedName {
    /// Its campaign.
    pub campaign: CampaignId,
    /// The number of its source in the campaign.
    pub source: u64,
    /// The name, as the fault tells it.
    pub object: PlainText,
    /// The fault.
    pub code: FaultCode,
    /// The words of it.
    pub message: PlainText,
}

/// How far a campaign is.
///
/// ```text
/// (new)      it is added                     Planning
/// Planning   its last segment is planned     Running
/// Running    its last shard is settled       Done
/// Running    a user holds it                 Held
/// Held       a user releases it              Running
/// Done       a user has faults tried again   Running
/// Planning   a user cancels it               Cancelled
/// Running    a user cancels it               Cancelled
/// Held       a user cancels it               Cancelled
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CampaignState {
    /// Its shards are being cut, and none is moved yet.
    Planning,
    /// Its shards are moved.
    Running,
    /// It stands still until a user releases it.
    Held,
    /// All of its shards are settled.
    Done,
    /// It will not go on.
    Cancelled,
}

/// The urgency of a campaign, from 0 to 9; more is earlier. The default is 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(u8);

/// The share of a campaign, from 1 to 1000. The default is 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZero<u16>);

/// A sealed part of a campaign's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its campaign.
    pub campaign: CampaignId,
    /// Its number in the manifest, from 0.
    pub number: u64,
    /// The digest that names it.
    pub digest: Hash32,
    /// Its entries.
    pub total: Amount,
}

/// A site: hosts whose disks or border are one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its number.
    pub id: SiteId,
    /// Its name.
    pub name: String,
    /// Movers that may write to it at a time.
    pub movers_in: u32,
    /// Movers that may read from it at a time.
    pub movers_out: u32,
}

/// A part of a campaign that one mover claims at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number.
    pub id: ShardId,
    /// Its campaign.
    pub campaign: CampaignId,
    /// The link over which it goes.
    pub link: LinkId,
    /// Its entries.
    pub part: Part,
    /// Its files, and their bytes by the manifest.
    pub total: Amount,
    /// The part of them that is known to stand at the destination.
    pub done: Amount,
    /// The part of them that was given up. Each has a row of its own.
    pub failed: Amount,
    /// How far it is.
    pub state: ShardState,
    /// Its turn.
    pub turn: ShardTurn,
    /// How often it was begun.
    pub tries: Tries,
    /// The last claim that was given out.
    pub claim: Claim,
    /// The news of it.
    pub news: ShardNews,
}

/// The turn of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardTurn {
    /// Its place among the shards that are ready: the lowest is next.
    pub rank: u64,
    /// It is not scheduled before this time.
    pub not_before: Micros,
}

/// The news of a shard from its mover and from users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardNews {
    /// Bytes that became durable in the last claim, those of files that are not whole yet included.
    /// Of a commit: bytes that were read in the claim that came farthest.
    pub moved: u64,
    /// A user released it though its files fail alike: it is not held for that again.
    pub judged: bool,
    /// Its last mover showed no claim: the destination keeps none.
    pub unclaimed: bool,
}

/// The entries of a shard, in its campaign's manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The segment.
    pub segment: u64,
    /// The first entry, from 0.
    pub first: u64,
    /// The entry behind the last one.
    pub end: u64,
}

/// How often a shard was begun in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Times that it went through and left files to be tried again.
    pub again: u32,
    /// Leases that lapsed, and sessions that failed on a link that was well, since something was
    /// heard of its progress.
    pub lapses: u32,
    /// Sessions that failed after they had begun, on whatever link, since then.
    pub breaks: u32,
}

/// How far a shard is, and who may say so: the planner (P), the leader (L), the mover of its claim
/// (M), or a user (U). The model holds the queue to this table, and fails if a row is never taken.
///
/// ```text
/// (new)    P  it is cut                                             Planned
/// (new)    P  it is the commit of a campaign                        Held
/// Planned  L  its turn has come                                     Ready
/// Planned  U  its campaign is cancelled                             Cancelled
/// Ready    M  it is claimed                                         Leased
/// Ready    M  its fence cannot grow any more                        Held
/// Ready    U  its campaign is held                                  Planned
/// Ready    U  its campaign is cancelled                             Cancelled
/// Leased   M  a heartbeat                                           Leased
/// Leased   M  it is through, and all of it stands                   Done
/// Leased   M  it is through, and some files are given up            Partial
/// Leased   LM its link failed, its lease has lapsed, or it goes on  Planned
/// Leased   LM it cannot go on without a user                        Held
/// Leased   LM it ends after its campaign was cancelled              Cancelled
/// Held     U  it is released                                        Planned
/// Held     ML it is a commit, and the last other shard is done      Planned
/// Held     U  its campaign is cancelled                             Cancelled
/// Partial  U  its faults are tried again                            Planned
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardState {
    /// It waits for its turn.
    Planned,
    /// It may be claimed.
    Ready,
    /// A mover has it.
    Leased(Lease),
    /// All of its files stand at the destination.
    Done,
    /// Its files stand or were given up.
    Partial,
    /// It waits until a user releases it.
    Held(Hold),
    /// It will not be moved.
    Cancelled,
}

/// A mover's hold on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The mover.
    pub mover: MoverId,
    /// Its end, unless a heartbeat comes before.
    pub until: Micros,
}

/// The reason why a shard waits for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Its files fail alike.
    Alike {
        /// The fault.
        code: FaultCode,
        /// Files that failed so.
        alike: u64,
        /// Files that were settled by then.
        of: u64,
    },
    /// Its session failed in a way that no later try mends.
    Broken(FaultCode),
    /// Movers that had it were not heard of again, so many times.
    Lapsed(u32),
    /// Its fence cannot grow any more.
    FenceSpent,
    /// It is the commit of its campaign, which is let go once every other shard is done.
    AwaitsShards,
}

/// The kind of a shard's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardKind {
    /// [`ShardState::Planned`].
    Planned,
    /// [`ShardState::Ready`].
    Ready,
    /// [`ShardState::Leased`].
    Leased,
    /// [`ShardState::Done`].
    Done,
    /// [`ShardState::Partial`].
    Partial,
    /// [`ShardState::Held`].
    Held,
    /// [`ShardState::Cancelled`].
    Cancelled,
}

/// A file that failed. Files that stand have no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedFile {
    /// Its campaign.
    pub campaign: CampaignId,
    /// Its shard.
    pub shard: ShardId,
    /// Its path in the manifest: bytes.
    pub path: Vec<u8>,
    /// Its size by the manifest.
    pub bytes: u64,
    /// The fault of its last try.
    pub code: FaultCode,
    /// Whose failure that was.
    pub blame: Blame,
    /// The words of it.
    pub message: PlainText,
    /// Whether it is tried again.
    pub state: FaultState,
    /// Its tries.
    pub tries: u32,
    /// The time of the first fault.
    pub first: Micros,
    /// The time of the last fault.
    pub last: Micros,
}

/// Whether a file that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultState {
    /// It is, with its shard.
    Waiting,
    /// It is not, until a user asks for that.
    GivenUp,
}

/// The right of one claim to be one of the movers at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The place.
    pub place: PermitPlace,
    /// Its number among the permits of the place, from 0.
    pub slot: u32,
    /// The shard.
    pub shard: ShardId,
    /// The claim of the shard.
    pub claim: Claim,
    /// The end of the claim's lease. The permit is free from then on.
    pub until: Micros,
}

/// A place whose movers are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PermitPlace {
    /// A link.
    Link(LinkId),
    /// Reading from a site.
    From(SiteId),
    /// Writing to a site.
    To(SiteId),
}

/// The one process that schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Grows with each change of the leader.
    pub term: u64,
    /// The process that leads.
    pub holder: MoverId,
    /// The end of its lease.
    pub until: Micros,
}

impl CampaignState {
    /// All states.
    pub const ALL: [CampaignState; 5] = [
        CampaignState::Planning,
        CampaignState::Running,
        CampaignState::Held,
        CampaignState::Done,
        CampaignState::Cancelled,
    ];

    /// The name that people see.
    pub const fn name(self) -> &'static str {
        match self {
            CampaignState::Planning => "planning",
            CampaignState::Running => "running",
            CampaignState::Held => "held",
            CampaignState::Done => "done",
            CampaignState::Cancelled => "cancelled",
        }
    }
}

impl Priority {
    /// A priority from 0 to 9.
    pub const fn new(value: u8) -> Option<Priority> {
        if value <= 9 { Some(Priority(value)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Priority {
        Priority(5)
    }
}

impl Weight {
    /// A weight from 1 to 1000.
    pub const fn new(value: u16) -> Option<Weight> {
        match NonZero::new(value) {
            Some(value) if value.get() <= 1000 => Some(Weight(value)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The part of the campaign's share that so many bytes use up, rounded up: a shard without
    /// bytes uses something too.
    pub const fn share_of(self, bytes: u64) -> u64 {
        bytes / self.0.get() as u64 + 1
    }
}

impl Default for Weight {
    fn default() -> Weight {
        Weight(NonZero::new(100).unwrap_or(NonZero::<u16>::MIN))
    }
}

impl ShardState {
    /// Its kind.
    pub const fn kind(self) -> ShardKind {
        match self {
            ShardState::Planned => ShardKind::Planned,
            ShardState::Ready => ShardKind::Ready,
            ShardState::Leased(_) => ShardKind::Leased,
            ShardState::Done => ShardKind::Done,
            ShardState::Partial => ShardKind::Partial,
            ShardState::Held(_) => ShardKind::Held,
            ShardState::Cancelled => ShardKind::Cancelled,
        }
    }
}

impl ShardKind {
    /// All kinds.
    pub const ALL: [ShardKind; 7] = [
        ShardKind::Planned,
        ShardKind::Ready,
        ShardKind::Leased,
        ShardKind::Done,
        ShardKind::Partial,
        ShardKind::Held,
        ShardKind::Cancelled,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            ShardKind::Planned => "planned",
            ShardKind::Ready => "ready",
            ShardKind::Leased => "leased",
            ShardKind::Done => "done",
            ShardKind::Partial => "partial",
            ShardKind::Held => "held",
            ShardKind::Cancelled => "cancelled",
        }
    }

    /// Whether nothing of the shard is left to be done.
    pub const fn is_settled(self) -> bool {
        matches!(self, ShardKind::Done | ShardKind::Partial | ShardKind::Cancelled)
    }
}
