//! `docs/CLI.md`: every command and every option that is shown, with its help.
//!
//! It owns the form of that document. The command line comes in from `cli`, as clap knows it; a
//! page goes to `reference`. It must not know any command.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::page::{Page, escaped, item};
use crate::cli::Cli;

#[test]
fn cli_md_is_what_the_command_line_says() {
    super::hold("CLI.md", &document());
}

fn document() -> String {
    let mut program = Cli::command();
    program.build();
    let mut page = Page::new("The command line");
    page.paragraph(&escaped(&about(&program)));
    page.paragraph(
        "Every command also takes `-h` (a short help), `--help` (all of it) and `-V`, `--version`. \
         [CONFIG.md](CONFIG.md) has the files, [EXIT-CODES.md](EXIT-CODES.md) the exit codes, and \
         [EVENTS.md](EVENTS.md) the output of `--json`.",
    );
    after(&mut page, &program);
    let mut shown = BTreeMap::new();
    for command in program.get_subcommands_mut() {
        describe(&mut page, command, "longhaul", &mut shown);
    }
    page.end()
}

/// A command and those beneath it. A group of options that was shown for an earlier command is
/// named by that command.
fn describe(page: &mut Page, command: &mut Command, parent: &str, shown: &mut BTreeMap<String, String>) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    page.heading(&format!("`{name}`"));
    page.paragraph(&escaped(&about(command)));
    let usage = command.render_usage().to_string();
    page.block(usage.trim());
    for (heading, arguments) in groups(command) {
        let items: String = arguments.iter().map(|argument| entry(argument)).collect();
        page.subheading(&heading);
        match shown.get(&items).filter(|_| arguments.len() > 1) {
            Some(earlier) => page.paragraph(&format!("The same as of `{earlier}`.")),
            None => page.ready(&format!("{items}\n")),
        }
        shown.entry(items).or_insert_with(|| name.clone());
    }
    after(page, command);
    for beneath in command.get_subcommands_mut() {
        describe(page, beneath, &name, shown);
    }
}

/// The options under their headings, in the order of their first ones.
fn groups(command: &Command) -> Vec<(String, Vec<&Arg>)> {
    let mut groups: Vec<(String, Vec<&Arg>)> = Vec::new();
    let own = |argument: &&Arg| !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version");
    let (places, options): (Vec<_>, Vec<_>) = command.get_arguments().filter(own).partition(|arg| arg.is_positional());
    let (headed, plain): (Vec<_>, Vec<_>) = options.into_iter().partition(|arg| arg.get_help_heading().is_some());
    for argument in places.into_iter().chain(plain).chain(headed) {
        let usual = if argument.is_positional() { "Arguments" } else { "Options" };
        let heading = argument.get_help_heading().unwrap_or(usual);
        match groups.iter_mut().find(|(known, _)| known == heading) {
            Some((_, arguments)) => arguments.push(argument),
            None => groups.push((heading.to_owned(), vec![argument])),
        }
    }
    groups
}

fn entry(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    assert!(!help.is_empty(), "{} has no help", argument.get_id());
    let mut text = format!("{}: {}", spelled(argument), escaped(&help));
    let values: Vec<_> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if takes_value(argument) && !values.is_empty() {
        text += &format!(" [values: {}]", values.join(", "));
    }
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_value(argument) && !defaults.is_empty() {
        text += &format!(" [default: {}]", defaults.join(", "));
    }
    item(&text)
}

/// The names of an option and of its value.
fn spelled(argument: &Arg) -> String {
    let value: Vec<_> = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let value = value.join(" ");
    if argument.is_positional() {
        return format!("`{value}`");
    }
    let value = if takes_value(argument) { format!(" {value}") } else { String::new() };
    match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}{value}`"),
        (Some(short), None) => format!("`-{short}{value}`"),
        (None, long) => format!("`--{}{value}`", long.unwrap_or_default()),
    }
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

fn about(command: &Command) -> String {
    command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default()
}

fn after(page: &mut Page, command: &Command) {
    if let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        page.block(&text.to_string());
    }
}
