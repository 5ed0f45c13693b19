//! Allocations of a watched workflow on Slurm: checks whether some are left, and requests new ones when jobs
//! wait for them.

use crate::args::recover::WatchArgs;
use crate::cluster_profiles;
use crate::context::CliContext;
use crate::error::CliError;
use crate::recovery::allocations::{self, AllocationRescheduleOptions};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use windlass_core::slurm::autoschedule::{
    AutoscheduleDecision, AutoscheduleSettings, ScheduleCause, UnservedJob, decide_autoschedule,
};
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_insight::allocation_planning::{self, AllocationFacts, NewAllocationOptions};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{JobId, JobStatus, Timestamp, WorkflowId};

/// Whether workers can be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerExpectation {
    Expected,
    /// Jobs are ready, but no worker will come.
    Absent,
}

/// Minimum time between two checks; slow checks are made less often.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const CHECK_TIME_SHARE: u32 = 10;
/// Number of consecutive negative checks that count as certain.
const CHECKS_UNTIL_CERTAIN: u32 = 3;

pub(super) struct AllocationWatcher<'a> {
    ctx: &'a CliContext,
    args: &'a WatchArgs,
    /// The cluster, if allocations are to be requested.
    profile: Option<ClusterProfile>,
    /// Since when each job is known to be ready.
    ready_since: HashMap<JobId, Timestamp>,
    /// When allocations were last requested.
    last_requested: Option<Timestamp>,
    /// The progress of the workflow at that time.
    progress_at_request: Option<u64>,
    next_check: Instant,
    /// Consecutive negative checks: one check may see a state between two related commits.
    checks_without_nodes: u32,
    has_given_up: bool,
    has_warned: bool,
}

impl<'a> AllocationWatcher<'a> {
    /// `None`: the workflow does not run on Slurm.
    pub(super) fn for_workflow(
        ctx: &'a CliContext,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &'a WatchArgs,
    ) -> Result<Option<Self>, CliError> {
        if !allocation_planning::is_on_slurm(store, workflow)? {
            if args.slurm.auto_schedule {
                ctx.ui.print_warning("--auto-schedule has no effect: the workflow has no Slurm scheduler");
            }
            return Ok(None);
        }
        let named = args.recovery.allocations.profile.profile.as_deref();
        let profile =
            args.slurm.auto_schedule.then(|| cluster_profiles::find_profile(ctx, named)).transpose()?;
        Ok(Some(Self {
            ctx,
            args,
            profile,
            ready_since: HashMap::new(),
            last_requested: None,
            progress_at_request: None,
            next_check: Instant::now(),
            checks_without_nodes: 0,
            has_given_up: false,
            has_warned: false,
        }))
    }

    pub(super) const fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// Checks the state if it is time, and requests allocations if they are due.
    pub(super) fn check_allocations(
        &mut self,
        store: &dyn Store,
        row: &WorkflowRow,
    ) -> Result<WorkerExpectation, CliError> {
        if row.counts.get(JobStatus::Ready) == 0 {
            self.ready_since.clear();
            return Ok(WorkerExpectation::Expected);
        }
        if Instant::now() < self.next_check {
            return Ok(WorkerExpectation::Expected);
        }
        let began = Instant::now();
        let nodes = match self.profile.clone() {
            Some(profile) => self.request_when_due(store, row, &profile)?,
            None => self.check_nodes(store, row)?,
        };
        self.next_check = Instant::now() + (began.elapsed() * CHECK_TIME_SHARE).max(MIN_CHECK_INTERVAL);
        self.checks_without_nodes =
            if nodes == WorkerExpectation::Absent { self.checks_without_nodes + 1 } else { 0 };
        self.has_given_up = self.checks_without_nodes >= CHECKS_UNTIL_CERTAIN;
        Ok(if self.has_given_up { WorkerExpectation::Absent } else { WorkerExpectation::Expected })
    }

