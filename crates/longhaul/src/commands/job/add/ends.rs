//! The locations of `job add`: sources by their hosts, and destinations.
//!
//! In: SOURCE... DEST, and each `--also DEST`. Out: the sources of each host, and the directories
//! that receive them. Must not know settings, nor names of campaigns.

#![allow(clippy::disallowed_methods, reason = "only the kind of a named source is looked at")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_core::{Blame, Escaped, Fault, FaultCode, RelPath};

use crate::cli::TransferArgs;
use crate::error::{Error, LocationFlaw};
use crate::jobs::{CampaignPlace, CampaignSource};
use crate::location::{LocalPath, Location};

/// The ends of one campaign or more.
pub(super) struct CampaignEnds {
    /// The sources of each host, in the order in which the hosts were named first.
    pub(super) from: Vec<Vec<CampaignSource>>,
    /// The destinations, in the order in which they were named.
    pub(super) to: Vec<CampaignPlace>,
}

impl CampaignEnds {
    /// The number of daemons at which any of them is.
    pub(super) fn daemons(&self) -> usize {
        let tops = self.from.iter().flatten().map(|source| &source.top);
        let far = tops.chain(&self.to).filter(|place| matches!(place, CampaignPlace::Daemon { .. }));
        far.map(CampaignPlace::site).collect::<BTreeSet<_>>().len()
    }
}

/// The ends that the arguments name.
///
/// # Errors
/// Those of a location that cannot be used, of sources that would take each other's names, and of a
/// destination that is named twice.
pub(super) fn ends(args: &TransferArgs) -> Result<CampaignEnds, Error> {
    let (sources, dest) = args.ends().filter(|(sources, _)| !sources.is_empty()).ok_or(Error::Combination {
        why: "a campaign needs a SOURCE and a DEST",
        hint: "write SOURCE... DEST; '.' is the current directory",
    })?;
    let mut to: Vec<CampaignPlace> = Vec::new();
    for text in std::iter::once(dest).chain(&args.writes.also) {
        let place = place(text)?.0;
        if to.iter().any(|known| is_same(known, &place)) {
            let message = format_args!("the destination '{}' is named twice", place.shown());
            let fault = Fault::new(FaultCode::Usage, Blame::Local, message).about(place.shown());
            return Err(fault.hint_in_words("name each destination once").into());
        }
        to.push(place);
    }
    let sources = sources.iter().map(|text| source(text)).collect::<Result<Vec<_>, _>>()?;
    refuse_overlap(&sources)?;
    Ok(CampaignEnds { from: by_host(sources), to })
}

/// Whether two destinations are written as the same one.
fn is_same(one: &CampaignPlace, other: &CampaignPlace) -> bool {
    match (one, other) {
        // Slashes at the end, and double ones, are none of a path's parts.
        (CampaignPlace::Here(one), CampaignPlace::Here(other)) => one == other,
        _ => one.shown() == other.shown(),
    }
}

/// The sources of each host.
fn by_host(sources: Vec<CampaignSource>) -> Vec<Vec<CampaignSource>> {
    let mut hosts: Vec<(String, Vec<CampaignSource>)> = Vec::new();
    for source in sources {
        let site = source.top.site();
        match hosts.iter_mut().find(|(known, _)| *known == site) {
            Some((_, all)) => all.push(source),
            None => hosts.push((site, vec![source])),
        }
    }
    hosts.into_iter().map(|(_, all)| all).collect()
}

/// Refuses sources whose names would be the same at the destination, or might be: one would take
/// the other's place, and both would count as moved.
fn refuse_overlap(sources: &[CampaignSource]) -> Result<(), Error> {
    let places: Vec<RelPath> =
        sources.iter().map(|source| source.only.clone().unwrap_or(source.onto.clone())).collect();
    for (at, one) in places.iter().enumerate() {
        if places[at + 1..].iter().any(|other| one.beneath(other).is_some() || other.beneath(one).is_some()) {
            return Err(Error::Combination {
                why: "two sources would have the same names at the destination",
                hint: "add a campaign for each, or give directories without a slash behind and with different names",
            });
        }
    }
    Ok(())
}

/// A source: a directory with or without its name, or a file.
fn source(text: &OsStr) -> Result<CampaignSource, Error> {
    let (top, is_content) = place(text)?;
    match top {
        CampaignPlace::Here(path) => source_here(LocalPath { path, slash: is_content }, text),
        CampaignPlace::Daemon { ref path, .. } => {
            let name = path.path.name().filter(|_| !is_content).unwrap_or_default();
            let onto = RelPath::new(name).map_err(|_| unusable(text, LocationFlaw::Root))?;
            Ok(CampaignSource { top, only: None, onto })
        }
    }
}

