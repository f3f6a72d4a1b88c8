//! Owns the messages of a push about itself. Takes its events; gives its limits and its decisions,
//! for users and for the record.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use longhaul_wan::Counters;
use serde::Serialize;
use serde_json::Value;

/// The gist of a push's events.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Said {
    /// Seconds by the limit that it named in them.
    limited_by: BTreeMap<String, u32>,
    /// The decisions: time, number of lanes, change, reason.
    lanes: Vec<Decision>,
    pub(crate) bytes_resent: u64,
    pub(crate) road: SaidRoad,
}

/// The figures of the road in a summary that tables have.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SaidRoad {
    /// Round trips from the last payload to the end.
    pub(crate) last_byte_rtts: Option<f64>,
    /// Payload bytes that lanes over UDP sent again. `None` where none ran over UDP.
    pub(crate) udp_bytes_resent: Option<u64>,
}

impl SaidRoad {
    /// The road of a summary.
    fn of(summary: &Value) -> SaidRoad {
        let road = &summary["road"];
        SaidRoad {
            last_byte_rtts: road["last_byte_rtts"].as_f64(),
            udp_bytes_resent: road["udp_bytes_resent"].as_u64(),
        }
    }

    /// The road in the summary of these events.
    pub(crate) fn read(events: &str) -> Result<SaidRoad> {
        let events = events.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let summary = events.iter().find(|event| event["type"] == "summary").context("a run without a summary")?;
        Ok(SaidRoad::of(summary))
    }

    /// Payload that was sent again over UDP, over that which the path lost between two looks at it:
    /// 1 if each loss cost one repair. `None` where nothing was lost or nothing ran over UDP.
    pub(crate) fn resent_of_lost(&self, before: &Counters, after: &Counters) -> Option<f64> {
        let lost = |at: &Counters| at.bytes.saturating_sub(at.delivered_bytes + at.dropped() * PIECE_HEADERS);
        let payload = lost(after).saturating_sub(lost(before));
        self.udp_bytes_resent.filter(|_| payload > 0).map(|resent| resent as f64 / payload as f64)
    }
}

/// Bytes of a packet with a piece that are not its payload: IPv4, UDP, header and tag.
const PIECE_HEADERS: u64 = 20 + 8 + 24 + 16;

#[derive(Debug, Serialize)]
struct Decision {
    t_s: f64,
    lanes: u64,
    change: String,
    reason: String,
}

impl Said {
    /// Reads `events`; the file that was moved must have the digest `b3`.
    pub(crate) fn read(events: &str, b3: &str) -> Result<Said> {
        let mut said = Said::default();
        let mut digest = None;
        for line in events.lines() {
            let event: Value = serde_json::from_str(line)?;
            match event["type"].as_str().context("an event without type")? {
                "progress" => {
                    let limit = event["limited_by"].as_str().unwrap_or("unknown");
                    *said.limited_by.entry(limit.to_owned()).or_default() += 1;
                }
                "lanes" => said.lanes.push(Decision::read(&event)),
                "file" => digest = event["b3"].as_str().map(str::to_owned),
                "summary" => {
                    said.bytes_resent = event["bytes_resent"].as_u64().unwrap_or(0);
                    said.road = SaidRoad::of(&event);
                }
                _ => {}
            }
        }
        ensure!(digest.as_deref() == Some(b3), "the digest is {digest:?}, not {b3}");
        Ok(said)
    }

    /// Each limit with its seconds, the longest first.
    pub(crate) fn limits(&self) -> String {
        let mut limits: Vec<_> = self.limited_by.iter().collect();
        limits.sort_by_key(|(_, seconds)| std::cmp::Reverse(**seconds));
        limits.iter().map(|(what, seconds)| format!("{what} {seconds} s")).collect::<Vec<_>>().join(", ")
    }

    /// All decisions in one line.
    pub(crate) fn decisions(&self) -> String {
        let one = |decision: &Decision| {
            let Decision { t_s, lanes, change, reason } = decision;
            format!("at {t_s:.0} s {change} of {lanes} ({reason})")
        };
        if self.lanes.is_empty() {
            "no decision".to_owned()
        } else {
            self.lanes.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

impl Decision {
    fn read(event: &Value) -> Decision {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        Decision {
            t_s: event["t_s"].as_f64().unwrap_or(0.0),
            lanes: event["lanes"].as_u64().unwrap_or(0),
            change: text("change"),
            reason: text("reason"),
        }
    }
}
