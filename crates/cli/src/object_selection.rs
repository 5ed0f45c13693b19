//! Finds the workflows or the job that the command line selects: by id, name, name prefix, or `last`.

use crate::args::{JobRef, WorkflowRef, WorkflowSet, WorkflowSetPart};
use crate::error::CliError;
use std::path::Path;
use windlass_store::Store;
use windlass_store::model::{JobFilter, JobRow, WorkflowRow};
use windlass_types::{JobId, WorkflowId};

/// Minimum length of a uuid prefix; shorter ones would be a guess.
const MIN_UUID_PREFIX: usize = 4;
/// Number of names that are searched for a similar one.
const MAX_NAMES_COMPARED: u64 = 50_000;
/// Maximum number of candidates named.
const MAX_CANDIDATES: usize = 5;

pub(crate) fn find_workflow(store: &dyn Store, wanted: &WorkflowRef) -> Result<WorkflowRow, CliError> {
    match wanted {
        WorkflowRef::Id(id) => store.workflow(*id)?.ok_or_else(|| {
            CliError::user(format!("there is no workflow {id}")).with_hint("`windlass workflows` lists them")
        }),
        WorkflowRef::Last => newest_workflow(store.workflows()?),
        WorkflowRef::Name(name) => workflow_by_name(store.workflows()?, name),
    }
}

/// `last` never selects an archived workflow.
fn newest_workflow(all: Vec<WorkflowRow>) -> Result<WorkflowRow, CliError> {
    let archived = all.len();
    let newest = all.into_iter().filter(|row| !row.is_archived).max_by_key(|row| row.id);
    newest.ok_or_else(|| match archived {
        0 => {
            CliError::user("there are no workflows yet").with_hint("`windlass run SPEC` creates and runs one")
        }
        _ => CliError::user("all workflows are archived")
            .with_hint("`windlass workflows list --archived-only` lists them; select one by its id"),
    })
}

/// A word that is neither an existing file nor looks like a path may name a workflow.
pub(crate) fn workflow_ref_from_word(cwd: &Path, word: &Path) -> Option<WorkflowRef> {
    let text = word.to_str()?;
    let is_a_path = text == "-" || text.contains('/') || cwd.join(word).exists();
    let Ok(named) = text.parse();
    match named {
        // `sim.yaml` is a missing file rather than a workflow of that name.
        WorkflowRef::Name(name) if is_a_path || name.contains('.') => None,
        _ if is_a_path => None,
        named => Some(named),
    }
}

/// All selected workflows, without duplicates, in the given order.
pub(crate) fn find_workflows(
    store: &dyn Store,
    wanted: &[WorkflowSet],
) -> Result<Vec<WorkflowRow>, CliError> {
    let mut found: Vec<WorkflowRow> = Vec::new();
    for part in wanted.iter().flat_map(|set| &set.0) {
        let rows = match part {
            WorkflowSetPart::One(one) => vec![find_workflow(store, one)?],
            WorkflowSetPart::Range(first, last) => workflows_in_range(store, *first, *last)?,
        };
        for row in rows {
            if found.iter().all(|known| known.id != row.id) {
                found.push(row);
            }
        }
    }
    Ok(found)
}

fn workflows_in_range(
    store: &dyn Store,
    first: WorkflowId,
    last: WorkflowId,
) -> Result<Vec<WorkflowRow>, CliError> {
    let mut rows = store.workflows()?;
    rows.retain(|row| (first..=last).contains(&row.id));
    rows.sort_by_key(|row| row.id);
    if rows.is_empty() {
        return Err(CliError::user(format!("there is no workflow from {first} to {last}"))
            .with_hint("`windlass workflows` lists them"));
    }
    Ok(rows)
}

fn workflow_by_name(mut all: Vec<WorkflowRow>, name: &str) -> Result<WorkflowRow, CliError> {
    all.sort_by_key(|row| std::cmp::Reverse(row.id));
    let begins_uuid = |row: &WorkflowRow| name.len() >= MIN_UUID_PREFIX && row.uuid.starts_with(name);
    let matches: [&dyn Fn(&WorkflowRow) -> bool; 3] =
        [&|row| row.name == name, &|row| row.name.starts_with(name), &begins_uuid];
    for matches in matches {
        let found: Vec<usize> = (0..all.len()).filter(|i| matches(&all[*i])).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(all.swap_remove(*one)),
            _ => return Err(ambiguous_name_error(&found.iter().map(|i| &all[*i]).collect::<Vec<_>>(), name)),
        }
    }
    let hint = match windlass_spec::nearest_name(name, all.iter().map(|row| row.name.as_str())) {
        Some(near) => format!("did you mean `{near}`? `windlass workflows` lists them"),
        None => "`windlass workflows` lists them".to_owned(),
    };
    Err(CliError::user(format!("there is no workflow named `{name}`")).with_hint(hint))
}

