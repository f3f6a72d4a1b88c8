//! `job site`: which hosts share a limit, and how many movers may be there.
//!
//! In: a queue, names of hosts and figures. Out: rows of sites, and lines and events of them.

use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;

use longhaul_jobs::queue::{SiteWish, hosts_of, set_site};
use longhaul_jobs::{JobsError, Rows, Site, SiteId, Store};

use super::add::{flawed, parsed};
use super::{JobOutput, queue_failed, queue_place};
use crate::cli::job::JobSiteArgs;
use crate::commands::Context;
use crate::error::{Error, Flaw};
use crate::jobs::plan::SITE_LIMITS;
use crate::jobs::spec::HERE;
use crate::location::{host_port, parse_host};

/// Sets a site and tells it, or tells all.
pub(super) fn site(args: &JobSiteArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let place = queue_place(&args.queue.queue, context)?;
    let mut told = Vec::new();
    match wish(args)? {
        Some(wish) => {
            let mut store = place.open_or_make()?;
            let set = store.transact(|rows| {
                refuse_host(rows, &wish)?;
                let id = set_site(rows, &wish, SITE_LIMITS)?;
                told_of(rows, id)
            });
            told.extend(set.map_err(queue_failed)?);
        }
        None => {
            let mut store = place.open()?;
            let ids = store.transact(|rows| Ok(rows.sites()?.iter().map(|site| site.id).collect::<Vec<_>>()));
            for id in ids.map_err(queue_failed)? {
                told.extend(store.transact(|rows| told_of(rows, id)).map_err(queue_failed)?);
            }
        }
    }
    telling.sites(&told);
    Ok(())
}

/// Refuses to make an empty site with the name that a host has without its port: the bounds are
/// meant for that host.
fn refuse_host(rows: &mut dyn Rows, wish: &SiteWish) -> Result<(), JobsError> {
    let Ok((host, port)) = parse_host(wish.name.as_bytes()) else { return Ok(()) };
    let (sites, of_host) = (rows.sites()?, host_port(&host, port));
    let has = |name: &str| sites.iter().any(|site| site.name == name);
    if wish.joining.is_empty() && !has(&wish.name) && has(&of_host) {
        return Err(JobsError::BadSite(wish.name.clone(), "a host has that name: write it with its port"));
    }
    Ok(())
}

/// A site with the names of its hosts.
fn told_of(rows: &mut dyn Rows, id: SiteId) -> Result<Option<(Site, Vec<String>)>, JobsError> {
    let hosts = hosts_of(rows, id)?.into_iter().map(|host| host.name).collect();
    Ok(rows.site(id)?.map(|site| (site, hosts)))
}

/// The wish of the arguments. `None` if sites are listed.
fn wish(args: &JobSiteArgs) -> Result<Option<SiteWish>, Error> {
    let Some(name) = &args.name else { return Ok(None) };
    let hosts = |name, flags: &[OsString]| flags.iter().map(|text| host(name, text)).collect::<Result<_, _>>();
    Ok(Some(SiteWish {
        name: site_name(name),
        joining: hosts("host", &args.host)?,
        leaving: hosts("drop", &args.drop)?,
        movers_in: parsed("movers-in", &args.movers_in, movers)?,
        movers_out: parsed("movers-out", &args.movers_out, movers)?,
    }))
}

/// The name of a host's site, as campaigns make it.
fn host(flag: &'static str, text: &OsStr) -> Result<String, Error> {
    if text == "." {
        return Ok(HERE.to_owned());
    }
    let form = "a host as HOST[:PORT], or '.'";
    let flaw = |_| flawed(flag, Flaw::Form { given: text.to_string_lossy().into_owned(), form });
    parse_host(text.as_bytes()).map(|(host, port)| host_port(&host, port)).map_err(flaw)
}

/// The name of a site: a host that has a dot or a port is taken for one.
fn site_name(text: &str) -> String {
    if text == "." {
        return HERE.to_owned();
    }
    let is_host = text.contains(['.', ':']) && !text.contains([' ', '/']);
    let parsed = parse_host(text.as_bytes()).ok().filter(|_| is_host);
    parsed.map_or_else(|| text.to_owned(), |(host, port)| host_port(&host, port))
}

/// The movers of a site or a link.
pub(super) fn movers(text: &str) -> Result<NonZero<u32>, Flaw> {
    let number = text.parse().ok().filter(|number| *number <= SITE_MOVERS_MAX).and_then(NonZero::new);
    number.ok_or_else(|| Flaw::Number { given: text.to_owned(), least: 1, most: SITE_MOVERS_MAX })
}

/// Movers that a site or a link may be given.
const SITE_MOVERS_MAX: u32 = 10_000;
