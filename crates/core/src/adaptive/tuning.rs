//! Resource requests of the jobs of a round and the layout of each of their steps, computed as one value before
//! the work is split.
//!
//! A job gets the number of cores that its most parallel step can use. Steps that cannot use all cores run in
//! several instances side by side, as many as memory allows. The rest follows: the memory request is that of
//! the largest step with the safety factor, within the allowed range; the times of the steps are added; and the
//! time determines how many events make a job of the target length.

use super::measurements::RequestMeasurements;
use super::settings::{AdaptiveSettings, MemoryWindow};
use super::step_model::{StepModel, nearest_power_of_two};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_types::payload::{StepProfile, StepTuning};

/// What the request says about its jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobHints {
    /// Whether measurements are used.
    pub adaptive: bool,
    pub cores: u32,
    pub memory_mb: u64,
    /// Memory set by an operator; overrides measurements.
    pub fixed_memory_mb: Option<u64>,
    pub time_per_event: f64,
    /// Seconds per event set by an operator; overrides measurements.
    pub fixed_time_per_event: Option<f64>,
    pub size_per_event_kb: f64,
    /// Share of input events that pass the filter.
    pub efficiency: f64,
    /// For jobs that are split by events.
    pub events_per_job: Option<u64>,
    /// Seconds, if the request gives the length of a job.
    pub time_per_job: Option<u64>,
}

/// Where the resources of jobs come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizingSource {
    /// From the request.
    #[default]
    Hint,
    /// From the measurements of earlier rounds.
    Measured,
}

/// The resources and the layout of the jobs of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct JobTuning {
    pub source: SizingSource,
    pub cores: u32,
    pub memory_mb: u64,
    /// Whether more memory would be needed than may be requested.
    pub is_memory_capped: bool,
    /// MB that a job is expected to use.
    pub expected_mb: f64,
    pub time_per_event: f64,
    pub size_per_event_kb: f64,
    pub events_per_job: Option<u64>,
    /// The profile for the payload. `None`: nothing was measured.
    pub profile: Option<StepProfile>,
}

pub fn decide_tuning(
    hints: &JobHints,
    window: &MemoryWindow,
    settings: &AdaptiveSettings,
    experience: Option<&RequestMeasurements>,
) -> JobTuning {
    let measured = experience.filter(|known| known.profile.jobs_sampled > 0);
    let plain = JobTuning {
        source: SizingSource::Hint,
        cores: hints.cores,
        memory_mb: hints.memory_mb.max(window.default_memory_mb(hints.cores)),
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
            JobTuner { hints, window, settings, measurements: known }.tune_job(&plain)
        }
        // Without adaptive rounds the payload gets no profile.
        _ if !hints.adaptive || !settings.enabled => JobTuning { profile: None, ..plain },
        _ => plain,
    };
    match hints.fixed_memory_mb {
        Some(memory_mb) => JobTuning { memory_mb, is_memory_capped: false, ..decision },
        None => decision,
    }
}

struct JobTuner<'a> {
    hints: &'a JobHints,
    window: &'a MemoryWindow,
    settings: &'a AdaptiveSettings,
    measurements: &'a RequestMeasurements,
}

/// How a step runs on the cores of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StepLayout {
    instances: u32,
    /// Threads of each instance.
    threads: u32,
    /// MB of each instance.
    memory: f64,
    /// Seconds of all instances together per event of the job.
    wall: f64,
}

impl StepLayout {
    fn from_model(model: &StepModel, instances: u32, threads: u32) -> Self {
        let threads = threads.min(model.max_threads).max(1);
        Self {
            instances,
            threads,
            memory: model.memory(threads),
            wall: model.wall(threads) / f64::from(instances),
        }
    }

    fn total_memory(&self) -> f64 {
        self.memory * f64::from(self.instances)
    }
}

