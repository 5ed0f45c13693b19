//! What must hold at every step, whatever happens.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | who is watched, and what a broken rule leaves behind |
//! | `commits.rs` | what every commit must keep to |
//! | `outputs.rs` | the catalog of outputs: nothing before what it depends on, nothing twice |
//! | `coverage.rs` | which events are in the outputs |
//! | `end.rs` | nobody is stuck; and how all must be in the end |

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

/// A rule that was broken, and all that is needed to see it happen again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantViolation {
    pub seed: u64,
    pub at: Timestamp,
    pub request: String,
    pub description: String,
    /// The last things that happened to the request.
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

/// After so many the world ends: the others would only follow from them.
const MAX_VIOLATIONS: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct InvariantChecker {
    pub(crate) violations: Vec<InvariantViolation>,
    /// Requests that a person wanted to end.
    pub(crate) unwanted: BTreeSet<String>,
    /// Files that a person wanted to be left out, by request.
    pub(crate) excluded_files: BTreeMap<String, BTreeSet<String>>,
    coverage: BTreeMap<String, EventCoverage>,
}

impl InvariantChecker {
    pub(crate) fn has_too_many_violations(&self) -> bool {
        self.violations.len() >= MAX_VIOLATIONS
    }
}

impl RequestSimulation {
    /// A rule is broken.
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
