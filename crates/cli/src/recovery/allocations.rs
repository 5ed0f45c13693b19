//! New allocations of Slurm for what is left of a workflow, as `slurm regenerate`, `recover` and `watch` ask for them. Only the
//! books are written: the server talks to Slurm.

use crate::context::Context;
use crate::error::{CliError, Kind};
use crate::packing;
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use serde::Serialize;
use windlass_core::slurm::book::{Schedule, Scheduled};
use windlass_core::slurm::groups::Options;
use windlass_core::slurm::profile::Profile;
use windlass_core::slurm::regenerate::NoSchedule;
use windlass_insight::allocating::{self, Gathered, Share, Unscheduled, Wanted};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{AllocationId, JobId, Resources, WorkflowId};

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) options: Options,
    /// These jobs as well, whatever their state.
    pub(crate) include: Vec<JobId>,
    /// Allocations for jobs that are ready are asked for at once.
    pub(crate) submit: bool,
    pub(crate) dry_run: bool,
}

/// What was done, or would be; as it is for programs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rescheduled {
    workflow_id: WorkflowId,
    dry_run: bool,
    /// That still have to run.
    pending_jobs: usize,
    /// Actions that do not fire any more.
    marked_executed: Vec<i64>,
    schedulers: Vec<Share>,
    /// Actions that ask when jobs are ready.
    recovery_actions: usize,
    /// Those that were asked for.
    pub(crate) allocations: Vec<AllocationId>,
    /// Jobs that fit nowhere, and for which nothing is asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unfit: Vec<String>,
}

impl Asked {
    fn wanted<'a>(&'a self, workflow: &'a WorkflowRow) -> Wanted<'a> {
        let Self { options, include, submit, .. } = self;
        // A server says itself who asks it.
        Wanted { options, include, submit: *submit, by: &workflow.user }
    }
}

