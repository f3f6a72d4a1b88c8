//! The effect of a blow on a world: which part dies, which state is lost, and when each side
//! notices.
//!
//! Takes a blow that is due; changes the world. Knows nothing of when blows come.

use longhaul_core::FaultCode;

use super::World;
use crate::env::Refused;
use crate::events::{Event, SessionNo};
use crate::fs::Survival;
use crate::plan::Blow;

impl World {
    pub(super) fn strike(&mut self, blow: Blow) {
        let now = self.env.clock.now().0;
        match blow {
            Blow::CrashReceiver => {
                self.env.seen.crashes += 1;
                let survival = Survival::random(&mut self.env.rng);
                self.env.fs.crash(&mut self.env.rng, survival);
                self.host_down_until = now + 100_000 + self.env.rng.below(3_000_000);
                self.receiver_dies();
            }
            Blow::KillReceiver => {
                self.env.fs.kill(&mut self.env.rng);
                self.receiver_dies();
            }
            Blow::KillSender => {
                if let Some(sender) = self.sender.take() {
                    self.env.seen.sent += sender.payload_bytes;
                    self.receiver_notices(sender.no);
                    let us = 100_000 + self.env.rng.below(3_000_000);
                    self.env.clock.after(us, Event::Dial);
                }
            }
            Blow::LoseSession => {
                if let Some(no) = self.sender.as_ref().map(|sender| sender.no) {
                    self.env.cut.insert(no);
                    self.sender_notices(no);
                    self.receiver_notices(no);
                }
            }
            Blow::Partition => {
                self.env.partition_until = now + self.env.rng.below(5_000_000);
            }
            Blow::ChangeSource => {
                let what = self.env.source.change(&mut self.env.rng);
                self.env.say(|| what);
            }
            Blow::Interrupt => {
                for receiver in &mut self.receivers {
                    receiver.stop(&mut self.env, FaultCode::Interrupted, "the user interrupts");
                }
            }
            Blow::FailDisk => {
                let refused = *self.env.rng.pick(&[Refused::Space, Refused::Syncs, Refused::All]);
                let until = now + self.env.rng.below(3_000_000);
                self.env.say(|| format!("the disk refuses {refused:?}"));
                self.env.refused = Some((refused, until));
            }
        }
    }

    fn receiver_dies(&mut self) {
        self.receivers.clear();
        self.env.check_survivors();
        if self.waiting.take().is_some() || self.sender.is_some() {
            let no = SessionNo(self.sessions);
            self.env.cut.insert(no);
            self.sender_notices(no);
        }
    }

    fn sender_notices(&mut self, no: SessionNo) {
        let us = self.env.rng.below(4_000_000);
        self.env.clock.after(us, Event::SenderLoses(no));
    }

    /// The receiver notices soon, late or never.
    fn receiver_notices(&mut self, no: SessionNo) {
        let us = *self.env.rng.pick(&[10_000, 5_000_000, 60_000_000, u64::MAX]);
        if us < u64::MAX {
            let us = self.env.rng.below(us);
            self.env.clock.after(us, Event::ReceiverLoses(no));
        }
    }
}
