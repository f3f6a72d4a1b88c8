//! The end-to-end tests: the program as people and scripts use it, over real sockets, real daemons
//! and real file systems.
//!
//! One binary of topic modules over one fixture. Tests run at the same time, each in its own
//! scratch directory with its own keys; they wait for events, never for a time, and use no fixed
//! port.

#![allow(clippy::disallowed_methods, reason = "the tests set up and judge file trees themselves, outside of any root")]
#![allow(clippy::unwrap_used, reason = "what a test sets up itself it may take for granted")]

mod fixture;

mod admin;
mod audit;
mod bench;
mod check;
mod choice;
mod claims;
mod compare;
mod confinement;
mod daemon;
mod datasets;
mod devices;
mod events;
mod existing;
mod exits;
mod extras;
mod failures;
mod hardlinks;
mod holes;
mod hostile;
mod inputs;
mod jobs;
mod keys;
mod kills;
mod known_path;
mod lab;
mod layering;
mod links;
mod listing;
mod lists;
mod manager;
mod manifests;
mod mapping;
mod medium;
mod network;
mod noise;
mod outages;
mod overlap;
mod packaging;
mod partials;
mod readings;
mod readme;
mod reload;
mod removals;
mod resume;
mod sealed;
mod set;
mod set_changes;
mod set_kills;
mod settings;
mod several;
mod sizes;
mod ssh;
mod streams;
mod stripes;
mod sums;
mod swaps;
mod sync;
mod terminal;
mod third_party;
mod trees;
mod udp;
mod usage;
mod users;
mod verify;
mod wan;
mod watch;
