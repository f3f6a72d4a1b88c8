//! Finds out how large segments may be on each path of a run, when lanes are dialled.
//!
//! A path may swallow large packets and tell nobody (an ICMP filter before a narrower link). A lane
//! joins only if full segments pass both ways. Where nothing is answered, it is dialled anew with
//! smaller segments. Only if that lane joins was the size the cause, and later lanes of the path
//! begin with it; a silence with another cause (an outage, a busy daemon) costs a moment. In: dial
//! attempts that take a limit. Out: a lane. It knows no sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_core::Fault;
use longhaul_core::limits::SEGMENT_BYTES_SAFE;
use longhaul_net::NetError;

use crate::lanes::join::Unjoined;

/// The largest segment known to pass on each path. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Segments(Arc<Vec<AtomicU32>>);

impl Segments {
    /// For this many paths. With 0 there is one, the route's.
    pub(crate) fn new(paths: usize) -> Segments {
        Segments(Arc::new((0..paths.max(1)).map(|_| AtomicU32::new(u32::MAX)).collect()))
    }

    /// Dials a lane over a path, with segments as large as it carries.
    ///
    /// # Errors
    /// The last attempt's error.
    pub(crate) fn dial<T>(
        &self,
        path: usize,
        mut attempt: impl FnMut(Option<u32>) -> Result<T, Unjoined>,
    ) -> Result<T, Fault> {
        let known = &self.0[path];
        let mut limit = known.load(Ordering::Relaxed);
        loop {
            match attempt(Some(limit).filter(|limit| *limit < u32::MAX)) {
                Ok(lane) => {
                    if known.fetch_min(limit, Ordering::Relaxed) > limit {
                        tracing::info!(target: "longhaul::session", path, segment_bytes = limit, "larger segments vanish on this path");
                    }
                    return Ok(lane);
                }
                Err(unjoined) => {
                    let smaller = smaller(&unjoined).map(|bytes| bytes.min(known.load(Ordering::Relaxed)));
                    let Some(next) = smaller.filter(|next| *next < limit) else { return Err(unjoined.into()) };
                    tracing::debug!(target: "longhaul::session", path, segment_bytes = next, "a lane is dialled with smaller segments");
                    limit = next;
                }
            }
        }
    }
}

/// The segment size to try after an attempt that may have failed for its size. `None` if the size
/// was not the cause or cannot be smaller.
fn smaller(unjoined: &Unjoined) -> Option<u32> {
    let Unjoined::Net(NetError::Swallowed { segment_bytes, .. }) = unjoined else { return None };
    LADDER.into_iter().find(|bytes| bytes + STEP_MIN <= *segment_bytes)
}

/// Segment sizes to step down to, in bytes: packets of 1500 bytes hold the first over either IP,
/// and most links carry those; every link that IPv6 runs over carries the second.
const LADDER: [u32; 2] = [1440, SEGMENT_BYTES_SAFE];
/// Smaller steps are not worth a dial, in bytes: the options of TCP are counted in some sizes only.
const STEP_MIN: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// Dials over a path on which segments up to `hole` pass, between cards of `card`. Returns the
    /// limits that were tried, and whether a lane joined.
    fn dials(segments: &Segments, card: u32, hole: u32) -> (Vec<Option<u32>>, bool) {
        let mut tried = Vec::new();
        let joined = segments.dial(0, |limit| {
            tried.push(limit);
            // TCP's options take twelve bytes.
            let segment_bytes = limit.map_or(card, |limit| limit.min(card + 12) - 12);
            if segment_bytes <= hole {
                Ok(())
            } else {
                Err(NetError::Swallowed { peer: "x".to_owned(), segment_bytes }.into())
            }
        });
        (tried, joined.is_ok())
    }

    #[test]
    fn segments_are_as_large_as_pass_and_it_is_found_out_once() {
        for (card, hole, tried, after) in [
            (8948, 8948, vec![None], None),
            (8948, 1448, vec![None, Some(1440)], Some(1440)),
            (8948, 1300, vec![None, Some(1440), Some(1220)], Some(1220)),
            (1448, 1300, vec![None, Some(1220)], Some(1220)),
        ] {
            let segments = Segments::new(0);
            assert_eq!(dials(&segments, card, hole), (tried, true), "{card} {hole}");
            assert_eq!(dials(&segments, card, hole), (vec![after], true), "{card} {hole}, another lane");
        }
    }

    #[test]
    fn a_path_on_which_nothing_passes_is_not_called_narrow() {
        let segments = Segments::new(1);
        assert_eq!(dials(&segments, 8948, 0), (vec![None, Some(1440), Some(1220)], false));
        assert_eq!(dials(&segments, 8948, 8948), (vec![None], true));
    }

    #[test]
    fn what_another_lane_found_out_meanwhile_is_used_and_other_failures_are_no_reason() {
        let segments = Segments::new(1);
        let others = segments.clone();
        let mut tried = Vec::new();
        let dialled = segments.dial(0, |limit| {
            tried.push(limit);
            match limit {
                Some(_) => Ok(()),
                None => {
                    assert!(dials(&others, 8948, 1300).1);
                    Err(NetError::Swallowed { peer: "x".to_owned(), segment_bytes: 8948 }.into())
                }
            }
        });
        assert!(dialled.is_ok());
        assert_eq!(tried, [None, Some(1220)]);
        let mut attempts = 0;
        let dialled = Segments::new(1).dial(0, |_| -> Result<(), Unjoined> {
            attempts += 1;
            Err(NetError::Truncated { peer: "x".to_owned() }.into())
        });
        assert!(dialled.is_err());
        assert_eq!(attempts, 1);
    }
}
