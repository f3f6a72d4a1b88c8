//! Holds the first messages of a session: hello, welcome or refusal, and which lanes may join.
//!
//! In: a fresh control channel. Out: an agreed session, or a [`Fault`] for the caller. It knows no
//! payload and no disks.

mod shown;

use std::time::Duration;

use longhaul_core::limits::{
    BUNDLED_FILE_BYTES_MAX, CLAIM_SECONDS_MAX, HANDSHAKE_SECONDS_MAX, LANES_MAX, TAKE_OVER_SECONDS_MAX,
};
use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, Preserve, Role, hint};
use longhaul_disk::{Shape, SyncMethod};
use longhaul_net::Protection;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    CAP_EXACT_CHUNKS, CAP_IN_CHUNKS, CAP_KNOWS_SHARED, CAP_LEAVES_QUIC, CAP_REMOVAL, CAP_REPLACED,
    CAP_SOURCE_DIRECTORY, CAP_SYNCS_EACH, CAP_SYNCS_FILE_SYSTEM, CAP_TAKES_STREAMS, CAP_TAKES_UNASKED,
    CAP_UDP_BESIDE_TCP, CAP_UDP_LANES, Flow, GrantedLanes, Hello, Protect, Request, Transfer, Transport, VERSION,
    Welcome, extras_refused, extras_wanted, share_of_hello, share_said, with_extras_of_hello,
};

use super::channel::{ReadHalf, WriteHalf, read_message, write_message};
pub(crate) use shown::Shown;
use shown::hear_shown;

/// A hello for `request` in the versions that this build speaks, with the bits of a receiver that
/// takes `units`.
pub(crate) fn hello(request: Request, units: Units) -> Message {
    let mut request = request;
    let exact = |flow: &Flow| if flow.exact_chunks { CAP_EXACT_CHUNKS } else { 0 };
    let knows = |flow: &Flow| if flow.knows_shared { CAP_KNOWS_SHARED } else { 0 };
    let asked = match &mut request {
        Request::Transfer(transfer) => {
            let udp = ask_for_udp(transfer);
            let flow = &transfer.flow;
            let leaves = if flow.leaves_quic { CAP_LEAVES_QUIC } else { 0 };
            // Only who sends hears it.
            let hears = flow.tells_replaced && transfer.role == Role::Sender;
            let replaced = if hears { CAP_REPLACED } else { 0 };
            let udp = udp | udp_beside_tcp_caps(flow) | leaves | replaced;
            let unasked = if flow.takes_unasked { CAP_TAKES_UNASKED } else { 0 };
            extras_wanted(transfer.preserve) | exact(flow) | share_said(flow.share) | knows(flow) | udp | unasked
        }
        // It knows the right of that name.
        Request::Roots => CAP_REMOVAL,
        _ => 0,
    };
    let caps = asked | if units == Units::Chunks { CAP_IN_CHUNKS } else { 0 };
    Message::Hello(Hello { version_min: VERSION, version_max: VERSION, caps, request })
}

/// Refuses an answer that agrees to less metadata, or to fewer checksums, than were asked for: an
/// older build knows neither bit.
pub(crate) fn need_metadata(preserve: Preserve, welcome: &Welcome) -> Result<(), Fault> {
    let refused = extras_refused(preserve, welcome.caps);
    let (kinds, sums) = (refused.agreed_names(), refused.sums);
    if !kinds.is_empty() {
        let what = format!("the other side does not know how to carry {}", kinds.join(", "));
        return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, what).hint(hint::Program::UpdateOrCarryLess));
    }
    if !sums.is_empty() {
        let what = format!("the other side does not know how to compute the checksums that are wanted: {sums}");
        // The files could be moved: what was asked for is too much.
        return Err(Fault::new(FaultCode::Usage, Blame::Peer, what).hint(hint::Program::UpdateOrSumLess));
    }
    Ok(())
}

/// Has a transfer name TCP if it is for lanes over UDP, and gives the bit that says so: a build
/// that does not know such lanes could not read their name.
fn ask_for_udp(transfer: &mut Transfer) -> u64 {
    if transfer.flow.transport != Transport::Udp {
        return 0;
    }
    transfer.flow.transport = Transport::Tcp;
    CAP_UDP_LANES
}

