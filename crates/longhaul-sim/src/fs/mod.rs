//! The receiver's file system: the state that programs see, the state of its medium, and the
//! changes between them.
//!
//! Takes operations, which begin and end apart from each other; gives their results, and after a
//! crash one of the states that the missing syncs allow (`crash`). Every change is volatile when
//! its operation ends, and durable when a sync of its file or directory succeeds that began after
//! that. Knows nothing of chunks, journals or sessions.

mod crash;
mod view;

use std::collections::BTreeMap;

use longhaul_core::{FaultCode, Mtime};
use longhaul_proto::receiver::Replace;

pub(crate) use crash::Survival;
use view::{Change, ancestors_stand};
pub(crate) use view::{Ino, Node, View, parent};

/// An operation that a program asks for.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Makes a directory, unless it stands.
    MakeDir(String),
    /// Makes a file under a new name.
    MakeFile(String, Ino),
    MakeLink(String, Vec<u8>),
    /// Gives a file another name.
    Name {
        file: String,
        name: String,
    },
    Write {
        ino: Ino,
        offset: usize,
        bytes: Vec<u8>,
    },
    SetLen(Ino, usize),
    SetTime(Ino, Mtime),
    SyncFile(Ino),
    SyncDir(String),
    /// Gives a file another name, a taken one only if it may be replaced.
    Rename {
        from: String,
        to: String,
        replace: Replace,
    },
    Unlink(String),
    /// Removes a directory if it is empty.
    RemoveDir(String),
}

/// The reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    Io,
    NoSpace,
    Exists,
    Missing,
    NotEmpty,
    /// Any other reason, as the machines get it.
    Other(FaultCode),
}

/// An operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

/// The file system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fs {
    cached: View,
    medium: View,
    /// Changes that no sync has made durable, by their number, in the order in which programs saw
    /// them.
    log: BTreeMap<u64, Change>,
    under_way: BTreeMap<OpId, (u64, Op)>,
    next: u64,
}

impl Fs {
    /// The state that programs see.
    pub(crate) fn cached(&self) -> &View {
        &self.cached
    }

    /// The state that a crash would leave now if nothing volatile survived.
    pub(crate) fn medium(&self) -> &View {
        &self.medium
    }

    /// A number for a file to be made.
    pub(crate) fn new_ino(&mut self) -> Ino {
        Ino(self.number())
    }

    /// Puts a file there, durably, as it stood before everything.
    pub(crate) fn put(&mut self, path: &str, bytes: &[u8], time: Mtime) {
        let ino = self.new_ino();
        for change in [
            Change::Set { path: path.to_owned(), node: Node::File(ino) },
            Change::Write { ino, offset: 0, bytes: bytes.to_vec() },
            Change::Time { ino, time },
        ] {
            self.cached.apply(&change);
            self.medium.apply(&change);
        }
    }

    /// Puts a node there that is no file, durably, as it stood before everything. False if its
    /// directory does not stand.
    pub(crate) fn put_node(&mut self, path: &str, node: Node) -> bool {
        let stands = ancestors_stand(&self.cached.names, path);
        let change = Change::Set { path: path.to_owned(), node };
        for view in [&mut self.cached, &mut self.medium].into_iter().filter(|_| stands) {
            view.apply(&change);
        }
        stands
    }

    /// Lets the directories above a path stand. False if something else stands in their place.
    pub(crate) fn put_dirs_above(&mut self, path: &str) -> bool {
        let dir = parent(path).to_owned();
        match self.cached.names.get(&dir) {
            _ if dir.is_empty() => true,
            None => self.put_dirs_above(&dir) && self.put_node(&dir, Node::Dir),
            Some(node) => *node == Node::Dir,
        }
    }

    /// Lets the medium alone change a byte of a file.
    pub(crate) fn spoil(&mut self, ino: Ino, offset: usize) {
        if let Some(byte) = self.medium.content(ino).bytes.get(offset) {
            self.medium.apply(&Change::Write { ino, offset, bytes: vec![byte ^ 1] });
        }
    }

    /// Lets another program write to a file, durably.
    pub(crate) fn scribble(&mut self, ino: Ino) {
        let Some(byte) = self.cached.content(ino).bytes.first().copied() else { return };
        let change = Change::Write { ino, offset: 0, bytes: vec![byte ^ 0xff] };
        self.cached.apply(&change);
        self.medium.apply(&change);
    }

    /// Puts other bytes into a file, durably, and again when what was written before is synced.
    pub(crate) fn overwrite(&mut self, ino: Ino, offset: usize, bytes: Vec<u8>) {
        let change = Change::Write { ino, offset, bytes };
        self.medium.apply(&change);
        self.see(change);
    }

    /// Cuts a file, as programs see it from now on.
    pub(crate) fn cut(&mut self, ino: Ino, len: usize) {
        self.see(Change::Len { ino, len });
    }

    /// Begins an operation.
    pub(crate) fn begin(&mut self, op: Op) -> OpId {
        let number = self.number();
        self.under_way.insert(OpId(number), (number, op));
        OpId(number)
    }

