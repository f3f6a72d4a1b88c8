//! A cubic flow (RFC 9438) with HyStart, clocked by its acknowledgements.
//!
//! In: trains that arrived. Out: packets to send. It knows no line.

use std::collections::VecDeque;

use super::Train;

/// The flow. Windows are in packets.
#[derive(Clone, Debug)]
pub(crate) struct CubicFlow {
    begin: f64,
    base: f64,
    window: f64,
    flying: f64,
    highest: f64,
    reno: f64,
    /// When it was cut last, and whether it still starts.
    cut: f64,
    starts: bool,
    rtt: f64,
    heard: VecDeque<(f64, Train)>,
}

impl CubicFlow {
    pub(crate) fn new(begin: f64, rtt: f64) -> CubicFlow {
        CubicFlow {
            begin,
            base: f64::INFINITY,
            window: 10.0,
            flying: 0.0,
            highest: 0.0,
            reno: 0.0,
            cut: 0.0,
            starts: true,
            rtt,
            heard: VecDeque::new(),
        }
    }

    pub(crate) fn travel(&mut self, due: f64, train: Train) {
        self.heard.push_back((due, train));
    }

    pub(crate) fn hear(&mut self, now: f64) {
        while let Some((_, train)) = self.heard.front().copied().filter(|(due, _)| *due <= now) {
            self.heard.pop_front();
            self.flying -= f64::from(train.packets + train.lost);
            if train.packets > 0 {
                self.rtt = now - train.sent;
                self.base = self.base.min(self.rtt);
                self.grow(now, f64::from(train.packets));
            }
            // What was sent before the last cut is answered by it.
            if train.lost > 0 && train.sent > self.cut {
                self.highest = if self.window < self.highest { self.window * 0.85 } else { self.window };
                self.window = (self.window * 0.7).max(4.0);
                (self.reno, self.cut, self.starts) = (self.window, now, false);
            }
        }
    }

    fn grow(&mut self, now: f64, acked: f64) {
        if self.starts {
            self.window += acked;
            let longer = (self.base / 8.0).clamp(0.004, 0.016);
            if self.rtt > self.base + longer {
                (self.starts, self.highest, self.reno, self.cut) = (false, self.window, self.window, now);
            }
            return;
        }
        let back = (self.highest * 0.3 / 0.4).cbrt();
        // After a start that ended without a loss, it is at its plateau.
        let age = now - self.cut + self.rtt;
        let cubic = 0.4 * (age - back).powi(3) + self.highest;
        self.reno += 0.53 * acked / self.window;
        let wanted = cubic.max(self.reno).min(1.5 * self.window);
        if wanted > self.window {
            self.window += acked * (wanted - self.window) / self.window;
        }
    }

    /// Packets that it sends now.
    pub(crate) fn send(&mut self, now: f64) -> u32 {
        if now < self.begin {
            return 0;
        }
        let packets = (self.window - self.flying).max(0.0).floor();
        self.flying += packets;
        packets as u32
    }
}