impl JobTuner<'_> {
    fn tune_job(&self, plain: &JobTuning) -> JobTuning {
        let models: BTreeMap<&str, StepModel> = self
            .measurements
            .known
            .iter()
            .filter_map(|(name, known)| {
                Some((name.as_str(), StepModel::from_history(known, self.settings.mb_per_thread)?))
            })
            .collect();
        let cores = self.choose_cores(&models);
        let mut ways: BTreeMap<&str, StepLayout> =
            models.iter().map(|(name, model)| (*name, self.choose_layout(model, cores))).collect();
        let expected = ways.values().map(StepLayout::total_memory).fold(0.0, f64::max);
        let time: f64 = ways.values().map(|way| way.wall).sum();
        let (memory_mb, is_memory_capped) = if expected > 0.0 {
            self.window.request_memory(expected, cores)
        } else {
            (plain.memory_mb, plain.is_memory_capped)
        };
        for (name, way) in &mut ways {
            self.overcommit_threads(&models[name], way, self.hints.fixed_memory_mb.unwrap_or(memory_mb));
        }
        let measured = if time > 0.0 { time } else { plain.time_per_event };
        let time_per_event = self.hints.fixed_time_per_event.unwrap_or(measured);
        JobTuning {
            source: SizingSource::Measured,
            cores,
            memory_mb,
            is_memory_capped,
            expected_mb: if expected > 0.0 { expected } else { plain.expected_mb },
            time_per_event,
            size_per_event_kb: self.choose_size_per_event(),
            events_per_job: self.choose_events_per_job(time_per_event),
            profile: Some(self.build_profile(&ways)),
        }
    }

    /// Returns the cores that the most parallel step can use; more if memory requires it.
    fn choose_cores(&self, models: &BTreeMap<&str, StepModel>) -> u32 {
        /// Minimum share of a step in the time of a job. A shorter step does not justify cores that are idle
        /// for the rest.
        const WORTH_IT: f64 = 0.10;
        let asked = self.hints.cores;
        let wall = |model: &StepModel| model.wall(asked.min(model.max_threads));
        let all: f64 = models.values().map(wall).sum();
        let used = models
            .values()
            .filter(|model| wall(model) >= all * WORTH_IT)
            .map(|model| model.busy_threads(asked.min(model.max_threads)).map(nearest_power_of_two));
        let Some(used) = used.reduce(|a, b| Some(a?.max(b?))).flatten() else { return asked };
        let mut cores = used.max(self.settings.min_cores).min(asked);
        let fixed = self.hints.fixed_memory_mb.unwrap_or(0);
        let is_too_small = |cores: u32| {
            // More memory per core is not offered.
            let has_room = fixed <= self.window.max_memory_mb(cores);
            !has_room
                || models.values().any(|model| {
                    let threads = cores.min(model.max_threads);
                    threads < model.min_certain_threads
                        || !self.window.fits_memory(model.memory(threads), cores)
                })
        };
        while cores < asked && is_too_small(cores) {
            cores = cores.saturating_mul(2).min(asked);
        }
        cores
    }

    /// uses several instances where one leaves most cores idle, as many as memory allows.
    fn choose_layout(&self, model: &StepModel, cores: u32) -> StepLayout {
        let alone = StepLayout::from_model(model, 1, cores);
        let Some(busy) = model.busy_threads(alone.threads).filter(|_| model.can_split) else { return alone };
        if busy >= f64::from(cores) * self.settings.split_below {
            return alone;
        }
        let most = (cores / nearest_power_of_two(busy)).min(self.settings.max_instances);
        (2..=most)
            .rev()
            // So that no core is left over.
            .filter(|instances| cores.is_multiple_of(*instances))
            .map(|instances| StepLayout::from_model(model, instances, cores / instances))
            .find(|way| self.fits_memory(model, way, cores))
            .unwrap_or(alone)
    }

    /// An extrapolation must leave room for an error: a job killed for memory gets more, if more is allowed.
    fn fits_memory(&self, model: &StepModel, way: &StepLayout, cores: u32) -> bool {
        let margin = if way.threads < model.min_certain_threads { self.window.safety } else { 1.0 };
        let needed = way.total_memory() * margin;
        self.window.fits_memory(needed, cores)
            && self.hints.fixed_memory_mb.is_none_or(|fixed| needed <= fixed as f64)
    }

    /// adds threads to busy steps if they fit into the requested memory.
    fn overcommit_threads(&self, model: &StepModel, way: &mut StepLayout, memory_mb: u64) {
        let overcommitted = (f64::from(way.threads) * self.settings.overcommit_max).floor() as u32;
        let Some(busy) = model.busy_threads(way.threads) else { return };
        let share = busy / f64::from(way.threads);
        let moderate = self.settings.split_below..self.settings.overcommit_below;
        if overcommitted <= way.threads || !moderate.contains(&share) {
            return;
        }
        let memory = way.memory + f64::from(overcommitted - way.threads) * self.settings.mb_per_thread;
        if memory * f64::from(way.instances) <= memory_mb as f64 {
            (way.threads, way.memory) = (overcommitted, memory);
        }
    }

    fn choose_size_per_event(&self) -> f64 {
        let measured = self.measurements.kb_per_event / self.hints.efficiency;
        if measured.is_finite() && measured > 0.0 { measured } else { self.hints.size_per_event_kb }
    }

    /// Approaches the target length, by at most a factor from the value of the previous round.
    fn choose_events_per_job(&self, time_per_event: f64) -> Option<u64> {
        let last = self
            .measurements
            .rounds
            .last()
            .map(|record| record.asked.events_per_job)
            .filter(|last| *last > 0);
        let given = self.hints.events_per_job?;
        let before = last.unwrap_or(given);
        let aimed_at = self.settings.target_job_sec.saturating_sub(self.settings.job_overhead_sec).max(1);
        let seconds = self.hints.time_per_job.unwrap_or(aimed_at);
        let change = self.settings.max_change.max(1.0);
        // Events that take no time lead to the largest allowed job.
        let events = (seconds as f64 / time_per_event)
            .clamp(before as f64 / change, before as f64 * change)
            .max(self.settings.min_events_per_job as f64);
        Some(round_events(events))
    }

    fn build_profile(&self, ways: &BTreeMap<&str, StepLayout>) -> StepProfile {
        let mut profile = self.measurements.profile.clone();
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

/// Rounds to two or three significant digits, at least 1.
fn round_events(events: f64) -> u64 {
    let step = match events {
        events if events >= 1000.0 => 100.0,
        events if events >= 100.0 => 10.0,
        _ => 1.0,
    };
    ((events / step).round() * step).max(1.0) as u64
}

#[cfg(test)]
mod tests;
