//! Jobs that a running job adds to its own workflow: validation of the batch, and its stored form.
//!
//! Checks only the batch itself. The store checks on writing whether names are taken, whether the caller still
//! runs, and how often it may add jobs.

use crate::dependency_edges::DependencyEdgesBuilder;
use crate::dependency_graph::JobDependencyGraph;
use rustc_hash::FxHashMap;
use windlass_types::JobDefinition;
use windlass_types::worker_messages::is_reserved_variable;

/// One job of the batch.
#[derive(Clone, Debug, Default)]
pub struct SpawnedJob {
    pub definition: JobDefinition,
    /// Names of other jobs of the batch.
    pub depends_on: Vec<String>,
}

/// A valid batch. Every job of it also waits for the job that spawned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnBatch {
    /// For each job of the batch: the jobs of the batch that it waits for, ascending, without duplicates.
    pub depends_on: Vec<Vec<u32>>,
}

/// A problem of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnProblem {
    #[error("the batch is empty; name at least one job")]
    Empty,
    #[error("job {} of the batch has no name", .0 + 1)]
    NoName(usize),
    #[error("job `{0}` has no command")]
    NoCommand(String),
    #[error("{what} of job `{job}` contains a NUL byte, which cannot be passed to a program")]
    Nul { job: String, what: String },
    #[error(
        "job `{job}` sets a variable `{name}`; names of variables consist of letters, digits and _, and do not start with a digit"
    )]
    VariableName { job: String, name: String },
    #[error("job `{job}` sets the variable `{name}`, which Windlass sets itself; choose another name")]
    Reserved { job: String, name: String },
    #[error("the lineage is empty; leave it out, or give it a name")]
    NoLineage,
    #[error("two jobs of the batch are named `{0}`; names must be unique in the workflow")]
    Duplicate(String),
    #[error("job `{job}` depends on `{on}`, which is not in the batch; a spawned job can only wait for its batch{}", nearest_hint(.nearest.as_deref()))]
    UnknownDependency { job: String, on: String, nearest: Option<String> },
    #[error("these jobs of the batch depend on each other in a cycle: {}", format_cycle(.0))]
    Cycle(Vec<String>),
}

fn nearest_hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(". Did you mean `{name}`?")).unwrap_or_default()
}

fn format_cycle(names: &[String]) -> String {
    let first = names.first().map(String::as_str);
    names.iter().map(String::as_str).chain(first).collect::<Vec<_>>().join(" → ")
}

/// Checks a batch with its lineage; returns all problems.
pub fn check_spawn_batch(
    jobs: &[SpawnedJob],
    lineage: Option<&str>,
) -> Result<SpawnBatch, Vec<SpawnProblem>> {
    let mut faults = Vec::new();
    if jobs.is_empty() {
        faults.push(SpawnProblem::Empty);
    }
    if lineage.is_some_and(|lineage| lineage.trim().is_empty()) {
        faults.push(SpawnProblem::NoLineage);
    }
    let mut numbers: FxHashMap<&str, u32> = FxHashMap::default();
    for (number, SpawnedJob { definition: job, .. }) in jobs.iter().enumerate() {
        if job.name.is_empty() {
            faults.push(SpawnProblem::NoName(number));
        } else if numbers.insert(&job.name, number as u32).is_some() {
            faults.push(SpawnProblem::Duplicate(job.name.clone()));
        }
    }
    for job in jobs {
        check_job_texts(&job.definition, &mut faults);
    }
    let depends_on: Vec<Vec<u32>> =
        jobs.iter().map(|job| resolve_dependencies(job, &numbers, &mut faults)).collect();
    if faults.is_empty()
        && let Some(cycle) = find_cycle(&depends_on)
    {
        faults.push(SpawnProblem::Cycle(
            cycle.iter().map(|&job| jobs[job as usize].definition.name.clone()).collect(),
        ));
    }
    if faults.is_empty() { Ok(SpawnBatch { depends_on }) } else { Err(faults) }
}

/// Checks what a spec would reject too, because no process could be started with it.
fn check_job_texts(job: &JobDefinition, faults: &mut Vec<SpawnProblem>) {
    // A NUL byte in a name is replaced for display.
    let shown = || job.name.replace('\0', "␀");
    if job.command.trim().is_empty() {
        faults.push(SpawnProblem::NoCommand(shown()));
    }
    let script = job.invocation_script.as_deref().unwrap_or_default();
    for (what, text) in [("the name", &*job.name), ("the command", &*job.command), ("the script", script)] {
        if text.contains('\0') {
            faults.push(SpawnProblem::Nul { job: shown(), what: what.to_owned() });
        }
    }
    for (name, value) in &job.env {
        if !is_variable_name(name) {
            faults.push(SpawnProblem::VariableName { job: shown(), name: name.replace('\0', "␀") });
        } else if is_reserved_variable(name) {
            faults.push(SpawnProblem::Reserved { job: shown(), name: name.clone() });
        } else if value.contains('\0') {
            faults.push(SpawnProblem::Nul { job: shown(), what: format!("variable `{name}`") });
        }
    }
}

