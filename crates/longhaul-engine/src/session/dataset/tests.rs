//! Tests of the list of a dataset: what is missing, and what may appear.

#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::path::Path;
use std::time::Duration;

use longhaul_core::{DatasetName, Entry, FileId, Inode, Meta, RelPath};
use longhaul_disk::{DatasetOrder, Replace, StagePart};

use super::*;

/// A dataset that is staged in a directory, with the file `f` and the directory `d`.
fn staged(dir: &Path) -> StagedDataset {
    let name = DatasetName::new("run-7").expect("a name");
    let order = DatasetOrder { name: &name, principal: "one", replace: Replace::Never, part: StagePart::All };
    let stage = DatasetStage::named(dir, order, Duration::ZERO).expect("staged");
    let top = stage.tree().named().join("tree");
    std::fs::create_dir_all(top.join("d")).expect("made");
    std::fs::write(top.join("f"), "text").expect("written");
    StagedDataset::new(stage, Appeared::default())
}

fn held(path: &str, kind: EntryKind) -> EntryRef {
    let path = RelPath::new(path).expect("a path");
    let entry = Entry { path: path.clone(), kind, meta: Meta::new(0o644, Mtime { secs: 9, nanos: 0 }) };
    EntryRef { id: FileId(0), entry, placed: path }
}

fn file(path: &str) -> EntryRef {
    held(path, EntryKind::File { len: 4, sparse: false, inode: Inode::default() })
}

fn settle(dataset: &StagedDataset, held: &EntryRef, outcome: Outcome) {
    dataset.settled(held, &outcome, &Sums::default(), Preserve::default());
}

#[test]
fn a_dataset_appears_with_the_list_of_what_was_received_and_without_what_was_staged_before() {
    let dir = tempfile::tempdir().expect("scratch");
    let dataset = staged(dir.path());
    std::fs::write(dataset.stage.tree().named().join("tree/d/old"), "of other sources").expect("written");
    settle(&dataset, &held("d", EntryKind::Dir), Outcome::Committed(None));
    settle(&dataset, &file("f"), Outcome::Stands([7; 32]));
    settle(&dataset, &held("d", EntryKind::DirEnd), Outcome::Committed(None));
    // A shelf of an earlier transfer that lies in the source.
    let shelf = unsent::reserved(RelPath::root(), b".longhaul");
    settle(&dataset, &EntryRef { id: FileId(3), placed: shelf.path.clone(), entry: shelf }, Outcome::Unsent);
    dataset.commit(None).expect("committed");
    let there = dir.path().join("run-7");
    assert!(there.join("f").exists() && !there.join("d/old").exists());
    let sealed = Sealed::open(&there.join(".longhaul-manifest")).expect("sealed");
    let items: Vec<Item> = sealed.items().collect::<Result<_, _>>().expect("whole");
    let paths: Vec<&[u8]> = items.iter().map(|item| item.path.as_bytes()).collect();
    assert_eq!(paths, [&b"d"[..], b"f"]);
    assert_eq!(items[1].sums.get(Algorithm::Blake3), Some(&[7; 32][..]));
}

#[test]
fn a_dataset_that_does_not_appear_keeps_the_time_of_its_directory() {
    let dir = tempfile::tempdir().expect("scratch");
    let dataset = staged(dir.path());
    let top = dataset.stage.tree().named().join("tree");
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    std::fs::File::open(&top).and_then(|file| file.set_modified(time)).expect("set");
    settle(&dataset, &file("f"), Outcome::Stands([7; 32]));
    settle(&dataset, &file("gone"), Outcome::Stands([7; 32]));
    assert_eq!(dataset.commit(None).map_err(|fault| fault.code), Err(FaultCode::Incomplete));
    assert_eq!(std::fs::metadata(&top).and_then(|stat| stat.modified()).expect("it stands"), time);
}

#[test]
fn nothing_appears_without_a_file_and_the_code_says_what_is_missing() {
    let fault = |code| Outcome::Failed(Fault::new(code, Blame::Peer, "a fault"));
    let special = |why: &str| held("p", EntryKind::Unsent { failure: None, why: why.to_owned().into() });
    for (outcomes, code) in [
        (vec![(file("g"), fault(FaultCode::Io))], FaultCode::Incomplete),
        (vec![(file("g"), fault(FaultCode::Changed)), (file("h"), fault(FaultCode::Vanished))], FaultCode::Changed),
        (vec![(file("g"), fault(FaultCode::Changed)), (file("h"), fault(FaultCode::Denied))], FaultCode::Incomplete),
        (vec![(file("g"), fault(FaultCode::Io)), (file("h"), fault(FaultCode::Mismatch))], FaultCode::Mismatch),
        (vec![(special("fifo"), Outcome::Unsent)], FaultCode::Incomplete),
    ] {
        let dir = tempfile::tempdir().expect("scratch");
        let dataset = staged(dir.path());
        settle(&dataset, &file("f"), Outcome::Committed(Some([7; 32])));
        outcomes.iter().for_each(|(held, outcome)| settle(&dataset, held, outcome.clone()));
        let fault = dataset.commit(None).expect_err("it is not whole");
        assert_eq!(fault.code, code, "{fault}");
        assert!(fault.message.contains(&*outcomes[0].0.entry.path.escaped().to_string()), "{fault}");
        drop(dataset);
        assert!(!dir.path().join("run-7").exists());
        assert!(std::fs::read_dir(dir.path()).expect("read").count() == 1, "what came is kept");
    }
}

#[test]
fn a_name_that_was_received_and_does_not_stand_keeps_the_dataset_from_appearing() {
    let dir = tempfile::tempdir().expect("scratch");
    let dataset = staged(dir.path());
    for path in ["f", "g"] {
        settle(&dataset, &file(path), Outcome::Committed(Some([7; 32])));
    }
    assert_eq!(dataset.commit(None).expect_err("one is gone").code, FaultCode::Incomplete);
    assert!(!dir.path().join("run-7").exists());
}