    fn check_nodes(&self, store: &dyn Store, row: &WorkflowRow) -> Result<WorkerExpectation, CliError> {
        let waits = self.args.slurm.persistent || row.counts.active() > 0;
        if waits
            || allocation_planning::has_open_or_due_allocation(store, row.id)?
            || self.has_workers(row)?
        {
            return Ok(WorkerExpectation::Expected);
        }
        Ok(WorkerExpectation::Absent)
    }

    /// Whether there are workers, also those outside of allocations.
    fn has_workers(&self, row: &WorkflowRow) -> Result<bool, CliError> {
        Ok(match self.ctx.server()? {
            Some(client) => !client.workers(Some(row.id))?.is_empty(),
            None => true,
        })
    }

    fn request_when_due(
        &mut self,
        store: &dyn Store,
        row: &WorkflowRow,
        profile: &ClusterProfile,
    ) -> Result<WorkerExpectation, CliError> {
        let now = self.ctx.clock.now();
        let account = allocations::default_account(row);
        let options = self.args.recovery.allocations.options(account.as_deref());
        let wanted =
            NewAllocationOptions { options: &options, included_jobs: &[], submit: true, by: &row.user };
        let gathered = AllocationFacts::load(store, row, &[])?;
        let plan = match gathered.plan_schedule(profile, &wanted) {
            Ok(plan) => plan,
            Err(why) => {
                // Other jobs may still run.
                if !self.has_warned {
                    self.has_warned = true;
                    self.ctx.ui.print_warning(&format!("no allocations are requested: {why}"));
                }
                return self.check_nodes(store, row);
            }
        };
        if !plan.unfit.is_empty() && !self.has_warned {
            self.has_warned = true;
            allocations::warn_of_unfit(self.ctx, &plan.unfit);
        }
        let unplanned = gathered.find_unplanned_jobs(&plan, &self.ready_since, now);
        self.ready_since = unplanned.iter().map(|job: &UnservedJob| (job.id, job.ready_since)).collect();
        let open = gathered.open_state(self.progress_at_request);
        match decide_autoschedule(&unplanned, self.last_requested, open, &self.schedule_settings(), now) {
            AutoscheduleDecision::Nothing | AutoscheduleDecision::Wait { .. } => {
                Ok(WorkerExpectation::Expected)
            }
            AutoscheduleDecision::Schedule(cause) => {
                self.progress_at_request = Some(gathered.progress());
                self.request_allocations(store, row, profile, cause)
            }
        }
    }

    const fn schedule_settings(&self) -> AutoscheduleSettings {
        let args = &self.args.slurm;
        AutoscheduleSettings {
            threshold: args.auto_schedule_threshold,
            cooldown: Duration::from_secs(args.auto_schedule_cooldown),
            stranded_after: Duration::from_secs(args.auto_schedule_stranded_timeout),
        }
    }

    fn request_allocations(
        &mut self,
        store: &dyn Store,
        row: &WorkflowRow,
        profile: &ClusterProfile,
        cause: ScheduleCause,
    ) -> Result<WorkerExpectation, CliError> {
        let account = allocations::default_account(row);
        let options = self.args.recovery.allocations.options(account.as_deref());
        let asked =
            AllocationRescheduleOptions { options, include: Vec::new(), submit: true, dry_run: false };
        self.last_requested = Some(self.ctx.clock.now());
        let done = allocations::reschedule(self.ctx, store, row, profile, &asked)?;
        if done.is_empty() {
            // Another process was faster.
            return Ok(WorkerExpectation::Expected);
        }
        let why = match cause {
            ScheduleCause::Enough => "enough jobs are ready without an allocation",
            ScheduleCause::Stranded => "a job has been ready for long without an allocation",
            ScheduleCause::Alone => "jobs are ready, but no allocation is left",
        };
        self.ctx.ui.print_note(&format!("{why}: {}", allocations::render_summary(&done)));
        Ok(WorkerExpectation::Expected)
    }
}
