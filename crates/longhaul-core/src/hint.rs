//! The next step after a failure, as data: what is to be done, in groups by what it is about.
//!
//! In: from whoever makes a [`Fault`](crate::Fault). Out: to the program, which says it in words of
//! its own command line, and to the other side as the sentence that `Display` gives. A reader that
//! knows the sentence has the hint again. Knows no option and no command of any program; it may
//! name keys of a daemon's `serve.toml`, as its administrator is asked for those.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::text::PlainText;

/// The next step. A program matches all of them, so that the compiler asks for the words of a new
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hint {
    /// Run it again: at once, later, or in another way.
    Again(Again),
    /// Do something about a name, or about what stands under it.
    Names(Names),
    /// Do something about a disk, a file system or a limit of a host.
    Storage(Storage),
    /// Use other sizes of buffers and chunks.
    Memory(Memory),
    /// Do something about hosts, ports and the network between them.
    Network(Network),
    /// Do something about the daemon, mostly by asking its administrator.
    Daemon(Daemon),
    /// Do something about ssh, or about the program at the host that it leads to.
    Ssh(Ssh),
    /// Use the program in another way, or another build of it.
    Program(Program),
    /// Words of somebody who is no part of the library: of the program that uses it, or of the
    /// other side. [`Fault::author`](crate::Fault::author) says whose they are.
    Words(PlainText),
}

impl Hint {
    /// The hint that somebody gave in words. `None` if there are no words. A sentence of the other
    /// side that is one of ours becomes that hint.
    pub fn words(text: impl fmt::Display) -> Option<Hint> {
        let text = PlainText::of(text);
        if text.is_empty() { None } else { Some(Hint::of_sentence(&text).unwrap_or(Hint::Words(text))) }
    }

    fn of_sentence(text: &str) -> Option<Hint> {
        let groups = [
            Again::of_sentence,
            Names::of_sentence,
            Storage::of_sentence,
            Memory::of_sentence,
            Network::of_sentence,
            Daemon::of_sentence,
            Ssh::of_sentence,
            Program::of_sentence,
        ];
        groups.into_iter().find_map(|read| read(text))
    }
}

/// The sentence that names no option: it crosses hosts, and does for a program without words of its
/// own.
impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::Again(hint) => hint.fmt(f),
            Hint::Names(hint) => hint.fmt(f),
            Hint::Storage(hint) => hint.fmt(f),
            Hint::Memory(hint) => hint.fmt(f),
            Hint::Network(hint) => hint.fmt(f),
            Hint::Daemon(hint) => hint.fmt(f),
            Hint::Ssh(hint) => hint.fmt(f),
            Hint::Program(hint) => hint.fmt(f),
            Hint::Words(words) => words.fmt(f),
        }
    }
}

