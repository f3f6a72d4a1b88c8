//! The document that a hook is told: one JSON object, of some 4 KiB at most.
//!
//! In: a notice and its campaign. Out: bytes. Must not know how it is sent. Fields are only ever
//! added; `docs/REPLICATE.md` describes them.

use jiff::Timestamp;
use longhaul_jobs::queue::TakenNotice;
use longhaul_jobs::{Amount, NoticeEvent};
use serde::Serialize;

#[derive(Serialize)]
struct HookDocument<'a> {
    v: u32,
    r#type: &'static str,
    notice: String,
    hook: &'a str,
    event: &'static str,
    at: String,
    r#try: u32,
    campaign: HookCampaign<'a>,
    state: &'a str,
    shard: Option<HookShard>,
    counts: HookCounts,
    fault: Option<&'static str>,
}

#[derive(Serialize)]
struct HookCampaign<'a> {
    name: &'a str,
    number: u64,
    key: String,
}

#[derive(Serialize)]
struct HookShard {
    number: u64,
    link: u64,
    fence: u64,
}

#[derive(Serialize)]
struct HookCounts {
    total: HookAmount,
    done: HookAmount,
    failed: HookAmount,
}

#[derive(Serialize)]
struct HookAmount {
    files: u64,
    bytes: u64,
}

impl From<Amount> for HookAmount {
    fn from(Amount { files, bytes }: Amount) -> HookAmount {
        HookAmount { files, bytes }
    }
}

/// The document of a notice, with a newline.
pub(super) fn of(taken: &TakenNotice) -> Vec<u8> {
    let (notice, campaign) = (&taken.notice, &taken.campaign);
    let NoticeEvent { kind, shard, state, total, done, failed, code, at } = &notice.event;
    let key = campaign.key.0.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let happened = *at;
    let at = Timestamp::from_second(i64::try_from(at.0 / 1_000_000).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
    let document = HookDocument {
        v: 1,
        r#type: "hook",
        // A queue that was restored gives numbers anew; the time is another one then.
        notice: format!("{key}-{}-{}", notice.number, happened.0),
        hook: notice.hook.as_str(),
        event: kind.name(),
        at: at.to_string(),
        r#try: notice.delivery.tries,
        campaign: HookCampaign { name: &campaign.name, number: campaign.id.0, key },
        state: state.as_str(),
        shard: shard.map(|shard| HookShard { number: shard.id.0, link: shard.link.0, fence: shard.fence.0 }),
        counts: HookCounts { total: (*total).into(), done: (*done).into(), failed: (*failed).into() },
        fault: code.map(longhaul_core::FaultCode::name),
    };
    // Texts and numbers can always be written.
    let mut bytes = serde_json::to_vec(&document).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
