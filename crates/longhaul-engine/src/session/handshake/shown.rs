//! Shows behind the hello of an initiator that sends: a claim on a shard, the name of a dataset;
//! behind any hello of a transfer an order; and before one a grant. A hello that lists may ask for
//! something else than names.
//!
//! In: bits of a hello, and the messages around it. Out: [`Shown`] to the acceptor, and to the
//! initiator whether its acceptor does what was asked. It keeps no claim, stages nothing, judges no
//! grant and carries out no order.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, DatasetName, DatasetPart, Fault, FaultCode, Hash32, PathList, ShardClaim, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::grant::SignedGrant;
use longhaul_proto::wire::message::{
    CAP_BY_GRANT, CAP_CLAIM, CAP_DATASET, CAP_DATASET_PART, CAP_LENDS_CLAIM, CAP_ORDER, CAP_ORDER_SKILLS, CAP_READING,
    CAP_REMOVAL, CAP_WHEREABOUTS, Far, Follows, Hello, Order, Request, Transfer, Welcome,
};

use super::{answer, unexpected};
use crate::session::channel::ReadHalf;

/// The claim, the dataset and the order that an initiator that sends shows behind its hello, the
/// grant that it shows before it, and whether one that lists has names moved away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Its claim. `None`: it needs none.
    pub(crate) claim: Option<ShardClaim>,
    /// The name under which all files shall appear together. `None`: each appears when it is done.
    pub(crate) dataset: Option<DatasetName>,
    /// The part of it that the session brings, of a dataset of the claim's campaign. `None`: all
    /// of it.
    pub(crate) part: Option<DatasetPart>,
    /// The order to fetch instead of receiving. `None`: it sends itself.
    pub(crate) order: Option<Box<Order>>,
    /// The grant by which it asks. `None`: by its own rights.
    pub(crate) grant: Option<SignedGrant>,
    /// Whether it knows the right to have names moved away, or is here for that: beside a request
    /// to list a path, names beneath that are to go.
    pub(crate) removes: bool,
    /// Whether it asks where a directory lies, and for no names.
    pub(crate) locates: bool,
    /// Whether it has files read where they lie, and asks for no names.
    pub(crate) reads: bool,
    /// Whether it asks what is known here to do with orders, and for no roots.
    pub(crate) asks_skills: bool,
    /// Whether it lends a claim by a grant: it asks whether that is known here, and for no roots;
    /// or it has the claim kept that it shows, and sends nothing.
    pub(crate) lends: bool,
    /// The digest of the list of names that its grant is for, once that was honoured. `None`: it is
    /// bound to none. No message says it.
    pub(crate) list: Option<Hash32>,
    /// The names that an order is to send, once they have come behind it. `None`: all that its
    /// sources have. No message of a hello says it.
    pub(crate) names: Option<Arc<PathList>>,
}

impl Shown {
    /// The same hello, which announces this.
    pub(crate) fn announced_by(&self, hello: Message) -> Message {
        let claim = if self.claim.is_some() { CAP_CLAIM } else { 0 };
        let dataset = if self.dataset.is_some() { CAP_DATASET } else { 0 };
        let order = if self.order.is_some() { CAP_ORDER } else { 0 };
        let removes = if self.removes { CAP_REMOVAL } else { 0 };
        let locates = if self.locates { CAP_WHEREABOUTS } else { 0 };
        let part = if self.part.is_some() { CAP_DATASET_PART } else { 0 };
        let reads = if self.reads { CAP_READING } else { 0 };
        let skills = if self.asks_skills { CAP_ORDER_SKILLS } else { 0 };
        let lends = if self.lends { CAP_LENDS_CLAIM } else { 0 };
        let announced = claim | dataset | part | order | removes | locates | reads | skills | lends;
        match hello {
            Message::Hello(hello) => Message::Hello(Hello { caps: hello.caps | announced, ..hello }),
            other => other,
        }
    }

    /// How long the answer is waited for, where an acceptor has so much more to do before.
    pub(crate) fn patience(&self, more: Option<Duration>) -> Duration {
        let lends = |grant: &SignedGrant| grant.read().is_ok_and(|grant| grant.claim().is_some());
        let keeps = self.claim.is_some() || self.grant.as_ref().is_some_and(lends);
        super::patience([more, keeps.then_some(super::CLAIM_KEPT)])
    }

