//! The machines against each other and against the hostile, in memory: no clock, no disk, no
//! socket.

mod compare;
mod disk;
mod doubts;
mod groups;
mod hostile_receiver;
mod hostile_sender;
mod lanes;
mod overtaking;
mod partials;
mod plan;
mod readback;
mod rng;
mod room;
mod scenarios;
mod skipped;
mod source;
mod target;
mod victim;
mod wire;
mod world;
