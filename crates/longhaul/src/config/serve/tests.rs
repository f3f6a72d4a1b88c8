//! Tests of valid daemon configs, and of the messages for mistakes.

use super::*;
use longhaul_engine::{ExtrasPolicy, LinkPolicy, ModePolicy, Rights};
use longhaul_net::Identity;

fn parse(text: &str) -> Result<Daemon, Error> {
    Daemon::parse(Path::new("/c/serve.toml"), text, Vec::new())
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn root(text: &str) -> CommandLineRoot {
    CommandLineRoot::parse(OsStr::new(text)).unwrap()
}

const READ: Rights = Rights { read: true, create: false, modify: false, delete: false };

#[test]
fn the_documented_config_is_accepted() {
    let key = Identity::generate().unwrap().public();
    let text = format!(
        r#"
listen   = ["[::]:7214", "127.0.0.1:0"]
identity = "/etc/longhaul/identity"
state    = "/var/lib/longhaul"
depth    = 16
[limits]
sessions = 8
memory   = "1GiB"
partials = "3days"
idle     = "30min"
unfinished = 20
sync_interval = "250ms"
sync_bytes = "256MiB"
bench_bytes = "8GiB"
[[root]]
name    = "atlas"
targets = ["/d1/atlas"]
allow   = ["read", "create", "modify"]
protect = ["private", "safe"]
[[client]]
name  = "triumf"
key   = "{key}"
roots = {{ atlas = ["read", "create"] }}
bench = true
"#
    );
    let daemon = parse(&text).unwrap();
    let config = daemon.config;
    assert_eq!(daemon.identity, Some("/etc/longhaul/identity".into()));
    assert_eq!((config.listen.len(), config.sessions, config.memory), (2, 8, ByteCount(1 << 30)));
    assert_eq!(config.depth, Some(16));
    assert_eq!(config.partials, Some(Duration::from_secs(3 * 86_400)));
    assert_eq!((config.idle, config.unfinished), (Some(Duration::from_secs(1800)), 20));
    assert_eq!((config.sync.bytes, config.sync.age), (256 << 20, Duration::from_millis(250)));
    assert!(config.bench_bytes == ByteCount(8 << 30) && config.clients[0].bench);
    assert_eq!(config.roots[0].allow, Rights { read: true, create: true, modify: true, delete: false });
    assert_eq!(config.roots[0].protect, [Protection::Private, Protection::Safe]);
    assert_eq!(config.clients[0].key, key);
    assert_eq!(config.clients[0].roots["atlas"], Rights { read: true, create: true, modify: false, delete: false });
}

#[test]
fn an_empty_config_listens_everywhere_and_offers_nothing() {
    let config = parse("").unwrap().config;
    assert_eq!(config.listen, ["[::]:7214"]);
    assert!(config.roots.is_empty() && config.clients.is_empty());
    assert_eq!(config.bench_bytes, ByteCount(64 << 30));
}

#[test]
fn partials_are_collected_after_a_fortnight_unless_it_says_otherwise() {
    let partials = |text: &str| parse(text).unwrap().config.partials;
    assert_eq!(partials(""), Some(Duration::from_secs(14 * 86_400)));
    assert_eq!(partials("[limits]\npartials = \"90min\""), Some(Duration::from_secs(90 * 60)));
    for never in ["[limits]\npartials = 0", "[limits]\npartials = \"0\""] {
        assert_eq!(partials(never), None, "{never}");
    }
    assert!(refusal("[limits]\npartials = 14").contains(":2:12: '14' is not a time, as 12h or 14d, or 0 for never"));
}

#[test]
fn idle_sessions_end_after_ten_minutes_unless_it_says_otherwise() {
    let idle = |text: &str| parse(text).unwrap().config.idle;
    assert_eq!(idle(""), Some(Duration::from_secs(600)));
    assert_eq!(idle("[limits]\nidle = \"90s\""), Some(Duration::from_secs(90)));
    assert_eq!(idle("[limits]\nidle = 0"), None);
}

#[test]
fn a_daemon_dials_nowhere_for_clients_unless_it_says_otherwise() {
    let dial =
        |text: &str| -> Vec<String> { parse(text).unwrap().confinement.dial.iter().map(ToString::to_string).collect() };
    assert_eq!(dial(""), [""; 0]);
    assert_eq!(dial("third_party.dial = []"), [""; 0]);
    let two = "[third_party]\ndial = ['dtn.example.org', '10.0.0.0/8:80']";
    assert_eq!(dial(two), ["dtn.example.org:7214", "10.0.0.0/8:80"]);
}

#[test]
fn a_root_is_read_only_and_private_unless_it_says_more() {
    let config = parse("[[root]]\nname = \"r\"\ntargets = [\"/d\"]").unwrap().config;
    assert_eq!((config.roots[0].allow, config.roots[0].protect.as_slice()), (READ, &[Protection::Private][..]));
}

#[test]
fn modes_and_links_of_a_root_are_bounded_unless_it_says_otherwise() {
    let masked = |dirs, files| ModePolicy::Masked { dirs, files };
    let policy = |lines: &str| {
        let text = format!("[[root]]\nname = \"r\"\ntargets = [\"/d\"]\n{lines}");
        parse(&text).unwrap().config.roots[0].policy
    };
    assert_eq!(policy(""), TreePolicy::served());
    assert_eq!(root("r=/d").0.policy, TreePolicy::served());
    for (line, modes) in [
        ("mode_mask = '0750'", masked(0o750, 0o750)),
        ("mode_mask = '664'", masked(0o664, 0o664)),
        ("mode_mask = { dirs = '0775', files = '0664' }", masked(0o775, 0o664)),
        ("mode_mask = 'keep'", ModePolicy::Keep),
    ] {
        assert_eq!(policy(line), TreePolicy { modes, ..TreePolicy::served() }, "{line}");
    }
    for (line, links) in [
        ("links = 'keep'", LinkPolicy::Keep),
        ("links = 'inside'", LinkPolicy::Inside),
        ("links = 'refuse'", LinkPolicy::Refuse),
    ] {
        assert_eq!(policy(line), TreePolicy { links, ..TreePolicy::served() }, "{line}");
    }
    for (line, extras) in [
        ("preserve = []", ExtrasPolicy::NOTHING),
        ("preserve = ['xattrs']", ExtrasPolicy::SERVED),
        ("preserve = ['owner']", ExtrasPolicy { owner: true, ..ExtrasPolicy::NOTHING }),
        ("preserve = ['xattrs', 'owner', 'set-id', 'acls']", ExtrasPolicy::default()),
    ] {
        assert_eq!(policy(line), TreePolicy { extras, ..TreePolicy::served() }, "{line}");
    }
}

#[test]
fn a_client_and_a_root_may_have_bounds_of_their_own() {
    let key = Identity::generate().unwrap().public();
    let bounds = "sessions = 3\nmemory = '32MiB'";
    let text = format!("[[root]]\nname='r'\ntargets=['/a']\nsessions = 2\n[[client]]\nname='a'\nkey='{key}'\n{bounds}");
    let config = parse(&text).unwrap().config;
    assert_eq!(config.roots[0].sessions, Some(2));
    assert_eq!((config.clients[0].sessions, config.clients[0].memory), (Some(3), Some(ByteCount(32 << 20))));
}

#[test]
fn mistakes_are_named_with_line_and_column() {
    let key = Identity::generate().unwrap().public();
    let two = format!("[[client]]\nname='a'\nkey='{key}'\n[[client]]\nname='b'\nkey='{key}'");
    let greedy = format!(
        "[[root]]\nname='r'\ntargets=['/a']\n[[client]]\nname='a'\nkey='{key}'\nroots={{ r = ['read', 'modify'] }}"
    );
    let bounded = |line: &str| format!("[[client]]\nname='a'\nkey='{key}'\n{line}");
    let stray = format!("[[client]]\nname='a'\nkey='{key}'\nroots={{ nowhere = ['read'] }}");
    for (text, want) in [
        ("port = 7214", ":1:1: unknown key 'port'; the keys here are listen, identity"),
        ("[[root]]\nname = \"r\"", ":1:1: the key 'targets' is missing here"),
        ("[[root]]\nname = 'r'\ntargets = []", ":3:11: targets must name a directory"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\non_missing = 'refuse'", ":4:14: one directory is no set"),
        ("[[root]]\nname = 'r'\ntargets = ['/a', '/b']\nlayout = 'braid'", ":4:10: 'braid' is not one of spread"),
        ("[[root]]\nname = 'r'\ntargets = ['/a', '/b']\non_missing = 'hope'", ":4:14: 'hope' is not one of refuse"),
        ("[[root]]\nname = 'a/b'\ntargets = ['/a']", ":2:8: a root's name is one printable path component"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nallow = ['write']", ":4:10: 'write' is not one of read, create"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nprotect = ['clear']", ":4:12: 'clear' is not one of private, safe"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nlinks = 'munge'", ":4:9: 'munge' is not one of keep, inside, refuse"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nmode_mask = '0888'", ":4:13: mode_mask is an octal mask from"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nmode_mask = '2755'", ":4:13: mode_mask is an octal mask from"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nmode_mask = '0077'", ":4:13: mode_mask is an octal mask from"),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nmode_mask = 755", ":4:13: "),
        ("[[root]]\nname = 'r'\ntargets = ['/a']\nmode_mask = { dirs = '0755' }", ":4:13: "),
        ("[[client]]\nname = 'a'\nkey = 'lhk1:short'", ":3:7: this is not a public key"),
        ("[limits]\nsessions = 0", ":2:12: sessions must be 1 to 4096"),
        ("[limits]\nunfinished = 0", ":2:14: unfinished must be 1 to 1048576"),
        ("[limits]\nidle = '10ms'", ":2:8: "),
        ("[limits]\nmemory = '4 bananas'", ":2:10: '4 bananas' is not a size"),
        ("[limits]\nmemory = '1M'", ":2:10: memory must be at least 16.0 MiB"),
        ("[limits]\nbench_bytes = '1K'", ":2:15: bench_bytes must be at least 1.0 MiB"),
        ("[limits]\nsync_interval = '0s'", ":2:17: '0s' is not a time from 50ms to 1min"),
        ("[limits]\nsync_bytes = '1'", ":2:14: '1' is not a size from 1MiB to 64GiB"),
        ("[limits]\ndial = []", ":2:1: unknown key 'dial'"),
        ("[third_party]\ndial = ['192.0.2.7/24']", ":2:9: bits of the address are set behind its prefix"),
        ("[third_party]\ndial = ['a.example', 'b c']", ":2:22: this is no host name, no address and no network"),
        ("listen = ['localhost']", ":1:11: an address to listen on is HOST:PORT"),
        ("listen = ['::1:7214']", ":1:11: an address to listen on is HOST:PORT"),
        ("io = 'sideways'", ":1:6: 'sideways' is not one of auto, direct, buffered"),
        ("depth = 0", ":1:9: '0' is not a whole number"),
        (&two, ":6:5: this key is that of 'a' already"),
        (&stray, ":4:9: there is no root 'nowhere'"),
        (&bounded("share = 'polite'"), ":4:9: share must be \"fair\" or \"all\": every client may ask for less"),
        (&bounded("sessions = 0"), ":4:12: sessions must be 1 to 64, the number in [limits]"),
        (&bounded("sessions = 65"), ":4:12: sessions must be 1 to 64, the number in [limits]"),
        (&bounded("memory = '1MiB'"), ":4:10: memory must be 16.0 MiB to 4.0 GiB, the size in [limits]"),
        (&bounded("memory = '5GiB'"), ":4:10: memory must be 16.0 MiB to 4.0 GiB, the size in [limits]"),
        ("[[root]]\nname='r'\ntargets=['/a']\nsessions = 65", ":4:12: sessions must be 1 to 64, the number in"),
        (&greedy, ":7:22: client 'a' has 'modify' in root 'r', which allows read: take it out here"),
        ("listen = 5", ":1:10: "),
        ("x = [", ":1:"),
    ] {
        let said = refusal(text);
        assert!(said.starts_with(&format!("/c/serve.toml{want}")), "{said} / {want}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn roots_of_the_command_line_take_rights_behind_the_last_colon() {
    for (text, name, dir, allow) in [
        ("r=/d", "r", "/d", READ),
        ("r=/d:read,create", "r", "/d", Rights { create: true, ..READ }),
        ("r=/d:read,delete", "r", "/d", Rights { delete: true, ..READ }),
        ("r=/a:b", "r", "/a:b", READ),
        ("r=/a:b:modify", "r", "/a:b", Rights { modify: true, read: false, ..READ }),
        ("r=/a=b", "r", "/a=b", READ),
    ] {
        let CommandLineRoot(root) = root(text);
        assert_eq!(
            (root.name.as_str(), root.targets.dirs[0].as_path(), root.allow),
            (name, Path::new(dir), allow),
            "{text}"
        );
    }
    for bad in ["r", "=dir", "r=", "a/b=/d", "..=/d", "r=:read", "r=/d:read,write"] {
        assert!(CommandLineRoot::parse(OsStr::new(bad)).is_err(), "{bad}");
    }
}

#[test]
fn a_root_of_the_command_line_is_granted_to_every_client_but_never_widened() {
    let keys = [Identity::generate().unwrap().public(), Identity::generate().unwrap().public()];
    let text = format!(
        "[[client]]\nname='a'\nkey='{}'\n[[client]]\nname='b'\nkey='{}'\nroots={{ x = ['read'] }}",
        keys[0], keys[1]
    );
    let daemon = Daemon::parse(Path::new("s"), &text, vec![root("x=/d:read,create")]).unwrap();
    let all = Rights { create: true, ..READ };
    assert_eq!(daemon.config.clients[0].roots["x"], all);
    assert_eq!(daemon.config.clients[1].roots["x"], READ);
    assert_eq!(daemon.config.roots[0].allow, all);
    assert!(Daemon::parse(Path::new("s"), "", vec![root("x=/d"), root("x=/e")]).is_err());
}

#[test]
fn a_root_without_its_directory_is_refused_when_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("serve.toml");
    let text = |target: &Path| format!("[[root]]\nname='r'\ntargets=['{}']", target.display());
    std::fs::write(&path, text(dir.path())).unwrap();
    assert!(Daemon::load(Some(&path), Vec::new()).is_ok());
    std::fs::write(&path, text(&path)).unwrap();
    assert!(matches!(Daemon::load(Some(&path), Vec::new()), Err(Error::RootDir { .. })));
}

#[test]
fn whatever_is_not_kept_for_a_client_with_a_user_is_refused_where_it_has_one() {
    let key = Identity::generate().unwrap().public();
    let text = |watch: &str, root: &str, rights: &str, client: &str| {
        format!(
            "state = '/s'\n[watch]\n{watch}\n[[root]]\nname = 'r'\ntargets = ['/r']\nallow = ['read', 'create']\n{root}\n\
             [[client]]\nname = 'c'\nkey = '{key}'\nroots = {{ r = ['{rights}'] }}\n{client}\n"
        )
    };
    let user = "uid = 4321\ngid = 4321";
    let audit = "audit = '/a'\naudit_required = true";
    let bounded = |line: &str| format!("{user}\n{line}");
    for (text, why) in [
        (text("", "stored = '1TiB'", "create", user), "root 'r' has stored"),
        (text("", "reserve = '5%'", "create", user), "root 'r' has stored"),
        (text("", "", "create", &bounded("files = 7")), "client 'c' has stored"),
    ] {
        let refused = refusal(&text);
        assert!(refused.contains(why), "{refused}");
    }
    for text in [
        text(audit, "", "read", user),
        text("audit = '/a'", "", "create", user),
        text("", "stored = '1TiB'", "read", user),
        text("", "stored = '1TiB'", "create", "files = 7"),
        text("", "lanes = 4", "create", &bounded("lanes = 2\nmemory = '64MiB'")),
    ] {
        parse(&text).unwrap();
    }
}
