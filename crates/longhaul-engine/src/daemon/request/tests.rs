//! Tests of requests in parts: which parts are taken in, what memory they cost, and which are
//! refused.

use longhaul_core::{ChunkSize, IfExists, Preserve, RelPath, Role, Word, hint};
use longhaul_net::Identity;
use longhaul_proto::wire::message::{Flow, Placing, Protect, RequestPart};
use tokio::io::{AsyncWriteExt, duplex};

use super::*;

const MIB: u64 = 1 << 20;

fn pull(follows: Follows) -> Transfer {
    let source = FarSource { root: Word::try_from("data").expect("a word"), path: RelPath::root(), contents: true };
    Transfer {
        role: Role::Receiver,
        initiator: true,
        protect: Protect::Private,
        chunk: ChunkSize::DEFAULT,
        chunk_max: ChunkSize::DEFAULT,
        lanes: 1,
        preserve: Preserve::default(),
        dry_run: false,
        set: 0,
        far: Far::Sources { sources: vec![source], rules: Vec::new(), follows },
        run: [0; 16],
        read_back: false,
        flow: Flow::default(),
        digests: false,
    }
}

fn names(names: &[u8], last: bool) -> RequestPart {
    RequestPart { names: names.to_vec(), last, ..RequestPart::default() }
}

fn sources(count: usize, last: bool) -> RequestPart {
    let path = RelPath::new("d".repeat(200)).expect("a path");
    let source = FarSource { root: Word::try_from("data").expect("a word"), path, contents: false };
    RequestPart { sources: vec![source; count], last, ..RequestPart::default() }
}

/// The result of these parts at a daemon with this memory. No more parts come after them.
async fn heard(memory: &ClientShares, transfer: &mut Transfer, parts: Vec<RequestPart>) -> Result<Rest, Fault> {
    heard_slowly(memory, transfer, parts.into_iter().map(|part| (Duration::ZERO, part)).collect()).await
}

