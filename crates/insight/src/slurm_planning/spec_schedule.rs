//! Adds Slurm schedulers and actions to the text of a spec.

use super::EntryDemand;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::slurm::schedule_generation::SchedulerProposal;
use windlass_spec::patch::{
    self, NewFieldContent, NewFieldValue, NewSpecEntry, SpecAddition, SpecEdit, SpecPatchError,
};
use windlass_spec::{ResolvedWorkflow, SpecSource};
use windlass_types::settings::SlurmScheduler;

/// Maximum number of job names that an action lists if no pattern matches exactly its jobs.
const MAX_NAMES: usize = 10_000;

/// Why the spec cannot be completed.
#[derive(Debug, thiserror::Error)]
pub enum SpecScheduleError {
    #[error("no Slurm account given")]
    NoAccount,
    #[error("no pattern matches the jobs of `{0}` and no others")]
    NoPattern(String),
    #[error(transparent)]
    Patch(#[from] SpecPatchError),
}

/// Returns the spec with schedulers, their assignment to jobs, and the actions that request their allocations.
///
/// `waits_for` parses such a text and returns the jobs that each of its actions waits for.
pub fn write_schedule<E: From<SpecScheduleError>>(
    source: SpecSource<'_>,
    workflow: &ResolvedWorkflow<'_>,
    demands: &[EntryDemand],
    proposals: &[SchedulerProposal],
    with_actions: bool,
    waits_for: impl FnOnce(&str) -> Result<Vec<Vec<u32>>, E>,
) -> Result<String, E> {
    if proposals.iter().any(|proposal| proposal.scheduler.account.is_empty()) {
        return Err(SpecScheduleError::NoAccount.into());
    }
    let add = |addition: &SpecAddition<'_>| {
        patch::apply_addition(source, addition).map_err(SpecScheduleError::from)
    };
    let mut addition =
        SpecAddition { fields: scheduler_edits(workflow, demands, proposals), entries: Vec::new() };
    addition.entries.extend(proposals.iter().map(|proposal| scheduler_entry(&proposal.scheduler)));
    if !with_actions {
        return Ok(add(&addition)?);
    }
    // A pattern is short and stays right when parameters change; names are used if it would match other jobs.
    let mut patterned = addition.clone();
    patterned
        .entries
        .extend(proposals.iter().map(|one| action_entry(one, wait_by_pattern(workflow, demands, one))));
    let new = add(&patterned)?;
    if waits_match_demands(&waits_for(&new)?, demands, proposals) {
        return Ok(new);
    }
    for proposal in proposals {
        let names = wait_by_names(workflow, demands, proposal);
        if names.len() > MAX_NAMES {
            return Err(SpecScheduleError::NoPattern(proposal.scheduler.name.clone()).into());
        }
        addition.entries.push(action_entry(proposal, ("jobs", names)));
    }
    Ok(add(&addition)?)
}

/// Entries whose jobs all use one scheduler name it. Others use any.
fn scheduler_edits<'a>(
    workflow: &'a ResolvedWorkflow<'_>,
    demands: &[EntryDemand],
    proposals: &'a [SchedulerProposal],
) -> Vec<SpecEdit<'a>> {
    let mut of_entry: BTreeMap<usize, Option<&'a str>> = BTreeMap::new();
    for proposal in proposals {
        for number in &proposal.group.demands {
            let name = proposal.scheduler.name.as_str();
            let known = of_entry.entry(demands[*number].entry).or_insert(Some(name));
            if *known != Some(name) {
                *known = None;
            }
        }
    }
    // An entry with labels has no Slurm demand; one with labels on some jobs only stays unchanged.
    for of in demands.iter().filter(|of| !of.demand.labels.is_empty()) {
        of_entry.insert(of.entry, None);
    }
    let edit = |(entry, name): (usize, Option<&'a str>)| {
        let value = NewFieldValue::Text(Cow::Borrowed(name?));
        Some(SpecEdit { list: "jobs", name: workflow.entry_name(entry), field: "scheduler", value })
    };
    of_entry.into_iter().filter_map(edit).collect()
}

fn text_field(text: &str) -> NewFieldContent<'_> {
    NewFieldContent::One(NewFieldValue::Text(Cow::Borrowed(text)))
}

