//! The page on replication: each command on it works as it stands there.

use std::fs;
use std::path::Path;

use super::{counts, left, plant};
use crate::fixture::{Site, files};

#[test]
fn what_the_page_on_replication_tells_to_type_works() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/REPLICATE.md")).unwrap();
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("atlas"));
    let (mut count, mut digest) = (0, String::new());
    for command in page.lines().filter_map(|line| line.trim_start().strip_prefix("longhaul ")) {
        let command = command
            .replace("lh://node.example/data", &site.url(""))
            .replace("/data/atlas", host.path("atlas").to_str().unwrap())
            .replace("/mirror/atlas", host.path("mirror/atlas").to_str().unwrap())
            .replace("$SLURM_ARRAY_TASK_ID", "1")
            .replace("DIGEST", &digest);
        if command.ends_with("--delete plan") {
            files::make(host.path("mirror/atlas/old"), 7, 70);
        }
        let words = shlex::split(&command).unwrap();
        let told = host.run(words).succeed();
        if let Some(printed) = told.stdout_text().lines().last().and_then(|line| line.strip_prefix("digest: ")) {
            digest = printed.to_owned();
        }
        count += 1;
    }
    assert!(count >= 30, "only {count} commands were found");
    assert!(!host.path("mirror/atlas/old").exists(), "it was planned and moved away");
    assert_eq!(counts(&left(host, "atlas")), [101, 0, 0]);
}
