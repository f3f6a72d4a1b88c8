//! Describes the faults of a run: which calls fail, when the power goes, which sectors cannot be
//! written, the type of file system, and the planted bug.
//!
//! In: a random generator. Out: plain data, which `model` plays. It knows no medium.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::io::Errno;

use super::rng::Rng;

/// The faults of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The power goes at this call, counted from 1.
    pub(crate) cut_at: Option<u64>,
    /// The call, counted from 1, at which `failure` happens.
    pub(crate) fail_at: Option<u64>,
    /// How that call fails.
    pub(crate) failure: Failure,
    /// Whether syncs after the first rename fail, other than those of data.
    pub(crate) fail_behind_rename: bool,
    /// The number of files, of a thousand that are made, that have a bad sector.
    pub(crate) bad_files: u64,
    /// The number of journals, of a thousand that are made, that have a bad sector.
    pub(crate) bad_journals: u64,
    /// The number of calls, of a thousand, before which something dirty is written back.
    pub(crate) background: u64,
    /// The number of renames after which another program takes the name that the next one is to
    /// give, if it is free.
    pub(crate) intruder_in: Option<u64>,
    /// The power goes when the journal is to be synced for this time, counted from 1.
    pub(crate) cut_at_journal_sync: Option<u64>,
    /// A change of a source file while it is sent.
    pub(crate) alteration: Option<Alteration>,
    /// A planted bug of longhaul's.
    pub(crate) mutant: Option<Mutant>,
}

/// A change of one byte of a file in place, with its time set back.
#[derive(Clone, Debug)]
pub(crate) struct Alteration {
    /// Before this write, counted from 1.
    pub(crate) at_write: u64,
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Failure {
    #[default]
    None,
    /// With this error, once.
    Once(Errno),
    /// With this error, as do all later calls.
    FromThen(Errno),
    /// The next write writes half of its bytes.
    Short,
}

/// The properties of a file system, for as long as a world lasts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nature {
    pub(crate) syncfs: SyncFs,
    /// Whether a sync of a file makes its names durable.
    pub(crate) sync_covers_names: bool,
    /// Whether a write that is lost makes the file as long as if it were there.
    pub(crate) lost_extends: bool,
}

/// The behaviour of `syncfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SyncFs {
    /// It writes back and reports errors, as on ext4.
    #[default]
    Whole,
    /// It does nothing and reports success, as on a file system in user space.
    Nothing,
    /// It writes back and never reports an error, as on overlayfs.
    Mute,
}

/// A bug, planted into the calls that the disk's crate makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Directories are not synced.
    DirsNotSynced,
    /// `fdatasync` of a temporary is left out.
    DataNotSynced,
    /// The journal is not synced.
    JournalNotSynced,
    /// Files are renamed without a sync.
    NoBarrier,
    /// The bytes between a partial's new version and its first write are not synced.
    RevisionNotSynced,
    /// A journal that is taken over is not written again.
    NotReasserted,
    /// A rename replaces a name that it must not replace.
    ReplacesAnyway,
    /// The error of a sync of a temporary's data is ignored.
    SyncErrorIgnored,
    /// The error of a sync of a whole file system is ignored.
    FileSystemErrorIgnored,
    /// A file system whose `syncfs` does nothing is taken for one where it writes back.
    FileSystemMistaken,
    /// Only directories that this run changed are synced.
    StandingNotSynced,
}

impl Alteration {
    /// Changes the byte.
    pub(crate) fn make(&self) {
        let file = std::fs::File::options().read(true).write(true).open(&self.file).expect("the source is opened");
        let before = file.metadata().and_then(|stat| stat.modified()).expect("a time");
        let mut byte = [0];
        file.read_exact_at(&mut byte, self.offset).expect("read");
        file.write_all_at(&[!byte[0]], self.offset).expect("written");
        file.set_modified(before).expect("its time is set back");
    }
}