fn is_variable_name(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

fn resolve_dependencies(
    job: &SpawnedJob,
    numbers: &FxHashMap<&str, u32>,
    faults: &mut Vec<SpawnProblem>,
) -> Vec<u32> {
    let mut on = Vec::with_capacity(job.depends_on.len());
    for name in &job.depends_on {
        match numbers.get(name.as_str()) {
            Some(&number) => on.push(number),
            None => faults.push(SpawnProblem::UnknownDependency {
                job: job.definition.name.clone(),
                on: name.clone(),
                nearest: nearest_name(name, numbers),
            }),
        }
    }
    on.sort_unstable();
    on.dedup();
    on
}

/// Returns a name that differs only in case or in separators: typos that need no edit distance.
fn nearest_name(name: &str, numbers: &FxHashMap<&str, u32>) -> Option<String> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', ' ', '.'], "");
    let wanted = plain(name);
    let alike = numbers.iter().filter(|(known, _)| plain(known) == wanted);
    alike.min_by_key(|(_, number)| **number).map(|(known, _)| (*known).to_owned())
}

fn find_cycle(depends_on: &[Vec<u32>]) -> Option<Vec<u32>> {
    let mut builder = DependencyEdgesBuilder::default();
    for (job, on) in (0u32..).zip(depends_on) {
        builder.add_dependencies(job, on);
    }
    JobDependencyGraph::new(depends_on.len() as u32, &builder.finish()).err().map(|cycle| cycle.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(jobs: &[(&str, &[&str])]) -> Result<Vec<Vec<u32>>, Vec<String>> {
        let jobs: Vec<SpawnedJob> = jobs
            .iter()
            .map(|(name, depends_on)| SpawnedJob {
                depends_on: depends_on.iter().map(|&on| on.to_owned()).collect(),
                ..spawned(good(name))
            })
            .collect();
        Ok(check_spawn_batch(&jobs, None).map_err(|faults| told(&faults))?.depends_on)
    }

    fn good(name: &str) -> JobDefinition {
        JobDefinition::new(name, "true")
    }

    fn spawned(definition: JobDefinition) -> SpawnedJob {
        SpawnedJob { definition, depends_on: Vec::new() }
    }

    fn with_variable(name: &str, value: &str) -> JobDefinition {
        JobDefinition { env: vec![(name.to_owned(), value.to_owned())], ..good("j") }
    }

    fn told(faults: &[SpawnProblem]) -> Vec<String> {
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unstartable_jobs_are_rejected() {
        let name = "names of variables consist of letters, digits and _, and do not start with a digit";
        let no_variable = |shown: &str| format!("job `j` sets a variable `{shown}`; {name}");
        let nul = |what: &str| {
            format!("{what} of job `j` contains a NUL byte, which cannot be passed to a program")
        };
        for (job, fault) in [
            (JobDefinition { command: " \n".to_owned(), ..good("j") }, "job `j` has no command".to_owned()),
            (JobDefinition { command: "a\0b".to_owned(), ..good("j") }, nul("the command")),
            (JobDefinition { invocation_script: Some("\0".to_owned()), ..good("j") }, nul("the script")),
            (with_variable("A=B", "1"), no_variable("A=B")),
            (with_variable("", "1"), no_variable("")),
            (with_variable("1A", "1"), no_variable("1A")),
            (with_variable("A\0", "1"), no_variable("A␀")),
            (with_variable("A", "\0"), nul("variable `A`")),
            (
                with_variable("WINDLASS_X", "1"),
                "job `j` sets the variable `WINDLASS_X`, which Windlass sets itself; choose another name"
                    .to_owned(),
            ),
        ] {
            assert_eq!(told(&check_spawn_batch(&[spawned(job)], Some("rounds")).unwrap_err()), [fault]);
        }
        let hidden = told(&check_spawn_batch(&[spawned(good("a\0"))], None).unwrap_err());
        assert_eq!(hidden, ["the name of job `a␀` contains a NUL byte, which cannot be passed to a program"]);
        let empty = told(&check_spawn_batch(&[spawned(good("a"))], Some(" ")).unwrap_err());
        assert_eq!(empty, ["the lineage is empty; leave it out, or give it a name"]);
        assert!(check_spawn_batch(&[spawned(with_variable("_A1", ""))], None).is_ok());
    }

    #[test]
    fn spawned_dependencies_are_resolved_in_any_order() {
        let batch = checked(&[("merge", &["b", "a", "b"]), ("a", &[]), ("b", &["a"])]);
        assert_eq!(batch, Ok(vec![vec![1, 2], vec![], vec![1]]));
    }

    #[test]
    fn all_faults_are_reported_with_remedies() {
        let faults = checked(&[("part-1", &[]), ("part-1", &[]), ("", &[]), ("sum", &["part_1", "gone"])])
            .unwrap_err();
        assert_eq!(
            faults,
            [
                "two jobs of the batch are named `part-1`; names must be unique in the workflow",
                "job 3 of the batch has no name",
                "job `sum` depends on `part_1`, which is not in the batch; a spawned job can only wait for its batch. \
                 Did you mean `part-1`?",
                "job `sum` depends on `gone`, which is not in the batch; a spawned job can only wait for its batch",
            ]
        );
        assert_eq!(checked(&[]).unwrap_err(), ["the batch is empty; name at least one job"]);
    }

    #[test]
    fn cycle_is_shown_as_a_path() {
        let faults = checked(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]).unwrap_err();
        let path =
            faults[0].strip_prefix("these jobs of the batch depend on each other in a cycle: ").unwrap();
        let names: Vec<&str> = path.split(" → ").collect();
        assert_eq!((names.len(), names[0]), (4, names[3]), "{path}");
        assert_eq!(checked(&[("a", &["a"])]).unwrap_err().len(), 1);
    }
}
