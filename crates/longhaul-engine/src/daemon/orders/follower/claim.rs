//! The memory for the events that wait for the client of an order.
//!
//! In: the bytes of those events. Out: whether the daemon's memory has room for them: for a part of
//! them it was claimed before, and for the rest it is claimed as they come and given back as they
//! go. It knows no events.

use longhaul_core::Fault;

use crate::daemon::shares::Share;

/// The memory of a follower. See the module.
pub(in super::super) struct FollowerClaim {
    share: Share,
    /// Bytes that are claimed for good.
    room: usize,
    /// Bytes that are claimed beyond them.
    beyond: usize,
}

impl FollowerClaim {
    /// A follower for which `room` bytes are claimed already, by this share and others.
    pub(in super::super) fn new(share: Share, room: usize) -> FollowerClaim {
        FollowerClaim { share, room, beyond: 0 }
    }

    /// Bytes that are claimed for good.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Claims as much as these bytes of events need, or gives back what they do not.
    ///
    /// # Errors
    /// The limit that stands in the way: there is no room for them.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), Fault> {
        let needed = bytes.saturating_sub(self.room).next_multiple_of(FOLLOWER_STEP_BYTES);
        if needed > self.beyond {
            self.share.grow((needed - self.beyond) as u64).map_err(|full| self.share.refusal(full))?;
        }
        if needed < self.beyond {
            self.share.shrink((self.beyond - needed) as u64);
        }
        self.beyond = needed;
        Ok(())
    }
}

/// Bytes that are claimed, and given back, at a time.
const FOLLOWER_STEP_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use longhaul_net::PublicKey;

    use super::*;
    use crate::daemon::shares::ClientShares;

    #[test]
    fn events_beyond_the_room_are_claimed_and_given_back_as_they_go() {
        let memory = ClientShares::whole("bytes of memory", 300 << 10);
        let share = memory.claim(PublicKey::from_bytes([1; 32]), 100 << 10).expect("it fits");
        let mut claim = FollowerClaim::new(share, 100 << 10);
        let taken = |claim: &mut FollowerClaim, kib: usize| (claim.hold(kib << 10).is_ok(), memory.taken().0 >> 10);
        assert_eq!(taken(&mut claim, 100), (true, 100));
        assert_eq!(taken(&mut claim, 101), (true, 164));
        assert_eq!(taken(&mut claim, 228), (true, 228));
        assert_eq!(taken(&mut claim, 300), (false, 228), "there is no more");
        assert_eq!(taken(&mut claim, 150), (true, 164));
        assert_eq!(taken(&mut claim, 0), (true, 100));
        drop(claim);
        assert_eq!(memory.taken().0, 0);
    }
}
