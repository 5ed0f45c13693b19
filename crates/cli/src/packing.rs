//! From a spec to one that says what is asked of Slurm for it. What that is, is found out in `insight/src/packing.rs`.

use crate::args::slurm::PackingArgs;
use crate::error::{CliError, Kind};
use crate::plan::SpecFile;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::slurm::generate::Proposal;
use windlass_core::slurm::groups::Options;
use windlass_core::slurm::profile::Profile;
use windlass_insight::packing::{self as asking, OfEntry, Unpacked};
use windlass_spec::Workflow;
use windlass_spec::patch::{self, Addition, Edit, NewEntry, NewField, NewValue};
use windlass_types::settings::SlurmScheduler;

pub(crate) use windlass_insight::packing::{check, demands, is_scheduled, title};

/// Up to so many names an action lists if no pattern says which jobs it waits for.
const MOST_NAMES: usize = 10_000;

/// A proposal for all of its jobs; or an error that names those that fit nowhere.
pub(crate) fn proposals(
    workflow: &Workflow<'_>,
    demands: &[OfEntry],
    profile: &Profile,
    args: &PackingArgs,
) -> Result<Vec<Proposal>, CliError> {
    Ok(asking::proposals(workflow, demands, profile, &options(workflow, args))?)
}

/// What was said on the command line, and what the spec says where that says nothing.
pub(crate) fn options(workflow: &Workflow<'_>, args: &PackingArgs) -> Options {
    args.options(asking::default_account(workflow).or(args.default_account.as_deref()))
}

impl From<Unpacked> for CliError {
    fn from(error: Unpacked) -> Self {
        let hint = error.hint();
        Self::new(Kind::Spec, error.to_string()).with_hint(hint)
    }
}

/// The spec with schedulers, who uses them, and the actions that ask for their allocations.
pub(crate) fn scheduled(
    file: &SpecFile,
    workflow: &Workflow<'_>,
    demands: &[OfEntry],
    proposals: &[Proposal],
    with_actions: bool,
) -> Result<SpecFile, CliError> {
    if proposals.iter().any(|proposal| proposal.scheduler.account.is_empty()) {
        return Err(CliError::user("nobody said which account pays").with_hint(
            "--account NAME, `account` in the spec's slurm_defaults, or `slurm.account` in the settings",
        ));
    }
    let mut addition = Addition { fields: assigned(workflow, demands, proposals), entries: Vec::new() };
    addition.entries.extend(proposals.iter().map(|proposal| scheduler_entry(&proposal.scheduler)));
    if !with_actions {
        return Ok(file.with_text(patch::add(file.source(), &addition)?));
    }
    // A pattern is short and stays right when parameters change; names are used where it would mean other jobs.
    let mut patterned = addition.clone();
    patterned
        .entries
        .extend(proposals.iter().map(|one| action_entry(one, by_pattern(workflow, demands, one))));
    let new = file.with_text(patch::add(file.source(), &patterned)?);
    if waits_for_the_right_ones(&new, demands, proposals)? {
        return Ok(new);
    }
    for proposal in proposals {
        let names = by_names(workflow, demands, proposal);
        if names.len() > MOST_NAMES {
            return Err(CliError::new(
                Kind::Spec,
                format!("no pattern tells the jobs of `{}` from others", proposal.scheduler.name),
            )
            .with_hint("give jobs of one entry names that no others have, or use --no-actions"));
        }
        addition.entries.push(action_entry(proposal, ("jobs", names)));
    }
    Ok(file.with_text(patch::add(file.source(), &addition)?))
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

/// Whether the actions that were added wait for just those jobs that they should.
fn waits_for_the_right_ones(
    new: &SpecFile,
    demands: &[OfEntry],
    proposals: &[Proposal],
) -> Result<bool, CliError> {
    let workflow = new.load()?;
    let actions = workflow.actions();
    let first = actions.len().saturating_sub(proposals.len());
    let is_right = |(action, proposal): (&windlass_spec::ResolvedAction, &Proposal)| {
        let mut jobs: Vec<u32> =
            proposal.gate.iter().flat_map(|number| demands[*number].jobs.iter().copied()).collect();
        jobs.sort_unstable();
        action.jobs == jobs
    };
    Ok(actions[first..].iter().zip(proposals).all(is_right))
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
