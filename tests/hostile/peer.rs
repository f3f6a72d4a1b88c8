//! Peers that speak the protocol but not its rules: a control connection with the messages that a
//! test chooses, and lanes with its payload.
//!
//! Built on the crates, not on the program. [`Speech`] is either end's control channel; [`Client`]
//! is one that dialled.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use longhaul_core::digest::{Hash32, digest_of};
use longhaul_core::filter::Rule;
use longhaul_core::{
    Attempt, BundleId, ChunkIndex, ChunkSize, DigestKind, Entry, EntryKind, FileId, FileOffset, IfExists, LaneId, Meta,
    Mtime, Preserve, RelPath, Role, Unit, Word,
};
use longhaul_net::{
    Control, GreetLimits, Greeted, Identity, LaneOptions, LaneStream, Listener, PeerCheck, PublicKey, ServerTls,
    dial_control, greet,
};
use longhaul_proto::Message;
use longhaul_proto::join::{Claim, JoinKey, Mac, Nonce, OPENING_BYTES, Opening, Prover};
use longhaul_proto::wire::bundle::Packer;
use longhaul_proto::wire::data::{Header, Piece};
use longhaul_proto::wire::frame::{LENGTH_BYTES, announced};
use longhaul_proto::wire::message::{
    Far, FarSource, Flow, Follows, GrantedLanes, Hello, Page, Placing, Protect, Request, Transfer, Transport, VERSION,
    Welcome,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// One end of a control channel, spoken by hand.
pub(super) struct Speech {
    runtime: Runtime,
    pub(super) control: Control,
}

impl Speech {
    pub(super) fn new(runtime: Runtime, control: Control) -> Speech {
        Speech { runtime, control }
    }

    /// Says a message. Only the answer tells whether the other side still listens.
    pub(super) fn say(&mut self, message: &Message) {
        self.say_bytes(&message.encode());
    }

    /// Says any bytes.
    pub(super) fn say_bytes(&mut self, bytes: &[u8]) {
        let writer = &mut self.control.writer;
        let said = async {
            writer.write_all(bytes).await?;
            writer.flush().await
        };
        let _ = self.runtime.block_on(said);
    }

    /// Says any bytes. Returns whether they were taken: they are not if the other side has ended
    /// the connection, or reads nothing before `until`.
    pub(super) fn force(&mut self, bytes: &[u8], until: Instant) -> bool {
        let writer = &mut self.control.writer;
        let said = async {
            writer.write_all(bytes).await?;
            writer.flush().await
        };
        let said = async { tokio::time::timeout_at(until.into(), said).await };
        Instant::now() < until && matches!(self.runtime.block_on(said), Ok(Ok(())))
    }

    /// The next message. `None` when the other side has ended the connection.
    pub(super) fn hear(&mut self) -> Option<Message> {
        loop {
            match self.hear_next()? {
                // Said in passing, several times a second.
                Message::Limiting(_) => {}
                message => return Some(message),
            }
        }
    }

    fn hear_next(&mut self) -> Option<Message> {
        let reader = &mut self.control.reader;
        let heard = async {
            let mut header = [0; LENGTH_BYTES];
            reader.read_exact(&mut header).await.ok()?;
            let mut bytes = vec![0; announced(header).expect("a message's length")];
            reader.read_exact(&mut bytes).await.ok()?;
            Some(Message::decode(&bytes).expect("a message"))
        };
        self.runtime.block_on(async { tokio::time::timeout(HEAR_MAX, heard).await.expect("an answer in time") })
    }

    /// Reads messages until `wanted` takes one. `None` if the connection ends first.
    pub(super) fn hear_until<T>(&mut self, mut wanted: impl FnMut(Message) -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = wanted(self.hear()?) {
                return Some(found);
            }
        }
    }

    /// Reads the session to its end. Returns the name of the code it was refused with, or a
    /// description of another end.
    pub(super) fn end(&mut self) -> String {
        let mut last = "nothing";
        let refused = self.hear_until(|message| match message {
            Message::Refuse(fault) => Some(fault.code.name().to_owned()),
            other => {
                last = other.name();
                None
            }
        });
        refused.unwrap_or_else(|| format!("closed after {last}"))
    }
}

