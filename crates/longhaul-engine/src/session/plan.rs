//! The plan of a session: everything that both sides agreed and this side keeps to, as one value.
//!
//! In: the request and the answer that agree to a session, and the limits of this side. Out: the
//! rules of its lanes, the configuration of its machine, and the parts of its loop. Client, daemon,
//! local copy and measurement build their sessions from it and from nothing else, so that a
//! negotiated option is a field of the message, a field here, and the place where it acts. It opens
//! nothing and knows no connection.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::{CHUNK_BYTES_CUT_MIN, CHUNK_BYTES_EVEN_MIN, CHUNKS_WANTED_MAX};
use longhaul_core::{AccountMap, Algorithms, ChunkSize, IfExists, PathShare, Preserve, Role};
use longhaul_disk::SourceTree;
use longhaul_net::{Congestion, LaneMemory, TransportFacts};
use longhaul_proto::receiver::{Cut, Landing, Policy, ReceiverConfig, SkippedDigests, SyncGroup, WantOrder};
use longhaul_proto::tuning::transport::Rival;
use longhaul_proto::wire::bundle::bundled_max;
use longhaul_proto::wire::message::{CAP_KNOWS_SHARED, CAP_UDP_BESIDE_TCP, Flow, Transfer, Transport, Welcome};

use super::allowed::Allowed;
use super::course::ScanWish;
use super::dataset::rule_within;
use super::destination::{DestinationOptions, Keeping};
use super::opened::Destination;
use super::receiver::Receiving;
use super::sender::Sending;
use super::unasked::FirstFlight;
use crate::api::{Settings, Verify};
use crate::budget::{self, SessionBuffers};
use crate::lanes::replace::Replacement;
use crate::lanes::rules::{LaneRules, TransportChanges};
use crate::lanes::tune::TuningRules;
use crate::lanes::udp::path::UdpPath;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::lanes::worker::pacer::LaneRates;

/// One side's plan of a session.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The role of this side.
    pub(crate) role: Role,
    /// The chunk sizes and the longest file that travels in a bundle.
    sizes: Sizes,
    /// The metadata that is carried over.
    preserve: Preserve,
    /// Lanes, and how fast they may be.
    lanes: LanePlan,
    /// Rules of a receiver.
    receiving: ReceivePlan,
    /// The flight in which the first page of a sender shall fit, unless that is out already.
    flight: FirstFlight,
    /// Further checksums that a sender computes too, to compare them with the receiver's.
    compared: Algorithms,
    /// Whether the receiver tells the sender which names it replaced.
    tells_replaced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// The chunk size of files that are not continued.
    chunk: ChunkSize,
    /// The largest chunk that the buffers of both sides hold.
    chunk_max: ChunkSize,
    /// Files up to this length travel in bundles.
    bundled_max: u64,
}

/// The lanes of one side: how many, over which transport, how fast.
#[derive(Clone, Debug)]
pub(crate) struct LanePlan {
    /// How many there are.
    pub(crate) numbers: LaneNumbers,
    /// The transport of the first lanes.
    pub(crate) transport: Transport,
    /// How it may change.
    pub(crate) changes: TransportChanges,
    /// Bytes that the windows of all lanes together may take in this process.
    pub(crate) window_bytes: u64,
    /// Whether a sender chooses among congestion controls, as nobody asked for one.
    pub(crate) choose_congestion: bool,
    /// The congestion control that an earlier run over this path chose. `None` if none is known.
    pub(crate) known_congestion: Option<String>,
    /// The transports that a sender may try beside TCP, the one to try first in front.
    pub(crate) rivals: Vec<Rival>,
    /// Whether a sender looks for the best number of lanes.
    pub(crate) tunes: bool,
    /// The rates that all lanes keep together.
    pub(crate) rates: LaneRates,
    /// The share of the path that a sender takes, and whether the other side knows of shares.
    pub(crate) share: (PathShare, bool),
    /// A lane that stands still for this long while others move is given up.
    pub(crate) stall_after: Duration,
    /// Whether files are cut, as a round trip takes long and nobody asked for a chunk size.
    pub(crate) cuts: bool,
}

/// How many lanes a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneNumbers {
    /// Lanes that it begins with.
    pub(crate) first: u32,
    /// Lanes that stay when the network is not the limit.
    pub(crate) least: u32,
    /// Lanes that stay of these once the path is known, if it needs no more.
    pub(crate) usual: u32,
    /// Lanes that it may come to have.
    pub(crate) most: u32,
}

