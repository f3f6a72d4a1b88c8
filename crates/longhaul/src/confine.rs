//! Confinement of the daemon: the powers that it gives up, for good, once it has everything that
//! needs them.
//!
//! In: its config, and the places that it needs from then on. Out: a process that has the user of
//! the config and no capability, that reaches nothing but these places (`landlock`) and makes no
//! system call of some kinds (`seccomp`); and the [`Confined`] that says so. It must not know what
//! is served.

#![allow(clippy::disallowed_methods, reason = "it makes and examines the daemon's own directories")]

mod landlock;
mod reach;
mod seccomp;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;

use longhaul_engine::accounts::Account;
use longhaul_engine::{DialRule, ServeConfig, privileges};
use rustix::fs::{Access as Asked, AtFlags, CWD, accessat};
use rustix::process::geteuid;

use crate::config::{Confine, Confinement};
use crate::error::Error;

use reach::Reach;
pub use reach::{Access, Need, OwnFiles, needs};

/// The state of a process that was confined.
#[derive(Debug)]
pub struct Confined {
    /// The user that it has become, or the one that started it.
    user: Became,
    landlock: Layer,
    seccomp: Layer,
    /// The places that it reaches. `None`: all that its user may.
    reach: Option<Reach>,
}

/// The user of a confined process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Became {
    /// The one that started it.
    Same,
    /// The one of the config.
    Other(Account),
    /// The one of the config, which a check by somebody else than root cannot try.
    Untried(Account),
}

/// One layer of the confinement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layer {
    /// It is active, in these words.
    Active(String),
    /// The config turns it off.
    Off,
    /// It cannot be, for this reason.
    Missing(String),
}

/// The reason for confining a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is going to serve.
    Serve,
    /// It checks its config, and makes nothing.
    Check,
}

/// Confines this process. It must have begun no other thread: the kernel confines each for itself,
/// and those that come later are what the one was that began them.
///
/// # Errors
/// [`Error::BecomeUser`]; [`Error::UserLacks`] if the user may not use one of the places;
/// [`Error::Unconfined`] if the config requires what the kernel has not.
pub fn confine(wanted: &Confinement, needs: &[Need], purpose: Purpose) -> Result<Confined, Error> {
    if purpose == Purpose::Serve {
        let own = needs.iter().filter(|need| need.access == Access::Own);
        own.into_iter().try_for_each(|need| make_for(wanted.user.as_ref(), &need.path))?;
    }
    let user = become_user(wanted, needs, purpose)?;
    if wanted.when == Confine::Off {
        return Ok(Confined { user, landlock: Layer::Off, seccomp: Layer::Off, reach: None });
    }
    let ports: Vec<u16> = wanted.dial.iter().map(DialRule::port).collect();
    let (landlock, reach) = match alone().and_then(|()| landlock::restrict(needs, &ports)) {
        Ok((said, reach)) => (Layer::Active(said), Some(reach)),
        Err(why) => (Layer::Missing(why), None),
    };
    let seccomp = seccomp::refuse_calls().map_or_else(Layer::Missing, Layer::Active);
    for (layer, name) in [(&landlock, "Landlock"), (&seccomp, "seccomp")] {
        if let (Confine::Required, Layer::Missing(why)) = (wanted.when, layer) {
            return Err(Error::Unconfined { layer: name, why: why.clone() });
        }
    }
    Ok(Confined { user, landlock, seccomp, reach })
}

fn become_user(wanted: &Confinement, needs: &[Need], purpose: Purpose) -> Result<Became, Error> {
    let Some(user) = &wanted.user else { return Ok(Became::Same) };
    let can = geteuid().is_root() || geteuid().as_raw() == user.uid;
    if purpose == Purpose::Check && !can {
        return Ok(Became::Untried(user.clone()));
    }
    privileges::become_user(user).map_err(|source| Error::BecomeUser { user: name_of(user), source })?;
    needs.iter().try_for_each(|need| check_for(user, need, purpose))?;
    Ok(Became::Other(user.clone()))
}

