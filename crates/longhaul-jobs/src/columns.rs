//! Columns of rows, as every database keeps them, and the types that they stand for.
//!
//! In: values of the rules, and cells that a backend read. Out: the other. A row that nothing here
//! wrote is an error and no panic. `verification` has those about delivered files. Must not know
//! statements, nor a database.

mod verification;

pub use verification::{columns_of_unlisted, number_of_bad_kind};

use longhaul_core::{Blame, FaultCode, PlainText};

use crate::codes::code_of_name;
use crate::error::JobsError;
use crate::ids::{
    Amount, CampaignId, CampaignKey, Claim, ClaimId, Fence, LinkId, Micros, MoverId, QueueId, ShardId, SiteId,
};
use crate::rows::{
    BackOff, Campaign, CampaignSignature, CampaignState, Delivery, FailedFile, FaultState, Hold, HookKey, Leader,
    Lease, Link, LinkState, ManifestSignature, Meter, Notice, NoticeEvent, NoticeKind, NoticeShard, OmittedName, Part,
    Permit, PermitPlace, Priority, Segment, Shard, ShardKind, ShardNews, ShardState, ShardTurn, Site, Tries, Weight,
};
use crate::store::{FaultSum, ShardSum};

/// The cells of a row that a backend read, from left to right. `None` stands for a cell without a
/// value; a cell of another type is a [`JobsError::BadRow`].
pub trait Cells {
    /// The next cell, a number.
    fn number(&mut self) -> Result<Option<i64>, JobsError>;
    /// The next cell, bytes.
    fn bytes(&mut self) -> Result<Option<Vec<u8>>, JobsError>;
    /// The next cell, text.
    fn text(&mut self) -> Result<Option<String>, JobsError>;
}

/// The error of a cell of another type.
pub const OTHER_TYPE: JobsError = JobsError::BadRow("a column has another type");
const NO_VALUE: JobsError = JobsError::BadRow("a column has no value");

/// The columns of a row, read from left to right.
pub struct Columns<'a>(&'a mut dyn Cells);

type Read<T> = Result<T, JobsError>;

impl<'a> Columns<'a> {
    /// The columns of a row, from the first one on.
    pub fn of(cells: &'a mut dyn Cells) -> Columns<'a> {
        Columns(cells)
    }

    /// A number that is not negative.
    pub fn count(&mut self) -> Read<u64> {
        self.maybe_count()?.ok_or(NO_VALUE)
    }

    fn small(&mut self) -> Read<u32> {
        u32::try_from(self.count()?).map_err(|_| JobsError::BadRow("a number is out of bounds"))
    }

    fn maybe_count(&mut self) -> Read<Option<u64>> {
        let number = self.0.number()?.map(u64::try_from).transpose();
        number.map_err(|_| JobsError::BadRow("a number is negative"))
    }

    fn text(&mut self) -> Read<String> {
        self.0.text()?.ok_or(NO_VALUE)
    }

    fn long(&mut self) -> Read<Vec<u8>> {
        self.0.bytes()?.ok_or(NO_VALUE)
    }

    fn bytes<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.maybe_bytes()?.ok_or(NO_VALUE)
    }

    fn maybe_bytes<const N: usize>(&mut self) -> Read<Option<[u8; N]>> {
        let bytes = self.0.bytes()?.map(<[u8; N]>::try_from).transpose();
        bytes.map_err(|_| JobsError::BadRow("bytes have another length"))
    }

    /// Files, and then bytes.
    pub fn amount(&mut self) -> Read<Amount> {
        Ok(Amount { files: self.count()?, bytes: self.count()? })
    }

    fn micros(&mut self) -> Read<Micros> {
        Ok(Micros(self.count()?))
    }

    fn claim(&mut self) -> Read<Claim> {
        Ok(Claim { fence: Fence(self.count()?), id: ClaimId(self.bytes()?) })
    }