impl SyncFs {
    /// The number that `statfs` gives for such a file system.
    pub(crate) fn magic(self) -> u64 {
        match self {
            SyncFs::Whole => 0xef53,
            SyncFs::Nothing => 0x6573_5546,
            SyncFs::Mute => 0x794c_7630,
        }
    }
}

impl Nature {
    pub(crate) fn random(rng: &mut Rng) -> Nature {
        Nature {
            syncfs: rng.pick(&[SyncFs::Whole, SyncFs::Whole, SyncFs::Whole, SyncFs::Nothing, SyncFs::Mute]),
            sync_covers_names: rng.permille(500),
            lost_extends: rng.permille(700),
        }
    }
}

/// The theme of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// Anything.
    Any,
    /// Sources change between runs that are cut.
    Revisions,
    /// Journals differ from what the cache shows, and then the power goes.
    Journals,
    /// Sectors cannot be written, and groups of chunks are small.
    Sectors,
    /// Names stand that are not durable.
    Standing,
    /// Another program puts files there.
    Intruders,
}

impl Theme {
    pub(crate) fn random(rng: &mut Rng) -> Theme {
        let themes = [Theme::Revisions, Theme::Journals, Theme::Sectors, Theme::Standing];
        if rng.permille(600) { Theme::Any } else { rng.pick(&themes) }
    }

    /// The theme in which a planted bug shows.
    pub(crate) fn of(mutant: Mutant) -> Theme {
        match mutant {
            Mutant::RevisionNotSynced => Theme::Revisions,
            Mutant::NotReasserted => Theme::Journals,
            Mutant::SyncErrorIgnored | Mutant::FileSystemErrorIgnored => Theme::Sectors,
            Mutant::StandingNotSynced => Theme::Standing,
            Mutant::ReplacesAnyway => Theme::Intruders,
            _ => Theme::Any,
        }
    }

    /// The faults of a world's run of this number, counted from 0, which makes about `calls` calls
    /// if none goes wrong.
    pub(crate) fn faults(self, rng: &mut Rng, run: u64, calls: u64) -> Faults {
        let at = Some(1 + rng.below(calls.max(2)));
        match self {
            Theme::Any => Faults::random(rng, calls),
            Theme::Revisions => Faults { cut_at: at, ..Faults::default() },
            Theme::Journals if run == 0 => Faults { bad_journals: 1000, background: 50, ..Faults::default() },
            Theme::Journals => Faults { cut_at: at, ..Faults::default() },
            Theme::Sectors => Faults { bad_files: 300, background: 20, ..Faults::default() },
            Theme::Standing if run == 0 => Faults { fail_behind_rename: true, ..Faults::default() },
            Theme::Standing => Faults::default(),
            Theme::Intruders => Faults { intruder_in: Some(rng.below(6)), ..Faults::default() },
        }
    }
}

impl Faults {
    /// Some faults, in a run that makes about `calls` calls if none goes wrong.
    pub(crate) fn random(rng: &mut Rng, calls: u64) -> Faults {
        let at = 1 + rng.below(calls.max(2));
        let errno = rng.pick(&[Errno::IO, Errno::IO, Errno::NOSPC, Errno::ACCESS, Errno::STALE, Errno::INTR]);
        let mut faults = Faults { background: rng.pick(&[0, 20, 100]), ..Faults::default() };
        match rng.below(12) {
            0..=3 => faults.cut_at = Some(at),
            4..=6 => {
                faults.fail_at = Some(at);
                let lasting = rng.pick(&[Errno::IO, Errno::NOSPC]);
                faults.failure =
                    rng.pick(&[Failure::Once(errno), Failure::Once(errno), Failure::FromThen(lasting), Failure::Short]);
            }
            7..=9 => (faults.bad_files, faults.bad_journals) = (rng.pick(&[30, 100, 400]), rng.pick(&[0, 0, 400])),
            10 => {
                (faults.bad_files, faults.bad_journals) = (100, 300);
                faults.cut_at = Some(at);
            }
            _ => faults.intruder_in = Some(rng.below(6)),
        }
        faults
    }
}
