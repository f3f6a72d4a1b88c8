//! Asks a daemon at the administrator's socket.
//!
//! In: a path and a request. Out: the daemon's answers, or the fault that kept them away. Blocks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode};

use super::wire::{ANSWERED_LINE_BYTES_MAX, Answer, Request};

/// Asks, and returns all answers but the last one.
///
/// # Errors
/// The daemon's own fault; [`FaultCode::Unreachable`] if no daemon listens there,
/// [`FaultCode::Denied`] if the socket may not be used, [`FaultCode::Lost`] if it does not answer.
pub fn ask(path: &Path, request: &Request) -> Result<Vec<Answer>, Fault> {
    let shown = path.display();
    let mut stream = UnixStream::connect(path).map_err(|error| unreachable(path, &error))?;
    let broken = |error: &dyn std::fmt::Display| {
        let why = format_args!("the daemon at {shown} did not answer: {error}");
        Fault::new(FaultCode::Lost, Blame::Local, why).hint_in_words("its log may say why")
    };
    let sent = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    sent.and_then(|()| stream.write_all(&request.line())).map_err(|error| broken(&error))?;
    let (mut reader, mut answers) = (BufReader::new(stream), Vec::new());
    loop {
        let mut line = String::new();
        reader.by_ref().take(ANSWERED_LINE_BYTES_MAX).read_line(&mut line).map_err(|error| broken(&error))?;
        match serde_json::from_str(&line).map_err(|error| broken(&error))? {
            Answer::End => return Ok(answers),
            Answer::Fault(fault) => return Err(*fault),
            answer => answers.push(answer),
        }
    }
}

fn unreachable(path: &Path, error: &io::Error) -> Fault {
    let (shown, why) = (path.display(), longhaul_net::system_words(error));
    let (code, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied => (FaultCode::Denied, "ask as root, or as the daemon's own user"),
        _ => (FaultCode::Unreachable, "is the daemon running, and is this its socket? --socket names another one"),
    };
    Fault::new(code, Blame::Local, format_args!("no daemon can be asked at {shown}: {why}")).hint_in_words(hint)
}

/// How long the daemon may take for a line: a reload opens roots, on disks that may be slow.
const PATIENCE: Duration = Duration::from_secs(120);
