//! `windlass workflows sync-status`: resets running jobs whose worker is lost.

use crate::args::MachineArgs;
use crate::args::recover::SyncStatusArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::recovery::allocation_check::{self, AllocationInspection};
use crate::recovery::orphans::{self, HolderState, WorkerHeldJob};
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use serde::Serialize;
use std::collections::HashSet;
use windlass_insight::allocation_planning;
use windlass_types::{Attempt, JobId, WorkflowId};

/// JSON output.
#[derive(Serialize)]
struct SyncStatusView {
    workflow_id: WorkflowId,
    name: String,
    dry_run: bool,
    /// Number of jobs that were, or would be, reset.
    lost: usize,
    jobs: Vec<WorkerHeldJob>,
    /// For a workflow that runs on Slurm.
    #[serde(skip_serializing_if = "Option::is_none")]
    slurm: Option<AllocationInspection>,
}

pub(crate) fn run(ctx: &CliContext, args: &SyncStatusArgs) -> Result<CliExit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let slurm = allocation_check::inspect_allocations(ctx, &*store, row.id)?;
    let mut jobs = orphans::list_held_jobs(ctx, &*store, row.id)?;
    if args.assume_dead {
        for job in jobs.iter_mut().filter(|job| job.state == HolderState::Unknown) {
            job.state = HolderState::Gone;
        }
    }
    let gone = jobs.iter().filter(|job| job.is_orphaned()).count();
    let mut lost = gone;
    if gone > 0 && !args.dry_run {
        let machine = MachineArgs { assume_dead: args.assume_dead, ..MachineArgs::default() };
        orphans::reset_orphans(ctx, &*store, row.id, &machine)?;
        // Reports what was done, since the process that runs the workflow may not have done it.
        let held: HashSet<(JobId, Attempt)> =
            store.held_jobs(row.id)?.into_iter().map(|job| (job.id, job.attempt)).collect();
        let is_still =
            |job: &&WorkerHeldJob| job.is_orphaned() && held.contains(&(job.job_id, job.attempt_id));
        lost = gone - jobs.iter().filter(is_still).count();
    }
    if ctx.ui.wants_json() {
        let view =
            SyncStatusView { workflow_id: row.id, name: row.name, dry_run: args.dry_run, lost, jobs, slurm };
        ctx.ui.print_json(&view)?;
        return Ok(CliExit::Success);
    }
    if let Some(slurm) = &slurm {
        slurm.print_inspection(ctx);
    }
    let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
    ctx.ui.print_line(&match (jobs.len(), lost, args.dry_run) {
        (0, ..) => format!("{of}: no job is recorded as running"),
        (_, 0, false) if gone > 0 => {
            format!("{of}: {} still recorded as running", text::render_count(gone as u64, "lost job"))
        }
        (held, 0, _) => {
            let (held, unknown) = (text::render_count(held as u64, "running job"), unknown_count(&jobs));
            match unknown {
                0 => format!("{of}: {held}, none of which lost its worker"),
                // An unknown worker is not a lost one.
                some => format!("{of}: {held}; for {some} the state of the worker is unknown on this host"),
            }
        }
        (_, lost, true) => {
            format!("{of}: {} would be reset (-128)", text::render_count(lost as u64, "lost job"))
        }
        (_, lost, false) => format!("{of}: {} reset (-128)", text::render_count(lost as u64, "lost job")),
    })?;
    if !jobs.is_empty() {
        ctx.ui.print_table(&render_table(&jobs))?;
    }
    if lost < gone && lost > 0 {
        ctx.ui.print_note(&format!(
            "{} still recorded as running",
            text::render_count((gone - lost) as u64, "lost job")
        ));
    }
    match &slurm {
        Some(slurm)
            if slurm.answered
                && slurm.open == 0
                && !allocation_planning::has_open_or_due_allocation(&*store, row.id)? =>
        {
            let id = row.id;
            ctx.ui.print_note(&format!("no allocations left; next: windlass slurm regenerate {id} --submit"));
        }
        None if unknown_count(&jobs) > 0 => ctx.ui.print_note(&format!(
            "if that host is certainly dead: windlass workflows sync-status {} --assume-dead",
            row.id
        )),
        None if lost > 0 && !args.dry_run => ctx.ui.print_note(&format!("next: windlass resume {}", row.id)),
        _ => {}
    }
    Ok(CliExit::Success)
}

fn unknown_count(jobs: &[WorkerHeldJob]) -> usize {
    jobs.iter().filter(|job| job.state == HolderState::Unknown).count()
}

fn render_table(jobs: &[WorkerHeldJob]) -> TextTable {
    let mut table = TextTable::new(vec![
        TableColumn::number("ID"),
        TableColumn::flexible("NAME"),
        TableColumn::number("ATTEMPT"),
        TableColumn::number("WORKER"),
        TableColumn::text("STATE"),
        TableColumn::flexible("REASON"),
    ]);
    for job in jobs {
        table.add_row(vec![
            TableCell::new(job.job_id.to_string()),
            TableCell::new(&job.name),
            TableCell::new(job.attempt_id.to_string()),
            TableCell::new(job.worker_id.to_string()),
            TableCell::new(job.state.name()),
            TableCell::new(&job.evidence),
        ]);
    }
    table
}
