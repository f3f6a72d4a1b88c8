//! Filter patterns and paths to judge by them: no pattern panics or takes long to match.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::RelPath;
use longhaul_core::filter::{Filter, Rule, RuleKind};

fuzz_target!(|bytes: &[u8]| {
    // Lines: the first is the path, each other a pattern.
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let path = RelPath::new(lines.next().unwrap_or_default());
    let rules = lines.take(16).filter_map(|line| {
        let pattern = String::from_utf8(line.to_vec()).ok()?;
        let kind = if pattern.len() % 2 == 0 { RuleKind::Include } else { RuleKind::Exclude };
        Some(Rule { kind, pattern: pattern.into() })
    });
    let Ok(filter) = Filter::new(rules.collect()) else { return };
    let Ok(path) = path else { return };
    if path.is_root() || filter.rules().iter().all(|rule| rule.kind == RuleKind::Include) {
        assert!(filter.verdict(&path, true), "nothing excludes it");
    }
    filter.verdict(&path, false);
});
