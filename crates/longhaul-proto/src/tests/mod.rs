//! One machine at a time, fed by hand: hostile peers, messages that overtake each other, and
//! single steps. Whole sessions are played by the simulator (`crates/longhaul-sim`).

mod barred;
mod compare;
mod cut;
mod doubts;
mod hostile_receiver;
mod hostile_sender;
mod in_order;
mod items;
mod lanes;
mod lost;
mod names;
mod overtaking;
mod partials;
mod postponed;
mod room;
mod sequence;
mod stream;
mod unasked;
mod victim;
