//! The places where an option's text may be written, in the order in which they win: flag,
//! environment, `config.toml`.
//!
//! In: flags from `cli`, variables through [`Environment`], keys from [`ClientFile`]. Out:
//! [`Given`] texts with their [`Origin`] to the parsers. Knows no option's meaning.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::config::ClientFile;
use crate::error::{Error, Flaw, Origin};
use crate::values::{self, Environment, Given, variable};

/// The places below the command line.
pub struct Layers<'a> {
    environment: Environment<'a>,
    file: ClientFile,
}

/// A parser of one option's text.
type Parse<T> = fn(&str) -> Result<T, Flaw>;

impl<'a> Layers<'a> {
    /// The layers of the variables and the loaded config file.
    pub fn new(environment: Environment<'a>, file: ClientFile) -> Layers<'a> {
        Layers { environment, file }
    }

    /// The text of an option from the first place that has one. `None` if no place has one; an
    /// empty variable counts as unset.
    pub fn given(&self, name: &'static str, flag: &Option<OsString>) -> Option<Given> {
        match flag {
            Some(text) => Some(Given { text: text.clone(), origin: Origin::Flag(name) }),
            None if crate::cli::ON_THE_COMMAND_LINE_ALONE.contains(&name) => None,
            None => self.in_environment(name).pop().or_else(|| self.in_file(name).pop()),
        }
    }

    /// The same, parsed.
    ///
    /// # Errors
    /// [`Error::Option`] that names the place.
    pub fn parsed<T>(&self, name: &'static str, flag: &Option<OsString>, parse: Parse<T>) -> Result<Option<T>, Error> {
        Ok(self.parsed_with_origin(name, flag, parse)?.map(|(_, value)| value))
    }

    /// The same, with its place, for a value that is judged again beside another.
    ///
    /// # Errors
    /// [`Error::Option`] that names the place.
    pub fn parsed_with_origin<T>(
        &self,
        name: &'static str,
        flag: &Option<OsString>,
        parse: Parse<T>,
    ) -> Result<Option<(Origin, T)>, Error> {
        let Some(Given { text, origin }) = self.given(name, flag) else { return Ok(None) };
        let value = text.to_str().ok_or(Flaw::NotUtf8).and_then(parse);
        match value {
            Ok(value) => Ok(Some((origin, value))),
            Err(flaw) => Err(Error::Option { origin, flaw }),
        }
    }

    /// Every text of an option that may be repeated, from the first place that has any.
    ///
    /// # Errors
    /// [`Error::Option`] that names the place of the first that cannot be used.
    pub fn parsed_all<T>(&self, name: &'static str, flags: &[OsString], parse: Parse<T>) -> Result<Vec<T>, Error> {
        let flag = |text: &OsString| Given { text: text.clone(), origin: Origin::Flag(name) };
        let mut given: Vec<_> = flags.iter().map(flag).collect();
        for place in [Layers::in_environment, Layers::in_file] {
            if given.is_empty() {
                given = place(self, name);
            }
        }
        let value = |Given { text, origin }: Given| {
            text.to_str().ok_or(Flaw::NotUtf8).and_then(parse).map_err(|flaw| Error::Option { origin, flaw })
        };
        given.into_iter().map(value).collect()
    }

    /// Whether a switch is on: by its flag, else as the environment or the file says.
    ///
    /// # Errors
    /// [`Error::Option`] for a text there that is neither true nor false.
    pub fn switch(&self, name: &'static str, flag: bool) -> Result<bool, Error> {
        if flag { Ok(true) } else { Ok(self.parsed(name, &None, values::switch)?.unwrap_or(false)) }
    }

    /// The texts in the option's variable: one a line for options that may be repeated, else the
    /// whole text.
    pub fn in_environment(&self, name: &str) -> Vec<Given> {
        let variable = variable(name);
        let Some(text) = (self.environment)(&variable).filter(|text| !text.is_empty()) else { return Vec::new() };
        let given = |text: &OsStr| Given { text: text.to_owned(), origin: Origin::Variable(variable.clone()) };
        match name {
            crate::cli::INCLUDE | crate::cli::EXCLUDE | crate::cli::PATH | crate::cli::TARGET => {
                let lines = text.as_bytes().split(|&b| b == b'\n').filter(|line| !line.is_empty());
                lines.map(|line| given(OsStr::from_bytes(line))).collect()
            }
            _ => vec![given(&text)],
        }
    }

    /// The texts in the config file: one, or those of a list.
    pub fn in_file(&self, name: &str) -> Vec<Given> {
        self.file.get(name)
    }
}
