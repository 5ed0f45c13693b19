//! The workflows that the server has introduced: their settings, and the problems that prevented starts here.
//! They are removed when they end, since a persistent worker may serve thousands of them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use windlass_types::WorkflowId;
use windlass_types::settings::ExecutionConfig;
use windlass_types::worker_protocol::WorkflowSetup;

#[derive(Debug, Default)]
pub(crate) struct KnownWorkflows {
    workflows: HashMap<WorkflowId, WorkflowSetup>,
    /// Problems that prevented starts here and were already shown.
    reported_problems: HashSet<(WorkflowId, String)>,
}

impl KnownWorkflows {
    pub(crate) fn insert(&mut self, site: WorkflowSetup) {
        self.workflows.insert(site.workflow, site);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WorkflowSetup> {
        self.workflows.values()
    }

    pub(crate) fn output_dir(&self, workflow: WorkflowId) -> Option<PathBuf> {
        self.workflows.get(&workflow).map(|site| PathBuf::from(&site.output_dir))
    }

    /// The execution settings of its jobs, if any.
    pub(crate) fn execution_config(&self, workflow: WorkflowId) -> Option<&ExecutionConfig> {
        self.workflows.get(&workflow)?.execution.as_deref()
    }

    /// Records a problem; returns whether it is new.
    pub(crate) fn record_problem(&mut self, workflow: WorkflowId, trouble: &str) -> bool {
        self.reported_problems.insert((workflow, trouble.to_owned()))
    }

    pub(crate) fn forget(&mut self, workflow: WorkflowId) {
        self.workflows.remove(&workflow);
        self.reported_problems.retain(|(of, _)| *of != workflow);
    }

    /// Removes the workflows without jobs or actions here.
    pub(crate) fn unused(&self, in_use: &HashSet<WorkflowId>) -> Vec<WorkflowId> {
        self.workflows.keys().filter(|workflow| !in_use.contains(workflow)).copied().collect()
    }
}
