//! The file itself: how it is kept, and which files are refused.
//!
//! In: files of this program, of a later one and of others. Out: stores and errors. Must not know
//! rows.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_jobs::left::left;
use longhaul_jobs::queue::{Ask, Outcome, Report, claim, finish, lead, schedule};
use longhaul_jobs::{ClaimId, Fence, MoverId, ShardId, Store};
use longhaul_jobs_sqlite::{SqliteError, SqliteStore};
use rusqlite::Connection;

use crate::random::{Random, begin};

#[test]
fn a_commit_is_seen_by_others_who_have_the_file_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let mut other = SqliteStore::open(&path).unwrap();
    let (_, campaigns) = store.transact(|rows| begin(rows, 2, 3)).unwrap();
    let seen = other.transact(|rows| rows.campaigns()).unwrap();
    assert_eq!(seen.iter().map(|campaign| campaign.id).collect::<Vec<_>>(), campaigns);
    let plain = Connection::open(&path).unwrap();
    let mode: String = plain.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    store.check().unwrap();
}

#[test]
fn a_directory_may_be_behind_a_link_and_the_file_itself_may_not() {
    let directory = tempfile::tempdir().unwrap();
    let (real, linked) = (directory.path().join("real"), directory.path().join("linked"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &linked).unwrap();
    drop(SqliteStore::open(&linked.join("queue.db")).unwrap());
    assert!(real.join("queue.db").is_file());
    std::os::unix::fs::symlink(real.join("queue.db"), real.join("link.db")).unwrap();
    let refused = SqliteStore::open(&linked.join("link.db")).err().unwrap();
    assert!(refused.to_string().contains("link.db"), "{refused}");
}

#[test]
fn a_transaction_that_fails_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&directory.path().join("queue.db")).unwrap();
    let failed = store.transact(|rows| {
        begin(rows, 1, 1)?;
        begin(rows, 1, 1)
    });
    assert!(failed.unwrap_err().to_string().contains("already"));
    assert_eq!(store.transact(|rows| rows.campaigns()).unwrap(), []);
}

#[test]
fn files_of_other_programs_and_of_newer_ones_are_refused_and_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    drop(SqliteStore::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = SqliteStore::open(&path).err().unwrap();
    assert!(matches!(newer, SqliteError::Newer { found: 99, .. }), "{newer}");
    assert!(newer.to_string().contains("queue.db"));
    let theirs = directory.path().join("theirs.db");
    Connection::open(&theirs).unwrap().execute("CREATE TABLE theirs (id INTEGER)", []).unwrap();
    let before = std::fs::read(&theirs).unwrap();
    let foreign = SqliteStore::open(&theirs).err().unwrap();
    assert!(matches!(foreign, SqliteError::Foreign { .. }), "{foreign}");
    assert!(std::fs::read(&theirs).unwrap() == before);
    let text = directory.path().join("text");
    std::fs::write(&text, "no database at all, but a text that is long enough").unwrap();
    let refused = SqliteStore::open(&text).err().unwrap();
    assert!(refused.to_string().contains("not a database"), "{refused}");
}

#[test]
fn movers_that_share_the_file_get_each_shard_once() {
    const SHARDS: usize = 40;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    let (link, campaigns) = SqliteStore::open(&path).unwrap().transact(|rows| begin(rows, 1, SHARDS as u64)).unwrap();
    let finished = AtomicUsize::new(0);
    let work = &|number: u64| {
        let mut store = SqliteStore::open(&path).unwrap();
        let mut random = Random(number);
        let me = MoverId(random.id());
        let mut claims = Vec::new();
        for _ in 0..10_000 {
            if finished.load(Ordering::Relaxed) == SHARDS {
                break;
            }
            if let Some(term) = store.transact(|rows| lead(rows, me)).unwrap() {
                store.transact(|rows| schedule(rows, me, term)).unwrap();
            }
            let ask = Ask { mover: me, links: &[link], id: ClaimId(random.id()) };
            let Some(granted) = store.transact(|rows| claim(rows, &ask)).unwrap() else { continue };
            let shard = granted.shard;
            let (done, moved) = (shard.total, shard.total.bytes);
            let report = Report {
                shard: shard.id,
                claim: shard.claim,
                done,
                moved,
                outcome: Outcome::Through(vec![]),
                unclaimed: false,
                chance: 0,
            };
            store.transact(|rows| finish(rows, &report)).unwrap();
            claims.push((shard.id, shard.claim.fence));
            finished.fetch_add(1, Ordering::Relaxed);
        }
        claims
    };
    let claims: Vec<_> = std::thread::scope(|scope| {
        let movers: Vec<_> = (0..4).map(|number| scope.spawn(move || work(number))).collect();
        movers.into_iter().flat_map(|mover| mover.join().unwrap()).collect()
    });
    let shards: BTreeSet<ShardId> = claims.iter().map(|(shard, _)| *shard).collect();
    assert_eq!((claims.len(), shards.len()), (SHARDS, SHARDS));
    assert!(claims.iter().all(|(_, fence)| *fence == Fence(1)), "{claims:?}");
    let sums = SqliteStore::open(&path).unwrap().transact(|rows| left(rows, campaigns[0])).unwrap();
    assert_eq!((sums.done, sums.left.files), (sums.total, 0));
}
