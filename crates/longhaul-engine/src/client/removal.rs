//! Has names at a daemon looked at, and moved away.
//!
//! In: a path of a daemon, names beneath it, and the plan that they are in. Out: what became of
//! each name. An answer is of the names that were asked about, one for each, or it is refused. It
//! plans nothing, and knows no source.

use std::time::{Duration, Instant};

use longhaul_core::limits::{PAGE_BYTES_MAX, REMOVAL_NAMES_MAX};
use longhaul_core::{Blame, Fault, FaultCode, PlanName, RelPath, Whereabouts, hint};
use longhaul_disk::{NameFacts, Withdrawn};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    KnownName, NameAnswer, RemovalAnswer, RemovalBatch, RemovalOpened, RemovalOrder, Request,
};
use tokio::time::timeout;

use super::connect;
use super::connect::Reached;
use crate::api::{Remote, RemotePath, Stop};
use crate::known_name::{facts_said, known_facts};
use crate::session::channel::{read_message, write_message};
use crate::session::handshake::{self, Shown, Units};

/// A tree at a daemon in which names are looked at and moved away.
pub struct FarRemoval {
    remote: Remote,
    path: RemotePath,
    /// The device of its root.
    device: u64,
    /// Where grace directories lie beneath its root.
    grace: String,
    /// Where the directory lies.
    whereabouts: Whereabouts,
    /// The conversation, and when it was used last.
    talk: Option<(Reached, Instant)>,
}

/// A name at a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarName {
    /// Its facts.
    pub facts: NameFacts,
    /// The names in it, if it is a directory, whatever they are.
    pub within: u64,
}

/// The answer for one name: the fault is of that name alone.
type OfName<T> = Result<T, Fault>;

impl FarRemoval {
    /// The most names that are asked about at a time.
    pub const NAMES_AT_A_TIME: usize = REMOVAL_NAMES_MAX;

    /// Asks a daemon whether names beneath a directory may be moved away.
    ///
    /// # Errors
    /// A [`Fault`] as for a transfer; [`FaultCode::Unsupported`] from a daemon that does not know
    /// how, [`FaultCode::Denied`] without the right.
    pub async fn open(remote: Remote, path: RemotePath, stop: &Stop) -> Result<FarRemoval, Fault> {
        let whereabouts = Whereabouts::default();
        let mut removal = FarRemoval { remote, path, device: 0, grace: String::new(), whereabouts, talk: None };
        let RemovalOpened { device, grace, whereabouts } = removal.begin(stop).await?;
        (removal.device, removal.grace, removal.whereabouts) = (device, grace.cut().to_string(), whereabouts);
        Ok(removal)
    }

    /// Ends the conversation until the next order. One that lasts counts as a session there.
    pub fn rest(&mut self) {
        self.talk = None;
    }

    /// Where the directory lies on the daemon's host.
    pub fn whereabouts(&self) -> &Whereabouts {
        &self.whereabouts
    }

    /// The device of its root, on which all names lie that may go.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Where grace directories lie beneath its root, in the daemon's words.
    pub fn grace(&self) -> &str {
        &self.grace
    }

    /// Asks what has these names. `None` for one that nothing has.
    ///
    /// # Errors
    /// The fault of the conversation. That of one name stands in its place.
    pub async fn look(&mut self, paths: &[RelPath], stop: &Stop) -> Result<Vec<OfName<Option<FarName>>>, Fault> {
        let mut looked = Vec::with_capacity(paths.len());
        for paths in pieces(paths, |path| path) {
            for answer in self.answers(RemovalOrder::Look(paths.to_vec()), paths.len(), stop).await? {
                looked.push(match answer {
                    NameAnswer::Absent => Ok(None),
                    NameAnswer::Found { facts, within } => Ok(Some(FarName { facts: facts_said(&facts), within })),
                    NameAnswer::Refused(fault) => Err(fault.seen_from_afar()),
                    _ => return Err(Fault::protocol("a name that was only to be looked at was moved")),
                });
            }
        }
        Ok(looked)
    }

    /// Has names of a plan moved away, each if it still has these facts.
    ///
    /// # Errors
    /// The fault of the conversation: nobody knows then which of the names went. That of one name
    /// stands in its place.
    pub async fn withdraw(
        &mut self,
        plan: PlanName,
        names: &[(RelPath, NameFacts)],
        stop: &Stop,
    ) -> Result<Vec<OfName<Withdrawn>>, Fault> {
        let mut withdrawn = Vec::with_capacity(names.len());
        for names in pieces(names, |(path, _)| path) {
            let known =
                |(path, facts): &(RelPath, NameFacts)| KnownName { path: path.clone(), facts: known_facts(facts) };
            let batch = RemovalBatch { plan, names: names.iter().map(known).collect() };
            for answer in self.answers(RemovalOrder::Move(batch), names.len(), stop).await? {
                withdrawn.push(match answer {
                    NameAnswer::Absent => Ok(Withdrawn::Gone),
                    NameAnswer::Moved => Ok(Withdrawn::Moved),
                    NameAnswer::MovedBefore => Ok(Withdrawn::MovedBefore),
                    NameAnswer::Changed => Ok(Withdrawn::Changed),
                    NameAnswer::NotEmpty => Ok(Withdrawn::NotEmpty),
                    NameAnswer::Refused(fault) => Err(fault.seen_from_afar()),
                    NameAnswer::Found { .. } => {
                        return Err(Fault::protocol("a name that was to be moved was only looked at"));
                    }
                });
            }
        }
        Ok(withdrawn)
    }

