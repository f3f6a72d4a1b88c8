//! The texts that say which metadata is carried over, and which further checksums are computed.
//!
//! In: one text. Out: a [`Preserve`] or a set of checksums, or a [`Flaw`]. Knows neither the place
//! of the text nor any default but its own.

use longhaul_core::{Algorithm, Algorithms, Preserve};

use super::unknown;
use crate::error::Flaw;

/// Reads words separated by commas: bare words replace the default, `+word` and `-word` change it
/// (or the words before them).
pub(crate) fn preserve(text: &str) -> Result<Preserve, Flaw> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let changes = |word: &&str| word.starts_with(['+', '-']);
    let mut chosen = if words.iter().all(changes) { Preserve::default() } else { Preserve::NOTHING };
    for word in &words {
        match word.strip_prefix('-') {
            Some(name) => leave_out(&mut chosen, name)?,
            None => carry_over(&mut chosen, word.strip_prefix('+').unwrap_or(word))?,
        }
    }
    Ok(chosen)
}

fn carry_over(chosen: &mut Preserve, name: &str) -> Result<(), Flaw> {
    match name {
        "all" => *chosen = Preserve::EVERYTHING,
        "none" => *chosen = Preserve::NOTHING,
        _ => *kind(chosen, name)? = true,
    }
    Ok(())
}

fn leave_out(chosen: &mut Preserve, name: &str) -> Result<(), Flaw> {
    match name {
        "all" => *chosen = Preserve::NOTHING,
        _ => *kind(chosen, name)? = false,
    }
    Ok(())
}

/// The kind of metadata that a word names.
fn kind<'a>(chosen: &'a mut Preserve, name: &str) -> Result<&'a mut bool, Flaw> {
    match name {
        "mode" => Ok(&mut chosen.mode),
        "times" => Ok(&mut chosen.times),
        "links" => Ok(&mut chosen.links),
        "sparse" => Ok(&mut chosen.sparse),
        "xattrs" => Ok(&mut chosen.xattrs),
        "owner" => Ok(&mut chosen.owner),
        "acls" => Ok(&mut chosen.acls),
        "hardlinks" => Ok(&mut chosen.hardlinks),
        _ => Err(unknown(name, "mode, times, links, hardlinks, sparse, xattrs, owner, acls, all, none")),
    }
}

/// Reads names separated by commas; `none` alone is none of them.
pub(crate) fn sums(text: &str) -> Result<Algorithms, Flaw> {
    if text.trim() == "none" {
        return Ok(Algorithms::NONE);
    }
    let names = text.split(',').map(str::trim);
    names.map(named).try_fold(Algorithms::NONE, |chosen, named| named.map(|algorithm| chosen.with(algorithm)))
}

/// A checksum that is computed beside BLAKE3.
fn named(name: &str) -> Result<Algorithm, Flaw> {
    match Algorithm::of_name(name) {
        Some(algorithm) if algorithm.is_computed() && algorithm != Algorithm::Blake3 => Ok(algorithm),
        _ => Err(unknown(name, "adler32, crc32c, md5, sha256, none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preserve_lists_replace_and_signs_change() {
        let only = |mode, times, links, sparse| Ok(Preserve { mode, times, links, sparse, ..Preserve::NOTHING });
        let xattrs = |preserve| Ok(Preserve { xattrs: true, ..preserve });
        for (text, want) in [
            ("mode,times,links,sparse", only(true, true, true, true)),
            ("times", only(false, true, false, false)),
            ("-times", only(true, false, true, true)),
            ("-mode,-sparse", only(false, true, true, false)),
            ("+links", only(true, true, true, true)),
            ("all,-links", Ok(Preserve { links: false, ..Preserve::EVERYTHING })),
            ("all", Ok(Preserve::EVERYTHING)),
            ("+xattrs", xattrs(Preserve::default())),
            ("xattrs", xattrs(Preserve::NOTHING)),
            ("all,-xattrs,-acls,-owner,-hardlinks", only(true, true, true, true)),
            ("none,+owner", Ok(Preserve { owner: true, ..Preserve::NOTHING })),
            ("+acls", Ok(Preserve { acls: true, ..Preserve::default() })),
            ("+hardlinks", Ok(Preserve { hardlinks: true, ..Preserve::default() })),
            ("none", only(false, false, false, false)),
            ("none,+times", only(false, true, false, false)),
            ("mode, times", only(true, true, false, false)),
            ("-xattrs", only(true, true, true, true)),
        ] {
            assert_eq!(preserve(text), want, "{text}");
        }
    }

    #[test]
    fn names_stand_in_a_list_and_any_other_is_refused_with_those_that_there_are() {
        let (adler32, crc32c) = (Algorithms::NONE.with(Algorithm::Adler32), Algorithms::NONE.with(Algorithm::Crc32c));
        for (text, want) in [
            ("adler32", adler32),
            ("crc32c, adler32", adler32.and(crc32c)),
            ("crc32c,crc32c", crc32c),
            ("md5", Algorithms::NONE.with(Algorithm::Md5)),
            ("sha256,adler32", adler32.with(Algorithm::Sha256)),
            ("none", Algorithms::NONE),
        ] {
            assert_eq!(sums(text), Ok(want), "{text}");
        }
        for bad in ["", "adler32,", "ADLER32", "crc32", "sha1", "sha512", "b3", "none,adler32"] {
            let flaw = sums(bad).expect_err(bad).to_string();
            assert!(flaw.contains("adler32, crc32c, md5, sha256"), "{bad}: {flaw}");
        }
    }
}
