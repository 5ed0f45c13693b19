//! The allocations of a workflow that runs on Slurm: what the server found out about those that it took for open. Nothing is
//! concluded here: who talks to Slurm concludes, and not from silence.

use crate::context::Context;
use crate::error::CliError;
use serde::Serialize;
use windlass_core::slurm::ends;
use windlass_insight::allocating::is_on_slurm;
use windlass_store::Store;
use windlass_store::model::AllocationFilter;
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{AllocationId, WorkflowId};

#[derive(Debug, Serialize)]
pub(crate) struct Inspection {
    /// Slurm answered, or there was nothing to ask.
    pub(crate) answered: bool,
    /// Why it did not.
    pub(crate) trouble: Option<String>,
    /// Allocations that are not over, as far as is known.
    pub(crate) open: usize,
    /// Those that counted as open and are not there any more.
    pub(crate) gone: Vec<Gone>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Gone {
    pub(crate) allocation_id: AllocationId,
    slurm_job_id: Option<u64>,
    was: AllocationState,
    is: AllocationState,
    pub(crate) words: String,
}

/// Has the server ask Slurm now. `None`: the workflow does not run on Slurm, or nobody here looks after its allocations.
pub(crate) fn inspect(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<Option<Inspection>, CliError> {
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
        return Ok(Some(Inspection { answered: true, trouble: None, open: 0, gone: Vec::new() }));
    }
    let looked = client.look_at_allocations(workflow)?;
    let ids = before.iter().map(|row| row.id).collect();
    let after = store.allocations(&AllocationFilter { ids, ..AllocationFilter::default() })?;
    let gone = |row: &Allocation| {
        let was = before.iter().find(|before| before.id == row.id)?.state;
        row.state.is_over().then(|| Gone {
            allocation_id: row.id,
            slurm_job_id: row.job_id,
            was,
            is: row.state,
            words: ends::in_words(row),
        })
    };
    let gone: Vec<Gone> = after.iter().filter_map(gone).collect();
    Ok(Some(Inspection {
        answered: looked.answered,
        trouble: looked.trouble,
        open: before.len() - gone.len(),
        gone,
    }))
}

impl Inspection {
    /// What a person should know of it.
    pub(crate) fn tell(&self, ctx: &Context) {
        for gone in &self.gone {
            ctx.ui.note(&gone.words);
        }
        if !self.answered {
            let why = self.trouble.as_deref().unwrap_or("it did not answer");
            ctx.ui.warn(&format!(
                "Slurm could not be asked ({why}): nothing is known of {}, and nothing was concluded",
                crate::ui::text::count(self.open as u64, "open allocation")
            ));
        }
    }
}
