//! The ratchet: a rule holds everywhere but where its list says, and the list only shrinks.
//!
//! Takes each rule's findings; compares them with `exceptions/NAME.txt`, and with `LONGHAUL_SHRINK`
//! in the environment writes that file. Must not know the meaning of a rule.
//!
//! A list has one exception a line, sorted: `KEY`, or `KEY: COUNT` where a rule counts. The test
//! fails if a finding is not listed, or found more often than listed; and also if a listed one is
//! not found, or found less often. `LONGHAUL_SHRINK=1` removes entries that are no longer needed.
//! `LONGHAUL_SHRINK=all` writes down all findings: for a rule's first list, or when a file or a
//! name that is listed was renamed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use super::tree::{read, root};

/// A rule with a list of exceptions.
pub(super) struct Rule {
    /// The name of its list.
    pub(super) list: &'static str,
    /// The form of a line.
    pub(super) form: &'static str,
    /// One sentence: the rule, as it stands at the list's head and in a failure.
    pub(super) says: &'static str,
    /// One sentence: how something new is made right.
    pub(super) remedy: &'static str,
    /// Whether lines end in a count.
    pub(super) counted: bool,
}

/// A list: how often each key occurs.
type Counts = BTreeMap<String, usize>;

/// All that a rule found.
#[derive(Default)]
pub(super) struct Found(BTreeMap<String, (usize, Vec<String>)>);

impl Found {
    /// One more of `key`, at `place`.
    pub(super) fn one(&mut self, key: impl Into<String>, place: impl Into<String>) {
        let (count, places) = self.0.entry(key.into()).or_default();
        *count += 1;
        places.push(place.into());
    }

    /// The size of `key`, at `place`; the largest counts.
    pub(super) fn sized(&mut self, key: impl Into<String>, size: usize, place: impl Into<String>) {
        let (count, places) = self.0.entry(key.into()).or_default();
        *count = size.max(*count);
        places.push(place.into());
    }

    /// Drops those that occur only once.
    pub(super) fn repeated(mut self) -> Found {
        self.0.retain(|_, (count, _)| *count > 1);
        self
    }

    fn counts(&self, counted: bool) -> Counts {
        self.0.iter().map(|(key, (count, _))| (key.clone(), if counted { *count } else { 1 })).collect()
    }

    /// The keys with their counts.
    pub(super) fn listed(&self) -> Vec<(&str, usize)> {
        self.0.iter().map(|(key, (count, _))| (key.as_str(), *count)).collect()
    }
}

