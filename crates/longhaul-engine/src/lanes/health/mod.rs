//! Which lanes are to be given up: those that stand still while others move (`stall`), and those
//! whose data nobody acknowledges (`unanswered`). `watch` asks both.
//!
//! In: looks at lanes that stand. Out: the ids of lanes to give up. Closes nothing itself.

mod stall;
mod unanswered;
pub(crate) mod watch;
