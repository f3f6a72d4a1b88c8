//! Hears the list of names that an order is about, part by part, if its grant is for one, or if it
//! is to send one.
//!
//! In: messages behind an order, and the digest that its grant names. Out: an [`OrderList`], whose
//! claim on the daemon's memory lasts as long as the order. Each part is claimed before it is kept
//! and must come within its time. It opens nothing: where this daemon fetches, the other one
//! compares the digest too, before it reads a file.

use std::sync::Arc;

use longhaul_core::limits::PAGE_BYTES_MAX;
use longhaul_core::{Blame, Fault, Hash32, PathList, RelPath};
use longhaul_net::PublicKey;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    Far, Follows, ORDER_LIST_NAMES_MAX, OrderExpected, OrderListName, OrderListPart, Transfer,
};

use super::follower::EVENT_BYTES;
use crate::api::{ExpectedFile, ExpectedFiles, Stop};
use crate::daemon::grants::need_list;
use crate::daemon::request::{Costs, PART_BYTES_MIN, RequestPace};
use crate::daemon::shares::{ClientShares, Share};
use crate::session::channel::ReadHalf;

/// The names of an order, and the files that are expected under them.
pub(in crate::daemon) struct OrderList {
    /// The names beneath the one source of its grant.
    pub(in crate::daemon) names: Arc<PathList>,
    /// The files that may come under them.
    pub(super) expected: Arc<ExpectedFiles>,
    /// Bytes of the events of those of which a file is expected, which may wait for the client.
    pub(super) events_bytes: usize,
    /// The memory of all that. `None`: next to nothing.
    _claim: Option<Share>,
}

impl OrderList {
    /// Whether its client counts the names, and so must be told of each: a mover does, which says
    /// of each what it expects. A list of a user's own may name directories, and is as long as the
    /// files that lie in them.
    pub(super) fn is_counted(&self) -> bool {
        self.events_bytes > 0
    }
}

/// Whether the list of an order to send follows. The transfer in place of which the order stands is
/// then one of which nothing more follows.
///
/// # Errors
/// A breach of the protocol, of a list beneath several sources.
pub(in crate::daemon) fn taken(transfer: &mut Transfer) -> Result<bool, Fault> {
    let Far::Sources { sources, follows, .. } = &mut transfer.far else { return Ok(false) };
    if std::mem::take(follows) != Follows::Names {
        return Ok(false);
    }
    match sources.len() {
        1 => Ok(true),
        _ => Err(Fault::protocol("a list of names beneath another number of sources than one")),
    }
}

/// Hears the list with this digest. `None`: the grant is not about what is read, and any list is
/// meant.
///
/// # Errors
/// [`FaultCode::Denied`](longhaul_core::FaultCode::Denied) if another one comes; else as for the
/// rest of any request.
pub(in crate::daemon) async fn hear(
    reader: &mut ReadHalf,
    digest: Option<Hash32>,
    (memory, client): (&ClientShares, PublicKey),
    mut stop: Stop,
) -> Result<OrderList, Fault> {
    let list = tokio::select! {
        biased;
        code = stop.stopped() => {
            return Err(Fault::new(code, Blame::Local, "the daemon ends before the list of an order was complete"));
        }
        list = hear_parts(reader, Costs::new(memory, client)) => list?,
    };
    digest.map_or(Ok(()), |digest| need_list(Some(&list.names), digest))?;
    Ok(list)
}

async fn hear_parts(reader: &mut ReadHalf, mut costs: Costs<'_>) -> Result<OrderList, Fault> {
    let mut events_bytes = 0;
    let (mut names, mut expected, mut pace) = (PathList::default(), Vec::new(), RequestPace::begin());
    loop {
        let OrderListPart { names: part, last } = match pace.next(reader).await? {
            Message::OrderListPart(part) => part,
            other => return Err(Fault::protocol(format_args!("{} in the middle of a list", other.name()))),
        };
        let said: usize = part.iter().map(said).sum();
        let is_short = said < PART_BYTES_MIN && part.len() < ORDER_LIST_NAMES_MAX;
        if part.len() > ORDER_LIST_NAMES_MAX || said > PAGE_BYTES_MAX || !last && is_short {
            return Err(Fault::protocol("a part of a list that is none"));
        }
        let events: usize = part.iter().map(event_bytes).sum();
        events_bytes += events;
        costs.add(part.iter().map(cost).sum::<u64>() + events as u64)?;
        let bytes: Vec<u8> = part.iter().flat_map(|name| name.path.as_bytes().iter().copied().chain([0])).collect();
        names.append(&bytes).map_err(Fault::protocol)?;
        expected.extend(part.into_iter().filter_map(expectation));
        if last {
            let (names, expected) = (Arc::new(names), Arc::new(expected.into_iter().collect()));
            return Ok(OrderList { names, expected, events_bytes, _claim: costs.into_share() });
        }
        pace.earn(said);
    }
}