/// The units that a receiver takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Units {
    /// Chunks, and bundles of small files.
    #[default]
    Any,
    /// Chunks only: every file with bytes is asked for in its turn.
    Chunks,
}

impl Units {
    /// The length in bytes up to which files travel in bundles, with chunks of `chunk`.
    pub(crate) fn bundled_max(self, chunk: ChunkSize) -> u64 {
        match self {
            Units::Any => BUNDLED_FILE_BYTES_MAX.min(chunk.bytes() / 4),
            Units::Chunks => 0,
        }
    }
}

/// The next message, within the handshake's deadline. A refusal becomes the error that it carries.
pub(crate) async fn answer(reader: &mut ReadHalf) -> Result<Message, Fault> {
    answer_within(reader, HANDSHAKE).await
}

/// The same within another time.
pub(crate) async fn answer_within(reader: &mut ReadHalf, patience: Duration) -> Result<Message, Fault> {
    match tokio::time::timeout(patience, read_message(reader)).await {
        Err(_) => Err(unanswered()),
        Ok(Ok(Some(Message::Refuse(fault)))) => Err(fault.seen_from_afar()),
        Ok(Ok(Some(message))) => Ok(message),
        Ok(Ok(None)) => Err(Fault::new(FaultCode::Lost, Blame::Peer, "the other side closed the connection")
            .hint(hint::Daemon::SeeItsLog)),
        Ok(Err(fault)) => Err(fault),
    }
}

/// Asks for a transfer by a hello, with what goes before it and the parts of the request that
/// follow it, and waits at most the given time for the answer. Returns the agreement and the lanes
/// to dial.
pub(crate) async fn ask(
    reader: &mut ReadHalf,
    writer: &mut WriteHalf,
    said: impl Iterator<Item = Message>,
    patience: Duration,
) -> Result<(Welcome, GrantedLanes), Fault> {
    let Message::Welcome(welcome) = heard_while_telling(reader, tell(writer, said), patience).await? else {
        return Err(unexpected());
    };
    if welcome.version != VERSION {
        return Err(Fault::protocol(format_args!(
            "the other side chose version {}, which was not offered",
            welcome.version
        )));
    }
    let Message::Lanes(lanes) = answer(reader).await? else { return Err(unexpected()) };
    if lanes.count == 0 || lanes.count > LANES_MAX || lanes.first.0.checked_add(lanes.count).is_none() {
        return Err(Fault::protocol(format_args!("{} lanes granted", lanes.count)));
    }
    Ok((welcome, lanes))
}

/// Says all of a request, and waits at most the given time after it for whatever is answered.
pub(crate) async fn answer_to(
    reader: &mut ReadHalf,
    writer: &mut WriteHalf,
    said: impl Iterator<Item = Message>,
    patience: Duration,
) -> Result<Message, Fault> {
    heard_while_telling(reader, tell(writer, said), patience).await
}

/// Sends the request part by part, as fast as the other side takes it in.
async fn tell(writer: &mut WriteHalf, said: impl Iterator<Item = Message>) -> Result<(), Fault> {
    for part in said {
        if tokio::time::timeout(PART_TAKEN_MAX, write_message(writer, &part)).await.is_err() {
            let why = "the other side takes in nothing more of the list of what to send";
            return Err(Fault::new(FaultCode::TimedOut, Blame::Peer, why).hint(hint::Again::Now));
        }
    }
    Ok(())
}

/// The answer to the request that `telling` sends, for which it waits at most the given time after
/// the last part. It may come before that: after an agreement the rest is said all the same.
async fn heard_while_telling(
    reader: &mut ReadHalf,
    telling: impl Future<Output = Result<(), Fault>>,
    patience: Duration,
) -> Result<Message, Fault> {
    let (mut hearing, mut telling) = (std::pin::pin!(answer_within(reader, Duration::MAX)), std::pin::pin!(telling));
    let told = tokio::select! {
        biased;
        heard = &mut hearing => {
            if matches!(heard, Ok(Message::Welcome(_))) {
                // A message that broke off would have its end taken from the next one.
                telling.await?;
            }
            return heard;
        }
        told = &mut telling => told,
    };
    let patience = if told.is_ok() { patience } else { REFUSAL_OVERTAKES };
    match (tokio::time::timeout(patience, hearing).await, told) {
        (Ok(heard), Ok(())) | (Ok(heard @ Err(_)), _) => heard,
        (_, Err(fault)) => Err(fault),
        (Err(_), Ok(())) => Err(unanswered()),
    }
}

