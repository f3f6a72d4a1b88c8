//! The rules of copies from one daemon to another, in which this host takes no part.
//!
//! In: the ends of a transfer and its settings, or the command line. Out: a refusal of what does
//! not go together, or the line that goes on with a copy. Moves and asks nothing.

use std::ffi::OsString;

use longhaul_engine::{Dialler, Following};

use super::Ends;
use crate::error::Error;
use crate::settings::TransferSettings;

/// Refuses what only a copy from one daemon to another takes, and what that does not.
pub(super) fn check(ends: &Ends, settings: &TransferSettings) -> Result<(), Error> {
    let is_one = matches!(ends, Ends::ThirdParty(..));
    let is_left = settings.third_party.following != Following::ToTheEnd;
    if !is_one && is_left {
        let why =
            "--detach and --attach are for copies from one daemon to another, and this host takes part in this one";
        return Err(Error::Combination { why, hint: "leave it out" });
    }
    if is_one && settings.keys.peer_key.is_some() {
        let why = "--peer-key is the key of one daemon, and two are named";
        return Err(Error::Combination { why, hint: "trust both: longhaul key trust HOST[:PORT] KEY" });
    }
    if !is_one && settings.third_party.dialler != Dialler::default() {
        let why = "--dialler is for copies from one daemon to another, and this host takes part in this one";
        return Err(Error::Combination { why, hint: "leave it out" });
    }
    if settings.manifest.is_some() && is_left {
        let why = "--manifest lists files as they are told, and of a copy that is left (--detach, --attach) none is";
        return Err(Error::Combination { why, hint: "leave one of them out" });
    }
    Ok(())
}

/// The command line that goes on with a copy: one that was waited for, or stopped, is given anew.
pub(super) fn to_repeat(line: &[OsString]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut line = line.iter();
    while let Some(word) = line.next() {
        let bytes = word.as_encoded_bytes();
        if bytes == b"--" {
            words.push(word.clone());
            words.extend(line.by_ref().cloned());
        } else if bytes == b"--attach" {
            line.next();
        } else if !bytes.starts_with(b"--attach=") && bytes != b"--stop" {
            words.push(word.clone());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_copy_that_was_waited_for_is_gone_on_with_by_another() {
        for (line, want) in [
            ("copy --attach 00ff lh://a/x lh://b/y", "copy lh://a/x lh://b/y"),
            ("copy lh://a/x lh://b/y --attach=00ff", "copy lh://a/x lh://b/y"),
            ("copy --attach 00ff --stop lh://a/x lh://b/y", "copy lh://a/x lh://b/y"),
            ("copy --detach lh://a/x lh://b/y", "copy --detach lh://a/x lh://b/y"),
            ("copy -- --attach b", "copy -- --attach b"),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(to_repeat(&words).join(OsStr::new(" ")), want);
        }
    }
}
