//! `hooks.toml`: what movers of this host run or call for campaigns.
//!
//! In: the file's text. Out: [`Hooks`]. The queue names a hook by its key alone, so this
//! file is the only place that says what is run here: one that another user may write to is
//! refused. Runs nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_jobs::HookKey;
use serde::Deserialize;
use toml::Spanned;

use super::{Hook, HookMeans, HookUrl, Hooks};
use crate::config::{flawed, read, unparsed};
use crate::error::Error;
use crate::values;

/// The tables of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookFile {
    /// A hook. There is one table for each.
    #[serde(default)]
    hook: Vec<HookEntry>,
}

/// A hook. It has either `command` or `url`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookEntry {
    /// The key by which campaigns name it (`job add --hook`): up to 64 letters, digits, dots,
    /// underscores and hyphens.
    name: Spanned<String>,
    /// A program by its absolute path, and its arguments. It runs without a shell, in `/`, with
    /// `PATH`, `LANG`, `LONGHAUL_HOOK` and `LONGHAUL_EVENT` alone, and has the document on its
    /// standard input. [default: none]
    command: Option<Spanned<Vec<String>>>,
    /// The URL to which the document is posted, `http://` or `https://`. Any status from 200 to 299
    /// says that it was taken. [default: none]
    url: Option<Spanned<String>>,
    /// The file of the authorities that vouch for an `https` server, instead of this host's.
    /// [default: none]
    authorities: Option<Spanned<PathBuf>>,
    /// The time after which it is ended, 1 s to 5 min. [default: "30s"]
    timeout: Option<Spanned<String>>,
    /// Tries behind which a notice to it is given up, 1 to 100; they come 10 s to 10 min behind
    /// each other. [default: 8]
    tries: Option<Spanned<i64>>,
}

