//! A lane over UDP without sockets: its packets and its join.
//!
//! In: datagrams as bytes, and facts as numbers. Out: typed packets and bytes. Payload goes around
//! all of this, and so do keys: what is sealed is encoded and parsed here as plain text.
//! `docs/WIRE.md` section 10 has the bytes.

pub mod join;
pub mod packet;
pub mod status;
