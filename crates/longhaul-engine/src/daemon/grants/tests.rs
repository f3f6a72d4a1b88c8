//! Tests of which grants are honoured, and for what.

mod bearers;
mod model;
mod shards;

use longhaul_core::{ChunkSize, DatasetName, Entry, EntryKind, IfExists, Inode, Meta, RelPath, Word};
use longhaul_net::Identity;
use longhaul_proto::wire::grant::{GrantRight, ListedWrite};
use longhaul_proto::wire::message::{FarSource, Flow, Order, Placing, Transfer};

use super::super::admission::Admitted;
use super::super::bearer::Bearer;
use super::super::dials::Abroad;
use super::super::live::tests::daemon;
use super::*;
use crate::session::channel::ReadHalf;
use crate::session::handshake::Shown;
use crate::session::handshake::tests::transfer;

const NOW: u64 = 1_000_000;
const ALL: Rights = Rights { read: true, create: true, modify: true, delete: true };

/// A daemon, a client of it, and whoever shows a grant.
struct Scene {
    dir: tempfile::TempDir,
    daemon: Daemon,
    issuer: Identity,
    bearer: Identity,
}

impl Scene {
    fn new() -> Scene {
        let identity = || Identity::generate().expect("a key");
        let dir = tempfile::tempdir().expect("a directory");
        let (mut daemon, issuer) = (daemon(dir.path(), Some(ALL), ALL), identity());
        daemon.config.clients[0].key = issuer.public();
        daemon.live.abroad = Some(Arc::new(Abroad { identity: Arc::new(identity()), dial: Vec::new() }));
        Scene { dir, daemon, issuer, bearer: identity() }
    }

    fn grant(&self) -> Grant {
        Grant {
            id: [9; 16],
            issuer: *self.issuer.public().as_bytes(),
            holder: *self.bearer.public().as_bytes(),
            audience: *self.daemon.live.abroad.as_ref().expect("a key").identity.public().as_bytes(),
            right: GrantRight::Read,
            sources: vec![source("x", false)],
            not_before: NOW,
            not_after: NOW + 3600,
        }
    }

    fn shown(&self, grant: &Grant) -> Result<LentRights, Reason> {
        let signed = grant.signed(|bytes| self.issuer.sign(bytes)).expect("small");
        self.daemon.honour_at(&signed, self.bearer.public(), NOW + 1)
    }

    fn refused(&self, grant: &Grant) -> Option<Reason> {
        self.shown(grant).err()
    }
}

fn source(path: &str, contents: bool) -> FarSource {
    let root = Word::try_from("data").expect("a word");
    FarSource { root, path: RelPath::new(path).expect("a path"), contents }
}

fn pull(sources: Vec<FarSource>) -> Transfer {
    let far = Far::Sources { sources, rules: Vec::new(), follows: Follows::Nothing };
    Transfer { role: Role::Receiver, run: [9; 16], far, chunk: ChunkSize::DEFAULT, ..transfer(Flow::default()) }
}

fn asked(transfer: Transfer) -> Request {
    Request::Transfer(Box::new(transfer))
}

#[test]
fn a_grant_lends_reading_and_nothing_else() {
    let scene = Scene::new();
    let lent = scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}"));
    let read = Rights { read: true, ..Rights::default() };
    assert_eq!(lent.client.roots, BTreeMap::from([("data".to_owned(), read)]));
    assert_eq!(lent.client.key, scene.issuer.public());
    assert!(!lent.client.bench);
}

#[test]
fn neither_other_roots_of_a_client_are_lent_nor_measurements() {
    let mut scene = Scene::new();
    let client = &mut scene.daemon.config.clients[0];
    client.roots.insert("other".to_owned(), ALL);
    client.bench = true;
    for right in [GrantRight::Read, GrantRight::Write, GrantRight::ReadListed([5; 32])] {
        let lent = scene.shown(&Grant { right, ..scene.grant() }).unwrap_or_else(|reason| panic!("{reason:?}"));
        assert!(lent.client.roots.keys().eq(["data"]) && !lent.client.bench, "{:?}", lent.client.roots);
    }
}

