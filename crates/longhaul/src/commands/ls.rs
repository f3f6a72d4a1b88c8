//! `ls`: names of a directory here or at a daemon, the roots that this key may see, or what is left of unfinished files.
//!
//! In: a location. Out: a line for each name on standard output. Names are printed escaped, one a line whatever is in them;
//! scripts that need their bytes read `--json`.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use longhaul_core::{ByteCount, Escaped, Mtime};
use longhaul_engine::{Listed, ListedKind, ListedPartial, Stop};

use super::Context;
use crate::cli::LsArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::keys;
use crate::location::Location;
use crate::output::{self, JsonLines, Summary, Talker, time};
use crate::settings::{self, Keys, Talk};
use crate::signals::{self, Asking, Hangup};

/// Runs the command.
///
/// # Errors
/// What is wrong before it is known how to say so.
pub(super) fn run(args: &LsArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.talk, &layers)?;
    context.talk(talk);
    let mut printing = Printing { out: BufWriter::new(io::stdout().lock()), long: args.long, talk, written: Ok(()) };
    let listed = Location::parse(&args.location).and_then(|location| {
        let keys = settings::keys(&args.keys, &layers)?;
        let what = if args.partials { What::Partials } else { What::Names };
        list(location, what, &keys, talk, context, &mut printing)
    });
    Ok(printing.end(listed))
}

fn list(
    location: Location,
    what: What,
    keys: &Keys,
    talk: Talk,
    context: Context,
    printing: &mut Printing<impl Write>,
) -> Result<(), Error> {
    let daemon = match location {
        Location::Local(local) => return list_local(&local.path, what, printing),
        Location::Daemon(daemon) => daemon,
    };
    if what == What::Partials && daemon.path.is_none() {
        let why = "--partials needs a root of the daemon";
        return Err(Error::Combination { why, hint: "longhaul ls lh://HOST/ lists the roots that this key may see" });
    }
    let asking = Asking::default();
    let remote = keys::remote(&daemon, keys, &context.places(), Talker::new(talk), &asking)?;
    let (trigger, stop) = Stop::new();
    super::block_on(async move {
        signals::watch(asking, Hangup::Stops, move |code| trigger.stop(code))
            .map_err(Error::file("watch the signals of", "this process"))?;
        let sink = |names: Vec<Listed>| printing.print(&names);
        match daemon.path {
            Some(path) if what == What::Partials => longhaul_engine::list_partials(remote, path, stop, sink).await?,
            path => longhaul_engine::list(remote, path, stop, sink).await?,
        }
        Ok(())
    })?
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Names,
    Partials,
}

fn list_local(path: &Path, what: What, printing: &mut Printing<impl Write>) -> Result<(), Error> {
    match what {
        What::Names => longhaul_engine::list_local(path, |names| printing.print(&names))?,
        What::Partials => drop(printing.print(&longhaul_engine::list_local_partials(path)?)),
    }
    Ok(())
}

/// Names on their way to standard output, as they come.
struct Printing<W: Write> {
    out: W,
    long: bool,
    talk: Talk,
    written: io::Result<()>,
}