/// The beginning of a conversation, as an acceptor hears it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeardRequest {
    /// The request, with the extras that the bits of the hello ask for.
    pub(crate) request: Request,
    /// The units that its maker takes if it receives.
    pub(crate) units: Units,
    /// The things that it shows before the hello and behind it.
    pub(crate) shown: Shown,
}

/// Reads a hello, and what is shown before it and behind it.
pub(crate) async fn hear(reader: &mut ReadHalf) -> Result<HeardRequest, Fault> {
    let (grant, said) = match answer(reader).await? {
        Message::ShownGrant(grant) => (Some(grant), answer(reader).await?),
        said => (None, said),
    };
    let Message::Hello(hello) = said else { return Err(unexpected()) };
    if hello.version_min > VERSION || hello.version_max < VERSION {
        return Err(Fault::new(
            FaultCode::Unsupported,
            Blame::Peer,
            format_args!(
                "protocol versions {} to {} are not spoken here, only {VERSION}",
                hello.version_min, hello.version_max
            ),
        )
        .hint(hint::Program::ShareVersion));
    }
    let units = if hello.caps & CAP_IN_CHUNKS != 0 { Units::Chunks } else { Units::Any };
    let mut request = hello.request;
    if let Request::Transfer(transfer) = &mut request {
        transfer.preserve = with_extras_of_hello(transfer.preserve, hello.caps);
        transfer.flow.share = share_of_hello(hello.caps);
        transfer.flow.knows_shared = hello.caps & CAP_KNOWS_SHARED != 0;
        transfer.flow.udp_beside_tcp = hello.caps & CAP_UDP_BESIDE_TCP != 0;
        transfer.flow.exact_chunks = hello.caps & CAP_EXACT_CHUNKS != 0;
        transfer.flow.takes_unasked = hello.caps & CAP_TAKES_UNASKED != 0;
        transfer.flow.leaves_quic = hello.caps & CAP_LEAVES_QUIC != 0;
        transfer.flow.tells_replaced = hello.caps & CAP_REPLACED != 0;
        if hello.caps & CAP_UDP_LANES != 0 {
            transfer.flow.transport = Transport::Udp;
        }
    }
    let shown = Shown { grant, ..hear_shown(reader, hello.caps, &request).await? };
    Ok(HeardRequest { request, units, shown })
}

/// The wire's word for a protection.
pub(crate) fn to_wire(protection: Protection) -> Protect {
    match protection {
        Protection::Private => Protect::Private,
        Protection::Safe => Protect::Safe,
    }
}

/// The protection that the wire's word stands for.
pub(crate) fn from_wire(protect: Protect) -> Protection {
    match protect {
        Protect::Private => Protection::Private,
        Protect::Safe => Protection::Safe,
    }
}

fn unanswered() -> Fault {
    Fault::new(FaultCode::TimedOut, Blame::Peer, "the other side did not answer in time").hint(hint::Again::Now)
}

fn unexpected() -> Fault {
    Fault::protocol("the handshake went another way than it goes")
}

/// The time within which a daemon answers that has so much more to do before.
pub(crate) fn patience(more: [Option<Duration>; 2]) -> Duration {
    HANDSHAKE + more.into_iter().flatten().sum::<Duration>()
}

/// The deadline of every message before a session.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
/// A daemon takes so much longer where it first has to end the run's own earlier session, ...
pub(crate) const TAKE_OVER: Duration = Duration::from_secs(TAKE_OVER_SECONDS_MAX);
/// ... and so much longer where it has to keep a claim, and may have to end the session of an older
/// one: it does one after the other.
pub(crate) const CLAIM_KEPT: Duration = Duration::from_secs(CLAIM_SECONDS_MAX);

/// A part of a request that is not taken in for this long is given up.
const PART_TAKEN_MAX: Duration = Duration::from_secs(30);
/// How long a refusal is waited for from a side that takes no more of a request.
const REFUSAL_OVERTAKES: Duration = Duration::from_secs(5);

/// The bit of a `Welcome` that grants lanes over `transport`.
pub(crate) fn transport_caps(transport: Transport) -> u64 {
    if transport == Transport::Udp { CAP_UDP_LANES } else { 0 }
}

