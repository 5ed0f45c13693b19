//! Whether allocations of a scheduler can hold what jobs ask for.

use super::{PerJob, Resolver};
use crate::diagnostic::Diagnostic;
use crate::model::JobSpec;
use crate::source::Span;
use crate::workflow::JobKind;
use rustc_hash::FxHashSet;
use windlass_types::settings::{SlurmScheduler, parse_walltime};
use windlass_types::{Bytes, Resources, format_duration};

/// What comes of holding requirements against a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    /// Nobody can tell from here.
    Unclear(String),
    Never(String),
}

impl Resolver<'_, '_> {
    pub(super) fn fit(&mut self) {
        if self.done.texts.schedulers.is_empty() {
            return;
        }
        let mut looked_at = FxHashSet::default();
        for (entry, job) in (0..).zip(&self.spec.jobs) {
            for index in 0..self.distinct(entry) {
                let (requirements, kind) = self.asked(entry, job, index);
                let scheduler = kind.and_then(|kind| kind.scheduler);
                let Some(requirements) = requirements.filter(|number| looked_at.insert((*number, scheduler)))
                else {
                    continue;
                };
                self.fit_one(requirements, scheduler, job.name.span);
            }
        }
    }

    /// So many jobs of the entry have to be looked at: one, unless they ask for different things.
    pub(super) fn distinct(&self, entry: u32) -> u32 {
        let differs = self.done.details[entry as usize].as_ref().is_some_and(|detail| {
            [detail.requirements, detail.kind].iter().any(|value| matches!(value, PerJob::Each(_)))
        });
        let count = self.expanded.jobs.range(entry).len() as u32;
        if differs { count } else { count.min(1) }
    }

    /// The number of the requirements of a job, and its kind, if it is not a plain one.
    pub(super) fn asked(&self, entry: u32, job: &JobSpec, index: u32) -> (Option<u32>, Option<&JobKind>) {
        let Some(detail) = &self.done.details[entry as usize] else {
            return (job.requirements.map(|used| self.done.requirements[used.name as usize]), None);
        };
        let kind = self.done.per_job(detail.kind, index);
        (self.done.per_job(detail.requirements, index), kind.map(|kind| &self.done.kinds[kind as usize]))
    }

    fn fit_one(&mut self, requirements: u32, scheduler: Option<u32>, job: Span) {
        let Some(requirements) = self.spec.requirements.get(requirements as usize) else { return };
        let schedulers = &self.done.texts.schedulers;
        let resources = &requirements.resources;
        let Some(number) = scheduler else {
            // Any scheduler will do, and so will a machine without one.
            if schedulers.iter().all(|scheduler| matches!(fit(resources, scheduler), Fit::Never(_))) {
                let message = format!("no scheduler can hold what `{}` asks for", requirements.name);
                self.sinks.warnings.push(Diagnostic::new("does-not-fit", message).at(requirements.span));
            }
            return;
        };
        let Some(scheduler) = schedulers.get(number as usize) else { return };
        let place = self.spec.schedulers[number as usize].1;
        let said = |why: String| {
            let message = format!(
                "scheduler `{}` cannot hold what `{}` asks for: {why}",
                scheduler.name, requirements.name
            );
            Diagnostic::new("does-not-fit", message)
                .at(requirements.span)
                .label(place, "the scheduler")
                .label(job, "used together here")
        };
        match fit(resources, scheduler) {
            Fit::Fits => {}
            Fit::Never(why) => self.sinks.errors.push(said(why)),
            Fit::Unclear(why) => {
                let message = format!(
                    "scheduler `{}` may not hold what `{}` asks for: {why}",
                    scheduler.name, requirements.name
                );
                self.sinks.warnings.push(Diagnostic { message, ..said(String::new()) });
            }
        }
    }
}