impl Rescheduled {
    /// `made`: it was done.
    fn new(workflow: &WorkflowRow, gathered: &Gathered, schedule: Schedule, made: Option<Scheduled>) -> Self {
        Self {
            workflow_id: workflow.id,
            dry_run: made.is_none(),
            pending_jobs: gathered.pending(),
            schedulers: allocating::shares(gathered, &schedule),
            recovery_actions: schedule.actions.len(),
            unfit: schedule.unfit,
            marked_executed: schedule.mark_executed,
            allocations: made.map(|made| made.allocations).unwrap_or_default(),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.schedulers.is_empty() && self.marked_executed.is_empty()
    }

    /// That are asked for at once, or would be.
    pub(crate) fn submitted(&self) -> usize {
        self.schedulers.iter().map(|share| share.submitted).sum()
    }
}

/// Who pays if nobody says so.
pub(crate) fn default_account(workflow: &WorkflowRow) -> Option<String> {
    workflow.settings.slurm_defaults.get("account").and_then(|account| account.as_str()).map(str::to_owned)
}

/// Plans, and puts the plan into the books unless it is only to be seen.
pub(crate) fn ask(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
    profile: &Profile,
    asked: &Asked,
) -> Result<Rescheduled, CliError> {
    if asked.dry_run {
        return rehearse(store, workflow, profile, asked, &|_| None);
    }
    let done = allocating::reschedule(store, workflow, profile, &asked.wanted(workflow), || ctx.clock.now());
    let (gathered, schedule, made) = done.map_err(|error| unscheduled(error, profile))?;
    Ok(Rescheduled::new(workflow, &gathered, schedule, Some(made)))
}

pub(super) fn unscheduled(error: Unscheduled, profile: &Profile) -> CliError {
    match error {
        Unscheduled::Books(error) => error.into(),
        Unscheduled::Plan(why) => unplanned(&why, profile),
    }
}

/// What would be done; `then` says of jobs that are to go back what they will ask for.
pub(crate) fn rehearse(
    store: &dyn Store,
    workflow: &WorkflowRow,
    profile: &Profile,
    asked: &Asked,
    then: &dyn Fn(JobId) -> Option<Resources>,
) -> Result<Rescheduled, CliError> {
    let mut gathered = Gathered::read(store, workflow, &asked.include)?;
    gathered.pretend(then);
    let schedule = gathered.plan(profile, &asked.wanted(workflow)).map_err(|why| unplanned(&why, profile))?;
    Ok(Rescheduled::new(workflow, &gathered, schedule, None))
}

fn unplanned(why: &NoSchedule, profile: &Profile) -> CliError {
    let cluster = packing::title(profile);
    let hint = match why {
        NoSchedule::Unfit(_) => format!("ask for less; `windlass hpc partitions` shows what {cluster} has"),
        NoSchedule::Request(_) => "change the scheduler, or slurm_defaults of the workflow".to_owned(),
    };
    CliError::new(Kind::Refused, why.to_string()).with_hint(hint)
}

/// Whether a server is asked that has nothing to do with Slurm.
pub(crate) fn is_without_slurm(ctx: &Context) -> Result<bool, CliError> {
    let Some(client) = ctx.server()? else { return Ok(false) };
    Ok(client.slurm_status()?.steward.is_none())
}

/// For people or programs.
pub(crate) fn show(ctx: &Context, workflow: &WorkflowRow, done: &Rescheduled) -> Result<(), CliError> {
    if ctx.ui.json_wanted() {
        return ctx.ui.print_json(done);
    }
    let of = format!("workflow {} ({})", workflow.id, text::one_line(&workflow.name));
    ctx.ui.print_line(&format!("{of}: {}", in_words(done)))?;
    show_shares(ctx, done)
}

/// Without the headline.
pub(crate) fn show_shares(ctx: &Context, done: &Rescheduled) -> Result<(), CliError> {
    if !done.schedulers.is_empty() {
        ctx.ui.print_table(&table(done))?;
    }
    warn_of_unfit(ctx, &done.unfit);
    for line in what_next(ctx, done)? {
        ctx.ui.note(&line);
    }
    Ok(())
}

/// Jobs that get no nodes, whatever the others get.
pub(crate) fn warn_of_unfit(ctx: &Context, unfit: &[String]) {
    for fault in unfit {
        ctx.ui.warn(&format!("no allocation is asked for it: {fault}"));
    }
}

/// `2 allocations are asked for, 1 more when jobs are ready`.
pub(crate) fn in_words(done: &Rescheduled) -> String {
    if done.is_nothing() {
        return match done.pending_jobs {
            0 => "no job is left to run; there is nothing to ask for".to_owned(),
            1 => "1 job is left, and nodes are asked for already".to_owned(),
            n => format!("{n} jobs are left, and nodes are asked for already"),
        };
    }
    let now = done.submitted() as u64;
    let all: u64 = done.schedulers.iter().map(|share| u64::from(share.allocations)).sum();
    let would = if done.dry_run { "would be asked for" } else { "asked for" };
    let words = format!("{} {would}", text::count(now, "allocation"));
    match all.saturating_sub(now) {
        0 => words,
        later => format!("{words}, {} when jobs are ready", text::count(later, "allocation")),
    }
}

fn table(done: &Rescheduled) -> Table {
    let mut table = Table::new(vec![
        Column::elastic("SCHEDULER"),
        Column::text("PARTITION"),
        Column::number("JOBS"),
        Column::number("ALLOCATIONS"),
        Column::number("NODES"),
        Column::number("WALLTIME"),
        Column::text("ASKED FOR"),
    ]);
    for share in &done.schedulers {
        let when = match (share.is_deferred, share.submitted) {
            (true, _) => "when jobs are ready",
            (false, 0) => "by hand",
            (false, _) => "now",
        };
        table.row(vec![
            Cell::new(&share.scheduler),
            Cell::new(share.partition.as_deref().unwrap_or("(Slurm chooses)")),
            Cell::new(share.jobs.to_string()),
            Cell::new(share.allocations.to_string()),
            Cell::new(share.nodes.to_string()),
            Cell::new(&share.walltime),
            Cell::new(when),
        ]);
    }
    table
}

fn what_next(ctx: &Context, done: &Rescheduled) -> Result<Vec<String>, CliError> {
    let mut lines = Vec::new();
    match done.marked_executed.len() as u64 {
        0 => {}
        n if done.dry_run => lines.push(format!("{} would not fire any more", text::count(n, "action"))),
        n => lines.push(format!("{} noted as carried out", text::count(n, "action"))),
    }
    let by_hand = |share: &&Share| !share.is_deferred && share.submitted == 0;
    let id = done.workflow_id;
    if done.dry_run {
        lines.push("nothing was changed".to_owned());
    } else if done.schedulers.iter().any(|share| by_hand(&share)) {
        lines.push(format!("next: windlass slurm regenerate {id} --submit"));
    } else if done.submitted() > 0 && is_without_slurm(ctx)? {
        lines.push(
            "the server was started without --slurm: they are submitted when `windlass serve --slurm` serves this database"
                .to_owned(),
        );
    } else if done.submitted() > 0 && ctx.server()?.is_none() {
        lines.push(
            "nobody serves this database: they are submitted when `windlass serve --slurm` does".to_owned(),
        );
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_in_words() {
        let share = |submitted, later| Share {
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
        let done = |dry_run, pending_jobs, schedulers| Rescheduled {
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
            (done(false, 0, vec![]), "no job is left to run; there is nothing to ask for"),
            (done(false, 1, vec![]), "1 job is left, and nodes are asked for already"),
            (done(false, 5, vec![]), "5 jobs are left, and nodes are asked for already"),
            (done(false, 5, vec![share(2, 0)]), "2 allocations asked for"),
            (
                done(true, 5, vec![share(2, 0), share(0, 1)]),
                "2 allocations would be asked for, 1 allocation when jobs are ready",
            ),
        ] {
            assert_eq!(in_words(&done), words);
        }
    }
}