#[test]
fn each_flaw_is_refused_by_its_name() {
    let scene = Scene::new();
    let grant = || scene.grant();
    let cases = [
        (Grant { audience: [1; 32], ..grant() }, GrantFlaw::Audience),
        (Grant { holder: [1; 32], ..grant() }, GrantFlaw::Holder),
        (Grant { not_before: NOW + 100, ..grant() }, GrantFlaw::Early),
        (Grant { not_before: NOW - 1000, not_after: NOW - 100, ..grant() }, GrantFlaw::Expired),
        (Grant { not_after: NOW + 100_000, ..grant() }, GrantFlaw::Lasting),
        (Grant { issuer: [1; 32], ..grant() }, GrantFlaw::Forged),
    ];
    let (found, want): (Vec<_>, Vec<_>) =
        cases.iter().map(|(grant, flaw)| (scene.refused(grant), Some(Reason::Flaw(*flaw)))).unzip();
    assert_eq!(found, want);
    let mut signed = grant().signed(|bytes| scene.issuer.sign(bytes)).expect("small");
    signed.body[0] ^= 1;
    let forged = scene.daemon.honour_at(&signed, scene.bearer.public(), NOW + 1).err();
    assert_eq!(forged, Some(Reason::Flaw(GrantFlaw::Forged)));
}

#[test]
fn a_revoked_issuer_and_one_with_a_user_lend_nothing() {
    let mut scene = Scene::new();
    scene.daemon.config.clients[0].key = scene.bearer.public();
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::Issuer), "another client stays");
    scene.daemon.config.clients[0].key = scene.issuer.public();
    scene.daemon.config.clients[0].user = Some(super::super::ClientUser { uid: 1000, gid: 1000, name: None });
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::Kind));
}

#[tokio::test]
async fn a_grant_is_used_up_when_its_run_is_complete_and_not_before() {
    let scene = Scene::new();
    for _ in 0..3 {
        let lent = scene.shown(&scene.grant());
        assert!(lent.is_ok(), "a run that was broken off is dialled again");
    }
    scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}")).used_up().await;
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::UsedUp));
    assert_eq!(scene.refused(&Grant { id: [8; 16], ..scene.grant() }), None, "others are not");
    for id in 0..USED_UP_OF_ISSUER_MAX as u128 {
        let lent = scene.shown(&Grant { id: id.to_le_bytes(), ..scene.grant() });
        let Ok(lent) = lent else { break };
        lent.used_up().await;
    }
    assert_eq!(scene.refused(&Grant { id: [7; 16], ..scene.grant() }), Some(Reason::TooMany));
}

#[tokio::test]
async fn a_grant_that_was_used_up_while_its_bearer_waited_for_its_place_is_refused_then() {
    let scene = Scene::new();
    let shown = || scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}"));
    let (first, waiting) = (shown(), shown());
    assert_eq!(waiting.need_unused_at(NOW + 1), Ok(()));
    first.used_up().await;
    assert_eq!(waiting.need_unused_at(NOW + 1), Err(Reason::UsedUp));
}

#[test]
fn a_bearer_is_told_what_its_client_would_be_of_a_root_that_it_may_not_read() {
    let mut scene = Scene::new();
    let told = |scene: &Scene| {
        let lent = scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}"));
        lent.need_usable(&scene.daemon).err().map(|fault| (fault.code, fault.message))
    };
    assert_eq!(told(&scene), None);
    let create = Rights { create: true, ..Rights::default() };
    scene.daemon.config.clients[0].roots = BTreeMap::from([("data".to_owned(), create)]);
    let (code, message) = told(&scene).expect("it may not read");
    assert!(code == FaultCode::Denied && message.contains("no right 'read' on root 'data'"), "{message}");
    scene.daemon.config.clients[0].roots.clear();
    let (code, message) = told(&scene).expect("it knows no such root");
    assert!(code == FaultCode::Denied && message.contains("no root 'data'"), "{message}");
}

#[test]
fn a_bearer_is_told_that_its_client_may_not_write_there() {
    let mut scene = Scene::new();
    let read = Rights { read: true, ..Rights::default() };
    scene.daemon.config.clients[0].roots = BTreeMap::from([("data".to_owned(), read)]);
    let grant = Grant { right: GrantRight::Write, ..scene.grant() };
    let lent = scene.shown(&grant).unwrap_or_else(|reason| panic!("{reason:?}"));
    let why = lent.need_usable(&scene.daemon).err().map(|fault| fault.message.to_string()).unwrap_or_default();
    assert!(why.contains("no right 'create' on root 'data'"), "{why}");
}

