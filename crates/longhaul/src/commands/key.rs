//! `key generate | show | authorize | list | revoke | trust`: keys on the command line.
//!
//! In: parsed arguments. Out: public keys on standard output, edited key files and configs. Knows
//! no connections.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use longhaul_engine::ClientConfig;
use longhaul_net::{Identity, NetError, PublicKey};

use super::Context;
use crate::cli::{AuthorizeArgs, IdentityArgs, KeyListArgs, KeyRevokeArgs, KeyVerb, TrustArgs};
use crate::config::{Daemon, NewClient, authorize, check_strictly, parse_rights, revoke};
use crate::error::{Error, Flaw, Origin};
use crate::exit::Exit;
use crate::keys;
use crate::location::{host_port, parse_host, parse_root};
use crate::output::{self, AdminClientBody, AdminForm, AdminGrantBody, AdminTelling, Talker};
use crate::settings::Talk;

/// Runs the command.
///
/// # Errors
/// The error that kept the command from being done.
pub(super) fn run(verb: KeyVerb, context: Context) -> Result<Exit, Error> {
    let talker = Talker::new(Talk::default());
    match verb {
        KeyVerb::Generate(args) => generate(&args, talker, context),
        KeyVerb::Show(args) => show(&args, context),
        KeyVerb::Authorize(args) => add_client(&args, talker, context),
        KeyVerb::List(args) => list(&args, context),
        KeyVerb::Revoke(args) => shut_out(&args, talker, context),
        KeyVerb::Trust(args) => trust(&args, talker, context),
    }
}

fn generate(args: &IdentityArgs, talker: Talker, context: Context) -> Result<Exit, Error> {
    let path = file(&args.identity, "identity", context)?;
    check_strictly(&path)?;
    keys::guard_memory();
    let identity = Identity::generate()?;
    match identity.save_new(&path) {
        Err(NetError::KeyFile { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::IdentityStands { path });
        }
        saved => saved?,
    }
    talker.note(format_args!("made the identity {}", path.display()));
    Ok(print(&identity.public()))
}

fn show(args: &IdentityArgs, context: Context) -> Result<Exit, Error> {
    let path = file(&args.identity, "identity", context)?;
    match keys::load(&path) {
        Err(Error::Net(NetError::KeyFile { source, .. })) if source.kind() == io::ErrorKind::NotFound => {
            Err(Error::NoIdentity { path })
        }
        identity => Ok(print(&identity?.public())),
    }
}

fn add_client(args: &AuthorizeArgs, talker: Talker, context: Context) -> Result<Exit, Error> {
    let named = args.config.clone().or_else(|| context.variable("config"));
    let path = context.places().serve_config_to_edit(named.map(PathBuf::from))?;
    let roots = args.root.iter().map(|text| grant(text)).collect::<Result<_, _>>()?;
    let client = NewClient { name: args.name.clone(), key: parse_key(&args.key)?, roots, bench: args.bench };
    let unknown = authorize(&path, &client)?;
    talker.note(format_args!("{} may connect once the daemon has reloaded {}: {RELOAD}", args.name, path.display()));
    for root in unknown {
        talker.note(format_args!("the config has no root '{root}' yet"));
    }
    Ok(Exit::Complete)
}

/// Lists the clients of a config.
fn list(args: &KeyListArgs, context: Context) -> Result<Exit, Error> {
    let daemon = Daemon::load_alone(&config_of(&args.config, context)?)?;
    let body = |client: ClientConfig| AdminClientBody {
        client: client.name,
        key: client.key.to_string(),
        roots: client.roots.into_iter().map(|(root, rights)| AdminGrantBody { root, rights }).collect(),
        bench: client.bench,
        rate_per_s: client.rate,
        stored: None,
        sessions: None,
    };
    let bodies: Vec<_> = daemon.config.clients.into_iter().map(body).collect();
    let form = AdminForm::of(Talk { json: args.json, ..Talk::default() });
    let mut telling = AdminTelling::new(BufWriter::new(io::stdout()), form);
    telling.clients(&bodies);
    Ok(telling.end())
}

fn shut_out(args: &KeyRevokeArgs, talker: Talker, context: Context) -> Result<Exit, Error> {
    let path = config_of(&args.config, context)?;
    let name = revoke(&path, &args.client)?;
    talker.note(format_args!(
        "{name} is taken out of {}; a daemon that runs lets it in until it reloads: {RELOAD}",
        path.display()
    ));
    Ok(Exit::Complete)
}

/// The daemon's config: the named one, or the one that a daemon would read.
fn config_of(named: &Option<OsString>, context: Context) -> Result<PathBuf, Error> {
    let named = named.clone().or_else(|| context.variable("config"));
    context.places().serve_config(named.map(PathBuf::from))
}

fn trust(args: &TrustArgs, talker: Talker, context: Context) -> Result<Exit, Error> {
    let (host, port) = parse_host(args.host.as_bytes())
        .map_err(|flaw| Error::Location { location: output::clean(&args.host).to_string(), flaw })?;
    let path = file(&args.known_hosts, "known_hosts", context)?;
    let key = parse_key(&args.key)?;
    keys::known_hosts(&path)?.append(&host, port, key)?;
    talker.note(format_args!("{} is known by {key}", host_port(&host, port)));
    Ok(Exit::Complete)
}

