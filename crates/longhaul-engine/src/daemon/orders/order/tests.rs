//! Tests of where an order may lead, and of what is asked of a name server for it.

use longhaul_core::{DatasetName, IfExists, RelPath, Rights, Word};
use longhaul_proto::wire::grant::{GrantRight, ListedWrite};
use longhaul_proto::wire::message::{Far, FarSource, Flow, OrderPlace, Placing, Request};

use super::*;
use crate::daemon::bearer::Bearer;
use crate::daemon::dials::Abroad;
use crate::daemon::live::tests::daemon;
use crate::daemon::shares::ClientShares;
use crate::session::handshake::tests::transfer;

fn order(host: &str, port: u16) -> Order {
    let (grant, host) = (SignedGrant::default(), Word::try_from(host).expect("a word"));
    Order { host, port, grant, rules: Vec::new(), lanes: 0, retry_seconds: 0, into: None }
}

fn place(orders: &OrderPlaces) -> Share {
    orders.begin(PublicKey::from_bytes([7; 32])).expect("a place")
}

fn rules(texts: &[&str]) -> Vec<DialRule> {
    texts.iter().map(|text| DialRule::parse(text, 7214).expect("a rule")).collect()
}

#[tokio::test]
async fn a_host_that_no_rule_can_allow_is_refused_without_a_lookup() {
    let orders = OrderPlaces::default();
    // A lookup is broken off, which shows where there is one.
    orders.close_lookups();
    for (dial, host, port, want) in [
        (&[][..], "dtn.example.org", 7214, FaultCode::Denied),
        (&["dtn.example.org"], "evil.example.org", 7214, FaultCode::Denied),
        (&["dtn.example.org"], "dtn.example.org", 7215, FaultCode::Denied),
        (&["dtn.example.org"], "dtn.example.org", 7214, FaultCode::TimedOut),
        (&["dtn.example.org"], "DTN.example.org.", 7214, FaultCode::TimedOut),
        (&["dtn.example.org", "192.0.2.0/24:80"], "evil.example.org", 7214, FaultCode::Denied),
        (&["192.0.2.0/24"], "any.example.org", 7214, FaultCode::TimedOut),
        (&["192.0.2.0/24"], "127.0.0.1", 7214, FaultCode::Denied),
    ] {
        let found = addresses((&rules(dial), &orders), &order(host, port), place(&orders)).await;
        let code = found.map(|(addresses, _)| addresses).map_err(|fault| fault.code);
        assert_eq!(code, Err(want), "{dial:?}: {host} at {port}");
    }
}

#[tokio::test]
async fn a_daemon_that_may_dial_nowhere_says_that_it_has_no_rule() {
    let orders = OrderPlaces::default();
    let found = addresses((&[], &orders), &order("127.0.0.1", 7214), place(&orders)).await;
    let why = found.map_or_else(|fault| fault.message.to_string(), |(addresses, _)| format!("{addresses:?}"));
    assert!(why.contains("names no host"), "{why}");
}

#[tokio::test]
async fn an_allowed_address_is_found_and_a_refusal_names_none() {
    let orders = OrderPlaces::default();
    let found = addresses((&rules(&["127.0.0.1:99"]), &orders), &order("127.0.0.1", 99), place(&orders)).await;
    let found = found.map(|(addresses, _)| addresses).map_err(|fault| fault.code);
    assert_eq!(found, Ok(vec![([127, 0, 0, 1], 99).into()]));
    let found = addresses((&rules(&["192.0.2.0/24"]), &orders), &order("localhost", 7214), place(&orders)).await;
    let fault = found.expect_err("it is at this host");
    assert_eq!(fault.code, FaultCode::Denied);
    assert!(!fault.message.contains("127.0.0.1") && !fault.message.contains("::1"), "{}", fault.message);
}

#[tokio::test]
async fn a_name_that_is_not_known_now_may_be_known_later_and_is_no_missing_source() {
    let orders = OrderPlaces::default();
    let asked = order("no-such-host.invalid", 7214);
    let found = addresses((&rules(&["192.0.2.0/24"]), &orders), &asked, place(&orders)).await;
    let fault = found.map(|(addresses, _)| addresses).expect_err("nobody has that name");
    assert!(fault.retry() && fault.code != FaultCode::NotFound, "{fault:?}");
}

const ALL: Rights = Rights { read: true, create: true, modify: true, delete: false };

/// A daemon that may dial this host, its client, and a daemon that the client reads from.
struct Scene {
    _dir: tempfile::TempDir,
    daemon: Daemon,
    own: Arc<Identity>,
    issuer: Identity,
}

