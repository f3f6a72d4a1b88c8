//! The filter of a tree: rules in the order given, of which the first that matches decides, as in
//! rsync.
//!
//! Takes [`Rule`]s from the command line or a request; gives the scan a [`Filter`] to ask about
//! each path on its way down. Must not know the tree: it sees one path at a time, as bytes.

mod pattern;

pub use pattern::PatternFault;

use globset::{Candidate, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::string::FromUtf8Error;

use crate::limits::FILTERS_MAX;
use crate::path::{Escaped, RelPath};

/// The decision of a matching [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RuleKind {
    /// Send it.
    Include,
    /// Leave it out; a directory with all its content.
    Exclude,
}

/// One `--include` or `--exclude`.
///
/// `*` and `?` stay within a name, `**` crosses `/`, brackets hold ASCII characters and
/// `[:classes:]` and never match `/`. A leading `/` ties the pattern to the top of the transfer,
/// otherwise it may begin at any name of the path; it always reaches to the path's end. A trailing
/// `/` means directories only; a trailing `/***` the directory and all within. `\` takes the next
/// character as it is, in a pattern with `*`, `?` or `[`; in one without it is a character like
/// any.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// The decision of a match.
    pub kind: RuleKind,
    /// The pattern, as the user wrote it.
    pub pattern: Pattern,
}

/// The text of a filter's pattern, which may name a file of any characters and so is kept as it is.
/// It travels as bytes, like a path, and is shown [`Escaped`] only.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Pattern(String);

impl Pattern {
    /// The text, not fit to be shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A form for people.
    pub fn escaped(&self) -> Escaped<'_> {
        Escaped(self.0.as_bytes())
    }
}

impl From<String> for Pattern {
    fn from(text: String) -> Pattern {
        Pattern(text)
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Pattern {
        Pattern(text.to_owned())
    }
}

impl TryFrom<Vec<u8>> for Pattern {
    type Error = FromUtf8Error;
    fn try_from(bytes: Vec<u8>) -> Result<Pattern, FromUtf8Error> {
        String::from_utf8(bytes).map(Pattern)
    }
}

impl From<Pattern> for Vec<u8> {
    fn from(pattern: Pattern) -> Vec<u8> {
        pattern.0.into_bytes()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({})", self.escaped())
    }
}

/// Rules made ready for matching. The default has none and sends everything.
///
/// It is written down as its rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Rule>", into = "Vec<Rule>")]
pub struct Filter {
    rules: Vec<Rule>,
    globs: GlobSet,
    /// The rule behind each glob of `globs`.
    decisions: Vec<Decision>,
}

impl TryFrom<Vec<Rule>> for Filter {
    type Error = FilterError;
    fn try_from(rules: Vec<Rule>) -> Result<Filter, FilterError> {
        Filter::new(rules)
    }
}

impl From<Filter> for Vec<Rule> {
    fn from(filter: Filter) -> Vec<Rule> {
        filter.rules
    }
}

#[derive(Clone, Copy, Debug)]
struct Decision {
    kind: RuleKind,
    directories_only: bool,
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the filter pattern '{}'", pattern.escaped())]
pub struct FilterError {
    /// The pattern, as the user wrote it.
    pub pattern: Pattern,
    /// The error in it.
    #[source]
    pub why: PatternFault,
}

impl Filter {
    /// Makes the rules ready, in their order.
    ///
    /// # Errors
    /// [`FilterError`] with the first pattern that does not parse, is one too many, or is with
    /// those before it too much to compile.
    pub fn new(rules: Vec<Rule>) -> Result<Filter, FilterError> {
        let mut globs = GlobSetBuilder::new();
        let mut decisions = Vec::with_capacity(rules.len());
        let mut glob_bytes = 0;
        for (count, rule) in rules.iter().enumerate() {
            let fault = |why| FilterError { pattern: rule.pattern.clone(), why };
            if count >= FILTERS_MAX {
                return Err(fault(PatternFault::TooMany));
            }
            for part in pattern::compile(rule.pattern.as_str()).map_err(fault)? {
                glob_bytes += part.glob.glob().len();
                if glob_bytes > GLOB_BYTES_MAX {
                    return Err(fault(PatternFault::TooMuch));
                }
                globs.add(part.glob);
                decisions.push(Decision { kind: rule.kind, directories_only: part.directories_only });
            }
        }
        let globs = globs.build().map_err(|source| FilterError {
            pattern: rules.last().map(|rule| rule.pattern.clone()).unwrap_or_default(),
            why: PatternFault::Glob(source),
        })?;
        Ok(Filter { rules, globs, decisions })
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether to send `path`, beneath the top of the transfer; `is_dir` for a directory, not for a
    /// link to one.
    ///
    /// Ask from the top down and do not enter a directory that is not sent: its content is judged
    /// by its own path alone. The top itself is always sent, and so is a path that no rule matches.
    pub fn verdict(&self, path: &RelPath, is_dir: bool) -> bool {
        self.verdict_of_bytes(path.as_bytes(), is_dir)
    }

    /// The same for a path that need not be one that can travel.
    pub fn verdict_of_bytes(&self, path: &[u8], is_dir: bool) -> bool {
        if path.is_empty() || self.decisions.is_empty() {
            return true;
        }
        let mut hits = Vec::new();
        self.globs.matches_candidate_into(&Candidate::from_bytes(path), &mut hits);
        let mut applying = hits.iter().map(|&hit| self.decisions[hit]).filter(|d| is_dir || !d.directories_only);
        applying.next().is_none_or(|first| first.kind == RuleKind::Include)
    }
}

/// The most bytes of all translated patterns. Patterns may come from a peer; this bounds the cost
/// of compiling and matching them.
const GLOB_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests;
