//! Everything that a sound peer may say, made up at random.

use longhaul_core::filter::{Rule, RuleKind};
use longhaul_core::{
    AccessList, Account, Attempt, Blame, BundleId, ChunkIndex, ChunkSize, DatasetName, DatasetPart, Digest, DigestKind,
    Entry, EntryKind, Extras, Fault, FaultCode, FileId, Grant, Grantee, IfExists, Inode, LaneId, Loss, LossKind,
    LossReason, Meta, Mtime, Owner, Permissions, PlainText, PlanName, Preserve, RelPath, Rights, Role, SessionTag,
    SeveralNames, ShardClaim, TempName, TreePart, Unit, Whereabouts, Word, Xattr, XattrName,
};
use longhaul_proto::Message;
use longhaul_proto::wire::data::{Header, Piece};
use longhaul_proto::wire::message::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn texts(like: &'static str) -> impl Strategy<Value = PlainText> {
    like.prop_map(PlainText::from)
}

fn word(text: &str) -> Word {
    Word::try_from(text).expect("a word")
}

fn words() -> impl Strategy<Value = Word> {
    "[a-z]{1,9}".prop_map(|text| word(&text))
}

fn paths() -> impl Strategy<Value = RelPath> {
    vec("[a-z\u{e9}\n]{1,20}", 0..6).prop_map(|names| RelPath::new(names.join("/")).expect("a path"))
}

fn inodes() -> impl Strategy<Value = Inode> {
    (any::<[u64; 2]>(), times()).prop_map(|([dev, ino], ctime)| Inode { dev, ino, ctime })
}

fn parts() -> impl Strategy<Value = TreePart> {
    (any::<[u64; 2]>(), digests()).prop_map(|([start, chunks], digest)| TreePart {
        start: ChunkIndex(start),
        chunks,
        digest,
    })
}

fn metas() -> impl Strategy<Value = Meta> {
    (any::<u32>(), times()).prop_map(|(mode, mtime)| Meta::new(mode, mtime))
}

fn times() -> impl Strategy<Value = Mtime> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Mtime { secs, nanos })
}

fn accounts() -> impl Strategy<Value = Account> {
    prop_oneof![
        (0..u32::MAX, option::of(words())).prop_map(|(id, name)| Account { id: Some(id), name }),
        words().prop_map(|name| Account { id: None, name: Some(name) }),
    ]
}

fn grants() -> impl Strategy<Value = Grant> {
    let to = prop_oneof![
        select(&[Grantee::Owner, Grantee::Group, Grantee::Mask, Grantee::Others][..]),
        accounts().prop_map(Grantee::User),
        accounts().prop_map(Grantee::OtherGroup),
    ];
    (to, 0..8_u8).prop_map(|(to, bits)| Grant { to, may: Permissions::try_from(bits).expect("permissions") })
}

fn access_lists() -> impl Strategy<Value = AccessList> {
    vec(grants(), 0..4).prop_map(|grants| AccessList { grants })
}

fn extras() -> impl Strategy<Value = Extras> {
    let owners = (accounts(), accounts()).prop_map(|(user, group)| Owner { user, group });
    let xattrs = ("user\\.[a-z]{1,9}", vec(any::<u8>(), 0..9)).prop_map(|(name, value)| {
        let name = XattrName::try_from(name.into_bytes()).expect("a name");
        Xattr { name, value }
    });
    let lists = (option::of(access_lists()), option::of(access_lists()));
    (option::of(owners), lists, vec(xattrs, 0..3), any::<bool>()).prop_map(
        |(owner, (access, default), xattrs, incomplete)| Extras { owner, access, default, xattrs, incomplete },
    )
}

fn hashes() -> impl Strategy<Value = [u8; 32]> {
    any::<u8>().prop_map(|byte| [byte; 32])
}

fn digests() -> impl Strategy<Value = Digest> {
    prop_oneof![hashes().prop_map(Digest::Root), hashes().prop_map(Digest::Cv)]
}

