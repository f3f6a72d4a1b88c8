//! The page on replication: each command on it works as it stands there.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{counts, left, plant};
use crate::fixture::postgres::{ADMIN, Postgres};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, PROGRAM, Site, files};

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/REPLICATE.md")).unwrap()
}

/// The lines of the first block of the page that has this line.
fn block_with(line: &str) -> String {
    let page = page();
    let mut blocks = page.split("\n```").skip(1).step_by(2);
    let block = blocks.find(|block| block.lines().skip(1).any(|found| found == line));
    let block = block.unwrap_or_else(|| panic!("no block has the line '{line}'"));
    block.lines().skip(1).map(|line| format!("{line}\n")).collect()
}

/// Another daemon, which may fetch from that of the site.
fn other_daemon(site: &Site) -> (Host, Daemon) {
    let (host, port) = (Host::new(), site.daemon.addr().rsplit_once(':').unwrap().1);
    let archive = host.make_dir("archive");
    let config = DaemonConfig::default().line(&format!("third_party.dial = ['127.0.0.1:{port}']"));
    let config = config.root("archive", &archive, ALL_RIGHTS);
    let daemon = config.client("tester", site.client.key(), &[("archive", ALL_RIGHTS)]).start(&host);
    site.client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    (host, daemon)
}

/// Writes the lists that the page makes with `jq`, which is on few hosts.
fn lists_of_bad_files(host: &Host, events: &[Value]) {
    for kind in ["lost", "damaged"] {
        let bad = events.iter().filter(|event| event["type"] == "job_bad_file" && event["kind"] == kind);
        let paths = bad.map(|event| format!("{}\n", event["path"].as_str().unwrap()));
        fs::write(host.path(format!("{kind}.list")), paths.collect::<String>()).unwrap();
    }
}

#[test]
fn what_the_page_on_replication_tells_to_type_works() {
    let page = page();
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("atlas"));
    let other = other_daemon(&site);
    fs::write(host.path("wanted.txt"), "0/07\n").unwrap();
    let (mut count, mut digest, mut order) = (0, String::new(), String::new());
    for command in page.lines().filter_map(|line| line.trim_start().strip_prefix("longhaul ")) {
        let command = command
            .replace("lh://node.example/data", &site.url(""))
            .replace(" node.example ", &format!(" {} ", site.daemon.addr()))
            .replace("/data/atlas", host.path("atlas").to_str().unwrap())
            .replace("/mirror/atlas", host.path("mirror/atlas").to_str().unwrap())
            .replace("$SLURM_ARRAY_TASK_ID", "1")
            .replace("lh://other.example/archive", &other.1.url("archive"))
            .replace("ORDER", &order)
            .replace("DIGEST", &digest);
        if command.ends_with("--delete plan") {
            let is_here = command.contains("mirror/atlas");
            files::make(if is_here { host.path("mirror/atlas/old") } else { site.root().join("atlas/old") }, 7, 70);
        }
        let (command, file) = command.split_once(" > ").map_or((&*command, None), |(rest, file)| (rest, Some(file)));
        let told = host.run(shlex::split(command).unwrap()).succeed();
        if let Some(file) = file {
            lists_of_bad_files(host, &told.events());
            fs::write(host.path(file), told.stdout_text()).unwrap();
        }
        if let Some(printed) = told.stdout_text().lines().last().and_then(|line| line.strip_prefix("digest: ")) {
            digest = printed.to_owned();
        }
        if let Some((_, named)) = told.stderr.split_once("order ") {
            order = named.split(' ').next().unwrap().to_owned();
        }
        count += 1;
    }
    assert!(!order.is_empty() && other.0.path("archive/atlas").exists());
    assert!(count >= 32, "only {count} commands were found");
    let olds = [host.path("mirror/atlas/old"), site.root().join("atlas/old")];
    assert!(olds.iter().all(|old| !old.exists()), "they were planned and moved away");
    assert_eq!(counts(&left(host, "atlas")), [101, 0, 0]);

    // From cron: five fields of a time, and a command.
    let from_cron = page.lines().filter_map(|line| line.strip_prefix("0 22 * * * longhaul "));
    let mut ran = 0;
    for command in from_cron {
        host.run(shlex::split(command).unwrap()).succeed();
        ran += 1;
    }
    assert_eq!(ran, 2);
    // A name is taken back, and the rest goes for good.
    let grace = fs::read_dir(host.path("mirror/atlas/.longhaul/grace")).unwrap().next().unwrap().unwrap().path();
    fs::rename(grace.join("old"), &olds[0]).unwrap();
    fs::remove_dir_all(&grace).unwrap();
    assert_eq!(fs::read(&olds[0]).unwrap(), files::bytes(7, 70));
    host.run(["sync", "--delete", "plan", "--max-delete", "9", "atlas/", "mirror/atlas"]).succeed();
}