    /// The messages around a hello, with that.
    pub(crate) fn around(&self, hello: Message) -> impl Iterator<Item = Message> + use<> {
        let grant = self.grant.clone().map(Message::ShownGrant);
        let (claim, dataset) = (self.claim.map(Message::ShownClaim), self.dataset.clone().map(Message::AsDataset));
        let order = self.order.as_deref().cloned().map(Message::Order);
        let part = self.part.clone().map(Message::DatasetPart);
        grant.into_iter().chain([self.announced_by(hello)]).chain(claim).chain(dataset).chain(part).chain(order)
    }

    /// Refuses a destination that does not keep the claim that was shown, as an older build would
    /// publish whatever another mover does; and one that does not stage the dataset, of which it
    /// would have each file appear by itself.
    pub(crate) fn need(&self, welcome: &Welcome) -> Result<(), Fault> {
        // No try without a claim would help: the code is not the one of a destination without them.
        if self.part.is_some() && welcome.caps & CAP_DATASET_PART == 0 {
            let why = "the other side does not know how to have all files of a campaign appear together";
            let hint = hint::Program::UpdateOrMoveFiles;
            return Err(Fault::new(FaultCode::Usage, Blame::Peer, why).hint(hint));
        }
        if self.claim.is_some() && welcome.caps & CAP_CLAIM == 0 {
            let why = "the other side does not know how to keep a claim on a shard";
            let hint = hint::Program::UpdateOrShowNoClaim;
            return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint));
        }
        if self.dataset.is_some() && welcome.caps & CAP_DATASET == 0 {
            let why = "the other side does not know how to have all files of a dataset appear together";
            let hint = hint::Program::UpdateOrMoveFiles;
            return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint));
        }
        if self.grant.is_some() && welcome.caps & CAP_BY_GRANT == 0 {
            return Err(Fault::protocol("a grant was shown, and the other side does not say that it honours it"));
        }
        Ok(())
    }
}

/// Reads what a hello with these bits announces.
pub(super) async fn hear_shown(reader: &mut ReadHalf, caps: u64, request: &Request) -> Result<Shown, Fault> {
    let claim = if caps & CAP_CLAIM != 0 { Some(hear_claim(reader, request).await?) } else { None };
    let dataset = if caps & CAP_DATASET != 0 { Some(hear_dataset(reader, request).await?) } else { None };
    let part = if caps & CAP_DATASET_PART != 0 { Some(hear_part(reader, (&claim, &dataset)).await?) } else { None };
    let order = if caps & CAP_ORDER != 0 { Some(hear_order(reader, request).await?) } else { None };
    let removes = caps & CAP_REMOVAL != 0 && matches!(request, Request::Roots | Request::List { .. });
    let locates = caps & CAP_WHEREABOUTS != 0 && matches!(request, Request::List { .. });
    let reads = caps & CAP_READING != 0 && matches!(request, Request::List { .. });
    let asks_skills = caps & CAP_ORDER_SKILLS != 0 && matches!(request, Request::Roots);
    let lends = caps & CAP_LENDS_CLAIM != 0 && (claim.is_some() || matches!(request, Request::Roots));
    if lends && (order.is_some() || dataset.is_some()) {
        return Err(Fault::protocol("a claim that is only to be kept, beside something that is to be done"));
    }
    Ok(Shown { claim, dataset, part, order, removes, locates, reads, asks_skills, lends, ..Shown::default() })
}

/// Reads the claim that a hello announces. Only a destination keeps one, and none in a dry run.
async fn hear_claim(reader: &mut ReadHalf, request: &Request) -> Result<ShardClaim, Fault> {
    let keeps = |transfer: &Transfer| !transfer.dry_run && matches!(transfer.far, Far::Destination { .. });
    let Message::ShownClaim(claim) = answer(reader).await? else { return Err(unexpected()) };
    match request {
        Request::Transfer(transfer) if keeps(transfer) => Ok(claim),
        _ => Err(Fault::protocol("a claim for something that publishes nothing here")),
    }
}

/// Reads the name of the dataset that a hello announces. Only a destination stages one.
async fn hear_dataset(reader: &mut ReadHalf, request: &Request) -> Result<DatasetName, Fault> {
    let Message::AsDataset(name) = answer(reader).await? else { return Err(unexpected()) };
    match request {
        Request::Transfer(transfer) if matches!(transfer.far, Far::Destination { .. }) => Ok(name),
        _ => Err(Fault::protocol("a dataset for something that is not received here")),
    }
}

/// Reads the part of a campaign's dataset that a hello announces. The campaign is that of the
/// claim.
async fn hear_part(
    reader: &mut ReadHalf,
    shown: (&Option<ShardClaim>, &Option<DatasetName>),
) -> Result<DatasetPart, Fault> {
    let Message::DatasetPart(part) = answer(reader).await? else { return Err(unexpected()) };
    match shown {
        (Some(_), Some(_)) => Ok(part),
        _ => Err(Fault::protocol("a part of a campaign's dataset without a claim or a name")),
    }
}

