//! Has the destination keep the claim by which the daemon of the sources then sends a shard there,
//! and hears of claims from that daemon nothing.
//!
//! In: the two daemons of an order to send by a list, and the claim of this run. Out: the key of
//! the destination, once it keeps that claim; or its refusal, with the fence that it keeps. This
//! side hears that of the destination itself: what the other daemon says of claims it could have
//! made up, and a fence that a mover believed would bar all movers from their shard. It gives no
//! order.

use longhaul_core::{Blame, Fault, FaultCode, Role, ShardClaim, hint};
use longhaul_net::PublicKey;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{ClaimKept, Far, OrderPlace, Request};

use super::{ThirdParty, list};
use crate::client::Run;
use crate::client::connect::{Reached, connect};
use crate::random::nonce;
use crate::session::handshake::{self, Shown, Units};

impl Run {
    /// Asks both daemons whether they know grants that lend a claim, and has the destination keep
    /// the one of this run, if it publishes by one. Gives the destination's key. The source is
    /// asked last: nothing that it answers comes before the destination's own word on the claim.
    ///
    /// # Errors
    /// [`FaultCode::Unsupported`] of a destination that knows none, or keeps none,
    /// [`FaultCode::Superseded`] with the fence that it keeps, and others of an admission there;
    /// [`FaultCode::Usage`] of a source that knows none: see [`Run::of_source`].
    pub(super) async fn lend_claim(&self, asked: &ThirdParty) -> Result<PublicKey, Fault> {
        let key = list::need_lending(&asked.to).await.map_err(of_destination)?;
        let key = match self.publishing.claim {
            Some(claim) => self.keep_claim(asked, claim).await?,
            None => key,
        };
        list::need_lending(&asked.from).await.map_err(|fault| self.of_source(fault))?;
        Ok(key)
    }

    /// The fault of a source that was asked what it knows, where this run shows a claim: with a
    /// code that says nothing of claims, as only a destination keeps them. By the codes of one a
    /// mover raises its claim, or goes on without it.
    pub(super) fn of_source(&self, fault: Fault) -> Fault {
        if self.publishing.claim.is_some() { without_claims(fault) } else { fault }
    }

    /// Has the destination keep a claim, as if it was sent to from here.
    async fn keep_claim(&self, asked: &ThirdParty, claim: ShardClaim) -> Result<PublicKey, Fault> {
        let Some(OrderPlace { root, path, placing, if_exists, .. }) = self.request(asked).2 else {
            return Err(Fault::new(FaultCode::Internal, Blame::Bug, "a claim is lent to who receives"));
        };
        let Reached { mut control, ways: _ways } = connect(&asked.to).await?;
        let far = Far::Destination { root, path, placing, if_exists };
        let transfer = self.in_place((Role::Sender, far), &control, nonce()?)?;
        let shown = Shown { claim: Some(claim), lends: true, ..Shown::default() };
        let said = shown.around(handshake::hello(Request::Transfer(Box::new(transfer)), Units::Any));
        let (reader, writer) = (&mut control.reader, &mut control.writer);
        let answer = handshake::answer_to(reader, writer, said, shown.patience(None)).await;
        need_kept(&answer.map_err(of_destination)?, claim)?;
        self.observer.claim_kept();
        Ok(control.peer_key)
    }
}

/// The fault of a destination that cannot be opened. Of a source the same would say that there is
/// nothing to send.
fn of_destination(fault: Fault) -> Fault {
    if fault.code == FaultCode::NotFound { Fault { code: FaultCode::Io, ..fault } } else { fault }
}

/// The same fault with another code than those by which a destination refuses a claim.
fn without_claims(fault: Fault) -> Fault {
    match fault.code {
        FaultCode::Superseded => Fault { code: FaultCode::Usage, ..fault }.hint(hint::Daemon::SeeItsLog),
        FaultCode::Unsupported => Fault { code: FaultCode::Usage, ..fault },
        _ => fault,
    }
}

/// Refuses every answer but that this claim is kept.
fn need_kept(answer: &Message, claim: ShardClaim) -> Result<(), Fault> {
    match answer {
        Message::ClaimKept(ClaimKept { shard, fence }) if (*shard, *fence) == (claim.shard, claim.fence) => Ok(()),
        Message::Welcome(_) => {
            let why = "the destination does not know how to keep a claim for another daemon";
            Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::UpdateBothDaemons))
        }
        other => Err(Fault::protocol(format_args!("{} where a claim was shown", other.name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::handshake::tests::welcome;

    #[test]
    fn a_source_has_no_code_by_which_a_claim_is_raised_or_given_up() {
        let claim = ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] };
        let made_up = without_claims(Fault::superseded(&claim, u64::MAX / 2, "a newer claim is kept"));
        assert_eq!((made_up.code, made_up.kept_fence()), (FaultCode::Usage, None));
        let fault = |code| Fault::new(code, Blame::Peer, "said by the source");
        assert_eq!(without_claims(fault(FaultCode::Unsupported)).code, FaultCode::Usage);
        for code in [FaultCode::Busy, FaultCode::Denied, FaultCode::Protocol, FaultCode::NotFound] {
            assert_eq!(without_claims(fault(code)).code, code, "{code:?}");
        }
    }

    #[test]
    fn only_the_word_that_this_claim_is_kept_counts() {
        let claim = ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] };
        let kept = |shard, fence| Message::ClaimKept(ClaimKept { shard, fence });
        let code = |answer: Message| need_kept(&answer, claim).map_err(|fault| fault.code);
        assert_eq!(code(kept(2, 3)), Ok(()));
        assert_eq!([code(kept(2, 4)), code(kept(1, 3))], [Err(FaultCode::Protocol); 2]);
        assert_eq!(code(Message::Welcome(welcome(0))), Err(FaultCode::Unsupported), "an older build begins a session");
    }
}
