//! A campaign that a program with an older version of the schema left half done, continued to its
//! end; or so far that the next program has to go on.
//!
//! In: a store with the rows of `golden/queue-1.sql`, of which each backend has its own: a shard is
//! done, one is partial, two were with a mover that died, and one is ready. Out: the end of the
//! campaign. Must not know statements.

use longhaul_core::FaultCode;
use longhaul_jobs::left::left;
use longhaul_jobs::queue::{Ask, Finished, Granted, Outcome, Report, claim, finish, lead, schedule};
use longhaul_jobs::{
    Amount, CampaignId, CampaignState, ClaimId, JobsError, Left, LinkId, Micros, MoverId, PermitPlace, Rows,
    ShardState, Store,
};

/// A time at which all leases in it have lapsed.
pub(crate) const LATER: Micros = Micros(1_795_950_000_000_000);
/// A time at which the leases that were taken at [`LATER`] have lapsed too.
pub(crate) const LATER_STILL: Micros = Micros(LATER.0 + 600_000_000);

const CAMPAIGN: CampaignId = CampaignId(1);
const LINK: LinkId = LinkId(3);
const ME: MoverId = MoverId([7; 16]);

/// Moves what is left, and looks that nothing is lost, moved twice or counted twice.
pub(crate) fn finish_half_done(store: &mut impl Store) {
    assert_eq!(figures(&sums(store)), [amount(15), amount(5), amount(1), amount(9)]);
    assert_eq!(move_all(store, 0), [(6, 2), (7, 2), (8, 1)], "those that a mover had come with a higher fence");
    check_end(store);
}

/// Moves one of the shards that are left, and claims another one, of which nothing is heard again.
pub(crate) fn leave_half_done(store: &mut impl Store) {
    assert_eq!(move_one(store, 0), Some((8, 1)), "it was ready before");
    let taken = claim_one(store, 1).map(|granted| (granted.shard.id.0, granted.shard.claim.fence.0));
    assert_eq!(taken, Some((6, 2)));
    assert_eq!(figures(&sums(store)), [amount(15), amount(8), amount(1), amount(6)]);
}

/// The same as [`finish_half_done`], behind [`leave_half_done`] and at [`LATER_STILL`].
pub(crate) fn finish_rest(store: &mut impl Store) {
    assert_eq!(figures(&sums(store)), [amount(15), amount(8), amount(1), amount(6)], "nothing was forgotten");
    assert_eq!(move_all(store, 10), [(6, 3), (7, 2)], "one was with a mover of the program before");
    check_end(store);
}

fn check_end(store: &mut impl Store) {
    let end = sums(store);
    assert_eq!(figures(&end), [amount(15), amount(14), amount(1), amount(0)]);
    let faults: Vec<_> = end.faults.iter().map(|fault| (fault.code, fault.given_up)).collect();
    assert_eq!((faults, end.unclaimed, end.omitted), (vec![(FaultCode::NotFound, amount(1))], 0, 0));
    let (campaign, permits) = store
        .transact(|rows| {
            turn(rows)?;
            Ok((rows.campaign(CAMPAIGN)?.unwrap(), rows.permits(PermitPlace::Link(LINK))?))
        })
        .unwrap();
    assert_eq!((campaign.state, permits), (CampaignState::Done, vec![]));
}

fn amount(files: u64) -> Amount {
    Amount { files, bytes: files * 40_000 }
}

fn figures(left: &Left) -> [Amount; 4] {
    [left.total, left.done, left.failed, left.left]
}

fn sums(store: &mut impl Store) -> Left {
    store.transact(|rows| left(rows, CAMPAIGN)).unwrap()
}

fn turn(rows: &mut dyn Rows) -> Result<(), JobsError> {
    let term = lead(rows, ME)?.expect("nobody leads at this time");
    schedule(rows, ME, term).map(drop)
}

/// Moves shards until none is left. Gives their numbers and fences, in the order of the numbers.
fn move_all(store: &mut impl Store, first: u8) -> Vec<(u64, u64)> {
    let mut claims = Vec::new();
    while let Some(moved) = move_one(store, first + claims.len() as u8) {
        claims.push(moved);
    }
    claims.sort_unstable();
    claims
}

fn claim_one(store: &mut impl Store, number: u8) -> Option<Granted> {
    let ask = Ask { mover: ME, links: &[LINK], id: ClaimId([number + 1; 16]) };
    store.transact(|rows| turn(rows).and_then(|()| claim(rows, &ask))).unwrap()
}

/// Claims a shard and reports it. Gives its number and fence. `None`: none is left.
fn move_one(store: &mut impl Store, number: u8) -> Option<(u64, u64)> {
    let shard = claim_one(store, number)?.shard;
    let (done, moved, outcome) = (shard.total, shard.total.bytes, Outcome::Through(Vec::new()));
    let report = Report { shard: shard.id, claim: shard.claim, done, moved, outcome, unclaimed: false, chance: 0 };
    let finished = store.transact(|rows| finish(rows, &report)).unwrap();
    assert_eq!(finished, Finished::Recorded(ShardState::Done));
    Some((shard.id.0, shard.claim.fence.0))
}