impl<W: Write> Printing<W> {
    /// Prints; breaks off when nobody reads any more.
    fn print(&mut self, names: &[Listed]) -> ControlFlow<()> {
        self.written = self.write(names);
        if self.written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn write(&mut self, names: &[Listed]) -> io::Result<()> {
        if self.talk.json {
            let mut lines = JsonLines::new(&mut self.out);
            return names.iter().try_for_each(|listed| lines.entry(listed));
        }
        let line = if self.long { long_line } else { short_line };
        names.iter().try_for_each(|listed| self.out.write_all(line(listed).as_bytes()))
    }

    /// What follows the last name: the summary, or why it is the last.
    fn end(mut self, listed: Result<(), Error>) -> Exit {
        if listed.is_ok() && self.written.is_ok() && self.talk.json {
            self.written = JsonLines::new(&mut self.out).summary(&Summary::nothing(Exit::Complete));
        }
        if let Err(error) = self.written.and_then(|()| self.out.flush()) {
            return output::stdout_failed(error);
        }
        // Gives standard output back to whoever tells of the error.
        drop(self.out);
        listed.map_or_else(|error| output::refuse(self.talk.json, error), |()| Exit::Complete)
    }
}

fn short_line(listed: &Listed) -> String {
    if let ListedKind::Partial(partial) = &listed.kind {
        return partial_line(listed, partial);
    }
    let slash = if matches!(listed.kind, ListedKind::Dir | ListedKind::Root { .. }) { "/" } else { "" };
    format!("{}{slash}\n", Escaped(&listed.name))
}

fn long_line(listed: &Listed) -> String {
    let name = Escaped(&listed.name);
    let kind = match &listed.kind {
        ListedKind::Partial(partial) => return long_partial_line(listed, partial),
        ListedKind::Root { rights } => return format!("{name}/  {}\n", rights.names().collect::<Vec<_>>().join(",")),
        ListedKind::File => '-',
        ListedKind::Dir => 'd',
        ListedKind::Symlink { .. } => 'l',
        _ => '?',
    };
    let tail = match &listed.kind {
        ListedKind::Dir => "/".to_owned(),
        ListedKind::Symlink { target } => format!(" -> {}", Escaped(target)),
        _ => String::new(),
    };
    let mode = permissions(listed.meta.mode);
    format!("{kind}{mode} {:>14} {} {name}{tail}\n", listed.len, time(listed.meta.mtime))
}

/// `run7/a.dat  3 GiB of 10 GiB since 2026-11-20T13:42:25Z by client 'tester'`
fn partial_line(listed: &Listed, partial: &ListedPartial) -> String {
    let (name, held, len) = (Escaped(&listed.name), ByteCount(partial.held), ByteCount(listed.len));
    let (since, owner) = (since(partial), &partial.owner);
    format!("{name}  {held} of {len} since {since} by {owner}{}\n", in_use(partial))
}

/// The same with exact bytes, when it was written last, whose it is, and its temporary's name.
fn long_partial_line(listed: &Listed, partial: &ListedPartial) -> String {
    let ListedPartial { held, principal, owner, temp, .. } = partial;
    let (name, since, written) = (Escaped(&listed.name), since(partial), time(listed.meta.mtime));
    let used = in_use(partial);
    format!(
        "{held:>14} of {:>14} since {since} written {written} by {owner} {principal} {name} in {temp}{used}\n",
        listed.len
    )
}

fn since(partial: &ListedPartial) -> String {
    time(Mtime { secs: i64::try_from(partial.since_unix).unwrap_or(i64::MAX), nanos: 0 })
}

fn in_use(partial: &ListedPartial) -> String {
    partial.user.as_ref().map_or_else(String::new, |user| format!(", in use by {user}"))
}

/// `rwxr-x---`; setuid, setgid and sticky are never carried and not shown.
fn permissions(mode: u32) -> String {
    let letter = |bit: u32| match (mode & (1 << bit) != 0, bit % 3) {
        (false, _) => '-',
        (true, 2) => 'r',
        (true, 1) => 'w',
        (true, _) => 'x',
    };
    (0..9).rev().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::{Meta, Mtime, Rights};

    fn listed(name: &[u8], kind: ListedKind) -> Listed {
        Listed { name: name.to_vec(), kind, len: 12, meta: Meta { mode: 0o751, mtime: Mtime { secs: 0, nanos: 0 } } }
    }

    #[test]
    fn a_name_is_one_line_whatever_is_in_it() {
        assert_eq!(short_line(&listed(b"a\nb\x1b", ListedKind::File)), "a\\x0ab\\x1b\n");
        assert_eq!(short_line(&listed(b"d", ListedKind::Dir)), "d/\n");
    }

    #[test]
    fn long_lines_show_mode_size_time_and_where_a_link_points() {
        assert_eq!(long_line(&listed(b"f", ListedKind::File)), "-rwxr-x--x             12 1970-01-01T00:00:00Z f\n");
        let link = listed(b"l", ListedKind::Symlink { target: b"to\n".to_vec() });
        assert!(long_line(&link).ends_with(" l -> to\\x0a\n"));
        let root = listed(b"atlas", ListedKind::Root { rights: Rights { read: true, create: true, modify: false } });
        assert_eq!(long_line(&root), "atlas/  read,create\n");
    }
}
