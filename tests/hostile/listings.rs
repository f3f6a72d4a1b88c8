//! Listings without end: the client prints names as they come, and holds none of them.

use std::fs;
use std::thread;

use longhaul_core::Meta;
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Listed, ListedKind, Listing};

use super::peer::{Server, Speech};
use crate::fixture::Host;

#[test]
fn a_listing_of_any_length_is_printed_as_it_comes_and_not_held() {
    let (host, server) = (Host::new(), Server::start());
    let url = format!("lh://{}/data/", server.addr());
    let running = host.run(["ls", "--peer-key", &server.key(), &url]).start();
    let pid = running.pid().as_raw_nonzero();
    let (grown, outcome) = thread::scope(|scope| {
        let telling = scope.spawn(|| {
            let mut speech = server.accept_control();
            speech.hear();
            (0..FIRST_PAGES).for_each(|page| tell(&mut speech, page, false));
            let before = peak_kibibytes(pid.get());
            (FIRST_PAGES..PAGES).for_each(|page| tell(&mut speech, page, false));
            // The pages are with the client, except those that sockets hold.
            let grown = peak_kibibytes(pid.get()) - before;
            tell(&mut speech, PAGES, true);
            grown
        });
        let outcome = running.fail(0);
        (telling.join().unwrap(), outcome)
    });
    let said = (PAGES - FIRST_PAGES) * PAGE * name(0).len() as u64 / 1024;
    assert!(grown < said / 4, "{grown} KiB more in memory after {said} KiB of names");
    let mut wanted = (0..(PAGES + 1) * PAGE).map(name);
    assert!(outcome.stdout_text().lines().eq(wanted.by_ref()), "not all names were printed");
}

fn tell(speech: &mut Speech, page: u64, last: bool) {
    let listed = |n: u64| Listed { name: name(n).into_bytes(), kind: ListedKind::File, len: 0, meta: Meta::default() };
    let names = (page * PAGE..(page + 1) * PAGE).map(listed).collect();
    speech.say(&Message::Listing(Listing { names, last }));
}

fn peak_kibibytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect(&status);
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn name(n: u64) -> String {
    format!("{n:0240}")
}

const PAGE: u64 = 200;
/// The number of pages: with [`PAGE`], some 58 MiB of names.
const PAGES: u64 = 1250;
/// The number of pages behind which the program itself and its buffers are in memory.
const FIRST_PAGES: u64 = 100;
