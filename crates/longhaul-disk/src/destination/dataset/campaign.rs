//! The dataset of a campaign: several sessions stage it at a time, one for each shard, and one more
//! has it appear.
//!
//! In: the part that a session brings. Out: the name of its holder, which is the campaign's own;
//! and the note in a dataset that has appeared, by which the campaign knows it again. Must not know
//! the queue, nor claims.

use longhaul_core::limits::DATASET_MANIFEST_NAME;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread};

use super::DatasetOrder;
use crate::shelf::stager_of;
use crate::walk::Dir;

/// The random name of a campaign.
pub(super) type CampaignName = [u8; 16];

/// The mark of a campaign's dataset that has appeared: a digest of the campaign and of the
/// principal that staged it. Nobody else makes one that a mover of the campaign takes for its own.
pub(super) type CampaignMark = [u8; 32];

/// The part of a dataset that a session stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StagePart {
    /// All of it, in one transfer.
    #[default]
    All,
    /// A shard of this campaign. Other sessions stage others of it meanwhile.
    Shard(CampaignName),
    /// The last look at what was staged of this campaign. Nobody stages meanwhile.
    Commit(CampaignName),
}

impl StagePart {
    /// The campaign. `None`: the dataset is that of one transfer.
    pub(super) fn campaign(self) -> Option<CampaignName> {
        match self {
            StagePart::All => None,
            StagePart::Shard(campaign) | StagePart::Commit(campaign) => Some(campaign),
        }
    }

    /// Whether others stage beside it.
    pub(super) fn is_of_shard(self) -> bool {
        matches!(self, StagePart::Shard(_))
    }
}

impl DatasetOrder<'_> {
    /// The name of whoever goes on with what was staged: the principal, and the campaign of it.
    pub fn stager(&self) -> String {
        match self.part.campaign() {
            None => self.principal.to_owned(),
            Some(campaign) => stager_of(self.principal, &hex(campaign)),
        }
    }

    /// The mark that the dataset shall have. `None`: it is that of one transfer.
    pub(super) fn mark(&self) -> Option<CampaignMark> {
        self.part.campaign()?;
        Some(blake3::derive_key("longhaul 1 mark of a campaign's dataset", self.stager().as_bytes()))
    }
}

/// Notes the mark of a campaign in the directory of a sealed manifest, in a dataset that is about
/// to appear.
pub(super) fn note(top: &Dir, mark: CampaignMark) -> Result<(), Errno> {
    let manifest = openat(top, DATASET_MANIFEST_NAME, DIRECTORY, Mode::empty())?;
    let kernel = top.kernel();
    let file = kernel.create(&manifest, NOTE, OFlags::WRONLY, Mode::from_raw_mode(0o644))?;
    let text = blake3::Hash::from_bytes(mark).to_hex();
    match kernel.pwrite(&file, text.as_bytes(), 0)? {
        written if written < text.len() => Err(Errno::NOSPC),
        _ => kernel.fsync(&file),
    }
}

/// The mark that is noted in the dataset of a name. `None` if nothing is noted, or something
/// else has the name.
pub(super) fn noted(parent: &Dir, name: &[u8]) -> Result<Option<CampaignMark>, Errno> {
    match read_note(parent, name) {
        Ok(text) => Ok(parse(&text)),
        // Whoever may not look into it has not made it.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_note(parent: &Dir, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let dataset = openat(parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let manifest = openat(&dataset, DATASET_MANIFEST_NAME, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&manifest, NOTE, flags, Mode::empty())?;
    let mut text = vec![0; 2 * size_of::<CampaignMark>() + 1];
    // Of anything but a file nothing is read: it is no note of ours.
    let read = pread(&file, &mut text, 0).unwrap_or(0);
    text.truncate(read);
    Ok(text)
}

fn parse(text: &[u8]) -> Option<CampaignMark> {
    let mark = blake3::Hash::from_hex(text).ok()?;
    (mark.to_hex().as_bytes() == text).then_some(*mark.as_bytes())
}

fn hex(campaign: CampaignName) -> String {
    format!("{:032x}", u128::from_be_bytes(campaign))
}

/// The way to open a directory of ours, never by a link.
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The file in the directory of a manifest that names the campaign.
const NOTE: &[u8] = b"campaign";

#[cfg(test)]
mod tests {
    use longhaul_core::{DatasetName, RelPath};

    use super::*;
    use crate::kernel::Replace;
    use crate::shelf::StageNote;

    #[test]
    fn a_stager_is_a_principal_with_its_campaign_and_a_note_comes_back() {
        let name = DatasetName::new("run-7").expect("a name");
        let order = |part| DatasetOrder { name: &name, principal: "key:a", replace: Replace::Never, part };
        assert_eq!(order(StagePart::All).stager(), "key:a");
        let stager = order(StagePart::Shard([1; 16])).stager();
        assert_eq!(stager, order(StagePart::Commit([1; 16])).stager());
        let note = |principal: &str| StageNote { place: RelPath::root(), principal: principal.to_owned() };
        assert_eq!((note(&stager).owner(), note("key:a").owner()), ("key:a", "key:a"));
        assert_eq!(parse("ab".repeat(32).as_bytes()), Some([0xab; 32]));
        for text in ["", "+1", "ab", &"AB".repeat(32), &"ab".repeat(33)] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        let mark = order(StagePart::Commit([1; 16])).mark();
        assert!(mark.is_some() && mark == order(StagePart::Shard([1; 16])).mark());
        assert_ne!(mark, order(StagePart::Shard([2; 16])).mark());
        let other = DatasetOrder { principal: "key:b", ..order(StagePart::Shard([1; 16])) };
        assert_ne!(mark, other.mark(), "another key cannot make it");
        assert_eq!(order(StagePart::All).mark(), None);
    }

    #[test]
    fn two_principals_are_rivals_for_one_dataset_of_one_campaign() {
        let note =
            |place: &str, principal: String| StageNote { place: RelPath::new(place).expect("a path"), principal };
        let of = |owner: &str, campaign: u8| stager_of(owner, &hex([campaign; 16]));
        let one = note("d/run-7", of("key:a", 1));
        assert!(one.is_of_campaign() && one.has_rival(&note("d/run-7", of("key:b", 1))));
        for other in [
            note("d/run-7", of("key:a", 1)),
            note("d/run-7", of("key:b", 2)),
            note("d/run-8", of("key:b", 1)),
            note("d/run-7", "key:b".to_owned()),
        ] {
            assert!(!one.has_rival(&other) && !other.has_rival(&one), "{other:?}");
        }
        let plain = |owner: &str| note("d/run-7", owner.to_owned());
        assert!(!plain("key:a").is_of_campaign() && !plain("key:a").has_rival(&plain("key:b")));
    }
}
