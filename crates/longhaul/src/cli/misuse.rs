//! The messages for a command line that does not parse.
//!
//! In: the parser's error, and the command's name. Out: an [`Error::CommandLine`] of one line and
//! one hint. Suggests only words that exist, and only where a typing error is likely.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::foreign;
use crate::error::Error;

/// The error in the program's words.
pub fn explain(error: &clap::Error, command: Option<&str>) -> Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (message, hint) = match (error.kind(), text(ContextKind::InvalidArg), text(ContextKind::InvalidSubcommand)) {
        (ErrorKind::UnknownArgument, Some(argument), _) => {
            unknown_option(argument, command, &suggestions(error, ContextKind::SuggestedArg))
        }
        (ErrorKind::InvalidSubcommand, _, Some(name)) => {
            unknown_command(name, command, &suggestions(error, ContextKind::SuggestedSubcommand))
        }
        _ => condensed(&error.render().to_string(), command),
    };
    Error::CommandLine { message, hint }
}

fn unknown_option(argument: &str, command: Option<&str>, similar: &[String]) -> (String, String) {
    let option = argument.split('=').next().unwrap_or(argument);
    let whose = command.unwrap_or("longhaul");
    if !option.starts_with('-') {
        return (format!("unexpected argument '{option}'"), see(command));
    }
    if let Some((why, instead)) = command.and_then(|command| foreign::explain(command, option)) {
        return (format!("{whose} has no option {option}: {why}"), instead.to_owned());
    }
    let message = format!("{whose} has no option {option}");
    let hint = match likely(option, similar) {
        Some(meant) => format!("did you mean {meant}?"),
        None if option.starts_with("--") => see(command),
        None => format!("{}; a name that begins with '-' is written ./{argument}", see(command)),
    };
    (message, hint)
}

fn unknown_command(name: &str, command: Option<&str>, similar: &[String]) -> (String, String) {
    // A command that does not exist may be the first word, or the second one.
    let beside = |command: &str| {
        let above = command.strip_suffix(name).filter(|above| above.is_empty() || above.ends_with(' '));
        above.map_or_else(|| command.to_owned(), |above| above.trim_end().to_owned())
    };
    let above = command.map(beside).filter(|above| !above.is_empty());
    let longhaul = above.map_or_else(|| "longhaul".to_owned(), |command| format!("longhaul {command}"));
    let hint = match likely(name, similar) {
        Some(meant) => format!("did you mean '{longhaul} {meant}'?"),
        None => format!("'{longhaul} --help' lists the commands"),
    };
    (format!("there is no command '{longhaul} {name}'"), hint)
}

fn see(command: Option<&str>) -> String {
    match command {
        Some(command) => format!("'longhaul {command} --help' lists its options"),
        None => "'longhaul --help' and 'longhaul COMMAND --help' tell what can be written".to_owned(),
    }
}

/// Puts the parser's paragraphs on one line.
fn condensed(text: &str, command: Option<&str>) -> (String, String) {
    let first = text.split("\n\n").next().unwrap_or_default();
    let message = first.split_whitespace().collect::<Vec<_>>().join(" ");
    (message.strip_prefix("error: ").unwrap_or(&message).to_owned(), see(command))
}

fn suggestions(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(several)) => several.clone(),
        _ => Vec::new(),
    }
}

/// The one of the parser's guesses that was surely meant: it differs by one or two typing errors,
/// or the word was broken off.
fn likely<'a>(written: &str, guesses: &'a [String]) -> Option<&'a str> {
    let bare = |word: &str| word.trim_start_matches('-').to_ascii_lowercase();
    let word = bare(written);
    let slips = |guess: &&String| {
        let guess = bare(guess);
        let cut_off = word.len() >= 4 && guess.starts_with(&word);
        if cut_off { 0 } else { distance(&word, &guess) }
    };
    let nearest = guesses.iter().min_by_key(slips)?;
    (slips(&nearest) <= (word.len() / 4).clamp(1, 2)).then_some(nearest.as_str())
}

