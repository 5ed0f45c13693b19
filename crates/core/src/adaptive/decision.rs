//! What the jobs of a round ask for, and how each step of them is run: settled as one value, before anything is cut.
//!
//! A job has as many cores as the step that makes the most of them can use. Steps that cannot use them all run in several
//! instances side by side, as many as memory allows. All else follows: what the largest step then needs is asked for, with
//! the safety and within the window; the times of the steps add up; and the time says how many events make a job of the
//! length that is aimed at.

use super::experience::Experience;
use super::model::{Model, power_of_two};
use super::settings::{AdaptiveSettings, Window};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_types::payload::{StepProfile, StepTuning};

/// What the request says about its jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hints {
    /// Whether it is to be learnt from what was measured.
    pub adaptive: bool,
    pub cores: u32,
    pub memory_mb: u64,
    /// What a person said that a job gets, whatever was measured.
    pub fixed_memory_mb: Option<u64>,
    pub time_per_event: f64,
    /// What a person said that an event takes, whatever was measured.
    pub fixed_time_per_event: Option<f64>,
    pub size_per_event_kb: f64,
    /// Of events that go in, this share comes out.
    pub efficiency: f64,
    /// Where jobs are cut by events.
    pub events_per_job: Option<u64>,
    /// Seconds, where the request says how long a job is to be.
    pub time_per_job: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// What the request said.
    #[default]
    Hint,
    /// What earlier rounds measured.
    Measured,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub source: Source,
    pub cores: u32,
    pub memory_mb: u64,
    /// More would be needed than may be asked for.
    pub is_memory_capped: bool,
    /// MB that a job is thought to use.
    pub expected_mb: f64,
    pub time_per_event: f64,
    pub size_per_event_kb: f64,
    pub events_per_job: Option<u64>,
    /// What the payload is told. `None`: nothing was measured.
    pub profile: Option<StepProfile>,
}

pub fn decide(
    hints: &Hints,
    window: &Window,
    settings: &AdaptiveSettings,
    experience: Option<&Experience>,
) -> Decision {
    let measured = experience.filter(|known| known.profile.jobs_sampled > 0);
    let plain = Decision {
        source: Source::Hint,
        cores: hints.cores,
        memory_mb: hints.memory_mb.max(window.least(hints.cores)),
        is_memory_capped: false,
        expected_mb: hints.memory_mb as f64,
        time_per_event: hints.fixed_time_per_event.unwrap_or(hints.time_per_event),
        size_per_event_kb: hints.size_per_event_kb,
        events_per_job: hints.events_per_job,
        profile: measured.map(|known| known.profile.clone()),
    };
    let decision = match measured {
        Some(known)
            if hints.adaptive && settings.enabled && known.profile.jobs_sampled >= settings.min_samples =>
        {
            Tuner { hints, window, settings, known }.tune(&plain)
        }
        // Whoever does not want to learn is not told either.
        _ if !hints.adaptive || !settings.enabled => Decision { profile: None, ..plain },
        _ => plain,
    };
    match hints.fixed_memory_mb {
        Some(memory_mb) => Decision { memory_mb, is_memory_capped: false, ..decision },
        None => decision,
    }
}

struct Tuner<'a> {
    hints: &'a Hints,
    window: &'a Window,
    settings: &'a AdaptiveSettings,
    known: &'a Experience,
}

/// How a step is run with the cores of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    instances: u32,
    /// Of each.
    threads: u32,
    /// Of each, MB.
    memory: f64,
    /// Of all together, for an event of the job.
    wall: f64,
}

impl Way {
    fn of(model: &Model, instances: u32, threads: u32) -> Self {
        let threads = threads.min(model.most_threads).max(1);
        Self {
            instances,
            threads,
            memory: model.memory(threads),
            wall: model.wall(threads) / f64::from(instances),
        }
    }

    fn memory_of_all(&self) -> f64 {
        self.memory * f64::from(self.instances)
    }
}