impl Rule {
    /// Fails unless the findings are those listed.
    pub(super) fn hold(&self, found: &Found) {
        let file = lists().join(format!("{}.txt", self.list));
        let mut listed = if file.exists() { self.parse(&read(&file)) } else { Counts::new() };
        let now = found.counts(self.counted);
        let all = match env::var("LONGHAUL_SHRINK").as_deref() {
            Ok("all") => Some(true),
            Ok("1") => Some(false),
            Ok(other) => panic!("LONGHAUL_SHRINK={other}: 1 or all"),
            Err(_) => None,
        };
        if let Some(all) = all {
            listed = if all { now.clone() } else { shrunk(&listed, &now) };
            fs::write(&file, self.written(&listed)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let complaints = self.complaints(&listed, &now, found);
        assert!(complaints.is_empty(), "{complaints}");
    }

    /// Words for what differs; nothing when nothing does.
    fn complaints(&self, listed: &Counts, now: &Counts, found: &Found) -> String {
        let (mut new, mut over) = (String::new(), String::new());
        for (key, &count) in now {
            let allowed = listed.get(key).copied().unwrap_or(0);
            if count > allowed {
                let had = if self.counted { format!(": {count}, listed: {allowed}") } else { String::new() };
                new += &format!("  {key}{had}\n");
                new.extend(found.0[key].1.iter().map(|place| format!("      {place}\n")));
            }
        }
        for (key, &count) in listed {
            let left = now.get(key).copied().unwrap_or(0);
            if left < count {
                let had = if self.counted { format!(": {left}, listed: {count}") } else { String::new() };
                over += &format!("  {key}{had}\n");
            }
        }
        let (says, list) = (self.says, self.list);
        if !new.is_empty() {
            new = format!("\n{says} These break the rule and are not on its list. {}\n{new}", self.remedy);
        }
        if !over.is_empty() {
            over = format!(
                "\n{says} These are better than tests/layering/exceptions/{list}.txt says: well done. Take them out of the \
                 list, or let the test do it:\n  {SHRINK}\n{over}"
            );
        }
        new + &over
    }

    fn parse(&self, text: &str) -> Counts {
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let list = self.list;
        let counts: Counts = lines
            .iter()
            .map(|line| match line.rsplit_once(": ").filter(|_| self.counted) {
                Some((key, count)) => {
                    (key.to_owned(), count.parse().unwrap_or_else(|error| panic!("{list}: {line}: {error}")))
                }
                None => ((*line).to_owned(), 1),
            })
            .collect();
        let sorted = self.lines(&counts);
        assert!(
            lines.iter().copied().eq(sorted.iter()),
            "{list}.txt is not sorted; {SHRINK} sorts it",
            list = self.list
        );
        counts
    }

    fn lines(&self, counts: &Counts) -> Vec<String> {
        counts.iter().map(|(key, count)| if self.counted { format!("{key}: {count}") } else { key.clone() }).collect()
    }

    fn written(&self, counts: &Counts) -> String {
        let (says, form) = (self.says, self.form);
        let mut text = format!(
            "# {says}\n# Exceptions, as `{form}`. This list only shrinks; see tests/layering/ratchet.rs.\n#     {SHRINK}\n"
        );
        text.extend(self.lines(counts).into_iter().map(|line| line + "\n"));
        text
    }
}

/// The command that removes entries that are no longer needed from all lists.
const SHRINK: &str = "LONGHAUL_SHRINK=1 cargo test -p longhaul --test main layering::";

/// The folder of the lists.
pub(super) fn lists() -> PathBuf {
    root().join("tests/layering/exceptions")
}

/// A list without entries that are no longer found.
fn shrunk(listed: &Counts, now: &Counts) -> Counts {
    listed.iter().filter_map(|(key, &count)| Some((key.clone(), count.min(*now.get(key)?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { list: "x", form: "path: count", says: "No x.", remedy: "Take y.", counted: true };

    fn found(keys: &[(&str, usize)]) -> Found {
        let mut found = Found::default();
        for (key, count) in keys {
            (0..*count).for_each(|n| found.one(*key, format!("{key}:{n}")));
        }
        found
    }

    fn complaints(listed: &str, keys: &[(&str, usize)]) -> String {
        let found = found(keys);
        RULE.complaints(&RULE.parse(listed), &found.counts(true), &found)
    }

    #[test]
    fn only_a_list_that_says_what_is_found_holds() {
        assert_eq!(complaints("# head\na: 2\nb: 1\n", &[("a", 2), ("b", 1)]), "");
        let new = complaints("a: 1\n", &[("a", 2), ("b", 1)]);
        for word in ["No x.", "Take y.", "a: 2, listed: 1", "a:1", "b: 1, listed: 0"] {
            assert!(new.contains(word), "{word}: {new}");
        }
        assert!(!new.contains("well done"), "{new}");
        let over = complaints("a: 2\nb: 1\n", &[("a", 1)]);
        for word in ["well done", "exceptions/x.txt", "LONGHAUL_SHRINK=1", "a: 1, listed: 2", "b: 0, listed: 1"] {
            assert!(over.contains(word), "{word}: {over}");
        }
        assert!(!over.contains("Take y."), "{over}");
    }

    #[test]
    fn a_list_only_shrinks() {
        let listed = RULE.parse("a: 2\nb: 1\nc: 1\n");
        let shrunk = shrunk(&listed, &found(&[("a", 1), ("c", 3), ("d", 1)]).counts(true));
        let text = RULE.written(&shrunk);
        assert!(text.ends_with("\na: 1\nc: 1\n"), "{text}");
        assert_eq!(RULE.parse(&text), shrunk);
    }

    #[test]
    fn a_list_without_counts_has_its_keys_alone() {
        let rule = Rule { counted: false, form: "a -> b", ..RULE };
        let found = found(&[("c: a -> b", 3)]);
        assert!(rule.written(&found.counts(false)).ends_with("\nc: a -> b\n"));
        assert_eq!(rule.complaints(&rule.parse("c: a -> b\n"), &found.counts(false), &found), "");
    }

    #[test]
    #[should_panic(expected = "not sorted")]
    fn a_list_is_sorted() {
        RULE.parse("b: 1\na: 1\n");
    }
}
