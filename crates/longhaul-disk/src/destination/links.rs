//! Judges where a symbolic link would lead, before it is made: other users of a served tree may
//! follow it.
//!
//! In: the place of a link beneath the top of its tree and the target that it is sent with. Out: a
//! refusal, or nothing.
//!
//! A link stays inside by this rule: its target is relative, climbs at its beginning only, and no
//! higher than the top of the tree. A link lies in a real directory, out of which it climbs over
//! real directories; from there on it names, and each name leads beneath the top until the next
//! link, of which the same is true. `name/..` is the directory above wherever `name` leads: two
//! links that stay inside as texts would lead out together. That `name` is a directory now helps
//! nothing: a dataset that takes the place of it, or of one above it, may have a link there.

use longhaul_core::{RelPath, is_reserved};

use super::policy::LinkPolicy;
use crate::error::DiskError;

/// Refuses a link at `place`, a path beneath the top of the tree, if the policy does.
pub(crate) fn check(policy: LinkPolicy, place: &RelPath, target: &[u8]) -> Result<(), DiskError> {
    let why = match policy {
        LinkPolicy::Keep => None,
        LinkPolicy::Refuse => Some("this root takes no links"),
        LinkPolicy::Inside => way_out(place, target),
    };
    match why {
        None => Ok(()),
        Some(why) => Err(DiskError::LinkRefused { path: place.into(), target: target.into(), why }),
    }
}

/// The reason why a link may lead out. `None` if it cannot.
fn way_out(place: &RelPath, target: &[u8]) -> Option<&'static str> {
    if target.first() == Some(&b'/') {
        return Some("an absolute link leads out of this root");
    }
    let mut at = place.parent().unwrap_or_default();
    let mut has_named = false;
    for name in target.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        if name == b".." {
            if has_named {
                return Some(
                    "it has a '..' behind a name, from where it may lead out of this root once another link has that name; make \
                     it anew with each '..' at its beginning, as 'ln -sr' does",
                );
            }
            let Some(above) = at.parent() else { return Some("it leads out of this root") };
            at = above;
            continue;
        }
        if is_reserved(name) {
            return Some("it leads to a name that is reserved for longhaul's own files");
        }
        has_named = true;
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
        check(LinkPolicy::Inside, &place, target.as_bytes()).is_err()
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
            ("a/b/l", "./.././../x/y"),
            ("a/b/l", "../b/c"),
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
            // A directory now or not, it may come as a link that leads up.
            ("l", "a/.."),
            ("a/b/l", "c/../x"),
            ("a/b/l", "../b/../x"),
            ("a/l", "b/c/../../../x"),
            ("a/l", ".longhaul/0123456789abcdef.journal"),
            ("a/l", "../.LONGHAUL/x"),
        ] {
            assert!(leads_out(place, target), "{place} -> {target}");
        }
    }

    #[test]
    fn a_policy_that_keeps_or_refuses_looks_at_no_target() {
        let place = RelPath::new("l").expect("a path");
        assert!(check(LinkPolicy::Keep, &place, b"/etc/shadow").is_ok());
        assert!(check(LinkPolicy::Refuse, &place, b"x").is_err());
    }
}
