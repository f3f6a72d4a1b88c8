//! Decides which lanes to give up: those that stand still while others move (`stall`), those that
//! swallow large segments while small ones pass (`unanswered`), and those that are dead by their
//! transport's account (`is_dead` of a standing lane). `watch` asks all three.
//!
//! In: looks at lanes that stand. Out: the ids of lanes to give up. It closes none itself and knows
//! no messages.

mod stall;
mod unanswered;
pub(crate) mod watch;
