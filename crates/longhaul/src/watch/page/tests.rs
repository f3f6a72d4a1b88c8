//! The page against names that would become markup, and by the rules of what people can read.

use super::*;
use crate::watch::status::{Hour, Load, PaceState, StatusHead, Totals};

/// A state in which every text that comes from elsewhere is this one.
fn status_of(text: &str) -> Status {
    let name = || text.to_owned();
    let session = SessionState {
        session: name(),
        client: name(),
        peer: name(),
        what: name(),
        direction: IN,
        protect: "private",
        transport: "tcp",
        seconds: 61.0,
        files_committed: 3,
        files_failed: 1,
        pace: PaceState {
            bytes_done: 25,
            bytes_total: 100,
            scanned: true,
            bytes_per_s: 5,
            eta_s: Some(15.0),
            limited_by: Some("target"),
            silent_s: 9.0,
            lanes: 4,
        },
    };
    let target = TargetOf {
        target: 1,
        dir: name(),
        state: "ok",
        free_bytes: Some(40),
        size_bytes: Some(100),
        fill: Some(0.6),
        written_bytes: 7,
        busy_bytes_per_s: Some(1_000_000),
        queued: 2,
        p50_s: Some(0.001),
        p99_s: Some(0.25),
    };
    let flaws = vec![name()];
    let root = RootState { root: name(), takes_files: true, rate_limit_per_s: Some(8), flaws, targets: vec![target] };
    let path = PathOf { peer: name(), clients: vec![name()], sessions: 1, lanes: 4, ..PathOf::default() };
    let fault = FaultOf { time: name(), code: "io", client: name(), what: name(), message: name() };
    Status {
        head: StatusHead {
            version: "1.2.3",
            begun: Some(name()),
            listen: vec![name()],
            key: name(),
            ..StatusHead::default()
        },
        state: "serving",
        unready: vec![name()],
        load: Load { sessions: 1, sessions_max: 64, memory_bytes: 99, memory_max: 100, ..Load::default() },
        totals: Totals { audit_records: Some(5), audit_lost: Some(1), ..Totals::default() },
        sessions: vec![session],
        roots: vec![root],
        paths: vec![path],
        faults: vec![fault],
        history: Hour {
            every_s: 10,
            received_per_s: vec![1.0, 2.0],
            sent_per_s: vec![0.0, 1e9],
            sessions: vec![1.0, 1.0],
        },
    }
}

/// The markup alone: texts and values of attributes are left out.
fn skeleton(page: &str) -> String {
    let (mut markup, mut in_tag, mut quoted) = (String::new(), false, false);
    for letter in page.chars() {
        match letter {
            '"' if in_tag => {
                quoted = !quoted;
                markup.push('"');
            }
            _ if quoted => {}
            '<' => {
                in_tag = true;
                markup.push('<');
            }
            '>' => {
                in_tag = false;
                markup.push('>');
            }
            _ if in_tag => markup.push(letter),
            _ => {}
        }
    }
    markup
}

#[test]
fn no_name_changes_the_markup_of_the_page() {
    let plain = skeleton(&page(&status_of("lab")));
    assert!(plain.contains("<table") && plain.matches("<tr").count() == 8, "{plain}");
    for name in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "</title></style></textarea><svg/onload=alert(1)>",
        "<!--",
        "]]>",
        "&lt;script&gt;",
        "a\u{0}b\u{1b}[2J\u{202e}\u{2028}",
        "${alert(1)}{{7*7}}",
        "javascript:alert(1)",
    ] {
        let page = page(&status_of(name));
        assert_eq!(skeleton(&page), plain, "{name}");
        assert!(!page.contains("<script>") && !page.contains("<img"), "{name}");
        assert!(!page.chars().any(|letter| longhaul_core::is_deceptive(letter) && letter != '\n'), "{name}");
    }
}

#[test]
fn the_page_stands_alone_and_can_be_read_by_ear() {
    let page = page(&status_of("lab"));
    for foreign in ["http:", "https:", "//", "style=", "<style", "onclick", "<iframe"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("<h1").count(), 1);
    let tables = page.matches("<table").count();
    assert_eq!((tables, page.matches("<caption").count()), (4, tables));
    assert_eq!(page.matches("<th ").count(), page.matches(" scope=\"").count());
    assert!(page.contains("lang=\"en\"") && page.contains("href=\"#main\"") && page.contains("id=\"main\""));
    let ids: Vec<_> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    assert!(ids.iter().all(|id| page.matches(&format!(" id=\"{id}\"")).count() == 1));
}

#[test]
fn a_daemon_that_does_nothing_says_so() {
    let page = page(&Status { state: "starting", ..Status::default() });
    for words in ["No session runs.", "Nobody is connected.", "There were none since", "starting"] {
        assert!(page.contains(words), "{words}");
    }
}

/// The colours of the style, for light and for dark: name and value.
fn colours() -> [std::collections::BTreeMap<String, [f64; 3]>; 2] {
    let blocks = STYLE.split(":root {").skip(1).map(|block| block.split('}').next().unwrap());
    let mut sets = blocks.map(|block| {
        let colour = |part: &str| {
            let (name, value) = part.trim().strip_prefix("--")?.split_once(": #")?;
            let channel = |at: usize| f64::from(u8::from_str_radix(&value[at..at + 2], 16).unwrap()) / 255.0;
            Some((name.to_owned(), [channel(0), channel(2), channel(4)]))
        };
        block.split(';').filter_map(colour).collect()
    });
    [sets.next().unwrap(), sets.next().unwrap()]
}

/// The contrast of two colours by WCAG 2.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let light = |colour: [f64; 3]| {
        let linear = colour.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    };
    let (one, other) = (light(one), light(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn texts_and_lines_can_be_told_from_their_ground_in_light_and_in_dark() {
    for set in colours() {
        let on = |ink: &str, ground: &str, least: f64| {
            let found = contrast(set[ink], set[ground]);
            assert!(found >= least, "{ink} on {ground}: {found:.2}");
        };
        for ground in ["paper", "card"] {
            ["ink", "soft", "link"].iter().for_each(|ink| on(ink, ground, 4.5));
            ["one", "two", "three"].iter().for_each(|ink| on(ink, ground, 3.0));
        }
        for tone in ["fine", "doubtful", "bad"] {
            on(tone, &format!("{tone}-bg"), 4.5);
            on(tone, "card", 4.5);
        }
        on("ink", "plain-bg", 4.5);
        on("one", "track", 3.0);
    }
}
