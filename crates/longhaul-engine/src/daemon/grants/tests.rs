//! Tests of which grants are honoured, and for what.

use longhaul_core::{ChunkSize, RelPath, Word};
use longhaul_net::Identity;
use longhaul_proto::wire::grant::GrantRight;
use longhaul_proto::wire::message::{FarSource, Flow, Transfer};

use super::super::dials::Abroad;
use super::super::live::tests::daemon;
use super::*;
use crate::session::handshake::tests::transfer;

const NOW: u64 = 1_000_000;
const ALL: Rights = Rights { read: true, create: true, modify: true };

/// A daemon, a client of it, and whoever shows a grant.
struct Scene {
    _dir: tempfile::TempDir,
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
        Scene { _dir: dir, daemon, issuer, bearer: identity() }
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
fn each_flaw_is_refused_by_its_name() {
    let scene = Scene::new();
    let grant = || scene.grant();
    let flaw = |grant: Grant| scene.refused(&grant);
    assert_eq!(flaw(Grant { audience: [1; 32], ..grant() }), Some(Reason::Flaw(GrantFlaw::Audience)));
    assert_eq!(flaw(Grant { holder: [1; 32], ..grant() }), Some(Reason::Flaw(GrantFlaw::Holder)));
    assert_eq!(flaw(Grant { not_before: NOW + 100, ..grant() }), Some(Reason::Flaw(GrantFlaw::Early)));
    let expired = Grant { not_before: NOW - 1000, not_after: NOW - 100, ..grant() };
    assert_eq!(flaw(expired), Some(Reason::Flaw(GrantFlaw::Expired)));
    assert_eq!(flaw(Grant { issuer: [1; 32], ..grant() }), Some(Reason::Flaw(GrantFlaw::Forged)));
    let mut signed = grant().signed(|bytes| scene.issuer.sign(bytes)).expect("small");
    signed.body[0] ^= 1;
    let forged = scene.daemon.honour_at(&signed, scene.bearer.public(), NOW + 1).err();
    assert_eq!(forged, Some(Reason::Flaw(GrantFlaw::Forged)));
}

#[test]
fn a_revoked_issuer_and_one_with_a_user_lend_nothing() {
    let mut scene = Scene::new();
    let client = scene.daemon.config.clients.pop().expect("a client");
    assert_eq!(scene.refused(&scene.grant()), Some(Reason::Issuer));
    let user = Some(super::super::ClientUser { uid: 1000, gid: 1000, name: None });
    scene.daemon.config.clients.push(ClientConfig { user, ..client });
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
        lent.need_readable(&scene.daemon).err().map(|fault| (fault.code, fault.message))
    };
    assert_eq!(told(&scene), None);
    let roots = |rights| BTreeMap::from([("data".to_owned(), rights)]);
    scene.daemon.config.clients[0].roots = roots(Rights { create: true, ..Rights::default() });
    let (code, message) = told(&scene).expect("it may not read");
    assert!(code == FaultCode::Denied && message.contains("no right 'read' on root 'data'"), "{message}");
    scene.daemon.config.clients[0].roots.clear();
    let (code, message) = told(&scene).expect("it knows no such root");
    assert!(code == FaultCode::Denied && message.contains("no root 'data'"), "{message}");
}

#[test]
fn only_what_the_grant_names_is_fetched_by_it() {
    let scene = Scene::new();
    let lent = scene.shown(&scene.grant()).unwrap_or_else(|reason| panic!("{reason:?}"));
    let refused = |request: Request| lent.need_covered(&request).err().map(|fault| fault.code);
    assert_eq!(refused(asked(pull(vec![source("x", false)]))), None);
    for other in [source("y", false), source("x/y", false), source("", false), source("x", true)] {
        assert_eq!(refused(asked(pull(vec![source("x", false), other]))), Some(FaultCode::Denied));
    }
    let follows = Far::Sources { sources: vec![source("x", false)], rules: Vec::new(), follows: Follows::Sources };
    let more = Transfer { far: follows, ..pull(Vec::new()) };
    assert_eq!(refused(asked(more)), Some(FaultCode::Denied));
    let run = Transfer { run: [1; 16], ..pull(vec![source("x", false)]) };
    assert_eq!(refused(asked(run)), Some(FaultCode::Denied));
    let push = Transfer { role: Role::Sender, ..pull(vec![source("x", false)]) };
    assert_eq!(refused(asked(push)), Some(FaultCode::Denied));
    assert_eq!(refused(asked(transfer(Flow::default()))), Some(FaultCode::Denied), "no measurement");
    assert_eq!(refused(Request::Roots), Some(FaultCode::Denied));
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
    assert!(open(NOW + 3600 + GRANT_SKEW_SECONDS + 1).lock().used_up.is_empty());
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
    scene.daemon.config.clients.clear();
    assert!(!scene.daemon.may_honour());
}