/// The file that is expected under a name. `None`: any.
fn expectation(name: OrderListName) -> Option<(RelPath, ExpectedFile)> {
    let expected = match name.expected {
        OrderExpected::Anything => return None,
        OrderExpected::File { bytes, mtime } => ExpectedFile::File { bytes, mtime },
        OrderExpected::Link => ExpectedFile::Link,
    };
    Some((name.path, expected))
}

/// Bytes of a name in a part, without its numbers.
fn said(name: &OrderListName) -> usize {
    name.path.as_bytes().len() + 1
}

/// Bytes of the event of a name of which a file is expected. It has its path twice: at the source
/// and at the destination.
fn event_bytes(name: &OrderListName) -> usize {
    match name.expected {
        OrderExpected::Anything => 0,
        OrderExpected::File { .. } | OrderExpected::Link => EVENT_BYTES + 2 * name.path.as_bytes().len(),
    }
}

/// Bytes of memory that a name takes: in the list; and if a file is expected under it, in the part
/// that it came in and as that file.
fn cost(name: &OrderListName) -> u64 {
    match name.expected {
        OrderExpected::Anything => said(name) as u64,
        OrderExpected::File { .. } | OrderExpected::Link => NAME_COST_BYTES + 3 * name.path.as_bytes().len() as u64,
    }
}

/// The cost of a name of which a file is expected, beside the bytes of its path: guessed from its
/// types.
const NAME_COST_BYTES: u64 = 256;

#[cfg(test)]
mod tests {
    use longhaul_core::{FaultCode, Mtime};
    use longhaul_proto::wire::grant::list_digest;
    use longhaul_proto::wire::message::{FarSource, Flow, OrderTaken};

    use super::*;
    use crate::session::channel::{WriteHalf, write_message};
    use crate::session::handshake::tests::transfer;

    fn name(path: &str, expected: OrderExpected) -> OrderListName {
        OrderListName { path: RelPath::new(path).expect("a path"), expected }
    }

    fn list_of(paths: &[&str]) -> PathList {
        PathList::new(&paths.iter().map(|path| RelPath::new(*path).expect("a path")).collect::<Vec<_>>())
    }

    /// The list that is heard of these messages, which the digest of these names is for.
    async fn heard(messages: Vec<Message>, paths: &[&str]) -> Result<OrderList, Fault> {
        heard_within(messages, paths, 1 << 30).await
    }

    /// The same, where the daemon has so many bytes of memory.
    async fn heard_within(messages: Vec<Message>, paths: &[&str], bytes: u64) -> Result<OrderList, Fault> {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (mut reader, mut writer): (ReadHalf, WriteHalf) = (Box::new(near), Box::new(far));
        for message in messages {
            write_message(&mut writer, &message).await.expect("said");
        }
        drop(writer);
        let memory = ClientShares::new("bytes of memory", bytes, 1 << 30);
        let client = (&memory, PublicKey::from_bytes([1; 32]));
        hear(&mut reader, Some(list_digest(&list_of(paths))), client, Stop::new().1).await
    }

    fn part(names: Vec<OrderListName>, last: bool) -> Message {
        Message::OrderListPart(OrderListPart { names, last })
    }

    #[tokio::test]
    async fn a_list_is_heard_in_parts_with_the_files_that_are_expected() {
        let file = OrderExpected::File { bytes: 3, mtime: Some(Mtime { secs: 5, nanos: 0 }) };
        let many: Vec<String> = (0..ORDER_LIST_NAMES_MAX).map(|n| format!("d/{n:04}")).collect();
        let first = many.iter().map(|path| name(path, file)).collect();
        let rest = vec![name("e", OrderExpected::Link), name("f", OrderExpected::Anything)];
        let all: Vec<&str> = many.iter().map(String::as_str).chain(["e", "f"]).collect();
        let list =
            heard(vec![part(first, false), part(rest, true)], &all).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(*list.names, list_of(&all));
        let of = |path: &str| list.expected.of(&RelPath::new(path).expect("a path")).copied();
        let known = ExpectedFile::File { bytes: 3, mtime: Some(Mtime { secs: 5, nanos: 0 }) };
        assert_eq!((of("d/0007"), of("e"), of("f")), (Some(known), Some(ExpectedFile::Link), None));
        assert!(list.is_counted());
        assert!(heard(vec![part(Vec::new(), true)], &[]).await.is_ok(), "nothing may be meant");
    }

