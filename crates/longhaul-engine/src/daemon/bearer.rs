//! The side that asks for something: a client by its own rights, or the bearer of a grant by those
//! that a client lends it.
//!
//! In: a request with what was shown around it. Out: what was admitted, and the order in place of
//! which it was. `admission` decides by the rights, `grants` lends them, `orders` judges the order.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_core::Fault;
use longhaul_net::PublicKey;
use longhaul_proto::wire::message::{Far, Request, Transfer};

use super::admission::{Admitted, admit, authorise};
use super::grants::LentRights;
use super::orders::{self, JudgedOrder};
use super::{ClientConfig, Daemon};
use crate::session::channel::ReadHalf;
use crate::session::handshake::Shown;

/// The side that asks: a client, or the bearer of a grant with what a client lends it.
pub(super) struct Bearer {
    /// The client, with the rights that it has or lends.
    pub(super) client: ClientConfig,
    /// The grant by which the other side has them. `None`: it is that client.
    pub(super) lent: Option<LentRights>,
}

/// An order that was admitted as a push is.
pub(super) struct Ordered {
    /// Its client.
    pub(super) client: ClientConfig,
    /// The order itself.
    pub(super) judged: JudgedOrder,
    /// The transfer in place of which it stands, for further sessions.
    pub(super) asked: (Transfer, Shown),
}

impl Bearer {
    /// Answers whether its request is allowed, and takes what it needs.
    pub(super) async fn admit(
        self,
        daemon: &Arc<Daemon>,
        (peer, reader): ((PublicKey, SocketAddr), &mut ReadHalf),
        (mut request, mut shown): (Request, Shown),
    ) -> Result<(Admitted, Option<Box<Ordered>>), Fault> {
        let Bearer { client, lent } = self;
        // A client that shows a grant asks by that alone.
        let lent = match shown.grant.take() {
            Some(grant) if lent.is_none() => Some(daemon.honour(&grant, peer.0)?),
            Some(_) => return Err(Fault::protocol("a second grant")),
            None => lent,
        };
        let client = lent.as_ref().map_or(client, |lent| lent.client.clone());
        let covered = |lent: &LentRights| lent.need_covered((&request, &shown)).and_then(|()| lent.need_usable(daemon));
        lent.iter().try_for_each(covered)?;
        shown.list = lent.as_ref().and_then(LentRights::list);
        // It has shown none itself. This one is kept anew in each of its sessions.
        shown.claim = lent.as_ref().map_or(shown.claim, LentRights::claim);
        let order = match (&mut request, shown.order.clone()) {
            (Request::Transfer(transfer), Some(order)) => {
                // Nobody has a name looked up who may not write here.
                authorise(daemon, &client, transfer)?;
                let mut judged = orders::judge(daemon, &client, (*order, transfer.run)).await?;
                let (digest, follows) = (judged.grant.list(), orders::list::taken(transfer)?);
                if digest.is_some() {
                    need_one_top(transfer)?;
                }
                if digest.is_some() || follows {
                    let memory = (&daemon.memory, client.key);
                    let list = orders::list::hear(reader, digest, memory, daemon.stop.clone()).await?;
                    // It is asked for elsewhere, unless it is read here.
                    shown.names = Some(list.names.clone()).filter(|_| follows);
                    judged.list = Some(list);
                }
                Some(Box::new(Ordered { client: client.clone(), judged, asked: ((**transfer).clone(), shown.clone()) }))
            }
            _ => None,
        };
        let mut admitted = admit(daemon, (peer, reader), &client, (request, shown)).await?;
        if let (Admitted::Session(admission), Some(lent)) = (&mut admitted, lent) {
            lent.need_unused()?;
            lent.time_left().iter().for_each(|left| admission.holdings.place.end_after(*left));
            // Its mover may not have heard of all that a session committed as a grant ended.
            lent.claim().iter().for_each(|claim| admission.holdings.place.recall_by(claim.id));
            admission.description = format!("{} {}", admission.description, lent.described());
            admission.holdings.lent = Some(lent);
        }
        Ok((admitted, order))
    }
}

/// Refuses an order to send names of a list that are not those beneath one directory.
fn need_one_top(transfer: &Transfer) -> Result<(), Fault> {
    let is_one_top = match &transfer.far {
        Far::Sources { sources, .. } => matches!(&sources[..], [source] if source.contents),
        Far::Destination { .. } | Far::Memory { .. } => true,
    };
    let why = "an order by a list of names that lie beneath another number of directories than one";
    if is_one_top { Ok(()) } else { Err(Fault::protocol(why)) }
}