/// The number of typing errors between two words: a letter too many, too few, wrong, or two in the
/// wrong order.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    /// Message and hint of a line that does not parse.
    fn said(line: &[&str]) -> String {
        let error = Cli::try_parse_from(["longhaul"].iter().chain(line)).unwrap_err();
        words(explain(&error, line.first().copied()))
    }

    fn words(error: Error) -> String {
        match error {
            Error::CommandLine { message, hint } => format!("{message} / {hint}"),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn options_that_an_owner_has_signed_are_no_rules_that_can_be_set() {
        for option in ["--rate", "--exclude", "--as-dataset"] {
            let error = Cli::try_parse_from(["longhaul", "job", "set", "atlas", option, "x"]).unwrap_err();
            let said = words(explain(&error, Some("job set")));
            assert!(said.starts_with(&format!("job set has no option {option}: its owner has signed")), "{said}");
        }
        let error = Cli::try_parse_from(["longhaul", "job", "frobnicate"]).unwrap_err();
        let said = words(explain(&error, Some("job frobnicate")));
        assert!(said.starts_with("there is no command 'longhaul job frobnicate'"), "{said}");
    }

    #[test]
    fn options_of_other_tools_are_explained_and_never_guessed_at() {
        for (option, want) in [
            ("--delete", "nothing is ever deleted"),
            ("--stats", "every run ends with its counts"),
            ("--partial", "always kept"),
            ("-P", "always kept"),
            ("-z", "nothing is compressed"),
            ("--compress", "nothing is compressed"),
            ("-u", "--if-exists"),
            ("--bwlimit=10M", "--rate 80Mbit/s or --rate 10MB/s"),
            ("--exclude-from", "config.toml"),
            ("--max-bytes", "not built yet"),
            ("--deadline", "not built yet"),
            ("--rsh", "--ssh COMMAND"),
            ("--checksum-choice", "--extra-checksum"),
            ("--owner", "--preserve +xattrs,+owner,+acls"),
            ("--hard-links", "--preserve +hardlinks"),
            ("--devices", "not carried"),
        ] {
            for command in ["push", "pull", "copy"] {
                let said = said(&[command, option, "a", "b"]);
                let name = option.split('=').next().unwrap();
                assert!(said.starts_with(&format!("{command} has no option {name}: ")), "{said}");
                assert!(said.contains(want), "{option}: {said}");
                assert!(!said.contains("as a value") && !said.contains("similar"), "{said}");
            }
        }
    }

    #[test]
    fn a_slip_is_put_right_and_what_only_looks_alike_is_not_proposed() {
        for (line, want) in [
            (&["push", "--dryrun", "a", "b"][..], "did you mean --dry-run?"),
            (&["push", "--preserv", "a", "b"], "did you mean --preserve?"),
            (&["push", "--lane", "2", "a", "b"], "did you mean --lanes?"),
            (&["psuh", "a", "b"], "did you mean 'longhaul push'?"),
            (&["push", "--nonsense", "a", "b"], "'longhaul push --help' lists its options"),
            (&["push", "-Q", "a", "b"], "a name that begins with '-' is written ./-Q"),
            (&["frobnicate"], "'longhaul --help' lists the commands"),
            (&["key", "genrate"], "did you mean 'longhaul key generate'?"),
            (&["key", "frobnicate"], "'longhaul key --help' lists the commands"),
            (&["ls", "-a", "b"], "every name is listed"),
            (&["serve", "--port", "1"], "listen ="),
        ] {
            assert!(said(line).ends_with(want) || said(line).contains(want), "{line:?}: {}", said(line));
        }
    }

    #[test]
    fn no_option_that_exists_is_called_foreign() {
        let whole = Cli::command();
        for command in ["push", "pull", "copy", "sync", "ls", "serve"] {
            let own = whole.find_subcommand(command).unwrap();
            for argument in own.get_arguments() {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let short = argument.get_short().map(|short| format!("-{short}"));
                for name in long.into_iter().chain(short) {
                    assert!(foreign::explain(command, &name).is_none(), "{command} {name}");
                }
            }
        }
    }

    #[test]
    fn slips_are_counted_as_people_make_them() {
        for (a, b, slips) in
            [("push", "push", 0), ("psuh", "push", 1), ("dryrun", "dry-run", 1), ("partial", "path", 4)]
        {
            assert_eq!(distance(a, b), slips, "{a} {b}");
        }
    }
}
