//! A grant: the holder of one key may fetch named sources of a daemon, or write beneath one place
//! there, with the rights of another key, for a time and for one run.
//!
//! In: the facts of a grant from its issuer, or the bytes that its holder shows. Out: the bytes to
//! sign, or a [`Grant`] whose claims were judged. Whoever signs and verifies is handed in, and so
//! is time. It knows no connection and no configuration: whether the issuer may do what it grants
//! is the daemon's question.

use serde::{Deserialize, Serialize};

use longhaul_core::{Hash32, IfExists, PathList, RelPath, ShardClaim};

use super::message::FarSource;

/// A grant, as its issuer means it.
///
/// Its bytes are postcard of these fields, in this order. Only the shortest form of each field is
/// taken, so that one grant has one form; the signature is over [`GRANT_DOMAIN`] and these bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// 16 random bytes: the run for which it is good, and no other.
    pub id: [u8; 16],
    /// The public key of the client whose rights are lent.
    pub issuer: Hash32,
    /// The public key that may use it: whoever shows it must have proved to hold this one.
    pub holder: Hash32,
    /// The public key of the daemon that is to honour it.
    pub audience: Hash32,
    /// The right that is lent.
    pub right: GrantRight,
    /// The sources for which it is good, at most [`GRANT_SOURCES_MAX`]; or the one destination.
    pub sources: Vec<FarSource>,
    /// Seconds since 1970 from which it is good.
    pub not_before: u64,
    /// Seconds since 1970 until which a session may begin by it, at most [`GRANT_SECONDS_MAX`]
    /// after `not_before`.
    pub not_after: u64,
}

/// A right that can be lent. Rights are only ever appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantRight {
    /// To read the sources.
    Read,
    /// To write at the one destination: names that do not stand, and others as its issuer may.
    Write,
    /// To read the names of a list beneath the one source, and nothing else there: its
    /// [`list_digest`].
    ReadListed(Hash32),
    /// To write the names of a list beneath the one destination, and nothing else there, by one
    /// claim.
    WriteListed(ListedWrite),
}

/// The terms of a grant to write the names of a list. Its holder can change none of them, as they
/// are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedWrite {
    /// The [`list_digest`] of the names.
    pub list: Hash32,
    /// The claim by which everything is published, with its fence and its id: the audience keeps it
    /// as if the issuer had shown it. `None`: the destination keeps none.
    pub claim: Option<ShardClaim>,
    /// The one rule for names that stand at the destination: a holder that may replace nothing
    /// cannot ask to. To compare digests it hears those of what stands under the names of the list.
    pub if_exists: IfExists,
}

/// A grant as it travels: its bytes, and the issuer's Ed25519 signature in two halves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedGrant {
    /// The bytes of a [`Grant`], at most [`GRANT_BYTES_MAX`].
    pub body: Vec<u8>,
    /// The signature.
    pub signature: [Hash32; 2],
}

/// The facts by which a daemon judges a grant that is shown to it.
#[derive(Clone, Copy, Debug)]
pub struct GrantFacts {
    /// The daemon's own key.
    pub audience: Hash32,
    /// The key that the other side has proved to hold.
    pub holder: Hash32,
    /// Seconds since 1970.
    pub now: u64,
}

/// The reason why a grant is not honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantFlaw {
    /// Its bytes are no grant.
    #[error("it cannot be read")]
    Unreadable,
    /// The key that it names as its issuer has not signed it.
    #[error("its issuer has not signed it")]
    Forged,
    /// It is for another daemon.
    #[error("it is for another daemon")]
    Audience,
    /// It is for another key than the one that shows it.
    #[error("it is for another key than the one that shows it")]
    Holder,
    /// It is not good yet.
    #[error("it is not good yet: the clock of one of the hosts may be wrong")]
    Early,
    /// It is not good any more.
    #[error("it has expired")]
    Expired,
    /// It would be good for longer than any may be.
    #[error("it would be good for longer than any grant may be")]
    Lasting,
}

