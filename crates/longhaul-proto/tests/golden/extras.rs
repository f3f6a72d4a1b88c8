//! The messages about metadata beyond modes and times; their bytes stand beside those of all
//! others.

use longhaul_core::{
    AccessList, Account, Extras, FileId, Grant, Grantee, Loss, LossKind, LossReason, Owner, Permissions, SeveralNames,
    Xattr, XattrName,
};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{PageExtras, PageNames, SettledSums};

use super::{path, word};

fn account(id: u32, name: &str) -> Account {
    Account { id: Some(id), name: (!name.is_empty()).then(|| word(name)) }
}

/// The extras of two entries.
pub(crate) fn extras() -> Message {
    let may = |bits| Permissions::try_from(bits).expect("permissions");
    let grant = |to, bits| Grant { to, may: may(bits) };
    let access = AccessList {
        grants: vec![
            grant(Grantee::Owner, 7),
            grant(Grantee::User(account(300, "ann")), 6),
            grant(Grantee::Group, 5),
            grant(Grantee::OtherGroup(Account { id: None, name: Some(word("lab")) }), 4),
            grant(Grantee::Mask, 3),
            grant(Grantee::Others, 0),
        ],
    };
    let name = XattrName::try_from(b"user.a".to_vec()).expect("a name");
    let all = Extras {
        owner: Some(Owner { user: account(0, ""), group: account(301, "lab") }),
        access: Some(access),
        default: Some(AccessList::default()),
        xattrs: vec![Xattr { name, value: vec![0, 0xff] }],
        incomplete: true,
    };
    Message::Extras(PageExtras { entries: vec![(FileId(1), Extras::default()), (FileId(300), all)] })
}

/// Two files with several names: the first name of one, and a further one of the other.
pub(crate) fn names() -> Message {
    let further = SeveralNames { first: Some(path("d/a")), count: 300 };
    let entries = vec![(FileId(1), SeveralNames { first: None, count: 2 }), (FileId(300), further)];
    Message::Names(PageNames { entries })
}

/// The checksums of a file, with their bytes.
pub(crate) fn settled_sums() -> (Message, &'static str) {
    let sums = SettledSums { file: FileId(300), sums: vec![1, 2, 3, 4] };
    (Message::SettledSums(vec![sums]), "090000001601ac020401020304")
}

/// Two files that took the place of others.
pub(crate) fn replaced() -> (Message, &'static str) {
    (Message::Replaced(vec![FileId(1), FileId(300)]), "05000000310201ac02")
}

/// Losses of two kinds.
pub(crate) fn losses() -> Message {
    let loss = |kind, reason, entries, first| Loss { kind, reason, entries, first: path(first) };
    Message::Losses(vec![
        loss(LossKind::Xattrs, LossReason::Unsupported, 1, "a"),
        loss(LossKind::Acls, LossReason::Changed, 300, "d/b"),
    ])
}

/// Kinds and reasons of losses travel by their places in their enums.
#[test]
fn losses_keep_their_places() {
    let at = |kind: u8, reason: u8| match Message::decode(&[36, 1, kind, reason, 1, 1, b'a']) {
        Ok(Message::Losses(losses)) => Some((losses[0].kind.name(), losses[0].reason.name())),
        _ => None,
    };
    let kinds: Vec<_> = (0..).map_while(|kind| Some(at(kind, 0)?.0)).collect();
    let reasons: Vec<_> = (0..).map_while(|reason| Some(at(0, reason)?.1)).collect();
    assert_eq!(kinds, ["xattrs", "owner", "set-id", "acls", "hardlinks", "mode", "times", "checksums"]);
    let want = [
        "unsupported",
        "denied",
        "policy",
        "too-long",
        "system",
        "unknown-account",
        "several-names",
        "changed",
        "striped",
        "too-many",
        "elsewhere",
        "unproven",
        "failed",
        "not-computed",
    ];
    assert_eq!(reasons, want);
}

/// A claim.
pub(super) fn shown_claim() -> Message {
    Message::ShownClaim(longhaul_core::ShardClaim { campaign: [0x11; 16], shard: 300, fence: 2, id: [0x22; 16] })
}

/// The name of a dataset.
pub(super) fn as_dataset() -> Message {
    Message::AsDataset(longhaul_core::DatasetName::new("run-7").expect("a name"))
}

/// Its bytes.
pub(super) const AS_DATASET: &str = "070000002a0572756e2d37";

/// The part of a campaign's dataset that a shard is.
pub(super) fn part_of_shard() -> Message {
    let onto = longhaul_core::RelPath::new("s").expect("a path");
    Message::DatasetPart(longhaul_core::DatasetPart::Shard { onto })
}

/// Its bytes.
pub(super) const PART_OF_SHARD: &str = "0400000036000173";

/// The commit of a campaign's dataset.
pub(super) fn part_that_commits() -> Message {
    Message::DatasetPart(longhaul_core::DatasetPart::Commit)
}

/// Its bytes.
pub(super) const PART_THAT_COMMITS: &str = "020000003601";

/// The bytes of a claim that is shown.
pub(super) const SHOWN_CLAIM: &str = "240000002911111111111111111111111111111111ac020222222222222222222222222222222222";
