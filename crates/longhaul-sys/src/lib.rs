//! The unsafe code of longhaul, behind safe signatures: buffer memory, its loan to io_uring, facts
//! about descriptors and connections, file locks, limits, dispositions of signals, accounts, the
//! process's own user, messages with descriptors, datagrams in bulk, memory that was freed.
//!
//! Takes sizes and descriptors from `disk` and `net`; gives them [`Slot`]s, [`RingSlots`] and plain
//! answers. Knows nothing of names of files, of chunks, peers or transfers.

#![allow(unsafe_code, reason = "the one crate that may; every block says why it is sound")]

pub mod accounts;
pub mod fd;
mod heap;
pub mod inherited;
pub mod lock;
pub mod passing;
pub mod privileges;
mod resolver;
mod ring;
pub mod rlimit;
pub mod signals;
mod slab;
pub mod tcp;
pub mod udp;

pub use fd::{DioAlign, dio_align, set_direct};
pub use heap::give_back_free_memory;
pub use inherited::take_sockets;
pub use resolver::lookup_may_succeed_later;
pub use ring::RingSlots;
pub use rlimit::{file_size_limit, memlock_limit, nofile_limit, raise_nofile_limit};
pub use signals::{ignores_hangup, survive_file_size_limit};
pub use slab::{Grow, SharedSlot, Slab, Slot};
