//! Every limit of the product in one place; they check each other when the crate is compiled.
//!
//! A limit here bounds a peer, whatever the peer says.

/// Smallest exponent of a chunk's size: one BLAKE3 chunk (1 KiB), for simulators and tests.
pub const CHUNK_LOG2_MIN: u8 = 10;
/// Largest exponent of a chunk's size: 64 MiB.
pub const CHUNK_LOG2_MAX: u8 = 26;
/// Smallest chunk a user may ask for: 1 MiB, below which requests cost more than bytes.
pub const CHUNK_BYTES_USER_MIN: u64 = 1 << 20;
/// Largest chunk a user may ask for: 64 MiB.
pub const CHUNK_BYTES_USER_MAX: u64 = 1 << CHUNK_LOG2_MAX;

/// The length by which the geometry of a stream reckons until its end is known, in bytes: longer
/// than any file, as the largest offset of a system is one byte less.
pub const STREAM_BYTES_MAX: u64 = 1 << 63;

/// Default buffers of one side of a transfer, in bytes: 256 MiB.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// The fewest chunks of memory: fewer cannot overlap reading, sending, receiving and writing.
pub const MEMORY_CHUNKS_MIN: u64 = 4;
/// Most requests in flight per disk: more than any disk uses at chunks of megabytes. It bounds
/// threads and entries of a ring.
pub const DISK_DEPTH_MAX: u32 = 256;
/// Devices that have a queue, a feeder and a share of a window of their own; further ones share
/// those of others. A sender may name as many as it likes, and each costs a look at every turn.
pub const DEVICES_MAX: usize = 16;

/// Longest component of a path (NAME_MAX of every file system we know).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path beneath a root (PATH_MAX less its NUL).
pub const PATH_BYTES_MAX: usize = 4095;
/// Longest target of a symbolic link.
pub const LINK_BYTES_MAX: usize = 4095;
/// Component names with this beginning are ours, at every level: they are never scanned, listed,
/// served or accepted. The same holds for any spelling that a file system takes for such a name:
/// [`is_reserved`](crate::is_reserved).
pub const RESERVED_PREFIX: &[u8] = b".longhaul";
/// The directory of a target set's own files, at the top of each target.
pub const SET_DIR_NAME: &[u8] = b".longhaul-set";
/// The directory with the sealed manifest of a dataset, at the top of the dataset.
pub const DATASET_MANIFEST_NAME: &[u8] = b".longhaul-manifest";
/// Longest name of a dataset: one that is replaced is kept under a name that is 18 bytes longer.
pub const DATASET_NAME_BYTES_MAX: usize = 200;

/// Names in one order to move names away: their answers fit a few messages.
pub const REMOVAL_NAMES_MAX: usize = 256;
/// Names in one order to look at files or to read them.
pub const READING_NAMES_MAX: usize = 4096;

