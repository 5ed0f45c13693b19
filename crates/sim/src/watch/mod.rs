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
mod coverage;
mod end;
mod outputs;

pub(crate) use outputs::Catalog;

use crate::sim::Sim;
use coverage::Coverage;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use windlass_types::Timestamp;

/// A rule that was broken, and all that is needed to see it happen again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub seed: u64,
    pub at: Timestamp,
    pub request: String,
    pub what: String,
    /// The last things that happened to the request.
    pub story: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {}, {}: {}", self.seed, self.at, self.request, self.what)?;
        for line in &self.story {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

/// After so many the world ends: the others would only follow from them.
const MOST: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) violations: Vec<Violation>,
    /// Requests that a person wanted to end.
    pub(crate) unwanted: BTreeSet<String>,
    /// Files that a person wanted to be left out, by request.
    pub(crate) left_out: BTreeMap<String, BTreeSet<String>>,
    coverage: BTreeMap<String, Coverage>,
}

impl Watch {
    pub(crate) fn is_over(&self) -> bool {
        self.violations.len() >= MOST
    }
}

impl Sim {
    /// A rule is broken.
    pub(crate) fn broken(&mut self, request: &str, what: String) {
        if self.watch.is_over() {
            return;
        }
        let story = self.stories.of(request);
        self.watch.violations.push(Violation {
            seed: self.setup.seed,
            at: self.now,
            request: request.to_owned(),
            what,
            story,
        });
    }
}