    /// A fault by its name.
    pub fn code(&mut self) -> Read<FaultCode> {
        code_of_name(&self.text()?).ok_or(JobsError::BadRow("there is no such fault"))
    }

    /// The state of a failed file, as [`number_of_fault_state`] writes it.
    pub fn fault_state(&mut self) -> Read<FaultState> {
        match self.small()? {
            0 => Ok(FaultState::Waiting),
            1 => Ok(FaultState::GivenUp),
            _ => Err(JobsError::BadRow("there is no such state of a failed file")),
        }
    }

    /// The kind of a shard, as [`number_of_kind`] writes it.
    pub fn kind(&mut self) -> Read<ShardKind> {
        let number = self.small()?;
        let kind = ShardKind::ALL.into_iter().find(|kind| i64::from(number) == number_of_kind(*kind));
        kind.ok_or(JobsError::BadRow("there is no such state of a shard"))
    }

    /// A row of `campaign`.
    pub fn campaign(&mut self) -> Read<Campaign> {
        let bad = JobsError::BadRow;
        Ok(Campaign {
            id: CampaignId(self.count()?),
            key: CampaignKey(self.bytes()?),
            name: self.text()?,
            state: campaign_state(self.small()?).ok_or(bad("there is no such state of a campaign"))?,
            priority: u8::try_from(self.small()?).ok().and_then(Priority::new).ok_or(bad("a priority is over 9"))?,
            weight: u16::try_from(self.small()?).ok().and_then(Weight::new).ok_or(bad("a weight is over 1000"))?,
            deadline: self.maybe_count()?.map(Micros),
            calendar: self.text()?.parse().map_err(|_| bad("a calendar is none"))?,
            retry: self.text()?.parse().map_err(|_| bad("retry rules are none"))?,
            spec: self.long()?,
            omitted: self.count()?,
            hooks: self.text()?.parse().map_err(|_| bad("hooks are none"))?,
        })
    }

    /// A row of `signature`.
    pub fn signature(&mut self) -> Read<CampaignSignature> {
        let (campaign, owner, at) = (CampaignId(self.count()?), self.bytes()?, self.micros()?);
        let (spec, roots, manifest) = (self.bytes()?, self.0.bytes()?, self.maybe_bytes()?);
        let manifest = match (roots, manifest) {
            (None, None) => None,
            (Some(roots), Some(signature)) => {
                let (whole, rest) = roots.as_chunks::<32>();
                if !rest.is_empty() {
                    return Err(JobsError::BadRow("digests of manifests are cut off"));
                }
                Some(ManifestSignature { roots: whole.to_vec(), signature })
            }
            _ => return Err(JobsError::BadRow("the signature of manifests is one half")),
        };
        Ok(CampaignSignature { campaign, owner, at, spec, manifest })
    }

    /// The id of a queue.
    pub fn queue_id(&mut self) -> Read<QueueId> {
        Ok(QueueId(self.bytes()?))
    }

    /// A row of `omitted`.
    pub fn omitted(&mut self) -> Read<OmittedName> {
        Ok(OmittedName {
            campaign: CampaignId(self.count()?),
            source: self.count()?,
            object: PlainText::from(self.text()?),
            code: self.code()?,
            message: PlainText::from(self.text()?),
        })
    }

    /// A row of `segment`.
    pub fn segment(&mut self) -> Read<Segment> {
        let campaign = CampaignId(self.count()?);
        Ok(Segment { campaign, number: self.count()?, digest: self.bytes()?, total: self.amount()? })
    }

    /// A row of `site`.
    pub fn site(&mut self) -> Read<Site> {
        let (id, name) = (SiteId(self.count()?), self.text()?);
        Ok(Site { id, name, movers_in: self.small()?, movers_out: self.small()? })
    }

