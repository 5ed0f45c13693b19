//! The workflows that the server has told of: where they are at home, and what could not be started for them here. They
//! are forgotten when they are over, since a worker that stays may serve thousands of them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use windlass_types::WorkflowId;
use windlass_types::settings::ExecutionConfig;
use windlass_types::worker_protocol::WorkflowSetup;

#[derive(Debug, Default)]
pub(crate) struct KnownWorkflows {
    workflows: HashMap<WorkflowId, WorkflowSetup>,
    /// What kept jobs from being started here, as it was shown: once each.
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

    /// How its jobs are to be executed, if it says so.
    pub(crate) fn execution_config(&self, workflow: WorkflowId) -> Option<&ExecutionConfig> {
        self.workflows.get(&workflow)?.execution.as_deref()
    }

    /// Whether this is the first time.
    pub(crate) fn record_problem(&mut self, workflow: WorkflowId, trouble: &str) -> bool {
        self.reported_problems.insert((workflow, trouble.to_owned()))
    }

    pub(crate) fn forget(&mut self, workflow: WorkflowId) {
        self.workflows.remove(&workflow);
        self.reported_problems.retain(|(of, _)| *of != workflow);
    }

    /// Those of which nothing is here.
    pub(crate) fn unused(&self, in_use: &HashSet<WorkflowId>) -> Vec<WorkflowId> {
        self.workflows.keys().filter(|workflow| !in_use.contains(workflow)).copied().collect()
    }
}
