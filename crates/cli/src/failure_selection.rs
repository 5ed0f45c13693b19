//! Finds the failures that the command line selects: by group, class, job, or name pattern.

use crate::args::JobRef;
use crate::args::failures::{FailureDecisionArgs, FailureFilterArgs};
use crate::error::CliError;
use crate::object_selection;
use windlass_core::failure_commands::is_applicable;
use windlass_store::Store;
use windlass_store::model::{FailureFilter, FailureGroup, FailureRow, WorkflowRow};
use windlass_types::JobId;
use windlass_types::failure_commands::FailureCommandKind;

/// Number of characters of a key that are shown; enough for any realistic number of groups.
pub(crate) const KEY_LENGTH: usize = 8;

/// Shorter words that name a job are jobs, also if a key begins with them.
const MIN_CLEAR_KEY: usize = 4;

/// Finds the group by its key or a prefix of it.
pub(crate) fn find_group<'g>(
    groups: &'g [FailureGroup],
    key: &str,
    workflow: &WorkflowRow,
) -> Result<&'g FailureGroup, CliError> {
    let found: Vec<&FailureGroup> = groups.iter().filter(|group| group.signature.starts_with(key)).collect();
    let error = match found.as_slice() {
        [one] if !key.is_empty() => return Ok(one),
        [] => format!(
            "no failure in run {} of workflow {} ({}) has key `{key}`",
            workflow.run_id, workflow.id, workflow.name
        ),
        _ => format!("several groups have keys that start with `{key}`"),
    };
    Err(CliError::user(error).with_hint(format!("`windlass failures {}` lists them", workflow.id)))
}

/// The keys of the selected groups.
fn find_signatures(
    store: &dyn Store,
    workflow: &WorkflowRow,
    keys: &[String],
) -> Result<Vec<String>, CliError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let groups = store.failure_groups(workflow.id)?;
    keys.iter().map(|key| Ok(find_group(&groups, key, workflow)?.signature.clone())).collect()
}

/// The latest failures of jobs, filtered by the selection.
pub(crate) fn list_open_failures(
    store: &dyn Store,
    workflow: &WorkflowRow,
    filter: &FailureFilterArgs,
) -> Result<Vec<FailureRow>, CliError> {
    let groups = find_signatures(store, workflow, &filter.group)?;
    let open = FailureFilter { open_only: true, ..FailureFilter::default() };
    let mut rows = store.failures(workflow.id, &open)?;
    rows.retain(|row| groups.is_empty() || groups.contains(&row.signature));
    rows.retain(|row| filter.class.is_empty() || filter.class.contains(&row.class));
    Ok(rows)
}

/// Separates the keys of groups from the jobs among the words of a decision. A word that names a job is a job,
/// unless it is long enough to be meant as a key.
pub(crate) fn split_jobs_and_groups(
    store: &dyn Store,
    workflow: &WorkflowRow,
    args: &FailureDecisionArgs,
) -> Result<(Vec<JobRef>, FailureFilterArgs), CliError> {
    let mut filter = args.filter.clone();
    let (mut jobs, mut keys) = (Vec::new(), Vec::new());
    let groups = if args.jobs.is_empty() { Vec::new() } else { store.failure_groups(workflow.id)? };
    for word in &args.jobs {
        let is_key = groups.iter().any(|group| group.signature.starts_with(&word.text));
        let exact = object_selection::find_exact_job(store, workflow, word)?;
        match exact {
            None if is_pattern(&word.text) => jobs.push(word.clone()),
            None if !is_key || word.text.is_empty() => {
                object_selection::find_job(store, workflow, word, "--workflow")
                    .map_err(|error| explain_unknown_word(error, workflow, &word.text))?;
                jobs.push(word.clone());
            }
            None => keys.push(word.text.clone()),
            Some(_) if !is_key || word.text.len() < MIN_CLEAR_KEY => jobs.push(word.clone()),
            Some(job) => {
                return Err(CliError::user(format!("`{}` names a job and a group of failures", word.text))
                    .with_hint(format!(
                        "`{}` names the job, and `--group {}` the group",
                        job.name, word.text
                    )));
            }
        }
    }
    if !keys.is_empty() && !jobs.is_empty() {
        return Err(
            CliError::user("jobs and groups cannot be combined").with_hint("use one command for each")
        );
    }
    if !keys.is_empty() && args.reason.is_empty() {
        return Err(CliError::user("a decision about a group needs a reason").with_hint("--reason TEXT"));
    }
    filter.group.extend(keys);
    Ok((jobs, filter))
}