    /// A row of `link`.
    pub fn link(&mut self) -> Read<Link> {
        Ok(Link {
            id: LinkId(self.count()?),
            from: SiteId(self.count()?),
            to: SiteId(self.count()?),
            movers: self.small()?,
            rate: self.maybe_count()?,
            calendar: self.text()?.parse().map_err(|_| JobsError::BadRow("a calendar is none"))?,
            state: self.link_state()?,
            back_off: BackOff { failures: self.small()?, until: self.micros()? },
            mismatches: self.small()?,
            meter: Meter { since: self.micros()?, bytes: self.count()?, rate: self.count()? },
        })
    }

    fn link_state(&mut self) -> Read<LinkState> {
        let (number, reason) = (self.small()?, self.0.text()?);
        let reason = reason.map(|name| code_of_name(&name).ok_or(JobsError::BadRow("there is no such fault")));
        match number {
            0 => Ok(LinkState::Open),
            1 => Ok(LinkState::Drain),
            2 => Ok(LinkState::Closed(reason.transpose()?)),
            _ => Err(JobsError::BadRow("there is no such state of a link")),
        }
    }

    /// A row of `shard`.
    pub fn shard(&mut self) -> Read<Shard> {
        Ok(Shard {
            id: ShardId(self.count()?),
            campaign: CampaignId(self.count()?),
            link: LinkId(self.count()?),
            part: Part { segment: self.count()?, first: self.count()?, end: self.count()? },
            total: self.amount()?,
            done: self.amount()?,
            failed: self.amount()?,
            state: self.shard_state()?,
            turn: ShardTurn { rank: self.count()?, not_before: self.micros()? },
            tries: Tries { again: self.small()?, lapses: self.small()?, breaks: self.small()? },
            claim: self.claim()?,
            news: ShardNews { moved: self.count()?, judged: self.count()? != 0, unclaimed: self.count()? != 0 },
        })
    }

    fn shard_state(&mut self) -> Read<ShardState> {
        let kind = self.kind()?;
        let (mover, until) = (self.maybe_bytes()?, self.maybe_count()?);
        let hold = self.0.text()?;
        match (kind, mover, until, hold) {
            (ShardKind::Planned, ..) => Ok(ShardState::Planned),
            (ShardKind::Ready, ..) => Ok(ShardState::Ready),
            (ShardKind::Done, ..) => Ok(ShardState::Done),
            (ShardKind::Partial, ..) => Ok(ShardState::Partial),
            (ShardKind::Cancelled, ..) => Ok(ShardState::Cancelled),
            (ShardKind::Leased, Some(mover), Some(until), _) => {
                Ok(ShardState::Leased(Lease { mover: MoverId(mover), until: Micros(until) }))
            }
            (ShardKind::Held, _, _, Some(text)) => {
                hold_of_text(&text).map(ShardState::Held).ok_or(JobsError::BadRow("there is no such hold"))
            }
            (ShardKind::Leased | ShardKind::Held, ..) => Err(JobsError::BadRow("a lease or a hold is missing")),
        }
    }

    /// Sums over the shards of one kind on one link.
    pub fn shard_sum(&mut self) -> Read<ShardSum> {
        let (link, kind, shards) = (LinkId(self.count()?), self.kind()?, self.count()?);
        let (total, done, failed) = (self.amount()?, self.amount()?, self.amount()?);
        Ok(ShardSum { link, kind, shards, total, done, failed, unclaimed: self.count()? })
    }

    /// Sums over the failed files with one fault.
    pub fn fault_sum(&mut self) -> Read<FaultSum> {
        Ok(FaultSum { code: self.code()?, state: self.fault_state()?, amount: self.amount()? })
    }

    /// A row of `permit`.
    pub fn permit(&mut self) -> Read<Permit> {
        let (kind, place) = (self.small()?, self.count()?);
        let place = match kind {
            0 => PermitPlace::Link(LinkId(place)),
            1 => PermitPlace::From(SiteId(place)),
            2 => PermitPlace::To(SiteId(place)),
            _ => return Err(JobsError::BadRow("there is no such place of a permit")),
        };
        let (slot, shard) = (self.small()?, ShardId(self.count()?));
        Ok(Permit { place, slot, shard, claim: self.claim()?, until: self.micros()? })
    }

