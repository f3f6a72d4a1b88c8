//! Unsafe code: where it may be.
//!
//! Takes the tokens of every Rust file; gives one rule without exceptions. Must not know what the
//! code does.

use super::source::Source;
use super::tree::{everything, root};

/// One crate of the product, one file of the emulator, which depends on no crate of the product,
/// and the way into the fuzzers.
const UNSAFE_HOMES: &[&str] = &["crates/longhaul-sys/", "crates/longhaul-wan/src/ffi.rs", "fuzz/src/lib.rs"];

#[test]
fn unsafe_code_stays_at_home() {
    assert!(UNSAFE_HOMES.iter().all(|home| root().join(home).exists()), "a home that is gone: {UNSAFE_HOMES:?}");
    let found: Vec<_> = everything()
        .filter(|(file, _)| !UNSAFE_HOMES.iter().any(|home| file.path.starts_with(home)))
        .filter(|(_, source)| opens_unsafe(source))
        .map(|(file, _)| &file.path)
        .collect();
    assert!(found.is_empty(), "unsafe code outside {UNSAFE_HOMES:?}: {found:#?}");
}

#[test]
fn unsafe_code_is_told_from_talk_about_it() {
    let word = "unsafe";
    let opens = |text: &str| opens_unsafe(&Source::of(text));
    for code in ["{", "  {", "fn f()", "impl Send for X {}", "extern \"C\" {", "trait T {"] {
        assert!(opens(&format!("    let _ = {word} {code}")), "{code}");
    }
    assert!(opens(&format!("#[{word}(no_mangle)]")));
    for talk in [format!("// {word} {{"), format!("{word}_code = 1"), format!("not_{word} {{"), format!("\"{word}\"")] {
        assert!(!opens(&talk), "{talk}");
    }
}

/// Whether there is unsafe code: the word, followed by what it can apply to.
fn opens_unsafe(source: &Source) -> bool {
    let applies = ["{", "(", "fn", "impl", "extern", "trait"];
    source.tokens.windows(2).any(|pair| pair[0].is("unsafe") && applies.iter().any(|next| pair[1].is(next)))
}