fn scheduler_entry(scheduler: &SlurmScheduler) -> NewSpecEntry<'_> {
    let mut fields = vec![("name", text_field(&scheduler.name)), ("account", text_field(&scheduler.account))];
    let maybe = |name: &'static str, value: &'_ Option<String>| {
        value.as_deref().map(|value| (name, value.to_owned()))
    };
    let texts = [maybe("partition", &scheduler.partition), maybe("qos", &scheduler.qos)];
    let owned = |(name, value): (&'static str, String)| {
        (name, NewFieldContent::One(NewFieldValue::Text(Cow::Owned(value))))
    };
    fields.extend(texts.into_iter().flatten().map(owned));
    fields.push(("nodes", NewFieldContent::One(NewFieldValue::Integer(scheduler.nodes.into()))));
    fields.push(("walltime", text_field(&scheduler.walltime)));
    let texts = [maybe("mem", &scheduler.mem), maybe("gres", &scheduler.gres)];
    fields.extend(texts.into_iter().flatten().map(owned));
    if let Some(tasks) = scheduler.ntasks_per_node {
        fields.push(("ntasks_per_node", NewFieldContent::One(NewFieldValue::Integer(tasks.into()))));
    }
    fields.extend(maybe("extra", &scheduler.extra).map(owned));
    NewSpecEntry { list: "slurm_schedulers", fields }
}

fn action_entry<'a>(
    proposal: &'a SchedulerProposal,
    (field, jobs): (&'static str, Vec<String>),
) -> NewSpecEntry<'a> {
    let allocations = proposal.action.num_allocations.unwrap_or(1);
    let mut fields = vec![
        ("trigger_type", text_field(proposal.action.trigger_type.name())),
        ("action_type", text_field("schedule_nodes")),
        (field, NewFieldContent::Many(jobs.into_iter().map(Cow::Owned).collect())),
        ("scheduler", text_field(&proposal.scheduler.name)),
        ("scheduler_type", text_field("slurm")),
        ("num_allocations", NewFieldContent::One(NewFieldValue::Integer(allocations.into()))),
    ];
    if proposal.action.start_one_worker_per_node {
        fields.push(("start_one_worker_per_node", NewFieldContent::One(NewFieldValue::Flag(true))));
    }
    NewSpecEntry { list: "actions", fields }
}

fn wait_by_pattern(
    workflow: &ResolvedWorkflow<'_>,
    demands: &[EntryDemand],
    proposal: &SchedulerProposal,
) -> (&'static str, Vec<String>) {
    let names = proposal.trigger_demands.iter().map(|number| workflow.entry_name(demands[*number].entry));
    let patterns: BTreeSet<String> = names.map(name_pattern).collect();
    ("job_name_regexes", patterns.into_iter().collect())
}

/// Returns `sim_{i:03d}` as a regular expression: `^sim_.*$`.
fn name_pattern(name: &str) -> String {
    let mut pattern = String::from("^");
    let mut is_inside = false;
    for c in name.chars() {
        match c {
            '{' => {
                is_inside = true;
                pattern.push_str(".*");
            }
            '}' if is_inside => is_inside = false,
            _ if is_inside => {}
            c if c.is_ascii_alphanumeric() || c == '_' || c == '-' || !c.is_ascii() => pattern.push(c),
            c => pattern.extend(['\\', c]),
        }
    }
    pattern.push('$');
    pattern
}

fn wait_by_names(
    workflow: &ResolvedWorkflow<'_>,
    demands: &[EntryDemand],
    proposal: &SchedulerProposal,
) -> Vec<String> {
    let jobs = proposal.trigger_demands.iter().flat_map(|number| &demands[*number].jobs);
    jobs.take(MAX_NAMES + 1).map(|job| workflow.job(*job as usize).name.to_owned()).collect()
}

/// Whether the added actions, the last ones, wait for exactly the jobs that they should.
fn waits_match_demands(
    actions: &[Vec<u32>],
    demands: &[EntryDemand],
    proposals: &[SchedulerProposal],
) -> bool {
    let first = actions.len().saturating_sub(proposals.len());
    let is_right = |(waits_for, proposal): (&Vec<u32>, &SchedulerProposal)| {
        let mut jobs: Vec<u32> = proposal
            .trigger_demands
            .iter()
            .flat_map(|number| demands[*number].jobs.iter().copied())
            .collect();
        jobs.sort_unstable();
        *waits_for == jobs
    };
    actions[first..].iter().zip(proposals).all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameterized_names_become_patterns() {
        for (name, expected) in [
            ("stage", "^stage$"),
            ("sim_{i:03d}", "^sim_.*$"),
            ("a.b{x}-{y}c", r"^a\.b.*-.*c$"),
            ("née_{i}", "^née_.*$"),
        ] {
            assert_eq!(name_pattern(name), expected);
        }
    }
}
