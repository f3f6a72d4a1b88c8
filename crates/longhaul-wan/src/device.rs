//! Owns the TUN devices: their making, addresses and size, and the frames that go in and out. Takes
//! names and numbers in the namespace of the calling thread, gives descriptors. Must not know what
//! happens to frames between two devices.

#![allow(clippy::disallowed_methods, reason = "files of the kernel's under /proc and /dev, beneath no root")]

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::ffi::{Ask, Offloads};
use crate::{Error, ffi};

/// A TUN device; it is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Device {
    tun: OwnedFd,
}

/// The description of a device to be made.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) mtu: u32,
    /// Whether it takes work over from its host.
    pub(crate) offloads: Offloads,
    pub(crate) address: Ipv4Addr,
    pub(crate) address6: Option<Ipv6Addr>,
}

impl Device {
    /// Makes a device in the calling thread's namespace, and brings it up.
    pub(crate) fn make(plan: &Plan) -> Result<Device, Error> {
        let name = plan.name.as_str();
        let open = fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(TUN);
        let tun: OwnedFd = open.map_err(|error| Error::system("open", TUN, error))?.into();
        ffi::make_tun(&tun, name).map_err(|error| Error::system("make the device", name, error))?;
        let set = ffi::set_offloads(&tun, plan.offloads);
        set.map_err(|error| Error::system("set the offloads of", name, error))?;
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(|error| Error::system("open", "a socket", error))?;
        let ask = |what: Ask, value: &[u8], doing| {
            ffi::request(&socket, what, name, value).map_err(|error| Error::system(doing, name, error))
        };
        ask(Ask::SetMtu, &plan.mtu.to_ne_bytes(), "set the MTU of")?;
        match ask(Ask::SetQueue, &QUEUE_FRAMES.to_ne_bytes(), "set the queue of") {
            // Not even in a namespace of one's own: the default has to do, and dropped frames are
            // counted.
            Err(Error::Denied { .. }) => {}
            other => other?,
        }
        ask(Ask::SetAddress, &socket_address(plan.address), "give an address to")?;
        ask(Ask::SetNetmask, &socket_address(NETMASK), "give a netmask to")?;
        bring_up(name)?;
        if let Some(address) = plan.address6 {
            add_address6(name, address).map_err(|error| Error::system("give an IPv6 address to", name, error))?;
        }
        Ok(Device { tun })
    }

    /// Reads a frame. `None` if no frame waits.
    pub(crate) fn read(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.tun, &mut *room) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes a frame that is in two parts.
    pub(crate) fn write(&self, head: &[u8], body: &[u8]) -> io::Result<()> {
        loop {
            let written = match body {
                [] => rustix::io::write(&self.tun, head),
                _ => rustix::io::writev(&self.tun, &[io::IoSlice::new(head), io::IoSlice::new(body)]),
            };
            match written {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

/// Brings a device of the calling thread's namespace up.
pub(crate) fn bring_up(name: &str) -> Result<(), Error> {
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as u16;
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
    let socket = socket.map_err(|error| Error::system("open", "a socket", error.into()))?;
    let asked = ffi::request(&socket, Ask::SetFlags, name, &up.to_ne_bytes());
    asked.map_err(|error| Error::system("bring up", name, error))
}

/// Whether the calling thread's namespace has IPv6.
pub(crate) fn has_ipv6() -> bool {
    fs::exists("/proc/sys/net/ipv6").unwrap_or(false)
}

/// Frames that a device of the calling thread's namespace dropped because they were not read in
/// time.
pub(crate) fn dropped(name: &str) -> Option<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let counts = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    counts.split_ascii_whitespace().nth(SENT_DROPPED)?.parse().ok()
}

fn add_address6(name: &str, address: Ipv6Addr) -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET6, rustix::net::SocketType::DGRAM, None)?;
    let device = rustix::net::netdevice::name_to_index(&socket, name)?;
    ffi::add_address6(&socket, device, address.octets(), 64)?;
    // The kernel makes it usable a moment later, even where no other host could have it.
    let began = Instant::now();
    loop {
        match UdpSocket::bind((address, 0)) {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > ADDRESS_PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A `struct sockaddr_in`.
fn socket_address(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
    bytes
}

const TUN: &str = "/dev/net/tun";
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
/// Frames that wait in the kernel while the emulator does something else. The default, 500, is less
/// than one window of single packets; frames dropped here are counted as the emulator's fault.
const QUEUE_FRAMES: u32 = 16_384;
/// The time that an address has to become usable. It is far more than it takes.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(5);
/// The column of dropped frames in `/proc/net/dev`: eight columns count received frames, then come
/// bytes, packets and errors of sent ones.
const SENT_DROPPED: usize = 11;