fn units() -> impl Strategy<Value = Unit> {
    prop_oneof![
        (any::<u64>(), any::<u64>())
            .prop_map(|(file, index)| Unit::Chunk { file: FileId(file), index: ChunkIndex(index) }),
        any::<u64>().prop_map(|id| Unit::Bundle(BundleId(id))),
    ]
}

fn chunks() -> impl Strategy<Value = ChunkSize> {
    (10u8..=26).prop_map(|log2| ChunkSize::from_log2(log2).expect("in range"))
}

fn faults() -> impl Strategy<Value = Fault> {
    let codes = prop_oneof![Just(FaultCode::Io), Just(FaultCode::NoSpace), Just(FaultCode::Internal)];
    let blames = prop_oneof![Just(Blame::Local), Just(Blame::Peer), Just(Blame::Path), Just(Blame::Bug)];
    // Clean texts, which read back as they are; others are cleaned on the way.
    (codes, blames, "[ -Z]{0,40}", "[a-z ]{0,40}", "[a-z]{0,9}").prop_map(|(code, blame, object, message, hint)| {
        Fault::new(code, blame, message).about(object).hint_in_words(hint).said_by_peer()
    })
}

fn entries() -> impl Strategy<Value = Entry> {
    let kinds = prop_oneof![
        (any::<u64>(), any::<bool>(), inodes()).prop_map(|(len, sparse, inode)| EntryKind::File { len, sparse, inode }),
        Just(EntryKind::Dir),
        Just(EntryKind::DirEnd),
        vec(any::<u8>(), 0..50).prop_map(|target| EntryKind::Symlink { target }),
        (any::<bool>(), texts("[ -Z]{0,40}"))
            .prop_map(|(failed, why)| EntryKind::Unsent { failure: failed.then_some(FaultCode::Denied), why }),
        (any::<u64>(), inodes()).prop_map(|(kept_bytes, inode)| EntryKind::Stream { inode, kept_bytes }),
    ];
    (paths(), kinds, metas()).prop_map(|(path, kind, meta)| Entry { path, kind, meta })
}

fn tallies() -> impl Strategy<Value = Tally> {
    any::<[u64; 10]>().prop_map(
        |[received, durable, committed, files, resumed, read_back, misread, holes, arriving, standing]| Tally {
            received,
            durable,
            committed,
            files,
            resumed,
            read_back,
            misread,
            holes,
            arriving,
            standing,
        },
    )
}

fn endings() -> impl Strategy<Value = Ending> {
    (any::<u64>(), tallies()).prop_map(|(cpu_us, tally)| Ending { cpu_us, tally })
}

fn far_sources() -> impl Strategy<Value = FarSource> {
    (words(), paths(), any::<bool>()).prop_map(|(root, path, contents)| FarSource { root, path, contents })
}

fn fars() -> impl Strategy<Value = Far> {
    let follows = prop_oneof![Just(Follows::Nothing), Just(Follows::Sources), Just(Follows::Names)];
    let rules = ("[a-z*]{1,9}", any::<bool>()).prop_map(|(pattern, include)| Rule {
        kind: if include { RuleKind::Include } else { RuleKind::Exclude },
        pattern: pattern.into(),
    });
    prop_oneof![
        (words(), paths(), placings()).prop_map(|(root, path, placing)| Far::Destination {
            root,
            path,
            placing,
            if_exists: IfExists::Replace,
        }),
        (vec(far_sources(), 0..4), vec(rules, 0..4), follows).prop_map(|(sources, rules, follows)| Far::Sources {
            sources,
            rules,
            follows
        }),
        (any::<u64>(), any::<u32>()).prop_map(|(bytes, millis)| Far::Memory { bytes, millis }),
    ]
}

fn placings() -> impl Strategy<Value = Placing> {
    prop_oneof![Just(Placing::Beneath), Just(Placing::BeneathIfDir), Just(Placing::Named)]
}

