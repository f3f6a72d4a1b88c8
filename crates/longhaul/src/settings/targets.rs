//! The targets of a destination on this host, from their options.
//!
//! In: unparsed texts. Out: [`TargetDirs`]. Looks at no directory.

use std::ffi::OsString;
use std::path::PathBuf;

use longhaul_engine::{OnMissing, SameDevice, SetLayout, TargetDirs};

use super::Layers;
use crate::cli::{TARGET, TargetOptions};
use crate::error::Error;
use crate::values;

/// The targets that are asked for. `None`: the destination is one directory.
///
/// # Errors
/// [`Error::Option`] for a text that cannot be used, [`Error::Combination`] for options that need
/// targets where none are named, and for a single one.
pub(super) fn targets(args: &TargetOptions, layers: &Layers) -> Result<Option<TargetDirs>, Error> {
    let dirs: Vec<PathBuf> = layers.parsed_all(TARGET, &args.target, |text| Ok(PathBuf::from(text)))?;
    let same_device = layers.switch("allow-same-device", args.allow_same_device)?;
    let layout = layers.parsed("layout", &args.layout, values::set_layout)?;
    let on_missing = layers.parsed("on-missing", &args.on_missing, values::on_missing)?;
    match dirs.len() {
        0 if args.layout.is_some() || args.on_missing.is_some() || args.allow_same_device => {
            let why = "--layout, --on-missing and --allow-same-device are rules for several targets, and none is named";
            Err(Error::Combination { why, hint: "name each target with --target DIR" })
        }
        0 => Ok(None),
        1 => {
            let why = "a destination is spread over two targets or more, and one is named";
            Err(Error::Combination { why, hint: "give --target once for each disk, or the directory itself as DEST" })
        }
        _ => Ok(Some(dirs_of(dirs, layout, on_missing, same_device))),
    }
}

/// The targets of a set that is to be made.
///
/// # Errors
/// [`Error::Option`] for a layout that is none.
pub fn new_set(
    dirs: &[OsString],
    layout: &Option<OsString>,
    same_device: bool,
    layers: &Layers,
) -> Result<TargetDirs, Error> {
    let layout = layers.parsed("layout", layout, values::set_layout)?;
    Ok(dirs_of(dirs.iter().map(PathBuf::from).collect(), layout, None, same_device))
}

fn dirs_of(
    dirs: Vec<PathBuf>,
    layout: Option<SetLayout>,
    on_missing: Option<OnMissing>,
    same_device: bool,
) -> TargetDirs {
    TargetDirs {
        dirs,
        layout: layout.unwrap_or_default(),
        on_missing: on_missing.unwrap_or_default(),
        same_device: if same_device { SameDevice::Allowed } else { SameDevice::Refused },
    }
}
