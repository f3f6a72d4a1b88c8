//! Hooks: what this host runs or calls at the end of a shard or a campaign, or at a fault.
//!
//! `file` reads hooks, `document` has what a hook is told, `command` runs a program, `post` sends a
//! request. In: hooks of this host's own file, and notices of the queue, which name a hook by its
//! key alone. Out: whether the hook was told. A hook has a time limit, and what it says is bounded.
//! Must not know the queue, nor when a hook is told again.

mod command;
mod document;
mod file;
mod post;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, PlainText};
use longhaul_jobs::HookKey;
use longhaul_jobs::queue::TakenNotice;
use tokio::time::timeout;

pub use post::HookUrl;

/// The hooks of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks(BTreeMap<HookKey, Hook>);

/// A hook of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The means by which it is told.
    pub means: HookMeans,
    /// The time for which it may take.
    pub time_max: Duration,
    /// Tries behind which a notice to it is given up.
    pub tries_max: u32,
}

/// The means by which a hook is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookMeans {
    /// A program, by its absolute path, and its arguments.
    Command(Vec<String>),
    /// A request to a server.
    Post {
        /// Where it goes.
        url: HookUrl,
        /// The file of the authorities that vouch for the server. `None`: those of this host.
        authorities: Option<PathBuf>,
    },
}

/// The failure of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFailure {
    code: FaultCode,
    words: PlainText,
}

impl Hooks {
    /// These hooks, of which each key has one.
    pub fn new(hooks: BTreeMap<HookKey, Hook>) -> Hooks {
        Hooks(hooks)
    }

    /// The keys.
    pub fn keys(&self) -> Vec<HookKey> {
        self.0.keys().cloned().collect()
    }

    /// The hook of a key.
    pub fn get(&self, key: &HookKey) -> Option<&Hook> {
        self.0.get(key)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The longest time that any of them may take.
    pub fn time_max(&self) -> Duration {
        self.0.values().map(|hook| hook.time_max).max().unwrap_or_default()
    }
}

impl Hook {
    /// Tells it.
    ///
    /// # Errors
    /// The failure of the program or of the request; a hook that takes longer than it may is ended.
    pub async fn tell(&self, taken: &TakenNotice) -> Result<(), HookFailure> {
        let document = document::of(taken);
        let told = async {
            match &self.means {
                HookMeans::Command(line) => command::run(line, &taken.notice, document).await,
                HookMeans::Post { url, authorities } => post::send(url, authorities.as_deref(), document).await,
            }
        };
        let late =
            || HookFailure::new(FaultCode::TimedOut, format_args!("it took longer than {} s", self.time_max.as_secs()));
        timeout(self.time_max, told).await.unwrap_or_else(|_| Err(late()))
    }
}

impl HookFailure {
    fn new(code: FaultCode, words: impl std::fmt::Display) -> HookFailure {
        HookFailure { code, words: PlainText::of(words) }
    }

    /// The words of it.
    pub fn words(&self) -> &PlainText {
        &self.words
    }

    /// The fault of the hook of this key.
    pub fn fault(&self, key: &HookKey) -> Fault {
        let message = format_args!("the hook '{}' was not told: {}", key.as_str(), self.words);
        Fault::new(self.code, Blame::Local, message).about(key.as_str())
    }
}
