//! The values of rows that have many columns, in the order of their statements.
//!
//! In: rows of the rules. Out: values. Must not know a connection.

use longhaul_jobs::columns::{bytes_of_roots, number, number_of_kind, number_of_notice, text_of_hold};
use longhaul_jobs::{CampaignSignature, JobsError, Notice, Shard, ShardState};

use crate::connection::Value;

/// A number of a row.
pub(crate) fn n(value: u64) -> Result<Value, JobsError> {
    number(value).map(|number| Value::Number(Some(number)))
}

/// A number of a row that is small, or one that stands for a word.
pub(crate) fn small(value: impl Into<i64>) -> Value {
    Value::Number(Some(value.into()))
}

/// A number of a row that may have none.
pub(crate) fn maybe(value: Option<u64>) -> Result<Value, JobsError> {
    value.map(number).transpose().map(Value::Number)
}

/// A signature, in the order of the columns of its statement.
pub(crate) fn values_of_signature(signature: &CampaignSignature) -> Result<Vec<Value>, JobsError> {
    let CampaignSignature { campaign, owner, at, spec, manifest } = signature;
    let manifest = manifest.as_ref();
    Ok(vec![
        n(campaign.0)?,
        Value::bytes(owner),
        n(at.0)?,
        Value::bytes(spec),
        Value::Bytes(manifest.map(bytes_of_roots)),
        Value::Bytes(manifest.map(|manifest| manifest.signature.to_vec())),
    ])
}

/// A notice, in the order of the columns of its statement.
pub(crate) fn values_of_notice(notice: &Notice) -> Result<Vec<Value>, JobsError> {
    let Notice { event, delivery, .. } = notice;
    let shard = event.shard;
    Ok(vec![
        n(notice.number)?,
        Value::text(notice.hook.as_str()),
        n(notice.campaign.0)?,
        small(number_of_notice(event.kind)),
        maybe(shard.map(|shard| shard.id.0))?,
        maybe(shard.map(|shard| shard.link.0))?,
        maybe(shard.map(|shard| shard.fence.0))?,
        Value::text(event.state.as_str()),
        n(event.total.files)?,
        n(event.total.bytes)?,
        n(event.done.files)?,
        n(event.done.bytes)?,
        n(event.failed.files)?,
        n(event.failed.bytes)?,
        Value::Text(event.code_name().map(str::to_owned)),
        n(event.at.0)?,
        small(delivery.given_up),
        small(delivery.tries),
        n(delivery.not_before.0)?,
        Value::bytes(&delivery.taker.0),
        Value::Text(delivery.failure_text().map(str::to_owned)),
    ])
}

/// A shard, in the order of the columns of its statement.
pub(crate) fn values_of_shard(shard: &Shard) -> Result<Vec<Value>, JobsError> {
    let (lease, hold) = match shard.state {
        ShardState::Leased(lease) => (Some(lease), None),
        ShardState::Held(hold) => (None, Some(text_of_hold(hold))),
        _ => (None, None),
    };
    Ok(vec![
        n(shard.id.0)?,
        n(shard.campaign.0)?,
        n(shard.link.0)?,
        n(shard.part.segment)?,
        n(shard.part.first)?,
        n(shard.part.end)?,
        n(shard.total.files)?,
        n(shard.total.bytes)?,
        n(shard.done.files)?,
        n(shard.done.bytes)?,
        n(shard.failed.files)?,
        n(shard.failed.bytes)?,
        small(number_of_kind(shard.state.kind())),
        Value::Bytes(lease.map(|lease| lease.mover.0.to_vec())),
        maybe(lease.map(|lease| lease.until.0))?,
        Value::Text(hold),
        n(shard.turn.rank)?,
        n(shard.turn.not_before.0)?,
        small(shard.tries.again),
        small(shard.tries.lapses),
        small(shard.tries.breaks),
        n(shard.claim.fence.0)?,
        Value::bytes(&shard.claim.id.0),
        n(shard.news.moved)?,
        small(shard.news.judged),
        small(shard.news.unclaimed),
    ])
}