fn requests() -> impl Strategy<Value = Request> {
    let numbers = (any::<u32>(), any::<[u8; 16]>());
    let transfers = (fars(), chunks(), numbers, any::<[bool; 6]>()).prop_map(|(far, chunk, (lanes, run), flags)| {
        let [initiator, safe, dry_run, sender, read_back, digests] = flags;
        Request::Transfer(Box::new(Transfer {
            role: if sender { Role::Sender } else { Role::Receiver },
            initiator,
            protect: if safe { Protect::Safe } else { Protect::Private },
            chunk,
            chunk_max: chunk,
            lanes,
            preserve: Preserve::default(),
            dry_run,
            set: 0,
            far,
            run,
            read_back,
            flow: Flow {
                lanes_max: lanes,
                congestion: if safe { word("cubic") } else { Word::default() },
                rate: u64::from(lanes) << 7,
                transport: if dry_run { Transport::Quic } else { Transport::Tcp },
                choose: read_back,
                ..Flow::default()
            },
            digests,
        }))
    });
    let lists = (words(), paths()).prop_map(|(root, path)| Request::List { root, path });
    let partials = (words(), paths()).prop_map(|(root, path)| Request::Partials { root, path });
    let orders = any::<[u8; 16]>().prop_map(|id| Request::Order { id });
    prop_oneof![transfers, Just(Request::Roots), lists, partials, orders]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        option::of(hashes()).prop_map(Outcome::Committed),
        Just(Outcome::Skipped),
        Just(Outcome::Planned),
        Just(Outcome::Unsent),
        hashes().prop_map(Outcome::Equal),
        hashes().prop_map(Outcome::Stands),
        option::of(hashes()).prop_map(Outcome::Linked),
        faults().prop_map(Outcome::Failed),
    ]
}

fn listed() -> impl Strategy<Value = Listed> {
    let kinds = prop_oneof![
        Just(ListedKind::File),
        Just(ListedKind::Dir),
        vec(any::<u8>(), 0..9).prop_map(|target| ListedKind::Symlink { target }),
        Just(ListedKind::Special),
        any::<[bool; 4]>().prop_map(|[read, create, modify, delete]| ListedKind::Root {
            rights: Rights { read, create, modify, delete }
        }),
        listed_partials().prop_map(|partial| ListedKind::Partial(Box::new(partial))),
    ];
    (vec(any::<u8>(), 0..9), kinds, any::<u64>(), metas()).prop_map(|(name, kind, len, meta)| Listed {
        name,
        kind,
        len,
        meta,
    })
}

fn listed_partials() -> impl Strategy<Value = ListedPartial> {
    let texts = (texts("[a-z:0-9]{1,9}"), texts("[a-z ']{0,9}"), option::of(texts("[a-z]{0,9}")));
    (any::<[u64; 2]>(), texts, any::<[[u8; 8]; 2]>()).prop_map(
        |([held, since_unix], (principal, owner, user), [tag, random])| ListedPartial {
            held,
            since_unix,
            principal,
            owner,
            temp: TempName::new(SessionTag(tag), random),
            user,
        },
    )
}

