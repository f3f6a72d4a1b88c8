//! Entries of a tree, for tests that feed one machine by hand.

use longhaul_core::{Entry, EntryKind, Inode, Meta, Mtime, RelPath};

/// The chunk size of these tests, in bytes.
pub(crate) const CHUNK: usize = 1024;

/// One entry of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) entry: Entry,
}

/// A file.
pub(crate) fn file(name: &str, len: usize) -> Item {
    item(name, EntryKind::File { len: len as u64, sparse: false, inode: Inode::default() })
}

/// An entry of a kind.
pub(crate) fn item(name: &str, kind: EntryKind) -> Item {
    let meta = Meta::new(0o644, Mtime { secs: 1_700_000_000, nanos: 5 });
    Item { entry: Entry { path: RelPath::new(name).expect("a path"), kind, meta } }
}

/// `count` files of `len` bytes, `per_dir` in a directory.
pub(crate) fn many(count: usize, per_dir: usize, len: usize) -> Vec<Item> {
    let mut items = Vec::new();
    for at in 0..count {
        let dir = format!("d{}", at / per_dir);
        if at % per_dir == 0 {
            items.push(item(&dir, EntryKind::Dir));
        }
        items.push(file(&format!("{dir}/f{at}"), len));
        if at % per_dir == per_dir - 1 || at == count - 1 {
            items.push(item(&dir, EntryKind::DirEnd));
        }
    }
    items
}
