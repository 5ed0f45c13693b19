//! Finds the failures that the command line means: by group, class, job, or a pattern of names.

use crate::args::JobRef;
use crate::args::triage::FailureFilterArgs;
use crate::error::CliError;
use crate::object_selection;
use windlass_core::failure_commands::is_applicable;
use windlass_store::Store;
use windlass_store::model::{FailureFilter, FailureGroup, FailureRow, WorkflowRow};
use windlass_types::JobId;
use windlass_types::failure_commands::FailureCommandKind;

/// So much of a key is shown; there are never so many groups that it would not do.
pub(crate) const KEY_LENGTH: usize = 8;

/// The group that a key, or the beginning of one, names.
pub(crate) fn find_group<'g>(
    groups: &'g [FailureGroup],
    key: &str,
    workflow: &WorkflowRow,
) -> Result<&'g FailureGroup, CliError> {
    let found: Vec<&FailureGroup> = groups.iter().filter(|group| group.signature.starts_with(key)).collect();
    let error = match found.as_slice() {
        [one] if !key.is_empty() => return Ok(one),
        [] => format!(
            "no failure in run {} of workflow {} ({}) has the key `{key}`",
            workflow.run_id, workflow.id, workflow.name
        ),
        _ => format!("several groups have keys that begin with `{key}`"),
    };
    Err(CliError::user(error).with_hint(format!("`windlass failures {}` lists them", workflow.id)))
}

/// The keys of the groups that were named.
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

/// Failures that nothing came after, as far as they were asked for.
pub(crate) fn list_open_failures(
    store: &dyn Store,
    workflow: &WorkflowRow,
    which: &FailureFilterArgs,
) -> Result<Vec<FailureRow>, CliError> {
    let groups = find_signatures(store, workflow, &which.group)?;
    let filter = FailureFilter { open_only: true, ..FailureFilter::default() };
    let mut rows = store.failures(workflow.id, &filter)?;
    rows.retain(|row| groups.is_empty() || groups.contains(&row.signature));
    rows.retain(|row| which.class.is_empty() || which.class.contains(&row.class));
    Ok(rows)
}

/// The jobs that an order is for. Those that are named one by one are taken as they are, so that the answer says why it
/// cannot be done; of those that are meant together only the ones for which it can.
pub(crate) fn select_jobs(
    store: &dyn Store,
    workflow: &WorkflowRow,
    verdict: FailureCommandKind,
    named: &[JobRef],
    which: &FailureFilterArgs,
) -> Result<Vec<JobId>, CliError> {
    let (patterns, names): (Vec<&JobRef>, Vec<&JobRef>) = named.iter().partition(|job| is_pattern(&job.text));
    let mut chosen = Vec::new();
    for job in names {
        chosen.push(object_selection::find_job(store, workflow, job, "--workflow")?.id);
    }
    if chosen.is_empty() || !patterns.is_empty() || !which.is_empty() {
        let rows = list_open_failures(store, workflow, which)?;
        if !which.is_empty() {
            chosen.retain(|job| rows.iter().any(|row| row.job_id == *job));
        }
        let is_meant = |row: &FailureRow| match patterns.as_slice() {
            [] => named.is_empty(),
            patterns => patterns.iter().any(|pattern| matches_pattern(&row.job_name, &pattern.text)),
        };
        let meant = rows.iter().filter(|row| is_applicable(verdict, row.job_status) && is_meant(row));
        chosen.extend(meant.map(|row| row.job_id));
    }
    let mut known = std::collections::HashSet::new();
    chosen.retain(|job| known.insert(*job));
    if chosen.is_empty() {
        return Err(no_failures_error(workflow, verdict));
    }
    Ok(chosen)
}

fn no_failures_error(workflow: &WorkflowRow, verdict: FailureCommandKind) -> CliError {
    let what = match verdict {
        FailureCommandKind::Fail => "waits for a decision",
        _ => "has failed",
    };
    CliError::user(format!("none of these jobs of workflow {} ({}) {what}", workflow.id, workflow.name))
        .with_hint(format!("`windlass failures {}` lists what failed", workflow.id))
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether a name is like a pattern, in which `*` is anything and `?` one letter.
fn matches_pattern(name: &str, pattern: &str) -> bool {
    let (name, pattern): (Vec<char>, Vec<char>) = (name.chars().collect(), pattern.chars().collect());
    let (mut n, mut p) = (0, 0);
    // Where the last `*` stood, and how much of the name it has taken.
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
    fn names_are_like_patterns_as_in_a_shell() {
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
