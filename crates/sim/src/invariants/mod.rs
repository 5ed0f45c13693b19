//! Invariants that are checked at every step.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | violations |
//! | `commits.rs` | invariants of every commit |
//! | `outputs.rs` | the catalog of outputs: steps in order of their dependencies, nothing twice |
//! | `event_coverage.rs` | the events in the outputs |
//! | `completeness.rs` | stalled requests, and the final state |

mod commits;
mod completeness;
mod event_coverage;
mod outputs;

pub(crate) use outputs::OutputCatalog;

use crate::simulation::RequestSimulation;
use event_coverage::EventCoverage;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use windlass_types::Timestamp;

/// A violated invariant, with everything needed to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantViolation {
    pub seed: u64,
    pub at: Timestamp,
    pub request: String,
    pub description: String,
    /// The last lines of the history of the request.
    pub history: Vec<String>,
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {}, {}: {}", self.seed, self.at, self.request, self.description)?;
        for line in &self.history {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

/// Number of violations that end the simulation, because further ones are only consequences.
const MAX_VIOLATIONS: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct InvariantChecker {
    pub(crate) violations: Vec<InvariantViolation>,
    /// Requests that a person failed or aborted.
    pub(crate) unwanted: BTreeSet<String>,
    /// Files that a person excluded, by request.
    pub(crate) excluded_files: BTreeMap<String, BTreeSet<String>>,
    coverage: BTreeMap<String, EventCoverage>,
}

impl InvariantChecker {
    pub(crate) fn has_too_many_violations(&self) -> bool {
        self.violations.len() >= MAX_VIOLATIONS
    }
}

impl RequestSimulation {
    /// Records a violation.
    pub(crate) fn record_violation(&mut self, request: &str, what: String) {
        if self.invariants.has_too_many_violations() {
            return;
        }
        let story = self.histories.history_of(request);
        self.invariants.violations.push(InvariantViolation {
            seed: self.setup.seed,
            at: self.now,
            request: request.to_owned(),
            description: what,
            history: story,
        });
    }
}
