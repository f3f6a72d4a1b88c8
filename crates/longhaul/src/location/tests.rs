//! Tests of written locations: a table of texts and their results.

use longhaul_core::PathError;

use super::*;

fn parse(text: &[u8]) -> Result<Location, LocationFlaw> {
    Location::parse(OsStr::from_bytes(text)).map_err(|error| match error {
        Error::Location { flaw, .. } => flaw,
        other => panic!("{other}"),
    })
}

fn local(path: &str, slash: bool) -> Result<Location, LocationFlaw> {
    Ok(Location::Local(LocalPath { path: path.into(), slash }))
}

fn daemon(host: &str, port: u16, path: Option<(&str, &[u8], bool)>) -> Result<Location, LocationFlaw> {
    let path = path.map(|(root, path, slash)| RemotePath {
        root: Word::try_from(root).unwrap(),
        path: RelPath::new(path).unwrap(),
        slash,
    });
    Ok(Location::Daemon(DaemonPath { host: host.to_owned(), port, path }))
}

#[test]
fn local_paths_are_taken_as_they_are_but_for_their_slashes() {
    for (text, path, slash) in [
        ("data", "data", false),
        ("data/", "data", true),
        ("data///", "data", true),
        ("/abs/path", "/abs/path", false),
        ("./a:b", "./a:b", false),
        ("dir/a:b", "dir/a:b", false),
        ("/", "/", true),
        ("//", "/", true),
        (".", ".", true),
        ("..", "..", true),
        ("a/..", "a/..", true),
        ("dir/.", "dir/.", true),
        ("dir/.hidden", "dir/.hidden", false),
        ("-", "-", false),
        ("a//b", "a//b", false),
    ] {
        assert_eq!(parse(text.as_bytes()), local(path, slash), "{text}");
    }
}

#[test]
fn names_that_are_not_utf8_are_kept() {
    let bytes = b"\xff\xfe/x";
    let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
    assert_eq!(parse(bytes), Ok(Location::Local(LocalPath { path, slash: false })));
    assert_eq!(parse(b"lh://h/r/\xff"), daemon("h", 7214, Some(("r", b"\xff", false))));
}

#[test]
fn daemon_paths_are_literal_bytes() {
    let cases: [(&[u8], _); 16] = [
        (b"lh://h", daemon("h", 7214, None)),
        (b"lh://h/", daemon("h", 7214, None)),
        (b"lh://h:9//", daemon("h", 9, None)),
        (b"lh://h/atlas", daemon("h", 7214, Some(("atlas", b"", false)))),
        (b"lh://h/atlas/", daemon("h", 7214, Some(("atlas", b"", true)))),
        (b"lh://h:65535/r/a/b", daemon("h", 65535, Some(("r", b"a/b", false)))),
        (b"lh://h/r/a/b/", daemon("h", 7214, Some(("r", b"a/b", true)))),
        (b"lh://h/r/a/.", daemon("h", 7214, Some(("r", b"a", true)))),
        (b"lh://h/r//a/./b", daemon("h", 7214, Some(("r", b"a/b", false)))),
        (b"lh://h/r/%2e%2e", daemon("h", 7214, Some(("r", b"%2e%2e", false)))),
        (b"lh://h/r/a?b#c", daemon("h", 7214, Some(("r", b"a?b#c", false)))),
        (b"lh://h/r/a b\n", daemon("h", 7214, Some(("r", b"a b\n", false)))),
        (b"lh://[2001:db8::1]:7215/r", daemon("2001:db8::1", 7215, Some(("r", b"", false)))),
        (b"lh://[::1]/r/x:y", daemon("::1", 7214, Some(("r", b"x:y", false)))),
        (b"lh://10.0.0.1:1/r/@x", daemon("10.0.0.1", 1, Some(("r", b"@x", false)))),
        (b"lh://h/r/...", daemon("h", 7214, Some(("r", b"...", false)))),
    ];
    for (text, want) in cases {
        assert_eq!(parse(text), want, "{}", Escaped(text));
    }
}

#[test]
fn a_colon_before_the_first_slash_means_a_host_that_ssh_leads_to() {
    let parts = |text: &str| match parse(text.as_bytes()) {
        Ok(Location::Ssh(path)) => {
            let (place, name) = path.split();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (path.host.clone(), text(place), name.map(text))
        }
        other => panic!("{text}: {other:?}"),
    };
    for (text, host, place, name) in [
        ("host:path", "host", "", Some("path")),
        ("user@host:/abs/x", "user@host", "/abs", Some("x")),
        ("host:/x", "host", "/", Some("x")),
        ("host:", "host", "", None),
        ("host:~", "host", "~", None),
        ("host:dir/sub/", "host", "dir/sub", None),
        ("host:/", "host", "/", None),
        ("host:a/..", "host", "a/..", None),
        ("[2001:db8::1]:path", "2001:db8::1", "", Some("path")),
        ("me@[::1]:a/b", "me@::1", "a", Some("b")),
        ("host:a:b", "host", "", Some("a:b")),
        ("host: it's \"$x\"\n*", "host", "", Some(" it's \"$x\"\n*")),
    ] {
        assert_eq!(parts(text), (host.into(), place.into(), name.map(str::to_owned)), "{text}");
    }
}

#[test]
fn what_cannot_be_a_location_is_named() {
    let cases: [(&[u8], LocationFlaw); 29] = [
        (b"", LocationFlaw::Empty),
        (b"host::module/x", LocationFlaw::RsyncModule),
        (b"-oProxyCommand=x:path", LocationFlaw::Host),
        (b"-l@host:path", LocationFlaw::Host),
        (b"@host:path", LocationFlaw::Host),
        (b":path", LocationFlaw::NoHost),
        (b"[::1:path", LocationFlaw::Host),
        (b"[name]:path", LocationFlaw::Host),
        (b"a b:path", LocationFlaw::Host),
        (b"h$(x):path", LocationFlaw::Host),
        (b"host:~bob/x", LocationFlaw::OtherHome),
        (b"http://h/x", LocationFlaw::Scheme),
        (b"longhaul://h/x", LocationFlaw::Scheme),
        (b"lh:///r", LocationFlaw::NoHost),
        (b"lh://:7214/r", LocationFlaw::NoHost),
        (b"lh://h:/r", LocationFlaw::Port),
        (b"lh://h:0/r", LocationFlaw::Port),
        (b"lh://h:65536/r", LocationFlaw::Port),
        (b"lh://h:+1/r", LocationFlaw::Port),
        (b"lh://[::1]7214/r", LocationFlaw::Port),
        (b"lh://[::1/r", LocationFlaw::Host),
        (b"lh://[name]/r", LocationFlaw::Host),
        (b"lh://a b/r", LocationFlaw::Host),
        (b"lh://\xff/r", LocationFlaw::Host),
        (b"lh://user@h/r", LocationFlaw::User),
        (b"lh://h/r/../s", LocationFlaw::Path(PathError::Dots)),
        (b"lh://h/..", LocationFlaw::Path(PathError::Dots)),
        (b"lh://h/r/.longhaul/x", LocationFlaw::Path(PathError::Reserved)),
        (b"lh://h/r\x1b/x", LocationFlaw::Root),
    ];
    for (text, want) in cases {
        assert_eq!(parse(text), Err(want), "{}", Escaped(text));
    }
}

#[test]
fn host_and_port_are_written_as_they_are_read() {
    assert_eq!(host_port("::1", 7), "[::1]:7");
    assert_eq!(host_port("h", 7), "h:7");
    assert_eq!(parse_host(b"[::1]:7"), Ok(("::1".to_owned(), 7)));
}
