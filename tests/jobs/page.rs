//! The page on replication: each command on it works as it stands there.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{counts, left, plant};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Site, files};

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
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/REPLICATE.md")).unwrap();
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
}
