//! Checks whether allocations of a scheduler have the resources that jobs request.

use super::{NameResolver, PerJobNumber};
use crate::diagnostic::SpecDiagnostic;
use crate::model::JobSpec;
use crate::source::SourceSpan;
use rustc_hash::FxHashSet;
use windlass_types::settings::{SlurmScheduler, parse_walltime};
use windlass_types::{Bytes, JobGroup, Resources, format_duration};

/// The result of comparing requirements with a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SchedulerFit {
    Fits,
    /// Cannot be determined.
    Unclear(String),
    Never(String),
}

impl NameResolver<'_, '_> {
    pub(super) fn check_scheduler_fit(&mut self) {
        if self.resolved.texts.schedulers.is_empty() {
            return;
        }
        let mut looked_at = FxHashSet::default();
        for (entry, job) in (0..).zip(&self.spec.jobs) {
            for index in 0..self.distinct_job_count(entry) {
                let (requirements, group) = self.requirements_and_group(entry, job, index);
                let scheduler = group.and_then(|group| group.settings.scheduler);
                let Some(requirements) = requirements.filter(|number| looked_at.insert((*number, scheduler)))
                else {
                    continue;
                };
                self.check_job_fit(requirements, scheduler, job.name.span);
            }
        }
    }

    /// Number of jobs of the entry to check: one, unless they request different resources.
    pub(super) fn distinct_job_count(&self, entry: u32) -> u32 {
        let differs = self.resolved.details[entry as usize].as_ref().is_some_and(|detail| {
            [detail.requirements, detail.job_group].iter().any(|value| matches!(value, PerJobNumber::Each(_)))
        });
        let count = self.expanded.jobs.range(entry).len() as u32;
        if differs { count } else { count.min(1) }
    }

    /// Returns the numbers of the requirements and the job group of a job, the latter if the job is not plain.
    pub(super) fn requirements_and_group(
        &self,
        entry: u32,
        job: &JobSpec,
        index: u32,
    ) -> (Option<u32>, Option<&JobGroup<u32>>) {
        let Some(detail) = &self.resolved.details[entry as usize] else {
            return (job.requirements.map(|used| self.resolved.requirements[used.name as usize]), None);
        };
        let group = self.resolved.per_job_value(detail.job_group, index);
        (
            self.resolved.per_job_value(detail.requirements, index),
            group.map(|group| &self.resolved.job_groups[group as usize]),
        )
    }

    fn check_job_fit(&mut self, requirements: u32, scheduler: Option<u32>, job: SourceSpan) {
        let Some(requirements) = self.spec.requirements.get(requirements as usize) else { return };
        let schedulers = &self.resolved.texts.schedulers;
        let resources = &requirements.resources;
        let Some(number) = scheduler else {
            // Any scheduler may run the job, and so may a machine without one.
            if schedulers.iter().all(|scheduler| {
                matches!(compare_with_scheduler(resources, scheduler), SchedulerFit::Never(_))
            }) {
                let message = format!("no scheduler has the resources that `{}` requests", requirements.name);
                self.sinks
                    .warnings
                    .push(SpecDiagnostic::new("does-not-fit", message).with_span(requirements.span));
            }
            return;
        };
        let Some(scheduler) = schedulers.get(number as usize) else { return };
        let place = self.spec.schedulers[number as usize].1;
        let said = |why: String| {
            let message = format!(
                "scheduler `{}` does not have the resources that `{}` requests: {why}",
                scheduler.name, requirements.name
            );
            SpecDiagnostic::new("does-not-fit", message)
                .with_span(requirements.span)
                .with_label(place, "the scheduler")
                .with_label(job, "used together here")
        };
        match compare_with_scheduler(resources, scheduler) {
            SchedulerFit::Fits => {}
            SchedulerFit::Never(why) => self.sinks.errors.push(said(why)),
            SchedulerFit::Unclear(why) => {
                let message = format!(
                    "scheduler `{}` may not have the resources that `{}` requests: {why}",
                    scheduler.name, requirements.name
                );
                self.sinks.warnings.push(SpecDiagnostic { message, ..said(String::new()) });
            }
        }
    }
}

fn compare_with_scheduler(asked: &Resources, scheduler: &SlurmScheduler) -> SchedulerFit {
    let nodes = scheduler.nodes.max(1);
    if asked.nodes > nodes {
        return SchedulerFit::Never(format!("{} nodes of {nodes}", asked.nodes));
    }
    let mut result = SchedulerFit::Fits;
    for next in [
        compare_memory(asked, scheduler, nodes),
        compare_gpus(asked, scheduler, nodes),
        compare_time(asked, scheduler),
    ] {
        match next {
            SchedulerFit::Never(_) => return next,
            SchedulerFit::Unclear(_) if result == SchedulerFit::Fits => result = next,
            SchedulerFit::Fits | SchedulerFit::Unclear(_) => {}
        }
    }
    result
}

