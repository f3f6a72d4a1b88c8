//! Orders a daemon to fetch from another one, or to send there, by a grant that this side signs,
//! and follows it.
//!
//! In: the two daemons, the sources at one of them and the destination at the other. Out: events as
//! the daemon that has the order tells them, and its report. No file passes this side, and its key
//! never leaves it: the grant names the one key that may use it. `list` is for orders about a part
//! of a source; `lending` has the destination keep the claim by which the source then sends it;
//! `following` tells what becomes of it.

mod following;
mod lending;
mod list;

use std::time::{Duration, Instant, SystemTime};

use longhaul_core::{Blame, Fault, FaultCode, IfExists, Role, ShardClaim, Word, hint};
use longhaul_disk::Shape;
use longhaul_net::{Control, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::wire::grant::{
    GRANT_SECONDS_MAX, GRANT_SKEW_SECONDS, GRANT_SOURCES_MAX, Grant, GrantRight, SignedGrant,
};
use longhaul_proto::wire::message::{Far, FarSource, Follows, Order, OrderPlace, OrderStop, Request, Transfer};

use self::following::ORDER_SILENCE_MAX;
use self::list::{OrderNames, OrderScope};
use super::connect::{Reached, connect};
use super::{Run, at_daemon, conclude, contents, missing};
use crate::api::{Credentials, Dialler, Event, ExpectedFiles, Following, Observer, Reach, Remote, RemotePath, Report};
use crate::budget;
use crate::place;
use crate::random::nonce;
use crate::session::channel::write_message;
use crate::session::handshake::{self, Shown, Units};

/// The two ends of a copy between daemons.
struct ThirdParty {
    /// The daemon that sends.
    from: Remote,
    /// The sources there.
    paths: Vec<RemotePath>,
    /// The daemon that receives.
    to: Remote,
    /// The destination there.
    path: RemotePath,
    /// Until when this side follows.
    following: Following,
    /// The daemon that dials the other one.
    dialler: Dialler,
}

impl ThirdParty {
    /// The daemon to which the order goes, and the one that it dials.
    fn ordered(&self) -> (&Remote, &Remote) {
        match self.dialler {
            Dialler::Destination => (&self.to, &self.from),
            Dialler::Source => (&self.from, &self.to),
        }
    }

    /// The sources as requests and grants name them.
    fn sources(&self) -> Vec<FarSource> {
        let source = |p: &RemotePath| FarSource { root: p.root.clone(), path: p.path.clone(), contents: contents(p) };
        self.paths.iter().map(source).collect()
    }
}

/// Has a copy between two daemons carried out. Always gives a report.
pub(super) async fn carried_out(
    run: &Run,
    credentials: Option<Credentials>,
    (from, paths, to, path, (following, dialler)): (Reach, Vec<RemotePath>, Reach, RemotePath, (Following, Dialler)),
    observer: &dyn Observer,
    begun: Instant,
) -> Report {
    let remotes = at_daemon(credentials.clone(), from).and_then(|from| Ok((from, at_daemon(credentials, to)?)));
    let reported = match remotes {
        Ok((from, to)) => {
            let asked = ThirdParty { from, paths, to, path, following, dialler };
            match run.order(&asked).await {
                // Who is to send says at once that there is nothing to send.
                Err(fault) if dialler == Dialler::Source && !following.is_of_earlier() => {
                    match missing::there(&fault, &asked.from, &asked.paths, observer) {
                        Some(totals) => return conclude(Ok(totals), observer, begun),
                        None => Err(fault),
                    }
                }
                reported => reported,
            }
        }
        Err(fault) => Err(fault),
    };
    match reported {
        Ok(report) => {
            report.fault.iter().for_each(|fault| observer.event(Event::Fault(fault.clone())));
            Report { seconds: begun.elapsed().as_secs_f64(), ..report }
        }
        Err(fault) => conclude(Err(fault), observer, begun),
    }
}

impl Run {
    /// Has the copy carried out, and gives the report of the daemon that had the order.
    ///
    /// # Errors
    /// A [`Fault`] of the order; what ends it later is in the report.
    async fn order(&self, asked: &ThirdParty) -> Result<Report, Fault> {
        self.refuse_settings(asked)?;
        let mut stop = self.stop.clone();
        let begun = tokio::select! {
            biased;
            code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the transfer began")),
            begun = self.joined_patiently(asked) => begun,
        };
        let (control, id) = begun?;
        // A source sends a shard by its grant alone. One that says something now and then would
        // else keep the shard, and its place at the mover, for ever.
        let is_sent_shard = asked.dialler == Dialler::Source && self.reading.expected.is_some();
        let over = is_sent_shard.then(|| {
            let granted = shard_grant_time(self.reading.expected.as_deref());
            tokio::time::Instant::now() + granted + BEHIND_SENT_SHARD_MAX
        });
        self.follow((control.reader, control.writer), id, (asked.following, over)).await
    }

    /// As [`Run::joined`]. An order by a list waits while a daemon has no place for it, as pushes
    /// and pulls do.
    async fn joined_patiently(&self, asked: &ThirdParty) -> Result<(Control, [u8; 16]), Fault> {
        let (mut patience, mut stop) = (self.dialling()?.patience, self.stop.clone());
        loop {
            match self.joined(asked).await {
                Err(fault) if fault.code == FaultCode::Busy && self.settings.files_from.is_some() => {
                    patience.wait(fault, None, &self.observer, &mut stop).await?;
                }
                joined => return joined,
            }
        }
    }

    /// Begins an order, or comes back to an earlier one.
    async fn joined(&self, asked: &ThirdParty) -> Result<(Control, [u8; 16]), Fault> {
        let Some(id) = asked.following.earlier() else { return self.begin_order(asked).await };
        let stops = matches!(asked.following, Following::Stopping(_));
        let ordered = asked.ordered().0;
        if stops {
            list::need_stops(ordered).await?;
        }
        let Reached { mut control, .. } = connect(ordered).await?;
        write_message(&mut control.writer, &handshake::hello(Request::Order { id }, Units::Any)).await?;
        need_taken(handshake::answer(&mut control.reader).await?, id)?;
        if stops {
            write_message(&mut control.writer, &Message::OrderStop(OrderStop { id })).await?;
        }
        Ok((control, id))
    }

    /// Asks both daemons. Returns the control connection on which the order was taken, and its
    /// name.
    async fn begin_order(&self, asked: &ThirdParty) -> Result<(Control, [u8; 16]), Fault> {
        let (ordered, dialled) = asked.ordered();
        let Reach::Address { host, port } = &dialled.reach else { return Err(only_daemons()) };
        let scope = self.scope();
        // The key for which the grant is good is the one that this side trusts.
        let audience = match (&scope, asked.dialler) {
            (OrderScope::All, _) => connect(dialled).await?.control.peer_key,
            (OrderScope::ShardList(_), Dialler::Source) => self.lend_claim(asked).await?,
            (OrderScope::UserList(_), Dialler::Source) => {
                list::need_lists(ordered).await?;
                connect(dialled).await?.control.peer_key
            }
            (OrderScope::UserList(_) | OrderScope::ShardList(_), Dialler::Destination) => {
                list::need_lists(ordered).await?;
                // It is the source, and is asked before the destination is shown the claim.
                list::need_lists(dialled).await.map_err(|fault| self.of_source(fault))?
            }
        };
        let Reached { mut control, .. } = connect(ordered).await?;
        let right = match (&scope, asked.dialler) {
            (OrderScope::All, Dialler::Destination) => GrantRight::Read,
            (OrderScope::UserList(list) | OrderScope::ShardList(list), Dialler::Destination) => list.right(),
            (OrderScope::ShardList(list), Dialler::Source) => {
                list.right_to_write(self.publishing.claim, self.settings.if_exists)
            }
            (OrderScope::All | OrderScope::UserList(_), Dialler::Source) => GrantRight::Write,
        };
        let (id, grant) = self.grant((asked, right), audience, control.peer_key)?;
        let (role, far, into) = self.request(asked);
        let transfer = self.in_place((role, far), &control, id)?;
        let transfer = Transfer { digests: self.settings.digests, ..transfer };
        let (claim, dataset) = match into {
            None => (self.publishing.claim, self.publishing.dataset.clone()),
            Some(_) => (None, None),
        };
        let order = Order {
            host: Word::try_from(host.as_str()).map_err(|e| Fault::new(FaultCode::Usage, Blame::Local, e))?,
            port: *port,
            grant,
            rules: self.settings.filter.rules().to_vec(),
            lanes: self.settings.lanes.unwrap_or(0),
            retry_seconds: u32::try_from(self.settings.retry_for.as_secs()).unwrap_or(u32::MAX),
            into,
        };
        let shown = Shown { claim, dataset, order: Some(Box::new(order)), ..Shown::default() };
        let hello = handshake::hello(Request::Transfer(Box::new(transfer)), Units::Any);
        let said = shown.around(hello).chain(scope.list().into_iter().flat_map(OrderNames::parts));
        let patience = shown.patience(Some(handshake::TAKE_OVER));
        let (reader, writer) = (&mut control.reader, &mut control.writer);
        need_taken(handshake::answer_to(reader, writer, said, patience).await?, id)?;
        // A destination that keeps none refuses the order.
        shown.claim.iter().for_each(|_| self.observer.claim_kept());
        Ok((control, id))
    }

    /// The part of its sources that an order of this run is about.
    fn scope(&self) -> OrderScope<'_> {
        OrderScope::of(self.settings.files_from.as_deref(), self.reading.expected.as_deref())
    }

    /// The transfer of this run to or from such a place which something else stands for.
    fn in_place(&self, (role, far): (Role, Far), control: &Control, run: [u8; 16]) -> Result<Transfer, Fault> {
        let chunk_max = budget::largest_chunk(self.settings.memory, self.settings.chunk_size());
        let slots = budget::slots(self.settings.memory, self.settings.chunk_size())?;
        let lanes = self.lanes_wanted(control.rtt, slots, self.transport());
        self.transfer(role, far, run, chunk_max, lanes)
    }

    /// The transfer in place of which the order stands, and where it sends to, if it does.
    fn request(&self, asked: &ThirdParty) -> (Role, Far, Option<OrderPlace>) {
        let RemotePath { root, path, slash } = asked.path.clone();
        let has_contents = asked.paths.iter().any(contents);
        let placing = place::placing(self.is_dataset() || slash, asked.paths.len(), has_contents, &Shape::Other);
        let if_exists = self.settings.if_exists;
        match asked.dialler {
            Dialler::Destination => (Role::Sender, Far::Destination { root, path, placing, if_exists }, None),
            Dialler::Source => {
                let (sources, rules) = (asked.sources(), self.settings.filter.rules().to_vec());
                // They come behind the order. Those of a shard are announced by its grant.
                let follows = match self.scope() {
                    OrderScope::UserList(_) => Follows::Names,
                    OrderScope::All | OrderScope::ShardList(_) => Follows::Nothing,
                };
                let into = OrderPlace { root, path, placing, if_exists, dataset: self.publishing.dataset.clone() };
                (Role::Receiver, Far::Sources { sources, rules, follows }, Some(into))
            }
        }
    }

    /// Signs a grant: the daemon of one key may fetch the sources from that of another, or send to
    /// the destination there, by this right.
    fn grant(
        &self,
        (asked, right): (&ThirdParty, GrantRight),
        audience: PublicKey,
        holder: PublicKey,
    ) -> Result<([u8; 16], SignedGrant), Fault> {
        let identity = &asked.to.credentials.identity;
        let sources = match asked.dialler {
            Dialler::Destination => asked.sources(),
            Dialler::Source => {
                let RemotePath { root, path, .. } = asked.path.clone();
                vec![FarSource { root, path, contents: false }]
            }
        };
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let grant = Grant {
            id: nonce()?,
            issuer: *identity.public().as_bytes(),
            holder: *holder.as_bytes(),
            audience: *audience.as_bytes(),
            right,
            sources,
            not_before: since_1970.as_secs(),
            not_after: since_1970.as_secs()
                + grant_seconds(self.publishing.claim.as_ref(), self.reading.expected.as_deref()),
        };
        let signed = grant.signed(|bytes| identity.sign(bytes)).map_err(|_| {
            let why = format_args!("one grant names {GRANT_SOURCES_MAX} sources and 16 KiB of paths at most");
            Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Names::NameDirectories)
        })?;
        Ok((grant.id, signed))
    }

    /// Refuses what only the host of the sources could do, or that of the destination.
    fn refuse_settings(&self, asked: &ThirdParty) -> Result<(), Fault> {
        if !matches!((&asked.from.reach, &asked.to.reach), (Reach::Address { .. }, Reach::Address { .. })) {
            return Err(only_daemons());
        }
        let is_sent = asked.dialler == Dialler::Source;
        let scope = self.scope();
        let sends_shard = is_sent && matches!(scope, OrderScope::ShardList(_));
        // What is sent of a shard goes beneath the destination name by name.
        let is_beneath = asked.path.slash && asked.paths.iter().all(contents);
        let compares = self.settings.if_exists == IfExists::Verify;
        let (is_earlier, tells_more) =
            (asked.following.is_of_earlier(), self.settings.digests || self.settings.dry_run);
        let refused = [
            (scope.list().is_some() && asked.paths.len() != 1, "a list of names beneath several sources"),
            (sends_shard && !is_beneath, "a list of names that are not beneath a directory"),
            (!self.settings.paths.is_empty(), "a path of this host's addresses"),
            (self.settings.metadata.accounts != Default::default(), "a mapping of accounts"),
            (self.publishing.part.is_some(), "a part of a campaign's dataset"),
            // It is lent by the grant of a shard alone.
            (self.publishing.claim.is_some() && is_sent && !sends_shard, "a claim, where the source dials,"),
            // Reading what stands there is lent by that too. An earlier order has its own rule.
            (compares && is_sent && !sends_shard && !is_earlier, "a comparison of digests, where the source dials,"),
            (tells_more && sends_shard, "digests of what stays, or a dry run, of a shard where the source dials,"),
            (self.is_dataset() && sends_shard, "a dataset of a list, where the source dials,"),
        ];
        let Some((_, what)) = refused.iter().find(|(is_asked, _)| *is_asked) else { return Ok(()) };
        let why = format_args!("{what} cannot be given for a copy from one daemon to another");
        Err(Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Program::PullThenPush))
    }
}