fn explain_unknown_word(error: CliError, workflow: &WorkflowRow, word: &str) -> CliError {
    let message = format!("`{word}` is neither a job nor the key of a group: {error}");
    CliError { message, ..error }.with_hint(format!(
        "`windlass failures {0}` lists groups and their keys, `windlass jobs {0}` the jobs",
        workflow.id
    ))
}

/// The jobs of a command. Jobs that are named individually are kept, so that the result explains why the
/// command cannot be applied; of jobs selected by group or pattern, only those are kept to which it can be.
pub(crate) fn select_jobs(
    store: &dyn Store,
    workflow: &WorkflowRow,
    command: FailureCommandKind,
    named: &[JobRef],
    filter: &FailureFilterArgs,
) -> Result<Vec<JobId>, CliError> {
    let (patterns, names): (Vec<&JobRef>, Vec<&JobRef>) = named.iter().partition(|job| is_pattern(&job.text));
    let mut chosen = Vec::new();
    for job in names {
        chosen.push(object_selection::find_job(store, workflow, job, "--workflow")?.id);
    }
    if chosen.is_empty() || !patterns.is_empty() || !filter.is_empty() {
        let rows = list_open_failures(store, workflow, filter)?;
        if !filter.is_empty() {
            chosen.retain(|job| rows.iter().any(|row| row.job_id == *job));
        }
        let is_meant = |row: &FailureRow| match patterns.as_slice() {
            [] => named.is_empty(),
            patterns => patterns.iter().any(|pattern| matches_pattern(&row.job_name, &pattern.text)),
        };
        let meant = rows.iter().filter(|row| is_applicable(command, row.job_status) && is_meant(row));
        chosen.extend(meant.map(|row| row.job_id));
    }
    let mut known = std::collections::HashSet::new();
    chosen.retain(|job| known.insert(*job));
    if chosen.is_empty() {
        return Err(no_failures_error(workflow, command));
    }
    Ok(chosen)
}

fn no_failures_error(workflow: &WorkflowRow, command: FailureCommandKind) -> CliError {
    let what = match command {
        FailureCommandKind::Fail => "is waiting for a decision",
        _ => "has failed",
    };
    CliError::user(format!("none of these jobs of workflow {} ({}) {what}", workflow.id, workflow.name))
        .with_hint(format!("`windlass failures {}` lists the failures", workflow.id))
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether a name matches a pattern, in which `*` matches any text and `?` one character.
fn matches_pattern(name: &str, pattern: &str) -> bool {
    let (name, pattern): (Vec<char>, Vec<char>) = (name.chars().collect(), pattern.chars().collect());
    let (mut n, mut p) = (0, 0);
    // The position of the last `*`, and the part of the name that it matches.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(letter) if *letter == '?' || *letter == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, n) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_names_match_shell_patterns() {
        for (name, pattern, expected) in [
            ("align_7", "align_*", true),
            ("align_7", "align_?", true),
            ("align_17", "align_?", false),
            ("align_7_late", "*_7_*", true),
            ("abab", "*ab", true),
            ("aab", "a*b*", true),
            ("merge", "align_*", false),
            ("", "*", true),
            ("x", "", false),
        ] {
            assert_eq!(matches_pattern(name, pattern), expected, "{name} {pattern}");
        }
    }
}
