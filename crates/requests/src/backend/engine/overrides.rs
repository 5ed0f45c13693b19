//! Changes to a run before it continues: retries, memory and priority of its jobs, also by production step. The
//! workflow stays the same.

use crate::backend::engine_jobs::{FINISHING_PRIORITY_BONUS, RunGraph, RunSubmission};
use crate::planned_run_units::PlannedRunUnits;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::workflow_state::JobTable;
use windlass_store::Store;
use windlass_store::model::{FailureHandlerRow, RequirementsChange, RequirementsRow, RequirementsUsers};
use windlass_types::requests::NodeRole;
use windlass_types::settings::FailureHandler;
use windlass_types::{Bytes, JobId, JobStatus, Resources, Timestamp, WorkflowId};

/// The values to write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RunOverrideChanges {
    requirements: Vec<RequirementsChange>,
    /// With the ids of those that they replace.
    handlers: Vec<(i64, FailureHandler)>,
    /// Current and new values of jobs.
    priorities: Vec<(i32, i32)>,
}

impl RunOverrideChanges {
    /// For a workflow without a running process. Empty if all values are current.
    pub(super) fn plan_changes(
        store: &dyn Store,
        workflow: WorkflowId,
        submission: &RunSubmission,
        outline: &PlannedRunUnits,
    ) -> Result<Self, windlass_store::StoreError> {
        let handlers =
            plan_handlers(&store.handlers(workflow)?, RunGraph::new(submission, outline).handlers());
        let table = store.load_jobs(workflow)?;
        let requirements = match submission.memory_mb {
            Some(memory_mb) => plan_requirements(
                &store.requirements(workflow)?,
                &table,
                Bytes(memory_mb.saturating_mul(1 << 20)),
            ),
            None => Vec::new(),
        };
        let priorities = plan_priorities(&table.priority, submission.job_priority());
        Ok(Self { requirements, handlers, priorities })
    }

    pub(super) fn apply_changes(
        &self,
        store: &dyn Store,
        workflow: WorkflowId,
        now: Timestamp,
    ) -> Result<(), windlass_store::StoreError> {
        for (id, handler) in &self.handlers {
            store.update_handler(*id, handler, now)?;
        }
        if !self.priorities.is_empty() {
            store.change_priorities(workflow, &self.priorities, now)?;
        }
        if !self.requirements.is_empty() {
            store.change_requirements(workflow, &self.requirements, now)?;
        }
        Ok(())
    }
}

/// The first job is a landing. Jobs with a priority set by a user keep it.
pub(super) fn plan_priorities(known: &[i32], requested: i32) -> Vec<(i32, i32)> {
    let Some(&before) = known.first().filter(|before| **before != requested) else { return Vec::new() };
    let change = |ahead: i32| Some((before.checked_add(ahead)?, requested.checked_add(ahead)?));
    let mut changes: Vec<(i32, i32)> = [0, FINISHING_PRIORITY_BONUS].into_iter().filter_map(change).collect();
    // A job that gets a priority here must not count as one that has it.
    if changes.first().map(|first| first.1) == changes.last().map(|last| last.0) {
        changes.reverse();
    }
    changes
}

fn plan_handlers(known: &[FailureHandlerRow], requested: &[FailureHandler]) -> Vec<(i64, FailureHandler)> {
    let is_of = |row: &&FailureHandlerRow, requested: &FailureHandler| row.handler.name == requested.name;
    let replaced = |requested: &FailureHandler| {
        let row = known.iter().find(|row| is_of(row, requested)).filter(|row| row.handler != *requested)?;
        Some((row.id, requested.clone()))
    };
    requested.iter().filter_map(replaced).collect()
}

/// Landings and processing jobs get the value of the operator. What earlier attempts of a job showed stays,
/// unless it is less.
fn plan_requirements(known: &[RequirementsRow], table: &JobTable, memory: Bytes) -> Vec<RequirementsChange> {
    let is_planned =
        |name: &str| name == "landing" || name.starts_with("landing_") || name.starts_with("processing_");
    let planned = known.iter().filter(|row| is_planned(&row.name));
    let change = |name: String, resources: Resources, used_by| RequirementsChange {
        name,
        resources: Resources { memory, ..resources },
        used_by,
    };
    let mut changes: Vec<RequirementsChange> = planned
        .clone()
        .filter(|row| row.resources.memory != memory)
        .map(|row| change(row.name.clone(), row.resources, RequirementsUsers::AsBefore))
        .collect();
    let planned: BTreeSet<u32> = planned
        .filter_map(|row| table.requirements.iter().position(|known| *known == row.resources))
        .map(|class| class as u32)
        .collect();
    for (class, jobs) in find_learned_resources(table, memory, &planned) {
        let resources = table.requirements[class as usize];
        changes.push(change(requirements_name(resources, memory), resources, RequirementsUsers::Jobs(jobs)));
    }
    changes
}

/// Jobs that still have to run and have requirements of their own with less memory than this, by their classes.
fn find_learned_resources(
    table: &JobTable,
    memory: Bytes,
    planned: &BTreeSet<u32>,
) -> BTreeMap<u32, Vec<JobId>> {
    let roles = [NodeRole::Landing, NodeRole::Processing].map(|role| role.name().to_lowercase());
    let has_role = |job: usize| {
        let handler = table.handler.get(job).and_then(|number| number.checked_sub(1));
        let handler = handler.and_then(|handler| table.handlers.get(handler as usize));
        handler.is_some_and(|handler| roles.contains(&handler.name))
    };
    let mut found: BTreeMap<u32, Vec<JobId>> = BTreeMap::new();
    for (job, (&id, &class)) in table.ids.iter().zip(&table.class).enumerate() {
        let has_less = table.requirements.get(class as usize).is_some_and(|asked| asked.memory < memory);
        let is_left = table.status.get(job).is_some_and(|status| *status != JobStatus::Completed);
        if has_less && is_left && !planned.contains(&class) && has_role(job) {
            found.entry(class).or_default().push(id);
        }
    }
    found
}

