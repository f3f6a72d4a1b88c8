//! Owns the paths of a run that was given several: chooses the path of the next dial, and counts
//! what each path has carried.
//!
//! In: addresses, lanes that joined, dials that failed. Out: a path for each dial, and figures for
//! observers. A path that does not answer is tried by one lane at a time until it does; all other
//! lanes run over paths that answer. Data needs no share per path: every lane takes from one queue,
//! so a path carries what it can. It knows no sessions.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{LaneHandle, NetPath};

use crate::api::{Event, Observer, PathFigures};

/// The paths. Clones share them.
#[derive(Clone)]
pub(crate) struct Paths(Arc<Vec<NetPath>>, Arc<Mutex<Vec<Carried>>>);

/// The state of one path.
#[derive(Default)]
struct Carried {
    lanes: Vec<PathLane>,
    /// Lanes that are being dialled over the path.
    dialling: usize,
    /// Whether the path did not answer the last dial.
    is_down: bool,
    /// Bytes of lanes that have ended.
    retired_bytes: u64,
}

struct PathLane {
    handle: LaneHandle,
    /// Bytes that the lane had carried at the last look.
    bytes: u64,
}

/// A path chosen for one dial. It gives the dial back when dropped.
pub(crate) struct Chosen {
    paths: Paths,
    place: usize,
}

impl Paths {
    pub(crate) fn new(paths: &[NetPath]) -> Paths {
        let carried = paths.iter().map(|_| Carried::default()).collect();
        Paths(Arc::new(paths.to_vec()), Arc::new(Mutex::new(carried)))
    }

    pub(crate) fn as_slice(&self) -> &[NetPath] {
        &self.0
    }

    /// Checks that lanes can be dialled over all paths, given that control is connected to `addr`.
    ///
    /// # Errors
    /// A usage fault for a path whose remote address is unknown.
    pub(crate) fn lead_to(&self, addr: SocketAddr) -> Result<(), Fault> {
        let usage =
            |message: String| Fault::new(FaultCode::Usage, Blame::Local, message).hint(hint::Network::NameBothEnds);
        let unnamed: Vec<_> = self.0.iter().filter(|path| path.remote.is_none()).collect();
        if !unnamed.is_empty() && unnamed.len() < self.0.len() {
            return Err(usage("some paths have a REMOTE and some have none".to_owned()));
        }
        let other_family = |path: &&&NetPath| path.local.is_some_and(|local| local.is_ipv4() != addr.is_ipv4());
        match unnamed.iter().find(other_family) {
            Some(path) => Err(usage(format!("{path} and {} are not of one family of addresses", addr.ip()))),
            None => Ok(()),
        }
    }

    /// The path for the next dial. `None` if the run was given no paths.
    pub(crate) fn choose(&self) -> Option<Chosen> {
        let mut all = self.look();
        let place = choose(&all)?;
        all[place].dialling += 1;
        Some(Chosen { paths: self.clone(), place })
    }

    /// Bytes that each path has carried so far. Empty unless there are several paths.
    pub(crate) fn figures(&self) -> Vec<PathFigures> {
        if self.0.len() < 2 {
            return Vec::new();
        }
        let figure = |(path, carried): (&NetPath, &Carried)| PathFigures {
            path: path.to_string(),
            lanes: carried.lanes.len() as u32,
            bytes: carried.retired_bytes + carried.lanes.iter().map(|lane| lane.bytes).sum::<u64>(),
            is_down: carried.is_down,
        };
        self.0.iter().zip(self.look().iter()).map(figure).collect()
    }

    /// Updates the counters of all lanes, then locks the state.
    fn look(&self) -> MutexGuard<'_, Vec<Carried>> {
        let mut all = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        for path in all.iter_mut() {
            let mut gone = 0;
            path.lanes.retain_mut(|lane| {
                // The bytes are read after the counters: a lane that was seen to have ended
                // carries no more.
                let is_gone = lane.handle.counters().is_none();
                lane.bytes = lane.bytes.max(lane.handle.carried());
                gone += if is_gone { lane.bytes } else { 0 };
                !is_gone
            });
            path.retired_bytes += gone;
        }
        all
    }
}

/// A path that is down and that nobody tries, as long as another carries something; else the path
/// with the fewest lanes, of those that are up.
fn choose(all: &[Carried]) -> Option<usize> {
    let mut places = 0..all.len();
    let carried = all.iter().any(|path| !path.is_down && path.lanes.len() + path.dialling > 0);
    let untried = places.clone().find(|&place| carried && all[place].is_down && all[place].dialling == 0);
    let lanes = |place: &usize| (all[*place].is_down, all[*place].lanes.len() + all[*place].dialling);
    untried.or_else(|| places.by_ref().min_by_key(lanes))
}

