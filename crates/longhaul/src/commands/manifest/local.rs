//! `manifest make` of a directory of this host.
//!
//! In: a directory. Out: a sealed manifest. The crate of manifests scans; this file tells what it
//! finds, shows progress and stops it at a signal.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::kept_sums::KeptSums;
use longhaul_core::{Fault, FaultCode, RelPath};
use longhaul_engine::SumsCatalogue;
use longhaul_manifest::{Item, KeptElsewhere, KeptUse, Make, ManifestError, Sealed, Watcher, make as make_sealed};

use super::{Output, computed, fault, filter, unknown};
use crate::cli::ManifestMakeArgs;
use crate::commands::Context;
use crate::config::CHECKSUMS;
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::{self, Asking, Hangup};

/// Makes the manifest.
///
/// # Errors
/// A value that cannot be used.
pub(super) fn make(dir: &Path, args: &ManifestMakeArgs, context: Context, telling: Output) -> Result<Exit, Error> {
    let out = PathBuf::from(&args.out);
    let mut asked = Make::new(dir, &out);
    asked.sums = computed(args.checksum.as_ref())?;
    asked.kept = if args.kept_checksums { KeptUse::Believed } else { KeptUse::Ignored };
    asked.elsewhere = catalogues(args, context);
    asked.filter = filter(&args.filters.rules)?;
    if let Some(text) = &args.threads {
        let threads = text.to_str().and_then(|text| text.parse().ok()).filter(|number| (1..=THREADS).contains(number));
        asked.threads = threads.ok_or_else(|| unknown("threads", text, "a number from 1 to 64"))?;
    }
    let stopped = Arc::new(OnceLock::new());
    let asking = Asking::default();
    let on_signal = Arc::clone(&stopped);
    signals::watch(asking.clone(), Hangup::Stops, move |code| on_signal.set(code).unwrap_or_default())
        .map_err(Error::file("watch the signals of", "this process"))?;
    let (mut telling, made) = scan(&asked, stopped, telling);
    asking.end();
    match made {
        Ok(sealed) => telling.made(&out, &sealed),
        Err(fault) => telling.failed(&fault),
    }
    Ok(telling.end())
}

/// The catalogues of checksums that are to be believed.
fn catalogues(args: &ManifestMakeArgs, context: Context) -> Vec<Arc<dyn KeptElsewhere>> {
    let own = context.places().checksums().map(SumsCatalogue::at);
    let named = args.kept_in.as_ref().map(|state| SumsCatalogue::to_read(Path::new(state).join(CHECKSUMS)));
    let all = own.into_iter().chain(named).filter(|_| args.kept_checksums);
    all.map(|catalogue| Arc::new(Catalogued(catalogue)) as Arc<dyn KeptElsewhere>).collect()
}

/// A catalogue of this host, for the scan.
#[derive(Debug)]
struct Catalogued(SumsCatalogue);

impl KeptElsewhere for Catalogued {
    fn kept(&self, file: BorrowedFd<'_>) -> Option<KeptSums> {
        self.0.find(file)
    }
}

/// Scans a directory, tells what it finds, and gives the telling back. `stopped` ends it early.
pub(in crate::commands) fn scan(
    asked: &Make,
    stopped: Arc<OnceLock<FaultCode>>,
    telling: Output,
) -> (Output, Result<Sealed, Fault>) {
    let shown = ScanTold { telling, items: 0, bytes: 0, last: Instant::now() };
    let watching = ScanWatcher { shown: Mutex::new(shown), is_deaf: AtomicBool::new(false), stopped };
    let made = make_sealed(asked, &watching);
    let ScanWatcher { shown, stopped, .. } = watching;
    let ScanTold { mut telling, .. } = shown.into_inner().unwrap_or_else(PoisonError::into_inner);
    let sealed = match made {
        Ok(made) => {
            telling.resumed(made.items_resumed);
            Ok(made.sealed)
        }
        Err(error @ ManifestError::Stopped) => {
            let code = stopped.get().copied().unwrap_or(FaultCode::Interrupted);
            Err(Fault { code, ..fault(&error) })
        }
        Err(error) => Err(fault(&error)),
    };
    (telling, sealed)
}

/// Tells what the scan finds.
struct ScanWatcher {
    shown: Mutex<ScanTold>,
    /// Whether nobody reads what is told.
    is_deaf: AtomicBool,
    /// The signal that asked for the end.
    stopped: Arc<OnceLock<FaultCode>>,
}

/// The scan so far, and its telling.
struct ScanTold {
    telling: Output,
    items: u64,
    bytes: u64,
    last: Instant,
}

impl ScanWatcher {
    fn shown(&self) -> MutexGuard<'_, ScanTold> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for ScanWatcher {
    fn fault(&self, fault: &Fault) {
        self.shown().telling.omitted(fault);
    }

    fn skipped(&self, path: &RelPath, what: &'static str) {
        self.shown().telling.skipped(path.as_bytes(), what);
    }

    fn added(&self, item: &Item) {
        let mut shown = self.shown();
        shown.items += 1;
        shown.bytes = shown.bytes.saturating_add(item.bytes());
        // The clock costs more than the rest.
        if shown.items.is_multiple_of(ITEMS_PER_LOOK) || item.bytes() > 0 {
            if shown.last.elapsed() >= PROGRESS_EVERY {
                shown.last = Instant::now();
                let (items, bytes) = (shown.items, shown.bytes);
                shown.telling.progress(items, bytes);
            }
            self.is_deaf.store(shown.telling.is_deaf(), Ordering::Relaxed);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.get().is_some() || self.is_deaf.load(Ordering::Relaxed)
    }
}

/// Threads that may be asked for.
const THREADS: usize = 64;
/// The time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Names between two looks at the clock.
const ITEMS_PER_LOOK: u64 = 256;
