//! Tests of listings: claims by client, memory, and readers that do not read.

use std::fs;

use longhaul_disk::Tree;
use longhaul_net::Identity;
use tokio::io::duplex;

use super::*;
use crate::session::channel::{ReadHalf, read_message};

fn key() -> PublicKey {
    Identity::generate().expect("a key").public()
}

fn shares() -> (ClientShares, ClientShares) {
    (
        ClientShares::new("listings", LISTINGS_MAX, LISTINGS_OF_CLIENT_MAX),
        ClientShares::new("memory", 1 << 30, u64::MAX),
    )
}

/// The names of a directory with `files` files, and the listings that are shared.
#[allow(clippy::disallowed_methods, reason = "what is to be listed")]
async fn names(dir: &std::path::Path, files: usize) -> (ListedNames, ClientShares) {
    (0..files).for_each(|n| fs::write(dir.join(format!("{n:0200}")), b"").expect("a file"));
    let (listings, memory) = shares();
    let places = Places::take(&listings, &memory, key()).expect("places");
    let tree = TargetSet::plain(Tree::open(dir).expect("a tree"));
    (ListedNames::beneath(tree, RelPath::root(), places).await.expect("names"), listings)
}

#[test]
fn a_client_has_four_listings_and_keeps_nobody_else_out() {
    let (listings, memory) = shares();
    let client = key();
    let held: Vec<_> = (0..100).map_while(|_| Places::take(&listings, &memory, client).ok()).collect();
    assert_eq!(held.len(), 4);
    let refused = Places::take(&listings, &memory, client).map(drop).expect_err("it has its share");
    assert!(refused.code == FaultCode::Busy && refused.message.contains("this key has 4"), "{refused}");
    assert!(Places::take(&listings, &memory, key()).is_ok());
}

#[test]
fn a_client_whose_sessions_fill_the_memory_can_list() {
    let (listings, _) = shares();
    let memory = ClientShares::growing("memory", 64 << 20, 16 << 20);
    let client = key();
    let _sessions: Vec<_> = (0..9).map_while(|_| memory.claim(client, 16 << 20).ok()).collect();
    let other = key();
    let _others: Vec<_> = (0..9).map_while(|_| memory.claim(other, 16 << 20).ok()).collect();
    assert!(memory.claim(key(), 1).is_err(), "it is full");
    assert!(Places::take(&listings, &memory, client).is_ok());
}

#[tokio::test]
async fn all_names_come_in_pages_of_a_thousand_at_most() {
    let dir = tempfile::tempdir().expect("a directory");
    let (names, listings) = names(dir.path(), 7000).await;
    let (here, there) = duplex(1 << 16);
    let mut writer: WriteHalf = Box::new(here);
    let telling = tokio::spawn(async move { names.tell(&mut writer).await });
    let mut reader: ReadHalf = Box::new(there);
    let mut all = Vec::new();
    loop {
        let Ok(Some(Message::Listing(listing))) = read_message(&mut reader).await else { panic!("no listing") };
        assert!(listing.names.len() <= 1000);
        all.extend(listing.names.into_iter().map(|listed| listed.name));
        if listing.last {
            break;
        }
    }
    assert!(all.iter().map(|name| name.to_vec()).eq((0..7000).map(|n| format!("{n:0200}").into_bytes())));
    telling.await.expect("no panic").expect("told");
    listings.all_given_back().await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_taken_ends_the_listing_and_gives_its_memory_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let (names, listings) = names(dir.path(), 3000).await;
    let (here, _there) = duplex(1 << 10);
    let mut writer: WriteHalf = Box::new(here);
    let began = Instant::now();
    let fault = names.tell(&mut writer).await.expect_err("nobody reads");
    assert_eq!(fault.code, FaultCode::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(31), "{:?}", began.elapsed());
    listings.all_given_back().await;
}

#[test]
fn a_directory_that_is_read_behind_a_reader_who_hung_up_keeps_its_place_until_that_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread().max_blocking_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let dir = tempfile::tempdir().expect("a directory");
        let (names, listings) = names(dir.path(), 10).await;
        let NameSource::Directory(lister) = &names.from else { panic!("a directory") };
        let unwanted = lister.unwanted();
        // The thread that would read is busy.
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || wait.recv().is_err());
        let (here, there) = duplex(1 << 10);
        let mut writer: WriteHalf = Box::new(here);
        let telling = tokio::spawn(async move { names.tell(&mut writer).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(there);
        telling.abort();
        assert!(telling.await.is_err_and(|error| error.is_cancelled()));
        assert!(unwanted.load(Ordering::Relaxed), "it is told");
        assert!(timeout(Duration::from_millis(50), listings.all_given_back()).await.is_err(), "it is still to be read");
        drop(go_on);
        assert!(busy.await.expect("no panic"));
        listings.all_given_back().await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_a_little_now_and_then_is_waited_for_in_all_no_longer_than_its_pages_are_worth() {
    let dir = tempfile::tempdir().expect("a directory");
    let (names, _listings) = names(dir.path(), 5000).await;
    let (here, mut there) = duplex(1 << 10);
    let mut writer: WriteHalf = Box::new(here);
    let began = Instant::now();
    let reading = tokio::spawn(async move {
        // A page of 64 KiB in 25 s, each in time.
        let mut bytes = vec![0; 64 << 10];
        while tokio::io::AsyncReadExt::read_exact(&mut there, &mut bytes).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(25)).await;
        }
    });
    let fault = names.tell(&mut writer).await.expect_err("it takes too long");
    assert_eq!(fault.code, FaultCode::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(150), "{:?}", began.elapsed());
    reading.abort();
}

#[tokio::test(start_paused = true)]
async fn a_reader_hears_while_a_directory_is_read_for_long() {
    let (here, there) = duplex(1 << 16);
    let mut writer: WriteHalf = Box::new(here);
    let mut telling = ListingWriter { writer: &mut writer, patience: PATIENCE };
    let slow = async {
        tokio::time::sleep(Duration::from_secs(29)).await;
        Ok(7)
    };
    assert_eq!(telling.while_it_reads(slow).await.expect("read"), 7);
    drop(writer);
    let mut reader: ReadHalf = Box::new(there);
    let mut heard = 0;
    while let Ok(Some(Message::Listing(listing))) = read_message(&mut reader).await {
        assert!(listing.names.is_empty() && !listing.last);
        heard += 1;
    }
    assert_eq!(heard, 7);
}
