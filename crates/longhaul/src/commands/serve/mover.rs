//! The daemon's side of its mover: its figures, and its end.
//!
//! In: the process, and the socket to it. Out: the figures that it said last. The daemon cannot
//! start another one, as it has given up the right to. It knows no queue.

use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::Error;
use crate::output::AdminMoverBody;

/// The last figures of a mover. `None`: there is no mover, or it has said nothing yet.
pub(super) type MoverFigures = Arc<Mutex<Option<AdminMoverBody>>>;

/// A mover that runs beside the daemon.
pub(super) struct MoverBeside {
    way: OwnedWriteHalf,
    /// Whether the daemon ends.
    ending: watch::Sender<Ending>,
    ended: JoinHandle<()>,
}

/// Whether the end of the mover is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Unwanted,
    Wanted,
}

impl MoverBeside {
    /// Begins to hear what the mover says.
    ///
    /// # Errors
    /// [`Error::File`] with the system's error.
    pub(super) fn hear((child, socket): (Child, UnixStream), figures: MoverFigures) -> Result<MoverBeside, Error> {
        let failed = || Error::file("use", "the socket to the mover");
        socket.set_nonblocking(true).map_err(failed())?;
        let (way_back, way) = tokio::net::UnixStream::from_std(socket).map_err(failed())?.into_split();
        let (ending, wanted) = watch::channel(Ending::Unwanted);
        let unwanted = wanted.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(way_back.take(LINES_BYTES_MAX)).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                lines.get_mut().get_mut().set_limit(LINES_BYTES_MAX);
                if let Ok(said) = serde_json::from_str(&line) {
                    *figures.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
                }
            }
            // It says no more, as it is gone.
            if *unwanted.borrow() == Ending::Unwanted {
                let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
                let figures = figures.get_or_insert_default();
                (figures.shards_moving, figures.fault) = (0, Some(GONE.to_owned()));
            }
        });
        let ended = tokio::task::spawn_blocking(move || outlived(child, &wanted));
        Ok(MoverBeside { way, ending, ended })
    }

    /// Asks it to hand back what it moves.
    pub(super) async fn ask_to_end(&mut self) {
        self.ending.send_replace(Ending::Wanted);
        let _ = self.way.shutdown().await;
    }

    /// Waits until it has.
    pub(super) async fn end(self) {
        if timeout(ENDS_WITHIN, self.ended).await.is_err() {
            tracing::warn!(
                target: "longhaul::serve",
                "the mover has not handed back its shards in {} s: other movers have them a minute after it is gone",
                ENDS_WITHIN.as_secs()
            );
        }
    }
}

/// Waits for the end of the mover.
fn outlived(mut child: Child, ending: &watch::Receiver<Ending>) {
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    if *ending.borrow() == Ending::Unwanted {
        tracing::error!(
            target: "longhaul::serve",
            status,
            "{GONE}"
        );
    }
}

/// The words of a mover that ended by itself.
const GONE: &str = "the mover has ended: nothing of its queue is moved here until the daemon is started again";
/// Bytes of a line of the mover.
const LINES_BYTES_MAX: u64 = 64 << 10;
/// The time that the mover has to hand back what it moves, once all sessions have ended.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