impl GrantFlaw {
    /// Its name, for scripts and records.
    pub const fn name(self) -> &'static str {
        match self {
            GrantFlaw::Unreadable => "unreadable",
            GrantFlaw::Forged => "forged",
            GrantFlaw::Audience => "audience",
            GrantFlaw::Holder => "holder",
            GrantFlaw::Early => "early",
            GrantFlaw::Expired => "expired",
            GrantFlaw::Lasting => "lasting",
        }
    }
}

impl Grant {
    /// Its bytes, to be signed behind [`GRANT_DOMAIN`].
    pub fn body(&self) -> Vec<u8> {
        // Serialising into a vector fails only for types that postcard cannot express.
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }

    /// The grant with the signature that `sign` makes of the bytes that it is given.
    ///
    /// # Errors
    /// [`GrantFlaw::Unreadable`] if it names more than one grant may.
    pub fn signed(&self, sign: impl FnOnce(&[u8]) -> [u8; 64]) -> Result<SignedGrant, GrantFlaw> {
        let body = self.body();
        if body.len() > GRANT_BYTES_MAX || self.sources.is_empty() || self.sources.len() > GRANT_SOURCES_MAX {
            return Err(GrantFlaw::Unreadable);
        }
        let whole = sign(&signed_bytes(&body));
        let mut signature = [[0; 32]; 2];
        signature.iter_mut().zip(whole.chunks_exact(32)).for_each(|(half, bytes)| half.copy_from_slice(bytes));
        Ok(SignedGrant { body, signature })
    }

    /// Whether it is good to read all of these sources.
    pub fn covers(&self, sources: &[FarSource]) -> bool {
        let names = |source| self.sources.contains(source);
        let may_read = match self.right {
            GrantRight::Read => true,
            GrantRight::ReadListed(_) => self.sources.len() == 1 && sources.len() == 1,
            GrantRight::Write | GrantRight::WriteListed(_) => false,
        };
        may_read && !sources.is_empty() && sources.iter().all(names)
    }

    /// The digest of the list of names beneath the one source, or the one destination, for which
    /// alone it is good. `None`: it is good for all that lies there.
    pub fn list(&self) -> Option<Hash32> {
        match self.right {
            GrantRight::ReadListed(digest) => Some(digest),
            GrantRight::WriteListed(terms) => Some(terms.list),
            GrantRight::Read | GrantRight::Write => None,
        }
    }

    /// The claim by which alone its holder publishes. `None`: it needs none.
    pub fn claim(&self) -> Option<ShardClaim> {
        match self.right {
            GrantRight::WriteListed(terms) => terms.claim,
            GrantRight::Read | GrantRight::ReadListed(_) | GrantRight::Write => None,
        }
    }

    /// Whether its holder hears digests of what stands under the names of its list, as they are
    /// compared.
    pub fn compares(&self) -> bool {
        matches!(self.right, GrantRight::WriteListed(ListedWrite { if_exists: IfExists::Verify, .. }))
    }

    /// Whether it is good to write there.
    pub fn covers_destination(&self, root: &str, path: &RelPath) -> bool {
        let is_there = |place: &FarSource| *place.root == *root && place.path == *path && !place.contents;
        let may_write = matches!(self.right, GrantRight::Write | GrantRight::WriteListed(_));
        may_write && self.sources.len() == 1 && self.sources.iter().all(is_there)
    }

