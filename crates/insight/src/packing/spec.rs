//! The spec with what is asked of Slurm for it written into it.

use super::OfEntry;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::slurm::generate::Proposal;
use windlass_spec::patch::{self, Addition, Edit, NewEntry, NewField, NewValue, PatchError};
use windlass_spec::{Source, Workflow};
use windlass_types::settings::SlurmScheduler;

/// Up to so many names an action lists if no pattern says which jobs it waits for.
const MOST_NAMES: usize = 10_000;

/// It cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Unwritten {
    #[error("nobody said which account pays")]
    NoAccount,
    #[error("no pattern tells the jobs of `{0}` from others")]
    NoPattern(String),
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// The spec with schedulers, who uses them, and the actions that ask for their allocations.
///
/// `waits_for` reads such a text, and tells for which jobs each of its actions waits.
pub fn scheduled<E: From<Unwritten>>(
    source: Source<'_>,
    workflow: &Workflow<'_>,
    demands: &[OfEntry],
    proposals: &[Proposal],
    with_actions: bool,
    waits_for: impl FnOnce(&str) -> Result<Vec<Vec<u32>>, E>,
) -> Result<String, E> {
    if proposals.iter().any(|proposal| proposal.scheduler.account.is_empty()) {
        return Err(Unwritten::NoAccount.into());
    }
    let add = |addition: &Addition<'_>| patch::add(source, addition).map_err(Unwritten::from);
    let mut addition = Addition { fields: assigned(workflow, demands, proposals), entries: Vec::new() };
    addition.entries.extend(proposals.iter().map(|proposal| scheduler_entry(&proposal.scheduler)));
    if !with_actions {
        return Ok(add(&addition)?);
    }
    // A pattern is short and stays right when parameters change; names are used where it would mean other jobs.
    let mut patterned = addition.clone();
    patterned
        .entries
        .extend(proposals.iter().map(|one| action_entry(one, by_pattern(workflow, demands, one))));
    let new = add(&patterned)?;
    if are_the_right_ones(&waits_for(&new)?, demands, proposals) {
        return Ok(new);
    }
    for proposal in proposals {
        let names = by_names(workflow, demands, proposal);
        if names.len() > MOST_NAMES {
            return Err(Unwritten::NoPattern(proposal.scheduler.name.clone()).into());
        }
        addition.entries.push(action_entry(proposal, ("jobs", names)));
    }
    Ok(add(&addition)?)
}

/// Entries whose jobs all go to one scheduler name it. Others take what there is.
fn assigned<'a>(workflow: &'a Workflow<'_>, demands: &[OfEntry], proposals: &'a [Proposal]) -> Vec<Edit<'a>> {
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
    // An entry with labels has no demand among them; one with some of each stays as it is.
    for of in demands.iter().filter(|of| !of.demand.labels.is_empty()) {
        of_entry.insert(of.entry, None);
    }
    let edit = |(entry, name): (usize, Option<&'a str>)| {
        let value = NewValue::Text(Cow::Borrowed(name?));
        Some(Edit { list: "jobs", name: workflow.entry_name(entry), field: "scheduler", value })
    };
    of_entry.into_iter().filter_map(edit).collect()
}

fn text(text: &str) -> NewField<'_> {
    NewField::One(NewValue::Text(Cow::Borrowed(text)))
}

fn scheduler_entry(scheduler: &SlurmScheduler) -> NewEntry<'_> {
    let mut fields = vec![("name", text(&scheduler.name)), ("account", text(&scheduler.account))];
    let maybe = |name: &'static str, value: &'_ Option<String>| {
        value.as_deref().map(|value| (name, value.to_owned()))
    };
    let texts = [maybe("partition", &scheduler.partition), maybe("qos", &scheduler.qos)];
    let owned =
        |(name, value): (&'static str, String)| (name, NewField::One(NewValue::Text(Cow::Owned(value))));
    fields.extend(texts.into_iter().flatten().map(owned));
    fields.push(("nodes", NewField::One(NewValue::Integer(scheduler.nodes.into()))));
    fields.push(("walltime", text(&scheduler.walltime)));
    let texts = [maybe("mem", &scheduler.mem), maybe("gres", &scheduler.gres)];
    fields.extend(texts.into_iter().flatten().map(owned));
    if let Some(tasks) = scheduler.ntasks_per_node {
        fields.push(("ntasks_per_node", NewField::One(NewValue::Integer(tasks.into()))));
    }
    fields.extend(maybe("extra", &scheduler.extra).map(owned));
    NewEntry { list: "slurm_schedulers", fields }
}

fn action_entry<'a>(proposal: &'a Proposal, (field, jobs): (&'static str, Vec<String>)) -> NewEntry<'a> {
    let allocations = proposal.action.num_allocations.unwrap_or(1);
    let mut fields = vec![
        ("trigger_type", text(proposal.action.trigger_type.name())),
        ("action_type", text("schedule_nodes")),
        (field, NewField::Many(jobs.into_iter().map(Cow::Owned).collect())),
        ("scheduler", text(&proposal.scheduler.name)),
        ("scheduler_type", text("slurm")),
        ("num_allocations", NewField::One(NewValue::Integer(allocations.into()))),
    ];
    if proposal.action.start_one_worker_per_node {
        fields.push(("start_one_worker_per_node", NewField::One(NewValue::Flag(true))));
    }
    NewEntry { list: "actions", fields }
}

fn by_pattern(
    workflow: &Workflow<'_>,
    demands: &[OfEntry],
    proposal: &Proposal,
) -> (&'static str, Vec<String>) {
    let names = proposal.gate.iter().map(|number| workflow.entry_name(demands[*number].entry));
    let patterns: BTreeSet<String> = names.map(pattern).collect();
    ("job_name_regexes", patterns.into_iter().collect())
}

/// `sim_{i:03d}` as a regular expression: `^sim_.*$`.
fn pattern(name: &str) -> String {
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

fn by_names(workflow: &Workflow<'_>, demands: &[OfEntry], proposal: &Proposal) -> Vec<String> {
    let jobs = proposal.gate.iter().flat_map(|number| &demands[*number].jobs);
    jobs.take(MOST_NAMES + 1).map(|job| workflow.job(*job as usize).name.to_owned()).collect()
}

/// Whether the actions that were added, the last ones, wait for just those jobs that they should.
fn are_the_right_ones(actions: &[Vec<u32>], demands: &[OfEntry], proposals: &[Proposal]) -> bool {
    let first = actions.len().saturating_sub(proposals.len());
    let is_right = |(waits_for, proposal): (&Vec<u32>, &Proposal)| {
        let mut jobs: Vec<u32> =
            proposal.gate.iter().flat_map(|number| demands[*number].jobs.iter().copied()).collect();
        jobs.sort_unstable();
        *waits_for == jobs
    };
    actions[first..].iter().zip(proposals).all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parameters_become_patterns() {
        for (name, expected) in [
            ("stage", "^stage$"),
            ("sim_{i:03d}", "^sim_.*$"),
            ("a.b{x}-{y}c", r"^a\.b.*-.*c$"),
            ("née_{i}", "^née_.*$"),
        ] {
            assert_eq!(pattern(name), expected);
        }
    }
}
