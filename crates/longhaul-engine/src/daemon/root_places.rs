//! Owns the places of sessions on roots that bound them.
//!
//! In: a root, and the sessions that it allows. Out: a [`RootPlace`], or a refusal. It knows no
//! clients and no files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Blame, Fault, FaultCode, hint};

use super::RootConfig;

/// The sessions on each root. Clones share the counts.
#[derive(Clone, Default)]
pub(super) struct RootPlaces(Arc<Mutex<HashMap<String, usize>>>);

/// The place of a session on a root. Dropping it gives it back.
pub(super) struct RootPlace {
    places: RootPlaces,
    root: String,
}

impl RootPlaces {
    /// Takes a place of another session.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] where the root has as many sessions as it may.
    pub(super) fn take(&self, root: &RootConfig) -> Result<RootPlace, Fault> {
        let mut counts = self.lock();
        let count = counts.entry(root.name.clone()).or_default();
        if let Some(most) = root.sessions.filter(|most| *count >= *most) {
            let why = format_args!("root '{}' has as many sessions as it may: sessions = {most}", root.name);
            return Err(Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Daemon::WaitOrAskForLimits));
        }
        *count += 1;
        Ok(RootPlace { places: self.clone(), root: root.name.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RootPlace {
    fn drop(&mut self) {
        let mut counts = self.places.lock();
        if let Some(count) = counts.get_mut(&self.root) {
            *count = count.saturating_sub(1);
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
}