fn compare_memory(asked: &Resources, scheduler: &SlurmScheduler, nodes: u32) -> SchedulerFit {
    let Some(text) = &scheduler.mem else { return SchedulerFit::Fits };
    let Some(node) = parse_slurm_memory(text) else {
        return SchedulerFit::Unclear(format!("unknown memory size `mem: {text}`"));
    };
    let why = format!("{} of memory, but a node has {node}", asked.memory);
    match asked.memory {
        // In Slurm, 0 means all memory of a node.
        _ if node == Bytes(0) || asked.memory <= node => SchedulerFit::Fits,
        memory if asked.nodes == 1 || memory.0 > node.0.saturating_mul(u64::from(nodes)) => {
            SchedulerFit::Never(why)
        }
        _ => SchedulerFit::Unclear(why),
    }
}

/// Parses a memory size; without a unit, Slurm assumes MiB.
fn parse_slurm_memory(text: &str) -> Option<Bytes> {
    let text = text.trim();
    match text.parse::<u64>() {
        Ok(megabytes) => Some(Bytes(megabytes.saturating_mul(1 << 20))),
        Err(_) => text.parse().ok(),
    }
}

fn compare_gpus(asked: &Resources, scheduler: &SlurmScheduler, nodes: u32) -> SchedulerFit {
    let Some(gres) = scheduler.gres.as_ref().filter(|_| asked.gpus > 0) else {
        return match asked.gpus {
            0 => SchedulerFit::Fits,
            gpus => SchedulerFit::Unclear(format!("{gpus} GPUs, but the scheduler requests none (`gres`)")),
        };
    };
    let node: u32 = gres.split(',').filter_map(parse_gres_gpus).sum();
    let why = format!("{} GPUs, but a node has {node}", asked.gpus);
    match asked.gpus {
        gpus if gpus <= node => SchedulerFit::Fits,
        gpus if asked.nodes == 1 || gpus > node.saturating_mul(nodes) => SchedulerFit::Never(why),
        _ => SchedulerFit::Unclear(why),
    }
}

/// Parses `gpu`, `gpu:2`, `gpu:a100:4`, each optionally followed by `(…)`.
fn parse_gres_gpus(gres: &str) -> Option<u32> {
    let gres = gres.trim().split('(').next()?;
    let rest = gres.strip_prefix("gpu")?;
    match rest.rsplit(':').next().filter(|_| rest.starts_with(':')) {
        Some(count) => Some(count.parse().unwrap_or(1)),
        None => rest.is_empty().then_some(1),
    }
}

fn compare_time(asked: &Resources, scheduler: &SlurmScheduler) -> SchedulerFit {
    let Some(runtime) = asked.runtime else { return SchedulerFit::Fits };
    match parse_walltime(&scheduler.walltime) {
        Ok(walltime) if runtime <= walltime => SchedulerFit::Fits,
        Ok(walltime) => {
            let (runtime, walltime) = (format_duration(runtime), format_duration(walltime));
            SchedulerFit::Never(format!("{runtime}, but an allocation lasts {walltime}"))
        }
        Err(_) => SchedulerFit::Unclear(format!("unknown duration `walltime: {}`", scheduler.walltime)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn requests_are_compared_with_scheduler_resources() {
        let scheduler = SlurmScheduler {
            nodes: 2,
            mem: Some("64G".into()),
            gres: Some("gpu:a100:2,tmp:5".into()),
            walltime: "02:00:00".into(),
            ..SlurmScheduler::default()
        };
        let asked = |nodes, gib: u64, gpus, minutes| Resources {
            cpus: 1,
            memory: Bytes(gib << 30),
            gpus,
            nodes,
            runtime: Some(Duration::from_mins(minutes)),
        };
        for (resources, expected) in [
            (asked(1, 64, 2, 120), "fits"),
            (asked(3, 1, 0, 1), "never"),
            (asked(1, 65, 0, 1), "never"),
            (asked(2, 65, 0, 1), "unclear"),
            (asked(2, 129, 0, 1), "never"),
            (asked(1, 1, 3, 1), "never"),
            (asked(2, 1, 4, 1), "unclear"),
            (asked(2, 1, 5, 1), "never"),
            (asked(1, 1, 1, 121), "never"),
        ] {
            let found = match compare_with_scheduler(&resources, &scheduler) {
                SchedulerFit::Fits => "fits",
                SchedulerFit::Unclear(_) => "unclear",
                SchedulerFit::Never(_) => "never",
            };
            assert_eq!(found, expected, "{resources:?}");
        }
    }

    #[test]
    fn slurm_memory_and_gres_are_parsed() {
        assert_eq!(parse_slurm_memory("2048"), Some(Bytes(2 << 30)));
        assert_eq!(parse_slurm_memory("2g"), Some(Bytes(2 << 30)));
        assert_eq!(parse_slurm_memory("much"), None);
        for (gres, gpus) in
            [("gpu", Some(1)), ("gpu:4", Some(4)), ("gpu:h100:8(S:0-1)", Some(8)), ("tmp:3", None)]
        {
            assert_eq!(parse_gres_gpus(gres), gpus, "{gres}");
        }
    }
}
