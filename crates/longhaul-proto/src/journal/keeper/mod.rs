//! The keeper of journals: the machines that decide what is written to them, and in which order
//! relative to temporaries and directories.
//!
//! [`Book`] decides for one journal file: how it begins, what makes it ours, what may be appended,
//! and that nothing may be any more after a failure. It gives [`JournalChange`]s, and is told how
//! each ended. Three others decide for a session, which writes to several journals, and give
//! [`KeeperStep`]s: [`PartialChoice`] which of several partials of a name is continued,
//! [`RecordedFiles`] what is recorded of a file from its announcement to its end, [`TempDirs`] when
//! a directory of temporaries is named and forgotten. The engine's `journals` carry that out on a
//! disk, and the simulator on a medium that fails: they have the files, their locks and their
//! lengths. No I/O, clock or randomness here.

mod book;
mod change;
mod choice;
mod dirs;
mod files;
mod step;

pub use book::{Book, TakenPartial};
pub use change::{Abandoned, Beginning, Failed, JournalChange, JournalOp};
pub use choice::{FoundPartial, PartialChoice};
pub use dirs::{TempDirs, left_behind};
pub use files::{FileNumber, Proof, RecordedFiles};
pub use step::{JournalWrites, KeeperStep};