    #[test]
    fn the_list_of_an_order_to_send_lies_beneath_one_source_and_nothing_more_follows() {
        let source = || FarSource { root: "r".try_into().expect("a word"), path: RelPath::root(), contents: true };
        let asked = |count: usize, follows| {
            let sources = (0..count).map(|_| source()).collect();
            Transfer { far: Far::Sources { sources, rules: Vec::new(), follows }, ..transfer(Flow::default()) }
        };
        let mut listed = asked(1, Follows::Names);
        assert_eq!(taken(&mut listed), Ok(true));
        assert_eq!(listed, asked(1, Follows::Nothing));
        assert_eq!(taken(&mut asked(2, Follows::Nothing)), Ok(false));
        for count in [0, 2] {
            assert!(taken(&mut asked(count, Follows::Names)).is_err(), "{count}");
        }
    }

    #[tokio::test]
    async fn names_of_which_nothing_is_expected_are_not_counted_and_cost_their_bytes() {
        let long = "x".repeat(200);
        let paths: Vec<String> = (0..2000).map(|n| format!("{long}/{n:05}")).collect();
        let named: Vec<OrderListName> = paths.iter().map(|path| name(path, OrderExpected::Anything)).collect();
        let parts: Vec<Message> = named.chunks(300).map(|names| part(names.to_vec(), names.len() < 300)).collect();
        let all: Vec<&str> = paths.iter().map(String::as_str).collect();
        let list = heard(parts, &all).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(!list.is_counted());
        assert_eq!(named.iter().map(cost).sum::<u64>(), 2000 * 207);
    }

    #[tokio::test]
    async fn a_part_of_a_list_has_bounds_and_so_has_the_memory_for_it() {
        let of = |count: usize, length: usize| -> Vec<String> {
            let end = vec!["x".repeat(length.min(250)); length.div_ceil(250)].join("/");
            (0..count).map(|n| format!("{n:04}/{end}")).collect()
        };
        let code = |paths: Vec<String>, bytes: u64| async move {
            // Names of which nothing is expected cost no more than their bytes.
            let names = paths.iter().map(|path| name(path, OrderExpected::Link)).collect();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            heard_within(vec![part(names, true)], &paths, bytes).await.err().map(|fault| fault.code)
        };
        let found = [
            code(of(ORDER_LIST_NAMES_MAX, 1), 1 << 30).await,
            code(of(ORDER_LIST_NAMES_MAX + 1, 1), 1 << 30).await,
            code(of(15, 4000), 1 << 30).await,
            code(of(17, 4000), 1 << 30).await,
            code(of(ORDER_LIST_NAMES_MAX, 1), 4096).await,
        ];
        let breach = Some(FaultCode::Protocol);
        assert_eq!(found, [None, breach, None, breach, Some(FaultCode::Busy)]);
    }

    #[tokio::test]
    async fn a_list_that_was_altered_or_is_none_is_refused() {
        let any = |path: &str| name(path, OrderExpected::Anything);
        let code = |messages| async { heard(messages, &["a", "b"]).await.err().map(|fault| fault.code) };
        let found = [
            code(vec![part(vec![any("a"), any("b")], true)]).await,
            code(vec![part(vec![any("a")], true)]).await,
            code(vec![part(vec![any("a"), any("b"), any("c")], true)]).await,
            code(vec![part(vec![any("a"), any("x")], true)]).await,
            code(vec![part(vec![any("b"), any("a")], true)]).await,
            code(vec![part(vec![any("a")], false), part(vec![any("b")], true)]).await,
            code(vec![Message::OrderTaken(OrderTaken { id: [1; 16] })]).await,
            code(Vec::new()).await,
        ];
        let (denied, breach) = (Some(FaultCode::Denied), Some(FaultCode::Protocol));
        assert_eq!(found, [None, denied, denied, denied, breach, breach, breach, Some(FaultCode::Lost)]);
    }
}