/// Largest control message, its number and length not counted.
pub const MESSAGE_BYTES_MAX: usize = 128 << 10;
/// A manifest page is closed before it grows beyond this.
pub const PAGE_BYTES_MAX: usize = 64 << 10;
/// The smallest chunk into which a file is cut that would not give each lane one, bytes, ...
pub const CHUNK_BYTES_CUT_MIN: u64 = 64 << 10;
/// ... the smallest into which one is cut so that lanes end together, from which on the work per
/// chunk is small against that per byte, ...
pub const CHUNK_BYTES_EVEN_MIN: u64 = 256 << 10;
/// ... and the chunks that a file is cut into at most: two for each lane.
pub const CUT_CHUNKS_MAX: u64 = 2 * LANES_MAX as u64;
/// The chunks of all that is still to come where lanes shall end together: eight lanes, of which
/// each may be a chunk behind, wait for the last for a thirtieth of the time at most. Each chunk
/// takes a whole buffer, so more chunks leave less room for a disk that is behind: the 64 buffers
/// of a session hold a quarter of what is to come.
pub const EVEN_CHUNKS: u64 = 256;
const _: () = assert!(EVEN_CHUNKS <= CUT_CHUNKS_MAX, "senders take no file of more");
/// Most entries in one manifest page.
pub const PAGE_ENTRIES_MAX: usize = 1024;
/// Manifest pages that a receiver lets a sender have unanswered.
pub const PAGES_UNANSWERED_MAX: u64 = 8;
/// Manifest pages that a sender may say before it has heard any credit, so that a small tree needs
/// no round trip for the receiver's offer.
pub const PAGES_UNASKED: u64 = 1;
const _: () = assert!(PAGES_UNASKED <= PAGES_UNANSWERED_MAX);
/// The most bytes of small files that a sender says unasked, with their table: it must fit a
/// control message, and the smallest buffer of a receiver. On most paths fewer go out, as they must
/// fit the first flight of a fresh connection, which is some 13 KB where segments have 1,448 bytes.
pub const UNASKED_BYTES_MAX: u64 = 96 << 10;
const _: () = assert!(UNASKED_BYTES_MAX + 16 <= MESSAGE_BYTES_MAX as u64);
/// Segments of a fresh connection's first flight, in which files that nobody asked for must fit
/// with their page: as many as RFC 6928 lets out.
pub const UNASKED_SEGMENTS: u64 = 10;
/// The bytes of names and values of the extended attributes of one entry that travel: as many as a
/// system lets one value have.
pub const XATTRS_BYTES_MAX: usize = 64 << 10;
/// The cost of the extras of one entry, as [`Extras::cost`](crate::Extras::cost) reckons it.
pub const EXTRAS_COST_MAX: usize = 80 << 10;
/// A manifest page is closed when the extras of its entries cost more than this.
pub const PAGE_EXTRAS_COST: usize = 48 << 10;
/// Entries without outcome that a receiver holds at most; memory grows with this, not with the
/// tree. At a round trip of 0.1 s, small files take a second and more from their page to their
/// outcome: with 16 Ki entries, lanes stood idle for 0.3 s.
pub const ENTRIES_UNSETTLED_MAX: usize = 32 << 10;
/// Chunks of large files that a receiver wants at once (descriptors, not buffers).
pub const CHUNKS_WANTED_MAX: usize = 1024;
/// Files in chunks that a receiver has begun and that have no outcome, at most. It bounds
/// descriptors at both ends, not speed (256 chunks fill any path we know).
pub const FILES_BEGUN_MAX: usize = 256;
/// Sendings of one chunk or bundle before its file fails with a mismatch.
pub const ATTEMPTS_MAX: u32 = 3;

/// Files up to this size travel in bundles. Guessed, not measured: the size from which on one
/// request for each file pays.
pub const BUNDLED_FILE_BYTES_MAX: u64 = 256 << 10;
/// Bytes above which a bundle takes no second file. Its files can be staged only when all of it
/// arrived, which takes megabytes many round trips on one lane at the start of a long path. From 64
/// KiB to 256 KiB, this was best.
pub const BUNDLE_BYTES_MAX: u64 = 128 << 10;
/// Most files in one bundle.
pub const BUNDLE_FILES_MAX: usize = 1024;

/// Most lanes of one session at a time.
pub const LANES_MAX: u32 = 128;
/// Most lanes that one session ever has, lost ones and those in their place together.
pub const LANES_EVER_MAX: u32 = 32 * LANES_MAX;
/// Deadline for everything before a peer is authenticated, in seconds.
pub const HANDSHAKE_SECONDS_MAX: u64 = 10;

/// Seconds that a daemon takes at most until an earlier session of the same run has let go of what
/// the new one needs. A second and a half is usual; a disk that is slow takes longer.
pub const TAKE_OVER_SECONDS_MAX: u64 = 30;

