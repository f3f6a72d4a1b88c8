//! The flaws of an option's text, and the advice what to write instead.
//!
//! In: a text that `values` cannot take. Out: words for `error`. Knows neither the place of the
//! text nor any default.

use longhaul_core::limits::{CHUNK_BYTES_USER_MAX, CHUNK_BYTES_USER_MIN, MEMORY_BYTES_DEFAULT};
use longhaul_core::units::{RateError, SizeError};
use longhaul_core::{ByteCount, Escaped};
use longhaul_engine::RATE_MIN;
use longhaul_jobs::{CalendarError, HookError, RetryError};

/// A flaw of a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// Bytes that are no text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The text is none of the allowed words.
    #[error("'{}' is not one of {allowed}", Escaped(.given.as_bytes()))]
    Unknown {
        /// The word.
        given: String,
        /// The words that exist.
        allowed: &'static str,
    },
    /// The text is not a whole number, or the number is too small or large.
    #[error("'{}' is not a whole number from {least} to {most}", Escaped(.given.as_bytes()))]
    Number {
        /// The text.
        given: String,
        /// The smallest allowed number.
        least: u32,
        /// The largest allowed number.
        most: u32,
    },
    /// The text is not of the form that the option takes.
    #[error("'{}' is not {form}", Escaped(.given.as_bytes()))]
    Form {
        /// The text.
        given: String,
        /// The form.
        form: &'static str,
    },
    /// The text is not a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The text is not a rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// The text is not a calendar.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// The text is no list of retry rules.
    #[error(transparent)]
    Retry(#[from] RetryError),
    /// The text names no hook.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// A rate at which a transfer would look dead.
    #[error("{}/s is too little: at least {}/s", ByteCount(*.given), ByteCount(RATE_MIN))]
    RateTooLow {
        /// The rate, bytes/s.
        given: u64,
    },
    /// A size that no chunk may have.
    #[error(
        "{given} is not a power of two from {} to {}",
        ByteCount(CHUNK_BYTES_USER_MIN),
        ByteCount(CHUNK_BYTES_USER_MAX)
    )]
    ChunkSize {
        /// The size.
        given: ByteCount,
    },
    /// The memory is too small for the least number of chunks.
    #[error("{given} is too little: 4 chunks must fit, which take {least}")]
    MemoryTooSmall {
        /// The size.
        given: ByteCount,
        /// The smallest for this chunk size.
        least: ByteCount,
    },
    /// The memory is more than this host has.
    #[error("{given} is more memory than this host has, which is {most}")]
    MemoryTooLarge {
        /// The size.
        given: ByteCount,
        /// The memory of this host.
        most: ByteCount,
    },
    /// The text is not a public key.
    #[error("'{}' is not a public key (lhk1:...)", Escaped(.given.as_bytes()))]
    Key {
        /// The text.
        given: String,
    },
}

impl Flaw {
    /// The advice what to write instead.
    pub fn hint(&self) -> String {
        let fixed = match self {
            Flaw::MemoryTooSmall { .. } => "give more --memory, or a smaller --chunk-size",
            Flaw::MemoryTooLarge { .. } => {
                let mebibytes = MEMORY_BYTES_DEFAULT >> 20;
                return format!("give less --memory: the default of {mebibytes}MiB fills most paths");
            }
            Flaw::Key { .. } => "'longhaul key show' prints it, 'longhaul serve' as well",
            _ => "",
        };
        fixed.to_owned()
    }
}
