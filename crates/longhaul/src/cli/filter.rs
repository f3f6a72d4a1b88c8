//! `--include` and `--exclude`, whose order counts.
//!
//! In: arguments. Out: one list to `settings`.

use std::ffi::OsString;

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use longhaul_core::filter::RuleKind;

/// `--include` and `--exclude` as one list: their order decides, which clap's separate fields would
/// lose.
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    /// The patterns as written, in the order given.
    pub rules: Vec<(RuleKind, OsString)>,
}

impl Args for FilterOptions {
    fn augment_args(command: Command) -> Command {
        let filter = |name: &'static str, help: &'static str| {
            clap::Arg::new(name)
                .long(name)
                .value_name("GLOB")
                .value_parser(clap::value_parser!(OsString))
                .action(ArgAction::Append)
                // As in rsync: the next word is the pattern, whatever it begins with.
                .allow_hyphen_values(true)
                .help(help)
        };
        command
            .arg(filter(INCLUDE, "Send what matches; of all --include and --exclude the first match decides. Patterns given here take the place of those in config.toml"))
            .arg(filter(EXCLUDE, "Leave out what matches; an excluded directory is not entered"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        FilterOptions::augment_args(command)
    }
}

impl FromArgMatches for FilterOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FilterOptions, clap::Error> {
        let mut rules: Vec<(usize, RuleKind, OsString)> = Vec::new();
        for (name, kind) in [(INCLUDE, RuleKind::Include), (EXCLUDE, RuleKind::Exclude)] {
            let places = matches.indices_of(name).into_iter().flatten();
            let texts = matches.get_many::<OsString>(name).into_iter().flatten();
            rules.extend(places.zip(texts).map(|(place, text)| (place, kind, text.clone())));
        }
        rules.sort_by_key(|(place, ..)| *place);
        Ok(FilterOptions { rules: rules.into_iter().map(|(_, kind, text)| (kind, text)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = FilterOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The option's name of patterns to send.
pub const INCLUDE: &str = "include";
/// The option's name of patterns to leave out.
pub const EXCLUDE: &str = "exclude";
