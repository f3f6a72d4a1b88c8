//! Shows behind the hello of an initiator that sends: a claim on a shard, the name of a dataset.
//!
//! In: bits of a hello, and the messages behind it. Out: [`Shown`] to the acceptor, and to the
//! initiator whether its acceptor does what was asked. It keeps no claim and stages nothing.

use longhaul_core::{Blame, DatasetName, Fault, FaultCode, ShardClaim, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    CAP_CLAIM, CAP_DATASET, CAP_REMOVAL, CAP_WHEREABOUTS, Far, Hello, Request, Transfer, Welcome,
};

use super::{answer, unexpected};
use crate::session::channel::ReadHalf;

/// The claim and the dataset that an initiator that sends shows behind its hello, and whether one
/// that lists has names moved away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Its claim. `None`: it needs none.
    pub(crate) claim: Option<ShardClaim>,
    /// The name under which all files shall appear together. `None`: each appears when it is done.
    pub(crate) dataset: Option<DatasetName>,
    /// Whether it knows the right to have names moved away, or is here for that: beside a request
    /// to list a path, names beneath that are to go.
    pub(crate) removes: bool,
    /// Whether it asks where a directory lies, and for no names.
    pub(crate) locates: bool,
}

impl Shown {
    /// The same hello, which announces this.
    pub(crate) fn announced_by(&self, hello: Message) -> Message {
        let claim = if self.claim.is_some() { CAP_CLAIM } else { 0 };
        let dataset = if self.dataset.is_some() { CAP_DATASET } else { 0 };
        let removes = if self.removes { CAP_REMOVAL } else { 0 };
        let locates = if self.locates { CAP_WHEREABOUTS } else { 0 };
        let announced = claim | dataset | removes | locates;
        match hello {
            Message::Hello(hello) => Message::Hello(Hello { caps: hello.caps | announced, ..hello }),
            other => other,
        }
    }

    /// The messages that follow the hello.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Message> + use<> {
        let dataset = self.dataset.clone().map(Message::AsDataset);
        self.claim.map(Message::ShownClaim).into_iter().chain(dataset)
    }

    /// Refuses a destination that does not keep the claim that was shown, as an older build would
    /// publish whatever another mover does; and one that does not stage the dataset, of which it
    /// would have each file appear by itself.
    pub(crate) fn need(&self, welcome: &Welcome) -> Result<(), Fault> {
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
        Ok(())
    }
}

/// Reads what a hello with these bits announces.
pub(super) async fn hear_shown(reader: &mut ReadHalf, caps: u64, request: &Request) -> Result<Shown, Fault> {
    let claim = if caps & CAP_CLAIM != 0 { Some(hear_claim(reader, request).await?) } else { None };
    let dataset = if caps & CAP_DATASET != 0 { Some(hear_dataset(reader, request).await?) } else { None };
    let removes = caps & CAP_REMOVAL != 0 && matches!(request, Request::Roots | Request::List { .. });
    let locates = caps & CAP_WHEREABOUTS != 0 && matches!(request, Request::List { .. });
    Ok(Shown { claim, dataset, removes, locates })
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

#[cfg(test)]
mod tests {
    use longhaul_proto::wire::message::Flow;

    use super::super::tests::{transfer, welcome};
    use super::super::{Units, hear, hello};
    use super::*;
    use crate::session::channel::{WriteHalf, write_message};

    const CLAIM: ShardClaim = ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] };

    /// The part of it that an acceptor hears of this, shown for a transfer to this end.
    async fn heard(shown: &Shown, far: Far, dry_run: bool) -> Result<Shown, FaultCode> {
        let (near, far_end) = tokio::io::duplex(4096);
        let (mut reader, mut writer): (ReadHalf, WriteHalf) = (Box::new(near), Box::new(far_end));
        let transfer = Transfer { far, dry_run, ..transfer(Flow::default()) };
        let hello = shown.announced_by(hello(Request::Transfer(Box::new(transfer)), Units::Any));
        for message in std::iter::once(hello).chain(shown.messages()) {
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
        let both = Shown { claim: Some(CLAIM), dataset: Some(name), removes: false, locates: false };
        for (shown, takes_dry_run) in [(claim, false), (dataset, true), (both, false)] {
            assert_eq!(heard(&shown, push(), false).await, Ok(shown.clone()));
            let planned = if takes_dry_run { Ok(shown.clone()) } else { Err(FaultCode::Protocol) };
            assert_eq!(heard(&shown, push(), true).await, planned);
            assert_eq!(heard(&shown, memory(), false).await, Err(FaultCode::Protocol));
        }
        assert_eq!(heard(&Shown::default(), memory(), false).await, Ok(Shown::default()));
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
        assert_eq!(Shown::default().need(&welcome(0)), Ok(()));
    }
}