    /// A row of `fault`.
    pub fn fault(&mut self) -> Read<FailedFile> {
        let (shard, path) = (ShardId(self.count()?), self.long()?);
        Ok(FailedFile {
            shard,
            path,
            campaign: CampaignId(self.count()?),
            bytes: self.count()?,
            code: self.code()?,
            blame: blame_of_name(&self.text()?).ok_or(JobsError::BadRow("there is no such blame"))?,
            message: PlainText::from(self.text()?),
            state: self.fault_state()?,
            tries: self.small()?,
            first: self.micros()?,
            last: self.micros()?,
        })
    }

    /// A row of `notice`.
    pub fn notice(&mut self) -> Read<Notice> {
        Ok(Notice {
            number: self.count()?,
            hook: HookKey::new(&self.text()?).ok_or(JobsError::BadRow("a hook has no key"))?,
            campaign: CampaignId(self.count()?),
            event: self.notice_event()?,
            delivery: Delivery {
                given_up: self.count()? != 0,
                tries: self.small()?,
                not_before: self.micros()?,
                taker: ClaimId(self.bytes()?),
                failure: self.0.text()?.map(PlainText::from),
            },
        })
    }

    fn notice_event(&mut self) -> Read<NoticeEvent> {
        let kind = NoticeKind::ALL.get(self.small()? as usize).copied();
        let kind = kind.ok_or(JobsError::BadRow("there is no such event"))?;
        let (shard, link, fence) = (self.maybe_count()?, self.maybe_count()?, self.maybe_count()?);
        let shard = match (shard, link, fence) {
            (Some(id), Some(link), Some(fence)) => {
                Some(NoticeShard { id: ShardId(id), link: LinkId(link), fence: Fence(fence) })
            }
            _ => None,
        };
        Ok(NoticeEvent {
            kind,
            shard,
            state: PlainText::from(state_of_notice(kind, &self.text()?)?),
            total: self.amount()?,
            done: self.amount()?,
            failed: self.amount()?,
            code: self
                .0
                .text()?
                .map(|name| code_of_name(&name).ok_or(JobsError::BadRow("there is no such fault")))
                .transpose()?,
            at: self.micros()?,
        })
    }

    /// The row of `leader`, without its number.
    pub fn leader(&mut self) -> Read<Leader> {
        let (term, holder) = (self.count()?, MoverId(self.bytes()?));
        Ok(Leader { term, holder, until: self.micros()? })
    }
}

/// A number as every backend keeps it.
///
/// # Errors
/// [`JobsError::TooMuch`] if none can keep it.
pub fn number(value: u64) -> Result<i64, JobsError> {
    i64::try_from(value).map_err(|_| JobsError::TooMuch("numbers of a row"))
}

/// Part of the schema, whose indexes name them: the number of a kind of shard.
pub const fn number_of_kind(kind: ShardKind) -> i64 {
    match kind {
        ShardKind::Planned => 0,
        ShardKind::Ready => 1,
        ShardKind::Leased => 2,
        ShardKind::Done => 3,
        ShardKind::Partial => 4,
        ShardKind::Held => 5,
        ShardKind::Cancelled => 6,
    }
}

/// Part of the schema: the number of a state of a campaign.
pub const fn number_of_campaign_state(state: CampaignState) -> i64 {
    match state {
        CampaignState::Planning => 0,
        CampaignState::Running => 1,
        CampaignState::Held => 2,
        CampaignState::Done => 3,
        CampaignState::Cancelled => 4,
    }
}

fn campaign_state(number: u32) -> Option<CampaignState> {
    let states = [
        CampaignState::Planning,
        CampaignState::Running,
        CampaignState::Held,
        CampaignState::Done,
        CampaignState::Cancelled,
    ];
    states.into_iter().find(|state| number_of_campaign_state(*state) == i64::from(number))
}