#[test]
fn only_what_the_grant_names_is_fetched_by_it() {
    let scene = Scene::new();
    let lent = scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}"));
    let refused = |request: Request| lent.need_covered((&request, &Shown::default())).err().map(|fault| fault.code);
    assert_eq!(refused(asked(pull(vec![source("x", false)]))), None);
    for other in [source("y", false), source("x/y", false), source("", false), source("x", true)] {
        assert_eq!(refused(asked(pull(vec![source("x", false), other]))), Some(FaultCode::Denied));
    }
    let follows = Far::Sources { sources: vec![source("x", false)], rules: Vec::new(), follows: Follows::Sources };
    let more = Transfer { far: follows, ..pull(Vec::new()) };
    assert_eq!(refused(asked(more)), Some(FaultCode::Denied));
}

#[test]
fn a_grant_is_for_one_run_and_for_fetching() {
    let scene = Scene::new();
    let lent = scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}"));
    let refused = |request: Request| lent.need_covered((&request, &Shown::default())).err().map(|fault| fault.code);
    assert_eq!(refused(asked(pull(vec![source("x", false)]))), None);
    let run = Transfer { run: [1; 16], ..pull(vec![source("x", false)]) };
    assert_eq!(refused(asked(run)), Some(FaultCode::Denied));
    let push = Transfer { role: Role::Sender, ..pull(vec![source("x", false)]) };
    assert_eq!(refused(asked(push)), Some(FaultCode::Denied));
    assert_eq!(refused(asked(transfer(Flow::default()))), Some(FaultCode::Denied), "no measurement");
    assert_eq!(refused(Request::Roots), Some(FaultCode::Denied));
}

#[test]
fn a_grant_to_write_lends_its_one_place_and_neither_reading_nor_a_claim() {
    let scene = Scene::new();
    let grant = Grant { right: GrantRight::Write, ..scene.grant() };
    let lent = scene.shown(&grant).unwrap_or_else(|reason| panic!("{reason:?}"));
    let write = Rights { create: true, modify: true, ..Rights::default() };
    assert_eq!(lent.client.roots, BTreeMap::from([("data".to_owned(), write)]));
    let push = |path: &str, run: [u8; 16]| {
        let FarSource { root, path, .. } = source(path, false);
        let far = Far::Destination { root, path, placing: Placing::Beneath, if_exists: Default::default() };
        asked(Transfer { run, far, ..transfer(Flow::default()) })
    };
    let claim = Some(longhaul_core::ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] });
    let (plain, claims) = (Shown::default(), Shown { claim, ..Shown::default() });
    let (host, grant) = (Word::try_from("host").expect("a word"), SignedGrant::default());
    let order = Order { host, port: 1, grant, rules: Vec::new(), lanes: 0, retry_seconds: 0, into: None };
    let orders = Shown { order: Some(Box::new(order)), ..Shown::default() };
    let covered = |request: Request, shown: &Shown| lent.need_covered((&request, shown)).is_ok();
    let found = [
        covered(push("x", [9; 16]), &plain),
        covered(push("x/y", [9; 16]), &plain),
        covered(push("", [9; 16]), &plain),
        covered(push("x", [8; 16]), &plain),
        covered(push("x", [9; 16]), &claims),
        covered(push("x", [9; 16]), &orders),
        covered(asked(pull(vec![source("x", false)])), &plain),
    ];
    assert_eq!(found, [true, false, false, false, false, false, false]);
}

