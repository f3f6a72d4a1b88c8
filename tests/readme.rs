//! The commands that the README tells people to type, typed as they stand there: only names of hosts, keys and directories
//! are exchanged for the test's own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Daemon, Host, Run, files};

#[test]
fn the_first_command_copies_a_file_and_a_directory() {
    let [command] = commands("## Try it").into_iter().take(1).collect::<Vec<_>>().try_into().unwrap();
    let (cargo, args) = command.split_once(" -- ").expect("cargo runs the program with what stands behind --");
    assert_eq!(cargo, "cargo run --release");
    let host = Host::new();
    let demo = host.path("demo");
    let args = with(args, &[("/tmp/longhaul-demo", demo.to_str().unwrap())]);
    Run::new(&repository(), &host.config_home()).args(args.split(' ')).succeed();
    for name in ["README.md", "docs"] {
        tree::assert_same(&Tree::of(repository().join(name)), &Tree::of(demo.join(name)), name);
    }
}

#[test]
fn the_four_daemon_commands_push_a_dataset() {
    let commands = commands("## Push to a daemon in four commands");
    let [authorize, serve, trust, push]: [String; 4] = commands.try_into().expect("four commands");
    let (client, server) = (Host::new(), Host::new());
    let served = server.make_dir("data");
    files::make(client.path("dataset/large"), 1, (5 << 20) + 3);
    files::make(client.path("dataset/sub/small"), 2, 100);
    files::link("sub/small", client.path("dataset/link"));
    // A daemon's configuration that this machine may have is not the test's to change.
    let config = server.config("serve.toml");
    let typed = |host: &Host, command: &str| {
        let args = command.strip_prefix("longhaul ").expect("the program by its name");
        host.run(args.split(' ')).env("LONGHAUL_CONFIG", &config)
    };

    typed(&server, &with(&authorize, &[("lhk1:CLIENTKEY", client.key())])).succeed();
    // The one thing that the README leaves to the default: the port, which another daemon may have.
    let authorized = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("listen = ['127.0.0.1:0']\n{authorized}")).unwrap();
    let serve = with(&serve, &[("/srv/data", served.to_str().unwrap())]);
    let daemon = Daemon::start(typed(&server, &serve).arg("--json"));
    let addr = [("node.example", daemon.addr())];
    typed(&client, &with(&with(&trust, &addr), &[("lhk1:DAEMONKEY", daemon.key())])).succeed();
    typed(&client, &with(&push, &addr)).succeed();

    let (sent, arrived) = (Tree::of(client.path("dataset")), Tree::of(served.join("incoming")));
    tree::assert_same(&sent.beneath(), &arrived.beneath(), "dataset/ and incoming/");
}

/// The lines of the `sh` blocks beneath a heading of the README.
fn commands(heading: &str) -> Vec<String> {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let section =
        readme.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with("## "));
    let mut within = false;
    let mut commands = Vec::new();
    for line in section {
        match line {
            "```sh" => within = true,
            "```" => within = false,
            command if within => commands.push(command.to_owned()),
            _ => {}
        }
    }
    assert!(!commands.is_empty(), "no commands beneath {heading:?} in the README");
    commands
}

/// The command with the README's examples exchanged for the test's own; each must stand in it.
fn with(command: &str, exchanges: &[(&str, &str)]) -> String {
    exchanges.iter().fold(command.to_owned(), |command, (example, own)| {
        assert!(command.contains(example), "{example:?} does not stand in {command:?}");
        command.replace(example, own)
    })
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
