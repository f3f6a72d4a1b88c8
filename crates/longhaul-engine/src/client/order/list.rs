//! The part of its sources that an order is about: all of them, or the names of a list, be it a
//! shard's or a user's own; and what a daemon knows to do with orders.
//!
//! In: the names, and the files that are expected under them; or a daemon. Out: the right of a
//! grant that names the list by its digest, and the messages that carry it; or the daemon's key, if
//! it knows how. It signs nothing and gives no order.

use longhaul_core::limits::PAGE_BYTES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, IfExists, PathList, RelPath, ShardClaim, hint};
use longhaul_net::PublicKey;
use longhaul_proto::Message;
use longhaul_proto::wire::grant::{GrantRight, ListedWrite, list_digest};
use longhaul_proto::wire::message::{
    ORDER_LIST_NAMES_MAX, OrderExpected, OrderListName, OrderListPart, OrderSkills, Request,
};

use crate::api::{ExpectedFile, ExpectedFiles, Remote};
use crate::client::connect::{Reached, connect};
use crate::session::channel::write_message;
use crate::session::handshake::{self, Shown, Units};

/// The part of its sources that an order is about.
pub(super) enum OrderScope<'n> {
    /// All that lies beneath them.
    All,
    /// A list of a user's own (`--files-from`). Its names may be of anything, and of directories.
    UserList(OrderNames<'n>),
    /// The list of a shard, with the file that is expected under each name. Its grant says it.
    ShardList(OrderNames<'n>),
}

/// The names of an order.
pub(super) struct OrderNames<'n> {
    names: &'n PathList,
    /// The files that are expected under them. `None`: any.
    expected: Option<&'n ExpectedFiles>,
}

impl<'n> OrderScope<'n> {
    /// These names, with what is expected under them. Only a shard's are expected, and no names are
    /// all.
    pub(super) fn of(names: Option<&'n PathList>, expected: Option<&'n ExpectedFiles>) -> OrderScope<'n> {
        match (names, expected) {
            (None, _) => OrderScope::All,
            (Some(names), None) => OrderScope::UserList(OrderNames { names, expected }),
            (Some(names), Some(_)) => OrderScope::ShardList(OrderNames { names, expected }),
        }
    }

    /// The list that goes with the order. `None`: it is about all.
    pub(super) fn list(&self) -> Option<&OrderNames<'n>> {
        match self {
            OrderScope::All => None,
            OrderScope::UserList(list) | OrderScope::ShardList(list) => Some(list),
        }
    }
}

impl OrderNames<'_> {
    /// The right to read them and nothing else.
    pub(super) fn right(&self) -> GrantRight {
        GrantRight::ReadListed(list_digest(self.names))
    }

    /// The right to write them, and nothing else, by this claim and this rule for names that
    /// stand.
    pub(super) fn right_to_write(&self, claim: Option<ShardClaim>, if_exists: IfExists) -> GrantRight {
        GrantRight::WriteListed(ListedWrite { list: list_digest(self.names), claim, if_exists })
    }

    /// The messages behind the order. The last one is marked as such.
    pub(super) fn parts(&self) -> impl Iterator<Item = Message> + '_ {
        let (mut names, mut is_over) = (self.names.iter().peekable(), false);
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let (mut part, mut bytes) = (Vec::new(), 0);
            while part.len() < ORDER_LIST_NAMES_MAX
                && let Some(path) = names.next_if(|path| bytes + path.as_bytes().len() < PAGE_BYTES_MAX)
            {
                bytes += path.as_bytes().len() + 1;
                part.push(self.name(path));
            }
            is_over = names.peek().is_none();
            Some(Message::OrderListPart(OrderListPart { names: part, last: is_over }))
        })
    }

    fn name(&self, path: RelPath) -> OrderListName {
        let expected = match self.expected.and_then(|expected| expected.of(&path)) {
            None => OrderExpected::Anything,
            Some(ExpectedFile::File { bytes, mtime }) => OrderExpected::File { bytes: *bytes, mtime: *mtime },
            Some(ExpectedFile::Link) => OrderExpected::Link,
        };
        OrderListName { path, expected }
    }
}

