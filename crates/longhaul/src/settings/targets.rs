//! The targets of a destination on this host, from their options.
//!
//! In: unparsed texts. Out: [`TargetDirs`]. Looks at no directory.

use std::ffi::OsString;
use std::path::PathBuf;

use longhaul_engine::{OnMissing, STRIPE_FROM_BYTES, SameDevice, SetLayout, TargetDirs};

use super::Layers;
use crate::cli::{SetInitArgs, TARGET, TargetOptions};
use crate::error::Error;
use crate::values;

/// The targets that are asked for. `None`: the destination is one directory.
///
/// # Errors
/// [`Error::Option`] for a text that cannot be used, [`Error::Combination`] for options that need
/// targets where none are named, and for a single one.
pub(super) fn targets(args: &TargetOptions, layers: &Layers) -> Result<Option<TargetDirs>, Error> {
    let dirs: Vec<PathBuf> = layers.parsed_all(TARGET, &args.target, |text| Ok(PathBuf::from(text)))?;
    let same_device = same_device(layers.switch(SAME_DEVICE, args.allow_same_device)?.then_some(()));
    let layout = layers.parsed("layout", &args.layout, values::set_layout)?;
    let on_missing = layers.parsed("on-missing", &args.on_missing, values::on_missing)?;
    let stripe_from = layers.parsed("stripe-from", &args.stripe_from, values::stripe_from)?;
    match dirs.len() {
        0 if args.layout.is_some()
            || args.on_missing.is_some()
            || args.stripe_from.is_some()
            || args.allow_same_device =>
        {
            let why = "--layout, --stripe-from, --on-missing and --allow-same-device are rules for several targets, and \
                       none is named";
            Err(Error::Combination { why, hint: "name each target with --target DIR" })
        }
        0 => Ok(None),
        1 => {
            let why = "a destination is spread over two targets or more, and one is named";
            Err(Error::Combination { why, hint: "give --target once for each disk, or the directory itself as DEST" })
        }
        _ => {
            let dirs = dirs_of(dirs, layout, on_missing, same_device);
            Ok(Some(TargetDirs { stripe_from: stripe_from.unwrap_or(STRIPE_FROM_BYTES), ..dirs }))
        }
    }
}

/// The targets of a set that is to be made.
///
/// # Errors
/// [`Error::Option`] for a layout that is none.
pub fn new_set(args: &SetInitArgs, layers: &Layers) -> Result<TargetDirs, Error> {
    let same_device = same_device(layers.switch(SAME_DEVICE, args.allow_same_device)?.then_some(()));
    let layout = layers.parsed("layout", &args.layout, values::set_layout)?;
    Ok(dirs_of(args.dirs.iter().map(PathBuf::from).collect(), layout, None, same_device))
}

/// The rate at which a set is read. `None`: as fast as its disks are.
///
/// # Errors
/// [`Error::Option`] for a text that is no rate.
pub fn rate_of(rate: &Option<OsString>, layers: &Layers) -> Result<Option<u64>, Error> {
    layers.parsed("rate", rate, values::rate)
}

fn dirs_of(
    dirs: Vec<PathBuf>,
    layout: Option<SetLayout>,
    on_missing: Option<OnMissing>,
    same_device: SameDevice,
) -> TargetDirs {
    let (layout, on_missing) = (layout.unwrap_or_default(), on_missing.unwrap_or_default());
    TargetDirs { layout, on_missing, same_device, ..TargetDirs::set(dirs) }
}

fn same_device(allowed: Option<()>) -> SameDevice {
    allowed.map_or(SameDevice::Refused, |()| SameDevice::Allowed)
}

/// The name of the switch that lets targets lie on one file system.
const SAME_DEVICE: &str = "allow-same-device";
