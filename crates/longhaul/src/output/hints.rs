//! Hints in words of the command line.
//!
//! In: a [`Hint`] of the library, which names no option. Out: the sentence that a user of this
//! program reads. A hint whose sentence names no option and no command is said as the library says
//! it. Knows no faults.

use std::borrow::Cow;

use longhaul_core::hint::{Again, Daemon, Hint, Memory, Names, Network, Program, Ssh, Storage};

/// The hint as a sentence for a user of the command line.
pub(super) fn sentence(hint: &Hint) -> Cow<'_, str> {
    match hint {
        Hint::Again(hint) => again(hint).into(),
        Hint::Names(hint) => names(hint),
        Hint::Storage(hint) => storage(hint),
        Hint::Memory(hint) => memory(hint),
        Hint::Network(hint) => network(hint),
        Hint::Daemon(hint) => daemon(hint),
        Hint::Ssh(Ssh::PutThere) => {
            "--install puts this one there; --remote-longhaul PATH says where it is; or have it installed there".into()
        }
        Hint::Ssh(hint) => hint.to_string().into(),
        Hint::Program(
            hint @ (Program::SameVersion
            | Program::UseCompatible
            | Program::ShareVersion
            | Program::Report
            | Program::PullThenPush),
        ) => hint.to_string().into(),
        Hint::Program(Program::UpdateOrCarryLess) => {
            "have the other side run a build that knows it, or leave it out of --preserve".into()
        }
        Hint::Program(Program::UpdateOrSumLess) => {
            "have the other side run a build that knows them, or leave them out of --extra-checksum".into()
        }
        Hint::Program(Program::UpdateOrTakeShare) => {
            "have the other side run a build that knows --share, or use --share fair".into()
        }
        Hint::Program(Program::UpdateOrMoveFiles) => {
            "have the other side run a build that knows datasets, or leave --as-dataset out".into()
        }
        Hint::Program(Program::UpdateOrRemoveThere) => {
            "have the other side run a build that moves names away, or run this command on its host, with its directory as DEST"
                .into()
        }
        Hint::Program(Program::UpdateBothDaemons) => {
            "have both daemons run a build that knows lists in orders, or run 'longhaul job run' on one of their hosts, in \
             a campaign with its directory as SOURCE or DEST"
                .into()
        }
        Hint::Program(Program::UpdateOrStopThere) => {
            "have the daemon run a build that knows how, or ask its administrator for 'longhaul admin drain' or 'revoke'"
                .into()
        }
        Hint::Program(Program::UpdateOrShowNoClaim) => {
            "have the other side run a build that keeps claims, or leave --claim out".into()
        }
        Hint::Program(Program::CarryLessInStream) => "leave it out of --preserve".into(),
        Hint::Program(Program::StreamAsArchive) => "give --tar, which sends them as an archive".into(),
        Hint::Words(words) => words.as_str().into(),
    }
}

fn again(hint: &Again) -> &'static str {
    match hint {
        Again::Now => "run the same command again",
        Again::Encrypted => "run the same command again, or with --protect private",
        Again::Undisturbed => "run the same command again when nobody writes to it",
        Again::WhereItEnded => "run the same command again: it goes on where this ended",
        Again::FromTheStart => "run the same command again: it begins anew, as a stream cannot be gone on with",
        Again::WhereItEndedOrIdleLonger => {
            "run the same command again: it goes on where this ended; 'idle' in [limits] of serve.toml is the time"
        }
        Again::AfterItsOwner => {
            "wait until that is over, then run the same command again: it continues what is left then"
        }
        Again::AfterThatTransfer => "wait until that one has ended",
        Again::AtRest => "send it again when it is at rest",
        Again::Later => "try again later",
        Again::WithHigherFence => {
            "leave the shard to the mover that has it; whoever is to have it now gives --claim a fence above the one that is kept"
        }
        Again::SuspectingHardware => {
            "run the same command again; if it happens again, suspect memory, a network card or a middlebox"
        }
        Again::LookingAtTheOtherHost => {
            "run the same command again; if it happens again, look at the load of the other host and at the path to it"
        }
    }
}

