//! `job link`: how many movers may use a link, how fast, at which hours, and whether at all.
//!
//! In: a queue, a link by its number or its hosts, and rules. Out: the row of the link, and lines
//! and events of links. Links are made by plans, never here: a slip of the pen would make one that
//! nothing uses.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use longhaul_core::{Blame, Escaped, Fault, FaultCode, PlainText};
use longhaul_jobs::queue::{LinkWish, link_between, link_figures, set_link};
use longhaul_jobs::{JobsError, LinkId, LinkState, Rows, Store};

use super::add::{calendar, parsed};
use super::rules::change;
use super::site::movers;
use super::{JobOutput, queue_failed, queue_place};
use crate::cli::job::JobLinkArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::jobs::spec::HERE;
use crate::location::{host_port, parse_host};
use crate::values;

/// A link, as a user names it.
enum LinkName {
    /// By its number.
    Number(LinkId),
    /// By its two hosts, each of which may stand in the queue under any of some names.
    Hosts(Vec<String>, Vec<String>),
}

/// Sets the rules of a link and tells it, or tells all.
pub(super) fn link(args: &JobLinkArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let (name, wish) = (name(args)?, wish(args)?);
    let mut store = queue_place(&args.queue.queue, context)?.open()?;
    let told = store.transact(|rows| {
        let ids = match &name {
            None => rows.links()?.iter().map(|link| link.id).collect(),
            Some(name) => Vec::from_iter(find(rows, name)?),
        };
        for id in &ids {
            if wish != LinkWish::default() {
                set_link(rows, *id, &wish)?;
            }
        }
        ids.into_iter().map(|id| link_figures(rows, id)).collect::<Result<Vec<_>, _>>()
    });
    let told = told.map_err(queue_failed)?;
    match name {
        Some(name) if told.is_empty() => return Err(missing(&name)),
        _ => telling.links(&told),
    }
    Ok(())
}

/// The link of a name, if there is one.
fn find(rows: &mut dyn Rows, name: &LinkName) -> Result<Option<LinkId>, JobsError> {
    match name {
        LinkName::Number(id) => Ok(rows.link(*id)?.map(|link| link.id)),
        LinkName::Hosts(from, to) => link_between(rows, (from, to)),
    }
}

fn missing(name: &LinkName) -> Error {
    let shown = |names: &[String]| PlainText::from(names.last().map_or("", String::as_str)).to_string();
    let message = match name {
        LinkName::Number(id) => format!("there is no link {} in the queue", id.0),
        LinkName::Hosts(from, to) => {
            format!("there is no link from '{}' to '{}' in the queue", shown(from), shown(to))
        }
    };
    let hint = "'longhaul job link' lists the links; the first 'longhaul job plan' of a campaign between two hosts \
                makes theirs";
    Fault::new(FaultCode::NotFound, Blame::Local, message).hint_in_words(hint).into()
}

/// The link of the arguments. `None` if links are listed.
fn name(args: &JobLinkArgs) -> Result<Option<LinkName>, Error> {
    let Some(link) = &args.link else { return Ok(None) };
    if let Some(to) = &args.to {
        return Ok(Some(LinkName::Hosts(names_of_host(link), names_of_host(to))));
    }
    let number = link.to_str().and_then(|text| text.parse().ok());
    match number.filter(|number: &u64| i64::try_from(*number).is_ok()) {
        Some(number) => Ok(Some(LinkName::Number(LinkId(number)))),
        None => Err(Error::CommandLine {
            message: format!("'{}' is no number of a link", Escaped(link.as_bytes())),
            hint: "name a link by its number, or by both of its hosts as FROM TO; 'longhaul job link' lists them"
                .to_owned(),
        }),
    }
}

/// The names that a host may have in the queue: the one that is given, as events tell it, and the
/// one that campaigns make of it.
fn names_of_host(text: &OsStr) -> Vec<String> {
    if text == "." {
        return vec![HERE.to_owned()];
    }
    let mut names = vec![text.to_string_lossy().into_owned()];
    names.extend(parse_host(text.as_bytes()).map(|(host, port)| host_port(&host, port)));
    names
}

fn wish(args: &JobLinkArgs) -> Result<LinkWish, Error> {
    let rate = |flag: &Option<OsString>| parsed("rate", flag, values::rate);
    let states = [(args.open, LinkState::Open), (args.drain, LinkState::Drain), (args.close, LinkState::Closed(None))];
    Ok(LinkWish {
        movers: parsed("movers", &args.movers, movers)?,
        rate: change(&args.rate, rate)?,
        calendar: change(&args.calendar, calendar)?,
        state: states.into_iter().find(|(is_asked, _)| *is_asked).map(|(_, state)| state),
    })
}
