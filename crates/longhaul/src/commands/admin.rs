//! `admin ...`: looks after a running daemon of this host.
//!
//! In: parsed arguments. Out: one request to the daemon's socket, its answers on standard output.
//! Knows no daemon but by its socket.

use std::ffi::OsStr;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use super::Context;
use crate::admin::{Answer, Request, ask, place};
use crate::cli::{AdminArgs, AdminVerb};
use crate::config::{ClientFile, Daemon};
use crate::error::{Error, Flaw, Origin};
use crate::exit::Exit;
use crate::output::{self, AdminForm, AdminTelling};
use crate::settings::{self, Layers, Talk};
use crate::values;

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(verb: &AdminVerb, context: Context) -> Result<Exit, Error> {
    let args = daemon_of(verb);
    // The client's config file sets the output of transfers.
    let talk = settings::talk(&args.talk, &Layers::new(context.environment, ClientFile::default()))?;
    context.talk(talk);
    Ok(tell(verb, args, talk, context).unwrap_or_else(|error| output::refuse(talk.json, error)))
}

fn tell(verb: &AdminVerb, args: &AdminArgs, talk: Talk, context: Context) -> Result<Exit, Error> {
    let answers = ask(&socket(args, context)?, &request(verb)?)?;
    let mut telling = AdminTelling::new(BufWriter::new(io::stdout()), AdminForm::of(talk));
    let (mut sessions, mut clients) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Answer::Status(body) => telling.status(&body),
            Answer::Session(body) => sessions.push(*body),
            Answer::Client(body) => clients.push(*body),
            Answer::Done(body) => telling.done(&body),
            Answer::Fault(fault) => return Err((*fault).into()),
            Answer::End => {}
        }
    }
    match verb {
        AdminVerb::Sessions(_) => telling.sessions(&sessions),
        AdminVerb::Clients(_) => telling.clients(&clients),
        _ => {}
    }
    Ok(telling.end())
}

fn daemon_of(verb: &AdminVerb) -> &AdminArgs {
    match verb {
        AdminVerb::Status(args) | AdminVerb::Sessions(args) | AdminVerb::Clients(args) | AdminVerb::Reload(args) => {
            args
        }
        AdminVerb::Drain(args) => &args.daemon,
        AdminVerb::SetRate(args) => &args.daemon,
        AdminVerb::Kick(args) => &args.daemon,
        AdminVerb::Revoke(args) => &args.daemon,
    }
}

fn request(verb: &AdminVerb) -> Result<Request, Error> {
    Ok(match verb {
        AdminVerb::Status(_) => Request::Status,
        AdminVerb::Sessions(_) => Request::Sessions,
        AdminVerb::Clients(_) => Request::Clients,
        AdminVerb::Reload(_) => Request::Reload,
        AdminVerb::Drain(args) if args.end => Request::EndDrain,
        AdminVerb::Drain(args) => {
            let deadline = args.deadline.as_ref().map(|text| parsed(Origin::Flag("deadline"), text, values::retry_for));
            Request::Drain { deadline_ms: deadline.transpose()?.map(|time| time.as_millis() as u64) }
        }
        AdminVerb::SetRate(args) => {
            let bytes_per_s = match args.rate == "none" {
                true => None,
                false => Some(parsed(Origin::Argument("RATE"), &args.rate, values::rate)?),
            };
            Request::SetRate { bytes_per_s, client: args.client.clone(), root: args.root.clone() }
        }
        AdminVerb::Kick(args) => Request::Kick { session: args.session.clone() },
        AdminVerb::Revoke(args) => Request::Revoke { client: args.client.clone() },
    })
}

fn parsed<T>(origin: Origin, text: &OsStr, parse: fn(&str) -> Result<T, Flaw>) -> Result<T, Error> {
    text.to_str().ok_or(Flaw::NotUtf8).and_then(parse).map_err(|flaw| Error::Option { origin, flaw })
}

/// The daemon's socket: the one that is named, else that of its config.
fn socket(args: &AdminArgs, context: Context) -> Result<PathBuf, Error> {
    let named = args.socket.clone().or_else(|| context.variable("socket")).map(PathBuf::from);
    if let Some(named) = named {
        return Ok(named);
    }
    let config = args.config.clone().or_else(|| context.variable("config"));
    let path = context.places().serve_config(config.map(PathBuf::from))?;
    let daemon = Daemon::load_alone(&path)?;
    place(None, daemon.admin_socket.as_deref(), daemon.state.as_deref()).ok_or(Error::NoAdminSocket { path })
}
