//! `job`: adds, plans, shows, steers and moves campaigns of bulk replication.
//!
//! `add` makes a campaign of locations and options, of which `keys_kept` keeps the keys, `plan`
//! lists its files, `shared` takes those of a family's other members, `members` are the campaigns
//! that a name stands for, `look` tells of it, `follow` waits for it, `steer` holds, releases,
//! cancels and retries it, `rules` changes the rules by which it goes, `site` bounds the movers at
//! its hosts and `link` those between them, `run` moves its shards, `verify` reads back what it
//! delivered, and copies bad files anew as `mend` has understood it.
//! In: parsed arguments. Out: rows of the queue and lines of `output`. The rules are
//! `longhaul-jobs`; nothing here decides which shard is next.

mod add;
mod follow;
pub(super) mod keys_kept;
mod link;
mod look;
mod members;
mod mend;
mod plan;
mod rules;
mod run;
mod shared;
mod site;
mod steer;
mod verify;

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use longhaul_core::Fault;
use longhaul_jobs::left::left;
use longhaul_jobs::{Campaign, CampaignId, Left, Store};
use longhaul_jobs_postgres::{Passwords, Place};

use self::members::{Members, campaigns, of_one};
use super::Context;
use crate::cli::TalkOptions;
use crate::cli::job::JobVerb;
use crate::error::Error;
use crate::exit::Exit;
use crate::jobs::{CampaignSpec, QueuePlace, QueueStore, Signed, fault_of_jobs, signed};
use crate::output::{self, CampaignTold, JobTelling};
use crate::settings;

/// The telling on standard output.
type JobOutput = JobTelling<BufWriter<io::Stdout>>;

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(verb: &JobVerb, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(talk_of(verb), &layers)?;
    context.talk(talk);
    let mut telling = JobTelling::new(BufWriter::new(io::stdout()), talk);
    let done = match verb {
        JobVerb::Add(args) => add::add(args, &layers, talk, context, &mut telling),
        JobVerb::Plan(args) => plan::plan(args, &layers, talk, context, &mut telling),
        JobVerb::Ls(args) => look::list(args, context, &mut telling),
        JobVerb::Show(args) => look::show(args, context, &mut telling),
        JobVerb::Left(args) => look::tell_left(args, context, &mut telling),
        JobVerb::Report(args) => look::report(args, context, &mut telling),
        JobVerb::Wait(args) => follow::wait(args, context, &mut telling),
        JobVerb::Watch(args) => follow::watch(args, context, &mut telling),
        JobVerb::Hold(args) => steer::steer(args, steer::Step::Hold, context, &mut telling),
        JobVerb::Release(args) => steer::steer(args, steer::Step::Release, context, &mut telling),
        JobVerb::Cancel(args) => steer::steer(args, steer::Step::Cancel, context, &mut telling),
        JobVerb::Retry(args) => steer::retry_faults(args, context, &mut telling),
        JobVerb::Set(args) => rules::set(args, context, &mut telling),
        JobVerb::Site(args) => site::site(args, context, &mut telling),
        JobVerb::Link(args) => link::link(args, context, &mut telling),
        JobVerb::Run(args) => {
            return Ok(run::run(args, &layers, talk, context, telling)
                .unwrap_or_else(|error| output::refuse(talk.json, error)));
        }
        JobVerb::Verify(args) => {
            return Ok(verify::run((args, &layers), talk, context, telling)
                .unwrap_or_else(|error| output::refuse(talk.json, error)));
        }
    };
    match done {
        Ok(()) => Ok(telling.end()),
        Err(error) => {
            telling.failed(&Fault::from(error));
            Ok(telling.end())
        }
    }
}