/// The path of a file: as named by option or variable, or this user's own.
fn file(named: &Option<OsString>, name: &'static str, context: Context) -> Result<PathBuf, Error> {
    let named = named.clone().or_else(|| context.variable(name));
    named.map_or_else(|| context.places().of_user(name), |path| Ok(PathBuf::from(path)))
}

fn grant(text: &str) -> Result<(String, longhaul_engine::Rights), Error> {
    let flawed = |flaw| Error::Option { origin: Origin::Flag("root"), flaw };
    let form =
        || flawed(Flaw::Form { given: text.to_owned(), form: "NAME=RIGHTS, rights of read,create,modify,delete" });
    let (name, rights) = text.split_once('=').ok_or_else(form)?;
    let name = parse_root(name.as_bytes()).map_err(|_| form())?;
    Ok((name, parse_rights(rights).map_err(flawed)?))
}

fn parse_key(text: &str) -> Result<PublicKey, Error> {
    text.parse()
        .map_err(|_| Error::Option { origin: Origin::Argument("KEY"), flaw: Flaw::Key { given: text.to_owned() } })
}

fn print(key: &PublicKey) -> Exit {
    let mut out = io::stdout().lock();
    writeln!(out, "{key}").and_then(|()| out.flush()).map_or_else(output::stdout_failed, |()| Exit::Complete)
}

/// How a daemon that runs is made to read its config again.
const RELOAD: &str = "'longhaul admin reload', or SIGHUP";

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::Fault;
    use longhaul_net::KnownHosts;

    fn run_in(dir: &std::path::Path, verb: KeyVerb) -> Result<Exit, Error> {
        let home = dir.as_os_str().to_owned();
        let environment = |name: &str| (name == "XDG_CONFIG_HOME").then(|| home.clone());
        run(verb, Context { line: &[], environment: &environment })
    }

    fn trust_args(host: &str, key: PublicKey) -> KeyVerb {
        KeyVerb::Trust(TrustArgs { host: host.to_owned(), key: key.to_string(), known_hosts: None })
    }

    #[test]
    fn an_identity_is_made_once_and_then_only_shown() {
        let dir = tempfile::tempdir().unwrap();
        let args = || IdentityArgs { identity: None };
        let missing = run_in(dir.path(), KeyVerb::Show(args())).unwrap_err();
        assert_eq!(Exit::from(Fault::from(missing).code), Exit::NotFound);
        assert_eq!(run_in(dir.path(), KeyVerb::Generate(args())).unwrap(), Exit::Complete);
        let before = Identity::load(&dir.path().join("longhaul/identity")).unwrap().public();
        assert!(matches!(run_in(dir.path(), KeyVerb::Generate(args())), Err(Error::IdentityStands { .. })));
        assert_eq!(run_in(dir.path(), KeyVerb::Show(args())).unwrap(), Exit::Complete);
        assert_eq!(Identity::load(&dir.path().join("longhaul/identity")).unwrap().public(), before);
    }

    #[test]
    fn a_trusted_key_is_pinned_with_its_port_and_never_exchanged() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (Identity::generate().unwrap().public(), Identity::generate().unwrap().public());
        assert_eq!(run_in(dir.path(), trust_args("Node", first)).unwrap(), Exit::Complete);
        assert_eq!(run_in(dir.path(), trust_args("[::1]:99", second)).unwrap(), Exit::Complete);
        let known = KnownHosts::load(&dir.path().join("longhaul/known_hosts")).unwrap();
        assert_eq!((known.lookup("node", 7214), known.lookup("::1", 99)), (Some(first), Some(second)));
        let refused = run_in(dir.path(), trust_args("node:7214", second)).unwrap_err();
        assert_eq!(Exit::from(Fault::from(refused).code), Exit::Denied);
        assert!(run_in(dir.path(), trust_args("a b", first)).is_err());
    }

    #[test]
    fn authorizing_needs_a_key_and_known_rights() {
        let dir = tempfile::tempdir().unwrap();
        let key = Identity::generate().unwrap().public().to_string();
        let verb = |key: &str, root: &str| {
            KeyVerb::Authorize(AuthorizeArgs {
                key: key.to_owned(),
                name: "n".to_owned(),
                root: vec![root.to_owned()],
                bench: false,
                config: Some(dir.path().join("serve.toml").into()),
            })
        };
        for (key, root) in [("lhk1:x", "r=read"), (&*key, "r"), (&*key, "r=write"), (&*key, "a/b=read")] {
            assert!(run_in(dir.path(), verb(key, root)).is_err(), "{key} {root}");
        }
        assert!(!dir.path().join("serve.toml").exists());
        assert_eq!(run_in(dir.path(), verb(&key, "r=read,create")).unwrap(), Exit::Complete);
        assert!(dir.path().join("serve.toml").exists());
    }
}