/// The bit that lanes over UDP and TCP may stand side by side.
pub(crate) fn udp_beside_tcp_caps(flow: &Flow) -> u64 {
    if flow.udp_beside_tcp { CAP_UDP_BESIDE_TCP } else { 0 }
}

/// Refuses lanes over another transport than UDP, if that was asked for.
pub(crate) fn need_udp(asked: Transport, welcome: &Welcome, granted: &GrantedLanes) -> Result<(), Fault> {
    let is_granted = welcome.caps & CAP_UDP_LANES != 0 && granted.transport == Transport::Udp;
    if asked != Transport::Udp || is_granted {
        return Ok(());
    }
    let why = "the other side does not know lanes over UDP";
    Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Network::UpdateOrUseQuic))
}

/// The bits of a receiver's `Welcome`: that it takes streams, and how it makes small files and
/// names durable.
pub(crate) fn receiver_caps(method: Option<SyncMethod>) -> u64 {
    CAP_TAKES_STREAMS
        | match method {
            Some(SyncMethod::FileSystem) => CAP_SYNCS_FILE_SYSTEM,
            Some(SyncMethod::Each) => CAP_SYNCS_EACH,
            None => 0,
        }
}

/// Whether the receiver takes files whose length nobody knows.
pub(crate) fn takes_streams(caps: u64) -> bool {
    caps & CAP_TAKES_STREAMS != 0
}

/// The bits of a sender's `Welcome` that describe its sources.
pub(crate) fn source_caps(shape: &Shape) -> u64 {
    if matches!(shape, Shape::Directory) { CAP_SOURCE_DIRECTORY } else { 0 }
}

/// Whether the sender has said that its one source is a directory.
pub(crate) fn source_is_directory(caps: u64) -> bool {
    caps & CAP_SOURCE_DIRECTORY != 0
}