    fn judge(&self, facts: &GrantFacts) -> Result<(), GrantFlaw> {
        let GrantFacts { audience, holder, now } = *facts;
        let lasts = self.not_after.checked_sub(self.not_before);
        let flaws = [
            (self.audience != audience, GrantFlaw::Audience),
            (self.holder != holder, GrantFlaw::Holder),
            (lasts.is_none_or(|seconds| seconds > GRANT_SECONDS_MAX), GrantFlaw::Lasting),
            (now.saturating_add(GRANT_SKEW_SECONDS) < self.not_before, GrantFlaw::Early),
            (now > self.not_after.saturating_add(GRANT_SKEW_SECONDS), GrantFlaw::Expired),
        ];
        flaws.iter().find(|(is_flawed, _)| *is_flawed).map_or(Ok(()), |(_, flaw)| Err(*flaw))
    }
}

impl SignedGrant {
    /// Reads the grant, and believes nothing of it yet.
    ///
    /// # Errors
    /// [`GrantFlaw::Unreadable`].
    pub fn read(&self) -> Result<Grant, GrantFlaw> {
        if self.body.len() > GRANT_BYTES_MAX {
            return Err(GrantFlaw::Unreadable);
        }
        let (grant, rest) = postcard::take_from_bytes::<Grant>(&self.body).map_err(|_| GrantFlaw::Unreadable)?;
        let is_one = rest.is_empty() && grant.body() == self.body;
        let is_bounded = (1..=GRANT_SOURCES_MAX).contains(&grant.sources.len());
        if is_one && is_bounded { Ok(grant) } else { Err(GrantFlaw::Unreadable) }
    }

    /// Reads and judges the grant. `verifies` says whether a key has made a signature of bytes.
    ///
    /// # Errors
    /// [`GrantFlaw`] says why it is not honoured.
    pub fn open(
        &self,
        facts: &GrantFacts,
        verifies: impl FnOnce(&Hash32, &[u8], &[u8]) -> bool,
    ) -> Result<Grant, GrantFlaw> {
        let grant = self.read()?;
        // Before anything that it says is told apart to whoever shows it.
        if !verifies(&grant.issuer, &signed_bytes(&self.body), self.signature.as_flattened()) {
            return Err(GrantFlaw::Forged);
        }
        grant.judge(facts)?;
        Ok(grant)
    }
}

/// The digest by which a grant names a list: BLAKE3 over [`LIST_DOMAIN`] and the bytes of the list,
/// which has one form.
pub fn list_digest(list: &PathList) -> Hash32 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(LIST_DOMAIN);
    list.parts(usize::MAX).for_each(|part| {
        hasher.update(part);
    });
    *hasher.finalize().as_bytes()
}

/// The bytes under a signature.
fn signed_bytes(body: &[u8]) -> Vec<u8> {
    [GRANT_DOMAIN, body].concat()
}

/// The words before the bytes of a grant under its signature: nothing else that a key signs begins
/// with them.
pub const GRANT_DOMAIN: &[u8] = b"longhaul grant 1\0";
/// The words before the bytes of a list under its digest.
pub const LIST_DOMAIN: &[u8] = b"longhaul grant list 1\0";
/// Bytes of a grant at most, without its signature.
pub const GRANT_BYTES_MAX: usize = 16 << 10;
/// Sources of a grant at most.
pub const GRANT_SOURCES_MAX: usize = 64;
/// Seconds for which a grant is good at most: a day.
pub const GRANT_SECONDS_MAX: u64 = 86_400;
/// Seconds by which clocks of two hosts may differ.
pub const GRANT_SKEW_SECONDS: u64 = 60;

#[cfg(test)]
mod tests {
    use longhaul_core::Word;

    use super::*;

    const FACTS: GrantFacts = GrantFacts { audience: [3; 32], holder: [2; 32], now: 5000 };

    fn source(path: &str) -> FarSource {
        let root = Word::try_from("data").expect("a word");
        FarSource { root, path: RelPath::new(path).expect("a path"), contents: false }
    }

    fn grant() -> Grant {
        Grant {
            id: [9; 16],
            issuer: [1; 32],
            holder: [2; 32],
            audience: [3; 32],
            right: GrantRight::Read,
            sources: vec![source("a"), source("b/c")],
            not_before: 4000,
            not_after: 6000,
        }
    }

