//! A transfer that is stopped in its middle: held at a gate once part of it is durable, ended in
//! one of several ways, and run again.
//!
//! Takes sites and proxies from the fixture and from `hostile`; gives [`Scene`] and the asserts
//! about a continued run.

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Daemon, Outcome, Run, Running};
use crate::hostile::proxy::{Gate, Kind, hold_after};
use crate::hostile::{Direction, End, Wired};

/// The length of a file: more than the lanes let through before they are held, in chunks of 1 MiB.
pub(crate) const LEN: usize = (24 << 20) + 17;
/// The bytes that each of two lanes lets through.
const HELD_AFTER: u64 = 6 << 20;

/// A client and a daemon with a proxy between them whose lanes are held until the gate is opened.
pub(crate) struct Scene {
    pub(crate) wired: Wired,
    pub(crate) gate: Gate,
    pub(crate) direction: Direction,
    /// The daemon that came after the first.
    again: Option<Daemon>,
}

/// The way in which a transfer is ended in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    ClientKilled,
    ClientInterrupted,
    ClientTerminated,
    DaemonKilled,
    DaemonTerminated,
}

impl Death {
    pub(crate) const ALL: [Death; 5] = [
        Death::ClientKilled,
        Death::ClientInterrupted,
        Death::ClientTerminated,
        Death::DaemonKilled,
        Death::DaemonTerminated,
    ];

    fn signal(self) -> Signal {
        match self {
            Death::ClientKilled | Death::DaemonKilled => Signal::KILL,
            Death::ClientInterrupted => Signal::INT,
            Death::ClientTerminated | Death::DaemonTerminated => Signal::TERM,
        }
    }

    fn is_of_daemon(self) -> bool {
        matches!(self, Death::DaemonKilled | Death::DaemonTerminated)
    }

    /// The exit code of the client.
    fn exit(self) -> i32 {
        match self {
            Death::ClientKilled => 137,
            Death::ClientInterrupted => 130,
            Death::ClientTerminated => 143,
            Death::DaemonKilled | Death::DaemonTerminated => 5,
        }
    }
}

impl Scene {
    /// A scene whose lanes are held behind 6 MiB each.
    pub(crate) fn new(direction: Direction) -> Scene {
        Scene::held_after(direction, HELD_AFTER)
    }

    /// A scene whose lanes are held behind `bytes` bytes each.
    pub(crate) fn held_after(direction: Direction, bytes: u64) -> Scene {
        let gate = Gate::default();
        let holding = gate.clone();
        let wired = Wired::new(move |kind, way| {
            (kind != Kind::Control && way == direction.way()).then(|| hold_after(bytes, holding.clone()))
        });
        Scene { wired, gate, direction, again: None }
    }

    /// Moves a name of one end to a name of the other through the proxy: two lanes, chunks of 1
    /// MiB, one try.
    pub(crate) fn run(&self, from: &str, to: &str) -> Run {
        let far = |name: &str| format!("lh://{}/data/{name}", self.wired.proxy.addr());
        let run = match self.direction {
            Direction::Push => self.wired.site.client.run(["push".to_owned(), from.to_owned(), far(to)]),
            Direction::Pull => self.wired.site.client.run(["pull".to_owned(), far(from), to.to_owned()]),
        };
        let run = run.args(["--json", "--retry-for", "0", "--peer-key", self.wired.site.daemon.key()]);
        run.args(["--lanes", "2", "--chunk-size", "1MiB", "--memory", "16MiB"])
    }

    /// Starts a run, and waits until more than `beyond` bytes are durable. Returns the number that
    /// the client was told.
    pub(crate) fn start(&self, run: Run, beyond: u64) -> (Running, u64) {
        let running = run.start();
        self.gate.wait_reached();
        let durable = wait_durable(&running, beyond);
        (running, durable)
    }

    /// Ends the transfer. If the daemon died, it is started again on the same port.
    pub(crate) fn end(&mut self, running: Running, death: Death) -> Outcome {
        if !death.is_of_daemon() {
            running.signal(death.signal());
            let outcome = running.fail(death.exit());
            self.gate.open();
            return outcome;
        }
        self.daemon().signal(death.signal());
        let outcome = running.fail(death.exit());
        self.gate.open();
        self.daemon().wait_gone();
        self.again = Some(self.wired.site.restarted());
        outcome
    }

    /// Kills the daemon, runs `between`, and starts the daemon again.
    pub(crate) fn restart(&mut self, between: impl FnOnce()) {
        self.daemon().kill();
        between();
        self.again = Some(self.wired.site.restarted());
    }