/// Defines a group of hints from a table of names and sentences. A hint with fields is not known
/// again by its sentence.
macro_rules! hints {
    (
        $(#[$doc:meta])*
        $group:ident
        $($name:ident $({ $($(#[$about:meta])* $field:ident: $type:ty),* })? $sentence:literal,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $group {
            $(#[doc = concat!("`", $sentence, "`")] $name $({ $($(#[$about])* $field: $type),* })?,)*
        }

        impl $group {
            fn of_sentence(text: &str) -> Option<Hint> {
                $(hints!(@known text $group $name $sentence $({ $($field)* })?);)*
                None
            }

            #[cfg(test)]
            fn fixed() -> Vec<(Hint, &'static str)> {
                let all = [$(hints!(@fixed $group $name $sentence $({ $($field)* })?)),*];
                all.into_iter().flatten().collect()
            }
        }

        impl fmt::Display for $group {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($group::$name $({ $($field),* })? => write!(f, $sentence),)*
                }
            }
        }

        impl From<$group> for Hint {
            fn from(hint: $group) -> Hint {
                Hint::$group(hint)
            }
        }
    };
    (@known $text:ident $group:ident $name:ident $sentence:literal) => {
        if $text == $sentence {
            return Some(Hint::$group($group::$name));
        }
    };
    (@known $text:ident $group:ident $name:ident $sentence:literal { $($field:ident)* }) => {};
    (@fixed $group:ident $name:ident $sentence:literal) => {
        Some((Hint::$group($group::$name), $sentence))
    };
    (@fixed $group:ident $name:ident $sentence:literal { $($field:ident)* }) => {
        None
    };
}

hints! {
    /// Running it again: at once, later, or in another way.
    Again
    Now "run the same transfer again",
    Encrypted "run the same transfer again, or with encrypted lanes",
    Undisturbed "run the same transfer again when nobody writes to it",
    WhereItEnded "run the same transfer again: it goes on where this ended",
    FromTheStart "run the same transfer again: it begins anew, as a stream cannot be gone on with",
    WhereItEndedOrIdleLonger
        "run the same transfer again: it goes on where this ended; 'idle' in [limits] of serve.toml is the time",
    AfterItsOwner "wait until that is over, then run the same transfer again: it continues what is left then",
    AfterThatTransfer "wait until that one has ended",
    AtRest "send it again when it is at rest",
    Later "try again later",
    WithHigherFence
        "leave the shard to the mover that has it; whoever is to have it now claims it with a fence above the one that is kept",
    SuspectingHardware
        "run the same transfer again; if it happens again, suspect memory, a network card or a middlebox",
    LookingAtTheOtherHost
        "run the same transfer again; if it happens again, look at the load of the other host and at the path to it",
}

hints! {
    /// Names, and what stands under them.
    Names
    RemoveOrChooseAnother "remove it or choose another destination",
    MoveAside "move what stands there out of the way",
    Replace "it would be replaced if that were asked for",
    AllowReplacing "allow replacing there (and the right 'modify'), or send elsewhere",
    GiveDifferentNames "give the sources different names or send them one after the other",
    RenameOneOfTwo "rename one of the two in the source, or send them to different directories",
    RenameOrLeaveOut "rename one of them, leave one out, or send them to different directories",
    SeeBothTargets "look over the set, which shows both, and remove or rename one of the two",
    SeeWhatStands "see what stands there; rename or remove one of the two, then run the same transfer again",
    SeeWhereItWent "see where it went, then run the same transfer again when nobody moves directories there",
    SendFileItself "leave the slash at its end out to send the file itself; names of a list lie in a directory",
    NameFile "give the destination the name of a file, with no slash at its end",
    NameRealDirectory "links are not followed: name the real directory instead",
    NameOutside "name a destination outside of it, or leave the destination out by a filter",
    NoPattern "a source is a name and no pattern: name each source, or send the directory with a filter",
    LeaveLinksOut "leave links out, or ask the administrator of this root for links = \"keep\" in serve.toml",
    NameFewer "name fewer files or patterns in one run",
    NameDirectories "name directories instead of what lies in them, or run one transfer for each part of the list",
    ListFurtherDown "list a directory further down, or try again later",
}

hints! {
    /// Disks, file systems and limits of a host.
    Storage
    FreeSpace "free space or raise the quota, then run the same transfer again",
    AskForRoom "ask the administrator of the daemon for room, then run the same transfer again: it goes on where this ended",
    FreeInodes "remove files there, or take a file system with more inodes, then run the same transfer again",
    CheckPermissions "check the permissions of it and of the directories above it",
    MountForWriting "mount it for writing",
    SeeKernelLog "look for the device in the kernel's log, then run the same transfer again",
    SuspectDisk "suspect the disk, its controller or its cable: look at the system's log and at its SMART data",
    TakeLargerFiles "send it to a file system that holds files of this length",
    RaiseFileSize
        "raise the limit on the length of files there (ulimit -f, LimitFSIZE= of systemd), then run the same transfer again",
    RaiseOpenFiles
        "raise the limit of open files there (ulimit -n, LimitNOFILE= of systemd) or run fewer transfers at a time, then run the same transfer again",
    RaiseOpenFilesHere "raise the limit of open files (ulimit -n), then run the same transfer again",
    RaiseOpenFilesOfHost
        "raise the limit of open files of that whole host (sysctl fs.file-max) or see who has so many open, then run the same transfer again",
    RaiseProcesses "check the limits on processes and memory",
    UseBuffered "with buffered I/O more file systems will do",
    NameOtherDisks "name directories on different disks, or allow targets on one",
    MountTarget "mount it, or let the set be used without it",
    MountMissing "mount it, then run the same transfer again",
    RemoveClaims "make sure that no mover of the campaign runs, then remove that file and claim its shards again",
    AllowLocks
        "mount it with locks that reach all of its hosts (Lustre: 'flock'; NFS: without 'nolock' and 'local_lock'), or send without a claim",
    ClaimOneDirectory "move the shard to a single directory, or show no claim",
    RemoveOldClaims "remove files of claims of campaigns that are over, once none of their movers runs",
    MountTargetOrTakeNames "mount it, or let new names come all the same",
    RepeatChange "repeat the command that changed the set: it goes on where it was",
    StopUsers "stop the daemon and wait for transfers to end, then run the same command again",
    WaitForChange "wait for it to end, then run the same command again",
    RemoveOldMark "if nothing in it is needed any more, remove the directory .longhaul-set in it",
    DrainFirst "move what it holds to the other targets",
    MakeSet "make a set of its directories first",
    TellNamesApart
        "serve, or write to, a file system that tells these names apart (vfat: mount it without nonumtail)",
}

hints! {
    /// Sizes of buffers and chunks.
    Memory
    Lower "lower the memory for buffers",
    LowerToDefault {
        /// The default, in MiB.
        mebibytes: u64
    } "lower the memory for buffers: the default of {mebibytes}MiB is enough for most paths",
    LowerOrLargerChunks "lower the memory for buffers or raise the chunk size",
    RaiseOrSmallerChunks "raise the memory for buffers or lower the chunk size",
    LowerOrReadNothingBack
        "lower the memory for buffers or the chunk size, or have nothing read back and nothing compared",
    LowerOrListNothing "lower the memory for buffers, or ask for no manifest",
    SmallerChunksOrAsk "use smaller chunks, or ask the daemon's administrator for more 'memory' in [limits]",
}

hints! {
    /// Hosts, ports and the network between them.
    Network
    CheckResolver "check the network and /etc/resolv.conf, or name the daemon by its address",
    CheckSpelling "check its spelling; 'getent hosts NAME' asks the same resolver",
    SeeAddresses "'ip address' shows the addresses that it has",
    OpenTcpPort {
        /// The daemon's port.
        port: u16
    } "check host and port; at the daemon's host, and on the way to it, TCP port {port} must be let in",
    OpenUdpPort {
        /// The daemon's port.
        port: u16
    } "let UDP port {port} in at the daemon's host and on the way to it, or use lanes over TCP",
    LetUdpThrough {
        /// The daemon's port.
        port: u16
    } "a firewall may drop UDP to port {port}: let it through, or use lanes over TCP",
    LetLanesThrough "check that a firewall lets several connections to the port through",
    SuspectOverload "check host and port; if a longhaul daemon listens there, its host may be overloaded",
    StartDaemon "no longhaul daemon listens there, or a firewall refuses: check host and port, and that it runs",
    CheckRoute "the host is down, no route leads to it, or a firewall refuses: check the host and the network",
    CheckHost "check host, port and firewall, and that a longhaul daemon runs there",
    CheckListener "check host and port: something else may listen there",
    SuspectInterception "something between the hosts answers in the daemon's place",
    NameBothEnds "name the local and the remote address of each path",
    LeaveTransportOut "ask for no transport",
    EncryptOrUseTcp "ask for encrypted lanes, or for lanes over TCP",
    UpdateOrUseQuic "have the other side run a build that knows them, or ask for lanes over QUIC",
    UseTcp "ask for lanes over TCP",
    NameHostAndPort "listen takes HOST:PORT, as \"[::]:7214\"; port 0 takes any free one",
    FreePort {
        /// The port that is taken.
        port: u16
    } "another process listens there (ss -lntup 'sport = :{port}' shows which): stop it or choose another port",
    NameOwnAddress "this host has no such address: ip address shows those that it has",
    TakeHigherPort "a port below 1024 needs the capability CAP_NET_BIND_SERVICE: choose another",
}

hints! {
    /// The daemon, mostly by asking its administrator.
    Daemon
    AskForRight "ask the daemon's administrator for it",
    TakeFairShare "take a fair share of the path, or ask the daemon's administrator for 'share' of this client in serve.toml",
    AskForModify "ask for the right 'modify' on this root",
    AskForDelete
        "ask the daemon's administrator to add 'delete' to 'allow' of this root and to the 'roots' of this client in serve.toml",
    AskForModifyOrRemoval "ask for the right 'modify' on this root, or have the file removed",
    AskForRead
        "for a manifest the daemon reads the files that are skipped: leave it out, or ask the daemon's administrator for 'read'",
    AskForBench {
        /// The name of the client in the daemon's configuration.
        client: PlainText
    } "its administrator allows it by the line 'bench = true' in the [[client]] '{client}' of serve.toml, and reloads it",
    AskForLimits "try again later, or ask the daemon's administrator for higher [limits]",
    WaitOrAskForLimits "wait until one of them is over, or ask the daemon's administrator for higher [limits]",
    AskForMemory
        "try again later, name directories instead of what lies in them, or ask the daemon's administrator for more 'memory' in [limits]",
    FinishOrAskForUnfinished
        "finish what is left unfinished there, or ask the daemon's administrator for a higher 'unfinished' or a shorter 'partials' in [limits]",
    AllowDial
        "ask its administrator to name the host in 'dial' of [third_party] in serve.toml, and to start the daemon again",
    SignAnotherGrant "run the same command again, which signs another grant",
    OrderAnew "give the copy again, not by the name of an order: it moves what is missing alone, and says how that ends",
    SendKey "send this key to the daemon's administrator and ask to be let in",
    AskForAuthorisation "ask the daemon's administrator to authorise this key",
    AskAboutNewKey
        "the daemon's key changed or someone stands between; ask its administrator before trusting the new key",
    ListRoots "a list of this daemon's roots names those that this key may see",
    UsePrivate "use encrypted lanes, or ask the daemon's administrator",
    UseSafe "use lanes that are verified and not encrypted, or ask the daemon's administrator",
    Restart "have the daemon restarted, or reload its configuration, once the right directory is there",
    StartAgain "start the daemon again for that, or leave it as it was",
    SeeItsLog "its log says why",
    StayBeneath "paths begin at that directory, and '..' leads nowhere in them",
    ReadInTime "it waits half a minute at most for what it says to be read; its log says more",
}

hints! {
    /// Hosts that ssh leads to, and the program there.
    Ssh
    PutThere "put this version of longhaul there, or name the place where it is",
    AllowRunning "that file system may forbid running programs (noexec), or it is built for another machine",
    LookAtCommand "look at the host's name, at the command that runs ssh, and at ~/.ssh/config",
    TryByHand "see whether 'ssh HOST true' works by hand",
}

hints! {
    /// The program, and builds of it.
    Program
    UseCompatible "both sides must run compatible builds of longhaul; if they do, report this",
    ShareVersion "use builds of longhaul that share a protocol version",
    SameVersion "use builds of one version on both hosts",
    Report "report this",
    PullThenPush "pull, then push",
    StreamAsArchive "send them as an archive",
    UpdateOrTakeShare "have the other side run a build that knows shares of a path, or ask for no polite one",
    UpdateOrCarryLess "have the other side run a build that knows this metadata, or carry less",
    UpdateOrSumLess "have the other side run a build that knows these checksums, or ask for none",
    UpdateOrMoveFiles "have the other side run a build that knows datasets, or have each file appear by itself",
    UpdateOrRemoveThere "have the other side run a build that moves names away, or do it on its host",
    UpdateBothDaemons
        "have both daemons run a build that knows lists in orders, or run the mover on one of their hosts",
    UpdateOrStopThere
        "have the daemon run a build that knows how, or ask its administrator to drain it or to revoke a right",
    UpdateOrShowNoClaim "have the other side run a build that keeps claims, or show none",
    CarryLessInStream "carry only modes and times through a stream",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::limits::PEER_TEXT_BYTES_MAX;

    #[test]
    fn a_hint_without_fields_is_known_again_by_its_sentence() {
        let groups = [Again::fixed(), Names::fixed(), Storage::fixed(), Memory::fixed(), Network::fixed()];
        let all: Vec<_> =
            groups.into_iter().chain([Daemon::fixed(), Ssh::fixed(), Program::fixed()]).flatten().collect();
        let sentences: BTreeSet<_> = all.iter().map(|(_, sentence)| sentence).collect();
        assert_eq!(sentences.len(), all.len(), "two hints have one sentence");
        for (hint, sentence) in &all {
            assert!(sentence.len() <= PEER_TEXT_BYTES_MAX && *PlainText::from(*sentence) == **sentence, "{sentence}");
            assert_eq!(hint.to_string(), *sentence);
            assert_eq!(Hint::words(sentence).as_ref(), Some(hint));
        }
    }

    #[test]
    fn other_words_stay_words_without_deceptive_characters() {
        assert_eq!(Hint::words(""), None);
        assert_eq!(Hint::words("run: rm\n"), Some(Hint::Words(PlainText::from("run: rm\\x0a"))));
        let port = Hint::from(Network::FreePort { port: 7214 });
        assert_eq!(Hint::words(&port), Some(Hint::Words(PlainText::of(&port))));
    }
}
