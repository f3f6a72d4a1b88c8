//! The limits of this process that a transfer runs into: open descriptors, locked memory, lengths
//! of files.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of open descriptors as far as an ordinary user may. Gives the limit that holds
/// now; `None` if unlimited.
///
/// # Errors
/// The error of the system; the old limit then still holds.
pub fn raise_nofile_limit() -> io::Result<Option<u64>> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(limit.current)
}

/// The limit of open descriptors that holds now. `None` if unlimited.
pub fn nofile_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The most bytes of a file that this process writes. `None` if unlimited.
pub fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Bytes that this process may lock in memory without a privilege. `None` if unlimited.
pub fn memlock_limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_reaches_the_hard_limit_and_is_repeatable() {
        let raised = raise_nofile_limit().expect("first");
        assert_eq!(raised, getrlimit(Resource::Nofile).maximum);
        assert_eq!(raise_nofile_limit().expect("again"), raised);
    }
}