#[test]
fn the_calendars_of_the_page_are_understood() {
    let host = Host::new();
    plant(&host.path("ds"));
    let block = block_with("in UTC: 2026-12-01 06:00 to 2026-12-02 18:00 closed, tue 04:00-07:30 closed");
    for (number, calendar) in block.lines().enumerate() {
        let name = format!("c{number}");
        host.run(["job", "add", "--name", &name, "--calendar", calendar, "ds", &name]).succeed();
        let shown = host.run(["job", "show", &name]).succeed();
        assert!(shown.stdout_text().contains(&calendar[..calendar.find(':').unwrap()]), "{shown}");
    }
    assert_eq!(block.lines().count(), 3);
}

#[test]
fn the_statements_of_the_page_make_the_user_and_the_database_of_a_queue() {
    let server = Postgres::start();
    let host = Host::new();
    plant(&host.path("ds"));
    let statements = block_with("CREATE DATABASE longhaul OWNER mover ENCODING UTF8 TEMPLATE template0;");
    // A database is made in no transaction.
    statements.lines().for_each(|statement| drop(server.sql("postgres", statement)));
    let variable = block_with(
        "export LONGHAUL_QUEUE='postgres://mover@db.example/longhaul?sslmode=verify-full&manifests=/shared/manifests'",
    );
    let url = variable.trim().strip_prefix("export LONGHAUL_QUEUE='").unwrap().strip_suffix('\'').unwrap();
    let (by_name, rest) = url.split_once('?').unwrap();
    assert_eq!(by_name, "postgres://mover@db.example/longhaul");
    let manifests = format!("manifests={}", host.path("manifests").display());
    let (verify, shared) = rest.split_once('&').unwrap();
    assert_eq!((verify, shared), ("sslmode=verify-full", "manifests=/shared/manifests"));
    let url = server.url("longhaul").replace(&format!("{ADMIN}@"), "mover@");
    let job = |args: &[&str]| host.run(["job"]).args(args).env("LONGHAUL_QUEUE", format!("{url}?{manifests}"));
    job(&["add", "--name", "all", "ds", "to"]).succeed();
    job(&["plan", "all"]).succeed();
    job(&["run", "--drain"]).succeed();
    let owner = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'longhaul'";
    assert_eq!(server.sql("longhaul", owner), "mover");
}

#[test]
fn the_files_of_the_page_are_understood_by_systemd_the_daemon_and_movers() {
    let host = Host::new();
    let units = host.make_dir("units");
    let text = block_with("# ~/.config/systemd/user/longhaul-mover.service");
    let mut paths = Vec::new();
    for unit in text.split("# ~/.config/systemd/user/").skip(1) {
        let (name, unit) = unit.split_once('\n').unwrap();
        files::write(units.join(name), unit.replace("/usr/bin/longhaul", PROGRAM));
        paths.push(units.join(name));
    }
    assert_eq!(paths.len(), 2);
    let verify = std::process::Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(&paths)
        .output()
        .expect("systemd-analyze");
    assert!(verify.status.success() && verify.stderr.is_empty(), "{}", String::from_utf8_lossy(&verify.stderr));

    let hooks = block_with("# ~/.config/longhaul/hooks.toml");
    files::write(host.path("hooks.toml"), &hooks);
    plant(&host.path("atlas"));
    host.run(["job", "add", "--name", "all", "--hook", "mail", "--hook", "chat", "atlas", "to"]).succeed();
    host.run(["job", "run", "--drain", "--hooks", "hooks.toml"]).succeed();

    files::write(host.path("pgpass"), "");
    let at = |path: &str| host.path(path).display().to_string();
    let mover = block_with("[mover]")
        .replace("/var/lib/longhaul", &at("state"))
        .replace("/etc/longhaul/pgpass", &at("pgpass"))
        .replace("/etc/longhaul/hooks.toml", &at("hooks.toml"))
        .replace("/data/atlas", &at("atlas"))
        .replace("lhk1:7Zr5...", host.key());
    let config = DaemonConfig::default().line(&mover).root("data", &host.make_dir("data"), ALL_RIGHTS).write(&host);
    let checked = host.run(["serve", "--check-config", "--config"]).arg(&config).succeed();
    assert!(checked.stderr.contains("nothing wrong"), "{checked}");
    let text = fs::read_to_string(&config).unwrap();
    files::write(&config, text.replace("movers = 2", "mover = 2"));
    host.run(["serve", "--check-config", "--config"]).arg(&config).fail(2);
}
