//! Tables of patterns, paths and verdicts, as rsync's manual and matcher have them.

use super::*;

fn rule(text: &str) -> Rule {
    let (sign, pattern) = text.split_at(2);
    let kind = if sign == "+ " { RuleKind::Include } else { RuleKind::Exclude };
    Rule { kind, pattern: pattern.into() }
}

/// A filter of rules written as in rsync's filter files: `+ x` or `- x`.
fn filter(rules: &[&str]) -> Filter {
    Filter::new(rules.iter().map(|text| rule(text)).collect()).expect("patterns that parse")
}

/// The verdict on a path; with a slash behind it, on a directory.
fn sends(filter: &Filter, path: &[u8]) -> bool {
    let bare = path.strip_suffix(b"/").unwrap_or(path);
    filter.verdict(&RelPath::new(bare).expect("a path"), bare.len() < path.len())
}

/// A pattern, paths that it matches, paths that it does not.
type Row<'a> = (&'a str, &'a [&'a [u8]], &'a [&'a [u8]]);

fn check(table: &[Row<'_>]) {
    for (pattern, matched, others) in table {
        let filter = filter(&[&format!("- {pattern}")]);
        for path in *matched {
            assert!(!sends(&filter, path), "{pattern} must match {}", Escaped(path));
        }
        for path in *others {
            assert!(sends(&filter, path), "{pattern} must not match {}", Escaped(path));
        }
    }
}

fn fault(pattern: &str) -> Option<PatternFault> {
    Filter::new(vec![rule(&format!("- {pattern}"))]).err().map(|error| error.why)
}

#[test]
fn patterns_sit_where_their_slashes_say() {
    check(&[
        ("foo", &[b"foo", b"foo/", b"a/foo", b"a/b/foo"], &[b"foo2", b"afoo", b"foo/a", b"Foo"]),
        ("/foo", &[b"foo", b"foo/"], &[b"a/foo", b"foo/foo"]),
        ("foo/", &[b"foo/", b"a/foo/"], &[b"foo", b"a/foo", b"foo/a"]),
        ("/foo/", &[b"foo/"], &[b"foo", b"a/foo/"]),
        ("foo/bar", &[b"foo/bar", b"a/foo/bar", b"a/b/foo/bar/"], &[b"bar", b"xfoo/bar", b"foo/bar/c", b"foo/a/bar"]),
        ("/foo/bar", &[b"foo/bar"], &[b"a/foo/bar", b"foo/bar/c"]),
        ("foo/bar/", &[b"a/foo/bar/"], &[b"a/foo/bar"]),
    ]);
}

#[test]
fn a_star_stays_within_a_name() {
    check(&[
        ("*", &[b"a", b"a/b", b".hidden"], &[]),
        ("/*", &[b"a", b"a/"], &[b"a/b"]),
        ("*.root", &[b"x.root", b"a/x.root", b".root", b"x.y.root"], &[b"x.root2", b"x.root/y", b"xroot"]),
        ("/*.root", &[b"x.root"], &[b"a/x.root"]),
        ("run*", &[b"run", b"run7", b"a/run7"], &[b"a/xrun", b"run7/x"]),
        ("r*n/x", &[b"run/x", b"a/rn/x"], &[b"r/n/x", b"run/a/x"]),
        ("/foo/*/bar", &[b"foo/a/bar"], &[b"foo/bar", b"foo/a/b/bar", b"x/foo/a/bar"]),
        ("f?o", &[b"foo", b"a/f_o"], &[b"fo", b"fooo"]),
        ("/f?o", &[b"foo"], &[b"f/o"]),
        ("a*b*c", &[b"abc", b"axbxc", b"abcbc"], &[b"abcd", b"a/b/c"]),
    ]);
}

#[test]
fn two_stars_cross_from_anywhere() {
    check(&[
        ("**", &[b"a", b"a/b"], &[]),
        ("/foo/**", &[b"foo/a", b"foo/a/b"], &[b"foo", b"foo/", b"a/foo/b"]),
        ("foo/**", &[b"foo/a", b"x/foo/a/b"], &[b"foo/", b"xfoo/a"]),
        ("/foo/**/bar", &[b"foo/a/bar", b"foo/a/b/bar"], &[b"foo/bar", b"foo/a/xbar"]),
        ("**/bar", &[b"bar", b"a/bar", b"a/b/bar"], &[b"xbar", b"bar/a"]),
        ("**/a/**", &[b"a/b", b"x/a/b/c"], &[b"a/", b"xa/b"]),
        ("**/", &[b"a/", b"a/b/"], &[b"a", b"a/b"]),
        ("***/a", &[b"a", b"x/a"], &[b"xa"]),
        ("/**/bar", &[b"a/bar", b"a/b/bar"], &[b"bar"]),
        ("**bar", &[b"bar", b"xbar", b"a/xbar"], &[b"bar/a"]),
        ("/a**z", &[b"az", b"a/z", b"abc/d/xyz"], &[b"x/az", b"a/zy"]),
        ("a**z", &[b"az", b"x/a/z", b"x/ab/c/yz"], &[b"xa/z"]),
        ("/a/***", &[b"a/", b"a/b", b"a/b/c/"], &[b"a", b"x/a/", b"ab/"]),
        ("a*/***", &[b"ab/", b"x/ab/", b"ab/c/d"], &[b"ab", b"ba/"]),
        ("/foo**", &[b"foo", b"foobar/a"], &[b"a/foo"]),
    ]);
}

#[test]
fn brackets_hold_sets_ranges_and_classes() {
    check(&[
        ("[abc]", &[b"a", b"x/c"], &[b"d", b"ab"]),
        ("[!abc]", &[b"d", b"\xff", b"-"], &[b"a", b"b"]),
        ("[^a-y]", &[b"z", b"A"], &[b"a", b"m"]),
        ("x[0-9].h5", &[b"x0.h5", b"a/x9.h5"], &[b"xa.h5", b"x.h5"]),
        ("[]x]", &[b"]", b"x"], &[b"[", b"]x"]),
        ("[!]-]", &[b"a"], &[b"]", b"-"]),
        ("[-x]", &[b"-", b"x"], &[b"y"]),
        ("[x-]", &[b"-", b"x"], &[b"y"]),
        ("[a-c-e]", &[b"b", b"-", b"e"], &[b"d"]),
        ("[!^]", &[b"!", b"a"], &[b"^"]),
        ("[!!]", &[b"^"], &[b"!"]),
        ("[x!^]", &[b"!", b"^", b"x"], &[b"y"]),
        ("[\\]]", &[b"]"], &[b"\\"]),
        ("[\\^]", &[b"^"], &[b"\\", b"a"]),
        ("[,{}]", &[b",", b"{", b"}"], &[b"[", b"a"]),
        ("[[:digit:]x]", &[b"7", b"x"], &[b"d", b":", b"a"]),
        ("[![:space:]]", &[b"a"], &[b" ", b"\t", b"\x0b"]),
        ("[[:]", &[b"[", b":"], &[b"a"]),
        ("[&~&]", &[b"&", b"~"], &[b"a"]),
        ("/a[!x]b", &[b"ayb"], &[b"a/b", b"axb"]),
        ("/a[+-9]b", &[b"a.b", b"a0b"], &[b"a/b"]),
    ]);
}

#[test]
fn what_is_special_elsewhere_is_itself() {
    check(&[
        ("{a,b}", &[b"{a,b}", b"x/{a,b}"], &[b"a", b"b"]),
        ("{a*,b}", &[b"{ax,b}"], &[b"ax", b"b"]),
        ("}", &[b"}"], &[b"{"]),
        ("a.b+(c)|$^", &[b"a.b+(c)|$^"], &[b"axb+(c)|$^"]),
        ("!x", &[b"!x"], &[b"x", b"y"]),
        ("]", &[b"]"], &[b"["]),
        // A backslash escapes only where there is something to escape.
        ("foo\\bar", &[b"foo\\bar"], &[b"foobar"]),
        ("foo\\\\bar*", &[b"foo\\bar7"], &[b"foobar7"]),
        ("foo\\bar*", &[b"foobar7"], &[b"foo\\bar7"]),
        ("\\*", &[b"*"], &[b"a", b"\\*"]),
        ("\\[a\\]", &[b"[a]"], &[b"a"]),
        ("a\\?", &[b"a?"], &[b"ab"]),
        ("name with spaces", &[b"name with spaces"], &[b"name"]),
        ("-- x", &[b"-- x"], &[b"x"]),
    ]);
}

#[test]
fn names_are_bytes() {
    check(&[
        ("*.dat", &[b"\xff\xfe.dat", b"\xe9t\xe9/\x80.dat"], &[b"\xff.da"]),
        ("a?b", &[b"a\xffb"], &["a\u{e9}b".as_bytes()]),
        ("a??b", &["a\u{e9}b".as_bytes()], &[b"a\xffb"]),
        ("\u{e9}*", &["\u{e9}t\u{e9}".as_bytes()], &[b"\xe9t\xe9", b"e"]),
        ("/\u{e9}/x", &["\u{e9}/x".as_bytes()], &[b"\xe9/x"]),
        ("a*b", &[b"a\nb"], &[]),
        ("a**b", &[b"a\n/\xff\nb"], &[]),
        ("a[!x]b", &[b"a\xffb", b"a\nb"], &[b"axb"]),
        ("*.", &[b"x.", b"..."], &[b"x"]),
        ("...", &[b"...", b"a/..."], &[b"...."]),
    ]);
}

#[test]
fn the_first_match_decides() {
    let keep_headers = filter(&["+ /src/", "+ *.h", "- *"]);
    for (path, sent) in
        [(&b"src/"[..], true), (b"src/a.h", true), (b"src/a.c", false), (b"lib/", false), (b"a.h", true)]
    {
        assert_eq!(sends(&keep_headers, path), sent, "{}", Escaped(path));
    }
    let shadowed = filter(&["- *.h", "+ a.h"]);
    assert!(!sends(&shadowed, b"a.h"));
    assert!(sends(&shadowed, b"a.c"));
}

#[test]
fn a_rule_for_directories_lets_a_later_one_judge_files() {
    let filter = filter(&["+ x/", "- x"]);
    assert!(sends(&filter, b"x/"));
    assert!(!sends(&filter, b"x"));
}

#[test]
fn without_rules_and_for_the_top_everything_is_sent() {
    assert!(sends(&Filter::default(), b"a/b"));
    let nothing = filter(&["- **"]);
    assert!(nothing.verdict(&RelPath::root(), true));
    assert_eq!(nothing.rules(), [rule("- **")]);
}

#[test]
fn patterns_that_do_not_parse_say_why() {
    let cases = [
        ("", PatternFault::Empty),
        ("/", PatternFault::Empty),
        ("//", PatternFault::Empty),
        ("a//b", PatternFault::EmptyName),
        ("//a", PatternFault::EmptyName),
        ("a//", PatternFault::EmptyName),
        ("a*\\", PatternFault::LoneBackslash),
        ("[a", PatternFault::OpenBracket),
        ("[]", PatternFault::OpenBracket),
        ("[a\\", PatternFault::OpenBracket),
        ("[[:alpha:]", PatternFault::OpenBracket),
        ("[z-a]", PatternFault::EmptyRange { from: 'z', to: 'a' }),
        ("[[:foo:]]", PatternFault::UnknownClass { name: "foo".to_owned() }),
        ("[a\u{e9}]", PatternFault::NotAscii { found: '\u{e9}' }),
        ("[/]", PatternFault::OnlySlash),
    ];
    for (pattern, why) in cases {
        assert_eq!(fault(pattern), Some(why), "{pattern}");
    }
}

#[test]
fn errors_cannot_move_a_cursor() {
    let shown = Filter::new(vec![rule("- \x1b[2[:\x1b[2J:]]")]).map_err(|error| format!("{error}: {}", error.why));
    let want = "cannot use the filter pattern '\\x1b[2[:\\x1b[2J:]]': there is no character class [:\\x1b[2J:]";
    assert_eq!(shown.err().as_deref(), Some(want));
    let fault = fault("[\u{202e}]").map(|why| why.to_string());
    assert_eq!(fault.as_deref(), Some("'\\u{202e}' is not ASCII, and brackets hold ASCII only"));
}

#[test]
fn patterns_without_end_are_refused() {
    assert_eq!(fault(&"a".repeat(4095)), None);
    assert_eq!(fault(&"a".repeat(4096)), Some(PatternFault::TooLong));
    let many = |count| Filter::new((0..count).map(|i| rule(&format!("- *{i}x"))).collect());
    assert!(many(FILTERS_MAX).is_ok());
    assert_eq!(many(FILTERS_MAX + 1).err().map(|error| error.why), Some(PatternFault::TooMany));
}

#[test]
fn what_is_too_much_together_is_an_error_and_no_panic() {
    let refused = |pattern: String| Filter::new(vec![rule(&format!("- {pattern}")); 500]).err().map(|error| error.why);
    assert_eq!(refused("[[:print:]]".repeat(300)), Some(PatternFault::TooMuch));
    assert_eq!(refused("a**".repeat(32)), None);
    assert_eq!(refused("a**".repeat(33)), Some(PatternFault::TooManyStars));
    assert_eq!(refused("a*".repeat(33)), Some(PatternFault::TooManyStars));
    assert_eq!(refused("a".repeat(400)), None);
}

#[test]
fn a_hostile_pattern_takes_no_longer_than_a_plain_one() {
    // A matcher that backtracks would not come back from this.
    let filter = filter(&[&format!("- {}b", "a**".repeat(32))]);
    assert!(sends(&filter, vec![&[b'a'; 255][..]; 15].join(&b'/').as_slice()));
}