impl Scene {
    fn new() -> Scene {
        let identity = || Identity::generate().expect("a key");
        let dir = tempfile::tempdir().expect("a directory");
        let (mut daemon, issuer, own) = (daemon(dir.path(), Some(ALL), ALL), identity(), Arc::new(identity()));
        daemon.config.clients[0].key = issuer.public();
        let dial = rules(&["127.0.0.1:99"]);
        daemon.live.abroad = Some(Arc::new(Abroad { identity: own.clone(), dial }));
        Scene { _dir: dir, daemon, own, issuer }
    }

    fn grant(&self) -> Grant {
        Grant {
            id: ID,
            issuer: *self.issuer.public().as_bytes(),
            holder: *self.own.public().as_bytes(),
            audience: [3; 32],
            right: GrantRight::Read,
            sources: vec![FarSource {
                root: Word::try_from("data").expect("a word"),
                path: RelPath::new("x").expect("a path"),
                contents: false,
            }],
            not_before: 0,
            not_after: 3600,
        }
    }

    async fn judged(&self, grant: &Grant, run: [u8; 16]) -> Result<JudgedOrder, Fault> {
        let grant = grant.signed(|bytes| self.issuer.sign(bytes)).expect("small");
        judge(&self.daemon, &self.daemon.config.clients[0], (Order { grant, ..order("127.0.0.1", 99) }, run)).await
    }

    async fn refused(&self, grant: &Grant, run: [u8; 16]) -> String {
        self.judged(grant, run).await.err().map(|fault| fault.message.to_string()).unwrap_or_default()
    }
}

const ID: [u8; 16] = [9; 16];

fn push() -> Transfer {
    let (root, path) = (Word::try_from("data").expect("a word"), RelPath::new("y").expect("a path"));
    let far = Far::Destination { root, path, placing: Placing::Beneath, if_exists: Default::default() };
    Transfer { run: ID, far, ..transfer(Flow::default()) }
}

#[tokio::test]
async fn an_order_is_judged_by_its_grant_and_each_grant_is_good_for_one() {
    let scene = Scene::new();
    let grant = || scene.grant();
    let mut untold = Vec::new();
    for (grant, run, wanted) in [
        (grant(), [8; 16], "whose run is not that of its grant"),
        (Grant { issuer: [1; 32], ..grant() }, ID, "not from its client to this daemon"),
        (Grant { holder: [1; 32], ..grant() }, ID, "not from its client to this daemon"),
        (Grant { audience: *scene.own.public().as_bytes(), ..grant() }, ID, "is about this same daemon alone"),
    ] {
        let why = scene.refused(&grant, run).await;
        untold.extend((!why.contains(wanted)).then(|| format!("{wanted}: {why}")));
    }
    let place = |root: &str, path: &str| OrderPlace {
        root: Word::try_from(root).expect("a word"),
        path: RelPath::new(path).expect("a path"),
        placing: Placing::Beneath,
        if_exists: Default::default(),
        dataset: None,
    };
    let terms = ListedWrite { list: [7; 32], claim: None, if_exists: IfExists::default() };
    let replacing = OrderPlace { if_exists: IfExists::Replace, ..place("data", "x") };
    let staged = OrderPlace { dataset: DatasetName::new("run-7").ok(), ..place("data", "x") };
    for (right, into) in [
        (GrantRight::Write, None),
        (GrantRight::Read, Some(place("data", "x"))),
        (GrantRight::Write, Some(place("data", "x/y"))),
        (GrantRight::Write, Some(place("other", "x"))),
        (GrantRight::WriteListed(terms), None),
        (GrantRight::WriteListed(terms), Some(place("data", "x/y"))),
        (GrantRight::WriteListed(terms), Some(staged)),
        (GrantRight::WriteListed(terms), Some(replacing)),
    ] {
        let signed = Grant { right, ..grant() }.signed(|bytes| scene.issuer.sign(bytes)).expect("small");
        let order = Order { grant: signed, into, ..order("127.0.0.1", 99) };
        let judged = judge(&scene.daemon, &scene.daemon.config.clients[0], (order, ID)).await;
        let why = judged.err().map(|fault| fault.message.to_string()).unwrap_or_default();
        untold.extend((!why.contains("is not for what is ordered")).then(|| format!("{right:?}: {why}")));
    }
    assert!(untold.is_empty(), "{untold:#?}");
    let first = scene.judged(&grant(), ID).await.unwrap_or_else(|fault| panic!("{fault}"));
    let why = scene.refused(&grant(), ID).await;
    assert!(why.contains("was given to this daemon before"), "{why}");
    drop(first);
    assert!(scene.judged(&grant(), ID).await.is_ok(), "one that was not begun is forgotten");
}

