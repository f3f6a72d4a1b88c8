//! Owns the places of sessions on roots that bound them, and the memory of all sessions on such a
//! root.
//!
//! In: a root, and the sessions and bytes that it allows. Out: a [`RootPlace`], which takes memory
//! as its session does, or a refusal. It knows no clients and no files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode, hint};

use super::RootConfig;
use crate::budget;

/// The sessions on each root. Clones share the counts.
#[derive(Clone, Default)]
pub(super) struct RootPlaces(Arc<Mutex<HashMap<String, RootUse>>>);

/// The use that sessions make of one root, and may make.
#[derive(Default)]
struct RootUse {
    sessions: usize,
    memory: u64,
    /// Bytes of memory that they may have. `None`: as many as the daemon has.
    memory_max: Option<u64>,
}

/// The place of a session on a root. Dropping it gives everything back.
pub(super) struct RootPlace {
    places: RootPlaces,
    root: String,
    memory: u64,
}

impl RootPlaces {
    /// Takes a place of another session.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] where the root has as many sessions as it may.
    pub(super) fn take(&self, root: &RootConfig) -> Result<RootPlace, Fault> {
        let mut roots = self.lock();
        let has = roots.entry(root.name.clone()).or_default();
        if let Some(most) = root.sessions.filter(|most| has.sessions >= *most) {
            let why = format_args!("root '{}' has as many sessions as it may: sessions = {most}", root.name);
            return Err(Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Daemon::WaitOrAskForLimits));
        }
        has.sessions += 1;
        Ok(RootPlace { places: self.clone(), root: root.name.clone(), memory: 0 })
    }

    /// Bounds the memory of roots by this configuration from now on. What sessions have they keep.
    pub(super) fn bound(&self, roots: &[RootConfig]) {
        let mut all = self.lock();
        all.values_mut().for_each(|has| has.memory_max = None);
        for root in roots {
            all.entry(root.name.clone()).or_default().memory_max = root.memory.map(ByteCount::get);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RootUse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RootPlace {
    /// Takes the memory with which its session begins.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] where the sessions on the root have all that they may.
    pub(super) fn begin(&mut self, bytes: u64) -> Result<(), Fault> {
        if self.take(bytes, 0) {
            return Ok(());
        }
        let most = self.places.lock().get(&self.root).and_then(|has| has.memory_max).unwrap_or_default();
        let why =
            format_args!("the sessions on root '{}' have all the memory that they may: {}", self.root, ByteCount(most));
        Err(Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Daemon::WaitOrAskForLimits))
    }

    /// Takes more, if that leaves room for another session to begin. Returns whether it has it.
    pub(super) fn grow(&mut self, bytes: u64) -> bool {
        self.take(bytes, budget::memory_for(ChunkSize::DEFAULT).get())
    }

    /// Gives bytes back.
    pub(super) fn shrink(&mut self, bytes: u64) {
        if let Some(has) = self.places.lock().get_mut(&self.root) {
            has.memory = has.memory.saturating_sub(bytes);
        }
        self.memory = self.memory.saturating_sub(bytes);
    }

    fn take(&mut self, bytes: u64, left: u64) -> bool {
        let mut roots = self.places.lock();
        let has = roots.entry(self.root.clone()).or_default();
        let fits = has.memory_max.is_none_or(|most| has.memory.saturating_add(bytes).saturating_add(left) <= most);
        if fits {
            has.memory += bytes;
            self.memory += bytes;
        }
        fits
    }
}

impl Drop for RootPlace {
    fn drop(&mut self) {
        if let Some(has) = self.places.lock().get_mut(&self.root) {
            has.sessions = has.sessions.saturating_sub(1);
            has.memory = has.memory.saturating_sub(self.memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_as_many_sessions_as_it_may_and_another_one_when_one_ends() {
        let root = |name: &str, sessions| RootConfig {
            name: name.to_owned(),
            targets: longhaul_disk::TargetDirs::one(""),
            allow: crate::Rights::default(),
            protect: Vec::new(),
            rate: None,
            sessions,
            memory: None,
            bounds: crate::Bounds::default(),
            policy: longhaul_disk::TreePolicy::default(),
        };
        let (places, bound) = (RootPlaces::default(), root("bound", Some(2)));
        let mut had: Vec<_> = (0..2).map(|_| places.take(&bound).expect("a place")).collect();
        let refused = places.take(&bound).err().expect("no third one");
        assert!(refused.code == FaultCode::Busy && refused.message.contains("sessions = 2"), "{refused}");
        assert!(places.take(&root("other", None)).is_ok());
        had.pop();
        assert!(places.take(&bound).is_ok());
    }

    #[test]
    fn the_sessions_on_a_root_have_its_memory_and_leave_room_for_another_one_to_begin() {
        const MIB: u64 = 1 << 20;
        let root = |name: &str, memory| RootConfig {
            name: name.to_owned(),
            targets: longhaul_disk::TargetDirs::one(""),
            allow: crate::Rights::default(),
            protect: Vec::new(),
            rate: None,
            sessions: None,
            memory: Some(ByteCount(memory)),
            bounds: crate::Bounds::default(),
            policy: longhaul_disk::TreePolicy::default(),
        };
        let (places, bound) = (RootPlaces::default(), root("bound", 64 * MIB));
        places.bound(std::slice::from_ref(&bound));
        let mut first = places.take(&bound).expect("a place");
        first.begin(16 * MIB).expect("it begins");
        let grown = (0..100).take_while(|_| first.grow(4 * MIB)).count();
        assert_eq!(grown, 8, "16 MiB are left");
        let mut second = places.take(&bound).expect("a place");
        second.begin(16 * MIB).expect("it begins with what was left");
        let refused = places.take(&bound).expect("a place").begin(16 * MIB).expect_err("nothing is left");
        assert!(refused.code == FaultCode::Busy && refused.message.contains("root 'bound'"), "{refused}");
        first.shrink(16 * MIB);
        assert!(!second.grow(4 * MIB), "another one may begin");
        drop(first);
        assert!(second.grow(4 * MIB));
        places.bound(&[root("bound", 16 * MIB)]);
        assert!(!second.grow(4 * MIB), "a lower bound holds at once");
        places.bound(&[]);
        assert!(second.grow(4 << 30), "and none bounds nobody");
    }
}
