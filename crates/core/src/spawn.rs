//! Jobs that a running job adds to its own workflow: whether the batch makes sense, and in which shape it is stored.
//!
//! Only what the batch itself says is checked here. Whether a name is taken in the workflow, whether the caller still
//! runs and how often it may do this, the store knows when it writes.

use crate::edges::EdgesBuilder;
use crate::graph::Graph;
use rustc_hash::FxHashMap;

/// One job of the batch, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Spawned<'a> {
    pub name: &'a str,
    /// Names of other jobs of the batch.
    pub depends_on: &'a [&'a str],
}

/// A batch that makes sense. Every job of it also waits for the job that spawned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Per job of the batch, in its order: the jobs of the batch that it waits for, ascending and without repetition.
    pub depends_on: Vec<Vec<u32>>,
}

/// One thing that is wrong with a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the batch is empty; name at least one job")]
    Empty,
    #[error("job {} of the batch has no name", .0 + 1)]
    NoName(usize),
    #[error("two jobs of the batch are named `{0}`; names must be unique in the workflow")]
    Duplicate(String),
    #[error("job `{job}` depends on `{on}`, which is not in the batch; a spawned job can only wait for its batch{}", hint(.nearest.as_deref()))]
    Unknown { job: String, on: String, nearest: Option<String> },
    #[error("these jobs of the batch wait for each other in a circle: {}", circle(.0))]
    Cycle(Vec<String>),
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(". Did you mean `{name}`?")).unwrap_or_default()
}

fn circle(names: &[String]) -> String {
    let first = names.first().map(String::as_str);
    names.iter().map(String::as_str).chain(first).collect::<Vec<_>>().join(" → ")
}

/// Checks a batch; all that is wrong with it at once.
pub fn check(jobs: &[Spawned<'_>]) -> Result<Batch, Vec<Fault>> {
    let mut faults = Vec::new();
    if jobs.is_empty() {
        faults.push(Fault::Empty);
    }
    let mut numbers: FxHashMap<&str, u32> = FxHashMap::default();
    for (number, job) in jobs.iter().enumerate() {
        if job.name.is_empty() {
            faults.push(Fault::NoName(number));
        } else if numbers.insert(job.name, number as u32).is_some() {
            faults.push(Fault::Duplicate(job.name.to_owned()));
        }
    }
    let depends_on: Vec<Vec<u32>> = jobs.iter().map(|job| resolve(job, &numbers, &mut faults)).collect();
    if faults.is_empty()
        && let Some(cycle) = find_cycle(&depends_on)
    {
        faults.push(Fault::Cycle(cycle.iter().map(|&job| jobs[job as usize].name.to_owned()).collect()));
    }
    if faults.is_empty() { Ok(Batch { depends_on }) } else { Err(faults) }
}

fn resolve(job: &Spawned<'_>, numbers: &FxHashMap<&str, u32>, faults: &mut Vec<Fault>) -> Vec<u32> {
    let mut on = Vec::with_capacity(job.depends_on.len());
    for &name in job.depends_on {
        match numbers.get(name) {
            Some(&number) => on.push(number),
            None => faults.push(Fault::Unknown {
                job: job.name.to_owned(),
                on: name.to_owned(),
                nearest: nearest(name, numbers),
            }),
        }
    }
    on.sort_unstable();
    on.dedup();
    on
}

/// A name that differs only in case or in what separates its words: the slips that need no edit distance.
fn nearest(name: &str, numbers: &FxHashMap<&str, u32>) -> Option<String> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', ' ', '.'], "");
    let wanted = plain(name);
    let alike = numbers.iter().filter(|(known, _)| plain(known) == wanted);
    alike.min_by_key(|(_, number)| **number).map(|(known, _)| (*known).to_owned())
}

fn find_cycle(depends_on: &[Vec<u32>]) -> Option<Vec<u32>> {
    let mut builder = EdgesBuilder::default();
    for (job, on) in (0u32..).zip(depends_on) {
        builder.depend(job, on);
    }
    Graph::new(depends_on.len() as u32, &builder.finish()).err().map(|cycle| cycle.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(jobs: &[(&str, &[&str])]) -> Result<Vec<Vec<u32>>, Vec<String>> {
        let jobs: Vec<Spawned<'_>> =
            jobs.iter().map(|&(name, depends_on)| Spawned { name, depends_on }).collect();
        let batch =
            check(&jobs).map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        Ok(batch.depends_on)
    }

    #[test]
    fn names_become_numbers_in_any_order() {
        let batch = checked(&[("merge", &["b", "a", "b"]), ("a", &[]), ("b", &["a"])]);
        assert_eq!(batch, Ok(vec![vec![1, 2], vec![], vec![1]]));
    }

    #[test]
    fn all_faults_at_once_each_with_its_remedy() {
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
    fn a_circle_is_shown_as_a_path() {
        let faults = checked(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]).unwrap_err();
        let path =
            faults[0].strip_prefix("these jobs of the batch wait for each other in a circle: ").unwrap();
        let names: Vec<&str> = path.split(" → ").collect();
        assert_eq!((names.len(), names[0]), (4, names[3]), "{path}");
        assert_eq!(checked(&[("a", &["a"])]).unwrap_err().len(), 1);
    }
}
