//! The allocations of a workflow that runs on Slurm, while it is watched: whether some are left, and that new ones are asked for
//! where jobs wait for them.

use crate::args::recover::WatchArgs;
use crate::clusters;
use crate::context::Context;
use crate::error::CliError;
use crate::recovery::allocations::{self, Asked};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use windlass_core::slurm::autoschedule::{Cause, Settings, Unplanned, Verdict, decide};
use windlass_core::slurm::profile::Profile;
use windlass_insight::allocating::{self, Gathered, Wanted};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{JobId, JobStatus, Timestamp, WorkflowId};

/// Whether somebody will come to work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    Coming,
    /// Jobs are ready, and nobody will.
    Gone,
}

/// The shortest time between two looks; a look that takes long is taken less often.
const PAUSE: Duration = Duration::from_secs(1);
const SHARE: u32 = 10;
/// So often in a row nobody is coming before that is believed.
const CERTAIN: u32 = 3;

pub(super) struct Attendant<'a> {
    ctx: &'a Context,
    args: &'a WatchArgs,
    /// Of the cluster, if allocations are to be asked for.
    profile: Option<Profile>,
    /// Since when jobs are seen to be ready.
    ready_since: HashMap<JobId, Timestamp>,
    /// When allocations were last asked for.
    last: Option<Timestamp>,
    /// How far the workflow was then.
    progress: Option<u64>,
    rests_until: Instant,
    /// So often nobody was coming, one time after the other: what is written in several commits is seen in between.
    alone: u32,
    has_given_up: bool,
    has_complained: bool,
}

impl<'a> Attendant<'a> {
    /// `None`: the workflow does not run on Slurm.
    pub(super) fn of(
        ctx: &'a Context,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &'a WatchArgs,
    ) -> Result<Option<Self>, CliError> {
        if !allocating::is_on_slurm(store, workflow)? {
            if args.slurm.auto_schedule {
                ctx.ui.warn("--auto-schedule has nothing to do: the workflow has no scheduler for Slurm");
            }
            return Ok(None);
        }
        let named = args.how.allocations.profile.profile.as_deref();
        let profile = args.slurm.auto_schedule.then(|| clusters::find(ctx, named)).transpose()?;
        Ok(Some(Self {
            ctx,
            args,
            profile,
            ready_since: HashMap::new(),
            last: None,
            progress: None,
            rests_until: Instant::now(),
            alone: 0,
            has_given_up: false,
            has_complained: false,
        }))
    }

    pub(super) const fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// Looks at how it stands, if it is time, and asks for allocations if they are due.
    pub(super) fn look(&mut self, store: &dyn Store, row: &WorkflowRow) -> Result<Nodes, CliError> {
        if row.counts.get(JobStatus::Ready) == 0 {
            self.ready_since.clear();
            return Ok(Nodes::Coming);
        }
        if Instant::now() < self.rests_until {
            return Ok(Nodes::Coming);
        }
        let began = Instant::now();
        let nodes = match self.profile.clone() {
            Some(profile) => self.schedule(store, row, &profile)?,
            None => self.is_anybody_coming(store, row)?,
        };
        self.rests_until = Instant::now() + (began.elapsed() * SHARE).max(PAUSE);
        self.alone = if nodes == Nodes::Gone { self.alone + 1 } else { 0 };
        self.has_given_up = self.alone >= CERTAIN;
        Ok(if self.has_given_up { Nodes::Gone } else { Nodes::Coming })
    }

    fn is_anybody_coming(&self, store: &dyn Store, row: &WorkflowRow) -> Result<Nodes, CliError> {
        let waits = self.args.slurm.persistent || row.counts.active() > 0;
        if waits || allocating::is_served(store, row.id)? || self.has_workers(row)? {
            return Ok(Nodes::Coming);
        }
        Ok(Nodes::Gone)
    }

    /// Workers that nobody asked Slurm for.
    fn has_workers(&self, row: &WorkflowRow) -> Result<bool, CliError> {
        Ok(match self.ctx.server()? {
            Some(client) => !client.workers(Some(row.id))?.is_empty(),
            None => true,
        })
    }

    fn schedule(
        &mut self,
        store: &dyn Store,
        row: &WorkflowRow,
        profile: &Profile,
    ) -> Result<Nodes, CliError> {
        let now = self.ctx.clock.now();
        let account = allocations::default_account(row);
        let options = self.args.how.allocations.options(account.as_deref());
        let wanted = Wanted { options: &options, include: &[], submit: true, by: &row.user };
        let gathered = Gathered::read(store, row, &[])?;
        let plan = match gathered.plan(profile, &wanted) {
            Ok(plan) => plan,
            Err(why) => {
                // Others may run all the same.
                if !self.has_complained {
                    self.has_complained = true;
                    self.ctx.ui.warn(&format!("no allocations are asked for: {why}"));
                }
                return self.is_anybody_coming(store, row);
            }
        };
        if !plan.unfit.is_empty() && !self.has_complained {
            self.has_complained = true;
            allocations::warn_of_unfit(self.ctx, &plan.unfit);
        }
        let unplanned = gathered.unplanned(&plan, &self.ready_since, now);
        self.ready_since = unplanned.iter().map(|job: &Unplanned| (job.id, job.ready_since)).collect();
        let open = gathered.open(self.progress);
        match decide(&unplanned, self.last, open, &self.settings(), now) {
            Verdict::Nothing | Verdict::Wait { .. } => Ok(Nodes::Coming),
            Verdict::Schedule(cause) => {
                self.progress = Some(gathered.progress());
                self.ask(store, row, profile, cause)
            }
        }
    }

    const fn settings(&self) -> Settings {
        let args = &self.args.slurm;
        Settings {
            threshold: args.auto_schedule_threshold,
            cooldown: Duration::from_secs(args.auto_schedule_cooldown),
            stranded: Duration::from_secs(args.auto_schedule_stranded_timeout),
        }
    }

    fn ask(
        &mut self,
        store: &dyn Store,
        row: &WorkflowRow,
        profile: &Profile,
        cause: Cause,
    ) -> Result<Nodes, CliError> {
        let account = allocations::default_account(row);
        let options = self.args.how.allocations.options(account.as_deref());
        let asked = Asked { options, include: Vec::new(), submit: true, dry_run: false };
        self.last = Some(self.ctx.clock.now());
        let done = allocations::ask(self.ctx, store, row, profile, &asked)?;
        if done.is_nothing() {
            // Somebody else was quicker.
            return Ok(Nodes::Coming);
        }
        let why = match cause {
            Cause::Enough => "enough jobs are ready that no allocation is asked for",
            Cause::Stranded => "a job is ready for long, and no allocation is asked for it",
            Cause::Alone => "jobs are ready, and no allocation is left",
        };
        self.ctx.ui.note(&format!("{why}: {}", allocations::in_words(&done)));
        Ok(Nodes::Coming)
    }
}
