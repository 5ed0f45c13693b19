//! The outcome of an attempt: decided when it starts, and visible when it ends, unless its site goes down
//! meanwhile.

use super::{SimulatedAttemptFailure, SimulatedNodeId};
use crate::request_generator::FileDefect;
use crate::setup::failure_rates;
use crate::simulation::RequestSimulation;
use crate::sites::SiteHealth;
use std::time::Duration;
use windlass_types::FailureClass;

pub(super) struct SimulatedAttemptOutcome {
    pub(super) after: Duration,
    pub(super) failure: Option<SimulatedAttemptFailure>,
}

impl SimulatedAttemptFailure {
    const fn new(class: FailureClass, code: i32, message: &'static str) -> Self {
        Self { class, code, message, bad_files: Vec::new(), memory_mb: None }
    }

    pub(super) const fn site_failure() -> Self {
        Self::new(FailureClass::Infrastructure, 60324, "the site went down")
    }
}

impl RequestSimulation {
    /// Decides the outcome of an attempt that starts now at this site.
    pub(super) fn decide_attempt_outcome(
        &mut self,
        id: SimulatedNodeId,
        site: usize,
    ) -> SimulatedAttemptOutcome {
        if self.grid.sites[site].health == SiteHealth::BlackHole {
            let failure = SimulatedAttemptFailure::new(
                FailureClass::Infrastructure,
                50513,
                "the environment is not available",
            );
            return SimulatedAttemptOutcome {
                after: self.backends.random.random_minutes(1.0, 4.0),
                failure: Some(failure),
            };
        }
        let takes = self.attempt_duration(id, site);
        let early = |sim: &mut Self| takes.mul_f64(sim.backends.random.fraction_between(0.02, 0.5));
        if let Some(failure) = self.job_failure(id, site) {
            return SimulatedAttemptOutcome { after: early(self), failure: Some(failure) };
        }
        if let Some(failure) = self.random_failure() {
            return SimulatedAttemptOutcome { after: early(self), failure: Some(failure) };
        }
        let limit = self.backends.node(id).and_then(|node| node.requested.runtime);
        match limit.filter(|&limit| takes > limit) {
            Some(limit) => {
                let failure =
                    SimulatedAttemptFailure::new(FailureClass::Timeout, 50664, "time limit exceeded");
                SimulatedAttemptOutcome { after: limit, failure: Some(failure) }
            }
            None => SimulatedAttemptOutcome { after: takes, failure: None },
        }
    }

    fn attempt_duration(&mut self, id: SimulatedNodeId, site: usize) -> Duration {
        let workflow = &self.backends.workflows[id.workflow];
        let truth = &self.request_facts[&workflow.request];
        let node = workflow.plan.unit(id.unit).and_then(|unit| unit.nodes().nth(id.node as usize));
        let expected = node.map_or(Duration::from_mins(15), |node| {
            Duration::from_secs_f64(node.events() as f64 * truth.time_hint * truth.truth.time_factor)
        });
        let slowness = self.grid.sites[site].slowness * self.backends.random.fraction_between(0.85, 1.2);
        expected.mul_f64(slowness).max(Duration::from_mins(1))
    }

    /// Returns the failure caused by the job or its input, if any.
    fn job_failure(&mut self, id: SimulatedNodeId, site: usize) -> Option<SimulatedAttemptFailure> {
        let workflow = &self.backends.workflows[id.workflow];
        let truth = &self.request_facts[&workflow.request];
        // Merges read only the output of the nodes.
        let node = workflow.plan.unit(id.unit)?.nodes().nth(id.node as usize)?;
        if truth.truth.is_broken {
            return Some(SimulatedAttemptFailure::new(
                FailureClass::Permanent,
                7002,
                "invalid configuration",
            ));
        }
        let row = &workflow.units[id.unit as usize].nodes[id.node as usize];
        let is_first = row.attempts <= 1;
        let here = &self.grid.sites[site].name;
        let mut bad_files: Vec<String> = Vec::new();
        for input in node.inputs() {
            let lfn = &input.file().lfn;
            match truth.data.defects.get(lfn) {
                Some(FileDefect::Corrupt { shy: true }) if is_first => {
                    return Some(SimulatedAttemptFailure::new(
                        FailureClass::Unknown,
                        8001,
                        "unknown exception",
                    ));
                }
                Some(FileDefect::Poison) => {
                    return Some(SimulatedAttemptFailure::new(
                        FailureClass::Permanent,
                        139,
                        "segmentation violation",
                    ));
                }
                Some(FileDefect::BadCopy { site }) if site != here => {}
                Some(_) if !bad_files.contains(lfn) => bad_files.push(lfn.clone()),
                _ => {}
            }
        }
        if !bad_files.is_empty() {
            let failure = SimulatedAttemptFailure::new(FailureClass::Data, 8021, "cannot read the file");
            return Some(SimulatedAttemptFailure { bad_files, ..failure });
        }
        let used = truth.truth.memory_per_core
            * f64::from(row.requested.cpus)
            * self.backends.random.fraction_between(0.9, 1.1);
        (used > row.requested.memory.0 as f64 / f64::from(1 << 20)).then(|| SimulatedAttemptFailure {
            memory_mb: Some(used as u64),
            ..SimulatedAttemptFailure::new(FailureClass::Memory, 50660, "memory limit exceeded")
        })
    }

    fn random_failure(&mut self) -> Option<SimulatedAttemptFailure> {
        if self.are_faults_over {
            return None;
        }
        let sorts = [
            (failure_rates::TRANSIENT, FailureClass::Transient, 60311, "stage-out timed out"),
            (failure_rates::INFRASTRUCTURE, FailureClass::Infrastructure, 10032, "node failure"),
            (failure_rates::UNKNOWN, FailureClass::Unknown, 1, "no output"),
            (failure_rates::PERMANENT, FailureClass::Permanent, 8009, "exception in event processing"),
        ];
        sorts.into_iter().find_map(|(share, class, code, message)| {
            self.backends.random.chance(share).then(|| SimulatedAttemptFailure::new(class, code, message))
        })
    }
}