fn names(hint: &Names) -> Cow<'static, str> {
    let words = match hint {
        Names::Replace => "--if-exists replace would replace it",
        Names::AllowReplacing => "allow replacing there (not --if-exists fail; the right 'modify'), or send elsewhere",
        Names::SeeWhatStands => {
            "see what stands there; rename or remove one of the two, then run the same command again"
        }
        Names::SeeWhereItWent => {
            "see where it went, then run the same command again when nobody moves directories there"
        }
        Names::SeeBothTargets => "'longhaul set check' shows both: remove or rename one of the two",
        Names::NameOutside => "name a destination outside of it, or leave the destination out with --exclude",
        Names::NoPattern => {
            "a source is a name and no pattern: leave the quotes out so that the shell expands it here; at a daemon, send the \
             directory with --include PATTERN --exclude '*'"
        }
        Names::LeaveLinksOut => {
            "leave links out (--preserve -links), or ask the administrator of this root for links = \"keep\" in serve.toml"
        }
        Names::NameDirectories => {
            "name directories instead of what lies in them, run one command for each part of the list, or plan a campaign: \
             longhaul job add"
        }
        Names::RemoveOrChooseAnother
        | Names::MoveAside
        | Names::GiveDifferentNames
        | Names::RenameOneOfTwo
        | Names::RenameOrLeaveOut
        | Names::SendFileItself
        | Names::NameFile
        | Names::NameRealDirectory
        | Names::NameFewer
        | Names::ListFurtherDown => return hint.to_string().into(),
    };
    words.into()
}

fn storage(hint: &Storage) -> Cow<'static, str> {
    let words = match hint {
        Storage::FreeSpace => "free space or raise the quota, then run the same command again",
        Storage::AskForRoom => {
            "ask the administrator of the daemon for room (stored, files, reserve in serve.toml), then run the same command \
             again: it goes on where this ended"
        }
        Storage::FreeInodes => {
            "remove files there, or take a file system with more inodes, then run the same command again"
        }
        Storage::SeeKernelLog => "look for the device in the kernel's log, then run the same command again",
        Storage::RaiseFileSize => {
            "raise the limit on the length of files there (ulimit -f, LimitFSIZE= of systemd), then run the same command again"
        }
        Storage::RaiseOpenFiles => {
            "raise the limit of open files there (ulimit -n, LimitNOFILE= of systemd) or run fewer transfers at a time, then \
             run the same command again"
        }
        Storage::RaiseOpenFilesHere => "raise the limit of open files (ulimit -n), then run the same command again",
        Storage::RaiseOpenFilesOfHost => {
            "raise the limit of open files of that whole host (sysctl fs.file-max) or see who has so many open, then run the \
             same command again"
        }
        Storage::NameOtherDisks => {
            "name directories on different disks, or allow it: --allow-same-device, or allow_same_device = true in serve.toml"
        }
        Storage::MountMissing => "mount it, then run the same command again",
        Storage::AllowLocks => {
            "mount it with locks that reach all of its hosts (Lustre: 'flock'; NFS: without 'nolock' and 'local_lock'), or leave \
             --claim out"
        }
        Storage::ClaimOneDirectory => "move the shard to a single directory, or leave --claim out",
        Storage::MountTarget => "mount it, or use the set without it: --on-missing, or on_missing in serve.toml",
        Storage::MountTargetOrTakeNames => {
            "mount it, or let new names come all the same: --on-missing continue, or on_missing = \"continue\" in serve.toml"
        }
        Storage::DrainFirst => "'longhaul set rebalance --drain' moves what it holds to the other targets",
        Storage::MakeSet => "'longhaul set init DIR DIR...' makes a set",
        Storage::UseBuffered => "with --io buffered more file systems will do",
        Storage::CheckPermissions
        | Storage::MountForWriting
        | Storage::SuspectDisk
        | Storage::TakeLargerFiles
        | Storage::RaiseProcesses
        | Storage::RepeatChange
        | Storage::RemoveClaims
        | Storage::RemoveOldClaims
        | Storage::StopUsers
        | Storage::WaitForChange
        | Storage::RemoveOldMark
        | Storage::TellNamesApart => return hint.to_string().into(),
    };
    words.into()
}

fn memory(hint: &Memory) -> Cow<'static, str> {
    let words = match hint {
        Memory::Lower => "lower --memory",
        Memory::LowerToDefault { mebibytes } => {
            return format!("lower --memory: the default of {mebibytes}MiB is enough for most paths").into();
        }
        Memory::LowerOrLargerChunks => "lower --memory or raise --chunk-size",
        Memory::RaiseOrSmallerChunks => "raise --memory or lower --chunk-size",
        Memory::LowerOrReadNothingBack => {
            "lower --memory or --chunk-size, or leave --verify disk and --if-exists verify out"
        }
        Memory::LowerOrListNothing => "lower --memory, or leave --manifest out",
        Memory::SmallerChunksOrAsk => {
            "use a smaller --chunk-size, or ask the daemon's administrator for more 'memory' in [limits]"
        }
    };
    words.into()
}