    /// The answers to an order, one for each of its names.
    async fn answers(&mut self, order: RemovalOrder, count: usize, stop: &Stop) -> Result<Vec<NameAnswer>, Fault> {
        if self.talk.as_ref().is_none_or(|(_, used)| used.elapsed() > REMOVAL_KEPT_FOR) {
            let opened = self.begin(stop).await?;
            if opened.device != self.device || opened.whereabouts.at != self.whereabouts.at {
                let message = "another directory is there than before: nothing more is moved";
                return Err(Fault::new(FaultCode::Changed, Blame::Peer, message).hint(hint::Daemon::SeeItsLog));
            }
        }
        let waiting = match &order {
            RemovalOrder::Look(_) => "stopped before the daemon had answered",
            RemovalOrder::Move(_) => "stopped while the daemon moves names, which goes on with those of the last order",
        };
        // A conversation that ends in the middle of an order is not gone on with.
        let Some((mut reached, _)) = self.talk.take() else { return Err(ended()) };
        let asked = async {
            write_message(&mut reached.control.writer, &Message::RemovalOrder(order)).await?;
            let mut answers = Vec::with_capacity(count);
            loop {
                let RemovalAnswer { names, last } = match heard(&mut reached).await? {
                    Message::RemovalAnswer(answer) => answer,
                    _ => return Err(Fault::protocol("something else in place of the answer to an order")),
                };
                answers.extend(names);
                if answers.len() > count || last && answers.len() < count {
                    return Err(Fault::protocol("an answer about more or fewer names than were asked about"));
                }
                if last {
                    return Ok(answers);
                }
            }
        };
        let answers = unless_stopped((stop, waiting), asked).await?;
        self.talk = Some((reached, Instant::now()));
        Ok(answers)
    }

    /// Begins a conversation.
    async fn begin(&mut self, stop: &Stop) -> Result<RemovalOpened, Fault> {
        self.talk = None;
        let (root, path) = (self.path.root.clone(), self.path.path.clone());
        let begun = async {
            let mut reached = connect(&self.remote).await?;
            let hello = handshake::hello(Request::List { root, path }, Units::Any);
            let hello = Shown { removes: true, ..Shown::default() }.announced_by(hello);
            write_message(&mut reached.control.writer, &hello).await?;
            match heard(&mut reached).await? {
                Message::RemovalOpened(opened) => Ok((reached, opened)),
                // A build that does not know the bit.
                Message::Listing(_) => {
                    let why = "the other side does not know how to move names away";
                    let fault = Fault::new(FaultCode::Unsupported, Blame::Peer, why);
                    Err(fault.hint(hint::Program::UpdateOrRemoveThere))
                }
                _ => Err(Fault::protocol("names were to be moved away and something else came")),
            }
        };
        let (reached, opened) = unless_stopped((stop, "stopped before the daemon had answered"), begun).await?;
        self.talk = Some((reached, Instant::now()));
        Ok(opened)
    }
}

async fn unless_stopped<T>(
    (stop, waiting): (&Stop, &str),
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut stop = stop.clone();
    tokio::select! {
        biased;
        code = stop.stopped() => Err(Fault::new(code, Blame::Local, waiting)),
        done = work => done,
    }
}

/// The next message of a conversation.
async fn heard(reached: &mut Reached) -> Result<Message, Fault> {
    let Ok(heard) = timeout(DAEMON_SILENT_FOR, read_message(&mut reached.control.reader)).await else {
        let why = format_args!("the daemon said nothing for {} s", DAEMON_SILENT_FOR.as_secs());
        return Err(Fault::new(FaultCode::TimedOut, Blame::Peer, why).hint(hint::Again::Now));
    };
    match heard? {
        Some(Message::Refuse(fault)) => Err(fault.seen_from_afar()),
        Some(message) => Ok(message),
        None => Err(ended()),
    }
}

fn ended() -> Fault {
    Fault::new(FaultCode::Lost, Blame::Peer, "the daemon ended the conversation").hint(hint::Daemon::SeeItsLog)
}

/// The names in pieces that fit a message each.
fn pieces<T>(names: &[T], path: impl Fn(&T) -> &RelPath) -> impl Iterator<Item = &[T]> {
    let mut left = names;
    std::iter::from_fn(move || {
        let (mut count, mut bytes) = (0, 0);
        while let Some(name) = left.get(count).filter(|_| count < REMOVAL_NAMES_MAX) {
            bytes += path(name).as_bytes().len() + FACTS_BYTES;
            if count > 0 && bytes > PAGE_BYTES_MAX {
                break;
            }
            count += 1;
        }
        let (piece, rest) = left.split_at(count);
        left = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Bytes of the facts of a name in a message, at most.
const FACTS_BYTES: usize = 64;
/// A conversation in which nothing was asked for so long is begun anew: behind 30 s a daemon may
/// have given its place to another key.
const REMOVAL_KEPT_FOR: Duration = Duration::from_secs(20);
/// A daemon that is at work says so every few seconds. One that is silent for this long is gone.
const DAEMON_SILENT_FOR: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_asked_about_in_order_and_in_pieces_that_fit_a_message() {
        let long =
            |n: usize| RelPath::new(vec![["x".repeat(200), format!("{n}")].concat(); 18].join("/")).expect("a path");
        let paths: Vec<_> = (0..600).map(|n| RelPath::new(format!("{n}")).expect("a path")).collect();
        let paths: Vec<_> = paths.into_iter().chain((0..100).map(long)).collect();
        let found: Vec<_> = pieces(&paths, |path| path).collect();
        assert_eq!(found.concat(), paths);
        assert_eq!(found[0].len(), REMOVAL_NAMES_MAX);
        for piece in found {
            let order = Message::RemovalOrder(RemovalOrder::Look(piece.to_vec()));
            assert!(piece.len() <= REMOVAL_NAMES_MAX && order.try_encode().is_ok());
        }
        assert_eq!(pieces(&[], |path: &RelPath| path).count(), 0);
    }
}
