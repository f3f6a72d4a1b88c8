//! Bytes that change on the way. On a `safe` lane the unit is wanted again, or given up; never
//! believed. On a `private` one it comes over another lane.

use longhaul_core::{BundleId, ChunkIndex, ChunkSize, DigestKind, FileId, Unit};
use longhaul_proto::wire::data::{HEADER_BYTES, Header, Piece};

use super::frames::{Part, editor, frames, preamble};
use super::proxy::{Kind, Way, flip_at};
use super::{Direction, End, Wired, at_once, some_at_once};
use crate::fixture::{engines, files};

/// A wired site in which `edit` edits the `safe` lanes that carry payload in `direction`.
fn edited(direction: Direction, edit: impl FnMut(Part<'_>) + Send + 'static) -> Wired {
    let editor = editor(edit);
    Wired::new(move |kind, way| (kind == Kind::SafeLane && way == direction.way()).then(|| frames(way, editor.clone())))
}

#[test]
fn a_byte_flipped_once_is_sent_again_and_right_at_the_end() {
    for direction in Direction::BOTH {
        for &engine in engines() {
            // In chunks, and in a bundle.
            for len in [(3 << 20) + 17, 1000] {
                let context = format!("{direction:?} of {len} bytes, engine {engine}");
                let mut flipped = false;
                let wired = edited(direction, move |part| {
                    if let Part::Payload { bytes, .. } = part
                        && !std::mem::replace(&mut flipped, true)
                    {
                        let last = bytes.len() - 1;
                        bytes[last] ^= 0x40;
                    }
                });
                wired.source(direction, |path| files::make(path, 5, len));
                let outcome = wired.run(direction, "safe", engine).succeed();
                wired.assert_copied(direction, &context);
                let resent = outcome.summary()["bytes_resent"].as_u64().unwrap();
                assert!(resent > 0, "{context}: what was sent again is told: {outcome}");
            }
        }
    }
}

#[test]
fn a_unit_damaged_every_time_fails_the_file_as_a_mismatch() {
    for direction in Direction::BOTH {
        for &engine in engines() {
            for len in [(3 << 20) + 17, 1000] {
                let context = format!("{direction:?} of {len} bytes, engine {engine}");
                let wired = edited(direction, |part| {
                    if let Part::Payload { bytes, .. } = part {
                        bytes[0] ^= 1;
                    }
                });
                wired.source(direction, |path| files::make(path, 5, len));
                let outcome = wired.run(direction, "safe", engine).fail(6);
                wired.assert_absent(direction, &context);
                assert_eq!(outcome.counts(), (0, 0, 1), "{context}: {outcome}");
            }
        }
    }
}

#[test]
fn one_damaged_file_of_many_fails_alone() {
    for &engine in engines() {
        let wired = edited(Direction::Push, |part| {
            if let Part::Payload { piece: Piece { unit: Unit::Chunk { file: FileId(2), .. }, .. }, bytes, .. } = part {
                bytes[0] ^= 1;
            }
        });
        wired.source(Direction::Push, |path| {
            ["a", "b", "c"]
                .into_iter()
                .enumerate()
                .for_each(|(n, name)| files::make(path.join(name), n as u64, 3 << 20));
        });
        let outcome = wired.run(Direction::Push, "safe", engine).fail(6);
        assert_eq!(outcome.counts(), (2, 0, 1), "engine {engine}: {outcome}");
        let stands = std::fs::read_dir(wired.site.root().join("f")).unwrap().count();
        assert_eq!(stands, 2, "engine {engine}: {outcome}");
        wired.assert_clean(engine);
    }
}

/// An alteration of one header.
type Alteration = (&'static str, fn(&mut Piece));

const ALTERATIONS: &[Alteration] = &[
    ("another file", |p| p.unit = Unit::Chunk { file: FileId(1), index: index_of(p) }),
    ("a file that does not exist", |p| p.unit = Unit::Chunk { file: FileId(u64::MAX), index: index_of(p) }),
    ("another chunk", |p| p.unit = Unit::Chunk { file: file_of(p), index: ChunkIndex(index_of(p).0 + 1) }),
    ("a chunk that is verified", |p| p.unit = Unit::Chunk { file: file_of(p), index: ChunkIndex(0) }),
    ("a chunk beyond the end", |p| p.unit = Unit::Chunk { file: file_of(p), index: ChunkIndex(1 << 40) }),
    ("another attempt", |p| p.attempt = p.attempt.next()),
    ("a bundle", |p| (p.unit, p.digest) = (Unit::Bundle(BundleId(0)), DigestKind::Root)),
    ("smaller chunks", |p| {
        (p.unit_len, p.len) = (1 << 12, 1 << 12);
        p.chunk = ChunkSize::from_log2(12).unwrap();
    }),
    ("larger chunks", |p| p.chunk = ChunkSize::from_log2(26).unwrap()),
    ("a hole", |p| (p.hole, p.len) = (true, 0)),
    ("a trailer", |p| p.trailer = true),
    ("an offset", |p| (p.offset, p.len) = (1 << 10, p.len - (1 << 10))),
    ("a shorter length", |p| (p.unit_len, p.len) = (p.unit_len - 1, p.len - 1)),
];

/// Alters the header of the unit with this number on its lane, once.
fn alter_header(
    number: usize,
    alter: impl Fn(&mut [u8; HEADER_BYTES]) + Send + 'static,
) -> impl FnMut(Part<'_>) + Send {
    let mut seen = 0;
    move |part| {
        if let Part::Header(header) = part {
            if seen == number {
                alter(header);
            }
            seen += 1;
        }
    }
}

/// Fails unless, after the damage of a `safe` lane, either an exact copy stands and the run says
/// so, or nothing stands and the run says that a retry may help, or that the bytes did not match.
#[track_caller]
fn assert_right_or_refused(wired: &Wired, direction: Direction, engine: &str, what: &str) {
    let context = format!("{what}, {direction:?}, engine {engine}");
    let outcome = wired.run(direction, "safe", engine).finish();
    match outcome.code {
        0 => wired.assert_copied(direction, &context),
        5 | 6 => wired.assert_absent(direction, &context),
        code => panic!("{context}: exit {code}: {outcome}\n{}", wired.site.daemon.log()),
    }
}

#[test]
fn an_altered_header_never_makes_a_wrong_file() {
    let cases = ALTERATIONS.iter().zip(engines().iter().cycle());
    some_at_once(cases.flat_map(|(case, engine)| Direction::BOTH.map(|direction| (case, engine, direction))), |case| {
        let ((what, alter), engine, direction) = case;
        // The third of four chunks, of a file that is the first of its transfer.
        let wired = edited(direction, alter_header(2, move |header| alter_piece(header, alter)));
        wired.source(direction, |path| files::make(path, 3, PARTIAL));
        assert_right_or_refused(&wired, direction, engine, &format!("the header turned into {what}"));
    });
}

/// Makes a proxy that damages lanes of one direction.
type Wire = fn(Direction) -> Wired;

#[test]
fn bytes_that_are_promised_or_sent_and_never_come_do_not_hang_the_session() {
    // They all wait until a side has been silent for too long: at the same time.
    let cases: [(_, Wire, _); 4] = [
        ("a last chunk made longer", lengthening, PARTIAL),
        ("a bundle made longer", lengthening, 5000),
        ("a last chunk taken out", |way| swallowing(way, (3 << 20) + 3 * 64), PARTIAL),
        ("a part of a header", |way| swallowing(way, (3 << 20) + 3 * 64 + 10), PARTIAL),
    ];
    at_once(8, cases.into_iter().flat_map(|case| Direction::BOTH.map(|direction| (case, direction))), |case| {
        let ((what, wired, len), direction) = case;
        let wired = wired(direction);
        wired.source(direction, |path| files::make(path, 3, len));
        let outcome = wired.run(direction, "safe", "threads").finish();
        let context = format!("{what}, {direction:?}: {outcome}");
        match outcome.code {
            // The lane was given up, and the bytes that it kept went over another.
            0 if !what.ends_with("longer") => wired.assert_copied(direction, &context),
            5 => wired.assert_absent(direction, &context),
            // If another unit follows, its bytes fill the promised length: that is damage, each
            // time over another lane.
            6 if what.ends_with("longer") => wired.assert_absent(direction, &context),
            _ => panic!("{context}"),
        }
    });
}

/// Swallows the bytes of a `safe` lane behind the first `after` bytes of frames.
fn swallowing(direction: Direction, after: usize) -> Wired {
    Wired::new(move |kind, way| {
        (kind == Kind::SafeLane && way == direction.way()).then(|| -> Box<dyn super::Meddler> {
            let mut left = after + preamble(way);
            Box::new(move |bytes: &mut Vec<u8>| {
                bytes.truncate(left);
                left -= bytes.len();
            })
        })
    })
}

/// Makes each unit that is shorter than a chunk promise a whole one.
fn lengthening(direction: Direction) -> Wired {
    edited(direction, |part| {
        if let Part::Header(header) = part {
            alter_piece(header, |piece| (piece.unit_len, piece.len) = (1 << 20, 1 << 20));
        }
    })
}

/// Three chunks and a part of one.
const PARTIAL: usize = (3 << 20) + (600 << 10);

#[test]
fn a_header_turned_into_an_end_or_rubbish_costs_a_lane_and_no_more() {
    let replacements = [("an end", Header::End.encode()), ("rubbish", [0x5a; HEADER_BYTES])];
    some_at_once(
        replacements.into_iter().flat_map(|case| Direction::BOTH.map(|direction| (case, direction))),
        |case| {
            let ((what, bytes), direction) = case;
            let wired = edited(direction, alter_header(1, move |header| *header = bytes));
            wired.source(direction, |path| files::make(path, 3, PARTIAL));
            let outcome = wired.run(direction, "safe", "threads").fail(0);
            wired.assert_copied(direction, &format!("{what}, {direction:?}: {outcome}"));
        },
    );
}

#[test]
fn a_header_of_one_small_file_altered_never_makes_a_wrong_file() {
    for direction in Direction::BOTH {
        for (what, alter) in [
            ("another bundle", (|p| p.unit = Unit::Bundle(BundleId(7))) as fn(&mut Piece)),
            ("a chunk", |p| p.unit = Unit::Chunk { file: FileId(0), index: ChunkIndex(0) }),
            ("a shorter length", |p| (p.unit_len, p.len) = (p.unit_len - 1, p.len - 1)),
        ] {
            let wired = edited(direction, alter_header(0, move |header| alter_piece(header, alter)));
            wired.source(direction, |path| files::make(path, 3, 5000));
            assert_right_or_refused(&wired, direction, "threads", what);
        }
    }
}

#[test]
fn damaged_private_lanes_are_replaced_and_everything_arrives_whole() {
    some_at_once(Direction::BOTH.into_iter().flat_map(|d| engines().iter().map(move |engine| (d, engine))), |case| {
        let (direction, engine) = case;
        let wired = Wired::new(move |kind, way| {
            (kind == Kind::PrivateLane && way == direction.way()).then(|| flip_at((1 << 20) + 12345))
        });
        wired.source(direction, |path| files::make(path, 3, 5 << 20));
        let outcome = wired.run(direction, "private", engine).fail(0);
        wired.assert_copied(direction, &format!("{direction:?}, engine {engine}: {outcome}"));
        assert!(wired.proxy.count(Kind::PrivateLane) > 4, "each lane carries a chunk, or two: {outcome}");
    });
}

#[test]
fn a_damaged_control_connection_ends_the_session_and_nothing_wrong_stands() {
    // In the handshake; in the first words; among the wants and verdicts.
    some_at_once(
        [Way::ToDaemon, Way::ToClient].into_iter().flat_map(|way| [100, 2500, 4000].map(|at| (way, at))),
        |case| {
            let (way, at) = case;
            for direction in Direction::BOTH {
                let wired = Wired::new(move |kind, w| (kind == Kind::Control && w == way).then(|| flip_at(at)));
                wired.source(direction, |path| (0..40).for_each(|n| files::make(path.join(n.to_string()), n, 40_000)));
                let context = format!("byte {at} {way:?}, {direction:?}");
                let outcome = wired.run(direction, "safe", "threads").finish();
                // Less than that may be said in all.
                match outcome.code {
                    0 => wired.assert_copied(direction, &context),
                    // What was committed before stays, whole.
                    1 | 5 => assert_all_whole(&wired, direction, &context),
                    code => panic!("{context}: exit {code}: {outcome}"),
                }
            }
        },
    );
}

/// Fails if any standing file is not an exact copy.
#[track_caller]
fn assert_all_whole(wired: &Wired, direction: Direction, context: &str) {
    let Ok(entries) = std::fs::read_dir(wired.end(direction, End::To)) else { return };
    let names = entries.map(|entry| entry.unwrap().file_name()).filter(|name| !name.to_string_lossy().starts_with('.'));
    for name in names {
        let number = name.to_str().unwrap().parse().unwrap();
        let stands = std::fs::read(wired.end(direction, End::To).join(&name)).unwrap();
        assert!(stands == files::bytes(number, 40_000), "{context}: {name:?} is not whole");
    }
}

fn alter_piece(header: &mut [u8; HEADER_BYTES], alter: impl Fn(&mut Piece)) {
    if let Ok(Header::Piece(mut piece)) = Header::decode(header) {
        alter(&mut piece);
        *header = Header::Piece(piece).encode();
    }
}

fn index_of(piece: &Piece) -> ChunkIndex {
    match piece.unit {
        Unit::Chunk { index, .. } => index,
        Unit::Bundle(_) => ChunkIndex(0),
    }
}

fn file_of(piece: &Piece) -> FileId {
    match piece.unit {
        Unit::Chunk { file, .. } => file,
        Unit::Bundle(_) => FileId(0),
    }
}