fn opening_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<[u16; 2]>(), any::<u64>(), requests()).prop_map(|([version_min, version_max], caps, request)| {
            Message::Hello(Hello { version_min, version_max, caps, request })
        }),
        (any::<u16>(), any::<[u64; 2]>(), any::<[u8; 16]>(), chunks()).prop_map(
            |(version, [caps, bundled_max], session, chunk)| Message::Welcome(Welcome {
                version,
                caps,
                session,
                chunk,
                chunk_max: chunk,
                bundled_max,
                lanes_max: u32::from(version),
                rate: caps,
                memory_bytes: bundled_max,
            })
        ),
        faults().prop_map(Message::Refuse),
        (any::<[u32; 2]>(), transport()).prop_map(|([first, count], transport)| {
            Message::Lanes(GrantedLanes { first: LaneId(first), count, transport })
        }),
        (any::<u32>(), transport()).prop_map(|(count, transport)| Message::LaneTarget(LaneTarget { count, transport })),
        any::<u64>().prop_map(|bytes_per_s| Message::Rate(Rate { bytes_per_s })),
        option::of((select(&Limit::ALL[..]), any::<u16>())).prop_map(|limited| {
            let by = limited.map(|(by, thousandths)| Limited { by, thousandths });
            Message::Limiting(Limiting { by })
        }),
        any::<u32>().prop_map(|lane| Message::LaneLost(LaneLost { lane: LaneId(lane) })),
        (any::<u32>(), any::<u64>())
            .prop_map(|(lane, landed)| Message::LaneClosed(LaneClosed { lane: LaneId(lane), landed })),
        (any::<u32>(), any::<u64>(), vec(any::<u32>(), 0..5)).prop_map(|(lane, below, beyond)| {
            let landed = LandedUnits { below, beyond };
            Message::UdpLaneClosed(UdpLaneClosed { lane: LaneId(lane), landed })
        }),
        vec(any::<u8>(), 0..40).prop_map(|bundle| Message::Unasked(Unasked { bundle })),
        any::<([u8; 16], u64, u64, [u8; 16])>().prop_map(|(campaign, shard, fence, id)| {
            Message::ShownClaim(ShardClaim { campaign, shard, fence, id })
        }),
        "[a-z0-9][a-z0-9._-]{0,199}".prop_map(|name| Message::AsDataset(DatasetName::new(name).expect("a name"))),
        option::of(paths()).prop_map(|onto| {
            Message::DatasetPart(onto.map_or(DatasetPart::Commit, |onto| DatasetPart::Shard { onto }))
        }),
        (vec(listed(), 0..5), any::<bool>()).prop_map(|(names, last)| Message::Listing(Listing { names, last })),
        (vec(far_sources(), 0..4), vec(any::<u8>(), 0..40), any::<bool>())
            .prop_map(|(sources, names, last)| Message::RequestPart(RequestPart { sources, names, last })),
    ]
}

fn manifest_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u64>(), option::of(vec(any::<u8>(), 0..20)), texts("[a-z/]{0,20}"))
            .prop_map(|(pages, renamed, base)| Message::Offer(Offer { pages, renamed, base })),
        any::<u64>().prop_map(|upto| Message::PageCredit(PageCredit { upto })),
        (any::<u64>(), any::<bool>(), vec(entries(), 0..5)).prop_map(|(first, last, entries)| Message::Page(Page {
            first: FileId(first),
            last,
            entries
        })),
        vec((any::<u64>().prop_map(FileId), extras()), 0..4)
            .prop_map(|entries| Message::Extras(PageExtras { entries })),
        vec((any::<u64>(), option::of(paths()), any::<u32>()), 0..4).prop_map(|rows| {
            let row = |(id, first, count)| (FileId(id), SeveralNames { first, count });
            Message::Names(PageNames { entries: rows.into_iter().map(row).collect() })
        }),
        vec((any::<u64>(), paths()), 0..4).prop_map(|losses| {
            let loss = |(entries, first)| Loss { kind: LossKind::Acls, reason: LossReason::TooLong, entries, first };
            Message::Losses(losses.into_iter().map(loss).collect())
        }),
        vec(any::<u64>(), 0..4).prop_map(|files| Message::Replaced(files.into_iter().map(FileId).collect())),
        vec((any::<u64>(), vec(any::<u8>(), 0..60)), 0..4).prop_map(|rows| {
            let row = |(file, sums)| SettledSums { file: FileId(file), sums };
            Message::SettledSums(rows.into_iter().map(row).collect())
        }),
        (any::<u64>(), vec(any::<u8>(), 0..130))
            .prop_map(|(first, wanted)| Message::Answer(Answer { first: FileId(first), wanted })),
        any::<[u64; 3]>().prop_map(|[file, start, count]| {
            Message::WantChunks(WantChunks { file: FileId(file), start: ChunkIndex(start), count })
        }),
        (any::<u64>(), chunks(), vec(parts(), 0..5), any::<bool>()).prop_map(|(file, chunk, parts, more)| {
            Message::Resume(Resume { file: FileId(file), chunk, parts, more })
        }),
        (any::<[u64; 2]>(), vec(hashes(), 0..5)).prop_map(|([file, start], digests)| {
            Message::CheckChunks(CheckChunks { file: FileId(file), start: ChunkIndex(start), digests })
        }),
        vec((any::<u64>().prop_map(FileId), option::of(hashes())), 0..5)
            .prop_map(|files| Message::CheckFiles(CheckFiles { files })),
    ]
}