/// The key of a daemon that takes lists in orders and in grants.
///
/// # Errors
/// [`FaultCode::Unsupported`] of one that does not, and the faults of the way there.
pub(super) async fn need_lists(remote: &Remote) -> Result<PublicKey, Fault> {
    let (key, skills) = skills(remote, Shown { asks_skills: true, ..Shown::default() }).await?;
    if skills.is_some_and(|skills| skills.lists) {
        return Ok(key);
    }
    Err(unknown(remote, "orders by a list of names"))
}

/// The key of a daemon that knows grants to write the names of a list by a claim that they lend.
///
/// # Errors
/// See [`need_lists`].
pub(super) async fn need_lending(remote: &Remote) -> Result<PublicKey, Fault> {
    let (key, skills) = skills(remote, Shown { lends: true, ..Shown::default() }).await?;
    if skills.is_some_and(|skills| skills.lists) {
        return Ok(key);
    }
    Err(unknown(remote, "shards that the source sends by the claim of a mover"))
}

fn unknown(remote: &Remote, what: &str) -> Fault {
    let why = format_args!("the daemon at {} does not know {what}", remote.reach);
    Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(&remote.reach).hint(hint::Program::UpdateBothDaemons)
}

/// Refuses a daemon that cannot stop an order which was left.
///
/// # Errors
/// See [`need_lists`].
pub(super) async fn need_stops(remote: &Remote) -> Result<(), Fault> {
    let asked = Shown { asks_skills: true, ..Shown::default() };
    if skills(remote, asked).await?.1.is_some_and(|skills| skills.stops) {
        return Ok(());
    }
    let why = format_args!("the daemon at {} does not know how to stop an order that was left", remote.reach);
    Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why)
        .about(&remote.reach)
        .hint(hint::Program::UpdateOrStopThere))
}

/// The key of a daemon, and what it knows to do with orders, as it is asked so. `None`: an older
/// build, which knows nothing of this.
async fn skills(remote: &Remote, asked: Shown) -> Result<(PublicKey, Option<OrderSkills>), Fault> {
    let Reached { mut control, ways: _ways } = connect(remote).await?;
    let hello = handshake::hello(Request::Roots, Units::Any);
    write_message(&mut control.writer, &asked.announced_by(hello)).await?;
    match handshake::answer(&mut control.reader).await? {
        Message::OrderSkills(skills) => Ok((control.peer_key, Some(skills))),
        Message::Listing(_) => Ok((control.peer_key, None)),
        other => Err(Fault::protocol(format_args!("{} where it was asked about orders", other.name()))),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::Mtime;

    use super::*;

    #[test]
    fn names_are_a_shards_if_files_are_expected_under_them_and_else_a_users() {
        let (names, expected) = (PathList::default(), ExpectedFiles::default());
        assert!(matches!(OrderScope::of(Some(&names), Some(&expected)), OrderScope::ShardList(_)));
        assert!(matches!(OrderScope::of(Some(&names), None), OrderScope::UserList(_)));
        for expected in [None, Some(&expected)] {
            assert!(OrderScope::of(None, expected).list().is_none());
        }
    }

    #[test]
    fn a_list_is_said_in_messages_of_a_bounded_length_with_what_is_expected() {
        let long = "x".repeat(200);
        for count in [0_u32, 1, 1024, 1025, 5000] {
            let paths: Vec<RelPath> =
                (0..count).map(|n| RelPath::new(format!("{long}/{n:05}")).expect("a path")).collect();
            let file = ExpectedFile::File { bytes: 7, mtime: Some(Mtime { secs: 1, nanos: 2 }) };
            let expected: ExpectedFiles = paths.iter().skip(1).map(|path| (path.clone(), file)).collect();
            let list = PathList::new(&paths);
            let (mut told, mut lasts) = (Vec::new(), Vec::new());
            let scope = OrderScope::of(Some(&list), Some(&expected));
            for message in scope.list().into_iter().flat_map(OrderNames::parts) {
                assert!(message.try_encode().is_ok(), "every part fits a message");
                let Message::OrderListPart(part) = message else { panic!("a part") };
                assert!(part.names.len() <= ORDER_LIST_NAMES_MAX);
                told.extend(part.names);
                lasts.push(part.last);
            }
            assert!(told.iter().map(|name| &name.path).eq(&paths), "{count}");
            let anything = told.iter().filter(|name| name.expected == OrderExpected::Anything).count();
            assert_eq!(anything, usize::from(count > 0), "the first is any file");
            assert!(lasts.last() == Some(&true) && lasts.iter().filter(|last| **last).count() == 1);
        }
    }
}
