//! The system calls beneath: messages with control data, options that are structures.
//!
//! Owns every unsafe line of sending. In: bytes and descriptors. Out: the kernel's answers. It must
//! not know what becomes of them.

use std::io;
use std::mem::{self, MaybeUninit, size_of};
use std::net::SocketAddr;

use super::{AsRawFd, BorrowedFd};

/// Room for the control data of one message, aligned as its headers are.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control([u8; Control::BYTES]);

impl Control {
    /// Four short values and a time, each with its header.
    pub(super) const BYTES: usize = 160;

    /// No control data.
    pub(super) fn empty() -> Control {
        Control([0; Control::BYTES])
    }

    /// Its place.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Calls `each` with the level, the type and the data of each value of a message whose control
    /// data lies here, `len` bytes of it.
    pub(super) fn values(&self, len: usize, mut each: impl FnMut(libc::c_int, libc::c_int, &[u8])) {
        let mut rest = &self.0[..len.min(Control::BYTES)];
        const HEADER: usize = size_of::<libc::cmsghdr>();
        while rest.len() >= HEADER {
            // SAFETY: there are as many bytes as a header has, which holds integers only.
            let header = unsafe { rest.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
            #[allow(clippy::unnecessary_cast, reason = "some C libraries have 32 bits there")]
            let len = header.cmsg_len as usize;
            let Some(data) = rest.get(HEADER..len) else { return };
            each(header.cmsg_level, header.cmsg_type, data);
            rest = rest.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        }
    }
}

/// Control data of a message that is to be sent: orders to the kernel.
pub(super) struct Orders {
    control: Control,
    /// Bytes of it that are in use.
    len: usize,
}

impl Orders {
    /// No orders.
    pub(super) fn none() -> Orders {
        Orders { control: Control::empty(), len: 0 }
    }

    /// Has the kernel cut a message into datagrams of this length.
    pub(super) fn cutting(datagram_bytes: u16) -> Orders {
        Orders::none().and(libc::SOL_UDP, libc::UDP_SEGMENT, &datagram_bytes.to_ne_bytes())
    }

    /// Adds an order of this level and type.
    pub(super) fn and(mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Orders {
        // SAFETY: it computes a length.
        let space = unsafe { libc::CMSG_SPACE(data.len() as u32) } as usize;
        assert!(self.len + space <= Control::BYTES, "there is room for four short values");
        // SAFETY: there is room for the header and its data from `len` on, which is a multiple of
        // what headers are aligned to, as every space is; the data is written as bytes.
        unsafe {
            let header = self.control.0.as_mut_ptr().add(self.len).cast::<libc::cmsghdr>();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = libc::CMSG_LEN(data.len() as u32) as _;
            libc::CMSG_DATA(header).copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
        self.len += space;
        self
    }
}

/// Sends one message without waiting: over a connected socket, or `to` a host.
pub(super) fn send(socket: BorrowedFd<'_>, to: Option<SocketAddr>, bytes: &[u8], orders: &Orders) -> io::Result<()> {
    let (mut vector, mut name) = (vector_of(bytes), to.map(name_of));
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if let Some((name, len)) = &mut name {
        header.msg_name = (&raw mut *name).cast();
        header.msg_namelen = *len;
    }
    if orders.len > 0 {
        // The kernel only reads it.
        header.msg_control = orders.control.0.as_ptr().cast_mut().cast();
        header.msg_controllen = orders.len as _;
    }
    loop {
        // SAFETY: the descriptor is open while it is borrowed; `header` names `vector`, `name` and
        // the bytes and control data that outlive this call, which are read and not written.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, FLAGS) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Datagrams that are sent with one system call and are not cut by the kernel.
pub(super) struct Gather<'a> {
    run: &'a [u8],
    datagram_bytes: usize,
}

impl<'a> Gather<'a> {
    /// Datagrams of one system call.
    pub(super) const DATAGRAMS: usize = 64;

    /// The datagrams of a run, each of this length but the last.
    pub(super) fn of(run: &'a [u8], datagram_bytes: u16) -> Gather<'a> {
        Gather { run, datagram_bytes: usize::from(datagram_bytes.max(1)) }
    }

    /// Whether all were sent.
    pub(super) fn is_empty(&self) -> bool {
        self.run.is_empty()
    }

    /// Sends as many as the kernel takes at once, at least one, and takes them out.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut vectors = [vector_of(&[]); Gather::DATAGRAMS];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; Gather::DATAGRAMS];
        let mut count = 0;
        for (bytes, (vector, header)) in
            self.run.chunks(self.datagram_bytes).zip(vectors.iter_mut().zip(headers.iter_mut()))
        {
            *vector = vector_of(bytes);
            let mut one = empty_header();
            one.msg_iov = &raw mut *vector;
            one.msg_iovlen = 1;
            header.write(libc::mmsghdr { msg_hdr: one, msg_len: 0 });
            count += 1;
        }
        // SAFETY: the descriptor is open while it is borrowed; the first `count` headers are
        // written and name vectors and bytes that outlive this call.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), count, FLAGS as _) };
        let Ok(sent) = usize::try_from(sent) else { return Err(io::Error::last_os_error()) };
        self.run = self.run.get(sent * self.datagram_bytes..).unwrap_or_default();
        Ok(sent)
    }
}

/// Sets an option of a socket.
pub(super) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed; the kernel reads the bytes of `value`,
    // and what a filter program points to, which its caller keeps until then.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A header that names nothing.
pub(super) fn empty_header() -> libc::msghdr {
    // SAFETY: it holds pointers and integers, for which zeros are a value. (It has fields beside
    // them in some C libraries, so that it cannot be written out.)
    unsafe { mem::zeroed() }
}

/// An address as the kernel has it, and its length.
fn name_of(addr: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: it holds integers, for which zeros are a value.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let place = &raw mut name;
    let len = match addr {
        SocketAddr::V4(addr) => {
            let sin_addr = libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) };
            let sin_family = libc::AF_INET as libc::sa_family_t;
            let v4 = libc::sockaddr_in { sin_family, sin_port: addr.port().to_be(), sin_addr, sin_zero: [0; 8] };
            // SAFETY: the place has room for every kind of address, and is aligned for it.
            unsafe { place.cast::<libc::sockaddr_in>().write(v4) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(addr) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: addr.port().to_be(),
                sin6_flowinfo: addr.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                sin6_scope_id: addr.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(v6) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (name, len as libc::socklen_t)
}

fn vector_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
