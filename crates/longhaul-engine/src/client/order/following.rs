//! Follows an order that a daemon carries out.
//!
//! In: the connection on which the order was taken, and until when this side follows. Out: events
//! as the daemon tells them, and its report; or the fault by which this side has given it up. It
//! gives no order, and signs nothing.

use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{OrderEnd, OrderEvent, OrderLeft, OrderVerdict};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::api::{Event, Following, Report};
use crate::client::Run;
use crate::session::channel::{ReadHalf, WriteHalf, read_message, write_message};
use crate::third_party;

impl Run {
    /// Tells what the daemon tells, until the order has ended or this side leaves, and until `over`
    /// at the latest.
    ///
    /// # Errors
    /// The daemon's refusal; [`FaultCode::Lost`] once it falls silent, the connection is lost, or
    /// `over` has come; the code of a stop.
    pub(super) async fn follow(
        &self,
        (reader, mut writer): (ReadHalf, WriteHalf),
        id: [u8; 16],
        (following, over): (Following, Option<Instant>),
    ) -> Result<Report, Fault> {
        let (mut stop, mut heard) = (self.stop.clone(), reading(reader));
        let mut stopped: Option<FaultCode> = None;
        loop {
            let patience = if stopped.is_some() { LAST_WORDS } else { ORDER_SILENCE_MAX };
            let until = Instant::now() + patience;
            let until = over.map_or(until, |over| until.min(over));
            let message = tokio::select! {
                biased;
                code = stop.stopped(), if stopped.is_none() => {
                    if following.is_of_earlier() {
                        let why = "stopped waiting for the end of the order, which goes on";
                        return Err(Fault::new(code, Blame::Local, why));
                    }
                    let why = Fault::new(code, Blame::Peer, "the client was stopped");
                    write_message(&mut writer, &Message::Refuse(why)).await?;
                    stopped = Some(code);
                    continue;
                }
                message = timeout_at(until, heard.recv()) => message,
            };
            let ended = |why: &str| match stopped {
                Some(code) => Fault::new(code, Blame::Local, "stopped before the daemon said how it ended"),
                None if following.is_of_earlier() => {
                    Fault::new(FaultCode::Lost, Blame::Path, why).hint(hint::Again::Now)
                }
                None => {
                    let why = format_args!("{why}, so it ends the copy");
                    Fault::new(FaultCode::Lost, Blame::Path, why).hint(hint::Again::WhereItEnded)
                }
            };
            let is_over = over.is_some_and(|over| over <= Instant::now());
            match message {
                // Others that wait do not put it off.
                Err(_) | Ok(Some(Ok(Message::OrderEvents(_)))) if is_over => return Err(ended(OUTLASTED)),
                Err(_) => return Err(ended("the daemon that has the order fell silent")),
                Ok(None) => return Err(ended("the connection to the daemon that has the order was lost")),
                Ok(Some(Err(fault))) => return Err(if stopped.is_some() { ended("") } else { fault }),
                Ok(Some(Ok(Message::OrderEvents(events)))) => {
                    let runs = events.iter().any(|event| matches!(event, OrderEvent::Started(_)));
                    events.into_iter().for_each(|event| self.observer.event(third_party::heard(event)));
                    if runs && following == Following::UntilItRuns {
                        write_message(&mut writer, &Message::OrderLeft(OrderLeft { id })).await?;
                    }
                }
                Ok(Some(Ok(Message::OrderLeft(_)))) if following == Following::UntilItRuns => {
                    self.observer.event(Event::Left(third_party::hex(&id)));
                    return Ok(third_party::heard_end(nothing_yet()));
                }
                Ok(Some(Ok(Message::OrderEnded(end)))) => return Ok(third_party::heard_end(with_code(*end, stopped))),
                Ok(Some(Ok(Message::Refuse(fault)))) => return Err(fault.seen_from_afar()),
                Ok(Some(Ok(other))) => {
                    return Err(Fault::protocol(format_args!("{} while an order is carried out", other.name())));
                }
            }
        }
    }
}

/// The end of an order that was stopped from here carries the code by which it was.
fn with_code(end: OrderEnd, stopped: Option<FaultCode>) -> OrderEnd {
    let verdict = match (end.verdict, stopped) {
        (OrderVerdict::Ended(fault), Some(code)) => OrderVerdict::Ended(Fault { code, ..fault }),
        (verdict, _) => verdict,
    };
    OrderEnd { verdict, ..end }
}

/// The report of an order that was left while it ran: nothing is known of it.
fn nothing_yet() -> OrderEnd {
    OrderEnd {
        verdict: OrderVerdict::Complete,
        files: Default::default(),
        bytes: Default::default(),
        failures: Vec::new(),
        scanned: false,
        millis: 0,
        limits: Vec::new(),
    }
}

/// Reads messages on a task of its own, as reading one must not be broken off.
fn reading(mut reader: ReadHalf) -> mpsc::Receiver<Result<Message, Fault>> {
    let (told, heard) = mpsc::channel(4);
    tokio::spawn(async move {
        while let Some(message) = read_message(&mut reader).await.transpose() {
            let is_over = message.is_err();
            if told.send(message).await.is_err() || is_over {
                return;
            }
        }
    });
    heard
}

/// A daemon says something each few seconds while it carries out an order.
pub(super) const ORDER_SILENCE_MAX: Duration = Duration::from_secs(45);
/// The words for an order whose time is over.
const OUTLASTED: &str = "the time for which the order's grant is good was over";
/// How long it may take to write down what has come once it was stopped.
const LAST_WORDS: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::{Observer, Settings, Stop};

    /// Hears what becomes of an order, and does not care.
    struct Careless;

    impl Observer for Careless {
        fn event(&self, _event: Event) {}
    }

    /// The fault that ends an order which is followed until `over`, and the seconds for which it
    /// was followed. Its daemon says some times that it is there, nearly as seldom as it may, and
    /// does not hang up either.
    async fn followed(times: usize, over: Option<Instant>) -> (Fault, u64) {
        let (_trigger, stop) = Stop::new();
        let run = Run::within_process(Settings::default(), Arc::new(Careless), stop).expect("a run");
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(ours);
        let (begun, mut says): (_, WriteHalf) = (Instant::now(), Box::new(theirs));
        let speaking = async {
            for _ in 0..times {
                tokio::time::sleep(ORDER_SILENCE_MAX - Duration::from_secs(1)).await;
                write_message(&mut says, &Message::OrderEvents(Vec::new())).await.expect("said");
            }
            std::future::pending::<Result<Report, Fault>>().await
        };
        let ended = tokio::select! {
            ended = run.follow((Box::new(reader), Box::new(writer)), [1; 16], (Following::ToTheEnd, over)) => ended,
            never = speaking => never,
        };
        let fault = ended.map(|report| report.fault).expect_err("it has no end of its own");
        (fault, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_took_an_order_and_does_nothing_is_waited_for_only_as_long_as_it_speaks() {
        let (fault, seconds) = followed(3, None).await;
        assert_eq!((fault.code, seconds), (FaultCode::Lost, 4 * ORDER_SILENCE_MAX.as_secs() - 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_only_speaks_is_not_followed_for_longer_than_its_order_may_last() {
        let time = Duration::from_secs(3765);
        let (fault, seconds) = followed(1000, Some(Instant::now() + time)).await;
        assert!(fault.code == FaultCode::Lost && fault.message.contains(OUTLASTED), "{fault}");
        assert_eq!(seconds, time.as_secs());
    }
}