fn ambiguous_name_error(found: &[&WorkflowRow], name: &str) -> CliError {
    let newest = found.first().map_or(WorkflowId(0), |row| row.id);
    let count = found.len();
    let message = if found.iter().all(|row| row.name == name) {
        let ids = found.iter().map(|row| row.id.to_string()).collect::<Vec<_>>().join(", ");
        format!("{count} workflows are named `{name}`: {ids}")
    } else {
        let named = found.iter().take(MAX_CANDIDATES).map(|row| format!("{} ({})", row.id, row.name));
        let dots = if count > MAX_CANDIDATES { ", …" } else { "" };
        format!("{count} workflows start with `{name}`: {}{dots}", named.collect::<Vec<_>>().join(", "))
    };
    CliError::user(message).with_hint(format!("use its id; the newest is {newest}"))
}

/// The job that was named on the command line. `elsewhere` is how that command selects another workflow.
pub(crate) fn find_job(
    store: &dyn Store,
    workflow: &WorkflowRow,
    wanted: &JobRef,
    elsewhere: &str,
) -> Result<JobRow, CliError> {
    match find_exact_job(store, workflow, wanted)? {
        Some(job) => Ok(job),
        None => find_job_by_prefix(store, workflow, wanted, elsewhere),
    }
}

/// By id or full name.
pub(crate) fn find_exact_job(
    store: &dyn Store,
    workflow: &WorkflowRow,
    wanted: &JobRef,
) -> Result<Option<JobRow>, CliError> {
    let by_id = wanted.id.map(|id| find_job_by_id(store, workflow, id)).transpose()?.flatten();
    let by_name = JobFilter { name: Some(wanted.text.clone()), ..JobFilter::default() };
    let by_name = store.jobs(workflow.id, &by_name)?.into_iter().next();
    match (by_id, by_name) {
        (Some(first), Some(second)) if first.id != second.id => Err(CliError::user(format!(
            "`{0}` is both the id of job `{1}` and the name of job {2}",
            wanted.text, first.name, second.id
        ))
        .with_hint(format!("use `{}` or {}", first.name, second.id))),
        (by_id, by_name) => Ok(by_id.or(by_name)),
    }
}

fn find_job_by_prefix(
    store: &dyn Store,
    workflow: &WorkflowRow,
    wanted: &JobRef,
    elsewhere: &str,
) -> Result<JobRow, CliError> {
    let limit = Some(MAX_CANDIDATES as u64 + 1);
    let filter = JobFilter { name_prefix: Some(wanted.text.clone()), limit, ..JobFilter::default() };
    let mut found = if wanted.text.is_empty() { Vec::new() } else { store.jobs(workflow.id, &filter)? };
    match found.len() {
        0 => Err(job_not_found_error(store, workflow, wanted, elsewhere)?),
        1 => Ok(found.swap_remove(0)),
        n => {
            let names =
                found.iter().take(MAX_CANDIDATES).map(|job| format!("`{}`", job.name)).collect::<Vec<_>>();
            let dots = if n > MAX_CANDIDATES { ", …" } else { "" };
            Err(CliError::user(format!(
                "several jobs start with `{}`: {}{dots}",
                wanted.text,
                names.join(", ")
            ))
            .with_hint("give more of the name, or the id"))
        }
    }
}

fn job_not_found_error(
    store: &dyn Store,
    workflow: &WorkflowRow,
    wanted: &JobRef,
    elsewhere: &str,
) -> Result<CliError, CliError> {
    let some = JobFilter { limit: Some(MAX_NAMES_COMPARED), ..JobFilter::default() };
    let jobs = store.jobs(workflow.id, &some)?;
    let near = windlass_spec::nearest_name(&wanted.text, jobs.iter().map(|job| job.name.as_str()));
    let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let shown = format!("workflow {} ({}) has no job `{}`", workflow.id, workflow.name, wanted.text);
    Ok(CliError::user(shown).with_hint(format!(
        "{meant}`windlass jobs {}` lists its jobs; use {elsewhere} for another workflow",
        workflow.id
    )))
}

/// The named job in the selected workflow; an id alone is enough, in any workflow.
pub(crate) fn find_job_anywhere(
    store: &dyn Store,
    wanted: &JobRef,
    workflow: &WorkflowRef,
) -> Result<(WorkflowRow, JobRow), CliError> {
    let here = self::find_workflow(store, workflow)?;
    if let Some(job) = find_exact_job(store, &here, wanted)? {
        return Ok((here, job));
    }
    if let Some(id) = wanted.id
        && *workflow == WorkflowRef::Last
    {
        for row in store.workflows()? {
            if let Some(job) = find_job_by_id(store, &row, id)? {
                return Ok((row, job));
            }
        }
    }
    let job = find_job_by_prefix(store, &here, wanted, "--workflow")?;
    Ok((here, job))
}

pub(crate) fn find_job_by_id(
    store: &dyn Store,
    workflow: &WorkflowRow,
    id: JobId,
) -> Result<Option<JobRow>, CliError> {
    let by_id = JobFilter { ids: vec![id], ..JobFilter::default() };
    Ok(store.jobs(workflow.id, &by_id)?.into_iter().next())
}