/// Seconds for which the grant of an order is good: no session begins by it later. The order of a
/// mover has a claim, or files that are expected where the destination keeps no claims, and what
/// its grant lends should not outlive the shard's lease by long: it may be cancelled, or lost to
/// another mover, which signs a grant of its own.
fn grant_seconds(claim: Option<&ShardClaim>, expected: Option<&ExpectedFiles>) -> u64 {
    match (claim, expected) {
        (None, None) => GRANT_SECONDS_MAX,
        _ => shard_grant_time(expected).as_secs(),
    }
}

/// The time for which the grant of an order is good that moves files of a shard, of which these are
/// expected (`None`: nothing is known of them). It is an hour, and the time in which the largest of
/// them is read twice at 100 MB/s, but no more than the day that any grant may last: what is
/// compared, or continued, is read before it is sent, and begins anew with each grant.
///
/// An order that lasts longer goes on, and ends as lost if its link breaks then, or where the
/// source sends, when the destination ends its session: whoever gives the next one by the same
/// claim goes on where it ended. A shorter time would end more orders so, and a longer one lends
/// for longer.
pub fn shard_grant_time(expected: Option<&ExpectedFiles>) -> Duration {
    let reading = 2 * (expected.map_or(0, ExpectedFiles::largest) / READ_PER_S_MIN);
    SHARD_GRANT_TIME_MIN.saturating_add(Duration::from_secs(reading)).min(Duration::from_secs(GRANT_SECONDS_MAX))
}

