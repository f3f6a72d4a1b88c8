//! Attacks and failures around a transfer: peers that lie, links that break, disks that fill up,
//! sources that move.
//!
//! Takes hosts and daemons from the fixture and puts something between or in place of them: a
//! [`proxy`] on the way, a [`peer`] that follows no rules. In every case no wrong file may stand,
//! and the daemon continues to serve.

mod adversary;
mod bench;
mod bounds;
mod churn;
mod damage;
mod descriptors;
mod durable;
mod escapes;
mod flood;
mod folding;
pub(crate) mod forgery;
mod forty;
mod frames;
mod full;
mod grants;
mod joins;
mod keys;
mod links;
mod listed_trees;
mod listings;
mod noise;
mod orders;
mod peer;
mod policy;
pub(crate) mod proxy;
mod readings;
mod receivers;
mod removals;
mod requests;
mod senders;
mod server;
mod shares;
mod silence;
mod sources;
mod words;

use std::net::SocketAddr;

use longhaul_net::Identity;

use crate::fixture::{DaemonConfig, Host, Run, Site, files, tree};
use proxy::{Kind, Meddler, Proxy, Way};

/// A client that reaches its daemon through a proxy.
pub(crate) struct Wired {
    pub(crate) site: Site,
    pub(crate) proxy: Proxy,
}

/// The direction of a transfer: from the client's `f` to the daemon's, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Push,
    Pull,
}

impl Wired {
    /// A site with a proxy in between, through the meddlers that `make` makes.
    pub(crate) fn new(make: impl Fn(Kind, Way) -> Option<Box<dyn Meddler>> + Send + Sync + 'static) -> Wired {
        Wired::with(DaemonConfig::default(), make)
    }

    /// The same, with further lines in the daemon's configuration.
    pub(crate) fn with(
        config: DaemonConfig,
        make: impl Fn(Kind, Way) -> Option<Box<dyn Meddler>> + Send + Sync + 'static,
    ) -> Wired {
        let site = Site::with(config);
        let proxy = Proxy::start(daemon_addr(&site), make);
        Wired { site, proxy }
    }

    /// Puts `f` at the sending end: the files that `make` makes under that path.
    pub(crate) fn source(&self, direction: Direction, make: impl FnOnce(&std::path::Path)) {
        make(&self.end(direction, End::From));
    }

    /// Moves `f` through the proxy: one lane, chunks of 1 MiB, one try, events told.
    pub(crate) fn run(&self, direction: Direction, protect: &str, engine: &str) -> Run {
        let far = format!("lh://{}/data/f", self.proxy.addr());
        // The content of a directory, so that it stands under the same name at both ends.
        let slash = if self.end(direction, End::From).is_dir() { "/" } else { "" };
        let (verb, from, to) = match direction {
            Direction::Push => ("push", format!("f{slash}"), far),
            Direction::Pull => ("pull", format!("{far}{slash}"), "f".to_owned()),
        };
        let run = self.site.client.run([verb, "--json", "--retry-for", "0", "--peer-key", self.site.daemon.key()]);
        run.args(["--lanes", "1", "--chunk-size", "1MiB", "--memory", "8MiB"]).args([
            "--protect",
            protect,
            "--engine",
            engine,
            &from,
            &to,
        ])
    }

    /// The path of `f` at one end.
    pub(crate) fn end(&self, direction: Direction, end: End) -> std::path::PathBuf {
        match (direction, end) {
            (Direction::Push, End::From) | (Direction::Pull, End::To) => self.site.client.path("f"),
            (Direction::Push, End::To) | (Direction::Pull, End::From) => self.site.root().join("f"),
        }
    }

    /// Fails if the destination holds anything else than an exact copy, or if a temporary is left
    /// at either end.
    #[track_caller]
    pub(crate) fn assert_copied(&self, direction: Direction, context: &str) {
        let (from, to) = (self.end(direction, End::From), self.end(direction, End::To));
        tree::assert_same(&tree::Tree::of(from), &tree::Tree::of(to), context);
        self.assert_clean(context);
    }

