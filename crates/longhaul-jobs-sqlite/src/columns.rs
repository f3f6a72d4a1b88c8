//! Columns of rows, and the types that they stand for.
//!
//! In: values of the rules, and rows of SQLite. Out: the other. A row that nothing here wrote is an
//! error and no panic. Must not know statements.

use longhaul_core::{Blame, FaultCode, PlainText};
use longhaul_jobs::codes::code_of_name;
use longhaul_jobs::{
    Amount, BackOff, Campaign, CampaignId, CampaignKey, CampaignState, Claim, ClaimId, FailedFile, FaultState, Fence,
    Hold, JobsError, Lease, Link, LinkId, LinkState, Meter, Micros, MoverId, OmittedName, Part, Permit, PermitPlace,
    Priority, Segment, Shard, ShardId, ShardKind, ShardNews, ShardState, ShardTurn, Site, SiteId, Tries, Weight,
};
use rusqlite::Row;
use rusqlite::types::FromSql;

/// The columns of a row, read from left to right.
pub(crate) struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

type Read<T> = Result<T, JobsError>;

impl<'a> Columns<'a> {
    /// The columns of a row, from the first one on.
    pub(crate) fn of(row: &'a Row<'a>) -> Columns<'a> {
        Columns { row, next: 0 }
    }

    fn get<T: FromSql>(&mut self) -> Read<T> {
        self.next += 1;
        self.row.get(self.next - 1).map_err(|_| JobsError::BadRow("a column has another type"))
    }

    /// A number that is not negative.
    pub(crate) fn count(&mut self) -> Read<u64> {
        u64::try_from(self.get::<i64>()?).map_err(|_| JobsError::BadRow("a number is negative"))
    }

    fn small(&mut self) -> Read<u32> {
        u32::try_from(self.get::<i64>()?).map_err(|_| JobsError::BadRow("a number is out of bounds"))
    }

    fn maybe_count(&mut self) -> Read<Option<u64>> {
        let number = self.get::<Option<i64>>()?.map(u64::try_from).transpose();
        number.map_err(|_| JobsError::BadRow("a number is negative"))
    }

    fn bytes<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.get::<[u8; N]>()
    }

    /// Files, and then bytes.
    pub(crate) fn amount(&mut self) -> Read<Amount> {
        Ok(Amount { files: self.count()?, bytes: self.count()? })
    }

    fn micros(&mut self) -> Read<Micros> {
        Ok(Micros(self.count()?))
    }

    fn claim(&mut self) -> Read<Claim> {
        Ok(Claim { fence: Fence(self.count()?), id: ClaimId(self.bytes()?) })
    }

    /// A fault by its name.
    pub(crate) fn code(&mut self) -> Read<FaultCode> {
        code_of_name(&self.get::<String>()?).ok_or(JobsError::BadRow("there is no such fault"))
    }

    /// The state of a failed file, as [`number_of_fault_state`] writes it.
    pub(crate) fn fault_state(&mut self) -> Read<FaultState> {
        match self.small()? {
            0 => Ok(FaultState::Waiting),
            1 => Ok(FaultState::GivenUp),
            _ => Err(JobsError::BadRow("there is no such state of a failed file")),
        }
    }

    /// The kind of a shard, as [`number_of_kind`] writes it.
    pub(crate) fn kind(&mut self) -> Read<ShardKind> {
        let number = self.small()?;
        let kind = ShardKind::ALL.into_iter().find(|kind| i64::from(number) == number_of_kind(*kind));
        kind.ok_or(JobsError::BadRow("there is no such state of a shard"))
    }

    /// A row of `campaign`.
    pub(crate) fn campaign(&mut self) -> Read<Campaign> {
        let bad = JobsError::BadRow;
        Ok(Campaign {
            id: CampaignId(self.count()?),
            key: CampaignKey(self.bytes()?),
            name: self.get()?,
            state: campaign_state(self.small()?).ok_or(bad("there is no such state of a campaign"))?,
            priority: u8::try_from(self.small()?).ok().and_then(Priority::new).ok_or(bad("a priority is over 9"))?,
            weight: u16::try_from(self.small()?).ok().and_then(Weight::new).ok_or(bad("a weight is over 1000"))?,
            deadline: self.maybe_count()?.map(Micros),
            calendar: self.get::<String>()?.parse().map_err(|_| bad("a calendar is none"))?,
            retry: self.get::<String>()?.parse().map_err(|_| bad("retry rules are none"))?,
            spec: self.get()?,
            omitted: self.count()?,
        })
    }

    /// A row of `omitted`.
    pub(crate) fn omitted(&mut self) -> Read<OmittedName> {
        Ok(OmittedName {
            campaign: CampaignId(self.count()?),
            source: self.count()?,
            object: PlainText::from(self.get::<String>()?),
            code: self.code()?,
            message: PlainText::from(self.get::<String>()?),
        })
    }

    /// A row of `segment`.
    pub(crate) fn segment(&mut self) -> Read<Segment> {
        let campaign = CampaignId(self.count()?);
        Ok(Segment { campaign, number: self.count()?, digest: self.bytes()?, total: self.amount()? })
    }

    /// A row of `site`.
    pub(crate) fn site(&mut self) -> Read<Site> {
        let (id, name) = (SiteId(self.count()?), self.get()?);
        Ok(Site { id, name, movers_in: self.small()?, movers_out: self.small()? })
    }

    /// A row of `link`.
    pub(crate) fn link(&mut self) -> Read<Link> {
        Ok(Link {
            id: LinkId(self.count()?),
            from: SiteId(self.count()?),
            to: SiteId(self.count()?),
            movers: self.small()?,
            rate: self.maybe_count()?,
            calendar: self.get::<String>()?.parse().map_err(|_| JobsError::BadRow("a calendar is none"))?,
            state: self.link_state()?,
            back_off: BackOff { failures: self.small()?, until: self.micros()? },
            mismatches: self.small()?,
            meter: Meter { since: self.micros()?, bytes: self.count()?, rate: self.count()? },
        })
    }

    fn link_state(&mut self) -> Read<LinkState> {
        let (number, reason) = (self.small()?, self.get::<Option<String>>()?);
        let reason = reason.map(|name| code_of_name(&name).ok_or(JobsError::BadRow("there is no such fault")));
        match number {
            0 => Ok(LinkState::Open),
            1 => Ok(LinkState::Drain),
            2 => Ok(LinkState::Closed(reason.transpose()?)),
            _ => Err(JobsError::BadRow("there is no such state of a link")),
        }
    }

    /// A row of `shard`.
    pub(crate) fn shard(&mut self) -> Read<Shard> {
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
        let (mover, until) = (self.get::<Option<[u8; 16]>>()?, self.maybe_count()?);
        let hold = self.get::<Option<String>>()?;
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

    /// A row of `permit`.
    pub(crate) fn permit(&mut self) -> Read<Permit> {
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
    pub(crate) fn fault(&mut self) -> Read<FailedFile> {
        let (shard, path) = (ShardId(self.count()?), self.get()?);
        Ok(FailedFile {
            shard,
            path,
            campaign: CampaignId(self.count()?),
            bytes: self.count()?,
            code: self.code()?,
            blame: blame_of_name(&self.get::<String>()?).ok_or(JobsError::BadRow("there is no such blame"))?,
            message: PlainText::from(self.get::<String>()?),
            state: self.fault_state()?,
            tries: self.small()?,
            first: self.micros()?,
            last: self.micros()?,
        })
    }

    /// The row of `leader`, without its number.
    pub(crate) fn leader(&mut self) -> Read<longhaul_jobs::Leader> {
        let (term, holder) = (self.count()?, MoverId(self.bytes()?));
        Ok(longhaul_jobs::Leader { term, holder, until: self.micros()? })
    }
}

/// A number as SQLite keeps it.
pub(crate) fn number(value: u64) -> Result<i64, JobsError> {
    i64::try_from(value).map_err(|_| JobsError::TooMuch("numbers of a row"))
}

/// Part of the schema, whose indexes name them: the number of a kind of shard.
pub(crate) const fn number_of_kind(kind: ShardKind) -> i64 {
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
pub(crate) const fn number_of_campaign_state(state: CampaignState) -> i64 {
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
pub(crate) const fn columns_of_link_state(state: LinkState) -> (i64, Option<&'static str>) {
    match state {
        LinkState::Open => (0, None),
        LinkState::Drain => (1, None),
        LinkState::Closed(None) => (2, None),
        LinkState::Closed(Some(code)) => (2, Some(code.name())),
    }
}

/// The columns `kind` and `place` of a permit.
pub(crate) const fn columns_of_place(place: PermitPlace) -> (i64, u64) {
    match place {
        PermitPlace::Link(id) => (0, id.0),
        PermitPlace::From(id) => (1, id.0),
        PermitPlace::To(id) => (2, id.0),
    }
}

/// The column `given_up` of a failed file.
pub(crate) const fn number_of_fault_state(state: FaultState) -> i64 {
    match state {
        FaultState::Waiting => 0,
        FaultState::GivenUp => 1,
    }
}

/// The column `hold` of a shard.
pub(crate) fn text_of_hold(hold: Hold) -> String {
    match hold {
        Hold::Alike { code, alike, of } => format!("alike {} {alike} {of}", code.name()),
        Hold::Broken(code) => format!("broken {}", code.name()),
        Hold::Lapsed(times) => format!("lapsed {times}"),
        Hold::FenceSpent => "fence-spent".to_owned(),
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
        _ => None,
    }
}

fn blame_of_name(name: &str) -> Option<Blame> {
    [Blame::Local, Blame::Peer, Blame::Path, Blame::Bug].into_iter().find(|blame| blame.name() == name)
}