fn network(hint: &Network) -> Cow<'static, str> {
    let words = match hint {
        Network::OpenUdpPort { port } => {
            return format!("let UDP port {port} in at the daemon's host and on the way to it, or use --transport tcp")
                .into();
        }
        Network::LetUdpThrough { port } => {
            return format!("a firewall may drop UDP to port {port}: let it through, or use --transport tcp").into();
        }
        Network::NameBothEnds => "write --path LOCAL=REMOTE for each path",
        Network::LeaveTransportOut => "leave --transport out",
        Network::EncryptOrUseTcp => "leave --protect safe out, or use --transport tcp",
        Network::UpdateOrUseQuic => "install this version on the other side, or use --transport quic",
        Network::UseTcp => "use --transport tcp",
        Network::CheckResolver
        | Network::CheckSpelling
        | Network::SeeAddresses
        | Network::OpenTcpPort { .. }
        | Network::LetLanesThrough
        | Network::SuspectOverload
        | Network::StartDaemon
        | Network::CheckRoute
        | Network::CheckHost
        | Network::CheckListener
        | Network::SuspectInterception
        | Network::NameHostAndPort
        | Network::FreePort { .. }
        | Network::NameOwnAddress
        | Network::TakeHigherPort => return hint.to_string().into(),
    };
    words.into()
}

fn daemon(hint: &Daemon) -> Cow<'static, str> {
    let words = match hint {
        Daemon::AskForRead => {
            "for --manifest the daemon reads the files that are skipped: leave it out, or ask the daemon's administrator for \
             'read'"
        }
        Daemon::FinishOrAskForUnfinished => {
            "run their commands again ('longhaul ls --partials' lists what is left), or ask the daemon's administrator for a \
             higher 'unfinished' or a shorter 'partials' in [limits]"
        }
        Daemon::SendKey => {
            "send this key (longhaul key show prints it) to the daemon's administrator and ask to be let in"
        }
        Daemon::AskForAuthorisation => "ask the daemon's administrator to authorise this key: longhaul key show",
        Daemon::ListRoots => "'longhaul ls' of this daemon, without a root, lists those that this key may see",
        Daemon::UsePrivate => "use --protect private, or ask the daemon's administrator",
        Daemon::UseSafe => "use --protect safe, or ask the daemon's administrator",
        Daemon::TakeFairShare => {
            "use --share fair, or ask the daemon's administrator for share = \"all\" at this client in serve.toml"
        }
        Daemon::AllowDial
        | Daemon::SignAnotherGrant
        | Daemon::OrderAnew
        | Daemon::AskForRight
        | Daemon::AskForModify
        | Daemon::AskForDelete
        | Daemon::AskForModifyOrRemoval
        | Daemon::AskForBench { .. }
        | Daemon::AskForLimits
        | Daemon::WaitOrAskForLimits
        | Daemon::AskForMemory
        | Daemon::AskAboutNewKey
        | Daemon::Restart
        | Daemon::StartAgain
        | Daemon::SeeItsLog
        | Daemon::StayBeneath
        | Daemon::ReadInTime => return hint.to_string().into(),
    };
    words.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_options_of_this_program_and_its_own_sentence_names_none() {
        for (hint, words) in [
            (Hint::from(Again::Encrypted), "--protect private"),
            (Names::Replace.into(), "--if-exists replace"),
            (Storage::UseBuffered.into(), "--io buffered"),
            (Memory::LowerToDefault { mebibytes: 64 }.into(), "--memory: the default of 64MiB"),
            (Network::LetUdpThrough { port: 7214 }.into(), "port 7214: let it through, or use --transport tcp"),
            (Daemon::FinishOrAskForUnfinished.into(), "longhaul ls --partials"),
        ] {
            assert!(sentence(&hint).contains(words), "{hint:?}");
            assert!(!hint.to_string().contains("--"), "{hint}");
        }
    }

    #[test]
    fn a_sentence_of_a_daemon_of_this_version_is_read_in_words_of_the_command_line() {
        let heard = Hint::words(Hint::from(Daemon::UsePrivate)).unwrap();
        assert_eq!(sentence(&heard), "use --protect private, or ask the daemon's administrator");
        let other = Hint::words("look at /etc/motd").unwrap();
        assert_eq!(sentence(&other), "look at /etc/motd");
    }
}