    /// Fails if a file stands under the final name, or if a temporary is left at either end.
    #[track_caller]
    fn assert_absent(&self, direction: Direction, context: &str) {
        let to = self.end(direction, End::To);
        assert!(std::fs::symlink_metadata(&to).is_err(), "{context}: {} stands", to.display());
        // The client is gone; the daemon says when it is done with the session.
        self.site.daemon.wait_log("ended: ");
        assert_sane(&self.site, context);
        assert_eq!(tree::orphans(self.site.root()), [""; 0], "{context}");
        assert_eq!(tree::orphans(self.site.client.dir()), [""; 0], "{context}");
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self, context: &str) {
        // The client is gone; the daemon says when it is done with the session.
        self.site.daemon.wait_log("ended: ");
        assert_sane(&self.site, context);
        assert_eq!(tree::leftovers(self.site.root()), [""; 0], "{context}");
        assert_eq!(tree::leftovers(self.site.client.dir()), [""; 0], "{context}");
    }
}

/// The ends of a transfer.
#[derive(Clone, Copy)]
pub(crate) enum End {
    From,
    To,
}

impl Direction {
    pub(crate) const BOTH: [Direction; 2] = [Direction::Push, Direction::Pull];

    /// The way of the payload.
    pub(crate) fn way(self) -> Way {
        match self {
            Direction::Push => Way::ToDaemon,
            Direction::Pull => Way::ToClient,
        }
    }
}

/// Runs cases a few at a time: they wait for timers more than for the processor.
pub(crate) fn some_at_once<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    at_once(4, cases, run);
}

/// Runs cases, `n` at a time; fails with the first that does.
fn at_once<T: Send>(n: usize, cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    let cases = std::sync::Mutex::new(cases.into_iter().collect::<Vec<_>>());
    let next = || cases.lock().unwrap().pop();
    let work = || {
        while let Some(case) = next() {
            run(case);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..n).map(|_| scope.spawn(work)).collect();
        let failed = workers.into_iter().find_map(|worker| worker.join().err());
        if let Some(failed) = failed {
            std::panic::resume_unwind(failed);
        }
    });
}

/// An abuse by a client of the tests' own, and the code of the refusal that it gets.
type Abuse = (&'static str, fn(&mut peer::Client), &'static str);

/// A site with files to read.
fn stocked() -> Site {
    let site = Site::new();
    files::make(site.root().join("stands"), 1, (3 << 20) + 5);
    files::make(site.root().join("small"), 2, 100);
    site
}

/// A client of the tests' own, with the key of the site's client.
fn client(site: &Site) -> peer::Client {
    peer::Client::dial(daemon_addr(site), identity(&site.client))
}

/// The address where a site's daemon listens.
pub(crate) fn daemon_addr(site: &Site) -> SocketAddr {
    site.daemon.addr().parse().unwrap()
}

/// The keys of a host's user.
fn identity(host: &Host) -> Identity {
    host.key();
    Identity::load(&host.config("identity")).unwrap()
}

/// Fails if a thread of the daemon panicked.
#[track_caller]
fn assert_sane(site: &Site, context: &str) {
    assert!(!site.daemon.log().contains("panicked"), "{context}: {}", site.daemon.log());
}

/// Fails unless the daemon of `site` still serves honest clients.
#[track_caller]
fn assert_serves(site: &Site, context: &str) {
    let name = format!("honest-{}", context.replace(|c: char| !c.is_alphanumeric(), "-"));
    files::make(site.client.path(&name), 9, (1 << 20) + 9);
    let outcome = site.client.run(["push", "--json", "--chunk-size", "1MiB", &name, &site.url(&name)]).finish();
    assert_eq!(outcome.code, 0, "after {context} the daemon must serve on: {outcome}\n{}", site.daemon.log());
    let (sent, stands) = (tree::Tree::of(site.client.path(&name)), tree::Tree::of(site.root().join(&name)));
    tree::assert_same(&sent, &stands, context);
    assert_sane(site, context);
}
