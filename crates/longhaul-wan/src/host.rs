//! Owns one of the two emulated hosts: a network namespace without a name, its loopback device and
//! its kernel settings. Takes commands and closures to run there, gives their results. Must not
//! know links, or the other host.

#![allow(clippy::disallowed_methods, reason = "files of the kernel's under /proc, beneath no root")]

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, device, ffi};

/// One end of the emulated network. The namespace lives as long as this, or a process in it, does.
#[derive(Debug)]
pub struct Host {
    network: Arc<OwnedFd>,
    addresses: Vec<(Ipv4Addr, Option<Ipv6Addr>)>,
}

/// The settings of an emulated host's kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Lets TCP's buffers grow to 512 MiB, as on a host made ready for long paths; otherwise they
    /// stay as on this host. Default: true.
    pub large_buffers: bool,
    /// Further settings under `net`, like `("net.ipv4.tcp_mtu_probing", "1")`; they win. As default
    /// congestion control the kernel takes only what `net.ipv4.tcp_allowed_congestion_control`
    /// allows on this host.
    pub sysctls: Vec<(String, String)>,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { large_buffers: true, sysctls: Vec::new() }
    }
}

impl Host {
    pub(crate) fn new(tuning: &Tuning) -> Result<Host, Error> {
        let made = std::thread::scope(|scope| scope.spawn(|| make(tuning)).join());
        let network = made.map_err(|_| Error::Thread { doing: "make a network namespace" })??;
        Ok(Host { network: Arc::new(network), addresses: Vec::new() })
    }

    /// Its IPv4 address on a link.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn address(&self, link: usize) -> Ipv4Addr {
        self.addresses[link].0
    }

    /// Its IPv6 address on a link. `None` where this kernel has no IPv6.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn address6(&self, link: usize) -> Option<Ipv6Addr> {
        self.addresses[link].1
    }

    /// A command that runs on this host.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.adopt(&mut command);
        command
    }

    /// Has a command run on this host.
    pub fn adopt(&self, command: &mut Command) {
        ffi::enter_before_exec(command, Arc::clone(&self.network), false);
    }

    /// Has a command run on this host, and has it killed when the thread that starts it ends,
    /// however that happens.
    pub fn adopt_on_leash(&self, command: &mut Command) {
        ffi::enter_before_exec(command, Arc::clone(&self.network), true);
    }

    /// Words that, put before a command line, have it run on this host (by util-linux's `nsenter`)
    /// while this is alive.
    #[must_use]
    pub fn prefix(&self) -> [String; 3] {
        let path = format!("--net=/proc/{}/fd/{}", std::process::id(), self.network.as_raw_fd());
        ["nsenter".into(), path, "--".into()]
    }

    /// Runs `job` on a thread of this host, and waits for it: sockets that it opens are this host's
    /// for good.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or the thread panics.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let enter = || {
            let entered = move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network));
            entered.map_err(|error| Error::system("enter", "a network namespace", error.into()))?;
            Ok(job())
        };
        let ran = std::thread::scope(|scope| scope.spawn(enter).join());
        ran.map_err(|_| Error::Thread { doing: "run something on a host" })?
    }

    pub(crate) fn set_addresses(&mut self, addresses: Vec<(Ipv4Addr, Option<Ipv6Addr>)>) {
        self.addresses = addresses;
    }
}

/// See [`crate::become_able`].
pub(crate) fn become_able() -> Result<(), Error> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let denied = |source| Error::Denied { doing: "make", name: "a user namespace".into(), source };
    ffi::leave_user().map_err(denied)?;
    let write = |path: &str, text: &str| fs::write(path, text).map_err(|error| Error::system("write", path, error));
    // Groups can be mapped by an ordinary user only after they can no longer be changed.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", &format!("{group} {group} 1"))
}

/// Makes the namespace and leaves the calling thread in it.
fn make(tuning: &Tuning) -> Result<OwnedFd, Error> {
    ffi::leave_network().map_err(|error| Error::system("make", "a network namespace", error))?;
    let path = "/proc/thread-self/ns/net";
    let network = fs::File::open(path).map_err(|error| Error::system("open", path, error))?;
    device::bring_up("lo")?;
    for (key, value) in QUIET {
        // Where there is no IPv6 there is nothing to silence.
        match set(key, value) {
            Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    if tuning.large_buffers {
        for (key, value) in LARGE_BUFFERS {
            set(key, value)?;
        }
    }
    for (key, value) in &tuning.sysctls {
        set(key, value)?;
    }
    Ok(network.into())
}

/// Sets a kernel setting of the calling thread's namespace.
fn set(key: &str, value: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    if !key.starts_with("net.") || path.contains("//") {
        return Err(crate::units::wrong("kernel setting", key, "like net.ipv4.tcp_mtu_probing"));
    }
    // Not a matter of root: a host may keep a setting to itself, such as a congestion control that
    // it does not allow all users.
    fs::write(&path, value).map_err(|source| Error::System { doing: "set", name: path, source })
}

/// Settings against addresses, solicitations and routers that were not asked for: only packets of
/// programs are on the links.
const QUIET: &[(&str, &str)] = &[
    ("net.ipv6.conf.all.addr_gen_mode", "1"),
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
];

/// TCP's buffers: smallest, first and largest. 512 MiB is 300 ms at 14 Gbit/s; the first are the
/// kernel's own, so that slow starts are as anywhere.
const LARGE_BUFFERS: &[(&str, &str)] =
    &[("net.ipv4.tcp_rmem", "4096 131072 536870912"), ("net.ipv4.tcp_wmem", "4096 16384 536870912")];
