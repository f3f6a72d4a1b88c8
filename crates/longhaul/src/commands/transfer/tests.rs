//! Tests of which locations go together, where placed paths begin, and how a command is printed to
//! be run again.

use std::os::unix::ffi::OsStringExt;

use super::*;
use crate::destination::tests::event;
use longhaul_engine::FileStatus;

fn ends(line: &[&str]) -> Result<Ends, Error> {
    let direction = match line[0] {
        "push" => Direction::Push,
        "pull" => Direction::Pull,
        _ => Direction::Copy,
    };
    let words: Vec<OsString> = line[1..].iter().map(OsString::from).collect();
    let (dest, sources) = words.split_last().unwrap();
    Ends::parse(direction, sources, dest, (StreamSettings::default(), &InputSettings::default()))
}

#[test]
fn commands_take_the_directions_that_they_are_named_for() {
    for line in [
        &["push", "a", "lh://h/r/x"][..],
        &["push", "a", "b"],
        &["copy", "a", "b/"],
        &["copy", "a", "c", "lh://h/r"],
        &["copy", "lh://h/r/a", "b"],
        &["pull", "lh://h/r/a", "lh://h:7214/s/b", "."],
        &["push", "a", "host:"],
        &["copy", "me@host:a", "me@host:/b", "c"],
    ] {
        assert!(ends(line).is_ok(), "{line:?}");
    }
}

#[test]
fn a_dash_as_the_destination_is_standard_output_and_a_file_of_that_name_is_written_with_its_directory() {
    for (line, is_stream) in [
        (&["pull", "lh://h/r/a", "-"][..], true),
        (&["copy", "a", "-"], true),
        (&["copy", "a", "./-"], false),
        (&["copy", "-", "a"], false),
        (&["pull", "lh://h/r/a", "-/"], false),
    ] {
        let ends = ends(line).unwrap();
        assert_eq!(ends.here().is_some_and(Here::is_stream), is_stream, "{line:?}");
    }
}

#[test]
fn what_does_not_go_together_is_a_usage_error() {
    for (line, part) in [
        (&["push", "lh://h/r/a", "b"][..], "push sends files of this host"),
        (&["pull", "a", "b"], "pull fetches from another host"),
        (&["pull", "lh://h/r/a", "lh://h/r/b"], "pull fetches to this host"),
        (&["copy", "lh://h/r/a", "g:b"], "one between two daemons"),
        (&["copy", "a", "lh://h/r/b", "c"], "some sources are on this host"),
        (&["pull", "lh://h/r/a", "lh://g/r/a", "c"], "different hosts"),
        (&["push", "a", "lh://h/"], "names no root"),
        (&["pull", "lh://h", "b"], "names no root"),
        (&["push", "a", "host::b"], "daemon of rsync"),
        (&["pull", "h:a", "g:b", "c"], "different hosts"),
        (&["pull", "h:a", "lh://h/r/b", "c"], "different hosts"),
        (&["copy", "h:a", "g:b"], "one between two daemons"),
        (&["push", "a", "lh://h/r/../b"], "'..'"),
    ] {
        let Err(error) = ends(line) else { panic!("{line:?}") };
        assert!(error.to_string().contains(part), "{error} / {part}");
        assert_eq!(Exit::from(longhaul_core::Fault::from(error).code), Exit::Usage, "{line:?}");
    }
}

#[test]
fn what_takes_the_destinations_name_is_shown_beside_it_and_all_else_beneath() {
    let beneath = event(b"s/a", b"new/a", FileStatus::Planned, None);
    let renamed = longhaul_engine::FileEvent { renamed: true, ..beneath.clone() };
    for line in [&["copy", "s", "no/new"][..], &["pull", "lh://h/r/s", "no/new"]] {
        let destination = ends(line).unwrap().destination();
        assert_eq!(destination.shown(&renamed), "no/new/a", "{line:?}");
        assert_eq!(destination.shown(&beneath), "no/new/new/a", "{line:?}");
    }
}

#[test]
fn a_command_is_printed_as_a_shell_takes_it() {
    let line = ["longhaul", "push", "a b", "it's", "", "lh://[::1]:1/r/x*"].map(OsString::from);
    assert_eq!(quoted(&line), "longhaul push 'a b' 'it'\\''s' '' 'lh://[::1]:1/r/x*'");
    let odd = [OsString::from("a'\n\\1"), OsString::from_vec(vec![0xff, b'7'])];
    assert_eq!(quoted(&odd), "$'a\\'\\0121' $'\\3777'".replace("\\0121", "\\012\\\\1"));
}
