//! The workflows that the server has told of: where they are at home, and what could not be started for them here. They
//! are forgotten when they are over, since a worker that stays may serve thousands of them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use windlass_types::WorkflowId;
use windlass_types::fleet::WorkflowSite;
use windlass_types::settings::ExecutionConfig;

#[derive(Debug, Default)]
pub(crate) struct Sites {
    told: HashMap<WorkflowId, WorkflowSite>,
    /// What kept jobs from being started here, as it was shown: once each.
    troubles: HashSet<(WorkflowId, String)>,
}

impl Sites {
    pub(crate) fn insert(&mut self, site: WorkflowSite) {
        self.told.insert(site.workflow, site);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WorkflowSite> {
        self.told.values()
    }

    pub(crate) fn output_dir(&self, workflow: WorkflowId) -> Option<PathBuf> {
        self.told.get(&workflow).map(|site| PathBuf::from(&site.output_dir))
    }

    /// How its jobs are to be executed, if it says so.
    pub(crate) fn execution(&self, workflow: WorkflowId) -> Option<&ExecutionConfig> {
        self.told.get(&workflow)?.execution.as_deref()
    }

    /// Whether this is the first time.
    pub(crate) fn note_trouble(&mut self, workflow: WorkflowId, trouble: &str) -> bool {
        self.troubles.insert((workflow, trouble.to_owned()))
    }

    pub(crate) fn forget(&mut self, workflow: WorkflowId) {
        self.told.remove(&workflow);
        self.troubles.retain(|(of, _)| *of != workflow);
    }

    /// Those of which nothing is here.
    pub(crate) fn unused(&self, in_use: &HashSet<WorkflowId>) -> Vec<WorkflowId> {
        self.told.keys().filter(|workflow| !in_use.contains(workflow)).copied().collect()
    }
}
