//! The backend's changes of a run, and the results of its completed work units.

use crate::backend::{MOST_ATTEMPTS, RunUnitChange};
use crate::context::RequestReconcilerContext;
use crate::planned_run_units::unit_directory;
use std::path::Path;
use windlass_core::requests::RequestView;
use windlass_core::requests::lifecycle::{LifecycleEvent, RunReport, RunState, WorkUnitReport};
use windlass_core::requests::rows::{BackendRunRef, RunRow};
use windlass_types::WorkflowId;
use windlass_types::payload::{MergeOutput, check_lfn};
use windlass_types::requests::{Request, RequestUnitStatus, WorkUnitName};

/// Number of changes read at once; the rest follows with the next look.
const MAX_UNITS_PER_READ: usize = 1000;

/// The workflow of the engine for this run, if it has one and has not ended.
pub(super) fn engine_workflow(view: &RequestView) -> Option<WorkflowId> {
    match active_run(view)?.backend {
        BackendRunRef::Engine { workflow, .. } => workflow,
        BackendRunRef::Htcondor { .. } => None,
    }
}

/// The run, if it was submitted and has not ended.
pub(super) fn active_run(view: &RequestView) -> Option<&RunRow> {
    view.run.as_ref().filter(|run| run.status.is_active())
}

/// `None`: there is no backend.
pub(super) fn load_run_report(
    context: &RequestReconcilerContext,
    view: &RequestView,
) -> Option<LifecycleEvent> {
    let run = active_run(view)?;
    let mut look = context.backends.backend_for(run).inspect_run(run, view.failures.read)?;
    if look.unit_changes.len() > MAX_UNITS_PER_READ || look.failed_attempts.len() > MOST_ATTEMPTS {
        look.unit_changes.truncate(MAX_UNITS_PER_READ);
        look.failed_attempts.truncate(MOST_ATTEMPTS);
        // It may have ended, but there are more changes.
        look.state = if look.state == RunState::Over { RunState::Running } else { look.state };
    }
    let units = look.unit_changes.iter().map(|unit| make_unit_report(&view.row.request, run, unit)).collect();
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

fn make_unit_report(request: &Request, run: &RunRow, change: &RunUnitChange) -> WorkUnitReport {
    let RunUnitChange { seq, unit, status } = *change;
    let output = match status {
        RequestUnitStatus::Completed => read_merge_output(request, run, unit).map(Some),
        _ => Ok(None),
    };
    WorkUnitReport { seq, unit, status, output }
}

/// The output of a unit's merge, if it is valid (R-102: a missing one never counts as done).
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
        return Err(format!("it belongs to {} of {}", output.unit, output.request));
    }
    if output.site.is_empty() {
        return Err("it does not name the site of its files".to_owned());
    }
    for dataset in &request.output_datasets {
        if !output.datasets.contains_key(dataset) {
            return Err(format!("{dataset} is missing"));
        }
    }
    for (dataset, files) in &output.datasets {
        if !request.output_datasets.contains(dataset) {
            return Err(format!("{dataset} is not an output of the request"));
        }
        for file in files {
            check_lfn(&file.lfn).map_err(|error| format!("{}: {error}", file.lfn))?;
        }
    }
    Ok(())
}
