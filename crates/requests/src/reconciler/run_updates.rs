//! What the backend says about a run, and what its completed work units have left.

use crate::backend::{MOST_ATTEMPTS, RunUnitChange};
use crate::context::ReconcilerContext;
use crate::run_outline::unit_directory;
use std::path::Path;
use windlass_core::requests::RequestView;
use windlass_core::requests::lifecycle::{LifecycleEvent, RunReport, RunState, WorkUnitReport};
use windlass_core::requests::rows::{BackendRunRef, RunRow};
use windlass_types::WorkflowId;
use windlass_types::payload::{MergeOutput, check_lfn};
use windlass_types::requests::{Request, RequestUnitStatus, WorkUnitName};

/// So many are read at once; the others come with the next look.
const MAX_UNITS_PER_READ: usize = 1000;

/// The workflow of the engine that the run is, if it is one and not over.
pub(super) fn engine_workflow(view: &RequestView) -> Option<WorkflowId> {
    match active_run(view)?.backend {
        BackendRunRef::Engine { workflow, .. } => workflow,
        BackendRunRef::Htcondor { .. } => None,
    }
}

/// The run, if it was handed over and is not over.
pub(super) fn active_run(view: &RequestView) -> Option<&RunRow> {
    view.run.as_ref().filter(|run| run.status.is_active())
}

/// `None`: there is nobody to ask.
pub(super) fn load_run_news(world: &ReconcilerContext, view: &RequestView) -> Option<LifecycleEvent> {
    let run = active_run(view)?;
    let mut look = world.backends.backend_for(run).inspect_run(run, view.failures.read)?;
    if look.unit_changes.len() > MAX_UNITS_PER_READ || look.failed_attempts.len() > MOST_ATTEMPTS {
        look.unit_changes.truncate(MAX_UNITS_PER_READ);
        look.failed_attempts.truncate(MOST_ATTEMPTS);
        // It may be over, but these are not all.
        look.state = if look.state == RunState::Over { RunState::Running } else { look.state };
    }
    let units = look.unit_changes.iter().map(|unit| make_unit_news(&view.row.request, run, unit)).collect();
    Some(LifecycleEvent::RunReported(Box::new(RunReport {
        run: run.uuid.clone(),
        backend: Some(look.backend),
        state: look.state,
        counts: look.counts,
        units_completed: look.units_completed,
        units_failed: look.units_failed,
        units,
        attempts: look.failed_attempts,
        site_totals: look.site_totals,
        held: look.held_reasons,
        reason: look.reason,
    })))
}

fn make_unit_news(request: &Request, run: &RunRow, change: &RunUnitChange) -> WorkUnitReport {
    let RunUnitChange { seq, unit, status } = *change;
    let output = match status {
        RequestUnitStatus::Completed => read_merge_output(request, run, unit).map(Some),
        _ => Ok(None),
    };
    WorkUnitReport { seq, unit, status, output }
}

/// What the merge of a unit wrote, if it makes sense (R-102: what is missing is never taken for done).
fn read_merge_output(request: &Request, run: &RunRow, unit: u32) -> Result<MergeOutput, String> {
    let path = unit_directory(Path::new(&run.submit_dir), unit).join("merge_output.json");
    let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let output: MergeOutput =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    check_merge_output(request, unit, &output).map_err(|what| format!("{}: {what}", path.display()))?;
    Ok(output)
}

fn check_merge_output(request: &Request, unit: u32, output: &MergeOutput) -> Result<(), String> {
    let name = WorkUnitName(unit).to_string();
    if output.request != request.request_name || output.unit != name || output.number != unit {
        return Err(format!("it is about {} of {}", output.unit, output.request));
    }
    if output.site.is_empty() {
        return Err("it does not say at which site its files are".to_owned());
    }
    for dataset in &request.output_datasets {
        if !output.datasets.contains_key(dataset) {
            return Err(format!("it says nothing of {dataset}"));
        }
    }
    for (dataset, files) in &output.datasets {
        if !request.output_datasets.contains(dataset) {
            return Err(format!("{dataset} is no output of the request"));
        }
        for file in files {
            check_lfn(&file.lfn).map_err(|error| format!("{}: {error}", file.lfn))?;
        }
    }
    Ok(())
}
