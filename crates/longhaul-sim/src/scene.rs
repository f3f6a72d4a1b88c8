//! The special circumstances of a world: nodes that stand, partials that an earlier session left,
//! a limit of room, and faults that strike one place always.
//!
//! Plain data that a plan carries; the worlds of seeds have none of it. Decides nothing.

use std::collections::BTreeSet;

use longhaul_core::{FaultCode, Unit};
use longhaul_proto::receiver::Source;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Whether the world is one session: the command is not run again, and faults go on.
    pub(crate) is_one_session: bool,
    /// The nodes that stand at the destination before, parents first. One beneath something
    /// that is no directory is left out.
    pub(crate) standing: Vec<(String, Standing)>,
    /// The partials that an earlier session left.
    pub(crate) left: Vec<Left>,
    /// Whether messages of different classes overtake each other at will, or only the urgent the
    /// others.
    pub(crate) any_class_order: bool,
    /// Bytes of room at the destination. `None` if it does not tell its room and has enough.
    pub(crate) room: Option<u64>,
    /// Units that never arrive as they were sent.
    pub(crate) always_flipped: BTreeSet<Unit>,
    /// Chunks that the medium keeps wrongly whenever they are written, by their content.
    pub(crate) always_spoilt: Vec<Vec<u8>>,
    /// The code of operations of the disk that fail; the journal's do not. `None` for those that
    /// the rates name, which fail for want of space or with an input/output error.
    pub(crate) fault: Option<FaultCode>,
    /// Whether the destination cannot be tidied at the end.
    pub(crate) is_untidy: bool,
    /// Whether journals of earlier sessions are taken over when a name in them is surveyed, as the
    /// engine does it, or all of them when a session begins.
    pub(crate) claims_late: bool,
    /// How often a side takes in more events before it carries out the orders of its machine, in a
    /// thousand. 0: it acts behind each event, as in worlds of many sessions.
    pub(crate) hesitates: u32,
    /// The longest look at a file of the receiver's disk, in microseconds. 0: a look takes no time.
    pub(crate) look_us: u64,
}

/// A node that stands at the destination before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A directory.
    Dir,
    /// A link with this target.
    Link(Vec<u8>),
    /// A fifo, socket or device.
    Special,
    /// A file with this content, and with the time of the source of that name.
    Current(Vec<u8>),
    /// A file with this content, and with another time.
    Older(Vec<u8>),
}

/// The partial that an earlier session left of a file.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// The file's path at the destination.
    pub(crate) path: String,
    /// The bytes of its temporary. Bytes that are not journalled may be anything.
    pub(crate) bytes: Vec<u8>,
    /// Its chunk size in bytes.
    pub(crate) chunk: usize,
    /// Chunks that are journalled.
    pub(crate) held: BTreeSet<u64>,
    /// Whether it was of the same version of the source.
    pub(crate) source: Source,
    /// Whether its temporary is gone.
    pub(crate) gone: bool,
}