fn unit_messages() -> impl Strategy<Value = Message> {
    let declared = (any::<u32>(), any::<u64>(), units(), any::<u32>(), digests()).prop_map(
        |(lane, seq, unit, attempt, digest)| Declared {
            lane: LaneId(lane),
            seq,
            unit,
            attempt: Attempt(attempt),
            digest,
        },
    );
    let findings = prop_oneof![digests().prop_map(Finding::Good), Just(Finding::Again), Just(Finding::GivenUp)];
    let verdicts = (units(), any::<u32>(), findings).prop_map(|(unit, attempt, finding)| Verdict {
        unit,
        attempt: Attempt(attempt),
        finding,
    });
    let settled = (any::<u64>(), outcomes()).prop_map(|(file, outcome)| Settlement { file: FileId(file), outcome });
    prop_oneof![
        vec(declared, 0..5).prop_map(Message::Digests),
        (any::<u64>(), hashes()).prop_map(|(file, root)| Message::FileEnd(FileEnd { file: FileId(file), root })),
        any::<[u64; 2]>().prop_map(|[file, len]| Message::StreamEnd(StreamEnd { file: FileId(file), len })),
        any::<u64>().prop_map(|file| Message::WantLast(WantLast { file: FileId(file) })),
        any::<[u64; 3]>().prop_map(|[file, start, count]| {
            Message::DurableChunks(DurableChunks { file: FileId(file), start: ChunkIndex(start), count })
        }),
        (any::<u64>(), vec((any::<u64>(), any::<u32>(), hashes()), 0..5)).prop_map(|(file, chunks)| {
            let lost =
                |(index, attempt, digest)| LostChunk { index: ChunkIndex(index), attempt: Attempt(attempt), digest };
            let chunks = chunks.into_iter().map(lost).collect();
            Message::SendAgain(SendAgain { file: FileId(file), chunks })
        }),
        (any::<[u64; 6]>(), any::<[u16; 2]>()).prop_map(|([a, b, c, d, e, f], [target, thousandths])| {
            Message::Targets(vec![TargetReport {
                target: target.into(),
                bytes_per_s: a,
                busy_bytes_per_s: (b > 7).then_some(b),
                queued_bytes: c,
                queued: d,
                latency_us: (e > 7).then_some([d, e, f]),
                thousandths,
                state: TargetStanding::Slow,
            }])
        }),
        (any::<u64>(), texts("[a-z ]{0,40}")).prop_map(|(file, message)| {
            Message::FileFault(FileFault { file: FileId(file), code: FaultCode::Vanished, message })
        }),
        vec(verdicts, 0..5).prop_map(Message::Verdicts),
        vec(settled, 0..5).prop_map(Message::Settled),
        tallies().prop_map(Message::Tally),
        endings().prop_map(Message::Complete),
        endings().prop_map(Message::Bye),
        any::<[bool; 2]>().prop_map(|[stalled, answer]| Message::Heartbeat(Heartbeat { stalled, answer })),
    ]
}

fn whereabouts() -> impl Strategy<Value = Whereabouts> {
    (any::<[u8; 16]>(), any::<[Vec<[u8; 16]>; 2]>(), any::<bool>()).prop_map(|(host, [at, above], whole)| Whereabouts {
        host,
        at,
        above,
        whole,
    })
}

