//! `job verify`: the verifier as a command.
//!
//! In: arguments. The campaigns of a family are read one after the other. Out: bad files, told as
//! they are found, the figures at the end, and the exit. The first signal ends the reading in
//! order.

use std::path::absolute;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::{Fault, FaultCode};
use longhaul_jobs::queue::verify_figures;
use longhaul_jobs::{CampaignId, ShardId, pace};
use tokio::sync::watch;
use tokio::time::Instant;

use super::add::parsed;
use super::run::RunKeys;
use super::{JobOutput, Members, Named, mend, of_one, queue_place};
use crate::cli::job::JobVerifyArgs;
use crate::commands::{Context, block_on};
use crate::error::Error;
use crate::exit::Exit;
use crate::jobs::mover::Halt;
use crate::jobs::{
    AbsenceUse, BadNews, ChangedUse, KeyRing, MendedFile, QueuePlace, ShardRead, SharedQueue, Verifier, VerifyEnd,
    VerifyObserver, VerifyOrders, VerifyUntil,
};
use crate::output::{Talker, VerifyTold};
use crate::settings::{self, Layers, Talk};
use crate::signals::{self, Asking, Hangup};
use crate::values;

/// Runs the verifier.
pub(super) fn run(
    (args, layers): (&JobVerifyArgs, &Layers),
    talk: Talk,
    context: Context,
    telling: JobOutput,
) -> Result<Exit, Error> {
    let given = settings::keys(&args.keys, layers)?;
    let mut members = Members::find(&args.campaign, context)?;
    refuse_for_family(args, &members)?;
    let place = queue_place(&args.campaign.queue.queue, context)?;
    let all = members.all().iter().map(|campaign| Ok((campaign.name.clone(), orders(args, campaign.id)?)));
    let all: Vec<_> = all.collect::<Result<_, Error>>()?;
    let asking = Asking::default();
    let keys = Arc::new(RunKeys { given, places: context.places(), talker: Talker::new(talk), asking: asking.clone() });
    let (stop, halt) = watch::channel(None);
    signals::watch(asking.clone(), Hangup::Stops, move |code| {
        stop.send_replace(Some(code));
    })
    .map_err(Error::file("watch the signals of", "this process"))?;
    let told = Arc::new(VerifyTelling(Mutex::new(Some(telling))));
    let (is_family, begun) = (members.is_family(), Instant::now());
    for (name, orders) in all {
        // The members of a family share the time that there is.
        let deadline = orders.time_max.and_then(|time| begun.checked_add(time));
        let mut named = members.named(orders.campaign);
        let before = told.telling().as_mut().map(JobOutput::set_exit_aside);
        let mend = mend::orders(&args.mend, (&mut named, orders.at.as_deref()), (&keys.given, &place, context));
        let ended = mend.and_then(|mend| {
            let orders = VerifyOrders { deadline, mend, ..orders };
            verify_one(&mut named, (&place, &keys), orders, (halt.clone(), &told))
        });
        let goes_on = match ended {
            // What is known of the others is told also if nothing more of them is read.
            Ok(early) => early.is_none_or(|code| code == FaultCode::TimedOut),
            Err(error) if is_family => {
                told.failed(&of_one(&name, error));
                true
            }
            Err(error) => return Err(error),
        };
        if let (Some(telling), Some(before)) = (&mut *told.telling(), before) {
            telling.join_exit(before);
        }
        if !goes_on {
            break;
        }
    }
    asking.end();
    Ok(told.take(talk).end())
}

