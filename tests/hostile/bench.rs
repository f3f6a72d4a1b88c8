//! Clients that may measure and ask for more than that: they get the amount that the daemon allows,
//! and no file is touched.

use longhaul_core::{EntryKind, Role};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Far, Request, Transfer};

use super::peer::{Client, entry, file, hello, page, transfer};
use super::{assert_serves, client};
use crate::fixture::tree::Tree;
use crate::fixture::{DaemonConfig, Site};

const ALLOWED: u64 = 2 << 20;

fn site() -> Site {
    Site::with(DaemonConfig::default().may_bench().line(&format!("[limits]\nbench_bytes = '{ALLOWED}'")))
}

/// A measurement of 2^63 bytes for 49 days.
fn endless(role: Role) -> Transfer {
    transfer(role, Far::Memory { bytes: 1 << 63, millis: u32::MAX })
}

#[test]
fn whoever_pulls_gets_no_more_than_is_allowed() {
    let site = site();
    let mut client = client(&site);
    assert_eq!(client.agree(endless(Role::Receiver)).memory_bytes, ALLOWED);
    client.lane();
    let offer = longhaul_proto::wire::message::Offer { pages: 8, renamed: None, base: "".into() };
    client.speech.say(&Message::Offer(offer));
    client.speech.say(&Message::PageCredit(longhaul_proto::wire::message::PageCredit { upto: 8 }));
    // A sender may say that a page was the last one by a further one without entries.
    let mut entries = Vec::new();
    loop {
        let (more, last) = client
            .speech
            .hear_until(|message| match message {
                Message::Page(page) => Some((page.entries, page.last)),
                _ => None,
            })
            .expect("a page");
        entries.extend(more);
        if last {
            break;
        }
    }
    let lens: Vec<u64> = entries
        .iter()
        .map(|entry| match entry.kind {
            EntryKind::File { len, .. } => len,
            _ => panic!("{entry:?}"),
        })
        .collect();
    assert_eq!(lens, [ALLOWED]);
    drop(client);
    assert_serves(&site, "a pull of more than is allowed");
}

#[test]
fn whoever_pushes_more_than_is_allowed_or_anything_else_is_refused() {
    let site = site();
    let before = Tree::of(site.root());
    let kinds = || [EntryKind::Dir, EntryKind::Symlink { target: b"x".to_vec() }];
    let mut offers = vec![
        vec![file("f", ALLOWED + 1)],
        vec![file("f", u64::MAX)],
        vec![file("f", 0)],
        vec![file("f", ALLOWED), file("g", 1)],
        vec![file("f", 1); 1024],
    ];
    offers.extend(kinds().map(|kind| vec![entry("f", kind)]));
    for entries in offers {
        let what = format!("{} entries like {:?}", entries.len(), entries[0]);
        let mut client = client(&site);
        assert_eq!(client.agree(endless(Role::Sender)).memory_bytes, ALLOWED, "{what}");
        client.lane();
        client.speech.say(&page(0, entries));
        assert_eq!(client.speech.end(), "protocol", "{what}\n{}", site.daemon.log());
    }
    crate::fixture::tree::assert_same(&before, &Tree::of(site.root()), "after pushes of more than is allowed");
    assert_serves(&site, "pushes of more than is allowed");
}

#[test]
fn measurements_that_make_no_sense_are_refused() {
    let (able, unable) = (site(), Site::new());
    let nothing = |role| transfer(role, Far::Memory { bytes: 0, millis: 0 });
    for role in [Role::Sender, Role::Receiver] {
        for (site, transfer, code) in [
            (&able, nothing(role), "unsupported"),
            (&able, Transfer { dry_run: true, ..endless(role) }, "unsupported"),
            (&able, Transfer { read_back: true, ..endless(role) }, "unsupported"),
            (&unable, endless(role), "denied"),
        ] {
            let mut client: Client = client(site);
            client.speech.say(&hello(Request::Transfer(Box::new(transfer))));
            assert_eq!(client.speech.end(), code, "{role:?}");
        }
    }
    assert_serves(&able, "measurements that make no sense");
}