fn source_here(LocalPath { path, slash }: LocalPath, text: &OsStr) -> Result<CampaignSource, Error> {
    let found = std::fs::symlink_metadata(&path).map_err(|error| missing(&path, error))?;
    let is_dir = std::fs::metadata(&path).is_ok_and(|found| found.is_dir());
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    let name = RelPath::new(name).map_err(|why| unusable(text, LocationFlaw::Path(why)))?;
    if slash || (is_dir && !found.is_symlink()) {
        let onto = if slash { RelPath::root() } else { name };
        return Ok(CampaignSource { top: CampaignPlace::Here(path), only: None, onto });
    }
    let top = path.parent().unwrap_or(Path::new("/")).to_owned();
    Ok(CampaignSource { top: CampaignPlace::Here(top), only: Some(name), onto: RelPath::root() })
}

fn missing(path: &Path, error: std::io::Error) -> Error {
    let shown = Escaped(path.as_os_str().as_bytes()).to_string();
    let code = match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => FaultCode::NotFound,
        std::io::ErrorKind::PermissionDenied => FaultCode::Denied,
        _ => FaultCode::Io,
    };
    Fault::new(code, Blame::Local, format_args!("cannot examine '{shown}': {error}")).about(shown).into()
}

/// The place of a location, and whether it ended in a slash. A path of this host becomes absolute:
/// movers run elsewhere.
pub(in crate::commands::job) fn place(text: &OsStr) -> Result<(CampaignPlace, bool), Error> {
    match Location::parse(text)? {
        Location::Local(local) => {
            let path = std::path::absolute(&local.path).map_err(Error::file("find", &local.path))?;
            Ok((CampaignPlace::Here(path), local.slash))
        }
        Location::Daemon(daemon) => {
            let path = daemon.path.ok_or_else(|| unusable(text, LocationFlaw::NoRoot))?;
            let slash = path.slash;
            Ok((CampaignPlace::Daemon { host: daemon.host, port: daemon.port, path }, slash))
        }
        Location::Ssh(_) => Err(Error::Combination {
            why: "a campaign over ssh is not built yet",
            hint: "serve the directory there, and name it as lh://HOST/ROOT/PATH",
        }),
    }
}

fn unusable(text: &OsStr, flaw: LocationFlaw) -> Error {
    Error::Location { location: Escaped(text.as_bytes()).to_string(), flaw }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_would_take_each_others_names_are_refused() {
        let source = |onto: &str, only: Option<&str>| CampaignSource {
            top: CampaignPlace::Here("/x".into()),
            only: only.map(|name| RelPath::new(name).unwrap()),
            onto: RelPath::new(onto).unwrap(),
        };
        for (sources, fine) in [
            (vec![source("a", None), source("b", None)], true),
            (vec![source("a", None), source("a", None)], false),
            (vec![source("a", None), source("", Some("f")), source("", Some("g"))], true),
            (vec![source("", Some("f")), source("", Some("f"))], false),
            (vec![source("a", None), source("", Some("a"))], false),
            (vec![source("", None), source("b", None)], false),
            (vec![source("", None)], true),
        ] {
            assert_eq!(refuse_overlap(&sources).is_ok(), fine, "{sources:?}");
        }
    }

    #[test]
    fn a_directory_goes_under_its_name_unless_it_ends_in_a_slash_and_a_file_lies_in_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ds")).unwrap();
        std::fs::write(dir.path().join("f"), "x").unwrap();
        let read = |name: &str| source(dir.path().join(name).as_os_str()).unwrap();
        assert_eq!(read("ds").onto, RelPath::new("ds").unwrap());
        assert!(read("ds/").onto.is_root() && read("ds/").only.is_none());
        let file = read("f");
        assert_eq!((file.only, file.onto.is_root()), (Some(RelPath::new("f").unwrap()), true));
        assert!(source(dir.path().join("none").as_os_str()).is_err());
        let far = source(OsStr::new("lh://h/root/a/b")).unwrap();
        assert_eq!((far.onto, far.top.site().as_str()), (RelPath::new("b").unwrap(), "h:7214"));
    }

    #[test]
    fn sources_are_parted_by_their_hosts_in_the_order_in_which_these_were_named() {
        let far = |text: &str| source(OsStr::new(text)).unwrap();
        let all = vec![far("lh://b/root/x"), far("lh://a/root/y"), far("lh://b:7214/root/z"), far("lh://b:99/root/w")];
        let hosts = by_host(all);
        let names = |all: &Vec<CampaignSource>| all.iter().map(|source| source.onto.escaped().to_string()).collect();
        let hosts: Vec<Vec<String>> = hosts.iter().map(names).collect();
        assert_eq!(hosts, [vec!["x", "z"], vec!["y"], vec!["w"]]);
    }
}