fn fit(asked: &Resources, scheduler: &SlurmScheduler) -> Fit {
    let nodes = scheduler.nodes.max(1);
    if asked.nodes > nodes {
        return Fit::Never(format!("{} nodes of {nodes}", asked.nodes));
    }
    let mut result = Fit::Fits;
    for next in [memory(asked, scheduler, nodes), gpus(asked, scheduler, nodes), time(asked, scheduler)] {
        match next {
            Fit::Never(_) => return next,
            Fit::Unclear(_) if result == Fit::Fits => result = next,
            Fit::Fits | Fit::Unclear(_) => {}
        }
    }
    result
}

fn memory(asked: &Resources, scheduler: &SlurmScheduler, nodes: u32) -> Fit {
    let Some(text) = &scheduler.mem else { return Fit::Fits };
    let Some(node) = slurm_memory(text) else {
        return Fit::Unclear(format!("`mem: {text}` is no amount we know"));
    };
    let why = format!("{} of memory, where a node has {node}", asked.memory);
    match asked.memory {
        // Slurm takes nothing for all that a node has.
        _ if node == Bytes(0) || asked.memory <= node => Fit::Fits,
        memory if asked.nodes == 1 || memory.0 > node.0.saturating_mul(u64::from(nodes)) => Fit::Never(why),
        _ => Fit::Unclear(why),
    }
}

/// Slurm counts in MiB where no unit is given.
fn slurm_memory(text: &str) -> Option<Bytes> {
    let text = text.trim();
    match text.parse::<u64>() {
        Ok(megabytes) => Some(Bytes(megabytes.saturating_mul(1 << 20))),
        Err(_) => text.parse().ok(),
    }
}

fn gpus(asked: &Resources, scheduler: &SlurmScheduler, nodes: u32) -> Fit {
    let Some(gres) = scheduler.gres.as_ref().filter(|_| asked.gpus > 0) else {
        return match asked.gpus {
            0 => Fit::Fits,
            gpus => Fit::Unclear(format!("{gpus} GPUs, and the scheduler asks for none (`gres`)")),
        };
    };
    let node: u32 = gres.split(',').filter_map(gpus_in).sum();
    let why = format!("{} GPUs, where a node has {node}", asked.gpus);
    match asked.gpus {
        gpus if gpus <= node => Fit::Fits,
        gpus if asked.nodes == 1 || gpus > node.saturating_mul(nodes) => Fit::Never(why),
        _ => Fit::Unclear(why),
    }
}

/// `gpu`, `gpu:2`, `gpu:a100:4`, each maybe with `(…)` behind it.
fn gpus_in(gres: &str) -> Option<u32> {
    let gres = gres.trim().split('(').next()?;
    let rest = gres.strip_prefix("gpu")?;
    match rest.rsplit(':').next().filter(|_| rest.starts_with(':')) {
        Some(count) => Some(count.parse().unwrap_or(1)),
        None => rest.is_empty().then_some(1),
    }
}

fn time(asked: &Resources, scheduler: &SlurmScheduler) -> Fit {
    let Some(runtime) = asked.runtime else { return Fit::Fits };
    match parse_walltime(&scheduler.walltime) {
        Ok(walltime) if runtime <= walltime => Fit::Fits,
        Ok(walltime) => {
            let (runtime, walltime) = (format_duration(runtime), format_duration(walltime));
            Fit::Never(format!("{runtime}, where an allocation lasts {walltime}"))
        }
        Err(_) => Fit::Unclear(format!("`walltime: {}` is no time we know", scheduler.walltime)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_fits_where() {
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
            let found = match fit(&resources, &scheduler) {
                Fit::Fits => "fits",
                Fit::Unclear(_) => "unclear",
                Fit::Never(_) => "never",
            };
            assert_eq!(found, expected, "{resources:?}");
        }
    }

    #[test]
    fn amounts_as_slurm_writes_them() {
        assert_eq!(slurm_memory("2048"), Some(Bytes(2 << 30)));
        assert_eq!(slurm_memory("2g"), Some(Bytes(2 << 30)));
        assert_eq!(slurm_memory("much"), None);
        for (gres, gpus) in
            [("gpu", Some(1)), ("gpu:4", Some(4)), ("gpu:h100:8(S:0-1)", Some(8)), ("tmp:3", None)]
        {
            assert_eq!(gpus_in(gres), gpus, "{gres}");
        }
    }
}
