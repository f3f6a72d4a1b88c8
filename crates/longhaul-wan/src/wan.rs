//! Owns the emulated network: two hosts and the links between them. Takes a description, gives
//! hosts to run commands on, ways to change links, and counters. Must not know what runs on the
//! hosts.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::LinkCounters;
use crate::device::{self, Device, Plan};
use crate::drive::{Driver, Start};
use crate::ffi::Offloads;
use crate::host::{Host, Tuning};
use crate::{Change, Error, Path};

/// The description of a network.
#[derive(Debug, Clone)]
pub struct Config {
    /// The links: from 1 to 200, each with a subnet of its own. Default: one that carries
    /// everything at once.
    pub links: Vec<Link>,
    /// The seed of all dice. Default: 1.
    pub seed: u64,
    /// The settings of the hosts' kernels.
    pub tuning: Tuning,
}

/// One link.
#[derive(Debug, Clone)]
pub struct Link {
    /// Bytes of the largest packet on it, from 1280 to 65535. Default: 1500.
    pub mtu: u32,
    /// Whether its devices compute checksums and cut what programs send, as network cards do;
    /// otherwise the hosts' stacks do that. Default: true.
    pub offloads: bool,
    /// The direction from near to far.
    pub forward: Path,
    /// The direction from far to near.
    pub backward: Path,
    /// The changes while it runs.
    pub schedule: Vec<Step>,
}

/// A scheduled change.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The time since the network was made.
    pub at: Duration,
    /// The direction that changes. `None`: both.
    pub direction: Option<Direction>,
    /// The change.
    pub change: Change,
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The direction from near to far.
    Forward,
    /// The direction from far to near.
    Backward,
}

impl Default for Config {
    fn default() -> Config {
        Config { links: vec![Link::default()], seed: 1, tuning: Tuning::default() }
    }
}

impl Default for Link {
    fn default() -> Link {
        let (forward, backward) = (Path::default(), Path::default());
        Link { mtu: 1500, offloads: true, forward, backward, schedule: Vec::new() }
    }
}

impl Link {
    /// A link that is the same in both directions; half of the round trip in each.
    #[must_use]
    pub fn even(path: Path) -> Link {
        Link { forward: path.clone(), backward: path, ..Link::default() }
    }

    /// Changes both directions.
    pub fn apply(&mut self, change: &Change) {
        change.apply(&mut self.forward);
        change.apply(&mut self.backward);
    }

    /// Takes the link down for a while.
    pub fn cut(&mut self, at: Duration, time: Duration) {
        let step = |at, down| Step { at, direction: None, change: Change::down(down) };
        self.schedule.extend([step(at, true), step(at + time, false)]);
    }
}

/// Two hosts and the links between them. When it is dropped the links are gone at once, and the
/// hosts with the last process on them; that is also so when this process dies.
#[derive(Debug)]
pub struct Wan {
    // Before the hosts, so that devices go before their namespaces.
    links: Vec<Running>,
    near: Host,
    far: Host,
    began: Instant,
}

#[derive(Debug)]
struct Running {
    name: String,
    forward: Driver,
    backward: Driver,
}

impl Wan {
    /// Makes the network, and starts it.
    ///
    /// # Errors
    /// If the description is out of range, or the kernel refuses, as it does for want of rights.
    pub fn new(config: &Config) -> Result<Wan, Error> {
        check(config)?;
        let mut near = Host::new(&config.tuning)?;
        let mut far = Host::new(&config.tuning)?;
        let ipv6 = near.run(device::has_ipv6)?;
        let (near_plans, far_plans) = (plans(config, 1, ipv6), plans(config, 2, ipv6));
        near.set_addresses(near_plans.iter().map(|plan| (plan.address, plan.address6)).collect());
        far.set_addresses(far_plans.iter().map(|plan| (plan.address, plan.address6)).collect());
        let make = |host: &Host, plans: &[Plan]| -> Result<Vec<Arc<Device>>, Error> {
            host.run(|| plans.iter().map(|plan| Device::make(plan).map(Arc::new)).collect())?
        };
        let devices = make(&near, &near_plans)?.into_iter().zip(make(&far, &far_plans)?);
        let began = Instant::now();
        let mut links = Vec::new();
        for (index, ((near, far), link)) in devices.zip(&config.links).enumerate() {
            let start = |from: &Arc<Device>, to: &Arc<Device>, direction| {
                let path = if direction == Direction::Forward { &link.forward } else { &link.backward };
                let (from, to, path) = (Arc::clone(from), Arc::clone(to), path.clone());
                let schedule = schedule(&link.schedule, direction);
                Driver::start(Start { from, to, path, seed: seed(config.seed, index, direction), schedule, began })
            };
            links.push(Running {
                name: name(index),
                forward: start(&near, &far, Direction::Forward)?,
                backward: start(&far, &near, Direction::Backward)?,
            });
        }
        Ok(Wan { links, near, far, began })
    }

