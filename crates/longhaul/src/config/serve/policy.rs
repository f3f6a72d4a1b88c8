//! `mode_mask`, `links` and `preserve` of a `[[root]]`: the modes, links and further metadata that
//! are taken from clients.
//!
//! In: their values. Out: a [`TreePolicy`]. Knows nothing of roots and their places.

use longhaul_engine::{ExtrasPolicy, LinkPolicy, ModePolicy, TreePolicy};
use serde::Deserialize;
use toml::Spanned;

use super::file::{Wrong, at, wrong};
use crate::error::Flaw;

/// One mask for all, or one for directories and one for files.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Mask {
    /// One octal mask for all, or `keep`.
    One(String),
    /// A mask of each kind.
    Each(Masks),
}

/// One mask for directories and one for files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Masks {
    /// The mask of directories, `"0600"` to `"0777"`.
    dirs: String,
    /// The mask of files, `"0600"` to `"0777"`.
    files: String,
}

/// Judges all of them; a missing one has its default.
pub(super) fn judge(
    mask: Option<&Spanned<Mask>>,
    links: Option<&Spanned<String>>,
    preserve: Option<&[Spanned<String>]>,
) -> Result<TreePolicy, Wrong> {
    let mut policy = TreePolicy::served();
    if let Some(mask) = mask {
        policy.modes = modes(mask.get_ref()).ok_or_else(|| wrong(mask, FORM))?;
    }
    if let Some(word) = links {
        policy.links = at(word, parse_links(word.get_ref()))?;
    }
    if let Some(words) = preserve {
        policy.extras = ExtrasPolicy::NOTHING;
        for word in words {
            *at(word, kind(&mut policy.extras, word.get_ref()))? = true;
        }
    }
    Ok(policy)
}

fn kind<'a>(extras: &'a mut ExtrasPolicy, word: &str) -> Result<&'a mut bool, Flaw> {
    match word {
        "xattrs" => Ok(&mut extras.xattrs),
        "owner" => Ok(&mut extras.owner),
        "set-id" => Ok(&mut extras.set_id),
        "acls" => Ok(&mut extras.acls),
        _ => Err(Flaw::Unknown { given: word.to_owned(), allowed: "xattrs, owner, set-id, acls" }),
    }
}

fn modes(mask: &Mask) -> Option<ModePolicy> {
    Some(match mask {
        Mask::One(word) if word == "keep" => ModePolicy::Keep,
        Mask::One(octal) => ModePolicy::Masked { dirs: bits(octal)?, files: bits(octal)? },
        Mask::Each(Masks { dirs, files }) => ModePolicy::Masked { dirs: bits(dirs)?, files: bits(files)? },
    })
}

/// Reads three or four octal digits that leave the owner reading and writing, as the daemon must.
fn bits(octal: &str) -> Option<u32> {
    let digits = octal.len();
    let bits = u32::from_str_radix(octal, 8).ok()?;
    ((3..=4).contains(&digits) && bits <= 0o777 && bits & 0o600 == 0o600).then_some(bits)
}

fn parse_links(word: &str) -> Result<LinkPolicy, Flaw> {
    match word {
        "keep" => Ok(LinkPolicy::Keep),
        "inside" => Ok(LinkPolicy::Inside),
        "refuse" => Ok(LinkPolicy::Refuse),
        _ => Err(Flaw::Unknown { given: word.to_owned(), allowed: "keep, inside, refuse" }),
    }
}

const FORM: &str = "mode_mask is an octal mask from \"0600\" to \"0777\", two of them as { dirs = \"0755\", files = \"0644\" }, \
                    or \"keep\"";