/// The columns `state` and `reason` of a link.
pub const fn columns_of_link_state(state: LinkState) -> (i64, Option<&'static str>) {
    match state {
        LinkState::Open => (0, None),
        LinkState::Drain => (1, None),
        LinkState::Closed(None) => (2, None),
        LinkState::Closed(Some(code)) => (2, Some(code.name())),
    }
}

/// The columns `kind` and `place` of a permit.
pub const fn columns_of_place(place: PermitPlace) -> (i64, u64) {
    match place {
        PermitPlace::Link(id) => (0, id.0),
        PermitPlace::From(id) => (1, id.0),
        PermitPlace::To(id) => (2, id.0),
    }
}

/// The column `given_up` of a failed file.
pub const fn number_of_fault_state(state: FaultState) -> i64 {
    match state {
        FaultState::Waiting => 0,
        FaultState::GivenUp => 1,
    }
}

/// The name of a state to which a shard or a campaign came. Hooks are given no other text that
/// somebody wrote there.
fn state_of_notice(kind: NoticeKind, text: &str) -> Read<&'static str> {
    let of_shards = ShardKind::ALL.map(ShardKind::name);
    let of_campaigns = CampaignState::ALL.map(CampaignState::name);
    let mut known = match kind {
        NoticeKind::Shard | NoticeKind::Fault => of_shards.iter(),
        NoticeKind::Campaign => of_campaigns.iter(),
    };
    known.find(|name| **name == text).copied().ok_or(JobsError::BadRow("an event has no such state"))
}

/// The column `kind` of a notice: its place among all kinds.
pub const fn number_of_notice(kind: NoticeKind) -> i64 {
    match kind {
        NoticeKind::Shard => 0,
        NoticeKind::Campaign => 1,
        NoticeKind::Fault => 2,
    }
}

/// The column `roots` of a signature.
pub fn bytes_of_roots(signature: &ManifestSignature) -> Vec<u8> {
    signature.roots.concat()
}

/// Campaigns that are passed over, as a text that databases read: their numbers, with commas
/// between them.
pub fn text_of_campaigns(campaigns: &[CampaignId]) -> String {
    campaigns.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",")
}

/// The column `hold` of a shard.
pub fn text_of_hold(hold: Hold) -> String {
    match hold {
        Hold::Alike { code, alike, of } => format!("alike {} {alike} {of}", code.name()),
        Hold::Broken(code) => format!("broken {}", code.name()),
        Hold::Lapsed(times) => format!("lapsed {times}"),
        Hold::FenceSpent => "fence-spent".to_owned(),
        Hold::AwaitsShards => "awaits-shards".to_owned(),
    }
}

fn hold_of_text(text: &str) -> Option<Hold> {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["alike", code, alike, of] => {
            Some(Hold::Alike { code: code_of_name(code)?, alike: alike.parse().ok()?, of: of.parse().ok()? })
        }
        ["broken", code] => Some(Hold::Broken(code_of_name(code)?)),
        ["lapsed", times] => Some(Hold::Lapsed(times.parse().ok()?)),
        ["fence-spent"] => Some(Hold::FenceSpent),
        ["awaits-shards"] => Some(Hold::AwaitsShards),
        _ => None,
    }
}

fn blame_of_name(name: &str) -> Option<Blame> {
    [Blame::Local, Blame::Peer, Blame::Path, Blame::Bug].into_iter().find(|blame| blame.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_name_of_a_state_and_no_other_text() {
        assert_eq!(state_of_notice(NoticeKind::Shard, "partial").unwrap(), "partial");
        assert_eq!(state_of_notice(NoticeKind::Campaign, "cancelled").unwrap(), "cancelled");
        for (kind, text) in [
            (NoticeKind::Campaign, "partial"),
            (NoticeKind::Fault, "running"),
            (NoticeKind::Shard, "$(reboot)"),
            (NoticeKind::Shard, ""),
        ] {
            assert!(matches!(state_of_notice(kind, text), Err(JobsError::BadRow(_))), "{text}");
        }
    }
}
