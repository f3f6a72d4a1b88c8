//! Tests of precedence, and of the messages for options that cannot be used.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use longhaul_core::{Fault, FaultCode, IfExists};
use longhaul_engine::Protection;

use super::*;
use crate::cli::{Cli, Verb};
use crate::config::ClientFile;

/// Merges `copy ARGS a b` with variables and the text of a config file.
fn merge(args: &[&str], variables: &[(&str, &str)], file: &str) -> Result<(TransferSettings, Talk), Error> {
    let line = ["longhaul", "copy"].iter().chain(args).chain(&["a", "b"]);
    let Verb::Copy(args) = Cli::try_parse_from(line).unwrap().command else { panic!("not a copy") };
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let environment = |name: &str| variables.get(name).map(OsString::from);
    let layers = Layers::new(&environment, ClientFile::parse(Path::new("config.toml"), file)?);
    Ok((transfer(&args, &layers)?, talk(&args.output.talk, &layers)?))
}

fn fault(args: &[&str], variables: &[(&str, &str)], file: &str) -> Fault {
    merge(args, variables, file).map(|_| ()).unwrap_err().into()
}

fn patterns(args: &[&str], variables: &[(&str, &str)], file: &str) -> Vec<(RuleKind, String)> {
    let (settings, _) = merge(args, variables, file).unwrap();
    settings.engine.filter.rules().iter().map(|rule| (rule.kind, rule.pattern.as_str().to_owned())).collect()
}

#[test]
fn defaults_are_those_of_the_contract() {
    let (settings, talk) = merge(&[], &[], "").unwrap();
    let engine = settings.engine;
    assert_eq!(format!("{engine:?}"), format!("{:?}", Settings::default()), "a library's are no others");
    assert_eq!((engine.lanes, engine.depth, engine.protect), (None, None, None));
    assert_eq!((engine.chunk, engine.memory), (None, ByteCount(256 << 20)));
    assert_eq!((engine.if_exists, engine.dry_run), (IfExists::SkipSame, false));
    assert_eq!((engine.sync.bytes, engine.sync.age), (1 << 30, Duration::from_secs(1)));
    assert_eq!((engine.retry_for, engine.stall_after), (Duration::from_secs(600), Duration::from_secs(20)));
    assert_eq!((settings.progress, settings.manifest), (ProgressForm::Auto, None));
    assert_eq!(talk, Talk::default());
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let lanes = |args: &[&str], variables: &[(&str, &str)], file| merge(args, variables, file).unwrap().0.engine.lanes;
    assert_eq!(lanes(&[], &[], "lanes = 3"), Some(3));
    assert_eq!(lanes(&[], &[("LONGHAUL_LANES", "5")], "lanes = 3"), Some(5));
    assert_eq!(lanes(&["--lanes", "7"], &[("LONGHAUL_LANES", "5")], "lanes = 3"), Some(7));
    assert_eq!(lanes(&["--lanes", "auto"], &[("LONGHAUL_LANES", "5")], ""), None);
    assert_eq!(lanes(&[], &[("LONGHAUL_LANES", "")], "lanes = \"3\""), Some(3));
}

#[test]
fn what_a_crash_may_cost_is_set_as_every_option() {
    let variables = [("LONGHAUL_SYNC_INTERVAL", "200ms")];
    let (settings, _) =
        merge(&["--sync-bytes", "8MiB"], &variables, "sync-interval = \"5s\"\nsync_bytes = \"2MiB\"").unwrap();
    assert_eq!((settings.engine.sync.bytes, settings.engine.sync.age), (8 << 20, Duration::from_millis(200)));
}

#[test]
fn switches_can_be_set_anywhere() {
    let dry = |args: &[&str], variables: &[(&str, &str)], file| merge(args, variables, file).unwrap().0.engine.dry_run;
    assert!(dry(&["-n"], &[], ""));
    assert!(dry(&[], &[("LONGHAUL_DRY_RUN", "1")], ""));
    assert!(dry(&[], &[], "dry-run = true"));
    assert!(!dry(&[], &[("LONGHAUL_DRY_RUN", "false")], "dry-run = true"));
    let (_, talk) = merge(&["-vv"], &[("LONGHAUL_JSON", "yes")], "quiet = true").unwrap();
    assert_eq!(talk, Talk { json: true, quiet: true, verbose: 2, ..Talk::default() });
}