/// The time for which the grant of a shard of small files is good.
const SHARD_GRANT_TIME_MIN: Duration = Duration::from_secs(3600);
/// Bytes of a large file that a host reads in a second, if it is slow. A busy file system that many
/// share gives about so much to one reader, and so does one rotating disk. A host with half of it
/// still compares a file in time, as that reads it once.
const READ_PER_S_MIN: u64 = 100_000_000;
/// The time behind that of its grant after which nothing can come of an order to send a shard,
/// though the daemon speaks: the destination ends the last session of the grant by then, even if
/// its clock is behind this one by as much as it may be, and admits none later.
const BEHIND_SENT_SHARD_MAX: Duration = Duration::from_secs(2 * GRANT_SKEW_SECONDS + ORDER_SILENCE_MAX.as_secs());

/// Refuses every answer but that the order of this name goes on at the daemon.
fn need_taken(answer: Message, id: [u8; 16]) -> Result<(), Fault> {
    match answer {
        Message::OrderTaken(taken) if taken.id == id => Ok(()),
        Message::Welcome(_) => {
            let why = "the daemon does not know how to carry out an order";
            Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::PullThenPush))
        }
        other => Err(Fault::protocol(format_args!("{} in answer to an order", other.name()))),
    }
}

fn only_daemons() -> Fault {
    let why = "a copy between two other hosts is one between two daemons, and ssh leads to one of them";
    Fault::new(FaultCode::Usage, Blame::Local, why).hint(hint::Program::PullThenPush)
}

