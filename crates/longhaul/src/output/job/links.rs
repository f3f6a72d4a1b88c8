//! Tells sites, and links between hosts: the rules of each, and whether anything begins there now.
//!
//! In: sites, and figures of links. Out: lines or events, and the words of a link that waits.
//! Decides nothing of the queue.

use std::io::Write;

use longhaul_jobs::queue::LinkFigures;
use longhaul_jobs::{Allowance, LinkWait, Site};

use super::bodies::{JobLinkRulesBody, JobSiteBody};
use super::{JobTelling, link_state, units};

impl<W: Write> JobTelling<W> {
    /// Tells sites, with the names of the hosts of each.
    pub fn sites(&mut self, all: &[(Site, Vec<String>)]) {
        for (site, hosts) in all {
            let Site { name, movers_in, movers_out, .. } = site;
            if self.json {
                let hosts = hosts.iter().map(String::as_str).collect();
                let body = JobSiteBody { name, movers_in: *movers_in, movers_out: *movers_out, hosts };
                self.event(|lines| lines.say("job_site", body));
                continue;
            }
            let hosts = if hosts.is_empty() { String::new() } else { format!("; its hosts: {}", hosts.join(", ")) };
            self.line(&format!("{name}: {movers_in} movers in, {movers_out} out{hosts}"));
        }
    }

    /// Tells links, each with all of its rules.
    pub fn links(&mut self, all: &[LinkFigures]) {
        for figures in all {
            if self.json {
                self.event(|lines| lines.say("job_link", body(figures)));
            } else {
                self.line(&line(figures));
            }
        }
    }
}

fn body(figures: &LinkFigures) -> JobLinkRulesBody<'_> {
    let (state, fault) = link_state(figures.link.state);
    JobLinkRulesBody {
        link: figures.link.id.0,
        from: &figures.from,
        to: &figures.to,
        state,
        fault,
        movers: figures.link.movers,
        movers_busy: figures.movers_busy,
        limit_bytes_per_s: figures.link.rate,
        calendar: figures.link.calendar.text(),
        now_bytes_per_s: match figures.allowance {
            Allowance::Open => None,
            Allowance::Rate(rate) => Some(rate),
            Allowance::Closed => Some(0),
        },
        waits: figures.waits.map(wait_word),
    }
}

fn line(figures: &LinkFigures) -> String {
    let LinkFigures { link, from, to, movers_busy, allowance, waits } = figures;
    let (state, fault) = link_state(link.state);
    let why = fault.map(|code| format!(" ({code})")).unwrap_or_default();
    let rate = link.rate.map_or_else(|| "no limit".to_owned(), |rate| units::rate(rate as f64));
    let hours = match link.calendar.text() {
        "" => "always open",
        text => text,
    };
    let now = match (waits, allowance) {
        (Some(wait), _) => format!("; {}", wait_words(*wait)),
        (None, Allowance::Rate(now)) if link.rate != Some(*now) => format!("; now {}", units::rate(*now as f64)),
        _ => String::new(),
    };
    format!(
        "{}: {from} to {to}: {state}{why}, {movers_busy} of {} movers at work, {rate}, {hours}{now}",
        link.id.0, link.movers
    )
}

/// The reason for which nothing begins on a link that is open, in a word.
pub(super) fn wait_word(wait: LinkWait) -> &'static str {
    match wait {
        LinkWait::LinkHours => "link-hours",
        LinkWait::CampaignHours => "campaign-hours",
        LinkWait::Pause => "pause",
    }
}

/// The same for people.
pub(super) fn wait_words(wait: LinkWait) -> &'static str {
    match wait {
        LinkWait::LinkHours => "closed now by its calendar",
        LinkWait::CampaignHours => "closed now by the calendar of the campaign",
        LinkWait::Pause => "it pauses behind a failure",
    }
}

#[cfg(test)]
mod tests {
    use longhaul_jobs::queue::{LinkLimits, LinkWish, SiteLimits, add_link, add_site, link_figures, set_link};
    use longhaul_jobs::{JobsError, Memory, Micros, Rows, Store};

    use super::*;
    use crate::settings::Talk;

    /// A link to which a wish was carried out.
    fn figures(rows: &mut dyn Rows, wish: &LinkWish) -> Result<LinkFigures, JobsError> {
        let eight = std::num::NonZero::new(8).expect("it is 8");
        let limits = SiteLimits { movers_in: eight, movers_out: eight };
        let ends = (add_site(rows, "this host", limits)?, add_site(rows, "far:7214", limits)?);
        let id = add_link(rows, ends, LinkLimits { movers: eight, rate: None }, &Default::default())?;
        set_link(rows, id, wish)?;
        link_figures(rows, id)
    }

    #[test]
    fn a_link_is_told_with_its_rules_and_with_what_holds_it_now() {
        use longhaul_jobs::queue::Change;
        let told = |wish: &LinkWish| {
            let found = Memory::at(Micros(1_000_000)).transact(|rows| figures(rows, wish)).expect("a link");
            let (mut text, mut json) = (Vec::new(), Vec::new());
            JobTelling::new(&mut text, Talk::default()).links(std::slice::from_ref(&found));
            JobTelling::new(&mut json, Talk { json: true, ..Talk::default() }).links(&[found]);
            (String::from_utf8(text).expect("text"), String::from_utf8(json).expect("text"))
        };
        let (text, json) = told(&LinkWish::default());
        assert_eq!(text, "3: this host to far:7214: open, 0 of 8 movers at work, no limit, always open\n");
        assert!(
            json.contains(r#""limit_bytes_per_s":null,"calendar":"","now_bytes_per_s":null,"waits":null"#),
            "{json}"
        );

        let calendar = Change::Set("in UTC: else closed".parse().expect("a calendar"));
        let (text, json) = told(&LinkWish { rate: Change::Set(1_000_000), calendar, ..LinkWish::default() });
        let said = "8.00 Mbit/s (1.00 MB/s), in UTC: else closed; closed now by its calendar\n";
        assert!(text.ends_with(said), "{text}");
        assert!(json.contains(r#""now_bytes_per_s":0,"waits":"link-hours""#), "{json}");

        let calendar = Change::Set("in UTC: else 8 Mbit/s".parse().expect("a calendar"));
        let (text, _) = told(&LinkWish { calendar, ..LinkWish::default() });
        assert!(text.ends_with("no limit, in UTC: else 8 Mbit/s; now 8.00 Mbit/s (1.00 MB/s)\n"), "{text}");
    }
}
