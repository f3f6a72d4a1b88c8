//! The places of this host that campaigns may name, where a mover bounds them.
//!
//! In: the directories that this host's own configuration names, and the transfer of a shard. Out:
//! whether the transfer stays beneath them. An owner whose campaigns are moved is no user of this
//! host, so that a campaign alone opens no place. Links are followed when it is looked, and not
//! held: whoever may write beneath these directories, or a campaign that makes links there, must
//! not be able to change them at that moment. Must not know what a shard is.

use std::path::{Component, Path, PathBuf};

use longhaul_core::{Blame, Escaped, Fault, FaultCode};
use longhaul_engine::{Job, JobDestination, JobSource};

/// The places of this host that campaigns may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalGround {
    /// Any that its user may use: whoever runs the mover wrote the campaigns, or trusts who did.
    Any,
    /// These directories, and what lies beneath them. Empty: none.
    Beneath(Vec<PathBuf>),
}

impl LocalGround {
    /// Refuses a transfer from or to another place of this host. It looks at the file system.
    ///
    /// # Errors
    /// A fault of code denied for the first such place.
    pub(super) fn admit(&self, job: &Job) -> Result<(), Fault> {
        let LocalGround::Beneath(tops) = self else { return Ok(()) };
        let sources = match &job.from {
            JobSource::Local(sources) => sources.as_slice(),
            _ => &[],
        };
        let to = match &job.to {
            JobDestination::Local(to) => Some(&to.path),
            _ => None,
        };
        let tops: Vec<PathBuf> = tops.iter().filter_map(|top| top.canonicalize().ok()).collect();
        let is_within = |path: &Path| lies_at(path).is_some_and(|place| tops.iter().any(|top| place.starts_with(top)));
        match sources.iter().map(|source| &source.path).chain(to).find(|path| !is_within(path)) {
            None => Ok(()),
            Some(path) => {
                let shown = Escaped(path.as_os_str().as_encoded_bytes());
                let message =
                    format_args!("a campaign names '{shown}', and this mover serves no such place of its host");
                let fault = Fault::new(FaultCode::Denied, Blame::Local, message);
                Err(fault.hint_in_words("name a directory above it as beneath in [mover], or run 'longhaul job run'"))
            }
        }
    }
}

/// The place to which a path leads, links followed. Its last names may be missing. `None` if that
/// cannot be said: it goes up, or a link of it leads nowhere yet.
fn lies_at(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() || path.components().any(|name| name == Component::ParentDir) {
        return None;
    }
    for above in path.ancestors() {
        match above.canonicalize() {
            Ok(place) => return path.strip_prefix(above).ok().map(|missing| place.join(missing)),
            Err(_) if above.symlink_metadata().is_ok() => return None,
            Err(_) => {}
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test makes directories of its own")]
mod tests {
    use std::os::unix::fs::symlink;

    use longhaul_engine::{LocalDest, LocalSource};

    use super::*;

    #[test]
    fn a_place_is_admitted_beneath_what_this_host_names_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["data/in", "data-too", "etc"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("etc"), at("data/out")).unwrap();
        symlink(at("etc/none-yet"), at("data/nowhere")).unwrap();
        symlink(at("data/in"), at("data/inner")).unwrap();
        symlink(at("data"), at("way")).unwrap();
        let ground = LocalGround::Beneath(vec![at("way"), at("not-there")]);
        let copy = |from: PathBuf, to: PathBuf| Job::copy(vec![LocalSource::contents(from)], LocalDest::directory(to));
        for (name, is_admitted) in [
            ("data", true),
            ("data/in", true),
            ("data/new/deep", true),
            ("data/inner/new", true),
            ("way/in", true),
            ("etc", false),
            ("data-too", false),
            ("data/out", false),
            ("data/out/hooks.toml", false),
            ("data/nowhere", false),
            ("data/nowhere/deep", false),
            ("data/../etc", false),
            ("data/new/../../etc", false),
            ("not-there/x", false),
        ] {
            assert_eq!(ground.admit(&copy(at(name), at("data/in"))).is_ok(), is_admitted, "from {name}");
            assert_eq!(ground.admit(&copy(at("data/in"), at(name))).is_ok(), is_admitted, "to {name}");
        }
        let (none, any) = (LocalGround::Beneath(Vec::new()), LocalGround::Any);
        let fault = none.admit(&copy(at("data"), at("data/in"))).unwrap_err();
        assert_eq!(fault.code, FaultCode::Denied);
        assert!(any.admit(&copy(at("etc"), at("data/out"))).is_ok());
        assert!(ground.admit(&copy("data".into(), at("data/in"))).is_err(), "a relative path has no place");
    }
}
