//! Whose campaigns a mover moves, as far as the queue has to know it.
//!
//! In: a campaign, and the rows of its signature. Out: whether the mover moves it; and the id of
//! the queue, which is made once. Must not know keys, nor what a signature is over: movers bring
//! that.

use crate::error::JobsError;
use crate::ids::QueueId;
use crate::rows::Campaign;
use crate::store::Rows;

/// Decides which campaigns a mover moves. Those that it does not are passed over, and left to other
/// movers.
pub trait Admission {
    /// Whether a campaign is moved. It reads rows, and writes none.
    ///
    /// # Errors
    /// [`JobsError::Store`].
    fn admits(&self, rows: &mut dyn Rows, campaign: &Campaign) -> Result<bool, JobsError>;
}

/// The admission of all campaigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn admits(&self, _: &mut dyn Rows, _: &Campaign) -> Result<bool, JobsError> {
        Ok(true)
    }
}

/// The id of the queue, which is `fresh` if it had none.
///
/// # Errors
/// [`JobsError::Store`].
pub fn queue_id(rows: &mut dyn Rows, fresh: QueueId) -> Result<QueueId, JobsError> {
    if let Some(id) = rows.queue_id()? {
        return Ok(id);
    }
    rows.put_queue_id(fresh)?;
    Ok(fresh)
}