/// Says why not, if there are other threads: they would stay as they are.
fn alone() -> Result<(), String> {
    match privileges::threads() {
        Ok(1) => Ok(()),
        Ok(_) => Err("the process has begun other threads".to_owned()),
        Err(error) => Err(format!("/proc/self/task: {error}")),
    }
}

/// Makes a missing directory of the daemon's own, for the user that it becomes. Later it could not
/// be reached.
fn make_for(user: Option<&Account>, dir: &Path) -> Result<(), Error> {
    if dir.exists() {
        return Ok(());
    }
    let made = || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let user = user.filter(|_| geteuid().is_root());
        user.map_or(Ok(()), |user| chown(dir, Some(user.uid), Some(user.gid)))
    };
    made().map_err(Error::file("make the directory", dir))
}

/// Checks that the user that this process has become may use a place: later, each transfer or
/// reload would fail for the same reason.
fn check_for(user: &Account, need: &Need, purpose: Purpose) -> Result<(), Error> {
    let (rights, doing) = match need.access {
        _ if !need.checked => return Ok(()),
        Access::Read if need.path.is_dir() => (Asked::READ_OK | Asked::EXEC_OK, "read"),
        Access::Read => (Asked::READ_OK, "read"),
        Access::Change | Access::Own | Access::Write => (Asked::READ_OK | Asked::WRITE_OK | Asked::EXEC_OK, "write to"),
    };
    let source = match accessat(CWD, &need.path, rights, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::NOENT) if purpose == Purpose::Check || need.access != Access::Own => return Ok(()),
        Err(error) => io::Error::from(error),
    };
    Err(Error::UserLacks { user: name_of(user), doing, path: need.path.clone(), of: need.of.clone(), source })
}

fn name_of(user: &Account) -> String {
    user.name.to_string_lossy().into_owned()
}

impl Confined {
    /// Refuses another config of which a root lies beyond the reach of this process.
    ///
    /// # Errors
    /// [`Error::BeyondReach`], [`Error::UserLacks`].
    pub fn admit(&self, config: &ServeConfig) -> Result<(), Error> {
        if let Some(Need { path, of, .. }) = self.reach.as_ref().and_then(|reach| reach.beyond(config)) {
            return Err(Error::BeyondReach { path, of });
        }
        let Became::Other(user) = &self.user else { return Ok(()) };
        reach::roots(config).iter().try_for_each(|need| check_for(user, need, Purpose::Serve))
    }

    /// Whether a layer is missing that the config wants.
    pub fn lacks(&self) -> bool {
        [&self.landlock, &self.seccomp].iter().any(|layer| matches!(layer, Layer::Missing(_)))
    }
}

/// One line for the log.
impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Became::Same => write!(f, "user: as it was started")?,
            Became::Other(user) => write!(f, "user: {}, no capabilities", name_of(user))?,
            Became::Untried(user) => write!(f, "user: {}, which root alone can try", name_of(user))?,
        }
        write!(f, "; landlock: {}; seccomp: {}", self.landlock, self.seccomp)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Active(said) => write!(f, "active, {said}"),
            Layer::Off => write!(f, "off (confine = \"off\")"),
            Layer::Missing(why) => write!(f, "not active, {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_active_and_what_is_not_and_why() {
        let active = |said: &str| Layer::Active(said.to_owned());
        let missing = Layer::Missing("not in this kernel".to_owned());
        let user = Became::Other(Account { name: c"u".to_owned(), uid: 1, gid: 1 });
        let some = Confined { user, landlock: missing, seccomp: active("2 calls"), reach: None };
        assert_eq!(
            some.to_string(),
            "user: u, no capabilities; landlock: not active, not in this kernel; seccomp: active, 2 calls"
        );
        let off = Confined { user: Became::Same, landlock: Layer::Off, seccomp: Layer::Off, reach: None };
        assert!(some.lacks() && !off.lacks());
        assert!(off.to_string().contains("landlock: off"), "{off}");
    }
}