/// How the receiver makes small files and names durable, as its bits say. `None` if they say
/// nothing.
pub(crate) fn sync_said(caps: u64) -> Option<SyncMethod> {
    match caps {
        caps if caps & CAP_SYNCS_EACH != 0 => Some(SyncMethod::Each),
        caps if caps & CAP_SYNCS_FILE_SYSTEM != 0 => Some(SyncMethod::FileSystem),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use longhaul_core::{Algorithm, Algorithms, PathShare};
    use longhaul_proto::wire::message::{CAP_ADLER32, CAP_CRC32C, Far};

    /// A request by a sender whose data may flow so.
    pub(crate) fn transfer(flow: Flow) -> Transfer {
        Transfer {
            role: Role::Sender,
            initiator: true,
            protect: Protect::Private,
            chunk: ChunkSize::DEFAULT,
            chunk_max: ChunkSize::DEFAULT,
            lanes: 1,
            preserve: Preserve::default(),
            dry_run: false,
            set: 0,
            far: Far::Memory { bytes: 1, millis: 0 },
            run: [0; 16],
            read_back: false,
            flow,
            digests: false,
        }
    }

    /// An agreement with these bits.
    pub(crate) fn welcome(caps: u64) -> Welcome {
        let chunk = ChunkSize::DEFAULT;
        Welcome {
            version: VERSION,
            caps,
            session: [0; 16],
            chunk,
            chunk_max: chunk,
            bundled_max: 0,
            lanes_max: 1,
            rate: 0,
            memory_bytes: 0,
        }
    }

    #[tokio::test]
    async fn an_agreement_that_comes_before_all_was_said_breaks_no_message_off() {
        let (near, far) = tokio::io::duplex(4096);
        let (mut reader, mut far): (ReadHalf, WriteHalf) = (Box::new(near), Box::new(far));
        let welcome = Message::Welcome(welcome(0));
        write_message(&mut far, &welcome).await.expect("said");
        let mut has_said = false;
        let telling = async {
            for _ in 0..9 {
                tokio::task::yield_now().await;
            }
            has_said = true;
            Ok(())
        };
        let heard = heard_while_telling(&mut reader, telling, Duration::from_secs(60)).await;
        assert_eq!(heard.expect("an agreement"), welcome);
        assert!(has_said);
    }

    #[test]
    fn a_build_that_does_not_know_a_checksum_is_refused_and_told_what_to_do() {
        let (adler32, crc32c) = (Algorithm::Adler32, Algorithm::Crc32c);
        let preserve = Preserve { sums: Algorithms::NONE.with(adler32).with(crc32c), ..Preserve::default() };
        let welcome = |caps| Welcome {
            version: VERSION,
            caps,
            session: [0; 16],
            chunk: ChunkSize::DEFAULT,
            chunk_max: ChunkSize::DEFAULT,
            bundled_max: 0,
            lanes_max: 1,
            rate: 0,
            memory_bytes: 0,
        };
        for (caps, unknown) in [(0, "adler32 crc32c"), (CAP_ADLER32, "crc32c"), (CAP_CRC32C, "adler32")] {
            let fault = need_metadata(preserve, &welcome(caps)).expect_err("an older build");
            assert_eq!(fault.code, FaultCode::Usage);
            assert!(fault.message.as_str().ends_with(unknown), "{}", fault.message);
            assert_eq!(fault.hint, Some(hint::Program::UpdateOrSumLess.into()));
        }
        assert_eq!(need_metadata(preserve, &welcome(CAP_ADLER32 | CAP_CRC32C)), Ok(()));
        // A build that knew these two alone.
        let preserve = Preserve { sums: preserve.sums.with(Algorithm::Md5).with(Algorithm::Sha256), ..preserve };
        let fault = need_metadata(preserve, &welcome(CAP_ADLER32 | CAP_CRC32C)).expect_err("an older build");
        assert!(fault.message.as_str().ends_with("sha256 md5"), "{}", fault.message);
        let all = welcome(longhaul_proto::wire::message::extras_carried(preserve));
        assert_eq!(need_metadata(preserve, &all), Ok(()));
    }

    #[test]
    fn an_older_build_is_asked_for_nothing_that_it_cannot_read_and_its_answer_is_refused() {
        let mut transfer = transfer(Flow { transport: Transport::Udp, ..Flow::default() });
        assert_eq!((ask_for_udp(&mut transfer), transfer.flow.transport), (CAP_UDP_LANES, Transport::Tcp));
        let answers =
            |caps, transport| (welcome(caps), GrantedLanes { first: longhaul_core::LaneId(0), count: 1, transport });
        for (caps, granted, is_good) in [
            (CAP_UDP_LANES, Transport::Udp, true),
            (CAP_UDP_LANES, Transport::Tcp, false),
            (0, Transport::Tcp, false),
            (0, Transport::Udp, false),
        ] {
            let (welcome, lanes) = answers(caps, granted);
            let judged = need_udp(Transport::Udp, &welcome, &lanes).map_err(|fault| fault.code);
            assert_eq!(judged, if is_good { Ok(()) } else { Err(FaultCode::Unsupported) }, "{caps} {granted}");
            assert!(need_udp(Transport::Tcp, &welcome, &lanes).is_ok());
        }
    }

    #[tokio::test]
    async fn a_hello_says_the_share_and_whether_a_user_gave_the_chunk_size_and_whether_lanes_are_to_go_over_udp() {
        let (tcp, quic, udp) = (Transport::Tcp, Transport::Quic, Transport::Udp);
        for (exact_chunks, share, transport) in [
            (false, PathShare::Fair, tcp),
            (true, PathShare::Polite, quic),
            (true, PathShare::All, udp),
            (false, PathShare::Fair, udp),
        ] {
            let (near, far) = tokio::io::duplex(4096);
            let (mut reader, mut far): (ReadHalf, WriteHalf) = (Box::new(near), Box::new(far));
            let knows_shared = exact_chunks;
            let (udp_beside_tcp, takes_unasked) = (exact_chunks, !exact_chunks);
            let leaves_quic = transport == udp;
            let bits = Flow { exact_chunks, knows_shared, udp_beside_tcp, takes_unasked, ..Flow::default() };
            let transfer = transfer(Flow { share, transport, leaves_quic, ..bits });
            let said = Request::Transfer(Box::new(transfer));
            write_message(&mut far, &hello(said.clone(), Units::Any)).await.expect("said");
            let heard = HeardRequest { request: said, units: Units::Any, shown: Shown::default() };
            assert_eq!(hear(&mut reader).await.expect("a hello"), heard);
        }
    }
}
