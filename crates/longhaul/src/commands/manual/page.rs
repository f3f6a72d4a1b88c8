//! The form of a manual page: its sections, in the order in which readers of `man` look for them.
//!
//! In: a command as clap knows it. Out: a name and text for `man` of each page. clap's generator
//! writes what it has; the text beneath the options becomes sections here. It must not know any
//! command.

use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// A page of the manual.
pub(super) struct Page {
    /// The name of its file.
    pub(super) name: String,
    /// Its text, in the language of `man`.
    pub(super) text: Vec<u8>,
}

/// The commands in the form in which their pages read well: the generator leaves out what only a
/// long help shows, unless it is marked as text for that.
pub(super) fn readable(program: Command) -> Command {
    let mut program = spelled_out(program.disable_help_subcommand(true));
    program.build();
    program
}

fn spelled_out(command: Command) -> Command {
    let command = command.subcommand_help_heading("COMMANDS").mut_args(|arg| {
        let arg = if arg.is_positional() { arg.help_heading("Arguments") } else { arg };
        match (arg.get_long_help(), arg.get_help().cloned()) {
            (None, Some(help)) => arg.long_help(help),
            _ => arg,
        }
    });
    command.mut_subcommands(spelled_out)
}

/// The pages of a program and of all its commands, the program's first.
///
/// # Errors
/// The error of a writer.
pub(super) fn all(program: &Command) -> io::Result<Vec<Page>> {
    let mut pages = Vec::new();
    add(program, &mut Vec::new(), &mut pages)?;
    Ok(pages)
}

/// Adds the page of a command and those of the commands beneath it; `above` has the names of the
/// pages that lead to it.
fn add(command: &Command, above: &mut Vec<String>, pages: &mut Vec<Page>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    pages.push(Page { name: format!("{name}.{SECTION}"), text: text(command, above)? });
    above.push(name);
    for beneath in command.get_subcommands().filter(|beneath| !beneath.is_hide_set()) {
        add(beneath, above, pages)?;
    }
    above.pop();
    Ok(())
}

fn text(command: &Command, above: &[String]) -> io::Result<Vec<u8>> {
    // An empty date would be no argument, and those behind it would move up.
    let man = Man::new(command.clone()).date(" ").source(SOURCE).manual(MANUAL);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(command).to_writer(&mut text)?;
    if command.get_long_about().is_some() {
        man.render_description_section(&mut text)?;
    }
    if command.get_subcommands().any(|beneath| !beneath.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    options(command, Arg::is_positional).render_options_section(&mut text)?;
    options(command, |arg| !arg.is_positional()).render_options_section(&mut text)?;
    notes(command).to_writer(&mut text)?;
    if above.is_empty() {
        files().to_writer(&mut text)?;
    } else {
        see_also(above).to_writer(&mut text)?;
    }
    Ok(text)
}

/// A command of which some of the arguments are shown.
fn options(command: &Command, chosen: impl Fn(&Arg) -> bool) -> Man {
    let hidden = |arg: Arg| if chosen(&arg) { arg } else { arg.hide(true) };
    Man::new(command.clone().mut_args(hidden))
}

/// The usage, as the help has it.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    match usage.strip_prefix(name) {
        Some(rest) => roff.text([bold(name), roman(rest)]),
        None => roff.text([roman(usage)]),
    };
    roff
}

/// The text beneath the options, a section for each kind of paragraph.
fn notes(command: &Command) -> Roff {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    let mut noted = false;
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        if let Some(examples) = paragraph.strip_prefix(EXAMPLES) {
            roff.control("SH", ["EXAMPLES"]);
            verbatim(&mut roff, examples);
        } else if let Some(codes) = paragraph.strip_prefix(EXIT_CODES) {
            roff.control("SH", ["EXIT STATUS"]);
            exit_codes(&mut roff, codes);
        } else {
            let control = if noted { ("PP", None) } else { ("SH", Some("NOTES")) };
            roff.control(control.0, control.1);
            noted = true;
            mixed(&mut roff, paragraph);
        }
    }
    roff
}

/// Text whose indented lines are commands.
fn mixed(roff: &mut Roff, paragraph: &str) {
    let is_command = |line: &&str| line.starts_with("  ");
    let mut lines = paragraph.lines().peekable();
    while let Some(line) = lines.next() {
        if is_command(&line) {
            let mut block = line.to_owned();
            while let Some(more) = lines.next_if(is_command) {
                block = format!("{block}\n{more}");
            }
            verbatim(roff, &block);
        } else {
            roff.text([roman(line)]);
        }
    }
}

/// Lines that are shown as they stand.
fn verbatim(roff: &mut Roff, lines: &str) {
    roff.control("EX", []);
    for line in lines.lines() {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    roff.control("EE", []);
}

/// Codes and their meanings, `0 all done · 2 usage or config`, as a list.
fn exit_codes(roff: &mut Roff, codes: &str) {
    for code in codes.split(" · ") {
        let (number, meaning) = code.trim().split_once(' ').unwrap_or((code, ""));
        entry(roff, bold(number), meaning);
    }
}

fn entry(roff: &mut Roff, head: Inline, text: &str) {
    roff.control("TP", []);
    roff.text([head]);
    roff.text([roman(text)]);
}

fn files() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["FILES"]);
    for (path, meaning) in FILES {
        entry(&mut roff, italic(path), meaning);
    }
    roff
}

fn see_also(above: &[String]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for name in above {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name.as_str()), roman(format!("({SECTION})"))]);
    }
    roff.text(line);
    roff
}

const SECTION: &str = "1";
const SOURCE: &str = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "longhaul manual";
const EXAMPLES: &str = "Examples:\n";
const EXIT_CODES: &str = "Exit codes: ";
const FILES: [(&str, &str); 4] = [
    (
        "$XDG_CONFIG_HOME/longhaul/config.toml",
        "options of transfers, one key for each; $XDG_CONFIG_HOME is usually ~/.config",
    ),
    ("$XDG_CONFIG_HOME/longhaul/identity", "this user's private key"),
    ("$XDG_CONFIG_HOME/longhaul/known_hosts", "keys of the daemons that are trusted"),
    (
        "/etc/longhaul/serve.toml",
        "the daemon's configuration; where it does not exist, $XDG_CONFIG_HOME/longhaul/serve.toml",
    ),
];