    /// A signature that everybody can make, of all bytes.
    fn sign(bytes: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(blake3::hash(bytes).as_bytes());
        signature
    }

    fn verifies(issuer: &Hash32, bytes: &[u8], signature: &[u8]) -> bool {
        *issuer == [1; 32] && signature == sign(bytes)
    }

    fn opened(grant: &Grant, facts: GrantFacts) -> Result<Grant, GrantFlaw> {
        grant.signed(sign).expect("small").open(&facts, verifies)
    }

    #[test]
    fn a_grant_is_good_for_its_holder_at_its_audience_in_its_time() {
        assert_eq!(opened(&grant(), FACTS), Ok(grant()));
        let facts = |change: fn(&mut GrantFacts)| {
            let mut facts = FACTS;
            change(&mut facts);
            opened(&grant(), facts)
        };
        assert_eq!(facts(|facts| facts.audience = [4; 32]), Err(GrantFlaw::Audience));
        assert_eq!(facts(|facts| facts.holder = [4; 32]), Err(GrantFlaw::Holder));
        for (now, want) in
            [(3939, Some(GrantFlaw::Early)), (3940, None), (6060, None), (6061, Some(GrantFlaw::Expired))]
        {
            assert_eq!(opened(&grant(), GrantFacts { now, ..FACTS }).err(), want, "{now}");
        }
        let lasting = Grant { not_after: 4000 + GRANT_SECONDS_MAX, ..grant() };
        assert!(opened(&lasting, FACTS).is_ok());
        let lasting = Grant { not_after: 4001 + GRANT_SECONDS_MAX, ..grant() };
        assert_eq!(opened(&lasting, FACTS), Err(GrantFlaw::Lasting));
        assert_eq!(opened(&Grant { not_after: 3999, ..grant() }, FACTS), Err(GrantFlaw::Lasting), "backwards");
        let other = Grant { issuer: [7; 32], ..grant() };
        assert_eq!(opened(&other, FACTS), Err(GrantFlaw::Forged));
    }

