//! The keeper of journals: the machines that decide what is written to them, and in which order.
//!
//! [`Book`] decides for one journal file: how it begins, what makes it ours, what may be appended,
//! and that nothing may be any more after a failure. It gives [`JournalChange`]s, and is told how
//! each ended. [`PartialChoice`] decides which of several partials of a name is continued. The
//! engine's `journals` carry that out on a disk, and the simulator on a medium that fails: they
//! have the file, its lock and its length. The engine's `journals::session` decides besides when
//! records are written relative to temporaries and directories. No I/O, clock or randomness here.

mod book;
mod change;
mod choice;

pub use book::{Book, TakenPartial};
pub use change::{Abandoned, Beginning, Failed, JournalChange, JournalOp};
pub use choice::{ChoiceStep, FoundPartial, PartialChoice};
