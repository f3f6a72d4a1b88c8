//! `config.toml`: the client's defaults, one key for each option of a transfer.
//!
//! In: the file's text. Out: [`ClientFile`] to `settings`, still as texts. The keys are the options
//! that `cli` declares, so that none can be forgotten; an unknown key is an error at its place.
//! Knows no option's meaning.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::cli::{Cli, ON_THE_COMMAND_LINE_ALONE};
use crate::error::{Error, Origin};
use crate::values::Given;

/// The loaded file: option names and the texts given for them.
#[derive(Debug, Default)]
pub struct ClientFile {
    path: PathBuf,
    keys: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    line: usize,
    texts: Vec<String>,
}

/// The kind of value that an option takes in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Switch,
    One,
    /// A list that stands for one text with commas.
    Joined,
    Many,
}

impl ClientFile {
    /// Reads the file. A missing file sets nothing.
    ///
    /// # Errors
    /// [`Error::Config`] at the place of a mistake, [`Error::Exposed`], [`Error::File`].
    pub fn load(path: Option<&Path>) -> Result<ClientFile, Error> {
        match path {
            Some(path) if path.exists() => ClientFile::parse(path, &super::read(path)?),
            _ => Ok(ClientFile::default()),
        }
    }

    /// Takes the text of the file at `path`.
    ///
    /// # Errors
    /// [`Error::Config`] at the place of a mistake.
    pub fn parse(path: &Path, text: &str) -> Result<ClientFile, Error> {
        let table = DeTable::parse(text).map_err(|error| super::unparsed(path, text, &error))?;
        let options = options();
        let mut keys = BTreeMap::new();
        for (key, value) in table.get_ref() {
            let flawed = |span, message: String| super::flawed(path, text, Some(span), message);
            let name = key.get_ref().replace('_', "-");
            let takes = *options.get(&name).ok_or_else(|| flawed(key.span(), unknown(key.get_ref())))?;
            let texts = texts(takes, value.get_ref())
                .map_err(|expected| flawed(value.span(), format!("{name}: expected {expected}")))?;
            let entry = Entry { line: super::position(text, value.span().start).0, texts };
            if keys.insert(name.clone(), entry).is_some() {
                return Err(flawed(key.span(), format!("{name} is there twice, as '-' and '_' are the same")));
            }
        }
        Ok(ClientFile { path: path.to_owned(), keys })
    }

    /// The texts that the file gives for an option.
    pub fn get(&self, name: &str) -> Vec<Given> {
        let Some(entry) = self.keys.get(name) else { return Vec::new() };
        let origin = || Origin::File { path: self.path.clone(), line: entry.line, key: name.to_owned() };
        entry.texts.iter().map(|text| Given { text: text.into(), origin: origin() }).collect()
    }
}

/// A key of the file, for its reference.
#[cfg(test)]
pub(crate) struct ClientKey {
    /// The name.
    pub(crate) name: String,
    /// The forms of a value, in words of TOML.
    pub(crate) form: &'static str,
    /// Whether it is off or on.
    pub(crate) is_switch: bool,
    /// The help of the option.
    pub(crate) help: String,
}

/// Every key of the file, in the order of the options.
#[cfg(test)]
pub(crate) fn client_keys() -> Vec<ClientKey> {
    let (command, options) = (Cli::command(), options());
    let copy = command.find_subcommand("copy").expect("there is such a command");
    let key = |argument: &clap::Arg| {
        let name = argument.get_long()?;
        let takes = *options.get(name)?;
        let form = match takes {
            Takes::Switch if matches!(argument.get_action(), ArgAction::Count) => "boolean or integer",
            Takes::Switch => "boolean",
            Takes::One => "string or integer",
            Takes::Joined | Takes::Many => "string or list of strings",
        };
        let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string);
        let is_switch = takes == Takes::Switch;
        Some(ClientKey { name: name.to_owned(), form, is_switch, help: help.unwrap_or_default() })
    };
    copy.get_arguments().filter_map(key).collect()
}