    /// The near host.
    #[must_use]
    pub fn near(&self) -> &Host {
        &self.near
    }

    /// The far host.
    #[must_use]
    pub fn far(&self) -> &Host {
        &self.far
    }

    /// The time since the network was made: the clock of the schedules.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Changes a link in flight, in one direction or in both.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn change(&self, link: usize, direction: Option<Direction>, change: &Change) -> Result<(), Error> {
        let running = self.links.get(link);
        let running = running.ok_or(Error::Range { what: "link", number: link as u64, range: "links count from 0" })?;
        if direction != Some(Direction::Backward) {
            running.forward.change(change.clone());
        }
        if direction != Some(Direction::Forward) {
            running.backward.change(change.clone());
        }
        Ok(())
    }

    /// The counters of each link so far.
    ///
    /// # Errors
    /// If a host cannot be entered, where its devices are asked.
    pub fn counters(&self) -> Result<Vec<LinkCounters>, Error> {
        let dropped = |host: &Host| {
            let ask = |link: &Running| device::dropped(&link.name).unwrap_or(0);
            host.run(|| self.links.iter().map(ask).collect::<Vec<_>>())
        };
        let dropped = dropped(&self.near)?.into_iter().zip(dropped(&self.far)?);
        let counters = self.links.iter().zip(dropped).map(|(link, (near, far))| {
            let mut both = LinkCounters { forward: link.forward.counters(), backward: link.backward.counters() };
            (both.forward.dropped_device, both.backward.dropped_device) = (near, far);
            both
        });
        Ok(counters.collect())
    }

    /// The environment variables for programs on the hosts: `WAN_NEAR` and `WAN_FAR`, with `6`
    /// behind it for IPv6, and for link 1 and so on with `_1` behind that.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut said = Vec::new();
        for index in 0..self.links.len() {
            let suffix = if index == 0 { String::new() } else { format!("_{index}") };
            for (key, host) in [("WAN_NEAR", &self.near), ("WAN_FAR", &self.far)] {
                said.push((format!("{key}{suffix}"), host.address(index).to_string()));
                said.extend(host.address6(index).map(|address| (format!("{key}6{suffix}"), address.to_string())));
            }
        }
        said
    }
}

fn check(config: &Config) -> Result<(), Error> {
    let links = config.links.len();
    if !(1..=LINKS_MAX).contains(&links) {
        return Err(Error::Range { what: "number of links", number: links as u64, range: "1 to 200" });
    }
    let wrong = config.links.iter().find(|link| !(MTU_MIN..=MTU_MAX).contains(&link.mtu));
    let wrong = wrong.map(|link| Error::Range { what: "MTU", number: link.mtu.into(), range: "1280 to 65535" });
    wrong.map_or(Ok(()), Err)
}

/// The devices of one host, by the last number of its addresses.
fn plans(config: &Config, host: u8, ipv6: bool) -> Vec<Plan> {
    let plan = |(index, link): (usize, &Link)| {
        let subnet = index as u8;
        Plan {
            name: name(index),
            mtu: link.mtu,
            offloads: if link.offloads { Offloads::Taken } else { Offloads::Left },
            address: Ipv4Addr::new(10, 77, subnet, host),
            address6: ipv6.then(|| Ipv6Addr::new(0xfd77, 0, 0, subnet.into(), 0, 0, 0, host.into())),
        }
    };
    config.links.iter().enumerate().map(plan).collect()
}

fn name(link: usize) -> String {
    format!("wan{link}")
}

/// The schedule of a direction, the earliest change first; changes at the same time stay in the
/// order given.
fn schedule(steps: &[Step], direction: Direction) -> Vec<(Duration, Change)> {
    let mine = steps.iter().filter(|step| step.direction.is_none_or(|only| only == direction));
    let mut mine: Vec<_> = mine.map(|step| (step.at, step.change.clone())).collect();
    mine.sort_by_key(|(at, _)| *at);
    mine
}

/// The seed of one direction of one link, each of which has dice of its own.
fn seed(seed: u64, link: usize, direction: Direction) -> u64 {
    let number = link as u64 * 2 + u64::from(direction == Direction::Backward);
    seed ^ (number + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The most links: as many as there are subnets, and then some.
const LINKS_MAX: usize = 200;
/// The MTU that IPv6 asks of every link.
const MTU_MIN: u32 = 1280;
const MTU_MAX: u32 = 65_535;