#[test]
fn a_grant_to_write_a_list_lends_its_one_claim_and_its_bearer_shows_none() {
    let scene = Scene::new();
    let claim = ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] };
    let terms = ListedWrite { list: [7; 32], claim: Some(claim), if_exists: IfExists::Fail };
    let grant = Grant { right: GrantRight::WriteListed(terms), ..scene.grant() };
    let lent = scene.shown(&grant).unwrap_or_else(|reason| panic!("{reason:?}"));
    let write = Rights { create: true, modify: true, ..Rights::default() };
    assert_eq!(lent.client.roots, BTreeMap::from([("data".to_owned(), write)]));
    assert_eq!((lent.list(), lent.claim()), (Some([7; 32]), Some(claim)));
    let push_by = |path: &str, placing: Placing, if_exists: IfExists| {
        let FarSource { root, path, .. } = source(path, false);
        let far = Far::Destination { root, path, placing, if_exists };
        Transfer { run: [9; 16], far, ..transfer(Flow::default()) }
    };
    let push = |path: &str, placing: Placing| push_by(path, placing, IfExists::Fail);
    let beneath = || push("x", Placing::Beneath);
    let covered = |transfer: Transfer, shown: &Shown| lent.need_covered((&asked(transfer), shown)).is_ok();
    let plain = Shown::default();
    let claims = |claim: ShardClaim| Shown { claim: Some(claim), ..Shown::default() };
    let found = [
        covered(beneath(), &plain),
        covered(push("x/y", Placing::Beneath), &plain),
        covered(push("x", Placing::Named), &plain),
        covered(Transfer { run: [8; 16], ..beneath() }, &plain),
        covered(Transfer { dry_run: true, ..beneath() }, &plain),
        covered(beneath(), &claims(claim)),
        covered(beneath(), &claims(ShardClaim { fence: 4, ..claim })),
        covered(beneath(), &Shown { lends: true, ..Shown::default() }),
        covered(beneath(), &Shown { dataset: DatasetName::new("run-7").ok(), ..Shown::default() }),
        covered(pull(vec![source("x", false)]), &plain),
    ];
    assert_eq!(found, [true, false, false, false, false, false, false, false, false, false]);
    for other in [IfExists::SkipSame, IfExists::Replace, IfExists::Verify] {
        assert!(!covered(push_by("x", Placing::Beneath, other), &plain), "its rule is to fail, not {other:?}");
    }
}

#[test]
fn of_a_push_by_a_list_no_other_name_may_come_and_of_a_pull_the_names_are_kept() {
    let path = |path: &str| RelPath::new(path).expect("a path");
    let list = PathList::new(&[path("a"), path("d/b")]);
    let digest = list_digest(&list);
    let rest = || Rest { names: Some(list.clone()), ..Rest::default() };
    let code = |mut rest: Rest, digest| allowed(&mut rest, (Role::Sender, Some(digest))).err().map(|fault| fault.code);
    assert_eq!(code(rest(), digest), None);
    assert_eq!([code(rest(), [1; 32]), code(Rest::default(), digest)], [Some(FaultCode::Denied); 2]);
    let mut pulled = rest();
    assert!(allowed(&mut pulled, (Role::Receiver, Some(digest))).is_ok() && pulled.names.is_some());
    let pushed = allowed(&mut rest(), (Role::Sender, Some(digest))).unwrap_or_else(|fault| panic!("{fault}"));
    let may_come =
        |name: &str, kind| pushed.clone().check(&[Entry { path: path(name), kind, meta: Meta::default() }]).is_ok();
    let file = |name| may_come(name, EntryKind::File { len: 1, sparse: false, inode: Inode::default() });
    assert_eq!([file("a"), file("d/b"), may_come("d", EntryKind::Dir)], [true; 3]);
    assert_eq!([file("b"), file("d"), file("d/c"), may_come("e", EntryKind::Dir)], [false; 4]);
    let mut any = allowed(&mut Rest::default(), (Role::Sender, None)).unwrap_or_else(|fault| panic!("{fault}"));
    let entry = Entry { path: path("z"), kind: EntryKind::Dir, meta: Meta::default() };
    assert!(any.check(&[entry]).is_ok(), "a push by no list brings what it likes");
}

#[test]
fn lanes_of_a_bearer_are_let_in_for_as_long_as_it_talks() {
    let scene = Scene::new();
    let has = || scene.daemon.live.grants.has_bearer(&scene.bearer.public());
    let (one, other) = (scene.shown(&scene.grant()), scene.shown(&scene.grant()));
    assert!(one.is_ok() && other.is_ok() && has());
    drop(one);
    assert!(has());
    drop(other);
    assert!(!has());
}

/// A text in memory.
#[derive(Debug, Default)]
struct Sheet(Mutex<Option<String>>);

impl StateFile for Sheet {
    fn load(&self) -> Result<Option<String>, Fault> {
        Ok(self.0.lock().expect("whole").clone())
    }

    fn store(&self, text: &str) -> Result<(), Fault> {
        *self.0.lock().expect("whole") = Some(text.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn a_grant_that_was_used_up_is_so_at_the_next_daemon_and_others_are_not() {
    let (mut scene, sheet) = (Scene::new(), Arc::new(Sheet::default()));
    let open = |now| Grants::open_at(Some(sheet.clone()), now).unwrap_or_else(|fault| panic!("{fault}"));
    scene.daemon.live.grants = open(NOW);
    scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}")).used_up().await;
    scene.daemon.live.grants = open(NOW + 1);
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::UsedUp));
    assert_eq!(scene.refused(&Grant { id: [8; 16], ..scene.grant() }), None, "a copy goes on over a restart");
    // What has expired is not kept.
    assert!(!open(NOW + 2).lock().used_up.is_empty());
    assert!(open(NOW + GRANT_SECONDS_MAX + GRANT_SKEW_SECONDS + 1).lock().used_up.is_empty());
}

