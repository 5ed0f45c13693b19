//! The names of the nodes of a workflow spec, and the groups of nodes with the same settings.

use crate::script_settings::NodeGroupSettings;
use std::collections::{BTreeMap, HashSet};
use windlass_spec::{ResolvedJob, ResolvedWorkflow};
use windlass_types::Resources;
use windlass_types::settings::FailureHandler;

/// Some file systems do not support longer file names.
const MAX_NAME_LENGTH: usize = 100;
/// Keywords of DAGMan.
const RESERVED_NAMES: [&str; 4] = ["all_nodes", "parent", "child", "workflow"];

/// Returns the names of the nodes, in the order of the jobs: the names of the jobs where DAGMan and the file
/// system accept them. No two names differ in case alone.
pub(super) fn assign_node_names<'a>(jobs: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken: HashSet<String> = RESERVED_NAMES.map(str::to_owned).into();
    let mut names = Vec::new();
    for (number, job) in jobs.enumerate() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let mut name = job.to_owned();
        let fits =
            (1..=MAX_NAME_LENGTH).contains(&job.len()) && job.chars().all(is_plain) && !job.starts_with('-');
        if !fits || taken.contains(&name.to_ascii_lowercase()) {
            let plain: String =
                job.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MAX_NAME_LENGTH).collect();
            name = format!("{}_{number}", plain.trim_start_matches('-'));
        }
        while !taken.insert(name.to_ascii_lowercase()) {
            name.push('_');
        }
        names.push(name);
    }
    names
}

/// The resources that a job of the workflow requests; `None`: it has no requirements.
pub(super) fn requested_resources(
    workflow: &ResolvedWorkflow<'_>,
    job: &ResolvedJob<'_>,
) -> Option<Resources> {
    job.requirements.map(|number| workflow.requirements()[number as usize].resources)
}

/// The kinds of nodes for POST scripts: jobs with the same resources and the same failure handler.
#[derive(Debug, Default)]
pub(super) struct NodeGroups {
    names: BTreeMap<(Option<u32>, Option<u32>), String>,
    pub(super) settings: BTreeMap<String, NodeGroupSettings>,
}

impl NodeGroups {
    /// Returns the name of the job's kind and its number of retries.
    pub(super) fn assign_group(
        &mut self,
        workflow: &ResolvedWorkflow<'_>,
        job: &ResolvedJob<'_>,
    ) -> (&str, u32) {
        let handler =
            job.group.and_then(|group| workflow.job_groups()[group as usize].settings.failure_handler);
        let next = self.names.len();
        let name = self.names.entry((job.requirements, handler)).or_insert_with(|| format!("job_{next}"));
        let group = self.settings.entry(name.clone()).or_insert_with(|| {
            let handler = handler.map(|handler| &workflow.failure_handlers()[handler as usize]);
            NodeGroupSettings {
                role: None,
                retries: handler.map_or(0, max_retries),
                asked: requested_resources(workflow, job).unwrap_or(Resources::DEFAULT),
                handler: handler.map(|handler| handler.name.clone()),
            }
        });
        (name, group.retries)
    }
}

/// The largest number of attempts of any rule; which rule applies is decided after each failure.
fn max_retries(handler: &FailureHandler) -> u32 {
    let attempts = handler.rules.iter().map(|rule| rule.max_retries).max().unwrap_or(0);
    u32::try_from(attempts).unwrap_or(0).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn node_names_equal_job_names_where_possible() {
        let jobs = ["solve_1", "Solve_1", "a.b", "two words", "ALL_NODES", "-x", "", "größe", "a_b_2"];
        let expected = [
            "solve_1",
            "Solve_1_1",
            "a_b_2",
            "two_words_3",
            "ALL_NODES_4",
            "x_5",
            "_6",
            "gr__e_7",
            "a_b_2_8",
        ];
        assert_eq!(assign_node_names(jobs.into_iter()), expected);
    }

    proptest! {
        #[test]
        fn node_names_are_valid_and_unique(jobs in prop::collection::vec("[-a-cA-C._0-3 é$\n]{0,4}", 0..40)) {
            let names = assign_node_names(jobs.iter().map(String::as_str));
            let lower: HashSet<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
            prop_assert_eq!(lower.len(), jobs.len());
            for name in names {
                prop_assert_eq!(crate::render::quote::quote_dag_word(&name), Ok(name.as_str()));
                prop_assert!(!name.contains(['.', '+', '/']) && !name.starts_with('-'));
            }
        }
    }
}
