//! The Debian package: what is in it, what its scripts do, and that its units hold.
//!
//! It is made of the program under test, as `cargo xtask deb` makes it of a release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Host, PROGRAM};

#[path = "../xtask/src/deb/package.rs"]
mod package;

use package::Package;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Makes the package without compression, which takes longest.
fn built(host: &Host) -> PathBuf {
    let repository = repository();
    let package =
        Package { repository: &repository, program: Path::new(PROGRAM), libraries: "a library\n", compression: "none" };
    package.build(&host.path("out")).unwrap()
}

/// The output of a tool, which must succeed.
fn said(tool: &str, args: &[&str]) -> String {
    let output = Command::new(tool).args(args).output().unwrap_or_else(|error| panic!("{tool}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool} {args:?}: {}\n{out}{err}", output.status);
    format!("{out}{err}")
}

/// Whether a tool is there; a test leaves out what needs one that is not.
fn has(tool: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap().status.success()
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_package_has_everything_in_its_place_and_installs_upgrades_and_goes_with_what_is_its_own() {
    let host = Host::new();
    let deb = built(&host);
    let deb = deb.to_str().unwrap();
    look_at_contents(deb);
    look_at_fields(deb);
    let root = installed(&host, deb);
    let at = |path: &str| root.join(path);

    // A change of the administrator's stands over an upgrade.
    fs::write(at("etc/longhaul/serve.toml"), "# mine\n").unwrap();
    fs::write(at("etc/longhaul/identity"), "secret").unwrap();
    dpkg(&root, &["--install", deb]);
    assert_eq!(fs::read_to_string(at("etc/longhaul/serve.toml")).unwrap(), "# mine\n");

    dpkg(&root, &["--remove", "longhaul"]);
    assert!(!at("usr/bin/longhaul").exists() && !at("lib/systemd/system/longhaul.service").exists());
    assert!(at("etc/longhaul/serve.toml").exists() && at("etc/longhaul/identity").exists(), "it may come back");
    fs::create_dir_all(at("var/lib/longhaul/state")).unwrap();
    fs::create_dir_all(at("srv/data")).unwrap();
    dpkg(&root, &["--purge", "longhaul"]);
    for gone in ["etc/longhaul", "var/lib/longhaul"] {
        assert!(!at(gone).exists(), "{gone} is left");
    }
    assert!(at("srv/data").exists());
    let left = said("find", &[root.to_str().unwrap(), "-path", "*longhaul*", "-not", "-path", "*/var/lib/dpkg/*"]);
    let left: Vec<_> = left.lines().filter(|path| !path.contains("/var/lib/systemd/")).collect();
    assert_eq!(left, [""; 0], "what is left");
}

fn look_at_contents(deb: &str) {
    let contents = said("dpkg-deb", &["--contents", deb]);
    for (mode, path) in [
        ("-rwxr-xr-x root/root", "./usr/bin/longhaul"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/longhaul.service"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/longhaul.socket"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/longhaul-identity.service"),
        ("-rw-r--r-- root/root", "./usr/lib/sysusers.d/longhaul.conf"),
        ("-rw-r--r-- root/root", "./etc/longhaul/serve.toml"),
        ("-rw-r--r-- root/root", "./usr/share/longhaul/sysctl.conf"),
        ("-rw-r--r-- root/root", "./usr/share/longhaul/limits.conf"),
        ("-rw-r--r-- root/root", "./usr/share/longhaul/users.conf"),
        ("-rw-r--r-- root/root", "./etc/logrotate.d/longhaul"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/longhaul.1.gz"),
        ("-rw-r--r-- root/root", "./usr/share/man/man1/longhaul-set-export.1.gz"),
        ("-rw-r--r-- root/root", "./usr/share/bash-completion/completions/longhaul"),
        ("-rw-r--r-- root/root", "./usr/share/zsh/vendor-completions/_longhaul"),
        ("-rw-r--r-- root/root", "./usr/share/fish/vendor_completions.d/longhaul.fish"),
        ("-rw-r--r-- root/root", "./usr/share/doc/longhaul/copyright"),
        ("-rw-r--r-- root/root", "./usr/share/doc/longhaul/docs/SERVING.md"),
    ] {
        let line = contents.lines().find(|line| line.ends_with(&format!(" {path}")));
        assert!(line.is_some_and(|line| line.starts_with(mode)), "{path}: {line:?}\n{contents}");
    }
    let odd = contents.lines().filter(|line| line.starts_with('d') && !line.starts_with("drwxr-xr-x root/root"));
    assert_eq!(odd.collect::<Vec<_>>(), [""; 0]);
}

fn look_at_fields(deb: &str) {
    let field = |name: &str| said("dpkg-deb", &["--field", deb, name]).trim().to_owned();
    assert_eq!((field("Package"), field("Version")), ("longhaul".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    assert!(field("Depends").starts_with("libc6 (>= 2.") && !field("Depends").contains('@'), "{}", field("Depends"));
    assert!(field("Installed-Size").parse::<u64>().unwrap() > 10_000);
    let info = said("dpkg-deb", &["--info", deb]);
    for script in ["postinst", "prerm", "postrm", "conffiles", "md5sums"] {
        assert!(info.contains(script), "{info}");
    }
    assert_eq!(
        said("dpkg-deb", &["--info", deb, "conffiles"]).trim(),
        "/etc/longhaul/serve.toml\n/etc/logrotate.d/longhaul"
    );
    if has("shellcheck") {
        let scripts = ["postinst", "prerm", "postrm"].map(|name| repository().join("packaging/deb").join(name));
        scripts.iter().for_each(|script| drop(said("shellcheck", &[script.to_str().unwrap()])));
    }
}

/// An empty tree with the package in it.
fn installed(host: &Host, deb: &str) -> PathBuf {
    let root = host.make_dir("root");
    for dir in ["etc", "srv", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for file in ["etc/passwd", "etc/group", "var/lib/dpkg/status", "var/lib/dpkg/available"] {
        fs::write(root.join(file), "").unwrap();
    }
    dpkg(&root, &["--install", deb]);
    let passwd = fs::read_to_string(root.join("etc/passwd")).unwrap();
    assert!(passwd.contains("longhaul:") && passwd.contains("/usr/sbin/nologin"), "{passwd}");
    assert!(!root.join("etc/longhaul/identity").exists(), "a key is made at the first start, not in an image");
    let enabled = root.join("etc/systemd/system/multi-user.target.wants/longhaul.service");
    assert!(!enabled.exists(), "nothing is started that nobody configured");
    // With the first root that is named, which the file shows, it is one that serves.
    let example = fs::read_to_string(root.join("etc/longhaul/serve.toml")).unwrap();
    let config = host.path("serve.toml");
    let check = || host.run(["serve", "--check-config", "--config"]).arg(&config);
    fs::write(&config, &example).unwrap();
    check().fail(2);
    let served = host.make_dir("served");
    let root_line = format!("[[root]]\nname = \"data\"\ntargets = [\"{}\"]\n", served.display());
    fs::write(&config, format!("{}\n{root_line}", example.replace("/var/lib/longhaul", "state"))).unwrap();
    let serves = check().succeed();
    assert!(serves.stderr.contains("there is no client"), "{serves}");
    root
}

/// Runs `dpkg` on a tree that has no programs: this host's run the scripts, with `DPKG_ROOT`.
fn dpkg(root: &Path, what: &[&str]) {
    let root = format!("--root={}", root.display());
    let force = ["--force-script-chrootless", "--force-depends", "--force-confold", "--force-not-root"];
    let args: Vec<&str> = [root.as_str()].into_iter().chain(force).chain(what.iter().copied()).collect();
    said("dpkg", &args);
}

#[test]
fn the_units_are_understood_and_leave_the_daemon_little() {
    if !has("systemd-analyze") {
        return;
    }
    let host = Host::new();
    let units = host.make_dir("units");
    for name in ["longhaul.service", "longhaul.socket", "longhaul-identity.service"] {
        let unit = fs::read_to_string(repository().join("packaging/systemd").join(name)).unwrap();
        fs::write(units.join(name), unit.replace("/usr/bin/longhaul", PROGRAM)).unwrap();
    }
    let users = units.join("longhaul.service.d");
    fs::create_dir(&users).unwrap();
    let path = |name: &str| units.join(name).to_str().unwrap().to_owned();
    for name in ["longhaul.service", "longhaul.socket", "longhaul-identity.service"] {
        assert_eq!(
            said("systemd-analyze", &["verify", "--man=no", "--recursive-errors=no", &path(name)]),
            "",
            "{name}"
        );
    }
    // With what clients need that have a user.
    fs::copy(repository().join("packaging/share/users.conf"), users.join("users.conf")).unwrap();
    assert_eq!(
        said("systemd-analyze", &["verify", "--man=no", "--recursive-errors=no", &path("longhaul.service")]),
        ""
    );
    fs::remove_dir_all(&users).unwrap();
    for (name, most) in [("longhaul.service", "15"), ("longhaul-identity.service", "15")] {
        let threshold = format!("--threshold={most}");
        said("systemd-analyze", &["security", "--offline=true", "--no-pager", &threshold, &path(name)]);
    }
}
