//! The options of a host that ssh leads to: how ssh is run, and longhaul there.
//!
//! In: unparsed texts from `cli` and the layers below. Out: [`SshSettings`] to `commands`, which
//! make the engine's host of them. Starts nothing.

use longhaul_core::{Escaped, RelPath, Word};
use longhaul_engine::{Reach, RemotePath, SshHost};

use super::Layers;
use crate::cli::SshOptions;
use crate::error::{Error, Flaw, LocationFlaw};
use crate::location::SshPath;

/// How a host is reached by ssh.
#[derive(Clone, Debug)]
pub struct SshSettings {
    /// The words that run ssh.
    command: Vec<String>,
    /// The words that run longhaul there, for a shell.
    remote: String,
    /// Whether this program is put there.
    install: bool,
    /// The ports that may be listened at.
    ports: Option<(u16, u16)>,
}

/// Merges the options of ssh.
///
/// # Errors
/// [`Error::Option`] for a command or a range of ports that is none.
pub fn ssh(args: &SshOptions, layers: &Layers) -> Result<SshSettings, Error> {
    Ok(SshSettings {
        command: layers.parsed("ssh", &args.ssh, words)?.unwrap_or_else(|| vec!["ssh".to_owned()]),
        remote: layers
            .parsed("remote-longhaul", &args.remote_longhaul, remote)?
            .unwrap_or_else(|| "longhaul".to_owned()),
        // Never by a file or a variable: it changes something at the other host.
        install: args.install,
        ports: layers.parsed("port-range", &args.port_range, port_range)?,
    })
}

impl SshSettings {
    /// The same for a run that changes nothing anywhere.
    #[must_use]
    pub fn changing_nothing(self) -> SshSettings {
        SshSettings { install: false, ..self }
    }

    /// The host of `paths`, all of them at one, and the paths as its daemon knows them.
    ///
    /// # Errors
    /// [`Error::Location`] for a last name that no file of ours may have.
    pub fn reach(&self, paths: &[SshPath]) -> Result<(Reach, Vec<RemotePath>), Error> {
        let host = SshHost {
            host: paths.first().map_or(String::new(), |path| path.host.clone()),
            command: self.command.clone(),
            remote: self.remote.clone(),
            arguments: "serve --ssh-only".to_owned(),
            ahead: "--ahead".to_owned(),
            trial: "--version".to_owned(),
            install: self.install,
            ports: self.ports,
            places: paths.iter().map(|path| path.split().0.to_vec()).collect(),
        };
        let place = |(number, path): (usize, &SshPath)| {
            let name = path.split().1.map_or(Ok(RelPath::root()), RelPath::new);
            let location = || format!("{}:{}", path.host, Escaped(&path.path));
            let flawed = |flaw| Error::Location { location: location(), flaw: LocationFlaw::Path(flaw) };
            let root = Word::try_from(number.to_string().as_str()).unwrap_or_default();
            Ok(RemotePath { root, path: name.map_err(flawed)?, slash: path.slash })
        };
        Ok((Reach::Ssh(host), paths.iter().enumerate().map(place).collect::<Result<_, Error>>()?))
    }
}

/// Reads a range of ports, or one port.
fn port_range(text: &str) -> Result<(u16, u16), Flaw> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    // `parse` alone would take "+7".
    let port =
        |text: &str| text.parse().ok().filter(|&port: &u16| port != 0 && text.bytes().all(|b| b.is_ascii_digit()));
    let range = port(low).zip(port(high)).filter(|(low, high)| low <= high);
    range.ok_or(Flaw::Form { given: text.to_owned(), form: "ports from 1 to 65535, as 50000-50099" })
}

/// The words of a command, as a shell would split them.
fn words(text: &str) -> Result<Vec<String>, Flaw> {
    let form = "a command with its options, as 'ssh -p 2222'";
    let words = shlex::split(text).filter(|words| words.first().is_some_and(|word| !word.is_empty()));
    words.ok_or(Flaw::Form { given: text.to_owned(), form })
}

/// A path of the other host for its shell: one word, whatever is in it. `~/` at its beginning is
/// the home there.
fn remote(text: &str) -> Result<String, Flaw> {
    let form = "the path of longhaul at the other host";
    let (home, path) = match text.strip_prefix("~/") {
        Some(path) => ("~/", path),
        None => ("", text),
    };
    let quoted = shlex::try_quote(path).ok().filter(|_| !path.is_empty());
    quoted.map(|path| format!("{home}{path}")).ok_or(Flaw::Form { given: text.to_owned(), form })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_other_host_is_one_word_of_its_shell() {
        for (given, word) in [
            ("longhaul", "longhaul"),
            ("/opt/long haul/bin", "'/opt/long haul/bin'"),
            ("~/bin/longhaul", "~/bin/longhaul"),
            ("~/my $(bin)/lh", "~/'my $(bin)/lh'"),
        ] {
            assert_eq!(remote(given).ok().as_deref(), Some(word), "{given}");
        }
        assert!(remote("").is_err() && remote("~/").is_err() && remote("a\0b").is_err());
    }

    #[test]
    fn the_command_that_runs_ssh_is_split_as_by_a_shell() {
        assert_eq!(
            words("ssh -o 'User=a b' -p 22").ok(),
            Some(["ssh", "-o", "User=a b", "-p", "22"].map(Into::into).to_vec())
        );
        assert!(words("").is_err() && words("ssh 'x").is_err());
    }
}
