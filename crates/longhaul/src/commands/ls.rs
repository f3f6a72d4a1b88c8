//! `ls`: names in directories here or at daemons, the roots that this key may see, or the user's
//! unfinished files.
//!
//! In: locations. Out: a line for each name on standard output. Names are printed escaped, one a
//! line whatever bytes they have; scripts that need the bytes read `--json`. If one of several
//! locations cannot be listed, that is told, and the others are listed.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_core::{ByteCount, Escaped, Fault, FaultCode, Mtime, RelPath, Word};
use longhaul_engine::{Listed, ListedKind, ListedPartial, Remote, RemotePath, Stop};

use super::Context;
use crate::cli::LsArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::keys;
use crate::location::{Location, SshPath};
use crate::output::{self, JsonLines, Summary, Talker, time};
use crate::settings::{self, Keys, SshSettings, Talk};
use crate::signals::{self, Asking, Hangup};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &LsArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.talk, &layers)?;
    context.talk(talk);
    let prepared = settings::keys(&args.keys, &layers).and_then(|keys| {
        let locations = args.locations.iter().map(|text| Ok((text.to_string_lossy(), Location::parse(text)?)));
        Ok((keys, settings::ssh(&args.ssh, &layers)?, locations.collect::<Result<Vec<_>, Error>>()?))
    });
    let (keys, ssh, locations) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Ok(output::refuse(talk.json, error)),
    };
    let style = Style { long: args.long, human: args.human, json: talk.json };
    let mut printing = Printing::new(style, Talker::new(talk));
    let wanted = Wanted { partials: args.partials, recursive: args.recursive };
    let several = locations.len() > 1;
    let mut signals = None;
    for (name, location) in locations {
        printing.begin(several.then_some(&*name));
        if let Err(error) = list(location, wanted, (&keys, &ssh), talk, context, &mut signals, &mut printing) {
            let fault = Fault::from(error);
            printing.fault(&fault);
            if matches!(fault.code, FaultCode::Interrupted | FaultCode::Terminated) {
                printing.exit = fault.code.into();
                break;
            }
        }
        if printing.written.is_err() {
            break;
        }
    }
    Ok(printing.end())
}

/// The kind of listing that is asked for.
#[derive(Clone, Copy)]
struct Wanted {
    partials: bool,
    recursive: bool,
}

/// The signals, watched from the first daemon on, for all locations: the process has no second
/// watcher to lose them to.
struct ListingStop {
    asking: Asking,
    stop: Stop,
}

impl ListingStop {
    fn watch() -> Result<ListingStop, Error> {
        let asking = Asking::default();
        let (trigger, stop) = Stop::new();
        signals::watch(asking.clone(), Hangup::Stops, move |code| trigger.stop(code))
            .map_err(Error::file("watch the signals of", "this process"))?;
        Ok(ListingStop { asking, stop })
    }
}

fn list(
    location: Location,
    wanted: Wanted,
    (keys, ssh): (&Keys, &SshSettings),
    talk: Talk,
    context: Context,
    signals: &mut Option<ListingStop>,
    printing: &mut Printing<impl Write>,
) -> Result<(), Error> {
    if let Location::Local(local) = &location {
        // Nothing here needs to be stopped in order.
        let _alone = signals.as_ref().map(|signals| signals.asking.start());
        return list_local(&local.path, wanted, printing);
    }
    let ListingStop { asking, stop } = match signals {
        Some(signals) => signals,
        None => signals.insert(ListingStop::watch()?),
    };
    let talker = Talker::new(talk);
    let (remote, path) = match location {
        Location::Local(_) => return Ok(()),
        Location::Daemon(daemon) => (keys::remote(&daemon, keys, &context.places(), talker, asking)?, daemon.path),
        // All of it is one place: a name at its end may be a link, which is followed.
        Location::Ssh(path) => {
            let (reach, mut paths) = ssh.reach(&[SshPath { slash: true, ..path }])?;
            (keys::one_time(talker)?.at(reach), paths.pop())
        }
    };
    super::block_on(async move {
        match path {
            Some(path) if wanted.partials => Ok(partials(&remote, path, "", stop, printing).await?),
            None if wanted.partials => partials_of_roots(&remote, stop, printing).await,
            path => names(&remote, path, wanted, stop, printing).await,
        }
    })?
}

/// Lists unfinished files at a path, each name behind `prefix`.
async fn partials(
    remote: &Remote,
    path: RemotePath,
    prefix: &str,
    stop: &Stop,
    printing: &mut Printing<impl Write>,
) -> Result<(), Fault> {
    let sink = |names: Vec<Listed>| printing.print(names, prefix.as_bytes());
    longhaul_engine::list_partials(remote.clone(), path, stop.clone(), sink).await
}