#[test]
fn the_file_takes_every_option_with_either_separator() {
    let file = "chunk-size = \"8MiB\"\nif_exists = \"replace\"\nprotect = \"safe\"\ntrust_on_first_use = true\n\
                preserve = [\"mode\", \"times\"]\nmanifest = \"/tmp/m\"";
    let (settings, _) = merge(&[], &[], file).unwrap();
    assert_eq!(settings.engine.chunk.map(ChunkSize::bytes), Some(8 << 20));
    assert_eq!(settings.engine.if_exists, IfExists::Replace);
    assert_eq!(settings.engine.protect, Some(Protection::Safe));
    assert!(settings.engine.metadata.preserve.mode && !settings.engine.metadata.preserve.links);
    assert!(settings.keys.trust_on_first_use);
    assert_eq!(settings.manifest, Some("/tmp/m".into()));
}

#[test]
fn the_first_place_with_any_pattern_decides_all_of_them() {
    let (include, exclude) = (RuleKind::Include, RuleKind::Exclude);
    let file = "exclude = [\"*.o\", \"*.a\"]\ninclude = [\"keep.o\"]";
    let of_file = [(include, "keep.o".into()), (exclude, "*.o".into()), (exclude, "*.a".into())];
    assert_eq!(patterns(&[], &[], file), of_file);
    assert_eq!(patterns(&[], &[("LONGHAUL_EXCLUDE", "x\ny")], file), [(exclude, "x".into()), (exclude, "y".into())]);
    let variables = [("LONGHAUL_EXCLUDE", "x")];
    assert_eq!(patterns(&["--include", "z"], &variables, file), [(include, "z".into())]);
}

#[test]
fn an_error_names_where_the_text_was_written() {
    for (args, variables, file, start) in [
        (&["--lanes", "none"][..], &[][..], "", "--lanes: 'none' is not a whole number from 1 to 128"),
        (&[], &[("LONGHAUL_CHUNK_SIZE", "3MiB")], "", "LONGHAUL_CHUNK_SIZE: 3.0 MiB is not a power of two"),
        (&[], &[], "\nprotect = \"clear\"", "config.toml:2: protect: 'clear' is not one of private, safe"),
        (&["--memory", "15MiB"], &[], "", "--memory: 15.0 MiB is too little: 4 chunks must fit, which take 16.0 MiB"),
        (&["--peer-key", "abc"], &[], "", "--peer-key: 'abc' is not a public key"),
        (&["--retry-for", "10"], &[], "", "--retry-for: '10' is not a time, as 90s, 10m, 2h or 14d"),
        (&["--sync-interval", "1h"], &[], "", "--sync-interval: '1h' is not a time from 50ms to 1min, as 500ms or 5s"),
        (&[], &[], "sync-bytes = \"4KiB\"", "config.toml:1: sync-bytes: '4KiB' is not a size from 1MiB to 64GiB"),
        (&["--preserve", "hardlink"], &[], "", "--preserve: 'hardlink' is not one of mode"),
        (&["--exclude", "a["], &[], "", "cannot use the filter pattern 'a['"),
        (&["--files-from", "/no/such/list"], &[], "", "cannot read /no/such/list"),
    ] {
        let fault = fault(args, variables, file);
        assert!(fault.message.starts_with(start), "{} / {start}", fault.message);
        assert_eq!(fault.code, FaultCode::Usage, "{start}");
    }
}

#[test]
fn large_chunks_fit_the_default_memory_and_small_memory_takes_small_chunks() {
    assert!(merge(&["--chunk-size", "64MiB"], &[], "").is_ok());
    let (auto, _) = merge(&["--chunk-size", "auto"], &[("LONGHAUL_CHUNK_SIZE", "8MiB")], "").unwrap();
    assert_eq!(auto.engine.chunk, None);
    assert!(merge(&["--chunk-size", "1MiB", "--memory", "4MiB"], &[], "").is_ok());
    assert!(merge(&["--chunk-size", "64MiB"], &[("LONGHAUL_MEMORY", "255MiB")], "").is_err());
}

#[test]
fn habits_from_rsync_are_answered() {
    let hint = |args: &[&str]| fault(args, &[], "").hint.unwrap().to_string();
    assert!(hint(&["-a"]).contains("--preserve"));
    assert!(fault(&["-c"], &[], "").message.contains("BLAKE3"));
    assert!(hint(&["--checksum"]).contains("--if-exists verify"));
    assert!(merge(&["-r"], &[], "").is_ok());
}
