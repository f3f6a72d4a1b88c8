//! A path beneath a root, or a list of them. An accepted path cannot leave it, and can be split and
//! joined again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::is_reserved;
use longhaul_core::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use longhaul_core::{Escaped, PathList, RelPath};

fuzz_target!(|bytes: &[u8]| {
    assert!(!Escaped(bytes).to_string().contains(|c: char| c.is_control()));
    names(bytes);
    let Ok(path) = RelPath::new(bytes) else { return };
    assert!(path.as_bytes() == bytes && bytes.len() <= PATH_BYTES_MAX && !bytes.contains(&0));
    let mut again = RelPath::root();
    for name in path.components() {
        assert!(name != b".." && name != b"." && name.len() <= NAME_BYTES_MAX && !is_reserved(name));
        again = again.join(name).expect("a part of a path joins");
    }
    assert_eq!(again, path);
    if let Some((top, rest)) = path.split_top() {
        let top = RelPath::new(top).expect("a top is a path");
        assert_eq!(top.concat(&rest).expect("a path goes together"), path);
        assert!(path.parent().is_some_and(|parent| parent.join(path.name().unwrap_or_default()) == Ok(path.clone())));
    }
});

/// A list that is accepted is one that this side could have made, and finds all of its paths.
fn names(bytes: &[u8]) {
    let mut list = PathList::default();
    if list.append(bytes).is_err() {
        return;
    }
    let paths: Vec<RelPath> = list.iter().collect();
    assert!(paths.len() == list.len() && PathList::new(paths.iter().rev()) == list);
    for path in &paths {
        assert!(list.covers(path) && !list.leads_to(path));
        assert!(path.parent().is_none_or(|above| list.leads_to(&above) && !list.covers(&above)));
    }
}