#[tokio::test]
async fn the_addresses_of_a_host_are_looked_up_and_judged_anew_before_each_further_session() {
    let mut scene = Scene::new();
    let mut judged = scene.judged(&scene.grant(), ID).await.unwrap_or_else(|fault| panic!("{fault}"));
    let client = scene.issuer.public();
    // As if the name had led elsewhere then.
    judged.addresses = vec![([192, 0, 2, 1], 99).into()];
    judged.find_again(&scene.daemon, client).await.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(judged.addresses, [([127, 0, 0, 1], 99).into()]);
    // As if it led now to where this daemon may not dial.
    let dial = rules(&["192.0.2.0/24:99"]);
    scene.daemon.live.abroad = Some(Arc::new(Abroad { identity: scene.own.clone(), dial }));
    let refused = judged.find_again(&scene.daemon, client).await.err().map(|fault| fault.code);
    assert_eq!(refused, Some(FaultCode::Denied));
    // Its place among the orders went with that, and is taken anew.
    let dial = rules(&["127.0.0.1:99"]);
    scene.daemon.live.abroad = Some(Arc::new(Abroad { identity: scene.own.clone(), dial }));
    assert!(judged.find_again(&scene.daemon, client).await.is_ok() && judged.place.is_some());
}

/// An order of this client that is carried out.
fn carried(current: &Current, client: ClientConfig, judged: JudgedOrder) -> Carrying<'_> {
    let peer = ([127, 0, 0, 1], 1).into();
    let recorded = Asked::heard(None, (client.key, peer));
    let (reader, writer) = (tokio::io::empty(), tokio::io::sink());
    let share = ClientShares::whole("bytes of memory", 1 << 20).claim(client.key, 0).expect("there is room");
    let needs = (FollowerNeeds::Failures, FollowerClaim::new(share, FOLLOWER_BYTES));
    let follower = Follower::begin((Box::new(reader), Box::new(writer)), ID, needs);
    let (daemon, asked, told) = (current.now(), (push(), Shown::default()), follower.told());
    Carrying { daemon, current, client, peer, judged, asked, recorded, told }
}

/// The refusal of a further session of an order after the daemon was changed so.
async fn refused_again(change: impl FnOnce(&mut Daemon)) -> Option<(FaultCode, String)> {
    let mut scene = Scene::new();
    let judged = scene.judged(&scene.grant(), ID).await.unwrap_or_else(|fault| panic!("{fault}"));
    let client = scene.daemon.config.clients[0].clone();
    change(&mut scene.daemon);
    let current = Current::new(scene.daemon);
    let refused = carried(&current, client, judged).admit_again().await;
    refused.err().map(|fault| (fault.code, fault.message.to_string()))
}

#[tokio::test]
async fn an_order_has_no_further_session_once_its_client_is_taken_out_or_may_do_less_or_is_a_user_of_the_host() {
    assert_eq!(refused_again(|_| ()).await, None);
    let user = Some(crate::daemon::ClientUser { uid: 1000, gid: 1000, name: None });
    let read = Rights { read: true, ..Rights::default() };
    let found = [
        refused_again(|daemon| daemon.config.clients.clear()).await,
        refused_again(|daemon| daemon.config.clients[0].roots = [("data".to_owned(), read)].into()).await,
        refused_again(|daemon| daemon.config.clients[0].user = user).await,
        refused_again(|daemon| {
            let identity = Arc::new(Identity::generate().expect("a key"));
            daemon.live.abroad = Some(Arc::new(Abroad { identity, dial: rules(&["192.0.2.0/24:99"]) }));
        })
        .await,
    ];
    let wanted = [
        (FaultCode::Denied, "does not know the key"),
        (FaultCode::Denied, "no right 'create' on root 'data'"),
        (FaultCode::Unsupported, "served as a user of the daemon's host"),
        (FaultCode::Denied, "may not dial"),
    ];
    let tells = |found: &Option<(FaultCode, String)>, (code, words): (FaultCode, &str)| {
        found.as_ref().is_some_and(|(found, why)| *found == code && why.contains(words))
    };
    assert!(found.iter().zip(wanted).all(|(found, wanted)| tells(found, wanted)), "{found:#?}");
}