    /// An operation under way. `None` if its host or its program has died since it began.
    pub(crate) fn op(&self, id: OpId) -> Option<&Op> {
        self.under_way.get(&id).map(|(_, op)| op)
    }

    /// Whether anything that was written to the file is not durable, or on its way.
    pub(crate) fn is_unsettled(&self, ino: Ino) -> bool {
        self.log.values().any(|change| change.ino() == Some(ino)) || self.is_being_written(ino)
    }

    /// Whether a write of the file is under way.
    pub(crate) fn is_being_written(&self, ino: Ino) -> bool {
        let of = |op: &Op| matches!(op, Op::Write { ino: of, .. } | Op::SetLen(of, _) if *of == ino);
        self.under_way.values().any(|(_, op)| of(op))
    }

    /// Whether the name and all directories above it are durable.
    pub(crate) fn is_name_durable(&self, path: &str) -> bool {
        self.medium.names.contains_key(path) && ancestors_stand(&self.medium.names, path)
    }

    /// Ends an operation, well if the file system can do it.
    pub(crate) fn end(&mut self, id: OpId) -> Result<(), Errno> {
        let Some((begun, op)) = self.under_way.remove(&id) else { return Err(Errno::Io) };
        match &op {
            Op::SyncFile(ino) => self.make_durable(begun, |change| change.ino() == Some(*ino)),
            Op::SyncDir(dir) => self.make_durable(begun, |change| change.dir() == Some(dir)),
            op => {
                if let Some(change) = self.change_of(op)? {
                    self.see(change);
                }
            }
        }
        Ok(())
    }

    /// Ends a write well, of whose first byte the medium will keep another value.
    pub(crate) fn end_spoilt(&mut self, id: OpId) -> Result<(), Errno> {
        let result = self.end(id);
        if let Some(mut last) = self.log.last_entry()
            && let Change::Write { bytes, .. } = last.get_mut()
            && let Some(byte) = bytes.first_mut()
        {
            *byte ^= 1;
        }
        result
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A change that programs see from now on.
    fn see(&mut self, change: Change) {
        self.cached.apply(&change);
        let number = self.number();
        self.log.insert(number, change);
    }

    fn make_durable(&mut self, begun: u64, covers: impl Fn(&Change) -> bool) {
        let covered: Vec<u64> = self.log.range(..begun).filter(|(_, c)| covers(c)).map(|(number, _)| *number).collect();
        for number in covered {
            if let Some(change) = self.log.remove(&number) {
                self.medium.apply(&change);
            }
        }
    }

    /// The change that an operation makes. `None` if it makes none.
    fn change_of(&self, op: &Op) -> Result<Option<Change>, Errno> {
        let names = &self.cached.names;
        let may_stand = |path: &str| if ancestors_stand(names, path) { Ok(()) } else { Err(Errno::Missing) };
        Ok(Some(match op {
            Op::MakeDir(path) => {
                may_stand(path)?;
                match names.get(path) {
                    None => Change::Set { path: path.clone(), node: Node::Dir },
                    Some(Node::Dir) => return Ok(None),
                    Some(_) => return Err(Errno::Exists),
                }
            }
            Op::MakeFile(path, _) | Op::MakeLink(path, _) => {
                may_stand(path)?;
                if names.contains_key(path) {
                    return Err(Errno::Exists);
                }
                let node = match op {
                    Op::MakeLink(_, target) => Node::Link(target.clone()),
                    Op::MakeFile(_, ino) => Node::File(*ino),
                    _ => return Ok(None),
                };
                Change::Set { path: path.clone(), node }
            }
            Op::Name { file, name } => {
                may_stand(name)?;
                match (names.get(file), names.get(name)) {
                    (Some(node @ Node::File(_)), None) => Change::Set { path: name.clone(), node: node.clone() },
                    (_, None) => return Err(Errno::Missing),
                    (_, Some(_)) => return Err(Errno::Exists),
                }
            }
            Op::Write { ino, offset, bytes } => Change::Write { ino: *ino, offset: *offset, bytes: bytes.clone() },
            Op::SetLen(ino, len) => Change::Len { ino: *ino, len: *len },
            Op::SetTime(ino, time) => Change::Time { ino: *ino, time: *time },
            Op::Rename { from, to, replace } => {
                may_stand(to)?;
                let node = names.get(from).ok_or(Errno::Missing)?.clone();
                let stands = names.get(to);
                if stands == Some(&Node::Dir) || stands.is_some() && *replace == Replace::Never {
                    return Err(Errno::Exists);
                }
                Change::Rename { from: from.clone(), to: to.clone(), node }
            }
            Op::Unlink(path) => {
                names.get(path).ok_or(Errno::Missing)?;
                Change::Remove { path: path.clone() }
            }
            Op::RemoveDir(path) => {
                names.get(path).ok_or(Errno::Missing)?;
                if names.keys().any(|name| parent(name) == path) {
                    return Err(Errno::NotEmpty);
                }
                Change::Remove { path: path.clone() }
            }
            Op::SyncFile(_) | Op::SyncDir(_) => return Ok(None),
        }))
    }
}