    #[test]
    fn no_changed_byte_passes() {
        let signed = grant().signed(sign).expect("small");
        for at in 0..signed.body.len() {
            for bit in 0..8 {
                let mut forged = signed.clone();
                forged.body[at] ^= 1 << bit;
                assert!(forged.open(&FACTS, verifies).is_err(), "byte {at}, bit {bit}");
            }
        }
        for at in 0..64 {
            let mut forged = signed.clone();
            forged.signature[at / 32][at % 32] ^= 1;
            assert_eq!(forged.open(&FACTS, verifies), Err(GrantFlaw::Forged));
        }
        for cut in 0..signed.body.len() {
            let forged = SignedGrant { body: signed.body[..cut].to_vec(), ..signed.clone() };
            assert!(forged.open(&FACTS, verifies).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn one_grant_has_one_form_and_a_bounded_one() {
        let read = |body: Vec<u8>| SignedGrant { body, ..SignedGrant::default() }.read();
        let body = grant().body();
        assert!(read(body.clone()).is_ok());
        assert_eq!(read([&body[..], &[0]].concat()), Err(GrantFlaw::Unreadable), "a byte is left over");
        // The number of sources, in two bytes where one does.
        let at = 16 + 3 * 32 + 1;
        assert_eq!(body[at], 2);
        let longer = [&body[..at], &[0x82, 0], &body[at + 1..]].concat();
        assert_eq!(read(longer), Err(GrantFlaw::Unreadable));
        assert_eq!(read(Grant { sources: Vec::new(), ..grant() }.body()), Err(GrantFlaw::Unreadable));
        let many = Grant { sources: vec![source("a"); GRANT_SOURCES_MAX + 1], ..grant() };
        assert_eq!(read(many.body()), Err(GrantFlaw::Unreadable));
        assert!(many.signed(sign).is_err());
        assert!(Grant { sources: Vec::new(), ..grant() }.signed(sign).is_err(), "it is for nothing");
        let long = "x".repeat(250);
        let long = format!("{long}/{long}/{long}/{long}");
        let large = Grant { sources: vec![source(&long); 17], ..grant() };
        assert!(large.body().len() > GRANT_BYTES_MAX && large.signed(sign).is_err());
        assert_eq!(read(large.body()), Err(GrantFlaw::Unreadable));
    }

    #[test]
    fn other_sources_are_not_covered() {
        assert!(grant().covers(&[source("a")]) && grant().covers(&[source("b/c"), source("a")]));
        for other in ["b", "a/b", "b/c/d", "b/d"] {
            assert!(!grant().covers(&[source("a"), source(other)]), "{other}");
        }
        assert!(!grant().covers(&[FarSource { contents: true, ..source("a") }]));
        assert!(!grant().covers(&[]));
        assert!(!Grant { right: GrantRight::Write, ..grant() }.covers(&[source("a")]), "it is to write");
        assert!(RelPath::new("a/../b").is_err(), "no path leads upwards");
    }
    #[test]
    fn a_grant_by_a_list_is_for_the_one_source_above_it_and_names_each_list_by_another_digest() {
        let path = |path: &str| RelPath::new(path).expect("a path");
        let list = |names: &[&str]| PathList::new(&names.iter().map(|name| path(name)).collect::<Vec<_>>());
        let digest = list_digest(&list(&["d/e", "f"]));
        let listed = Grant { right: GrantRight::ReadListed(digest), sources: vec![source("a")], ..grant() };
        assert_eq!(opened(&listed, FACTS), Ok(listed.clone()));
        assert_eq!((listed.list(), grant().list()), (Some(digest), None));
        assert!(listed.covers(&[source("a")]) && !listed.covers(&[source("b")]) && !listed.covers(&[]));
        assert!(!listed.covers(&[source("a"), source("a")]) && !listed.covers_destination("data", &path("a")));
        let two = Grant { sources: vec![source("a"), source("b/c")], ..listed.clone() };
        assert!(!two.covers(&[source("a")]), "beneath which of them would the names lie?");
        for other in [&["d/e"][..], &["d", "e", "f"], &["d/e", "f", "g"], &["d/e", "g"], &[]] {
            assert_ne!(list_digest(&list(other)), digest, "{other:?}");
        }
        assert_eq!(list_digest(&list(&["f", "d/e"])), digest, "a list has one order");
        assert_eq!(digest, *blake3::hash(b"longhaul grant list 1\0d/e\0f\0").as_bytes(), "as docs/WIRE.md says");
    }

    #[test]
    fn a_signature_is_over_words_of_its_own_and_the_bytes_of_the_grant() {
        let (mut signed, mut verified) = (Vec::new(), Vec::new());
        let shown = grant().signed(|bytes| {
            signed = bytes.to_vec();
            [0; 64]
        });
        let judged = shown.expect("small").open(&FACTS, |_, bytes, _| {
            verified = bytes.to_vec();
            true
        });
        assert_eq!(judged, Ok(grant()));
        let wanted = [&b"longhaul grant 1\0"[..], &grant().body()].concat();
        assert!(signed == wanted && verified == wanted, "{signed:?} {verified:?}");
    }

    #[test]
    fn a_grant_to_write_is_for_one_place() {
        let path = |path| RelPath::new(path).expect("a path");
        let write = Grant { right: GrantRight::Write, sources: vec![source("a")], ..grant() };
        assert!(write.covers_destination("data", &path("a")));
        for (root, at) in [("data", "b"), ("data", "a/b"), ("data", ""), ("other", "a")] {
            assert!(!write.covers_destination(root, &path(at)), "{root} {at}");
        }
        let others = [
            Grant { right: GrantRight::Read, ..write.clone() },
            Grant { right: GrantRight::Write, ..grant() },
            Grant { sources: vec![source("a"), source("a")], ..write.clone() },
            Grant { sources: vec![FarSource { contents: true, ..source("a") }], ..write.clone() },
        ];
        assert!(others.iter().all(|grant| !grant.covers_destination("data", &path("a"))));
    }

    #[test]
    fn a_grant_to_write_a_list_has_one_claim_that_no_byte_of_it_changes() {
        let path = |path| RelPath::new(path).expect("a path");
        let claim = ShardClaim { campaign: [5; 16], shard: 300, fence: 7, id: [6; 16] };
        let terms = ListedWrite { list: [8; 32], claim: Some(claim), if_exists: IfExists::Fail };
        let listed = Grant { right: GrantRight::WriteListed(terms), sources: vec![source("a")], ..grant() };
        assert_eq!(opened(&listed, FACTS), Ok(listed.clone()));
        assert_eq!((listed.list(), listed.claim()), (Some([8; 32]), Some(claim)));
        assert!(listed.covers_destination("data", &path("a")) && !listed.covers_destination("data", &path("b")));
        assert!(!listed.covers(&[source("a")]), "it lends no reading");
        for right in [GrantRight::Read, GrantRight::Write, GrantRight::ReadListed([8; 32])] {
            let other = Grant { right, ..listed.clone() };
            assert_eq!((other.claim(), other.compares()), (None, false), "{right:?}");
        }
        for if_exists in [IfExists::SkipSame, IfExists::Replace, IfExists::Fail, IfExists::Verify] {
            let right = GrantRight::WriteListed(ListedWrite { if_exists, ..terms });
            let compares = Grant { right, ..listed.clone() }.compares();
            assert_eq!(compares, if_exists == IfExists::Verify, "{if_exists:?}");
        }
        let none = ListedWrite { claim: None, ..terms };
        let none = Grant { right: GrantRight::WriteListed(none), ..listed.clone() };
        assert_eq!((opened(&none, FACTS), none.claim()), (Ok(none.clone()), None));
        let signed = listed.signed(sign).expect("small");
        let higher = ListedWrite { claim: Some(ShardClaim { fence: 8, ..claim }), ..terms };
        let replacing = ListedWrite { if_exists: IfExists::Replace, ..terms };
        for other in [higher, replacing] {
            let other = Grant { right: GrantRight::WriteListed(other), ..listed.clone() };
            let forged = SignedGrant { body: other.body(), ..signed.clone() };
            assert_eq!(forged.open(&FACTS, verifies), Err(GrantFlaw::Forged), "{other:?}");
        }
    }

    #[test]
    fn the_bytes_of_earlier_rights_stay_and_the_right_to_write_a_list_is_a_new_one() {
        let at = 16 + 3 * 32;
        let claim = Some(ShardClaim { campaign: [5; 16], shard: 1, fence: 2, id: [6; 16] });
        let listed = |claim, if_exists| GrantRight::WriteListed(ListedWrite { list: [8; 32], claim, if_exists });
        for (right, bytes) in [
            (GrantRight::Read, vec![0]),
            (GrantRight::Write, vec![1]),
            (GrantRight::ReadListed([8; 32]), [&[2][..], &[8; 32]].concat()),
            (listed(claim, IfExists::Fail), [&[3][..], &[8; 32], &[1], &[5; 16], &[1, 2], &[6; 16], &[2]].concat()),
            (listed(None, IfExists::SkipSame), [&[3][..], &[8; 32], &[0, 0]].concat()),
            (listed(None, IfExists::Verify), [&[3][..], &[8; 32], &[0, 3]].concat()),
        ] {
            let body = Grant { right, ..grant() }.body();
            assert!(body[at..].starts_with(&bytes), "{right:?}");
            assert_eq!(body[at + bytes.len()], 2, "the number of sources follows");
        }
    }
}
