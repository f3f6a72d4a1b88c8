//! Judges whether a daemon is alive, and whether it is ready for new sessions.
//!
//! In: the daemon's figures and its roots as they were last seen. Out: reasons why not, each on a
//! line of its own. It asks no disk.

use std::time::Duration;

use longhaul_engine::{RootFigures, RootTarget, ServiceHandle, TargetState};

use super::Watched;
use super::roots::STALE_AFTER;
use crate::output;

impl Watched {
    /// Whether the loops of the daemon come round; the part that does not.
    pub(super) async fn is_alive(&self) -> Result<(), String> {
        match self.0.running.get() {
            // It is as alive as this answer.
            None => Ok(()),
            Some((_, liveness)) => {
                liveness.check(ALIVE_WITHIN).await.map_err(|stuck| format!("{stuck} does not answer"))
            }
        }
    }

    /// The reasons why no session should be sent here. None: it is ready.
    pub(super) fn unready(&self) -> Vec<String> {
        let Some((service, _)) = self.0.running.get() else { return vec!["the daemon is starting".to_owned()] };
        let mut reasons = self.unready_as_a_whole(service);
        match self.0.roots.last() {
            None => reasons.push("the roots have not been looked at yet".to_owned()),
            Some((age, _)) if age > STALE_AFTER => {
                reasons.push(format!("the file system of a root has not answered for {} s", age.as_secs()));
            }
            Some((_, roots)) => reasons.extend(roots.iter().flat_map(of_root)),
        }
        reasons
    }

    fn unready_as_a_whole(&self, service: &ServiceHandle) -> Vec<String> {
        let mut reasons = Vec::new();
        if service.status().drains {
            reasons.push("the daemon is being drained".to_owned());
        }
        if self.0.audit.as_ref().is_some_and(|audit| audit.figures().fails) {
            reasons.push("the audit log cannot be written".to_owned());
        }
        reasons
    }
}

/// The reasons of one root, with names as they may be shown.
pub(super) fn of_root(root: &RootFigures) -> Vec<String> {
    let name = output::clean(&root.name).to_string();
    if let Some(fault) = &root.fault {
        return vec![format!("root '{name}': {}", output::clean(fault))];
    }
    let flaws = root.targets.iter().filter_map(|target| {
        let why = of_target(target, root)?;
        let of = if root.targets.len() > 1 { format!(", target {}", target.number) } else { String::new() };
        Some(format!("root '{name}'{of}: {why}"))
    });
    flaws.collect()
}

fn of_target(target: &RootTarget, root: &RootFigures) -> Option<String> {
    if let Some(why) = &target.missing {
        return Some(format!("it is missing: {}", output::clean(why)));
    }
    match target.state {
        TargetState::Failed => return Some("a call on it failed".to_owned()),
        TargetState::Hung => return Some("a call on it has not come back".to_owned()),
        _ => {}
    }
    let full = target.free_bytes.is_some_and(|free| free < FULL_BELOW) || target.state == TargetState::Full;
    match root.takes_files {
        true if target.read_only => Some("its file system is mounted read-only".to_owned()),
        true if full => Some("its file system is full".to_owned()),
        _ => None,
    }
}

/// A file system with less room is full: it takes a few chunks more.
pub(super) const FULL_BELOW: u64 = 64 << 20;
/// A daemon whose loops take longer is stuck.
const ALIVE_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn root(takes_files: bool, target: impl FnOnce(&mut RootTarget)) -> RootFigures {
        let mut one = RootTarget {
            number: 1,
            dir: "/srv".into(),
            free_bytes: Some(1 << 40),
            total_bytes: Some(1 << 41),
            read_only: false,
            missing: None,
            written_bytes: 0,
            queued: 0,
            queued_bytes: 0,
            busy_bytes_per_s: None,
            latency: None,
            state: TargetState::Ok,
        };
        target(&mut one);
        RootFigures { name: "data".to_owned(), takes_files, fault: None, targets: vec![one] }
    }

    #[test]
    fn a_root_that_cannot_take_files_is_a_reason_only_where_it_should() {
        assert_eq!(of_root(&root(true, |_| {})), Vec::<String>::new());
        for (takes_files, reasons) in [(true, 1), (false, 0)] {
            assert_eq!(of_root(&root(takes_files, |target| target.read_only = true)).len(), reasons);
            assert_eq!(of_root(&root(takes_files, |target| target.free_bytes = Some(1))).len(), reasons);
        }
        for takes_files in [true, false] {
            let gone = root(takes_files, |target| target.missing = Some("not mounted\n".to_owned()));
            assert_eq!(of_root(&gone), ["root 'data': it is missing: not mounted\\x0a"]);
            assert_eq!(of_root(&root(takes_files, |target| target.state = TargetState::Hung)).len(), 1);
        }
        let moved = RootFigures { fault: Some("moved".to_owned()), ..root(true, |_| {}) };
        assert_eq!(of_root(&moved), ["root 'data': moved"]);
    }
}
