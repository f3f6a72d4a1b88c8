//! The commands that the README and the first steps tell users to type, run as they stand there,
//! and the file that they tell them to write: only names of hosts, keys and directories are
//! exchanged for the test's own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Daemon, Host, Run, files};

const FIRST_STEPS: &str = "docs/FIRST-STEPS.md";

#[test]
fn the_first_command_copies_a_file_and_a_directory() {
    let [command] = blocks("README.md", "## Try it", "sh").into_iter().take(1).collect::<Vec<_>>().try_into().unwrap();
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
fn the_exchange_of_keys_goes_as_it_is_told_on_two_hosts_that_have_nothing_yet() {
    let commands = blocks(FIRST_STEPS, "## Exchange keys", "sh");
    let [client_key, server_key, authorize, check, serve, trust, ls, push, pull] =
        <[String; 9]>::try_from(commands).expect("nine commands");
    let [config] =
        <[String; 1]>::try_from(whole_blocks(FIRST_STEPS, "## Exchange keys", "toml")).expect("a serve.toml");
    let (client, server) = (Host::new(), Host::new());
    let served = server.make_dir("data");
    files::make(client.path("dataset/large"), 1, (5 << 20) + 3);
    files::make(client.path("dataset/sub/small"), 2, 100);
    files::link("sub/small", client.path("dataset/link"));
    // A daemon's configuration that this machine may have is not the test's to change.
    let path = server.config("serve.toml");
    let typed = |host: &Host, command: &str| {
        let args = command.strip_prefix("longhaul ").expect("the program by its name");
        host.run(args.split(' ')).env("LONGHAUL_CONFIG", &path)
    };

    let client_key = typed(&client, &client_key).succeed().stdout_text().trim().to_owned();
    let server_key = typed(&server, &server_key).succeed().stdout_text().trim().to_owned();
    // The port may be another daemon's.
    let own = [("[::]:7214", "127.0.0.1:0"), ("/srv/data", served.to_str().unwrap())];
    files::write(&path, with(&config, &own));
    files::set_mode(&path, 0o600);
    typed(&server, &with(&authorize, &[("lhk1:CLIENTKEY", &client_key)])).succeed();
    let checked = typed(&server, &check).succeed();
    assert!(checked.stderr.contains("1 root, 1 client"), "{checked}");
    let daemon = Daemon::start(typed(&server, &serve).arg("--json"));
    assert_eq!(daemon.key(), server_key, "the key that was made is the daemon's");
    let addr = [("node.example", daemon.addr())];
    typed(&client, &with(&with(&trust, &addr), &[("lhk1:DAEMONKEY", &server_key)])).succeed();
    let roots = typed(&client, &with(&ls, &addr)).succeed();
    assert!(roots.stdout_text().contains("data"), "{roots}");
    typed(&client, &with(&push, &addr)).succeed();
    typed(&client, &with(&pull, &addr)).succeed();

    let sent = Tree::of(client.path("dataset")).beneath();
    tree::assert_same(&sent, &Tree::of(served.join("incoming/dataset")).beneath(), "what was pushed");
    tree::assert_same(&sent, &Tree::of(client.path("copy/dataset")).beneath(), "what was pulled");
}

#[test]
fn commands_of_the_guides_are_ones_that_the_program_has() {
    let host = Host::new();
    let mut count = 0;
    for page in ["docs/OPERATE.md", "docs/USE.md"] {
        let text = fs::read_to_string(repository().join(page)).unwrap();
        let headings: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
        let lines = headings.iter().flat_map(|heading| found(page, heading, "sh")).collect::<Vec<_>>();
        let commands = lines.iter().flat_map(|block| block.lines()).flat_map(|line| line.split(" | "));
        for command in commands.filter_map(|command| command.strip_prefix("longhaul ")) {
            // The help comes once all before it is understood, whatever lies at its places.
            let words = command.split(" > ").next().unwrap_or_default();
            let (version, rest) = (words == "--version", words.replace('\'', ""));
            let run = host.run(rest.split(' ')).args((!version).then_some("--help"));
            assert_eq!(run.finish().code, 0, "{page}: {command}");
            count += 1;
        }
    }
    assert!(count > 25, "only {count} commands were found");
}

#[test]
fn the_readme_fits_one_screen_and_its_transfer_is_the_one_of_the_first_steps() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 90, "the README has {} lines", readme.lines().count());
    let steps = ["## With ssh alone", "## Exchange keys"].map(|heading| blocks(FIRST_STEPS, heading, "sh")).concat();
    let steps: Vec<&str> = steps.iter().flat_map(|step| step.lines()).collect();
    for command in readme.lines().filter(|line| line.starts_with("longhaul p")) {
        assert!(steps.contains(&command), "{command:?} does not stand in {FIRST_STEPS}");
    }
}

/// The lines of the blocks of a language beneath a heading of a page.
fn blocks(page: &str, heading: &str, language: &str) -> Vec<String> {
    whole_blocks(page, heading, language).iter().flat_map(|block| block.lines()).map(str::to_owned).collect()
}

/// These blocks, each as users type it: one in a list is indented.
fn whole_blocks(page: &str, heading: &str, language: &str) -> Vec<String> {
    let blocks = found(page, heading, language);
    assert!(!blocks.is_empty(), "no block of {language} beneath {heading:?} in {page}");
    blocks
}

/// These blocks, which may be none.
fn found(page: &str, heading: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let section = text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with("## "));
    let mut blocks: Vec<String> = Vec::new();
    let mut indent = None;
    for line in section {
        let text = line.trim_start();
        match indent {
            None => {
                if text.strip_prefix("```") == Some(language) {
                    indent = Some(line.len() - text.len());
                    blocks.push(String::new());
                }
            }
            Some(_) if text == "```" => indent = None,
            Some(indent) => {
                let block = blocks.last_mut().expect("one was begun");
                block.push_str(line.get(indent..).unwrap_or_default());
                block.push('\n');
            }
        }
    }
    blocks
}

/// The command with the page's examples exchanged for the test's own; each must stand in it.
fn with(command: &str, exchanges: &[(&str, &str)]) -> String {
    exchanges.iter().fold(command.to_owned(), |command, (example, own)| {
        assert!(command.contains(example), "{example:?} does not stand in {command:?}");
        command.replace(example, own)
    })
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
