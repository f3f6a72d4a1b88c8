//! The name of a dataset whose files appear together, as a user or a peer gives it.
//!
//! In: bytes of an option or of a message. Out: [`DatasetName`], which is one name of a directory
//! and none of ours. Must not know where it goes, or what stands there.

use serde::{Deserialize, Serialize};

use crate::limits::DATASET_NAME_BYTES_MAX;
use crate::path::{Escaped, PathError, RelPath};

/// The name of a dataset: one component of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct DatasetName(RelPath);

/// The part of a campaign's dataset that one session brings. All of its sessions show a claim, and
/// the campaign of that is the dataset's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DatasetPart {
    /// Files of a shard, which are staged and do not appear.
    Shard {
        /// The path in the dataset at which they lie. The root path: the dataset itself.
        onto: RelPath,
    },
    /// The list of all files, which all are staged by now: the dataset appears.
    Commit,
}

/// The reason why bytes do not name a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetNameError {
    /// It is empty, has a slash, or is `.` or `..`.
    #[error("it is one name, without '/', and neither empty nor '.' or '..'")]
    Component,
    /// The old dataset could not be kept beside it, as that has a longer name.
    #[error("it is longer than {DATASET_NAME_BYTES_MAX} bytes")]
    TooLong,
    /// No directory can have it, or it is one of ours.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl DatasetName {
    /// Takes bytes that name a dataset.
    ///
    /// # Errors
    /// The [`DatasetNameError`] that names the error in them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<DatasetName, DatasetNameError> {
        let bytes = bytes.into();
        if bytes.is_empty() || bytes.contains(&b'/') || bytes == b"." || bytes == b".." {
            return Err(DatasetNameError::Component);
        }
        if bytes.len() > DATASET_NAME_BYTES_MAX {
            return Err(DatasetNameError::TooLong);
        }
        Ok(DatasetName(RelPath::new(bytes)?))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// A form for people.
    pub fn escaped(&self) -> Escaped<'_> {
        self.0.escaped()
    }
}

impl TryFrom<Vec<u8>> for DatasetName {
    type Error = DatasetNameError;

    fn try_from(bytes: Vec<u8>) -> Result<DatasetName, DatasetNameError> {
        DatasetName::new(bytes)
    }
}

impl From<DatasetName> for Vec<u8> {
    fn from(name: DatasetName) -> Vec<u8> {
        name.as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_has_one_name_of_a_directory_that_is_none_of_ours() {
        for name in ["run-7", "a b", "..x", "x~"] {
            assert_eq!(DatasetName::new(name).expect(name).as_bytes(), name.as_bytes());
        }
        for name in ["", ".", "..", "a/b", "/a", "a/", "/"] {
            assert_eq!(DatasetName::new(name), Err(DatasetNameError::Component), "{name:?}");
        }
        assert_eq!(DatasetName::new(".longhaul-x"), Err(DatasetNameError::Path(PathError::Reserved)));
        assert_eq!(DatasetName::new(b"a\0".to_vec()), Err(DatasetNameError::Path(PathError::Nul)));
        assert!(DatasetName::new(vec![b'x'; DATASET_NAME_BYTES_MAX]).is_ok());
        assert_eq!(DatasetName::new(vec![b'x'; DATASET_NAME_BYTES_MAX + 1]), Err(DatasetNameError::TooLong));
    }
}