/// The rules of a receiver.
#[derive(Clone, Debug)]
pub(crate) struct ReceivePlan {
    /// Whether names that stand may be replaced, and whether their metadata may be changed.
    pub(crate) policy: Policy,
    /// Whether the run only reports its decisions and writes nothing.
    pub(crate) dry_run: bool,
    /// The bytes or time after which written data is made durable.
    pub(crate) group: SyncGroup,
    /// Whether written files are read back from the medium before they are called durable.
    pub(crate) read_back: bool,
    /// The sides that learn the roots of skipped files.
    pub(crate) digests: SkippedDigests,
    /// How this side maps accounts.
    pub(crate) accounts: AccountMap,
}

impl Plan {
    /// The plan of the side `role` of a session that `transfer` asked for and `welcome` granted.
    /// `lanes` and `receiving` are this side's own share of it.
    pub(crate) fn agreed(
        role: Role,
        transfer: &Transfer,
        welcome: &Welcome,
        lanes: LanePlan,
        receiving: ReceivePlan,
    ) -> Plan {
        Plan {
            role,
            sizes: Sizes::of(welcome),
            preserve: transfer.preserve,
            lanes,
            receiving,
            flight: FirstFlight::UNBOUNDED,
            compared: Algorithms::NONE,
            tells_replaced: transfer.flow.tells_replaced,
        }
    }

    /// The same plan, of a sender that computes these checksums too, to compare them with those
    /// that the receiver says.
    pub(crate) fn comparing(self, compared: Algorithms) -> Plan {
        Plan { compared, ..self }
    }

    /// The same plan, of a sender whose first page shall fit `flight`.
    pub(crate) fn beginning_in(self, flight: FirstFlight) -> Plan {
        Plan { flight, ..self }
    }

    /// The plan of one half of a copy within this process, over `lanes` pairs of sockets.
    pub(crate) fn within_process(role: Role, settings: &Settings, welcome: &Welcome, lanes: u32) -> Plan {
        // The sending half maps accounts.
        let accounts = AccountMap::default();
        let receiving = ReceivePlan { accounts, ..ReceivePlan::of_settings(settings, SkippedDigests::Told) };
        let lanes = LanePlan {
            numbers: LaneNumbers { first: lanes, least: lanes, usual: lanes, most: lanes },
            transport: Transport::Tcp,
            changes: TransportChanges { is_kept: true, ..TransportChanges::default() },
            window_bytes: 0,
            choose_congestion: false,
            known_congestion: None,
            rivals: Vec::new(),
            tunes: false,
            rates: LaneRates::of(settings.rate, 0),
            share: (PathShare::All, true),
            stall_after: settings.stall_after,
            cuts: false,
        };
        Plan {
            role,
            sizes: Sizes::of(welcome),
            preserve: settings.metadata.preserve,
            lanes,
            receiving,
            flight: FirstFlight::UNBOUNDED,
            // The other half is no stranger.
            compared: Algorithms::NONE,
            tells_replaced: true,
        }
    }

    /// The rules of this side's lanes; lost ones are replaced as `replacement` says.
    pub(crate) fn lane_rules(&self, replacement: Replacement) -> LaneRules {
        let lanes = &self.lanes;
        // It asks for no more lanes than it began with, so none of those would come back.
        let is_polite = lanes.share.0 == PathShare::Polite;
        let tuning = TuningRules {
            lanes: lanes.numbers.least,
            lanes_max: lanes.numbers.most,
            usual: if is_polite { lanes.numbers.least } else { lanes.numbers.usual },
            unit: self.sizes.chunk.bytes(),
            choose_congestion: lanes.choose_congestion,
            known_congestion: lanes.known_congestion.clone(),
            rivals: lanes.rivals.clone(),
        };
        LaneRules {
            role: self.role,
            target: lanes.numbers.first,
            lanes_max: lanes.numbers.most,
            transport: lanes.transport,
            changes: lanes.changes,
            windows: lanes.window_bytes,
            tuning: (self.role == Role::Sender && lanes.tunes).then_some(tuning),
            rates: lanes.rates,
            path: UdpPath::new(lanes.share.0),
            peer_knows_shared: lanes.share.1,
            stall_after: lanes.stall_after,
            replacement,
        }
    }

    /// The parts of a sender's loop that reads `wanted` of `tree` through `buffers`. `timed`: the
    /// source ends by the clock.
    pub(crate) fn sending(
        &self,
        tree: Arc<dyn SourceTree>,
        buffers: SessionBuffers,
        wanted: ScanWish,
        timed: bool,
    ) -> Sending {
        let SessionBuffers { slab, io } = buffers;
        let Sizes { chunk, chunk_max, bundled_max } = self.sizes;
        let (flight, compared, hears_replaced) = (self.flight, self.compared, self.tells_replaced);
        Sending {
            tree,
            slab,
            io,
            chunk,
            chunk_max,
            bundled_max,
            wanted,
            timed,
            flight,
            compared,
            hears_replaced,
            holes: HoleCosts::default(),
        }
    }