impl Chosen {
    /// The local address to dial from, and the remote one, if the route leads to the daemon at
    /// `addr`.
    pub(crate) fn addresses(&self, addr: SocketAddr) -> (Option<IpAddr>, SocketAddr) {
        let path = &self.paths.0[self.place];
        (path.local, path.remote.map_or(addr, |remote| SocketAddr::new(remote, addr.port())))
    }

    /// How many paths the run has.
    pub(crate) fn siblings(&self) -> usize {
        self.paths.0.len()
    }

    /// The index of the path, from 0.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Records that a lane joined over the path.
    pub(crate) fn joined(&self, handle: LaneHandle) {
        let mut all = self.paths.look();
        all[self.place].is_down = false;
        all[self.place].lanes.push(PathLane { handle, bytes: 0 });
    }

    /// Records that the path did not answer.
    pub(crate) fn failed(&self) {
        self.paths.look()[self.place].is_down = true;
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.paths.look()[self.place].dialling -= 1;
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

/// Adds the figures of the paths to the counters of each second.
pub(crate) struct WithPaths {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) paths: Paths,
}

impl Observer for WithPaths {
    fn lanes(&self, count: u32) {
        self.observer.lanes(count);
    }

    fn claim_kept(&self) {
        self.observer.claim_kept();
    }

    fn event(&self, event: Event) {
        let is_progress = matches!(event, Event::Progress(_));
        self.observer.event(event);
        let figures = if is_progress { self.paths.figures() } else { Vec::new() };
        if !figures.is_empty() {
            self.observer.event(Event::Paths(figures));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(lanes: usize, dialling: usize, is_down: bool) -> Carried {
        // A lane whose socket is gone counts until the next look.
        let handle = || longhaul_net::LaneStream::pair().expect("a pair").0.handle();
        let lanes = (0..lanes).map(|_| PathLane { handle: handle(), bytes: 0 }).collect();
        Carried { lanes, dialling, is_down, retired_bytes: 0 }
    }

    #[test]
    fn lanes_go_where_there_are_fewest_and_one_at_a_time_tries_a_path_that_is_down() {
        let chosen = |all: &[(usize, usize, bool)]| {
            choose(&all.iter().map(|&(lanes, dialling, down)| path(lanes, dialling, down)).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[(2, 0, false), (1, 0, false)]), Some(1));
        assert_eq!(chosen(&[(2, 0, false), (1, 2, false)]), Some(0));
        assert_eq!(chosen(&[(4, 0, false), (0, 0, true)]), Some(1), "nobody tries it yet");
        assert_eq!(chosen(&[(4, 0, false), (0, 1, true)]), Some(0), "somebody does");
        assert_eq!(chosen(&[(0, 0, true), (0, 0, false)]), Some(1), "the only lane goes where it can");
        assert_eq!(chosen(&[(0, 1, true), (0, 2, true)]), Some(0), "there is no other");
    }

    #[test]
    fn what_a_lane_carried_since_it_was_last_looked_at_counts_when_it_is_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let mut lane = longhaul_net::LaneStream::dial_safe(addr, &Default::default()).expect("dialled");
        let (mut far, _) = listener.accept().expect("accepted");
        let paths = Paths::new(&["127.0.0.1", "127.0.0.2"].map(|path| path.parse().expect("a path")));
        let handle = lane.handle();
        paths.choose().expect("a path").joined(handle.clone());
        let before = paths.figures()[0].bytes;
        lane.send(&[&[7; 5000]]).expect("sent");
        std::io::Read::read_exact(&mut far, &mut [0; 5000]).expect("received");
        while handle.counters().expect("it stands").acked < before + 5000 {
            std::thread::yield_now();
        }
        handle.close();
        drop(lane);
        let figures = paths.figures();
        assert_eq!((figures[0].lanes, figures[0].bytes - before), (0, 5000));
        assert_eq!(paths.figures()[0].bytes, figures[0].bytes, "and once");
    }

    #[test]
    fn paths_of_which_it_is_not_known_where_they_lead_are_refused() {
        let leads = |paths: &[&str], addr: &str| {
            let paths: Vec<NetPath> = paths.iter().map(|path| path.parse().expect("a path")).collect();
            Paths::new(&paths).lead_to(addr.parse().expect("an address")).map_err(|fault| fault.code)
        };
        assert_eq!(leads(&[], "[::1]:7214"), Ok(()));
        assert_eq!(leads(&["10.0.0.1", "10.0.1.1"], "10.9.9.9:7214"), Ok(()));
        assert_eq!(leads(&["10.0.0.1=10.0.0.2", "fd00::1=fd00::2"], "10.0.0.2:7214"), Ok(()));
        assert_eq!(leads(&["10.0.0.1", "fd00::1"], "10.9.9.9:7214"), Err(FaultCode::Usage));
        assert_eq!(leads(&["10.0.0.1", "10.0.1.1=10.0.1.2"], "10.9.9.9:7214"), Err(FaultCode::Usage));
    }
}
