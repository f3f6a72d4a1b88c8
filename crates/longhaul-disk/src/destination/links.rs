//! Judges where a symbolic link would lead, before it is made: other users of a served tree may
//! follow it.
//!
//! In: the place of a link beneath the top of its tree and the target that it is sent with. Out: a
//! refusal, or nothing.
//!
//! A link stays inside by this rule: its target is relative, climbs no higher than the top of the
//! tree before it names anything, and climbs behind a name only out of a directory that stands. A
//! name that is no directory may be, or become, another link, and `name/..` then is the directory
//! above wherever that leads: two links that stay inside as texts would lead out together. As each
//! link starts from a real directory and stays beneath the top until it meets the next one, none of
//! them leads out.

use longhaul_core::{RelPath, is_reserved};

use super::policy::LinkPolicy;
use crate::error::DiskError;

/// Refuses a link at `place`, a path beneath the top of the tree, if the policy does. `is_dir`
/// tells whether a real directory, reached through no link, stands at a path beneath the top.
pub(crate) fn check(
    policy: LinkPolicy,
    place: &RelPath,
    target: &[u8],
    is_dir: impl Fn(&RelPath) -> bool,
) -> Result<(), DiskError> {
    let why = match policy {
        LinkPolicy::Keep => None,
        LinkPolicy::Refuse => Some("this root takes no links"),
        LinkPolicy::Inside => way_out(place, target, is_dir),
    };
    match why {
        None => Ok(()),
        Some(why) => Err(DiskError::LinkRefused { path: place.into(), target: target.into(), why }),
    }
}

/// The reason why a link may lead out. `None` if it cannot.
fn way_out(place: &RelPath, target: &[u8], is_dir: impl Fn(&RelPath) -> bool) -> Option<&'static str> {
    if target.first() == Some(&b'/') {
        return Some("an absolute link leads out of this root");
    }
    // As long as everything behind the last climb is a directory for certain, this is where it
    // leads.
    let mut at = place.parent().unwrap_or_default();
    let mut is_certain = true;
    for name in target.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        if name == b".." {
            if !is_certain && !is_dir(&at) {
                return Some(
                    "it climbs behind a name that is no directory, from where it may lead out of this root; if one is still to come \
                     there, run the same command again once it stands",
                );
            }
            let Some(above) = at.parent() else { return Some("it leads out of this root") };
            // The parent of a directory is a directory.
            (at, is_certain) = (above, true);
            continue;
        }
        if is_reserved(name) {
            return Some("it leads to a name that is reserved for longhaul's own files");
        }
        is_certain = false;
        // A text that cannot be a path of ours cannot be examined; nothing stands there.
        at = match at.join(name) {
            Ok(below) => below,
            Err(_) => return Some("it has a name that no path beneath this root can have"),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads_out(place: &str, target: &str) -> bool {
        let place = RelPath::new(place).expect("a path");
        let dirs = ["a", "a/b", "a/b/c"];
        let is_dir = |path: &RelPath| path.is_root() || dirs.iter().any(|dir| dir.as_bytes() == path.as_bytes());
        check(LinkPolicy::Inside, &place, target.as_bytes(), is_dir).is_err()
    }

    #[test]
    fn links_that_stay_beneath_the_top_are_taken() {
        for (place, target) in [
            ("l", "x"),
            ("l", "x/y/z"),
            ("l", "."),
            ("l", "./x//y/"),
            ("a/l", ".."),
            ("a/b/l", "../../x"),
            ("a/b/l", "c/../../../x"),
            ("a/l", "b/c/../../../x"),
            ("l", "a/.."),
            ("l", "..x/...y"),
        ] {
            assert!(!leads_out(place, target), "{place} -> {target}");
        }
    }

    #[test]
    fn links_that_lead_out_or_may_are_refused() {
        for (place, target) in [
            ("l", "/etc/shadow"),
            ("l", "//x"),
            ("l", ".."),
            ("l", "./../x"),
            ("a/l", "../.."),
            ("a/b/l", "../../../x"),
            ("a/b/l", ".././/../.././x"),
            ("l", "a/../.."),
            ("a/b/l", "c/../../../../x"),
            // Not there now; it may come as a link that leads up.
            ("a/b/l", "new/../x"),
            ("a/b/l", "c/new/.."),
            ("a/l", ".longhaul/0123456789abcdef.journal"),
            ("a/l", "../.LONGHAUL/x"),
        ] {
            assert!(leads_out(place, target), "{place} -> {target}");
        }
    }

    #[test]
    fn a_link_that_comes_before_its_directory_is_told_to_come_again() {
        let place = RelPath::new("l").expect("a path");
        let refused = check(LinkPolicy::Inside, &place, b"later/../x", RelPath::is_root).expect_err("refused");
        assert!(refused.to_string().contains("run the same command again"), "{refused}");
        let stands = |at: &RelPath| at.is_root() || at.as_bytes() == b"later";
        assert!(check(LinkPolicy::Inside, &place, b"later/../x", stands).is_ok());
    }

    #[test]
    fn a_policy_that_keeps_or_refuses_looks_at_no_target() {
        let place = RelPath::new("l").expect("a path");
        assert!(check(LinkPolicy::Keep, &place, b"/etc/shadow", |_| false).is_ok());
        assert!(check(LinkPolicy::Refuse, &place, b"x", |_| true).is_err());
    }
}
