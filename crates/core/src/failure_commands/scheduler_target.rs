//! Scheduler and partition of jobs. A job that moves to another partition gets a scheduler of its own; the one
//! that it shares with others does not change.

use serde::{Deserialize, Serialize};
use windlass_types::failure_commands::RequestedJobChanges;
use windlass_types::settings::SlurmScheduler;

/// Maximum length of a partition name.
const MAX_PARTITION_NAME: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerTarget {
    /// It names no scheduler.
    Anywhere,
    Slurm(Box<SlurmScheduler>),
}

impl SchedulerTarget {
    pub fn from_scheduler(scheduler: Option<&SlurmScheduler>) -> Self {
        scheduler.map_or(Self::Anywhere, |scheduler| Self::Slurm(Box::new(scheduler.clone())))
    }

    pub fn scheduler(&self) -> Option<&SlurmScheduler> {
        match self {
            Self::Anywhere => None,
            Self::Slurm(scheduler) => Some(scheduler),
        }
    }
}

/// Returns the scheduler of a job after these changes (`None`: unchanged), or why that is not possible.
/// `known`: the schedulers of the workflow.
pub(super) fn plan_scheduler_change(
    changes: &RequestedJobChanges,
    now: Option<&SlurmScheduler>,
    known: &[SlurmScheduler],
) -> Result<Option<SlurmScheduler>, String> {
    let base = match &changes.scheduler {
        None if changes.partition.is_none() => return Ok(None),
        None => now.ok_or("the job has no Slurm scheduler whose partition could change: name one too")?,
        Some(name) => known
            .iter()
            .find(|one| one.name == *name)
            .ok_or_else(|| unknown_scheduler_message(name, known))?,
    };
    let then = match &changes.partition {
        Some(partition) if base.partition.as_ref() != Some(partition) => {
            check_partition_name(partition)?;
            with_partition(base, partition, known)
        }
        _ => base.clone(),
    };
    Ok((Some(&then) != now).then_some(then))
}

fn unknown_scheduler_message(name: &str, known: &[SlurmScheduler]) -> String {
    let names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
    if names.is_empty() {
        return format!("there is no scheduler `{name}`: the workflow has none");
    }
    format!("there is no scheduler `{name}` (known: {})", names.join(", "))
}

/// One partition, or several alternatives: `short,long`.
fn check_partition_name(partition: &str) -> Result<(), String> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+'))
    };
    if partition.len() <= MAX_PARTITION_NAME && partition.split(',').all(is_word) {
        return Ok(());
    }
    Err(format!("`{}` is not a partition name", partition.escape_debug()))
}

/// Returns an existing scheduler that differs only in its name, or else a new one.
fn with_partition(base: &SlurmScheduler, partition: &str, known: &[SlurmScheduler]) -> SlurmScheduler {
    let mut then = SlurmScheduler { partition: Some(partition.to_owned()), ..base.clone() };
    let is_same =
        |one: &&SlurmScheduler| SlurmScheduler { name: base.name.clone(), ..(*one).clone() } == then;
    if let Some(same) = known.iter().find(is_same) {
        return same.clone();
    }
    let stem = format!("{}@{partition}", original_name(base));
    let is_free = |name: &String| known.iter().all(|one| one.name != *name);
    let mut names = std::iter::once(stem.clone()).chain((2..).map(|n| format!("{stem}-{n}")));
    then.name = names.find(is_free).unwrap_or(stem);
    then
}

/// Returns the name of the scheduler that this one was derived from.
fn original_name(scheduler: &SlurmScheduler) -> &str {
    let ending = scheduler.partition.as_ref().map(|partition| format!("@{partition}"));
    ending.and_then(|ending| scheduler.name.strip_suffix(&ending)).unwrap_or(&scheduler.name)
}