impl Hooks {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::Config`] at the place of a mistake, [`Error::Exposed`], [`Error::File`].
    pub fn load(path: &Path) -> Result<Hooks, Error> {
        Hooks::parse(path, &read(path)?)
    }

    /// Takes the text of the file at `path`.
    ///
    /// # Errors
    /// [`Error::Config`] at the place of a mistake.
    pub fn parse(path: &Path, text: &str) -> Result<Hooks, Error> {
        let file: HookFile = toml::from_str(text).map_err(|error| unparsed(path, text, &error))?;
        let mut hooks = BTreeMap::new();
        for entry in file.hook {
            let span = entry.name.span();
            let wrong = |(span, message): HookMistake| flawed(path, text, Some(span), message);
            let (key, hook) = judge(entry).map_err(wrong)?;
            let twice = format!("there are two hooks '{}'", key.as_str());
            if hooks.insert(key, hook).is_some() {
                return Err(flawed(path, text, Some(span), twice));
            }
        }
        Ok(Hooks::new(hooks))
    }
}

/// The place of a mistake, and the words of it.
type HookMistake = (std::ops::Range<usize>, String);

fn judge(entry: HookEntry) -> Result<(HookKey, Hook), HookMistake> {
    let wrong = |span: std::ops::Range<usize>, message: &str| (span, message.to_owned());
    let key = HookKey::new(entry.name.get_ref()).ok_or_else(|| wrong(entry.name.span(), NAME))?;
    let means = match (entry.command, entry.url) {
        (Some(command), None) => {
            let is_path = command.get_ref().first().is_some_and(|program| program.starts_with('/'));
            if !is_path {
                return Err(wrong(command.span(), "command begins with the absolute path of a program"));
            }
            if let Some(file) = entry.authorities {
                return Err(wrong(file.span(), "authorities vouch for a server, and a command has none"));
            }
            HookMeans::Command(command.into_inner())
        }
        (None, Some(url)) => {
            let found = HookUrl::parse(url.get_ref()).ok_or_else(|| wrong(url.span(), URL))?;
            HookMeans::Post { url: found, authorities: entry.authorities.map(Spanned::into_inner) }
        }
        _ => return Err(wrong(entry.name.span(), "a hook has either command or url")),
    };
    let time = |word: &Spanned<String>| {
        let time =
            values::time_between(word.get_ref(), HOOK_TIME_MIN..=HOOK_TIME_MAX, "a time from 1s to 5min, as 30s");
        time.map_err(|flaw| (word.span(), flaw.to_string()))
    };
    let time_max = entry.timeout.as_ref().map(time).transpose()?.unwrap_or(HOOK_TIME_DEFAULT);
    let tries_max = match entry.tries {
        None => HOOK_TRIES_DEFAULT,
        Some(tries) => u32::try_from(*tries.get_ref())
            .ok()
            .filter(|count| (1..=HOOK_TRIES_MAX).contains(count))
            .ok_or_else(|| (tries.span(), format!("tries must be 1 to {HOOK_TRIES_MAX}")))?,
    };
    Ok((key, Hook { means, time_max, tries_max }))
}

const NAME: &str =
    "a hook's name is up to 64 letters, digits, dots, underscores and hyphens, and begins with a letter or digit";
const URL: &str = "url is http://HOST/PATH or https://HOST/PATH, without a user";
const HOOK_TIME_DEFAULT: Duration = Duration::from_secs(30);
const HOOK_TIME_MIN: Duration = Duration::from_secs(1);
const HOOK_TIME_MAX: Duration = Duration::from_secs(300);
const HOOK_TRIES_DEFAULT: u32 = 8;
const HOOK_TRIES_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Hooks, Error> {
        Hooks::parse(Path::new("/c/hooks.toml"), text)
    }

    #[test]
    fn hooks_have_a_program_or_a_server_and_stated_defaults() {
        let text = "[[hook]]\nname = \"a\"\ncommand = [\"/bin/true\", \"x\"]\n[[hook]]\nname = \"b\"\n\
                    url = \"https://h/x\"\nauthorities = \"/ca.pem\"\ntimeout = \"5s\"\ntries = 2";
        let hooks = parse(text).unwrap();
        let get = |key| hooks.get(&HookKey::new(key).unwrap()).unwrap().clone();
        let command = HookMeans::Command(vec!["/bin/true".to_owned(), "x".to_owned()]);
        assert_eq!(get("a"), Hook { means: command, time_max: HOOK_TIME_DEFAULT, tries_max: HOOK_TRIES_DEFAULT });
        assert_eq!((get("b").time_max, get("b").tries_max), (Duration::from_secs(5), 2));
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_named_with_line_and_column() {
        let command = "name = \"a\"\ncommand = [\"/bin/true\"]";
        for (text, want) in [
            ("name = \"/x\"\nurl = \"http://h\"".to_owned(), "/c/hooks.toml:2:8: a hook's name"),
            ("name = \"a\"".to_owned(), "/c/hooks.toml:2:8: a hook has either"),
            (format!("{command}\nurl = \"http://h\""), "/c/hooks.toml:2:8: a hook has either"),
            ("name = \"a\"\ncommand = [\"sh\", \"-c\"]".to_owned(), "/c/hooks.toml:3:11: command begins"),
            ("name = \"a\"\nurl = \"gopher://h\"".to_owned(), "/c/hooks.toml:3:7: url is"),
            (format!("{command}\ntimeout = \"1h\""), "/c/hooks.toml:4:11: '1h' is not a time"),
            (format!("{command}\ntries = 0"), "/c/hooks.toml:4:9: tries must be"),
            (format!("{command}\nshell = true"), "/c/hooks.toml:4:1: unknown key"),
            (format!("{command}\n[[hook]]\n{command}"), "/c/hooks.toml:5:8: there are two hooks 'a'"),
        ] {
            let said = parse(&format!("[[hook]]\n{text}")).unwrap_err().to_string();
            assert!(said.starts_with(want), "{said} / {want}");
        }
    }
}
