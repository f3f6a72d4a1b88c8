//! `stored`, `files`, `reserve` and `lanes` of a `[[root]]` or a `[[client]]`: what its transfers
//! may leave behind, and their lanes.
//!
//! In: their values. Out: [`Bounds`]. Knows nothing of file systems and of what is stored.

use longhaul_core::limits::LANES_MAX;
use longhaul_core::units::parse_size;
use longhaul_engine::{Bounds, FreeReserve};
use toml::Spanned;

use super::file::{Wrong, at, wrong};

/// The values as they were written.
pub(super) struct Written<'f> {
    /// Bytes.
    pub(super) stored: Option<&'f Spanned<String>>,
    /// Files and links.
    pub(super) files: Option<&'f Spanned<i64>>,
    /// Free space, as a size or as a part.
    pub(super) reserve: Option<&'f Spanned<String>>,
    /// Lanes of a transfer.
    pub(super) lanes: Option<&'f Spanned<i64>>,
}

/// Whether counts outlive the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// They have a file in the directory of `state`.
    Kept,
    /// There is no such directory.
    Lost,
}

/// Judges all of them.
pub(super) fn judge(written: &Written<'_>, counts: Counts) -> Result<Bounds, Wrong> {
    let Written { stored, files, reserve, lanes } = written;
    if let (Some(counted), Counts::Lost) = (stored.map(Spanned::span).or(files.map(Spanned::span)), counts) {
        return Err(wrong(&Spanned::new(counted, ()), UNCOUNTED));
    }
    let stored = stored.map(|size| at(size, parse_size(size.get_ref()))).transpose()?;
    let files = files.map(|count| u64::try_from(*count.get_ref()).map_err(|_| wrong(count, "files must be 0 or more")));
    let lanes = lanes.map(|count| {
        let fits = u32::try_from(*count.get_ref()).ok().filter(|count| (1..=LANES_MAX).contains(count));
        fits.ok_or_else(|| wrong(count, format!("lanes must be 1 to {LANES_MAX}")))
    });
    let reserve = reserve.map(|word| match word.get_ref().strip_suffix('%') {
        None => at(word, parse_size(word.get_ref())).map(FreeReserve::Bytes),
        Some(percent) => {
            let fits = percent.parse().ok().filter(|percent| (1..=99).contains(percent));
            fits.map(FreeReserve::Percent).ok_or_else(|| wrong(word, "reserve must be a size, or 1% to 99%"))
        }
    });
    Ok(Bounds { stored, files: files.transpose()?, reserve: reserve.transpose()?, lanes: lanes.transpose()? })
}

const UNCOUNTED: &str = "what is stored is counted in a file of the directory 'state', which is not given: add it above the \
                         first table, as state = \"/var/lib/longhaul\"";
