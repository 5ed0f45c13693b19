//! The allocations of a workflow on Slurm: what the server found out about allocations that it considered open.
//! No conclusions are drawn here: only the allocation reconciler may do that, and not from missing answers.

use crate::context::CliContext;
use crate::error::CliError;
use serde::Serialize;
use windlass_core::slurm::allocation_ends;
use windlass_insight::allocation_planning::is_on_slurm;
use windlass_store::Store;
use windlass_store::model::AllocationFilter;
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{AllocationId, WorkflowId};

#[derive(Debug, Serialize)]
pub(crate) struct AllocationInspection {
    /// Whether Slurm answered, or there was nothing to ask.
    pub(crate) answered: bool,
    /// Why Slurm did not answer.
    pub(crate) trouble: Option<String>,
    /// Allocations that have not ended, as far as known.
    pub(crate) open: usize,
    /// Allocations that were recorded as open but have ended.
    pub(crate) gone: Vec<VanishedAllocation>,
}

#[derive(Debug, Serialize)]
pub(crate) struct VanishedAllocation {
    pub(crate) allocation_id: AllocationId,
    slurm_job_id: Option<u64>,
    was: AllocationState,
    is: AllocationState,
    pub(crate) words: String,
}

/// Makes the server query Slurm now. `None`: the workflow does not run on Slurm, or this server does not manage
/// its allocations.
pub(crate) fn inspect_allocations(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<Option<AllocationInspection>, CliError> {
    let Some(client) = ctx.server()? else { return Ok(None) };
    if !is_on_slurm(store, workflow)? {
        return Ok(None);
    }
    let open = AllocationFilter {
        workflow: Some(workflow),
        is_open: Some(true),
        is_ours: Some(true),
        ..AllocationFilter::default()
    };
    let before = store.allocations(&open)?;
    if before.is_empty() {
        return Ok(Some(AllocationInspection { answered: true, trouble: None, open: 0, gone: Vec::new() }));
    }
    let looked = client.refresh_allocations(workflow)?;
    let ids = before.iter().map(|row| row.id).collect();
    let after = store.allocations(&AllocationFilter { ids, ..AllocationFilter::default() })?;
    let gone = |row: &Allocation| {
        let was = before.iter().find(|before| before.id == row.id)?.state;
        row.state.is_over().then(|| VanishedAllocation {
            allocation_id: row.id,
            slurm_job_id: row.job_id,
            was,
            is: row.state,
            words: allocation_ends::describe_end(row),
        })
    };
    let gone: Vec<VanishedAllocation> = after.iter().filter_map(gone).collect();
    Ok(Some(AllocationInspection {
        answered: looked.answered,
        trouble: looked.trouble,
        open: before.len() - gone.len(),
        gone,
    }))
}

impl AllocationInspection {
    /// The findings as text.
    pub(crate) fn print_inspection(&self, ctx: &CliContext) {
        for gone in &self.gone {
            ctx.ui.print_note(&gone.words);
        }
        if !self.answered {
            let why = self.trouble.as_deref().unwrap_or("no answer");
            ctx.ui.print_warning(&format!(
                "cannot query Slurm ({why}): the state of {} is unknown and was not changed",
                crate::ui::text::render_count(self.open as u64, "open allocation")
            ));
        }
    }
}
