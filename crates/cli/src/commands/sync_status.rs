//! `windlass workflows sync-status`: running jobs whose worker is gone go back.

use crate::args::MachineArgs;
use crate::args::recover::SyncStatusArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::recovery::inspect::{self, Inspection};
use crate::recovery::orphans::{self, Held, State};
use crate::select;
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use serde::Serialize;
use std::collections::HashSet;
use windlass_insight::allocating;
use windlass_types::{Attempt, JobId, WorkflowId};

/// For programs.
#[derive(Serialize)]
struct SyncView {
    workflow_id: WorkflowId,
    name: String,
    dry_run: bool,
    /// How many went back, or would.
    lost: usize,
    jobs: Vec<Held>,
    /// Of a workflow that runs on Slurm.
    #[serde(skip_serializing_if = "Option::is_none")]
    slurm: Option<Inspection>,
}

pub(crate) fn run(ctx: &Context, args: &SyncStatusArgs) -> Result<Exit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = select::workflow(&*store, &args.workflow)?;
    let slurm = inspect::inspect(ctx, &*store, row.id)?;
    let mut jobs = orphans::look(ctx, &*store, row.id)?;
    if args.assume_dead {
        for job in jobs.iter_mut().filter(|job| job.state == State::Unknown) {
            job.state = State::Gone;
        }
    }
    let gone = jobs.iter().filter(|job| job.goes_back()).count();
    let mut lost = gone;
    if gone > 0 && !args.dry_run {
        let machine = MachineArgs { assume_dead: args.assume_dead, ..MachineArgs::default() };
        orphans::clear(ctx, &*store, row.id, &machine)?;
        // What is told is what happened: whoever has to do it may not have done it.
        let held: HashSet<(JobId, Attempt)> =
            store.held_jobs(row.id)?.into_iter().map(|job| (job.id, job.attempt)).collect();
        let is_still = |job: &&Held| job.goes_back() && held.contains(&(job.job_id, job.attempt_id));
        lost = gone - jobs.iter().filter(is_still).count();
    }
    if ctx.ui.json_wanted() {
        let view = SyncView { workflow_id: row.id, name: row.name, dry_run: args.dry_run, lost, jobs, slurm };
        ctx.ui.print_json(&view)?;
        return Ok(Exit::Success);
    }
    if let Some(slurm) = &slurm {
        slurm.tell(ctx);
    }
    let of = format!("workflow {} ({})", row.id, text::one_line(&row.name));
    ctx.ui.print_line(&match (jobs.len(), lost, args.dry_run) {
        (0, ..) => format!("{of}: no job is noted as running"),
        (_, 0, false) if gone > 0 => {
            format!("{of}: {} still noted as running", text::count(gone as u64, "lost job"))
        }
        (held, 0, _) => {
            let (held, unknown) = (text::count(held as u64, "running job"), unknown(&jobs));
            match unknown {
                0 => format!("{of}: {held}, none of which lost its worker"),
                // What nobody can see is not gone.
                some => format!("{of}: {held}; of {some} nobody can tell from here whether the worker lives"),
            }
        }
        (_, lost, true) => format!("{of}: {} would go back (-128)", text::count(lost as u64, "lost job")),
        (_, lost, false) => format!("{of}: {} went back (-128)", text::count(lost as u64, "lost job")),
    })?;
    if !jobs.is_empty() {
        ctx.ui.print_table(&table(&jobs))?;
    }
    if lost < gone && lost > 0 {
        ctx.ui.note(&format!("{} still noted as running", text::count((gone - lost) as u64, "lost job")));
    }
    match &slurm {
        Some(slurm) if slurm.answered && slurm.open == 0 && !allocating::is_served(&*store, row.id)? => {
            let id = row.id;
            ctx.ui.note(&format!("no allocation is left; next: windlass slurm regenerate {id} --submit"));
        }
        None if unknown(&jobs) > 0 => ctx.ui.note(&format!(
            "if that machine is certainly gone: windlass workflows sync-status {} --assume-dead",
            row.id
        )),
        None if lost > 0 && !args.dry_run => ctx.ui.note(&format!("next: windlass resume {}", row.id)),
        _ => {}
    }
    Ok(Exit::Success)
}

fn unknown(jobs: &[Held]) -> usize {
    jobs.iter().filter(|job| job.state == State::Unknown).count()
}

fn table(jobs: &[Held]) -> Table {
    let mut table = Table::new(vec![
        Column::number("ID"),
        Column::elastic("NAME"),
        Column::number("ATTEMPT"),
        Column::number("WORKER"),
        Column::text("IS"),
        Column::elastic("BECAUSE"),
    ]);
    for job in jobs {
        table.row(vec![
            Cell::new(job.job_id.to_string()),
            Cell::new(&job.name),
            Cell::new(job.attempt_id.to_string()),
            Cell::new(job.worker_id.to_string()),
            Cell::new(job.state.name()),
            Cell::new(&job.evidence),
        ]);
    }
    table
}
