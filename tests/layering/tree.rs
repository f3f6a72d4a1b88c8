//! The source tree: every Rust file of the workspace, read once.
//!
//! Takes the top of the workspace from cargo; gives the rules paths, texts and parsed code. Must
//! not know what any rule asks for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::items::Code;
use super::source::Source;

/// A Rust file.
pub(super) struct File {
    /// Its path beneath the top of the workspace.
    pub(super) path: String,
    pub(super) text: String,
    /// The crate whose `src` it lies in.
    pub(super) home: Option<Home>,
}

/// The place of a file in a crate.
pub(super) struct Home {
    pub(super) name: String,
    /// The path of its module; nothing for `lib.rs` and `main.rs`.
    pub(super) module: Vec<String>,
}

/// A file of a crate that is compiled into it outside of tests.
pub(super) struct Product {
    pub(super) file: &'static File,
    pub(super) home: &'static Home,
    pub(super) code: Code<'static>,
}

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let mut paths: Vec<_> = TOPS.iter().flat_map(|top| rust_files(&root().join(top))).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no sources found");
    paths.iter().map(|path| File { path: relative(path), text: read(path), home: home(path) }).collect()
});

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| FILES.iter().map(|file| Source::of(&file.text)).collect());

static PRODUCTS: LazyLock<Vec<Product>> = LazyLock::new(|| {
    let tests = test_homes();
    let in_tests = |file: &File| tests.iter().any(|test| Path::new(&file.path).starts_with(test));
    FILES
        .iter()
        .zip(SOURCES.iter())
        .filter(|(file, _)| !in_tests(file))
        .filter_map(|(file, source)| Some(Product { file, home: file.home.as_ref()?, code: Code::from_source(source) }))
        .collect()
});

/// The folders that hold Rust code.
const TOPS: &[&str] = &["benches", "crates", "fuzz", "tests", "xtask"];

/// Every Rust file, with its tokens and comments.
pub(super) fn everything() -> impl Iterator<Item = (&'static File, &'static Source<'static>)> {
    FILES.iter().zip(SOURCES.iter())
}

/// Every file of a crate outside of tests.
pub(super) fn products() -> &'static [Product] {
    &PRODUCTS
}

/// The files and folders of modules that are compiled for tests alone.
fn test_homes() -> BTreeSet<PathBuf> {
    let mut homes = BTreeSet::new();
    for (file, source) in everything().filter(|(file, _)| file.home.is_some()) {
        let path = Path::new(&file.path);
        let folder = path.parent().unwrap_or(path);
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let own = if ["lib", "main", "mod"].contains(&stem) { folder.to_owned() } else { folder.join(stem) };
        for (module, given) in source.test_modules() {
            homes.insert(given.map_or_else(|| own.join(format!("{module}.rs")), |given| folder.join(given)));
            homes.insert(own.join(module));
        }
    }
    homes
}

/// The crate and the module of a file below `crates/*/src`.
fn home(path: &Path) -> Option<Home> {
    let beneath = path.strip_prefix(root().join("crates")).ok()?;
    let mut parts: Vec<_> = beneath.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.get(1)? != "src" {
        return None;
    }
    let mut module = parts.split_off(2);
    let last = module.pop()?;
    let stem = last.trim_end_matches(".rs");
    let named = stem != "mod" && !(module.is_empty() && ["lib", "main"].contains(&stem));
    module.extend(named.then(|| stem.to_owned()));
    Some(Home { name: parts.swap_remove(0), module })
}

/// Every Rust file below a directory, but for what a build left there.
fn rust_files(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        if directory.join("CACHEDIR.TAG").exists() {
            continue;
        }
        for entry in entries(&directory) {
            if entry.is_dir() {
                open.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(entry);
            }
        }
    }
    found
}

pub(super) fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries.map(|entry| entry.expect("a readable entry").path()).collect()
}

pub(super) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

pub(super) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The top of the workspace: this file is compiled as part of `crates/longhaul`.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a crate lies two levels down").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::source::Kind;
    use super::*;

    #[test]
    fn a_file_knows_its_module() {
        let module = |path: &str| home(&root().join(path)).map(|home| (home.name, home.module.join("::")));
        let own = |module: &str| Some(("x".to_owned(), module.to_owned()));
        assert_eq!(module("crates/x/src/lib.rs"), own(""));
        assert_eq!(module("crates/x/src/main.rs"), own(""));
        assert_eq!(module("crates/x/src/a.rs"), own("a"));
        assert_eq!(module("crates/x/src/a/mod.rs"), own("a"));
        assert_eq!(module("crates/x/src/a/b.rs"), own("a::b"));
        assert_eq!(module("crates/x/tests/a.rs"), None);
        assert_eq!(module("tests/a.rs"), None);
    }

    #[test]
    fn no_function_and_no_type_is_overlooked() {
        for Product { file, code, .. } in products() {
            let defined = |kind: &str| {
                let pairs = code.tokens.windows(2);
                pairs.filter(|pair| pair[0].is(kind) && pair[1].kind == Kind::Word).count()
            };
            for kind in ["fn", "struct", "enum", "trait"] {
                assert_eq!(code.of_kind(&[kind]).count(), defined(kind), "{kind} in {}", file.path);
            }
        }
    }

    #[test]
    fn modules_of_tests_are_no_product() {
        let tests = test_homes();
        assert!(!tests.is_empty());
        assert!(
            tests.iter().all(|test| products().iter().all(|product| !Path::new(&product.file.path).starts_with(test)))
        );
        assert!(products().iter().any(|product| product.home.name == "longhaul-engine"));
    }
}
