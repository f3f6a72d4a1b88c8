//! Sites of hosts: which hosts share a limit, and how many movers may be there.
//!
//! In: what users say of a site, by names of hosts. Out: its rows. Movers at work keep their
//! permits until their next heartbeat. Must not know what a host is.

use std::num::NonZero;

use super::add::{SiteLimits, add_site};
use crate::error::JobsError;
use crate::ids::SiteId;
use crate::rows::Site;
use crate::store::Rows;

/// A user's wish for a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteWish {
    /// Its name: that of a host, or of a site of hosts.
    pub name: String,
    /// Hosts that are to belong to it, and to no other one.
    pub joining: Vec<String>,
    /// Hosts that are to belong to it no more.
    pub leaving: Vec<String>,
    /// Movers that may write to it at a time. `None`: as many as before.
    pub movers_in: Option<NonZero<u32>>,
    /// Movers that may read from it at a time. `None`: as many as before.
    pub movers_out: Option<NonZero<u32>>,
}

/// Bytes of a site's name.
const SITE_NAME_BYTES_MAX: usize = 255;

/// Carries out a wish, and gives the site. Sites that are not there are made, with limits.
///
/// # Errors
/// [`JobsError::BadSite`] for a name that cannot be shown, and for hosts that cannot belong to it;
/// [`JobsError::Store`].
pub fn set_site(rows: &mut dyn Rows, wish: &SiteWish, limits: SiteLimits) -> Result<SiteId, JobsError> {
    for name in [&wish.name].into_iter().chain(&wish.joining).chain(&wish.leaving) {
        if name.is_empty() || name.len() > SITE_NAME_BYTES_MAX || name.chars().any(longhaul_core::is_deceptive) {
            let why = "its name is empty, longer than 255 bytes or has control characters";
            return Err(JobsError::BadSite(name.clone(), why));
        }
    }
    let bad = |name: &str, why| Err(JobsError::BadSite(name.to_owned(), why));
    let id = site_named(rows, &wish.name, limits)?;
    if !wish.joining.is_empty() && rows.site_above(id)?.is_some() {
        return bad(&wish.name, "it is a host of a site, and so has no hosts of its own");
    }
    for name in &wish.joining {
        let host = site_named(rows, name, limits)?;
        if host == id || !hosts_of(rows, host)?.is_empty() {
            return bad(name, "it is a site of hosts, and no host");
        }
        rows.put_site_above(host, Some(id))?;
    }
    for name in &wish.leaving {
        let host = rows.sites()?.into_iter().find(|site| site.name == *name).map(|site| site.id);
        match host {
            Some(host) if rows.site_above(host)? == Some(id) => rows.put_site_above(host, None)?,
            _ => return bad(name, "it is no host of that site"),
        }
    }
    let mut site = rows.site(id)?.ok_or(JobsError::NoSite(id))?;
    site.movers_in = wish.movers_in.map_or(site.movers_in, NonZero::get);
    site.movers_out = wish.movers_out.map_or(site.movers_out, NonZero::get);
    rows.put_site(&site)?;
    Ok(id)
}

/// The site of a name, which is made with limits if there is none.
///
/// # Errors
/// [`JobsError::Store`].
pub fn site_named(rows: &mut dyn Rows, name: &str, limits: SiteLimits) -> Result<SiteId, JobsError> {
    if let Some(site) = rows.sites()?.into_iter().find(|site| site.name == name) {
        return Ok(site.id);
    }
    add_site(rows, name, limits)
}

/// The hosts that belong to a site.
///
/// # Errors
/// [`JobsError::Store`].
pub fn hosts_of(rows: &mut dyn Rows, site: SiteId) -> Result<Vec<Site>, JobsError> {
    let mut hosts = Vec::new();
    for host in rows.sites()? {
        if rows.site_above(host.id)? == Some(site) {
            hosts.push(host);
        }
    }
    Ok(hosts)
}
