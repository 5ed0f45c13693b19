//! What becomes of an attempt: it is known when it starts, and shows when it ends. Unless its site goes down meanwhile.

use super::{Failure, NodeId};
use crate::land::Health;
use crate::setup::weather;
use crate::sim::Sim;
use crate::wishes::Flaw;
use std::time::Duration;
use windlass_types::FailureClass;

pub(super) struct Fate {
    pub(super) after: Duration,
    pub(super) failure: Option<Failure>,
}

impl Failure {
    const fn new(class: FailureClass, code: i32, message: &'static str) -> Self {
        Self { class, code, message, bad_files: Vec::new(), memory_mb: None }
    }

    pub(super) const fn of_site() -> Self {
        Self::new(FailureClass::Infrastructure, 60324, "the site went down")
    }
}

impl Sim {
    /// Of an attempt that starts now at this site.
    pub(super) fn fate(&mut self, id: NodeId, site: usize) -> Fate {
        if self.land.sites[site].health == Health::BlackHole {
            let failure = Failure::new(FailureClass::Infrastructure, 50513, "the environment is not there");
            return Fate { after: self.grid.dice.minutes(1.0, 4.0), failure: Some(failure) };
        }
        let takes = self.takes(id, site);
        let early = |sim: &mut Self| takes.mul_f64(sim.grid.dice.between(0.02, 0.5));
        if let Some(failure) = self.own_failure(id, site) {
            return Fate { after: early(self), failure: Some(failure) };
        }
        if let Some(failure) = self.bad_luck() {
            return Fate { after: early(self), failure: Some(failure) };
        }
        let limit = self.grid.node(id).and_then(|node| node.asked.runtime);
        match limit.filter(|&limit| takes > limit) {
            Some(limit) => {
                let failure = Failure::new(FailureClass::Timeout, 50664, "it took too long");
                Fate { after: limit, failure: Some(failure) }
            }
            None => Fate { after: takes, failure: None },
        }
    }

    fn takes(&mut self, id: NodeId, site: usize) -> Duration {
        let workflow = &self.grid.workflows[id.workflow];
        let truth = &self.truths[&workflow.request];
        let node = workflow.plan.unit(id.unit).and_then(|unit| unit.nodes().nth(id.node as usize));
        let expected = node.map_or(Duration::from_mins(15), |node| {
            Duration::from_secs_f64(node.events() as f64 * truth.time_hint * truth.wish.time_factor)
        });
        let slowness = self.land.sites[site].slowness * self.grid.dice.between(0.85, 1.2);
        expected.mul_f64(slowness).max(Duration::from_mins(1))
    }

    /// What is wrong with the job, or with what it reads.
    fn own_failure(&mut self, id: NodeId, site: usize) -> Option<Failure> {
        let workflow = &self.grid.workflows[id.workflow];
        let truth = &self.truths[&workflow.request];
        // Merges read nothing but what the nodes wrote.
        let node = workflow.plan.unit(id.unit)?.nodes().nth(id.node as usize)?;
        if truth.wish.is_broken {
            return Some(Failure::new(FailureClass::Permanent, 7002, "the configuration has a mistake"));
        }
        let row = &workflow.units[id.unit as usize].nodes[id.node as usize];
        let is_first = row.attempts <= 1;
        let here = &self.land.sites[site].name;
        let mut bad_files: Vec<String> = Vec::new();
        for input in node.inputs() {
            let lfn = &input.file().lfn;
            match truth.data.flaws.get(lfn) {
                Some(Flaw::Corrupt { shy: true }) if is_first => {
                    return Some(Failure::new(FailureClass::Unknown, 8001, "an exception that nobody knows"));
                }
                Some(Flaw::Poison) => {
                    return Some(Failure::new(FailureClass::Permanent, 139, "a segmentation violation"));
                }
                Some(Flaw::BadCopy { site }) if site != here => {}
                Some(_) if !bad_files.contains(lfn) => bad_files.push(lfn.clone()),
                _ => {}
            }
        }
        if !bad_files.is_empty() {
            let failure = Failure::new(FailureClass::Data, 8021, "the file cannot be read");
            return Some(Failure { bad_files, ..failure });
        }
        let used = truth.wish.memory_per_core * f64::from(row.asked.cpus) * self.grid.dice.between(0.9, 1.1);
        (used > row.asked.memory.0 as f64 / f64::from(1 << 20)).then(|| Failure {
            memory_mb: Some(used as u64),
            ..Failure::new(FailureClass::Memory, 50660, "it used more memory than it asked for")
        })
    }

    fn bad_luck(&mut self) -> Option<Failure> {
        if self.is_calm {
            return None;
        }
        let sorts = [
            (weather::TRANSIENT, FailureClass::Transient, 60311, "the stage-out timed out"),
            (weather::INFRASTRUCTURE, FailureClass::Infrastructure, 10032, "the node is not well"),
            (weather::UNKNOWN, FailureClass::Unknown, 1, "it said nothing"),
            (weather::PERMANENT, FailureClass::Permanent, 8009, "it does not like this event"),
        ];
        sorts.into_iter().find_map(|(share, class, code, message)| {
            self.grid.dice.chance(share).then(|| Failure::new(class, code, message))
        })
    }
}