fn removal_messages() -> impl Strategy<Value = Message> {
    let kinds = || select(&[KnownKind::File, KnownKind::Link, KnownKind::Dir, KnownKind::Special][..]);
    let facts = move || {
        (kinds(), any::<[u64; 3]>(), times()).prop_map(|(kind, [dev, ino, bytes], mtime)| KnownFacts {
            kind,
            dev,
            ino,
            bytes,
            mtime,
        })
    };
    let answers = prop_oneof![
        Just(NameAnswer::Absent),
        (facts(), any::<u64>()).prop_map(|(facts, within)| NameAnswer::Found { facts, within }),
        Just(NameAnswer::Moved),
        Just(NameAnswer::MovedBefore),
        Just(NameAnswer::Changed),
        Just(NameAnswer::NotEmpty),
        faults().prop_map(NameAnswer::Refused),
    ];
    let names = vec((paths(), facts()).prop_map(|(path, facts)| KnownName { path, facts }), 0..4);
    prop_oneof![
        (any::<u64>(), texts("[a-z/.]{0,20}"), whereabouts()).prop_map(|(device, grace, whereabouts)| {
            Message::RemovalOpened(RemovalOpened { device, grace, whereabouts })
        }),
        whereabouts().prop_map(Message::Whereabouts),
        vec(paths(), 0..4).prop_map(|names| Message::RemovalOrder(RemovalOrder::Look(names))),
        (any::<([u8; 32], u64)>(), names).prop_map(|((digest, made), names)| {
            Message::RemovalOrder(RemovalOrder::Move(RemovalBatch { plan: PlanName { digest, made }, names }))
        }),
        (vec(answers, 0..5), any::<bool>())
            .prop_map(|(names, last)| Message::RemovalAnswer(RemovalAnswer { names, last })),
    ]
}

fn reading_messages() -> impl Strategy<Value = Message> {
    let things = prop_oneof![
        Just(FoundThing::Absent),
        (any::<u64>(), times()).prop_map(|(bytes, mtime)| FoundThing::File { bytes, mtime }),
        any::<(u64, [u8; 32])>().prop_map(|(bytes, b3)| FoundThing::Read { bytes, b3 }),
        any::<Vec<u8>>().prop_map(|target| FoundThing::Link { target }),
        Just(FoundThing::Dir),
        Just(FoundThing::Special),
        faults().prop_map(FoundThing::Failed),
    ];
    let found = vec((any::<u32>(), things).prop_map(|(at, found)| FoundName { at, found }), 0..5);
    let words = prop_oneof![
        Just(ReadingWord::Opened),
        vec(paths(), 0..4).prop_map(ReadingWord::Look),
        (vec(paths(), 0..4), any::<u64>()).prop_map(|(names, rate)| ReadingWord::Read(ReadOrder { names, rate })),
        paths().prop_map(ReadingWord::List),
        (found, any::<bool>()).prop_map(|(names, last)| ReadingWord::Found(FoundNames { names, last })),
        any::<bool>().prop_map(|last| ReadingWord::Names(Listing { names: Vec::new(), last })),
    ];
    words.prop_map(Message::Reading)
}

/// Messages of any number.
pub(crate) fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![opening_messages(), manifest_messages(), unit_messages(), removal_messages(), reading_messages()]
}

/// Headers that a sender may write.
pub(crate) fn headers() -> impl Strategy<Value = Header> {
    let chunk = |file, index| Unit::Chunk { file: FileId(file), index: ChunkIndex(index) };
    let units = prop_oneof![
        (any::<u64>(), 0u64..1 << 37).prop_map(move |(file, index)| (chunk(file, index), DigestKind::Cv)),
        any::<u64>().prop_map(move |file| (chunk(file, 0), DigestKind::Root)),
        any::<u64>().prop_map(|id| (Unit::Bundle(BundleId(id)), DigestKind::Root)),
    ];
    let pieces = (units, 1u32.., any::<[u64; 3]>(), chunks(), any::<[bool; 3]>()).prop_map(
        |((unit, digest), attempt, [offset, len, unit_len], chunk, [hole, same, trailer])| {
            let same = same && matches!(unit, Unit::Chunk { .. });
            let hole = hole && !same && matches!(unit, Unit::Chunk { .. });
            let unit_len = 1 + unit_len % chunk.bytes();
            let offset = if hole || same { 0 } else { offset % unit_len };
            let len = if hole || same { 0 } else { 1 + len % (unit_len - offset) };
            Piece { unit, attempt: Attempt(attempt), offset, len, unit_len, chunk, digest, hole, same, trailer }
        },
    );
    prop_oneof![9 => pieces.prop_map(Header::Piece), 1 => Just(Header::End)]
}

fn transport() -> impl Strategy<Value = Transport> {
    prop_oneof![Just(Transport::Tcp), Just(Transport::Quic), Just(Transport::Udp)]
}
