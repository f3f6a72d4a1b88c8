//! A model: several verifiers that die, clocks that step by an hour, and files that go bad and are
//! copied anew.
//!
//! In: seeds. Out: the first rule that does not hold. Must not know how a file is read.

use std::collections::BTreeMap;

use super::*;

/// A shard in a verifier's hand.
#[derive(Clone)]
struct Hand {
    given: VerifyShard,
    id: u8,
    entry: u64,
}

struct World {
    bench: Bench,
    campaign: CampaignId,
    random: u64,
    /// The time that no clock shows, in seconds.
    real: u64,
    /// The files that are bad.
    truth: BTreeMap<Vec<u8>, BadKind>,
    /// When each file was read last.
    read: BTreeMap<Vec<u8>, u64>,
    hands: BTreeMap<u64, Hand>,
    ids: u8,
}

impl World {
    fn new(seed: u64) -> World {
        let (bench, campaign) = Bench::delivered(4);
        let (truth, read, hands) = Default::default();
        World { bench, campaign, random: seed, real: 1_000_000_000, truth, read, hands, ids: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    fn pass(&mut self, seconds: u64) {
        self.bench.pass(seconds);
        self.real += seconds;
    }

    fn step(&mut self) {
        match self.below(16) {
            0 => {
                let shards: Vec<_> = self.bench.store.all_shards().map(|shard| shard.id).collect();
                let shard = shards[self.below(shards.len() as u64) as usize];
                let (entry, kind) = (self.below(FILES), BadKind::ALL[self.below(4) as usize]);
                self.truth.insert(path(shard, entry), kind);
            }
            1 => {
                // The clock of a host is an hour off.
                let (now, hour) = (self.bench.store.now, Duration::from_secs(3600));
                let is_ahead = self.below(2) == 0;
                let steps = if is_ahead { now.plus(hour) } else { Micros(now.0 - 3_600_000_000) };
                self.bench.store.now = steps;
                self.take_and_read();
                self.bench.store.now = now;
            }
            2 => drop(self.hands.pop_first()),
            3 => self.mend(),
            4 => {
                self.hands.clear();
                let days = self.below(40);
                self.pass(days * 86_400);
            }
            5 => self.pass(90),
            _ => drop(self.take_and_read()),
        }
        let left = self.bench.left(self.campaign);
        assert_eq!(left.done.files + left.failed.files + left.left.files, left.total.files);
    }

    /// Somebody copies a file anew.
    fn mend(&mut self) {
        let bad: Vec<_> = self.truth.keys().cloned().collect();
        if !bad.is_empty() {
            let at = self.below(bad.len() as u64) as usize;
            self.truth.remove(&bad[at]);
        }
    }

    /// A verifier takes a shard if it has none, and reads some of it. `false`: nothing is due.
    fn take_and_read(&mut self) -> bool {
        let verifier = self.below(3);
        if !self.hands.contains_key(&verifier) {
            self.ids = self.ids.wrapping_add(1);
            let VerifyTurn::Shard(given) = self.bench.take(self.campaign, self.ids) else { return false };
            let (entry, id) = (given.entry, self.ids);
            self.hands.insert(verifier, Hand { given: *given, id, entry });
        }
        let Hand { given, id, entry } = self.hands[&verifier].clone();
        let (shard, until) = (given.shard.id, (entry + 3).min(FILES));
        let is_through = until == FILES;
        let next = if is_through { VerifyNext::IsThrough } else { VerifyNext::GoesOn };
        let mut news = read(&given, id, until, next);
        for path in (entry..until).map(|at| path(shard, at)) {
            self.read.insert(path.clone(), self.real);
            match self.truth.get(&path) {
                Some(kind) => news.bad.push(found(path, *kind)),
                None => news.well.push(path),
            }
        }
        let is_owner = self.bench.row(shard).unwrap().claim == ClaimId([id; 16]);
        let heard = self.bench.note(&news);
        assert_eq!(heard != VerifyHeard::Gone, is_owner, "only the verifier that has the shard is heard");
        match is_owner && !is_through {
            true => drop(self.hands.insert(verifier, Hand { given, id, entry: until })),
            false => drop(self.hands.remove(&verifier)),
        }
        if is_owner && is_through {
            // It may have lain still before each of its parts.
            let most = (CYCLE.as_secs() / 10 + 2 * 3600) * FILES.div_ceil(3);
            let oldest = (0..FILES).map(|at| self.read.get(&path(shard, at)).copied().unwrap_or(0)).min().unwrap();
            assert!(oldest + most >= self.real, "a whole reading has read each file, and not long ago");
        }
        true
    }

    /// A cycle without incidents: all of it is read, and what is known to be bad is.
    fn finish(&mut self) {
        self.hands.clear();
        self.pass(CYCLE.as_secs() + 3 * 3600);
        let begun = self.real;
        // Another verifier may be picked than the one that has the last shard.
        let mut idle = 0;
        while idle < 50 {
            idle = if self.take_and_read() { 0 } else { idle + 1 };
        }
        assert!(self.hands.is_empty());
        let shards: Vec<_> = self.bench.store.all_shards().map(|shard| shard.id).collect();
        for path in shards.iter().flat_map(|shard| (0..FILES).map(|at| path(*shard, at))) {
            assert!(self.read.get(&path).is_some_and(|at| *at >= begun), "each byte is read once in a cycle");
        }
        let known = self.bench.store.all_bad_files().map(|file| (file.path.clone(), file.kind));
        assert_eq!(known.collect::<BTreeMap<_, _>>(), self.truth);
        let sums = self.bench.figures(self.campaign).sums;
        assert_eq!((sums.never.files, sums.stale.files, sums.total.files), (0, 0, 40));
    }
}

#[test]
fn whatever_happens_to_verifiers_and_clocks_each_file_is_read_once_in_a_cycle_and_what_is_bad_is_known() {
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.step();
        }
        world.finish();
    }
}
