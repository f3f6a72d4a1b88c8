//! The error of a path that another user can change, and the advice to close it.
//!
//! In: what `config::strict` found. Out: words for `error`. Looks at no file.

use std::fmt;
use std::path::{Path, PathBuf};

/// A path that another user can change.
#[derive(Debug)]
pub struct Exposed {
    /// The path.
    pub(crate) path: PathBuf,
    /// The file that is found through it. `None`: it is the file itself.
    pub(crate) above: Option<PathBuf>,
    /// Its mode.
    pub(crate) mode: u32,
    /// Its owner.
    pub(crate) owner: u32,
    /// The bits of its mode that open it. 0: its owner is the problem.
    pub(crate) open: u32,
    /// The user that runs this program.
    pub(crate) user: u32,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exposed { path, above, mode, owner, open, .. } = self;
        let who = match *open {
            0 => "is in the hands of another user",
            OTHERS_WRITE => "may be written by its group and by everybody",
            EVERYBODY_WRITES => "may be written by everybody",
            _ => "may be written by its group",
        };
        write!(f, "{} {who} (mode {mode:04o}, owner {owner})", path.display())?;
        match above {
            Some(file) => write!(f, ", so {} is not believed", file.display()),
            None => write!(f, ", so it is not believed"),
        }
    }
}

impl Exposed {
    /// The advice what to do about it. The advice to change a directory has a condition: others may
    /// rely on the directory.
    pub(crate) fn hint(&self) -> String {
        let path = self.path.display();
        let close = match self.open {
            OTHERS_WRITE => format!("chmod go-w {path}"),
            EVERYBODY_WRITES => format!("chmod o-w {path}"),
            _ => format!("chmod g-w {path}"),
        };
        let is_foreign = self.owner != 0 && self.owner != self.user;
        match &self.above {
            // Another user's path keeps its owner: root could ruin that user's account by a change.
            _ if is_foreign && self.user == 0 => {
                format!("run it as the user {}, or as root with root's own files (sudo -H)", self.owner)
            }
            None if self.open == 0 => format!("chown {} {path}", self.user),
            None => close,
            Some(file) if self.open == 0 || is_foreign => elsewhere(file),
            Some(file) => format!("{close}, if nobody else has to write there; else {}", elsewhere(file)),
        }
    }
}

/// The advice to keep a file in a better place.
fn elsewhere(file: &Path) -> String {
    let file = file.display();
    format!(
        "keep {file} where only you and root may write, and name that place (--identity, --known-hosts, --config of serve; \
         XDG_CONFIG_HOME for all of them)"
    )
}

/// The bits of a mode with which the group or everybody may write.
pub(crate) const OTHERS_WRITE: u32 = 0o022;
/// The bit of a mode with which everybody may write.
pub(crate) const EVERYBODY_WRITES: u32 = 0o002;