#[cfg(test)]
mod tests {
    mod settings;

    use longhaul_core::RelPath;
    use longhaul_proto::wire::message::OrderTaken;

    use super::*;
    use crate::api::ExpectedFile;
    use crate::session::handshake::tests::welcome;

    #[test]
    fn the_grant_of_a_shard_lasts_an_hour_and_that_of_a_users_copy_a_day() {
        let claim = ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] };
        assert_eq!((grant_seconds(Some(&claim), None), grant_seconds(None, None)), (3600, 86_400));
        let expected = ExpectedFiles::default();
        assert_eq!(grant_seconds(None, Some(&expected)), 3600, "a shard whose destination keeps no claims");
    }

    #[test]
    fn the_grant_of_a_shard_lasts_until_its_largest_file_can_have_been_read_twice_and_a_day_at_most() {
        let file = |name: &str, bytes| (RelPath::new(name).expect("valid"), ExpectedFile::File { bytes, mtime: None });
        let link = (RelPath::new("link").expect("valid"), ExpectedFile::Link);
        let lasts = |bytes| {
            let files = [file("a", 1000), file("b", bytes), file("c", 50_000_000), link.clone()];
            shard_grant_time(Some(&files.into_iter().collect())).as_secs()
        };
        assert_eq!((shard_grant_time(None).as_secs(), lasts(0), lasts(90_000_000)), (3600, 3600, 3600));
        assert_eq!(lasts(360_000_000_000), 3600 + 7200);
        assert_eq!(lasts(4_000_000_000_000), 3600 + 80_000, "read twice in 22 hours");
        for bytes in [5_000_000_000_000, u64::MAX] {
            assert_eq!(lasts(bytes), GRANT_SECONDS_MAX, "{bytes}");
        }
        let claim = ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] };
        let expected = [file("a", u64::MAX)].into_iter().collect();
        assert_eq!(grant_seconds(Some(&claim), Some(&expected)), GRANT_SECONDS_MAX);
    }

    #[test]
    fn an_order_was_taken_if_the_daemon_says_so_by_its_name() {
        let answered = |answer| need_taken(answer, [1; 16]).map_err(|fault| fault.code);
        assert_eq!(answered(Message::OrderTaken(OrderTaken { id: [1; 16] })), Ok(()));
        assert_eq!(answered(Message::OrderTaken(OrderTaken { id: [2; 16] })), Err(FaultCode::Protocol));
        assert_eq!(answered(Message::Welcome(welcome(0))), Err(FaultCode::Unsupported), "of an older build");
    }
}