fn talk_of(verb: &JobVerb) -> &TalkOptions {
    match verb {
        JobVerb::Add(args) => &args.transfer.output.talk,
        JobVerb::Plan(args) => &args.queue.talk,
        JobVerb::Ls(args) => &args.talk,
        JobVerb::Show(args)
        | JobVerb::Left(args)
        | JobVerb::Report(args)
        | JobVerb::Hold(args)
        | JobVerb::Release(args)
        | JobVerb::Cancel(args) => &args.queue.talk,
        JobVerb::Wait(args) => &args.campaign.queue.talk,
        JobVerb::Watch(args) => &args.campaign.queue.talk,
        JobVerb::Retry(args) => &args.campaign.queue.talk,
        JobVerb::Set(args) => &args.campaign.queue.talk,
        JobVerb::Site(args) => &args.queue.talk,
        JobVerb::Link(args) => &args.queue.talk,
        JobVerb::Run(args) => &args.queue.talk,
        JobVerb::Verify(args) => &args.campaign.queue.talk,
    }
}

/// The queue that is named, by option or variable, or this user's.
fn queue_place(named: &Option<OsString>, context: Context) -> Result<QueuePlace, Error> {
    let named = named.clone().or_else(|| context.variable("queue"));
    let is_url = named.as_ref().is_some_and(|named| Place::is_meant(named.as_encoded_bytes()));
    let passwords = if is_url { passwords(context)? } else { Passwords::default() };
    QueuePlace::at(named, &context.places(), passwords)
}

/// The passwords of databases, where PostgreSQL's own programs look for them.
fn passwords(context: Context) -> Result<Passwords, Error> {
    let given = |name| (context.environment)(name).filter(|text| !text.is_empty());
    let text = |password: OsString| {
        let why = "the password in PGPASSWORD is no text";
        password.into_string().map_err(|_| Error::Combination { why, hint: "write it as UTF-8" })
    };
    let any = given("PGPASSWORD").map(text).transpose()?.map(Into::into);
    let file = given("PGPASSFILE").map(PathBuf::from);
    let file = file.or_else(|| given("HOME").map(|home| PathBuf::from(home).join(".pgpass")));
    Ok(Passwords { any, file })
}

/// A campaign, its figures, and what its signature says.
struct Figures {
    campaign: Campaign,
    left: Left,
    signed: Signed,
}

/// A queue and a campaign in it: one of those of [`Members`].
struct Named<'s> {
    store: &'s mut QueueStore,
    id: CampaignId,
}

impl Named<'_> {
    /// The campaign and its figures, as they are now.
    fn figures(&mut self) -> Result<Figures, Error> {
        figures(self.store, self.id)
    }

    /// A rule, carried out in one transaction.
    fn transact<T>(
        &mut self,
        work: impl FnMut(&mut dyn longhaul_jobs::Rows) -> Result<T, longhaul_jobs::JobsError>,
    ) -> Result<T, Error> {
        self.store.transact(work).map_err(queue_failed)
    }
}

fn figures(store: &mut QueueStore, id: CampaignId) -> Result<Figures, Error> {
    let found = store.transact(|rows| {
        let campaign = rows.campaign(id)?.ok_or(longhaul_jobs::JobsError::NoCampaign(id))?;
        let (left, signed) = (left(rows, id)?, signed(rows, &campaign)?);
        Ok(Figures { campaign, left, signed })
    });
    found.map_err(queue_failed)
}

fn queue_failed(error: longhaul_jobs::JobsError) -> Error {
    fault_of_jobs(&error).into()
}

/// A campaign with the words of its transfers. A spec that this program cannot read is told so.
fn told(Figures { campaign, left, signed }: &Figures) -> CampaignTold<'_> {
    let (ends, dialler) = match CampaignSpec::decode(&campaign.spec) {
        Ok(spec) => {
            let from = spec.sources.iter().map(crate::jobs::CampaignSource::shown).collect();
            ((from, spec.shown_to()), spec.dialler().map(settings::dialler_name))
        }
        Err(fault) => ((Vec::new(), fault.message.to_string()), None),
    };
    let owner = match signed {
        Signed::By(owner, _) => Ok(owner.to_string()),
        Signed::Nobody => Err("nobody has signed it"),
        _ => Err("what the queue says is not what its owner signed"),
    };
    CampaignTold { campaign, ends, dialler, owner, left }
}