/// The same with a wait before each part.
async fn heard_slowly(
    memory: &ClientShares,
    transfer: &mut Transfer,
    parts: Vec<(Duration, RequestPart)>,
) -> Result<Rest, Fault> {
    let (here, mut there) = duplex(64 << 10);
    let mut reader: ReadHalf = Box::new(here);
    let client = Identity::generate().expect("a key").public();
    let (_trigger, stop) = Stop::new();
    let telling = async move {
        for (pause, part) in parts {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            if there.write_all(&Message::RequestPart(part).encode()).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = telling => panic!("it hears on"),
        rest = hear_rest(&mut reader, (transfer, None), (memory, client), stop) => rest,
    }
}

fn memory(bytes: u64) -> ClientShares {
    ClientShares::growing("memory", bytes, 16 * MIB)
}

/// A part with `count` names of 200 bytes in it, beneath a directory of its number.
fn part_of(number: usize, count: usize, last: bool) -> RequestPart {
    let name = |n| format!("part-{number:04}/{n:04}-{}\0", "x".repeat(184));
    names((0..count).map(name).collect::<String>().as_bytes(), last)
}

#[tokio::test]
async fn a_list_is_put_together_and_claimed_for_as_long_as_it_is_held() {
    let memory = memory(64 * MIB);
    for (parts, is_claimed) in [(3, false), (30, true)] {
        let all = (0..parts).map(|number| part_of(number, 300, number + 1 == parts)).collect();
        let rest = heard(&memory, &mut pull(Follows::Names), all).await.expect("a list");
        assert_eq!(rest.names.as_ref().map(PathList::len), Some(parts * 300));
        assert_eq!(rest.claim.is_some(), is_claimed, "what any hello may cost is not claimed");
        drop(rest);
        memory.all_given_back().await;
    }
    let none = heard(&memory, &mut pull(Follows::Names), vec![names(b"", true)]).await.expect("an empty list");
    assert_eq!(none.names, Some(PathList::default()));
    let nothing = heard(&memory, &mut pull(Follows::Nothing), Vec::new()).await.expect("nothing follows");
    assert!(nothing.names.is_none() && nothing.claim.is_none());
}

#[tokio::test]
async fn sources_are_added_to_those_of_the_hello_and_claimed() {
    let memory = memory(64 * MIB);
    let mut transfer = pull(Follows::Sources);
    let rest = heard(&memory, &mut transfer, vec![sources(500, false), sources(500, true)]).await.expect("sources");
    let Far::Sources { sources, .. } = &transfer.far else { panic!("a pull") };
    assert_eq!((sources.len(), rest.names.is_none(), rest.claim.is_some()), (1001, true, true));
}

#[tokio::test]
async fn a_list_that_the_daemon_has_no_memory_for_is_refused_in_its_middle_with_what_to_do() {
    let memory = memory(40 * MIB);
    let parts = (0..400).map(|number| part_of(number, 300, false)).collect();
    let fault = heard(&memory, &mut pull(Follows::Names), parts).await.err().expect("24 MB are too much");
    assert_eq!(fault.code, FaultCode::Busy);
    assert!(fault.message.contains("more memory than the daemon has"), "{fault:?}");
    assert_eq!(fault.hint, Some(hint::Daemon::AskForMemory.into()));
    memory.all_given_back().await;
    let parts = (0..100).map(|_| sources(300, false)).collect();
    let fault = heard(&memory, &mut pull(Follows::Sources), parts).await.err().expect("40 MB");
    assert_eq!(fault.code, FaultCode::Busy);
}

#[tokio::test]
async fn parts_that_are_none_break_the_protocol() {
    let memory = memory(64 * MIB);
    for (follows, parts) in [
        (Follows::Names, vec![sources(1, true)]),
        (Follows::Sources, vec![names(b"a\0", true)]),
        (Follows::Names, vec![names(b"b\0", false), names(b"a\0", true)]),
        (Follows::Names, vec![names(b"../a\0", true)]),
        (Follows::Names, vec![names(b"a", true)]),
        (Follows::Names, vec![names(b"", false)]),
        (Follows::Names, vec![names(b"a\0", false)]),
        (Follows::Names, vec![part_of(0, 70, false)]),
        (Follows::Sources, vec![sources(70, false)]),
        (Follows::Sources, vec![RequestPart::default()]),
        (Follows::Names, vec![names("a/".repeat(40 << 10).as_bytes(), true)]),
    ] {
        let fault = heard(&memory, &mut pull(follows), parts.clone()).await.err().expect("refused");
        assert_eq!(fault.code, FaultCode::Protocol, "{parts:?}");
    }
    let mut several = pull(Follows::Names);
    let Far::Sources { sources, .. } = &mut several.far else { panic!("a pull") };
    sources.push(sources[0].clone());
    let fault = heard(&memory, &mut several, vec![names(b"a\0", true)]).await.err().expect("refused");
    assert_eq!(fault.code, FaultCode::Protocol);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_come_to_its_end_is_given_up() {
    let memory = memory(64 * MIB);
    let fault = heard(&memory, &mut pull(Follows::Names), vec![part_of(0, 300, false)]).await.err().expect("silence");
    assert_eq!(fault.code, FaultCode::TimedOut);
    memory.all_given_back().await;
}

#[tokio::test(start_paused = true)]
async fn parts_earn_time_by_their_length_and_none_is_saved_up() {
    let memory = memory(64 * MIB);
    let came = async |first: u64, later: u64, names: usize| {
        let part = |number: usize| {
            let pause = Duration::from_secs(if number < 40 { first } else { later });
            (pause, part_of(number, if number < 40 { 300 } else { names }, number == 79))
        };
        let begun = Instant::now();
        let rest = heard_slowly(&memory, &mut pull(Follows::Names), (0..80).map(part).collect()).await;
        (rest.map(|_| ()).map_err(|fault| fault.code), begun.elapsed().as_secs())
    };
    assert_eq!(came(7, 7, 300).await, (Ok(()), 80 * 7), "full ones, at 70 kbit/s");
    let (result, seconds) = came(0, 8, 90).await;
    assert_eq!(result, Err(FaultCode::TimedOut), "short ones, for as long as full ones may take");
    assert!((30..=50).contains(&seconds), "{seconds} s: what came fast earns the rest no more than any request has");
}

#[tokio::test(start_paused = true)]
async fn names_that_come_in_drops_are_refused_at_the_first() {
    let memory = memory(64 * MIB);
    let drop = |n: u8| (Duration::from_secs(8), names(&[b'a' + n, 0], n == 25));
    let begun = Instant::now();
    let fault = heard_slowly(&memory, &mut pull(Follows::Names), (0..26).map(drop).collect()).await;
    assert_eq!(fault.err().expect("refused").code, FaultCode::Protocol);
    assert_eq!(begun.elapsed().as_secs(), 8);
}

#[tokio::test]
async fn names_follow_a_push_whose_grant_is_for_a_list_and_no_other_push() {
    let far = Far::Destination {
        root: Word::try_from("data").expect("a word"),
        path: RelPath::root(),
        placing: Placing::Beneath,
        if_exists: IfExists::Fail,
    };
    let mut push = Transfer { role: Role::Sender, far, ..pull(Follows::Nothing) };
    let (here, mut there) = duplex(64 << 10);
    let mut reader: ReadHalf = Box::new(here);
    there.write_all(&Message::RequestPart(names(b"a\0b\0", true)).encode()).await.expect("said");
    let (memory, client) = (memory(16 * MIB), Identity::generate().expect("a key").public());
    let stop = || Stop::new().1;
    let rest = hear_rest(&mut reader, (&mut push, None), (&memory, client), stop()).await;
    let rest = rest.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(rest.names, None, "nothing is heard");
    let rest = hear_rest(&mut reader, (&mut push, Some([7; 32])), (&memory, client), stop()).await;
    let list = PathList::new(&["a", "b"].map(|name| RelPath::new(name).expect("a path")));
    assert_eq!(rest.ok().and_then(|rest| rest.names), Some(list));
    there.write_all(&Message::RequestPart(sources(1, true)).encode()).await.expect("said");
    let rest = hear_rest(&mut reader, (&mut push, Some([7; 32])), (&memory, client), stop()).await;
    assert_eq!(rest.err().map(|fault| fault.code), Some(FaultCode::Protocol), "a push has no sources");
}