#[tokio::test]
async fn a_clock_that_went_wrong_neither_frees_a_used_grant_nor_refuses_all_others_for_good() {
    let (mut scene, sheet) = (Scene::new(), Arc::new(Sheet::default()));
    let open = |now| Grants::open_at(Some(sheet.clone()), now).unwrap_or_else(|fault| panic!("{fault}"));
    // It began with a clock that was a year ahead.
    open(NOW + 31_536_000);
    scene.daemon.live.grants = open(NOW);
    let unused = |scene: &Scene, begins: u64, now: u64| {
        let grant = Grant { id: [8; 16], not_before: begins, not_after: begins + 3600, ..scene.grant() };
        scene.daemon.live.grants.need_unused(&grant, now)
    };
    let soon = NOW + GRANT_SKEW_SECONDS + 1;
    let found = [unused(&scene, NOW, NOW), unused(&scene, soon, soon)];
    assert_eq!(found, [Err(Reason::Forgotten), Ok(())], "a year is not waited for");
    // While it runs the clock is ahead for a moment: that forgets a grant.
    let sheet = Arc::new(Sheet::default());
    let open = |now| Grants::open_at(Some(sheet.clone()), now).unwrap_or_else(|fault| panic!("{fault}"));
    scene.daemon.live.grants = open(NOW);
    scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}")).used_up().await;
    let ahead = NOW + GRANT_SECONDS_MAX + GRANT_SKEW_SECONDS + 1;
    assert_eq!(unused(&scene, ahead, ahead), Ok(()));
    assert!(scene.daemon.live.grants.lock().used_up.is_empty());
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::Forgotten), "it is not good once more");
    assert_eq!(unused(&scene, soon, soon), Ok(()), "later ones are");
    // The same over a restart in that moment.
    scene.daemon.live.grants = open(ahead);
    scene.daemon.live.grants = open(NOW + 1);
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::UsedUp));
}

#[test]
fn grants_of_a_time_of_which_nothing_is_remembered_are_refused() {
    let mut scene = Scene::new();
    let open = |file| Grants::open_at(file, NOW + 1).unwrap_or_else(|fault| panic!("{fault}"));
    scene.daemon.live.grants = open(None);
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::Forgotten));
    assert_eq!(scene.refused(&Grant { not_before: NOW + 1, ..scene.grant() }), None);
    let lost: Arc<dyn StateFile> = Arc::new(Sheet(Mutex::new(Some(HEAD.to_owned()))));
    scene.daemon.live.grants = open(Some(lost));
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::Forgotten));
    for text in ["x", "since x", "a b c", "since 1 2 3"] {
        assert_eq!(parse(text, NOW).err().map(|fault| fault.code), Some(FaultCode::Usage), "{text}");
    }
}

#[test]
fn a_daemon_without_clients_that_may_lend_hears_no_grant() {
    let mut scene = Scene::new();
    assert!(scene.daemon.may_honour());
    let user = Some(super::super::ClientUser { uid: 1000, gid: 1000, name: None });
    scene.daemon.config.clients[0].user = user;
    assert!(!scene.daemon.may_honour(), "it is served as a user");
    scene.daemon.config.clients[0].user = None;
    let grant = scene.grant();
    let abroad = scene.daemon.live.abroad.take();
    assert!(!scene.daemon.may_honour(), "nobody knows its key");
    assert_eq!(scene.refused(&grant), Some(Reason::Kind));
    scene.daemon.live.abroad = abroad;
    scene.daemon.config.clients.clear();
    assert!(!scene.daemon.may_honour());
}

/// The things that may happen between a grant and the request by it.
#[derive(Clone, Copy, PartialEq)]
enum Meanwhile {
    Nothing,
    UsedUp,
    RightLost,
}

