//! What the backend says about a run, and what its completed work units have left.

use crate::backend::{MOST_ATTEMPTS, UnitChange};
use crate::outline::unit_directory;
use crate::world::World;
use std::path::Path;
use windlass_core::requests::View;
use windlass_core::requests::book::{Backend, RunRow};
use windlass_core::requests::lifecycle::{News, RunNews, RunState, UnitNews};
use windlass_types::WorkflowId;
use windlass_types::payload::{MergeOutput, check_lfn};
use windlass_types::requests::{Request, UnitName, UnitStatus};

/// So many are read at once; the others come with the next look.
const MOST: usize = 1000;

/// The workflow of the engine that the run is, if it is one and not over.
pub(super) fn workflow(view: &View) -> Option<WorkflowId> {
    match under_way(view)?.backend {
        Backend::Engine { workflow, .. } => workflow,
        Backend::Htcondor { .. } => None,
    }
}

/// The run, if it was handed over and is not over.
pub(super) fn under_way(view: &View) -> Option<&RunRow> {
    view.run.as_ref().filter(|run| run.status.is_active())
}

/// `None`: there is nobody to ask.
pub(super) fn of(world: &World, view: &View) -> Option<News> {
    let run = under_way(view)?;
    let mut look = world.backends.of(run).look(run, view.failures.read)?;
    if look.news.len() > MOST || look.attempts.len() > MOST_ATTEMPTS {
        look.news.truncate(MOST);
        look.attempts.truncate(MOST_ATTEMPTS);
        // It may be over, but these are not all.
        look.state = if look.state == RunState::Over { RunState::Running } else { look.state };
    }
    let units = look.news.iter().map(|unit| unit_news(&view.row.request, run, unit)).collect();
    Some(News::Run(Box::new(RunNews {
        run: run.uuid.clone(),
        backend: Some(look.backend),
        state: look.state,
        counts: look.counts,
        units_completed: look.units_completed,
        units_failed: look.units_failed,
        units,
        attempts: look.attempts,
        site_totals: look.site_totals,
        held: look.held,
        reason: look.reason,
    })))
}

fn unit_news(request: &Request, run: &RunRow, change: &UnitChange) -> UnitNews {
    let UnitChange { seq, unit, status } = *change;
    let output = match status {
        UnitStatus::Completed => read_output(request, run, unit).map(Some),
        _ => Ok(None),
    };
    UnitNews { seq, unit, status, output }
}

/// What the merge of a unit wrote, if it makes sense (R-102: what is missing is never taken for done).
fn read_output(request: &Request, run: &RunRow, unit: u32) -> Result<MergeOutput, String> {
    let path = unit_directory(Path::new(&run.submit_dir), unit).join("merge_output.json");
    let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let output: MergeOutput =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    check(request, unit, &output).map_err(|what| format!("{}: {what}", path.display()))?;
    Ok(output)
}

fn check(request: &Request, unit: u32, output: &MergeOutput) -> Result<(), String> {
    let name = UnitName(unit).to_string();
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
