//! Owns every unsafe line of this crate: the requests by which network devices are made and set up,
//! the leaving of namespaces, and the hook by which a command enters one. Takes plain values, gives
//! plain results. Must not know what a link is.
//!
//! It stands here and not in `longhaul-sys` because the emulator depends on no crate of the product
//! that it tests.

#![allow(unsafe_code, reason = "the kernel offers these by ioctl, unshare and a hook after fork only")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The longest name of a network device and its end, `IFNAMSIZ`.
const NAME_BYTES: usize = 16;

/// `struct ifreq`: the name of the device, then a value whose type the request decides.
#[repr(C, align(8))]
struct DeviceRequest {
    name: [u8; NAME_BYTES],
    value: [u8; 24],
}

/// `struct in6_ifreq`.
#[repr(C)]
struct AddressRequest {
    address: [u8; 16],
    prefix_bits: u32,
    device: i32,
}

const _: () = assert!(size_of::<DeviceRequest>() >= size_of::<libc::ifreq>(), "the kernel copies that many bytes");
const _: () = assert!(size_of::<AddressRequest>() == size_of::<libc::in6_ifreq>(), "the kernel copies that many bytes");

/// Makes a TUN device of the calling thread's namespace out of an opened `/dev/net/tun`: whole IP
/// packets with an offload header.
pub(crate) fn make_tun(tun: impl AsFd, name: &str) -> io::Result<()> {
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
    request(tun, Ask::MakeTun, name, &flags.to_ne_bytes())
}

/// Work of a host's stack that a device takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offloads {
    /// Checksums, and segmentation: of TCP always, of UDP where the kernel knows it (6.2).
    Taken,
    /// None: each packet leaves the stack as it is on the wire.
    Left,
}

/// Takes work over from the stack of the device's host, or leaves it there.
pub(crate) fn set_offloads(tun: impl AsFd, offloads: Offloads) -> io::Result<()> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let ask = |flags: u32| {
        // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours; the
        // descriptor is open.
        let answer = unsafe { libc::ioctl(tun.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    match offloads {
        Offloads::Taken => ask(tcp | udp).or_else(|_| ask(tcp)),
        Offloads::Left => ask(0),
    }
}

/// A request about a device. Only requests whose argument is a `struct ifreq` are here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    MakeTun,
    SetMtu,
    SetQueue,
    SetAddress,
    SetNetmask,
    SetFlags,
}

impl Ask {
    fn number(self) -> libc::Ioctl {
        match self {
            Ask::MakeTun => libc::TUNSETIFF as libc::Ioctl,
            Ask::SetMtu => libc::SIOCSIFMTU as libc::Ioctl,
            Ask::SetQueue => libc::SIOCSIFTXQLEN as libc::Ioctl,
            Ask::SetAddress => libc::SIOCSIFADDR as libc::Ioctl,
            Ask::SetNetmask => libc::SIOCSIFNETMASK as libc::Ioctl,
            Ask::SetFlags => libc::SIOCSIFFLAGS as libc::Ioctl,
        }
    }
}

/// Makes a request about a device of the namespace in which the descriptor was opened.
pub(crate) fn request(fd: impl AsFd, what: Ask, name: &str, value: &[u8]) -> io::Result<()> {
    let mut request = DeviceRequest { name: [0; NAME_BYTES], value: [0; 24] };
    if name.len() >= NAME_BYTES || value.len() > request.value.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    request.value[..value.len()].copy_from_slice(value);
    // SAFETY: the argument of each request that `Ask` has is a `struct ifreq`, on a socket of
    // AF_INET or a TUN device; the kernel reads and writes no more than its size, all of which is
    // initialised, aligned and ours alone for the time of the call. On a socket of AF_INET6
    // SIOCSIFADDR takes a `struct in6_ifreq`, which is no larger and holds no pointer either.
    let answer = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), what.number(), &raw mut request) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives a device an IPv6 address; the descriptor is a socket of that family.
pub(crate) fn add_address6(socket: impl AsFd, device: u32, address: [u8; 16], prefix_bits: u32) -> io::Result<()> {
    let device = i32::try_from(device).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut request = AddressRequest { address, prefix_bits, device };
    // SAFETY: on a socket of AF_INET6 the argument of SIOCSIFADDR is a `struct in6_ifreq`, as large
    // and laid out as ours.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFADDR as libc::Ioctl, &raw mut request) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves the calling thread into a network namespace of its own.
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: unshare is dangerous if descriptors are no longer shared among threads; this flag
    // leaves them shared.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Moves the calling process, which must have one thread only, into a user namespace of its own,
/// with all rights there.
pub(crate) fn leave_user() -> io::Result<()> {
    // SAFETY: as for `leave_network`.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?)
}

/// Has a command enter a network namespace before it begins and, if `leash` is true, die with the
/// thread that starts it.
pub(crate) fn enter_before_exec(command: &mut Command, network: Arc<OwnedFd>, leash: bool) {
    let enter = move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        if leash {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes two plain system calls: it allocates nothing and
    // takes no lock. The closure owns the descriptor, so it is open and the right one whenever the
    // command is started.
    unsafe { command.pre_exec(enter) };
}