impl Tuner<'_> {
    fn tune(&self, plain: &Decision) -> Decision {
        let models: BTreeMap<&str, Model> = self
            .known
            .known
            .iter()
            .filter_map(|(name, known)| Some((name.as_str(), Model::of(known, self.settings.mb_per_thread)?)))
            .collect();
        let cores = self.cores(&models);
        let mut ways: BTreeMap<&str, Way> =
            models.iter().map(|(name, model)| (*name, self.way(model, cores))).collect();
        let expected = ways.values().map(Way::memory_of_all).fold(0.0, f64::max);
        let time: f64 = ways.values().map(|way| way.wall).sum();
        let (memory_mb, is_memory_capped) = if expected > 0.0 {
            self.window.ask(expected, cores)
        } else {
            (plain.memory_mb, plain.is_memory_capped)
        };
        for (name, way) in &mut ways {
            self.lend_threads(&models[name], way, self.hints.fixed_memory_mb.unwrap_or(memory_mb));
        }
        let measured = if time > 0.0 { time } else { plain.time_per_event };
        let time_per_event = self.hints.fixed_time_per_event.unwrap_or(measured);
        Decision {
            source: Source::Measured,
            cores,
            memory_mb,
            is_memory_capped,
            expected_mb: if expected > 0.0 { expected } else { plain.expected_mb },
            time_per_event,
            size_per_event_kb: self.size_per_event(),
            events_per_job: self.events_per_job(time_per_event),
            profile: Some(self.profile(&ways)),
        }
    }

    /// As many as the step that makes the most of them can use; more where memory would not do.
    fn cores(&self, models: &BTreeMap<&str, Model>) -> u32 {
        /// Of the time of a job. What a short step could use is not worth cores that idle for the rest of it.
        const WORTH_IT: f64 = 0.10;
        let asked = self.hints.cores;
        let wall = |model: &Model| model.wall(asked.min(model.most_threads));
        let all: f64 = models.values().map(wall).sum();
        let used = models
            .values()
            .filter(|model| wall(model) >= all * WORTH_IT)
            .map(|model| model.busy(asked.min(model.most_threads)).map(power_of_two));
        let Some(used) = used.reduce(|a, b| Some(a?.max(b?))).flatten() else { return asked };
        let mut cores = used.max(self.settings.min_cores).min(asked);
        let fixed = self.hints.fixed_memory_mb.unwrap_or(0);
        let is_too_small = |cores: u32| {
            // Nobody offers cores with more memory than that.
            let has_room = fixed <= self.window.most(cores);
            !has_room
                || models.values().any(|model| {
                    let threads = cores.min(model.most_threads);
                    threads < model.least_sure || !self.window.fits(model.memory(threads), cores)
                })
        };
        while cores < asked && is_too_small(cores) {
            cores = cores.saturating_mul(2).min(asked);
        }
        cores
    }

    /// side by side where one instance leaves most cores idle, and no more of them than memory allows.
    fn way(&self, model: &Model, cores: u32) -> Way {
        let alone = Way::of(model, 1, cores);
        let Some(busy) = model.busy(alone.threads).filter(|_| model.can_split) else { return alone };
        if busy >= f64::from(cores) * self.settings.split_below {
            return alone;
        }
        let most = (cores / power_of_two(busy)).min(self.settings.max_instances);
        (2..=most)
            .rev()
            // So that no core is left over.
            .filter(|instances| cores.is_multiple_of(*instances))
            .map(|instances| Way::of(model, instances, cores / instances))
            .find(|way| self.fits(model, way, cores))
            .unwrap_or(alone)
    }

    /// A guess has to leave room for being wrong: what is killed gets more, if there is more to get.
    fn fits(&self, model: &Model, way: &Way, cores: u32) -> bool {
        let margin = if way.threads < model.least_sure { self.window.safety } else { 1.0 };
        let needed = way.memory_of_all() * margin;
        self.window.fits(needed, cores)
            && self.hints.fixed_memory_mb.is_none_or(|fixed| needed <= fixed as f64)
    }

    /// more threads than cores for those that are busy most of the time, if they fit into what is asked for.
    fn lend_threads(&self, model: &Model, way: &mut Way, memory_mb: u64) {
        let lent = (f64::from(way.threads) * self.settings.overcommit_max).floor() as u32;
        let Some(busy) = model.busy(way.threads) else { return };
        let share = busy / f64::from(way.threads);
        let moderate = self.settings.split_below..self.settings.overcommit_below;
        if lent <= way.threads || !moderate.contains(&share) {
            return;
        }
        let memory = way.memory + f64::from(lent - way.threads) * self.settings.mb_per_thread;
        if memory * f64::from(way.instances) <= memory_mb as f64 {
            (way.threads, way.memory) = (lent, memory);
        }
    }

    fn size_per_event(&self) -> f64 {
        let measured = self.known.kb_per_event / self.hints.efficiency;
        if measured.is_finite() && measured > 0.0 { measured } else { self.hints.size_per_event_kb }
    }

    /// Towards the length that is aimed at, by no more than a factor from what the round before had.
    fn events_per_job(&self, time_per_event: f64) -> Option<u64> {
        let last =
            self.known.rounds.last().map(|record| record.asked.events_per_job).filter(|last| *last > 0);
        let given = self.hints.events_per_job?;
        let before = last.unwrap_or(given);
        let aimed_at = self.settings.target_job_sec.saturating_sub(self.settings.job_overhead_sec).max(1);
        let seconds = self.hints.time_per_job.unwrap_or(aimed_at);
        let change = self.settings.max_change.max(1.0);
        // Events that take no time make a job as large as it may get.
        let events = (seconds as f64 / time_per_event)
            .clamp(before as f64 / change, before as f64 * change)
            .max(self.settings.min_events_per_job as f64);
        Some(rounded(events))
    }

    fn profile(&self, ways: &BTreeMap<&str, Way>) -> StepProfile {
        let mut profile = self.known.profile.clone();
        for (name, step) in &mut profile.steps {
            let Some(way) = ways.get(name.as_str()) else { continue };
            *step = StepTuning {
                run_threads: Some(way.threads),
                instances: (way.instances > 1).then_some(way.instances),
                instance_mb: (way.instances > 1).then_some(way.memory),
                ..*step
            };
        }
        profile
    }
}

/// To two or three digits that people can read; never none.
fn rounded(events: f64) -> u64 {
    let step = match events {
        events if events >= 1000.0 => 100.0,
        events if events >= 100.0 => 10.0,
        _ => 1.0,
    };
    ((events / step).round() * step).max(1.0) as u64
}

#[cfg(test)]
mod tests;
