//! The row of a link: whether it may be used, how fast it is, and how it fails.
//!
//! In: failures, and bytes that became durable. Out: pauses, rates, and a link that closes itself.
//! Must not know shards or movers.

use std::time::Duration;

use longhaul_core::FaultCode;

use crate::calendar::{Allowance, Calendar};
use crate::ids::{Due, LinkId, Micros, ROW_NUMBER_MAX, SiteId};
use crate::retry::{PAUSE_MAX, link_pause};

/// A link: the way from one site to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub id: LinkId,
    /// The site that is read from.
    pub from: SiteId,
    /// The site that is written to.
    pub to: SiteId,
    /// Movers that may use it at a time.
    pub movers: u32,
    /// Bytes/s that all of them may use together. `None` if they may use all.
    pub rate: Option<u64>,
    /// Its hours and maintenance windows.
    pub calendar: Calendar,
    /// Whether it is used.
    pub state: LinkState,
    /// The pause behind its last failure.
    pub back_off: BackOff,
    /// Files with other bytes at the destination than at the source, since it was opened.
    pub mismatches: u32,
    /// How fast it is.
    pub meter: Meter,
}

/// Whether a link is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It is.
    Open,
    /// Movers finish the shards that they hold; nobody begins another one.
    Drain,
    /// Nothing moves until somebody opens it. It closed itself for this fault, or a user closed it.
    Closed(Option<FaultCode>),
}

/// The reason why no shard of a campaign begins on a link that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkWait {
    /// The link's own calendar is closed.
    LinkHours,
    /// The campaign's calendar is closed.
    CampaignHours,
    /// It pauses behind a failure.
    Pause,
}

/// A pause behind failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackOff {
    /// Failures since something last went well. Until something does, one mover tries alone.
    pub failures: u32,
    /// The end of the pause.
    pub until: Micros,
}

/// The rate of a link, measured over windows of a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// The start of this window.
    pub since: Micros,
    /// Bytes that became durable in it.
    pub bytes: u64,
    /// The rate of the window before, bytes/s. 0 if nothing is known, or nothing moved.
    pub rate: u64,
}

/// A link with other bytes at the destination than at the source in so many files is closed: memory
/// or a disk is broken, and each further file may be a wrong one.
pub const MISMATCHES_MAX: u32 = 10;

/// A window of a meter, and the time without any news after which a link counts as standing still.
const METER_WINDOW: Duration = Duration::from_secs(60);

impl Link {
    /// The allowance for a campaign's shards at a time, and movers on it: nothing while it is not
    /// open or pauses, and one mover alone until something went well after a failure.
    pub fn allowance(&self, campaign: &Calendar, now: Micros) -> (Allowance, u32) {
        let movers = if self.back_off.failures > 0 { self.movers.min(1) } else { self.movers };
        if self.state != LinkState::Open || self.pauses(now) {
            return (Allowance::Closed, movers);
        }
        (self.rate_at(now).and(campaign.at(now)), movers)
    }

    /// The reason why no shard of a campaign with this calendar begins on it at a time, though it
    /// is open. `None` if one may begin, and if its state says that none does.
    pub fn waits(&self, campaign: &Calendar, now: Micros) -> Option<LinkWait> {
        let hours = [(&self.calendar, LinkWait::LinkHours), (campaign, LinkWait::CampaignHours)];
        match hours.into_iter().find(|(calendar, _)| calendar.at(now) == Allowance::Closed) {
            _ if self.state != LinkState::Open => None,
            Some((_, wait)) => Some(wait),
            None => self.pauses(now).then_some(LinkWait::Pause),
        }
    }

    /// Whether it pauses at a time, behind a failure.
    pub(crate) fn pauses(&self, now: Micros) -> bool {
        self.back_off.failures > 0 && !Due::at(now, PAUSE_MAX).has_passed(self.back_off.until)
    }

    /// The rate at a time by the link's own limit and calendar, whatever its state.
    pub fn rate_at(&self, now: Micros) -> Allowance {
        self.calendar.at(now).and(self.rate.map_or(Allowance::Open, Allowance::Rate))
    }

    /// A session over it failed. Failures within a pause are those of the same outage.
    pub fn fail(&mut self, now: Micros, chance: u64) {
        if !self.pauses(now) {
            self.back_off.failures = self.back_off.failures.saturating_add(1);
            self.back_off.until = now.plus(link_pause(self.back_off.failures, chance));
        }
    }

    /// Bytes became durable over it.
    pub fn progress(&mut self, now: Micros, bytes: u64) {
        self.meter.count(now, bytes);
    }

    /// Files came with other bytes than their source has.
    pub fn count_mismatches(&mut self, files: u32) {
        self.mismatches = self.mismatches.saturating_add(files);
        if self.mismatches > MISMATCHES_MAX && self.state == LinkState::Open {
            self.state = LinkState::Closed(Some(FaultCode::Mismatch));
        }
    }
}

impl Meter {
    fn count(&mut self, now: Micros, bytes: u64) {
        let open = now.since(self.since);
        if self.since > now || open >= METER_WINDOW {
            let late = self.since > now || open >= METER_WINDOW * 2;
            let rate = u128::from(self.bytes) * 1_000_000 / open.as_micros().max(1);
            self.rate = if late { 0 } else { u64::try_from(rate).unwrap_or(u64::MAX).min(ROW_NUMBER_MAX) };
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes = self.bytes.saturating_add(bytes).min(ROW_NUMBER_MAX);
    }

    /// The rate at a time, bytes/s: of the last whole window, or of this one if there was none
    /// before. 0 if nothing was heard for two windows.
    pub fn rate_at(&self, now: Micros) -> u64 {
        let open = now.since(self.since);
        if self.since > now || open >= METER_WINDOW * 2 {
            return 0;
        }
        if self.rate > 0 {
            return self.rate;
        }
        let seconds = u64::from(open.as_secs() > 0);
        (self.bytes / open.as_secs().max(1)).saturating_mul(seconds)
    }
}