    /// The parts of a receiver's loop that writes to `destination` through `buffers`. Only entries
    /// that are `allowed` may come.
    pub(crate) fn receiving(&self, destination: Destination, buffers: SessionBuffers, allowed: Allowed) -> Receiving {
        let SessionBuffers { slab, io, .. } = buffers;
        let Destination {
            tree, landing, base, place, ledger, names_standing, stream, claim, expected, dataset, ..
        } = destination;
        let allowed = allowed.expecting(expected);
        let mut config = self.receiver_config(landing);
        if let Some(dataset) = &dataset {
            // Nobody has seen what is staged, and the list needs the roots of all.
            let if_exists = rule_within(config.policy.if_exists);
            config.policy = Policy { if_exists, may_modify: true };
            if dataset.is_listed() && config.digests == SkippedDigests::Unwanted {
                config.digests = SkippedDigests::Kept;
            }
        }
        if let Some(output) = &stream {
            let chunks_max = self.chunks_kept(slab.slots());
            output.sized(chunks_max, self.sizes.chunk.bytes());
            config.order = WantOrder::Sequence { chunks_max };
        }
        let targets = tree.loads().len();
        if targets > 1 {
            config.order = WantOrder::Spread { files_max: FILES_A_TARGET * targets, chunks_max: slab.slots() };
        }
        // Under any other policy, length and time do not say that a file is the source's.
        let names_standing = names_standing && config.policy.if_exists == IfExists::SkipSame;
        let options = DestinationOptions { names_standing, ..destination_options(&config, slab.slot_bytes()) };
        let (accounts, keeping) = (self.receiving.accounts.clone(), Keeping { ledger, claim, dataset });
        let tells_replaced = self.tells_replaced;
        Receiving { tree, slab, io, config, options, allowed, base, place, keeping, stream, accounts, tells_replaced }
    }

    /// The chunks that a stream keeps at most, out of `slots` buffers: each lane has one besides
    /// them, so that the chunk whose turn it is always finds one.
    fn chunks_kept(&self, slots: usize) -> usize {
        let slots = match TransportFacts::of(self.lanes.transport).memory {
            LaneMemory::Kernel | LaneMemory::Slots => slots,
            LaneMemory::Window { .. } => budget::beside_windows(slots),
        };
        slots.saturating_sub(self.lanes.numbers.most as usize).clamp(1, CHUNKS_WANTED_MAX)
    }

    fn receiver_config(&self, landing: Landing) -> ReceiverConfig {
        let Sizes { chunk, chunk_max, bundled_max } = self.sizes;
        let ReceivePlan { policy, dry_run, group, read_back, digests, .. } = self.receiving.clone();
        ReceiverConfig {
            chunk,
            chunk_max,
            bundled_max,
            policy,
            landing,
            preserve: self.preserve,
            dry_run,
            group,
            read_back,
            digests,
            order: WantOrder::Any,
            cut: self.cut(),
        }
    }

    /// Into what files are cut.
    fn cut(&self) -> Option<Cut> {
        let chunk_min = ChunkSize::from_bytes(CHUNK_BYTES_CUT_MIN).filter(|_| self.lanes.cuts)?;
        let even_min = ChunkSize::from_bytes(CHUNK_BYTES_EVEN_MIN)?;
        Some(Cut { lanes: self.lanes.numbers.first, chunk_min, even_min })
    }
}

/// The files that are begun at a time for each of several targets: one is written, one is being
/// committed, and two are there for a target that is faster than others.
const FILES_A_TARGET: usize = 4;

/// The options of the workers of a destination, whose buffers have `slot_bytes` each.
pub(crate) fn destination_options(config: &ReceiverConfig, slot_bytes: usize) -> DestinationOptions {
    // Chunks of an earlier session are read for further checksums.
    let sums = !config.preserve.sums.is_empty() && !config.dry_run;
    let reads = config.read_back || config.policy.if_exists == IfExists::Verify || sums;
    let digests = config.digests != SkippedDigests::Unwanted && !config.dry_run;
    DestinationOptions {
        chunk: config.chunk,
        bundled_max: bundled_max(config.chunk, config.bundled_max),
        preserve: config.preserve,
        dry_run: config.dry_run,
        may_replace: config.policy.may_replace(),
        fitted: match config.policy.if_exists {
            IfExists::SkipSame => config.preserve,
            IfExists::Replace | IfExists::Fail | IfExists::Verify => config.preserve.without_extras(),
        },
        names_standing: false,
        reserve: reads.then_some(slot_bytes),
        digests: digests.then_some(budget::digest_bytes(config.chunk_max) as usize),
    }
}

impl Sizes {
    fn of(welcome: &Welcome) -> Sizes {
        Sizes { chunk: welcome.chunk, chunk_max: welcome.chunk_max, bundled_max: welcome.bundled_max }
    }
}

