//! New Slurm allocations for the remaining jobs of a workflow, as requested by `slurm regenerate`, `recover`
//! and `watch`. This only writes to the database; the server calls Slurm.

use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind};
use crate::slurm_packing;
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use serde::Serialize;
use windlass_core::slurm::allocation_groups::AllocationOptions;
use windlass_core::slurm::allocation_rows::{AllocationSchedule, AppliedSchedule};
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_core::slurm::schedule_regeneration::RegenerateError;
use windlass_insight::allocation_planning::{
    self, AllocationFacts, NewAllocationOptions, RescheduleError, SchedulerShare,
};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{AllocationId, JobId, Resources, WorkflowId};

/// The request.
#[derive(Clone, Debug)]
pub(crate) struct AllocationRescheduleOptions {
    pub(crate) options: AllocationOptions,
    /// Include these jobs regardless of their state.
    pub(crate) include: Vec<JobId>,
    /// Submit allocations for ready jobs immediately.
    pub(crate) submit: bool,
    pub(crate) dry_run: bool,
}

/// The result, done or planned, as in JSON output.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AllocationRescheduleResult {
    workflow_id: WorkflowId,
    dry_run: bool,
    /// Jobs that still have to run.
    pending_jobs: usize,
    /// Actions that no longer fire.
    marked_executed: Vec<i64>,
    schedulers: Vec<SchedulerShare>,
    /// Actions that request allocations when jobs become ready.
    recovery_actions: usize,
    /// Submitted allocations.
    pub(crate) allocations: Vec<AllocationId>,
    /// Jobs that fit nowhere, for which nothing is requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unfit: Vec<String>,
}

impl AllocationRescheduleOptions {
    fn to_request<'a>(&'a self, workflow: &'a WorkflowRow) -> NewAllocationOptions<'a> {
        let Self { options, include, submit, .. } = self;
        // A server determines the caller itself.
        NewAllocationOptions { options, included_jobs: include, submit: *submit, by: &workflow.user }
    }
}

