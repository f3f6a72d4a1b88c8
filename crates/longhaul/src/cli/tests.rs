//! Tests of valid and invalid command lines.

use clap::CommandFactory;
use longhaul_core::filter::RuleKind;

use super::*;

fn transfer(args: &[&str]) -> TransferArgs {
    let line = ["longhaul", "copy"].iter().chain(args);
    match Cli::try_parse_from(line).unwrap().command {
        Verb::Copy(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn filters_keep_the_order_between_include_and_exclude() {
    let args = transfer(&["--exclude", "a", "--include=b", "src", "--exclude", "c", "dst"]);
    let texts: Vec<_> = args.choice.filters.rules.iter().map(|(k, t)| (*k, t.to_str().unwrap())).collect();
    assert_eq!(texts, [(RuleKind::Exclude, "a"), (RuleKind::Include, "b"), (RuleKind::Exclude, "c")]);
}

#[test]
fn the_last_location_is_the_destination() {
    let args = transfer(&["a", "b", "--lanes", "2", "c"]);
    assert_eq!(args.ends(), Some((&["a".into(), "b".into()][..], &"c".into())));
    assert_eq!(transfer(&["only"]).ends(), Some((&[][..], &"only".into())));
}

#[test]
fn an_option_given_twice_counts_the_second_time() {
    assert_eq!(transfer(&["--lanes", "2", "--lanes", "3", "a", "b"]).network.lanes, Some("3".into()));
}

#[test]
fn a_preserve_list_may_begin_with_a_minus() {
    assert_eq!(transfer(&["--preserve", "-times", "a", "b"]).choice.metadata.preserve, Some("-times".into()));
}

#[test]
fn a_client_is_let_in_for_something() {
    let parse = |more: &[&str]| {
        let line = ["longhaul", "key", "authorize", "KEY", "--name", "n"];
        Cli::try_parse_from(line.iter().chain(more)).is_ok()
    };
    assert!(parse(&["--root", "r=read"]) && parse(&["--bench"]) && parse(&["--bench", "--root", "r=read"]));
    assert!(!parse(&[]));
}

#[test]
fn measurements_say_whose_buffers_they_mean() {
    let help = |verb: &str| Cli::try_parse_from(["longhaul", "bench", verb, "--help"]).unwrap_err().to_string();
    assert!(help("matrix").contains("Buffers of each half"), "{}", help("matrix"));
    assert!(help("net").contains("Buffers of this side"), "{}", help("net"));
}

#[test]
fn what_is_not_built_is_unknown() {
    for absent in ["--deadline", "--report"] {
        assert!(Cli::try_parse_from(["longhaul", "copy", absent, "x", "a", "b"]).is_err(), "{absent}");
    }
    for absent in ["loop", "memory"] {
        assert!(Cli::try_parse_from(["longhaul", "bench", absent]).is_err(), "{absent}");
    }
    for absent in ["doctor", "check", "set", "completions", "config"] {
        assert!(Cli::try_parse_from(["longhaul", absent]).is_err(), "{absent}");
    }
}
