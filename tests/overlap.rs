//! Sources and destinations that overlap: a directory copied into itself, a file copied onto
//! itself.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, files};

/// A host with the directory `d`: two files, one of chunks, and a directory.
fn host() -> Host {
    let host = Host::new();
    files::make(host.path("d/f"), 1, 100);
    files::make(host.path("d/sub/large"), 2, (2 << 20) + 5);
    files::link("d", host.path("link"));
    host
}

#[test]
fn a_directory_is_not_copied_onto_or_into_itself() {
    let host = host();
    let before = Tree::of(host.dir());
    for args in [
        &["d", "d"][..],
        &["d", "d/"],
        &["d", "d/sub/"],
        &["d", "d/new"],
        &["d", "d/new/"],
        &["d", "d/new/er/"],
        &["d", "d/f"],
        &["d/", "d"],
        &["d/", "d/sub"],
        &["d/", "d/new"],
        &["d/.", "d/new"],
        &["link/", "d/new"],
        &["d", "link/new"],
        &["d", "."],
        &[".", "d/"],
        &["d/f", "d", "d/new/"],
        &["--dry-run", "d", "d/new/"],
        &["--if-exists", "replace", "d", "d/new/"],
        &["--exclude", "other", "d", "d/new/"],
    ] {
        let outcome = host.run(["copy", "--json"]).args(args).fail(2);
        assert_eq!(outcome.events_of("fault")[0]["code"], "usage", "{outcome}");
        assert!(outcome.stderr.contains("directory to be copied"), "{outcome}");
        assert!(outcome.stderr.contains("outside of it"), "{outcome}");
        tree::assert_same(&before, &Tree::of(host.dir()), format_args!("{args:?}"));
    }
}

#[test]
fn a_destination_that_is_not_sent_may_lie_in_its_source() {
    for (options, source, dest, missing) in [
        (&["--exclude", "/out/"][..], "d/", "d/out/", "out"),
        (&["--exclude", "out"], "d", "d/out/", "d/out"),
        (&["--files-from", "names"], "d", "d/out/", "d/out"),
    ] {
        let host = host();
        files::write(host.path("names"), "f\nsub\n");
        let outcome = host.run(["copy", "--json"]).args(options).args([source, dest]).fail(0);
        assert_eq!(outcome.counts(), (2, 0, 0), "{outcome}");
        assert!(!host.path("d/out").join(missing).exists(), "{outcome}");
    }
}

#[test]
fn beside_or_above_itself_a_directory_is_copied_as_ever() {
    let host = host();
    for (args, expected) in
        [(["d", "new"], "new/d/f"), (["d/", "d2"], "d2/f"), (["d/sub", "."], "sub/large"), (["d/sub/", "d"], "d/large")]
    {
        host.run(["copy"]).args(args).succeed();
        assert!(host.path(expected).exists(), "{args:?}");
    }
    // The link itself is sent, not its target.
    host.run(["copy", "link", "d/"]).succeed();
    assert_eq!(fs::read_link(host.path("d/link")).unwrap(), std::path::Path::new("d"));
}

#[test]
fn a_file_copied_onto_itself_stays_as_it_is() {
    let host = host();
    for (source, dest) in [("d/f", "d/f"), ("d/f", "d"), ("d/sub/large", "link/sub/large"), ("d/sub/large", "d/sub/")] {
        let before = Tree::of(host.dir());
        let inode = |name: &str| fs::metadata(host.path(name)).unwrap().ino();
        let was = inode(source);
        let skipped = host.run(["copy", "--json", source, dest]).fail(0);
        assert_eq!(skipped.counts(), (0, 1, 0), "{skipped}");
        assert_eq!(inode(source), was, "{skipped}");
        let failed = host.run(["copy", "--json", "--if-exists", "fail", source, dest]).finish();
        assert_eq!((failed.counts(), inode(source)), ((0, 0, 1), was), "{failed}");
        let replaced = host.run(["copy", "--json", "--if-exists", "replace", source, dest]).fail(0);
        assert_eq!(replaced.counts(), (1, 0, 0), "{replaced}");
        assert_ne!(inode(source), was, "{replaced}");
        let files = |tree: Tree| Tree(tree.0.into_iter().filter(|(_, node)| node.kind != tree::Kind::Dir).collect());
        tree::assert_same(&files(before), &files(Tree::of(host.dir())), source);
        assert_eq!(tree::leftovers(host.dir()), [""; 0], "{replaced}");
    }
}