/// `partition short → long`
pub(super) fn describe_target_change(before: &SchedulerTarget, after: &SchedulerTarget) -> Vec<String> {
    let (old, new) = (before.scheduler(), after.scheduler());
    let name = |one: Option<&SlurmScheduler>| {
        one.map_or_else(|| "none".to_owned(), |one| original_name(one).to_owned())
    };
    let partition = |one: Option<&SlurmScheduler>| {
        one.and_then(|one| one.partition.clone()).unwrap_or_else(|| "unsaid".to_owned())
    };
    let mut parts = Vec::new();
    if name(old) != name(new) {
        parts.push(format!("scheduler {} → {}", name(old), name(new)));
    }
    if partition(old) != partition(new) {
        parts.push(format!("partition {} → {}", partition(old), partition(new)));
    }
    if parts.is_empty() {
        let renamed = old.zip(new).filter(|(old, new)| old.name != new.name);
        parts.extend(renamed.map(|(old, new)| format!("scheduler {} → {}", old.name, new.name)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler(name: &str, partition: Option<&str>) -> SlurmScheduler {
        let partition = partition.map(str::to_owned);
        SlurmScheduler { name: name.into(), account: "a".into(), partition, ..SlurmScheduler::default() }
    }

    fn changes(scheduler: Option<&str>, partition: Option<&str>) -> RequestedJobChanges {
        let text = |text: Option<&str>| text.map(str::to_owned);
        RequestedJobChanges {
            scheduler: text(scheduler),
            partition: text(partition),
            ..RequestedJobChanges::default()
        }
    }

    #[test]
    fn scheduler_change_keeps_the_shared_scheduler() {
        let (cpu, gpu) = (scheduler("cpu", Some("short")), scheduler("gpu", None));
        let known = [cpu.clone(), gpu.clone()];
        let to = |s: Option<&str>, p: Option<&str>, now: Option<&SlurmScheduler>| {
            plan_scheduler_change(&changes(s, p), now, &known).unwrap()
        };
        assert_eq!(to(None, None, Some(&cpu)), None);
        assert_eq!(to(None, Some("short"), Some(&cpu)), None, "it exists");
        let long = to(None, Some("long"), Some(&cpu)).unwrap();
        assert_eq!((&*long.name, long.partition.as_deref(), &*long.account), ("cpu@long", Some("long"), "a"));
        assert_eq!(to(Some("gpu"), None, Some(&cpu)), Some(gpu.clone()));
        assert_eq!(to(Some("gpu"), Some("big,huge"), None).unwrap().name, "gpu@big,huge");
        assert_eq!(to(None, Some("short"), Some(&long)), Some(cpu.clone()), "an existing one is used");
        assert_eq!(to(None, Some("night"), Some(&long)).unwrap().name, "cpu@night");
        let other = SlurmScheduler { nodes: 7, ..long.clone() };
        let taken =
            plan_scheduler_change(&changes(None, Some("long")), Some(&cpu), &[cpu.clone(), other]).unwrap();
        assert_eq!(taken.unwrap().name, "cpu@long-2", "that name is taken");
    }

    #[test]
    fn invalid_scheduler_changes_are_rejected() {
        let cpu = scheduler("cpu", None);
        let why = |s: Option<&str>, p: Option<&str>, now: Option<&SlurmScheduler>| {
            plan_scheduler_change(&changes(s, p), now, std::slice::from_ref(&cpu)).unwrap_err()
        };
        assert_eq!(why(Some("tpu"), None, None), "there is no scheduler `tpu` (known: cpu)");
        assert!(why(None, Some("long"), None).contains("no Slurm scheduler"));
        for bad in ["", "a b", "x;rm", "a,,b", "é"] {
            assert!(why(None, Some(bad), Some(&cpu)).contains("is not a partition name"), "{bad}");
        }
    }

    #[test]
    fn scheduler_change_is_described() {
        let cpu = scheduler("cpu", Some("short"));
        let place = |one: &SlurmScheduler| SchedulerTarget::from_scheduler(Some(one));
        let words = |before: &SchedulerTarget, after: &SchedulerTarget| {
            describe_target_change(before, after).join(", ")
        };
        let long = scheduler("cpu@long", Some("long"));
        assert_eq!(words(&place(&cpu), &place(&long)), "partition short → long");
        assert_eq!(
            words(&SchedulerTarget::Anywhere, &place(&long)),
            "scheduler none → cpu, partition unsaid → long"
        );
        let twin = SlurmScheduler { name: "cpu@short".into(), ..cpu.clone() };
        assert_eq!(words(&place(&cpu), &place(&twin)), "scheduler cpu → cpu@short");
    }
}
