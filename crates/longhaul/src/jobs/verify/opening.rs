//! Opens a shard that is to be verified: its names and digests, and the place where its files
//! stand.
//!
//! In: a shard, and the shelf. Out: its files, here or at a daemon. Must not know the rules of the
//! queue, nor how a file is judged.

use longhaul_core::{Fault, RelPath};
use longhaul_engine::{Reach, RemotePath, Stop};
use longhaul_jobs::queue::VerifyShard;
use longhaul_jobs::{JobsError, Rows};

use super::doubt::PlaceMark;
use super::ground::{FarGround, FilesGround};
use super::shard::{ShardFiles, ShardNames, destination_of, is_there};
use super::{Verifier, blocking};
use crate::jobs::faults::fault_of_jobs;
use crate::jobs::spec::{CampaignKeys, CampaignPlace, beneath};

impl Verifier {
    /// The names and digests of a shard, where its files stand.
    ///
    /// # Errors
    /// The fault of a queue that does not answer, and of a campaign that cannot be understood. That
    /// of a shard which cannot be read is within.
    pub(super) async fn files_of(&self, given: &VerifyShard) -> Result<Result<ShardFiles, Fault>, Fault> {
        let (dest, keys) = destination_of(given, self.orders.at.as_deref())?;
        let shard = given.shard.clone();
        let found = self.transact(move |rows| match segment_of(rows, &shard) {
            Err(error @ JobsError::Store { .. }) => Err(error),
            found => Ok(found),
        });
        let segment = match found.await? {
            Ok(segment) => segment,
            Err(error) => return Ok(Err(fault_of_jobs(&error))),
        };
        let (shelf, given, here) = (self.shelf.clone(), given.clone(), dest.clone());
        let roots = self.orders.mend.as_ref().and_then(|mend| mend.roots.clone());
        let names = blocking(move || {
            if let CampaignPlace::Here(dest) = &here {
                is_there(dest)?;
            }
            ShardNames::read((&shelf, roots.as_deref()), &segment, &given)
        });
        let names = match names.await? {
            Ok(names) => names,
            Err(fault) => return Ok(Err(fault)),
        };
        let (shown, onto) = (dest.shown(), names.onto.clone());
        let ground = match dest {
            CampaignPlace::Here(dest) => Ok((FilesGround::Here(beneath(&dest, &onto)), PlaceMark::Inode(dest))),
            CampaignPlace::Daemon { host, port, path } => {
                let reach = Reach::Address { host, port };
                let path = RemotePath { slash: true, ..path };
                self.far_ground((reach, path, onto), &keys).await
            }
        };
        Ok(ground.map(|(ground, mark)| names.at(ground, (shown, mark))))
    }

    /// Asks a daemon for the directory in which it has the files of a campaign.
    async fn far_ground(
        &self,
        (reach, path, onto): (Reach, RemotePath, RelPath),
        keys: &CampaignKeys,
    ) -> Result<(FilesGround, PlaceMark), Fault> {
        let (ring, keys) = (self.keys.clone(), keys.clone());
        let credentials = blocking(move || ring.credentials(&keys)).await??;
        // A signal ends it by dropping it.
        let (_trigger, stop) = Stop::new();
        let (ground, mark) = FarGround::open(credentials.at(reach), path, onto, &stop).await?;
        Ok((FilesGround::There(Box::new(ground)), mark))
    }
}

fn segment_of(rows: &mut dyn Rows, shard: &longhaul_jobs::Shard) -> Result<longhaul_jobs::Segment, JobsError> {
    let segments = rows.segments(shard.campaign)?;
    let found = segments.into_iter().find(|segment| segment.number == shard.part.segment);
    found.ok_or(JobsError::BadRow("a shard is of a segment that is not there"))
}