/// Reads the order that a hello announces. Only into a destination can be fetched, and only sources
/// can be sent.
async fn hear_order(reader: &mut ReadHalf, request: &Request) -> Result<Box<Order>, Fault> {
    let Message::Order(order) = answer(reader).await? else { return Err(unexpected()) };
    match request {
        Request::Transfer(transfer) => match (&transfer.far, &order.into) {
            (Far::Destination { .. }, None) => Ok(Box::new(order)),
            (Far::Sources { follows: Follows::Nothing | Follows::Names, .. }, Some(_)) => Ok(Box::new(order)),
            _ => Err(Fault::protocol("an order that its request contradicts")),
        },
        _ => Err(Fault::protocol("an order for something that is no transfer")),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::wire::message::{Flow, OrderPlace};

    use super::super::tests::{transfer, welcome};
    use super::super::{Units, hear, hello};
    use super::*;
    use crate::session::channel::{WriteHalf, write_message};

    fn order() -> Order {
        let host = "host.example".try_into().expect("a word");
        let (grant, rules) = (SignedGrant { body: vec![7; 300], signature: [[1; 32], [2; 32]] }, Vec::new());
        Order { host, port: 7214, grant, rules, lanes: 3, retry_seconds: 600, into: None }
    }

    const CLAIM: ShardClaim = ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] };

    /// The part of it that an acceptor hears of this, shown for a transfer to this end.
    async fn heard(shown: &Shown, far: Far, dry_run: bool) -> Result<Shown, FaultCode> {
        let (near, far_end) = tokio::io::duplex(4096);
        let (mut reader, mut writer): (ReadHalf, WriteHalf) = (Box::new(near), Box::new(far_end));
        let transfer = Transfer { far, dry_run, ..transfer(Flow::default()) };
        let hello = hello(Request::Transfer(Box::new(transfer)), Units::Any);
        for message in shown.around(hello) {
            write_message(&mut writer, &message).await.expect("said");
        }
        hear(&mut reader).await.map(|heard| heard.shown).map_err(|fault| fault.code)
    }

    #[tokio::test]
    async fn what_is_shown_is_heard_right_behind_the_hello_of_a_push_alone() {
        let push = || Far::Destination {
            root: "data".try_into().expect("a word"),
            path: longhaul_core::RelPath::root(),
            placing: longhaul_proto::wire::message::Placing::Beneath,
            if_exists: longhaul_core::IfExists::Fail,
        };
        let memory = || Far::Memory { bytes: 1, millis: 0 };
        let name = DatasetName::new("run-7").expect("a name");
        let claim = Shown { claim: Some(CLAIM), ..Shown::default() };
        let dataset = Shown { dataset: Some(name.clone()), ..Shown::default() };
        let order = Shown { order: Some(Box::new(order())), ..Shown::default() };
        let all = Shown { claim: Some(CLAIM), dataset: Some(name), ..order.clone() };
        let part = Shown { part: Some(DatasetPart::Commit), order: None, ..all.clone() };
        for (shown, takes_dry_run) in [(claim, false), (dataset, true), (order, true), (all, false), (part, false)] {
            assert_eq!(heard(&shown, push(), false).await, Ok(shown.clone()));
            let planned = if takes_dry_run { Ok(shown.clone()) } else { Err(FaultCode::Protocol) };
            assert_eq!(heard(&shown, push(), true).await, planned);
            assert_eq!(heard(&shown, memory(), false).await, Err(FaultCode::Protocol));
        }
        assert_eq!(heard(&Shown::default(), memory(), false).await, Ok(Shown::default()));
        let kept = Shown { claim: Some(CLAIM), lends: true, ..Shown::default() };
        assert_eq!(heard(&kept, push(), false).await, Ok(kept.clone()));
        let orders = Shown { order: Some(Box::new(self::order())), ..kept.clone() };
        let staged = Shown { dataset: DatasetName::new("run-7").ok(), ..kept };
        for more in [orders, staged] {
            assert_eq!(heard(&more, push(), false).await, Err(FaultCode::Protocol), "it keeps a claim alone");
        }
        let alone = Shown { part: Some(DatasetPart::Commit), ..Shown::default() };
        assert_eq!(heard(&alone, push(), false).await, Err(FaultCode::Protocol), "of no campaign");
    }

    #[tokio::test]
    async fn a_hello_that_lists_says_that_names_are_to_be_moved_away_and_no_other_does() {
        let path = longhaul_core::RelPath::root;
        let root = || "data".try_into().expect("a word");
        let transfer = Request::Transfer(Box::new(transfer(Flow::default())));
        for (request, heard_so) in [
            (Request::List { root: root(), path: path() }, true),
            (Request::Roots, true),
            (Request::Partials { root: root(), path: path() }, false),
            (transfer, false),
        ] {
            let (near, far_end) = tokio::io::duplex(4096);
            let (mut reader, mut writer): (ReadHalf, WriteHalf) = (Box::new(near), Box::new(far_end));
            let shown = Shown { removes: true, ..Shown::default() };
            write_message(&mut writer, &shown.announced_by(hello(request, Units::Any))).await.expect("said");
            assert_eq!(hear(&mut reader).await.expect("a hello").shown.removes, heard_so);
        }
    }

    #[test]
    fn an_older_build_does_neither_and_is_refused() {
        let claim = Shown { claim: Some(CLAIM), ..Shown::default() };
        let dataset = Shown { dataset: DatasetName::new("run-7").ok(), ..Shown::default() };
        for (shown, bit) in [(claim, CAP_CLAIM), (dataset, CAP_DATASET)] {
            assert_eq!(shown.need(&welcome(bit)), Ok(()));
            assert_eq!(shown.need(&welcome(!bit)).map_err(|fault| fault.code), Err(FaultCode::Unsupported));
        }
        let part = Shown { part: Some(DatasetPart::Commit), claim: Some(CLAIM), ..Shown::default() };
        assert_eq!(part.need(&welcome(CAP_CLAIM | CAP_DATASET_PART)), Ok(()));
        assert_eq!(part.need(&welcome(!CAP_DATASET_PART)).map_err(|fault| fault.code), Err(FaultCode::Usage));
        let grant = Shown { grant: Some(SignedGrant::default()), ..Shown::default() };
        assert_eq!(grant.need(&welcome(CAP_BY_GRANT)), Ok(()));
        assert_eq!(grant.need(&welcome(!CAP_BY_GRANT)).map_err(|fault| fault.code), Err(FaultCode::Protocol));
        assert_eq!(Shown::default().need(&welcome(0)), Ok(()));
    }

    #[tokio::test]
    async fn an_order_stands_behind_the_hello_of_a_transfer_in_its_own_direction_alone() {
        let (path, root) = (longhaul_core::RelPath::root, || "data".try_into().expect("a word"));
        let placing = longhaul_proto::wire::message::Placing::Beneath;
        let (if_exists, dataset) = (longhaul_core::IfExists::Fail, None);
        let into = Some(OrderPlace { root: root(), path: path(), placing, if_exists, dataset });
        let fetch = || Shown { order: Some(Box::new(order())), ..Shown::default() };
        let send = || Shown { order: Some(Box::new(Order { into: into.clone(), ..order() })), ..Shown::default() };
        let there = || Far::Destination { root: root(), path: path(), placing, if_exists };
        let from = |follows| Far::Sources { sources: Vec::new(), rules: Vec::new(), follows };
        let breach = || Err(FaultCode::Protocol);
        for (shown, far, is_heard) in [
            (fetch(), there(), true),
            (send(), from(Follows::Nothing), true),
            (send(), there(), false),
            (fetch(), from(Follows::Nothing), false),
            (send(), from(Follows::Names), true),
            (send(), from(Follows::Sources), false),
        ] {
            let wanted = if is_heard { Ok(shown.clone()) } else { breach() };
            assert_eq!(heard(&shown, far.clone(), false).await, wanted, "{far:?}");
        }
        for request in [Request::Roots, Request::List { root: root(), path: path() }] {
            let (near, far_end) = tokio::io::duplex(4096);
            let (mut reader, mut writer): (ReadHalf, WriteHalf) = (Box::new(near), Box::new(far_end));
            for message in fetch().around(hello(request, Units::Any)) {
                write_message(&mut writer, &message).await.expect("said");
            }
            let heard = hear(&mut reader).await.map(|heard| heard.shown).map_err(|fault| fault.code);
            assert_eq!(heard, breach());
        }
    }

    #[tokio::test]
    async fn a_grant_is_heard_before_the_hello_of_a_pull() {
        let sources = || Far::Sources { sources: Vec::new(), rules: Vec::new(), follows: Default::default() };
        let shown = Shown { grant: Some(order().grant), ..Shown::default() };
        assert_eq!(heard(&shown, sources(), false).await, Ok(shown));
    }
}