/// The words of the refusal of a pull by a grant that was good before. `None` if it is admitted.
#[expect(clippy::disallowed_methods, reason = "what is to be pulled")]
async fn refusal(meanwhile: Meanwhile) -> Option<String> {
    let (mut scene, now) = (Scene::new(), seconds_since_1970());
    std::fs::write(scene.dir.path().join("x"), b"x").expect("written");
    let grant = Grant { not_before: now, not_after: now + 3600, ..scene.grant() };
    let signed = grant.signed(|bytes| scene.issuer.sign(bytes)).expect("small");
    let honoured =
        |scene: &Scene| scene.daemon.honour(&signed, scene.bearer.public()).unwrap_or_else(|fault| panic!("{fault}"));
    let lent = honoured(&scene);
    if meanwhile == Meanwhile::UsedUp {
        honoured(&scene).used_up().await;
    }
    if meanwhile == Meanwhile::RightLost {
        let create = Rights { create: true, ..Rights::default() };
        scene.daemon.config.clients[0].roots = BTreeMap::from([("data".to_owned(), create)]);
    }
    let (daemon, peer) = (Arc::new(scene.daemon), (scene.bearer.public(), ([127, 0, 0, 1], 1).into()));
    let bearer = Bearer { client: lent.client.clone(), lent: Some(lent) };
    let mut reader: ReadHalf = Box::new(tokio::io::empty());
    let asked = (asked(pull(vec![source("x", false)])), Shown::default());
    bearer.admit(&daemon, (peer, &mut reader), asked).await.err().map(|fault| fault.message.to_string())
}

#[tokio::test]
async fn a_bearer_is_admitted_unless_its_grant_was_used_up_or_its_client_lost_the_right_meanwhile() {
    assert_eq!(refusal(Meanwhile::Nothing).await, None);
    let whys = [refusal(Meanwhile::UsedUp).await, refusal(Meanwhile::RightLost).await];
    let wanted = ["it was used: its copy is complete", "no right 'read' on root 'data'"];
    let tells = |(why, wanted): (&Option<String>, &str)| why.as_ref().is_some_and(|why| why.contains(wanted));
    let told: Vec<bool> = whys.iter().zip(wanted).map(tells).collect();
    assert_eq!(told, [true, true], "{whys:?}");
}

/// Asks for `data/x` so. Returns the key of the client by whose rights that is admitted, or why it
/// is not.
#[expect(clippy::disallowed_methods, reason = "what is to be pulled")]
async fn admitted(scene: Scene, bearer: Bearer, shown: Shown) -> Result<PublicKey, String> {
    std::fs::write(scene.dir.path().join("x"), b"x").expect("written");
    let (daemon, peer) = (Arc::new(scene.daemon), (scene.bearer.public(), ([127, 0, 0, 1], 1).into()));
    let mut reader: ReadHalf = Box::new(tokio::io::empty());
    let asked = (asked(pull(vec![source("x", false)])), shown);
    match bearer.admit(&daemon, (peer, &mut reader), asked).await {
        Ok((Admitted::Session(admission), _)) => Ok(admission.holdings.client),
        Ok(_) => Err("it is no session".to_owned()),
        Err(fault) => Err(fault.message.to_string()),
    }
}

/// A grant of the scene that is good now.
fn good_now(scene: &Scene) -> SignedGrant {
    let now = seconds_since_1970();
    let grant = Grant { not_before: now, not_after: now + 3600, ..scene.grant() };
    grant.signed(|bytes| scene.issuer.sign(bytes)).expect("small")
}

#[tokio::test]
async fn a_client_that_shows_a_grant_asks_by_that_and_by_no_right_of_its_own() {
    for own in [BTreeMap::new(), BTreeMap::from([("data".to_owned(), ALL)])] {
        let scene = Scene::new();
        let client = ClientConfig {
            name: "other".to_owned(),
            key: scene.bearer.public(),
            roots: own,
            ..scene.daemon.config.clients[0].clone()
        };
        let (issuer, shown) = (scene.issuer.public(), Shown { grant: Some(good_now(&scene)), ..Shown::default() });
        let found = admitted(scene, Bearer { client, lent: None }, shown).await;
        assert_eq!(found, Ok(issuer), "it ends with the rights of whoever lends");
    }
}

#[tokio::test]
async fn a_bearer_that_shows_another_grant_is_refused() {
    let scene = Scene::new();
    let signed = good_now(&scene);
    let lent = scene.daemon.honour(&signed, scene.bearer.public()).unwrap_or_else(|fault| panic!("{fault}"));
    let bearer = Bearer { client: lent.client.clone(), lent: Some(lent) };
    let why = admitted(scene, bearer, Shown { grant: Some(signed), ..Shown::default() }).await;
    assert!(why.as_ref().is_err_and(|why| why.contains("a second grant")), "{why:?}");
}