    fn daemon(&self) -> &Daemon {
        self.again.as_ref().unwrap_or(&self.wired.site.daemon)
    }

    /// Starts the transfer of `f` and ends it. Returns the bytes that the client was told to be
    /// durable.
    pub(crate) fn die(&mut self, run: Run, death: Death) -> u64 {
        let (running, durable) = self.start(run, 0);
        self.end(running, death);
        durable
    }

    /// Fails unless the same tree stands at both ends, and nothing else does.
    #[track_caller]
    pub(crate) fn assert_same(&self, from: &str, to: &str, context: &str) {
        let site = &self.wired.site;
        let (near, far) = (|name: &str| site.client.path(name), |name: &str| site.root().join(name));
        let (from, to) = match self.direction {
            Direction::Push => (near(from), far(to)),
            Direction::Pull => (far(from), near(to)),
        };
        tree::assert_same(&Tree::of(from), &Tree::of(to), context);
        assert_eq!(tree::leftovers(site.root()), [""; 0], "{context}");
        assert_eq!(tree::leftovers(site.client.dir()), [""; 0], "{context}");
    }

    /// Fails if, at the receiving end, other directories than these stand at or beneath `name`.
    #[track_caller]
    pub(crate) fn assert_only(&self, name: &str, dirs: &[&str], context: &str) {
        let site = &self.wired.site;
        let top = match self.direction {
            Direction::Push => site.root().join(name),
            Direction::Pull => site.client.path(name),
        };
        let mut paths = Tree::of(&top).paths();
        paths.retain(|path| top.join(path).is_dir());
        assert_eq!(paths, dirs, "{context}");
    }

    /// The sending end's `f`.
    pub(crate) fn source(&self) -> std::path::PathBuf {
        self.wired.end(self.direction, End::From)
    }

    /// Payload that a run moved, as it tells.
    pub(crate) fn moved(&self, outcome: &Outcome) -> u64 {
        let counter = match self.direction {
            Direction::Push => "bytes_sent",
            Direction::Pull => "bytes_received",
        };
        last(outcome, counter)
    }

    /// Fails unless the run ended well, kept the durable bytes, and moved the rest and no more.
    #[track_caller]
    pub(crate) fn assert_continued(&self, outcome: &Outcome, total: u64, durable: u64, context: &str) {
        assert_eq!(outcome.code, 0, "{context}: {outcome}\n{}", self.log());
        let resumed = resumed(outcome);
        assert!(durable > 0 && resumed >= durable, "{context}: {durable} were durable, {resumed} resumed: {outcome}");
        let moved = self.moved(outcome);
        assert_eq!(moved, total - resumed, "{context}: of {total}, {resumed} resumed: {outcome}");
    }

    /// Fails unless the run ended well and moved everything.
    #[track_caller]
    pub(crate) fn assert_anew(&self, outcome: &Outcome, total: u64, context: &str) {
        assert_eq!(outcome.code, 0, "{context}: {outcome}\n{}", self.log());
        assert_eq!((resumed(outcome), self.moved(outcome)), (0, total), "{context}: {outcome}");
    }

    fn log(&self) -> String {
        self.daemon().log()
    }
}

/// Waits until a run says that more than `beyond` bytes are durable. Returns how many.
pub(crate) fn wait_durable(running: &Running, beyond: u64) -> u64 {
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes > beyond))
}

/// A counter as the last progress event has it.
pub(crate) fn last(outcome: &Outcome, counter: &str) -> u64 {
    outcome.events_of("progress").last().and_then(|event| event[counter].as_u64()).unwrap_or(0)
}

/// The bytes that a run found done by an earlier one.
pub(crate) fn resumed(outcome: &Outcome) -> u64 {
    outcome.summary()["bytes_resumed"].as_u64().unwrap()
}

/// The command that an interrupted run says continues it, run by a shell as it was printed.
pub(crate) fn printed(running_in: &crate::fixture::Host, outcome: &Outcome) -> Run {
    const SAID: &str = "to continue, run it again: ";
    let mut said = outcome.stderr.lines().filter_map(|line| line.split_once(SAID).map(|(_, command)| command));
    let command = said.next().unwrap_or_else(|| panic!("no command that continues: {outcome}"));
    assert!(said.next().is_none(), "one line: {outcome}");
    running_in.run(["-c", command]).program("/bin/sh")
}
