//! `--preserve`, `--extra-checksum`, `--map-user`, `--map-group` and `--numeric-ids`: which
//! metadata is carried over, which checksums are kept with it, and which accounts it names at the
//! destination.
//!
//! In: the options, and the files of rules that they name. Out: a [`Metadata`] to `settings`.

#![allow(clippy::disallowed_methods, reason = "the settings loader reads the files that options name")]

use std::ffi::OsString;
use std::fs;

use longhaul_core::Preserve;
use longhaul_engine::{AccountMap, AccountRule, Metadata};

use super::Layers;
use crate::cli::MetadataOptions;
use crate::error::{Error, Flaw};
use crate::values;

/// Merges the options of metadata.
///
/// # Errors
/// The first option that cannot be used, or a file of rules that cannot be read.
pub(super) fn metadata(args: &MetadataOptions, layers: &Layers) -> Result<Metadata, Error> {
    let preserve = layers.parsed("preserve", &args.preserve, values::preserve)?.unwrap_or_default();
    let sums = layers.parsed("extra-checksum", &args.extra_checksum, values::sums)?.unwrap_or_default();
    let preserve = Preserve { sums, ..preserve };
    let accounts = AccountMap {
        users: rules("map-user", &args.map_user, layers)?,
        groups: rules("map-group", &args.map_group, layers)?,
        numbers_only: layers.switch("numeric-ids", args.numeric_ids)?,
    };
    if !accounts.is_empty() && !preserve.owner && !preserve.acls {
        let why = "accounts are mapped only where owners or access lists are carried over";
        return Err(Error::Combination { why, hint: "add --preserve +owner or +acls" });
    }
    Ok(Metadata { preserve, accounts })
}

/// Rules in the text itself, which has a colon then, or in the file that it names.
fn rules(name: &'static str, flag: &Option<OsString>, layers: &Layers) -> Result<Vec<AccountRule>, Error> {
    let Some(given) = layers.given(name, flag) else { return Ok(Vec::new()) };
    let text = match given.text.to_str() {
        Some(text) if text.contains(':') => text.to_owned(),
        _ => fs::read_to_string(&given.text).map_err(Error::file("read", &given.text))?,
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let rules = lines.flat_map(|line| line.split(',')).map(str::trim).filter(|rule| !rule.is_empty());
    let parsed: Result<Vec<_>, Flaw> = rules.map(values::account_rule).collect();
    parsed.map_err(|flaw| Error::Option { origin: given.origin.clone(), flaw })
}

#[cfg(test)]
mod tests {
    use longhaul_core::{Account, Word};

    use super::*;
    use crate::config::ClientFile;

    #[test]
    fn rules_stand_in_the_option_or_in_a_file_with_comments() {
        let account = |id, name: &str| {
            let name = (!name.is_empty()).then(|| Word::try_from(name).expect("a word"));
            Account { id, name }
        };
        let rule = |from, to| AccountRule { from, to };
        let want = vec![
            rule(Some(account(None, "ann")), account(Some(7), "")),
            rule(Some(account(Some(5), "")), account(None, "bob")),
            rule(None, account(Some(0), "")),
        ];
        let environment = |_: &str| None;
        let layers = Layers::new(&environment, ClientFile::default());
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("rules");
        fs::write(&file, "# whose is what\nann:7, 5:bob\n\n *:0\n").expect("written");
        for given in [OsString::from("ann:7,5:bob,*:0"), file.into_os_string()] {
            assert_eq!(rules("map-user", &Some(given), &layers).expect("rules"), want);
        }
        for bad in ["ann:", ":7", "a:b:c", "4294967295:1", "1:4294967295", "7:*"] {
            assert!(rules("map-user", &Some(bad.into()), &layers).is_err(), "{bad}");
        }
        assert!(rules("map-user", &Some("no-such-file".into()), &layers).is_err());
    }
}