/// Lists unfinished files in each root that this key may see. A root that refuses reports that, and
/// the others are listed.
async fn partials_of_roots(remote: &Remote, stop: &Stop, printing: &mut Printing<impl Write>) -> Result<(), Error> {
    let mut roots = Vec::new();
    let sink = |names: Vec<Listed>| {
        roots.extend(names.into_iter().filter_map(|root| joined_remote(None, &root.name)));
        ControlFlow::Continue(())
    };
    longhaul_engine::list(remote.clone(), None, stop.clone(), sink).await?;
    for root in roots {
        let prefix = format!("{}/", root.root);
        let listed = partials(remote, root, &prefix, stop, printing).await;
        printing.pass_over(listed, prefix.as_bytes())?;
    }
    Ok(())
}

/// Lists the names at a path of a daemon, or its roots; directory by directory if those beneath are
/// wanted too.
async fn names(
    remote: &Remote,
    path: Option<RemotePath>,
    wanted: Wanted,
    stop: &Stop,
    printing: &mut Printing<impl Write>,
) -> Result<(), Error> {
    let mut waiting = vec![(path, Vec::new())];
    while let Some((path, prefix)) = waiting.pop() {
        let mut beneath = Vec::new();
        let sink = |names: Vec<Listed>| {
            if wanted.recursive {
                beneath.extend(names.iter().filter(|name| is_entered(name)).map(|name| name.name.clone()));
            }
            printing.print(names, &prefix)
        };
        let listed = longhaul_engine::list(remote.clone(), path.clone(), stop.clone(), sink).await;
        printing.pass_over(listed, &prefix)?;
        if printing.written.is_err() {
            break;
        }
        // The last one pushed is the first one taken.
        for name in beneath.into_iter().rev() {
            let Some(path) = joined_remote(path.as_ref(), &name) else { continue };
            waiting.push((Some(path), [&prefix, name.as_slice(), b"/"].concat()));
        }
    }
    Ok(())
}

fn list_local(path: &Path, wanted: Wanted, printing: &mut Printing<impl Write>) -> Result<(), Error> {
    if wanted.partials {
        let _ = printing.print(longhaul_engine::list_local_partials(path)?, b"");
        return Ok(());
    }
    let mut waiting: Vec<(PathBuf, Vec<u8>)> = vec![(path.to_owned(), Vec::new())];
    while let Some((path, prefix)) = waiting.pop() {
        let mut beneath = Vec::new();
        let listed = longhaul_engine::list_local(&path, |names| {
            if wanted.recursive {
                beneath.extend(names.iter().filter(|name| is_entered(name)).map(|name| name.name.clone()));
            }
            printing.print(names, &prefix)
        });
        printing.pass_over(listed, &prefix)?;
        if printing.written.is_err() {
            break;
        }
        for name in beneath.into_iter().rev() {
            let dir = path.join(OsStr::from_bytes(&name));
            waiting.push((dir, [&prefix, name.as_slice(), b"/"].concat()));
        }
    }
    Ok(())
}

/// Whether the names beneath it are listed too; a link is not followed.
fn is_entered(listed: &Listed) -> bool {
    matches!(listed.kind, ListedKind::Dir | ListedKind::Root { .. })
}

/// The path of a name that was listed at `path`, or of a root. `None` if the daemon gave a name
/// that cannot be one.
fn joined_remote(path: Option<&RemotePath>, name: &[u8]) -> Option<RemotePath> {
    match path {
        None => {
            let root = Word::try_from(std::str::from_utf8(name).ok()?).ok()?;
            Some(RemotePath { root, path: RelPath::root(), slash: true })
        }
        Some(RemotePath { root, path, .. }) => {
            let path = path.join(name).ok()?;
            Some(RemotePath { root: root.clone(), path, slash: true })
        }
    }
}

/// The form of the printed lines.
#[derive(Clone, Copy, Default)]
struct Style {
    long: bool,
    human: bool,
    json: bool,
}

/// Names on their way to standard output, as they come.
struct Printing<W: Write> {
    out: W,
    style: Style,
    /// The location of the names, if there are several.
    location: Option<String>,
    /// Whether a location was begun before.
    begun: bool,
    talker: Talker,
    /// The exit of the first failure. It is `Complete` until then.
    exit: Exit,
    written: io::Result<()>,
}

impl Printing<BufWriter<io::Stdout>> {
    fn new(style: Style, talker: Talker) -> Self {
        let (out, written) = (BufWriter::new(io::stdout()), Ok(()));
        Printing { out, style, location: None, begun: false, talker, exit: Exit::Complete, written }
    }
}

impl<W: Write> Printing<W> {
    /// Begins a location: the names that follow are in it. If there are several, its name is
    /// printed, as `ls` does.
    fn begin(&mut self, location: Option<&str>) {
        self.location = location.map(str::to_owned);
        if let Some(location) = location.filter(|_| !self.style.json) {
            let gap = if self.begun { "\n" } else { "" };
            self.written = writeln!(self.out, "{gap}{}:", output::clean(location));
        }
        self.begun = true;
    }