/// All values of the set, so that equal names mean equal sets.
fn requirements_name(resources: Resources, Bytes(memory): Bytes) -> String {
    let runtime = resources.runtime.map(|runtime| format!(":{}s", runtime.as_secs())).unwrap_or_default();
    format!("said:{}cpus:{memory}B{runtime}", resources.cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::RoleRetrySettings;
    use std::time::Duration;
    use windlass_core::round_plan;
    use windlass_types::RequirementsId;

    const MEGABYTE: u64 = 1 << 20;

    fn asked(memory_mb: u64, hours: u64) -> Resources {
        let runtime = Some(Duration::from_hours(hours));
        Resources { cpus: 4, memory: Bytes(memory_mb * MEGABYTE), runtime, ..Resources::DEFAULT }
    }

    fn row(id: i64, name: &str, resources: Resources) -> RequirementsRow {
        RequirementsRow { id: RequirementsId(id), name: name.to_owned(), resources }
    }

    fn rules(retries: u32) -> Vec<FailureHandler> {
        let counts =
            round_plan::RetriesByRole { processing: retries, ..round_plan::RetriesByRole::default() };
        let retries = RoleRetrySettings { counts, cool_off: Duration::from_secs(1) };
        NodeRole::ALL.iter().map(|role| retries.failure_handler(*role, Bytes(3000 * MEGABYTE))).collect()
    }

    #[test]
    fn only_changed_failure_handlers_are_replaced() {
        let known: Vec<FailureHandlerRow> =
            rules(3).into_iter().zip(7..).map(|(handler, id)| FailureHandlerRow { id, handler }).collect();
        assert_eq!(plan_handlers(&known, &rules(3)), []);
        let replaced = plan_handlers(&known, &rules(5));
        let names: Vec<&str> = replaced.iter().map(|(_, handler)| handler.name.as_str()).collect();
        assert_eq!(names, ["processing"]);
        let row = known.iter().find(|row| row.id == replaced[0].0).unwrap();
        assert_eq!(row.handler.name, "processing");
        assert!(replaced[0].1.rules.iter().all(|rule| rule.max_retries == 6), "with the first one");
    }

    #[test]
    fn priority_change_keeps_order() {
        assert_eq!(plan_priorities(&[0, 0, 10], 0), []);
        assert_eq!(plan_priorities(&[], 5), []);
        assert_eq!(plan_priorities(&[0, 7, 10], -20_000), [(0, -20_000), (10, -19_990)]);
        assert_eq!(plan_priorities(&[0, 7, 10], 10), [(10, 20), (0, 10)]);
        assert_eq!(plan_priorities(&[10, 20], 0), [(10, 0), (20, 10)]);
        assert_eq!(plan_priorities(&[i32::MAX], 0), [(i32::MAX, 0)]);
    }

    /// Landings request as much as the jobs that follow, so that both fit at the chosen site.
    #[test]
    fn override_replaces_planned_and_raises_learned_requirements() {
        let rows = [
            row(1, "processing_0", asked(8000, 2)),
            row(2, "landing", asked(8000, 1)),
            row(3, "merge", asked(2000, 8)),
            row(4, "adjusted:longer", asked(8000, 6)),
            row(5, "adjusted:larger", asked(12_000, 2)),
        ];
        let roles = rules(3);
        let handler = |role: NodeRole| {
            let name = role.name().to_lowercase();
            roles.iter().position(|known| known.name == name).unwrap() as u32 + 1
        };
        let (proc, land, merge) =
            (handler(NodeRole::Processing), handler(NodeRole::Landing), handler(NodeRole::Merge));
        // Requirements, role, status.
        let jobs = [
            (2, land, JobStatus::Completed),
            (1, proc, JobStatus::Failed),
            (4, proc, JobStatus::Failed),
            (4, proc, JobStatus::Completed),
            (5, proc, JobStatus::Failed),
            (4, merge, JobStatus::Failed),
        ];
        let table = JobTable {
            ids: (10..).take(jobs.len()).map(JobId).collect(),
            status: jobs.map(|job| job.2).to_vec(),
            class: jobs.map(|job| job.0).to_vec(),
            requirements: [Resources::DEFAULT]
                .into_iter()
                .chain(rows.iter().map(|row| row.resources))
                .collect(),
            handler: jobs.map(|job| job.1).to_vec(),
            handlers: roles,
            ..JobTable::default()
        };
        let change =
            |name: &str, resources, used_by| RequirementsChange { name: name.into(), resources, used_by };
        let more = plan_requirements(&rows, &table, Bytes(10_000 * MEGABYTE));
        let own = format!("said:4cpus:{}B:21600s", 10_000 * MEGABYTE);
        let expected = [
            change("processing_0", asked(10_000, 2), RequirementsUsers::AsBefore),
            change("landing", asked(10_000, 1), RequirementsUsers::AsBefore),
            change(&own, asked(10_000, 6), RequirementsUsers::Jobs(vec![JobId(12)])),
        ];
        assert_eq!(more, expected);
        let less = plan_requirements(&rows, &table, Bytes(6000 * MEGABYTE));
        let names: Vec<&str> = less.iter().map(|change| change.name.as_str()).collect();
        assert_eq!(names, ["processing_0", "landing"], "learned values stay");
        assert_eq!(plan_requirements(&rows, &table, Bytes(8000 * MEGABYTE)), [], "it is so already");
    }
}