#[tokio::test]
async fn nobody_has_a_host_looked_up_who_may_not_write_here() {
    let mut scene = Scene::new();
    let read = Rights { read: true, ..Rights::default() };
    scene.daemon.config.clients[0].roots = [("data".to_owned(), read)].into();
    let grant = scene.grant().signed(|bytes| scene.issuer.sign(bytes)).expect("small");
    // It may not be dialled either, which is not told.
    let order = Order { grant, ..order("192.0.2.1", 7214) };
    let shown = Shown { order: Some(Box::new(order)), ..Shown::default() };
    let client = scene.daemon.config.clients[0].clone();
    let (peer, mut reader): (_, ReadHalf) = ((client.key, ([127, 0, 0, 1], 1).into()), Box::new(tokio::io::empty()));
    let asked = (Request::Transfer(Box::new(push())), shown);
    let refused = Bearer { client, lent: None }.admit(&Arc::new(scene.daemon), (peer, &mut reader), asked).await;
    let why = refused.err().map(|fault| fault.message.to_string()).unwrap_or_default();
    assert!(why.contains("no right 'create' on root 'data'"), "{why}");
}

#[tokio::test]
async fn the_names_of_an_order_by_a_list_lie_beneath_one_directory() {
    let scene = Scene::new();
    let client = scene.daemon.config.clients[0].clone();
    let terms = ListedWrite { list: [7; 32], claim: None, if_exists: IfExists::default() };
    let (right, signer) = (GrantRight::WriteListed(terms), &scene.issuer);
    let signed = Grant { right, ..scene.grant() }.signed(|bytes| signer.sign(bytes)).expect("small");
    let (root, path) = (Word::try_from("data").expect("a word"), RelPath::new("x").expect("a path"));
    let source = |contents| FarSource { root: root.clone(), path: path.clone(), contents };
    let into = OrderPlace {
        root: root.clone(),
        path: path.clone(),
        placing: Placing::Beneath,
        if_exists: Default::default(),
        dataset: None,
    };
    let daemon = Arc::new(scene.daemon);
    let mut whys = Vec::new();
    // Of the directory alone its list is waited for, which does not come.
    for sources in [vec![source(true)], vec![source(false)], vec![source(true), source(true)]] {
        let far = Far::Sources { sources, rules: Vec::new(), follows: Default::default() };
        let pull = Transfer { role: Role::Receiver, far, ..push() };
        let order = Order { grant: signed.clone(), into: Some(into.clone()), ..order("127.0.0.1", 99) };
        let shown = Shown { order: Some(Box::new(order)), ..Shown::default() };
        let peer = (client.key, ([127, 0, 0, 1], 1).into());
        let mut reader: ReadHalf = Box::new(tokio::io::empty());
        let asked = (Request::Transfer(Box::new(pull)), shown);
        let bearer = Bearer { client: client.clone(), lent: None };
        let refused = bearer.admit(&daemon, (peer, &mut reader), asked).await.err();
        whys.push(refused.map(|fault| fault.message.contains("another number of directories than one")));
    }
    assert_eq!(whys, [Some(false), Some(true), Some(true)]);
}

#[tokio::test]
async fn an_order_has_no_further_session_once_the_daemon_drains() {
    let scene = Scene::new();
    let judged = scene.judged(&scene.grant(), ID).await.unwrap_or_else(|fault| panic!("{fault}"));
    let client = scene.daemon.config.clients[0].clone();
    let current = Current::new(scene.daemon);
    let carrying = carried(&current, client, judged);
    let lost = || carrying.within_grant(Fault::new(FaultCode::Lost, Blame::Path, "x"), 0).err().map(|fault| fault.code);
    assert_eq!(lost(), None);
    current.now().live.drain.start(None);
    assert_eq!(lost(), Some(FaultCode::Busy));
}

#[test]
fn an_order_whose_grant_has_expired_ends_as_one_whose_link_was_lost() {
    let ends = |code, sessions, now| {
        let fault = Fault::new(code, Blame::Peer, "x");
        within_grant(fault, sessions, (1000, now)).map_or_else(|end| Some(end.code), |_| None)
    };
    let found = [
        ends(FaultCode::Denied, 1, 1001),
        ends(FaultCode::Lost, 2, 1001),
        ends(FaultCode::Denied, 1, 1000),
        ends(FaultCode::Denied, 0, 1001),
        ends(FaultCode::NoSpace, 1, 1001),
        ends(FaultCode::Interrupted, 1, 1001),
        // By this code the other daemon ends a session with its grant. Its clock may be ahead of
        // this one.
        ends(FaultCode::TimedOut, 1, 1061),
        ends(FaultCode::TimedOut, 1, 1000 - 2 * GRANT_SKEW_SECONDS + 1),
        ends(FaultCode::TimedOut, 1, 1000 - 2 * GRANT_SKEW_SECONDS),
        ends(FaultCode::Lost, 1, 999),
    ];
    let over = Some(FaultCode::Lost);
    assert_eq!(found, [over, over, None, None, None, None, over, over, None, None]);
}