/// Every option of a transfer that people may know of and that a file may set, and what it takes.
fn options() -> BTreeMap<String, Takes> {
    let command = Cli::command();
    let copy = command.find_subcommand("copy").into_iter().flat_map(clap::Command::get_arguments);
    let is_key = |argument: &&clap::Arg| {
        let name = argument.get_long().unwrap_or_default();
        !argument.is_hide_set() && !ON_THE_COMMAND_LINE_ALONE.contains(&name)
    };
    let shown = copy.filter(is_key);
    shown.filter_map(|argument| Some((argument.get_long()?.to_owned(), takes(argument)))).collect()
}

fn takes(argument: &clap::Arg) -> Takes {
    match argument.get_action() {
        ArgAction::SetTrue | ArgAction::Count => Takes::Switch,
        ArgAction::Append => Takes::Many,
        _ if ["preserve", "extra_checksum"].contains(&argument.get_id().as_str()) => Takes::Joined,
        _ => Takes::One,
    }
}

/// The value as texts, or the kind of value that was expected.
fn texts(takes: Takes, value: &DeValue) -> Result<Vec<String>, &'static str> {
    match (takes, value) {
        (Takes::Switch, DeValue::Boolean(on)) => Ok(vec![on.to_string()]),
        (Takes::Switch | Takes::One, DeValue::Integer(number)) if number.radix() == 10 => {
            Ok(vec![number.as_str().to_owned()])
        }
        (Takes::Switch, _) => Err("true or false"),
        (_, DeValue::String(text)) => Ok(vec![text.clone().into_owned()]),
        (Takes::Joined, DeValue::Array(list)) => Ok(vec![strings(list)?.join(",")]),
        (Takes::Many, DeValue::Array(list)) => strings(list),
        (Takes::One, _) => Err("a string or a number"),
        (Takes::Joined | Takes::Many, _) => Err("a string or a list of strings"),
    }
}

fn strings(list: &DeArray) -> Result<Vec<String>, &'static str> {
    let text = |item: &Spanned<DeValue>| item.get_ref().as_str().map(str::to_owned);
    list.iter().map(text).collect::<Option<_>>().ok_or("a list of strings")
}

fn unknown(key: &str) -> String {
    format!("unknown key '{}'; the keys are the options of 'longhaul copy --help'", key.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ClientFile, Error> {
        ClientFile::parse(Path::new("/c/config.toml"), text)
    }

    #[test]
    fn every_shown_option_is_a_key() {
        let names: Vec<String> = options().into_keys().collect();
        for name in ["lanes", "protect", "exclude", "json", "verbose", "peer-key", "from0", "retry-for"] {
            assert!(names.iter().any(|known| known == name), "{name} of {names:?}");
        }
        for name in ["help", "version", "checksum", "config", "root"] {
            assert!(!names.iter().any(|known| known == name), "{name} of {names:?}");
        }
    }

    #[test]
    fn mistakes_are_named_with_line_and_column() {
        for (text, want) in [
            ("lanes = 2\n  colour = 1", "/c/config.toml:2:3: unknown key 'colour'"),
            ("lanes = [1]", "/c/config.toml:1:9: lanes: expected a string or a number"),
            ("\njson = \"yes please\"", "/c/config.toml:2:8: json: expected true or false"),
            ("exclude = [1]", "/c/config.toml:1:11: exclude: expected a list of strings"),
            ("chunk-size = \"1MiB\"\nchunk_size = \"2MiB\"", "/c/config.toml:"),
            ("lanes = ", "/c/config.toml:1:"),
            ("[limits]\nx = 1", "/c/config.toml:1:2: unknown key 'limits'"),
            ("from-command = \"rm -r .\"", "/c/config.toml:1:1: unknown key 'from-command'"),
            ("deadline = \"1h\"", "/c/config.toml:1:1: unknown key 'deadline'"),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.starts_with(want), "{said} / {want}");
            assert!(!said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn a_missing_file_says_nothing() {
        let file = ClientFile::load(Some(Path::new("/no/such/config.toml"))).unwrap();
        assert!(file.get("lanes").is_empty());
        assert!(ClientFile::load(None).unwrap().get("lanes").is_empty());
    }
}