    /// Prints names, each behind `prefix`. Breaks off when standard output has no reader any more.
    fn print(&mut self, mut names: Vec<Listed>, prefix: &[u8]) -> ControlFlow<()> {
        if !prefix.is_empty() {
            names.iter_mut().for_each(|listed| listed.name = [prefix, &listed.name].concat());
        }
        self.written = self.write(&names);
        if self.written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn write(&mut self, names: &[Listed]) -> io::Result<()> {
        if self.style.json {
            let mut lines = JsonLines::new(&mut self.out);
            return names.iter().try_for_each(|listed| lines.entry(listed, self.location.as_deref()));
        }
        let style = self.style;
        let line = |listed: &Listed| if style.long { long_line(listed, style) } else { short_line(listed) };
        names.iter().try_for_each(|listed| self.out.write_all(line(listed).as_bytes()))
    }

    /// Takes the result of one directory of many: one that may not be read, or is gone, is told,
    /// and the rest is listed.
    fn pass_over(&mut self, listed: Result<(), Fault>, prefix: &[u8]) -> Result<(), Fault> {
        let Err(fault) = listed else { return Ok(()) };
        if prefix.is_empty() || !matches!(fault.code, FaultCode::Denied | FaultCode::NotFound | FaultCode::InTheWay) {
            return Err(fault);
        }
        self.fault(&fault);
        Ok(())
    }

    /// Tells why a name is not listed, after the names printed so far.
    fn fault(&mut self, fault: &Fault) {
        if self.written.is_ok() {
            self.written = self.out.flush();
        }
        if self.exit == Exit::Complete {
            self.exit = fault.code.into();
        }
        self.talker.fault(fault);
        if self.style.json && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).fault(fault);
        }
    }

    /// Ends the output after the last name.
    fn end(mut self) -> Exit {
        let exit = self.exit;
        if self.written.is_ok() && self.style.json {
            self.written = JsonLines::new(&mut self.out).summary(&Summary::nothing(exit));
        }
        match self.written.and_then(|()| self.out.flush()) {
            Ok(()) => exit,
            Err(error) => output::stdout_failed(error),
        }
    }
}

fn short_line(listed: &Listed) -> String {
    if let ListedKind::Partial(partial) = &listed.kind {
        return partial_line(listed, partial);
    }
    let slash = if matches!(listed.kind, ListedKind::Dir | ListedKind::Root { .. }) { "/" } else { "" };
    format!("{}{slash}\n", Escaped(&listed.name))
}

fn long_line(listed: &Listed, style: Style) -> String {
    let name = Escaped(&listed.name);
    let kind = match &listed.kind {
        ListedKind::Partial(partial) => return long_partial_line(listed, partial, style),
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
    format!("{kind}{mode} {} {} {name}{tail}\n", size(listed.len, style), time(listed.meta.mtime))
}

/// `run7/a.dat  3 GiB of 10 GiB since 2026-11-20T13:42:25Z by client 'tester'`
fn partial_line(listed: &Listed, partial: &ListedPartial) -> String {
    let (name, held, len) = (Escaped(&listed.name), ByteCount(partial.held), ByteCount(listed.len));
    let (since, owner) = (since(partial), &partial.owner);
    format!("{name}  {held} of {len} since {since} by {owner}{}\n", in_use(partial))
}

/// The same with exact bytes, the time of the last write, the owner, and the temporary's name.
fn long_partial_line(listed: &Listed, partial: &ListedPartial, style: Style) -> String {
    let ListedPartial { held, principal, owner, temp, .. } = partial;
    let (name, since, written) = (Escaped(&listed.name), since(partial), time(listed.meta.mtime));
    let used = in_use(partial);
    let (held, len) = (size(*held, style), size(listed.len, style));
    format!("{held} of {len} since {since} written {written} by {owner} {principal} {name} in {temp}{used}\n")
}

/// A size as wide as the column of sizes.
fn size(bytes: u64, style: Style) -> String {
    if style.human { format!("{:>10}", ByteCount(bytes).to_string()) } else { format!("{bytes:>14}") }
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
        Listed { name: name.to_vec(), kind, len: 12, meta: Meta::new(0o751, Mtime { secs: 0, nanos: 0 }) }
    }

    #[test]
    fn a_name_is_one_line_whatever_is_in_it() {
        assert_eq!(short_line(&listed(b"a\nb\x1b", ListedKind::File)), "a\\x0ab\\x1b\n");
        assert_eq!(short_line(&listed(b"d", ListedKind::Dir)), "d/\n");
    }

    #[test]
    fn long_lines_show_mode_size_time_and_where_a_link_points() {
        assert_eq!(
            long_line(&listed(b"f", ListedKind::File), Style::default()),
            "-rwxr-x--x             12 1970-01-01T00:00:00Z f\n"
        );
        let link = listed(b"l", ListedKind::Symlink { target: b"to\n".to_vec() });
        assert!(long_line(&link, Style::default()).ends_with(" l -> to\\x0a\n"));
        let root = listed(
            b"atlas",
            ListedKind::Root { rights: Rights { read: true, create: true, modify: false, delete: false } },
        );
        assert_eq!(long_line(&root, Style::default()), "atlas/  read,create\n");
    }
}
