//! Tests of the settings that an order to a daemon cannot keep.

use std::sync::Arc;

use longhaul_core::{AccountMap, DatasetName, DatasetPart, PathList, RelPath};
use longhaul_net::{Identity, NetPath};

use super::*;
use crate::api::{Settings, SshHost, Stop, Trust};
use crate::client::publishing::Publishing;
use crate::client::source_reading::SourceReading;

struct AnyKey;

impl Trust for AnyKey {
    fn judge(&self, _: &str, _: u16, _: &PublicKey) -> Result<(), Fault> {
        Ok(())
    }
}

struct HearsNoEvent;

impl Observer for HearsNoEvent {
    fn event(&self, _: Event) {}
}

/// A run that asks for a copy, and the copy: of a directory's contents beneath another, by its
/// source.
fn asked() -> (Run, ThirdParty) {
    let identity = Arc::new(Identity::generate().expect("a key"));
    let remote = || {
        let reach = Reach::Address { host: "host.example".to_owned(), port: 7214 };
        Remote { reach, credentials: Credentials { identity: identity.clone(), trust: Arc::new(AnyKey), memory: None } }
    };
    let (path, following, dialler) = (place(), Following::ToTheEnd, Dialler::Source);
    let asked = ThirdParty { from: remote(), paths: vec![place()], to: remote(), path, following, dialler };
    let run = Run::within_process(Settings::default(), Arc::new(HearsNoEvent), Stop::new().1).expect("a run");
    (run, asked)
}

/// The contents of a directory.
fn place() -> RemotePath {
    let root = Word::try_from("data").expect("a word");
    RemotePath { root, path: RelPath::new("x").expect("a path"), slash: true }
}

fn claim() -> ShardClaim {
    ShardClaim { campaign: [1; 16], shard: 2, fence: 3, id: [4; 16] }
}

fn by_ssh() -> SshHost {
    let words = || "host.example".to_owned();
    let (command, install, ports, places) = (Vec::new(), false, None, Vec::new());
    let (host, remote, arguments, ahead, trial) = (words(), words(), words(), words(), words());
    SshHost { host, command, remote, arguments, ahead, trial, install, ports, places }
}

/// The same of the names of a list, of which each is expected as it was planned: a shard.
fn shard() -> (Run, ThirdParty) {
    let (mut run, asked) = asked();
    run.settings.files_from = Some(Arc::new(PathList::default()));
    run.reading = SourceReading { expected: Some(Arc::default()), ..SourceReading::default() };
    run.publishing = Publishing { claim: Some(claim()), ..Publishing::default() };
    (run, asked)
}

/// The words of the refusal, of such a copy changed so. `None`: it may be asked for.
fn refused((mut run, mut asked): (Run, ThirdParty), change: impl FnOnce(&mut Run, &mut ThirdParty)) -> Option<String> {
    change(&mut run, &mut asked);
    run.refuse_settings(&asked).err().map(|fault| fault.message.to_string())
}

#[test]
fn what_no_daemon_could_keep_for_another_is_refused_before_anything_is_asked() {
    assert_eq!([refused(asked(), |_, _| ()), refused(shard(), |_, _| ())], [None, None]);
    let named = DatasetName::new("run-7").expect("a name");
    let listed = |run: &mut Run| run.settings.files_from = Some(Arc::new(PathList::default()));
    let found = [
        refused(asked(), |run, asked| {
            listed(run);
            asked.paths.push(place());
        }),
        refused(shard(), |_, asked| asked.path.slash = false),
        refused(shard(), |_, asked| asked.paths = vec![RemotePath { slash: false, ..place() }]),
        refused(asked(), |run, _| run.settings.paths = vec!["127.0.0.1".parse::<NetPath>().expect("a path")]),
        refused(asked(), |run, _| {
            run.settings.metadata.accounts = AccountMap { numbers_only: true, ..AccountMap::default() };
        }),
        refused(asked(), |run, _| run.publishing.part = Some(DatasetPart::Commit)),
        refused(asked(), |run, _| run.publishing.claim = Some(claim())),
        refused(asked(), |run, _| {
            listed(run);
            run.publishing.claim = Some(claim());
        }),
        refused(shard(), |run, _| run.publishing.dataset = Some(named)),
        refused(asked(), |_, asked| {
            asked.to.reach = Reach::Ssh(by_ssh());
        }),
    ];
    let wanted = [
        "a list of names beneath several sources",
        "a list of names that are not beneath a directory",
        "a list of names that are not beneath a directory",
        "a path of this host's addresses",
        "a mapping of accounts",
        "a part of a campaign's dataset",
        "a claim, where the source dials,",
        "a claim, where the source dials,",
        "a dataset of a list, where the source dials,",
        "ssh leads to one of them",
    ];
    let tells = |(found, wanted): (&Option<String>, &str)| found.as_ref().is_some_and(|why| why.contains(wanted));
    assert!(found.iter().zip(wanted).all(tells), "{found:#?}");
}
