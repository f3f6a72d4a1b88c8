//! Decides which lanes to give up: those that stand still while others move (`stall`), and those
//! whose data nobody acknowledges (`unanswered`). `watch` asks both.
//!
//! In: looks at lanes that stand. Out: the ids of lanes to give up. It closes none itself and knows
//! no messages.

mod stall;
mod unanswered;
pub(crate) mod watch;