impl AllocationRescheduleResult {
    /// `made`: the changes were applied.
    fn new(
        workflow: &WorkflowRow,
        gathered: &AllocationFacts,
        schedule: AllocationSchedule,
        made: Option<AppliedSchedule>,
    ) -> Self {
        Self {
            workflow_id: workflow.id,
            dry_run: made.is_none(),
            pending_jobs: gathered.pending_count(),
            schedulers: allocation_planning::scheduler_shares(gathered, &schedule),
            recovery_actions: schedule.actions.len(),
            unfit: schedule.unfit,
            marked_executed: schedule.mark_executed,
            allocations: made.map(|made| made.allocations).unwrap_or_default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.schedulers.is_empty() && self.marked_executed.is_empty()
    }

    /// Number of allocations that are, or would be, submitted immediately.
    pub(crate) fn submitted_count(&self) -> usize {
        self.schedulers.iter().map(|share| share.submitted).sum()
    }
}

/// The default Slurm account.
pub(crate) fn default_account(workflow: &WorkflowRow) -> Option<String> {
    workflow.settings.slurm_defaults.get("account").and_then(|account| account.as_str()).map(str::to_owned)
}

/// Plans, and stores the plan unless it is a dry run.
pub(crate) fn reschedule(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
    profile: &ClusterProfile,
    asked: &AllocationRescheduleOptions,
) -> Result<AllocationRescheduleResult, CliError> {
    if asked.dry_run {
        return plan_reschedule(store, workflow, profile, asked, &|_| None);
    }
    let done = allocation_planning::reschedule_allocations(
        store,
        workflow,
        profile,
        &asked.to_request(workflow),
        || ctx.clock.now(),
    );
    let (gathered, schedule, made) = done.map_err(|error| schedule_error(error, profile))?;
    Ok(AllocationRescheduleResult::new(workflow, &gathered, schedule, Some(made)))
}

pub(super) fn schedule_error(error: RescheduleError, profile: &ClusterProfile) -> CliError {
    match error {
        RescheduleError::Store(error) => error.into(),
        RescheduleError::Plan(why) => no_schedule_error(&why, profile),
    }
}

/// The plan without storing it; `then` holds the future requirements of jobs that will be reset.
pub(crate) fn plan_reschedule(
    store: &dyn Store,
    workflow: &WorkflowRow,
    profile: &ClusterProfile,
    asked: &AllocationRescheduleOptions,
    then: &dyn Fn(JobId) -> Option<Resources>,
) -> Result<AllocationRescheduleResult, CliError> {
    let mut gathered = AllocationFacts::load(store, workflow, &asked.include)?;
    gathered.assume_requeued(then);
    let schedule = gathered
        .plan_schedule(profile, &asked.to_request(workflow))
        .map_err(|why| no_schedule_error(&why, profile))?;
    Ok(AllocationRescheduleResult::new(workflow, &gathered, schedule, None))
}

fn no_schedule_error(why: &RegenerateError, profile: &ClusterProfile) -> CliError {
    let cluster = slurm_packing::cluster_title(profile);
    let hint = match why {
        RegenerateError::Unfit(_) => {
            format!(
                "lower the requirements; `windlass slurm hpc partitions` lists the partitions of {cluster}"
            )
        }
        RegenerateError::Request(_) => "change the scheduler, or slurm_defaults of the workflow".to_owned(),
    };
    CliError::new(CliErrorKind::Refused, why.to_string()).with_hint(hint)
}

/// Whether the server in use was started without --slurm.
pub(crate) fn is_without_slurm(ctx: &CliContext) -> Result<bool, CliError> {
    let Some(client) = ctx.server()? else { return Ok(false) };
    Ok(client.slurm_status()?.reconciler.is_none())
}

/// Prints the result as text or JSON.
pub(crate) fn print_result(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    done: &AllocationRescheduleResult,
) -> Result<(), CliError> {
    if ctx.ui.wants_json() {
        return ctx.ui.print_json(done);
    }
    let of = format!("workflow {} ({})", workflow.id, text::one_line(&workflow.name));
    ctx.ui.print_line(&format!("{of}: {}", render_summary(done)))?;
    print_shares(ctx, done)
}

/// Without the headline.
pub(crate) fn print_shares(ctx: &CliContext, done: &AllocationRescheduleResult) -> Result<(), CliError> {
    if !done.schedulers.is_empty() {
        ctx.ui.print_table(&render_table(done))?;
    }
    warn_of_unfit(ctx, &done.unfit);
    for line in next_steps(ctx, done)? {
        ctx.ui.print_note(&line);
    }
    Ok(())
}

/// Warns about jobs that fit no allocation.
pub(crate) fn warn_of_unfit(ctx: &CliContext, unfit: &[String]) {
    for fault in unfit {
        ctx.ui.print_warning(&format!("no allocation is requested for it: {fault}"));
    }
}

/// `2 allocations requested, 1 allocation when jobs are ready`.
pub(crate) fn render_summary(done: &AllocationRescheduleResult) -> String {
    if done.is_empty() {
        return match done.pending_jobs {
            0 => "no jobs left to run; no allocations requested".to_owned(),
            1 => "1 job left, allocations are already requested".to_owned(),
            n => format!("{n} jobs left, allocations are already requested"),
        };
    }
    let now = done.submitted_count() as u64;
    let all: u64 = done.schedulers.iter().map(|share| u64::from(share.allocations)).sum();
    let would = if done.dry_run { "would be requested" } else { "requested" };
    let words = format!("{} {would}", text::render_count(now, "allocation"));
    match all.saturating_sub(now) {
        0 => words,
        later => format!("{words}, {} when jobs are ready", text::render_count(later, "allocation")),
    }
}

fn render_table(done: &AllocationRescheduleResult) -> TextTable {
    let mut table = TextTable::new(vec![
        TableColumn::flexible("SCHEDULER"),
        TableColumn::text("PARTITION"),
        TableColumn::number("JOBS"),
        TableColumn::number("ALLOCATIONS"),
        TableColumn::number("NODES"),
        TableColumn::number("WALLTIME"),
        TableColumn::text("REQUESTED"),
    ]);
    for share in &done.schedulers {
        let when = match (share.is_deferred, share.submitted) {
            (true, _) => "when jobs are ready",
            (false, 0) => "not submitted",
            (false, _) => "now",
        };
        table.add_row(vec![
            TableCell::new(&share.scheduler),
            TableCell::new(share.partition.as_deref().unwrap_or("(Slurm chooses)")),
            TableCell::new(share.jobs.to_string()),
            TableCell::new(share.allocations.to_string()),
            TableCell::new(share.nodes.to_string()),
            TableCell::new(&share.walltime),
            TableCell::new(when),
        ]);
    }
    table
}

fn next_steps(ctx: &CliContext, done: &AllocationRescheduleResult) -> Result<Vec<String>, CliError> {
    let mut lines = Vec::new();
    match done.marked_executed.len() as u64 {
        0 => {}
        n if done.dry_run => {
            lines.push(format!("{} would be disabled", text::render_count(n, "action")));
        }
        n => lines.push(format!("{} disabled", text::render_count(n, "action"))),
    }
    let by_hand = |share: &&SchedulerShare| !share.is_deferred && share.submitted == 0;
    let id = done.workflow_id;
    if done.dry_run {
        lines.push("nothing changed".to_owned());
    } else if done.schedulers.iter().any(|share| by_hand(&share)) {
        lines.push(format!("next: windlass slurm regenerate {id} --submit"));
    } else if done.submitted_count() > 0 && is_without_slurm(ctx)? {
        lines.push(
            "the server was started without --slurm: they are submitted when `windlass serve --slurm` is started for this database"
                .to_owned(),
        );
    } else if done.submitted_count() > 0 && ctx.server()?.is_none() {
        lines.push(
            "no server is running for this database: they are submitted when `windlass serve --slurm` is started".to_owned(),
        );
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_recovery_renders_as_text() {
        let share = |submitted, later| SchedulerShare {
            scheduler: "a".into(),
            partition: None,
            account: String::new(),
            jobs: 4,
            nodes: 1,
            walltime: "01:00:00".into(),
            mem: None,
            gres: None,
            is_known: false,
            is_deferred: later > 0,
            allocations: later + u32::try_from(submitted).unwrap(),
            submitted,
        };
        let done = |dry_run, pending_jobs, schedulers| AllocationRescheduleResult {
            workflow_id: WorkflowId(1),
            dry_run,
            pending_jobs,
            marked_executed: vec![],
            schedulers,
            recovery_actions: 0,
            allocations: vec![],
            unfit: vec![],
        };
        for (done, words) in [
            (done(false, 0, vec![]), "no jobs left to run; no allocations requested"),
            (done(false, 1, vec![]), "1 job left, allocations are already requested"),
            (done(false, 5, vec![]), "5 jobs left, allocations are already requested"),
            (done(false, 5, vec![share(2, 0)]), "2 allocations requested"),
            (
                done(true, 5, vec![share(2, 0), share(0, 1)]),
                "2 allocations would be requested, 1 allocation when jobs are ready",
            ),
        ] {
            assert_eq!(render_summary(&done), words);
        }
    }
}