/// Verifies a campaign, and tells how it is. Gives the code of what ended it early, if anything
/// did.
fn verify_one(
    named: &mut Named,
    (place, keys): (&QueuePlace, &Arc<RunKeys>),
    orders: VerifyOrders,
    (halt, told): (Halt, &Arc<VerifyTelling>),
) -> Result<Option<FaultCode>, Error> {
    let (cycle, budget) = (orders.cycle, orders.budget);
    let queue = (SharedQueue::new(place.open()?), place.shelf());
    let verifier = Verifier::new(queue, Arc::clone(keys) as Arc<dyn KeyRing>, orders, told.clone());
    let mut end = VerifyEnd::default();
    if let Err(fault) = block_on(verifier.run(halt, &mut end))? {
        told.failed(&fault);
    }
    let id = named.id;
    let campaign = named.figures()?.campaign;
    let figures = named.transact(|rows| verify_figures(rows, id, cycle))?;
    let pace = pace(figures.sums.total.bytes, cycle, budget);
    let VerifyEnd { failed, mended, early, .. } = end;
    if let Some(telling) = &mut *told.telling() {
        // What was read is recorded, and the next run goes on there.
        early.filter(|code| *code != FaultCode::TimedOut).into_iter().for_each(|code| telling.exits(code.into()));
        let told = VerifyTold { name: &campaign.name, figures: &figures, cycle, budget, pace, failed, mended };
        telling.verified(&told);
    }
    Ok(early)
}

/// Refuses options that are about one campaign, and a reading that would never come to the next
/// one.
fn refuse_for_family(args: &JobVerifyArgs, members: &Members) -> Result<(), Error> {
    let refuse = |why, hint| Err(Error::Combination { why, hint });
    if members.is_family() && args.at.is_some() {
        let why = "--at is the directory of one campaign, and a family of them was named";
        return refuse(why, "name one of its campaigns: 'longhaul job ls' lists them");
    }
    if members.is_family() && !args.once {
        let why = "the campaigns of a family are read one after the other, and without --once the first has no end";
        return refuse(why, "give --once, or name one of its campaigns: 'longhaul job ls' lists them");
    }
    Ok(())
}

fn orders(args: &JobVerifyArgs, campaign: CampaignId) -> Result<VerifyOrders, Error> {
    let cycle = parsed("cycle", &args.cycle, |text| {
        values::time_between(text, CYCLE_MIN..=CYCLE_MAX, "a time from 1h to 3650d, as 90d")
    })?;
    let at = args.at.as_ref().map(|at| absolute(at).map_err(Error::file("find", at))).transpose()?;
    Ok(VerifyOrders {
        campaign,
        at,
        cycle: cycle.unwrap_or(CYCLE),
        budget: parsed("budget", &args.budget, values::rate)?,
        until: if args.once { VerifyUntil::NothingDue } else { VerifyUntil::Never },
        time_max: parsed("max-time", &args.max_time, values::retry_for)?,
        deadline: None,
        changed: if args.ignore_changed { ChangedUse::PassedOver } else { ChangedUse::Bad },
        absences: if args.believe_losses { AbsenceUse::Believed } else { AbsenceUse::Doubted },
        memory: parsed("memory", &args.memory, values::size)?,
        mend: None,
    })
}

/// Tells what the verifier does.
struct VerifyTelling(Mutex<Option<JobOutput>>);

impl VerifyTelling {
    fn telling(&self) -> MutexGuard<'_, Option<JobOutput>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, fault: &Fault) {
        if let Some(telling) = &mut *self.telling() {
            telling.failed(fault);
        }
    }

    /// The telling, for the end. Whoever tells after that is not heard.
    fn take(&self, talk: Talk) -> JobOutput {
        let fresh = || JobOutput::new(std::io::BufWriter::new(std::io::stdout()), talk);
        self.telling().take().unwrap_or_else(fresh)
    }
}

impl VerifyObserver for VerifyTelling {
    fn bad(&self, news: &BadNews) {
        if let Some(telling) = &mut *self.telling() {
            telling.bad_file(news);
        }
    }

    fn mended(&self, shard: ShardId, file: &MendedFile) {
        if let Some(telling) = &mut *self.telling() {
            telling.mended(shard, file);
        }
    }

    fn shard_read(&self, read: &ShardRead) {
        if let Some(telling) = &mut *self.telling() {
            telling.shard_read(read);
            telling.flush();
        }
    }

    fn trouble(&self, fault: &Fault) {
        if let Some(telling) = &mut *self.telling() {
            telling.trouble(fault);
        }
    }
}

const CYCLE: Duration = Duration::from_secs(90 * DAY);
const CYCLE_MIN: Duration = Duration::from_secs(3600);
const CYCLE_MAX: Duration = Duration::from_secs(3650 * DAY);
const DAY: u64 = 86_400;