/// A client that has dialled a daemon.
pub(super) struct Client {
    pub(super) speech: Speech,
    identity: Identity,
    session: [u8; 16],
    lanes: GrantedLanes,
    lane: Option<LaneStream>,
    /// Files whose chunks are wanted, as far as messages told.
    wanted: Vec<FileId>,
}

impl Client {
    /// Dials, with a key that the daemon may know.
    pub(super) fn dial(daemon: SocketAddr, identity: Identity) -> Client {
        let runtime = runtime();
        let dialled = runtime.block_on(dial_control(&daemon.to_string(), &identity, PeerCheck::Observe));
        let speech = Speech::new(runtime, dialled.expect("a control connection"));
        Client {
            speech,
            identity,
            session: [0; 16],
            lanes: GrantedLanes { first: LaneId(0), count: 0, transport: Transport::Tcp },
            lane: None,
            wanted: Vec::new(),
        }
    }

    /// Asks for a transfer and expects to be welcome.
    pub(super) fn agree(&mut self, transfer: Transfer) -> Welcome {
        self.agree_with(transfer, 0)
    }

    /// The same, with these bits in the hello.
    pub(super) fn agree_with(&mut self, transfer: Transfer, caps: u64) -> Welcome {
        self.agree_saying(transfer, caps, &[])
    }

    /// The same, with these messages right behind the hello.
    pub(super) fn agree_saying(&mut self, transfer: Transfer, caps: u64, behind: &[Message]) -> Welcome {
        let Message::Hello(hello) = hello(Request::Transfer(Box::new(transfer))) else { unreachable!() };
        self.speech.say(&Message::Hello(Hello { caps, ..hello }));
        behind.iter().for_each(|message| self.speech.say(message));
        let (Some(Message::Welcome(welcome)), Some(Message::Lanes(lanes))) = (self.speech.hear(), self.speech.hear())
        else {
            panic!("not welcome")
        };
        self.session = welcome.session;
        self.lanes = lanes;
        welcome
    }

    /// The first lane, private; joined when first asked for.
    pub(super) fn lane(&mut self) -> &mut LaneStream {
        if self.lane.is_none() {
            self.lane = Some(self.join(0));
        }
        self.lane.as_mut().expect("joined")
    }

    /// The lane that was granted as number `n`, private; each joins once.
    pub(super) fn join(&self, n: u32) -> LaneStream {
        let (addr, key) = (self.speech.control.peer_addr, self.speech.control.peer_key);
        let stream = LaneStream::dial_private(addr, &self.identity, key, &LaneOptions::default());
        let mut stream = stream.expect("a lane");
        let key = JoinKey(self.speech.control.exporter);
        dialled(&mut stream, &key, self.session, LaneId(self.lanes.first.0 + n)).expect("joined");
        stream
    }

    /// Like [`send_unit`], on this client's lane.
    pub(super) fn send_unit(&mut self, piece: Piece, payload: &[u8], digest: &Hash32) {
        send_unit(self.lane(), piece, payload, digest);
    }

    /// Sends a chunk of a file of several, as an honest sender would.
    pub(super) fn send_chunk(&mut self, file: FileId, index: ChunkIndex, attempt: Attempt, payload: &[u8]) {
        let digest = digest_of(payload, DigestKind::Cv, index.start(CHUNK));
        self.send_unit(chunk(file, index, attempt, payload.len() as u64), payload, digest.bytes());
    }

    /// The same, once the file's chunks are wanted.
    pub(super) fn send_chunk_when_wanted(&mut self, file: FileId, index: ChunkIndex, payload: &[u8]) {
        while !self.wanted.contains(&file) {
            let wanted = self.speech.hear_until(|message| match message {
                Message::WantChunks(want) => Some(want.file),
                Message::Refuse(fault) => panic!("{fault}"),
                _ => None,
            });
            self.wanted.push(wanted.expect("chunks are wanted"));
        }
        self.send_chunk(file, index, Attempt::FIRST, payload);
    }

    /// Sends these files as bundle 0, as an honest sender would.
    pub(super) fn send_bundle(&mut self, files: &[(FileId, &[u8])]) {
        send_bundle(self.lane(), files);
    }

    /// The session that was agreed on.
    pub(super) fn session(&self) -> [u8; 16] {
        self.session
    }
}

/// A daemon of the tests' own.
pub(super) struct Server {
    runtime: Runtime,
    listener: Listener,
    tls: ServerTls,
    key: PublicKey,
    /// Lanes that came before the control connection with which they were dialled.
    early: Mutex<VecDeque<LaneStream>>,
}