/// Seconds that a destination takes at most for a claim that it is shown: until an older session of
/// the shard has ended, and the claim is kept under its locks. A mover beats every 15 s meanwhile,
/// and its lease holds for 60 s.
pub const CLAIM_SECONDS_MAX: u64 = 30;
/// Seconds without data after which a connection is probed: routers forget idle flows after
/// minutes.
pub const KEEPALIVE_IDLE_SECONDS: u64 = 15;
/// ... seconds between the probes, ...
pub const KEEPALIVE_INTERVAL_SECONDS: u64 = 5;
/// ... and probes without an answer after which it is lost: half a minute in all, as long as a peer
/// may be silent.
pub const KEEPALIVE_PROBES: u32 = 3;
/// Seconds after which a control connection is lost whose data the other host has not acknowledged.
pub const UNACKNOWLEDGED_SECONDS_MAX: u64 = 30;
/// Seconds after which a lane is given up that makes no progress while others do, unless the user
/// says otherwise.
pub const LANE_STALL_SECONDS: u64 = 20;
/// Bytes of a TCP segment that passes wherever IPv6 does, in the way TCP announces them: 1280 that
/// every link carries, less 60 of headers.
pub const SEGMENT_BYTES_SAFE: u32 = 1220;
/// Most bytes that a lane is tried with before it joins: a packet can have no more.
pub const TRIAL_BYTES_MAX: u32 = 64 << 10;
/// Bytes of the smallest datagram with which the two ends of a UDP lane reckon: 1280 that every
/// link carries, less 48 of headers.
pub const UDP_DATAGRAM_BYTES_SAFE: u16 = 1232;
/// Bytes of the largest datagram that IPv4 knows: 65,535 less 28 of headers.
pub const UDP_DATAGRAM_BYTES_MAX: u16 = 65_507;
/// The fewest payload bytes that a piece of a unit has over UDP, but for a unit's last piece: so
/// the largest unit has at most 58,255 pieces, and the last number of a u16 is free.
pub const UDP_PIECE_BYTES_MIN: u16 = 1152;
/// Units of a UDP lane between the first that is not whole and the last that may be begun: 1 GiB of
/// the smallest chunks that users may choose, and some 300 bytes of state for each.
pub const UDP_UNITS_OPEN_MAX: u32 = 16_384;
/// Packets of one direction of a UDP lane, after which it ends: numbers are never used twice, and
/// 2^48 packets are 400 PB.
pub const UDP_PACKETS_MAX: u64 = 1 << 48;
/// Lanes over UDP that may be asked for before their session is agreed on.
pub const UDP_LANES_EARLY_MAX: u32 = 4;
/// Seconds for which a lane id that was named over control is good.
pub const LANE_JOIN_SECONDS_MAX: u64 = 10;
/// The round trip from which on a path is long, in milliseconds.
pub const LONG_PATH_MILLISECONDS: u64 = 5;
/// Longest name of a congestion control: the kernel's TCP_CA_NAME_MAX less its NUL.
pub const CONGESTION_NAME_BYTES_MAX: usize = 15;
/// Most bytes of text in a peer's error message; the rest is cut.
pub const PEER_TEXT_BYTES_MAX: usize = 1024;
/// Filter patterns that one request may carry.
pub const FILTERS_MAX: usize = 1024;
/// Sources in one message of a pull's request.
pub const SOURCES_MAX: usize = 1024;
/// Bytes of the sources and names of one request, with the cost of holding each source: ten million
/// names of a hundred bytes. A daemon takes as much of that as fits its own memory.
pub const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// The cost of holding one source beside the bytes of its path, in bytes. Guessed from its types:
/// 20,000 sources with short names took a daemon 17 MB, which is what is claimed for them.
pub const SOURCE_COST_BYTES: u64 = 768;
/// Longest measurement between memories, in seconds: the acceptor ends it then, whatever the
/// initiator asked for.
pub const MEASURE_SECONDS_MAX: u64 = 3600;

const _: () = assert!(CHUNK_LOG2_MIN >= 10, "a chunk must be a whole BLAKE3 subtree");
const _: () = assert!(
    PAGE_BYTES_MAX + PATH_BYTES_MAX + LINK_BYTES_MAX + 1024 <= MESSAGE_BYTES_MAX,
    "one entry over a full page must still fit a message"
);
const _: () = assert!(
    PAGE_EXTRAS_COST + EXTRAS_COST_MAX <= MESSAGE_BYTES_MAX,
    "the extras of a page that is nearly full and of one entry more must fit a message"
);
const _: () =
    assert!(BUNDLED_FILE_BYTES_MAX < CHUNK_BYTES_USER_MIN, "a bundled file must fit a bundle of the smallest chunk");
const _: () = assert!(
    MEMORY_BYTES_DEFAULT >= MEMORY_CHUNKS_MIN * CHUNK_BYTES_USER_MAX,
    "the default must hold enough of the largest chunks"
);
const _: () = assert!(MEASURE_SECONDS_MAX * 1000 <= u32::MAX as u64, "it is told in milliseconds");
const _: () = assert!(BUNDLE_BYTES_MAX < CHUNK_BYTES_USER_MIN, "a bundle must fit the smallest buffer");
const _: () = assert!(LANES_EVER_MAX > LANES_MAX, "a lost lane must be replaced");
const _: () = assert!(
    PAGE_BYTES_MAX > PATH_BYTES_MAX && PAGE_BYTES_MAX + 16 <= MESSAGE_BYTES_MAX,
    "a part of a list must hold a name, and fit a message"
);
const _: () = assert!(PAGE_ENTRIES_MAX * 2 <= ENTRIES_UNSETTLED_MAX, "pages must flow while entries settle");
const _: () = assert!(
    (1 << CHUNK_LOG2_MAX) / UDP_PIECE_BYTES_MIN as u64 + 1 < u16::MAX as u64,
    "the pieces of the largest unit must be numbered, and one number be left"
);