impl LanePlan {
    /// The transports that a sender may try beside the one that `flow` begins with, where both
    /// sides know lanes over UDP beside TCP or not. Lanes over QUIC keep no manners, so only who
    /// takes all may find out if they carry more; and a process that serves a user has none.
    pub(crate) fn rivals(flow: &Flow, changes: TransportChanges) -> Vec<Rival> {
        let begins_over_tcp = flow.transport == Transport::Tcp;
        // What begins over ssh goes over TCP as soon as there is a way.
        if !begins_over_tcp && flow.transport != Transport::Ssh {
            return Vec::new();
        }
        let takes_quic = begins_over_tcp && flow.choose && flow.share == PathShare::All && !changes.is_kept;
        let udp = changes.mixes_udp.then_some(Rival::Udp);
        udp.into_iter().chain(takes_quic.then_some(Rival::Quic)).collect()
    }

    /// The lanes of a client.
    pub(crate) fn of_client(
        settings: &Settings,
        transfer: &Transfer,
        welcome: &Welcome,
        numbers: LaneNumbers,
        rtt: Duration,
    ) -> LanePlan {
        let mixes_udp = transfer.flow.udp_beside_tcp && welcome.caps & CAP_UDP_BESIDE_TCP != 0;
        let changes = TransportChanges { mixes_udp, ..TransportChanges::default() };
        LanePlan {
            numbers,
            transport: transfer.flow.transport,
            changes,
            window_bytes: budget::windows(settings.memory.get()),
            choose_congestion: settings.congestion == Congestion::Auto,
            known_congestion: None,
            rivals: LanePlan::rivals(&transfer.flow, changes),
            tunes: true,
            rates: LaneRates::of(settings.rate, welcome.rate),
            share: (settings.share, welcome.caps & CAP_KNOWS_SHARED != 0),
            stall_after: settings.stall_after,
            cuts: rtt >= budget::FAR && !transfer.flow.exact_chunks,
        }
    }
}

impl ReceivePlan {
    /// The rules of a receiver whose user gave these settings. `digests` names the sides that learn
    /// the roots of skipped files, where the user wants them.
    pub(crate) fn of_settings(settings: &Settings, digests: SkippedDigests) -> ReceivePlan {
        ReceivePlan {
            policy: Policy { if_exists: settings.if_exists, may_modify: true },
            dry_run: settings.dry_run,
            group: settings.sync,
            read_back: settings.verify == Verify::Disk,
            digests: if settings.digests { digests } else { SkippedDigests::Unwanted },
            accounts: settings.metadata.accounts.clone(),
        }
    }

    /// The rules of a daemon's receiver that was asked for by `transfer`, under the policy that the
    /// client's rights leave it and the daemon's own bound of what may be written and not synced.
    pub(crate) fn of_transfer(transfer: &Transfer, policy: Policy, group: SyncGroup) -> ReceivePlan {
        ReceivePlan {
            policy,
            dry_run: transfer.dry_run,
            group,
            read_back: transfer.read_back,
            digests: if transfer.digests { SkippedDigests::Told } else { SkippedDigests::Unwanted },
            accounts: AccountMap::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::handshake::tests::{transfer, welcome};

    fn agreed(share: PathShare, caps: u64) -> LanePlan {
        let flow = Flow { choose: true, share, udp_beside_tcp: true, ..Flow::default() };
        let transfer = Transfer { role: Role::Receiver, ..transfer(flow) };
        let settings = Settings { share, ..Settings::default() };
        let numbers = LaneNumbers { first: 1, least: 1, usual: 1, most: 1 };
        LanePlan::of_client(&settings, &transfer, &welcome(caps), numbers, Duration::ZERO)
    }

    #[test]
    fn udp_is_tried_where_both_sides_know_it_beside_tcp_and_quic_only_by_who_takes_all_of_a_path() {
        for share in PathShare::ALL {
            let quic: &[Rival] = if share == PathShare::All { &[Rival::Quic] } else { &[] };
            assert_eq!(agreed(share, 0).rivals, quic, "{share}");
            let both = [&[Rival::Udp], quic].concat();
            assert_eq!(agreed(share, CAP_UDP_BESIDE_TCP).rivals, both, "{share}");
        }
        let not_chosen = Flow { share: PathShare::All, ..Flow::default() };
        assert_eq!(LanePlan::rivals(&not_chosen, TransportChanges::default()), []);
        let mixed = TransportChanges { mixes_udp: true, ..TransportChanges::default() };
        let over_udp = Flow { transport: Transport::Udp, ..not_chosen };
        assert_eq!(LanePlan::rivals(&over_udp, mixed), []);
    }

    #[test]
    fn a_daemon_that_does_not_say_so_knows_of_no_shares() {
        for (caps, knows) in [(0, false), (CAP_KNOWS_SHARED, true)] {
            assert_eq!(agreed(PathShare::Polite, caps).share, (PathShare::Polite, knows));
        }
    }
}