impl Server {
    /// Listens on a free port, with a key of its own.
    pub(super) fn start() -> Server {
        Server::at(SocketAddr::from(([127, 0, 0, 1], 0)), &Identity::generate().expect("a key"))
    }

    /// Listens there with that key, as a daemon that is gone did.
    pub(super) fn at(addr: SocketAddr, identity: &Identity) -> Server {
        let runtime = runtime();
        let inside = runtime.enter();
        let listener = Listener::bind(addr).expect("a free port");
        drop(inside);
        let tls = ServerTls::new(identity, GreetLimits::default()).expect("TLS");
        Server { runtime, listener, tls, key: identity.public(), early: Mutex::default() }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    pub(super) fn key(&self) -> String {
        self.key.to_string()
    }

    fn accept(&self) -> Greeted {
        let accepted = async {
            let (stream, _) = self.listener.accept().await?;
            greet(stream, &self.tls).await
        };
        let accepted = async { tokio::time::timeout(HEAR_MAX, accepted).await.expect("somebody dials") };
        self.runtime.block_on(accepted).expect("a connection")
    }

    /// The next control connection of a client, which dials lanes with it.
    pub(super) fn accept_control(&self) -> Speech {
        for _ in 0..=EARLY_MAX {
            match self.accept() {
                Greeted::Control(control) => return Speech::new(runtime(), control),
                Greeted::PrivateLane(lane, _) => self.early.lock().expect("nobody panicked").push_back(lane),
                other => panic!("{other:?}"),
            }
        }
        panic!("{EARLY_MAX} lanes and no control connection");
    }

    /// The next lane, which must be a private one that belongs to this session.
    pub(super) fn accept_lane(&self, speech: &Speech, session: [u8; 16]) -> LaneStream {
        let early = self.early.lock().expect("nobody panicked").pop_front();
        let mut stream = early.unwrap_or_else(|| match self.accept() {
            Greeted::PrivateLane(lane, _) => lane,
            other => panic!("{other:?}"),
        });
        let mut opening = [0; OPENING_BYTES];
        stream.recv_exact(&mut opening).expect("an opening");
        let Opening { lane, nonce: dialer_nonce, trial, .. } = Opening::decode(&opening);
        assert_eq!(trial, 0, "there is no path to try within a host");
        let claim = Claim { session, lane, dialer_nonce, acceptor_nonce: [0; 16] };
        let mut mac: Mac = [0; 32];
        stream.recv_exact(&mut mac).expect("a proof");
        assert!(JoinKey(speech.control.exporter).accepts(Prover::PrivateDialer, &claim, &mac), "not the right proof");
        stream.send(&[&[1]]).expect("taken");
        stream
    }
}

/// Lanes that come before a control connection, at most: those dialled with it, and some of an
/// earlier one.
const EARLY_MAX: usize = 16;

/// The opening of a lane without a trial of its path.
pub(super) fn plain_opening(session: [u8; 16], lane: LaneId, nonce: &Nonce) -> [u8; OPENING_BYTES] {
    Opening { session, lane, nonce: *nonce, trial: 0 }.encode()
}

/// The dialler's side of the join of a private lane.
fn dialled(
    stream: &mut LaneStream,
    key: &JoinKey,
    session: [u8; 16],
    lane: LaneId,
) -> Result<(), longhaul_net::NetError> {
    let claim = Claim { session, lane, dialer_nonce: [7; 16], acceptor_nonce: [0; 16] };
    let mac: Mac = key.prove(Prover::PrivateDialer, &claim);
    stream.send(&[&plain_opening(session, lane, &claim.dialer_nonce), &mac])?;
    stream.set_deadline(Some(HEAR_MAX))
}

/// Sends a unit: its header, its payload, and the digest behind it.
pub(super) fn send_unit(lane: &mut LaneStream, piece: Piece, payload: &[u8], digest: &Hash32) {
    // A lane that was closed at the other end is noticed by messages over control.
    let _ = lane.send(&[&Header::Piece(piece).encode(), payload, digest]);
}

/// Sends these files as bundle 0, as an honest sender would.
pub(super) fn send_bundle(lane: &mut LaneStream, files: &[(FileId, &[u8])]) {
    let unit = packed(files);
    let digest = digest_of(&unit, DigestKind::Root, FileOffset(0));
    send_unit(lane, bundle(unit.len() as u64), &unit, digest.bytes());
}

/// The header of a chunk of a file of several.
pub(super) fn chunk(file: FileId, index: ChunkIndex, attempt: Attempt, len: u64) -> Piece {
    Piece {
        unit: Unit::Chunk { file, index },
        attempt,
        offset: 0,
        len,
        unit_len: len,
        chunk: CHUNK,
        digest: DigestKind::Cv,
        hole: false,
        same: false,
        trailer: true,
    }
}

/// The header of bundle 0.
pub(super) fn bundle(len: u64) -> Piece {
    let first = chunk(FileId(0), ChunkIndex(0), Attempt::FIRST, len);
    Piece { unit: Unit::Bundle(BundleId(0)), digest: DigestKind::Root, ..first }
}

/// A bundle of these files.
pub(super) fn packed(files: &[(FileId, &[u8])]) -> Vec<u8> {
    let mut unit = vec![0; CHUNK.bytes() as usize];
    let mut packer = Packer::new(&mut unit, files.len());
    for (file, bytes) in files {
        packer.space(bytes.len()).expect("room").copy_from_slice(bytes);
        packer.keep(*file, bytes.len(), *digest_of(bytes, DigestKind::Root, FileOffset(0)).bytes());
    }
    let (len, _) = packer.finish();
    unit.truncate(len);
    unit
}

/// A runtime for one peer.
pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// A hello for `request`.
pub(super) fn hello(request: Request) -> Message {
    Message::Hello(Hello { version_min: VERSION, version_max: VERSION, caps: 0, request })
}

/// The transfer of a client that wants to send into `root`.
pub(super) fn push_to(root: &str, path: &str) -> Transfer {
    let far = Far::Destination {
        root: word(root),
        path: rel(path),
        placing: Placing::Beneath,
        if_exists: IfExists::SkipSame,
    };
    transfer(Role::Sender, far)
}

/// A transfer with nothing special about it.
pub(super) fn transfer(role: Role, far: Far) -> Transfer {
    Transfer {
        role,
        initiator: true,
        protect: Protect::Private,
        chunk: CHUNK,
        chunk_max: CHUNK,
        lanes: 1,
        preserve: Preserve::default(),
        dry_run: false,
        set: 0,
        far,
        run: [0; 16],
        read_back: false,
        flow: Flow::default(),
        digests: false,
    }
}

/// The transfer of a client that wants these sources, without the entries that the rules leave out.
pub(super) fn pull(sources: Vec<FarSource>, rules: Vec<Rule>) -> Transfer {
    transfer(Role::Receiver, Far::Sources { sources, rules, follows: Follows::Nothing })
}

/// One source.
pub(super) fn source(root: &str, path: &str) -> FarSource {
    FarSource { root: word(root), path: rel(path), contents: false }
}

/// A page that begins with entry `first` and is the last one.
pub(super) fn page(first: u64, entries: Vec<Entry>) -> Message {
    Message::Page(Page { first: FileId(first), last: true, entries })
}

/// A file's entry.
pub(super) fn file(path: &str, len: u64) -> Entry {
    entry(path, EntryKind::File { len, sparse: false, inode: longhaul_core::Inode::default() })
}

/// Any entry.
pub(super) fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry { path: rel(path), kind, meta: Meta::new(0o644, Mtime { secs: 1_000_000_000, nanos: 0 }) }
}

/// A valid name.
pub(super) fn word(text: &str) -> Word {
    Word::try_from(text).expect("a word")
}

/// A valid path.
pub(super) fn rel(path: &str) -> RelPath {
    RelPath::new(path).expect("a path")
}

/// A message in which the bytes `from` were exchanged for `to`, of the same length: no encoder of
/// ours would make it.
pub(super) fn forged(message: &Message, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "lengths stand before the bytes");
    let mut bytes = message.encode();
    let at = bytes.windows(from.len()).position(|w| w == from).expect("the bytes to exchange");
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

/// The chunk size of these sessions.
pub(super) const CHUNK: ChunkSize = match ChunkSize::from_log2(20) {
    Some(size) => size,
    None => panic!("one MiB is a chunk size"),
};

/// The longest wait for an answer: at most the 30 s of a silent session, and then some.
const HEAR_MAX: Duration = Duration::from_secs(60);
