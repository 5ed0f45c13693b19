//! Where runs of requests execute. What is decided about a run does not depend on where it is: a [`Backend`] takes it,
//! ends it, and says how it stands.

mod attempts;
mod condor;
mod engine;
mod jobs;
mod roles;

pub(crate) use attempts::MOST as MOST_ATTEMPTS;
pub use condor::CondorOptions;
pub(crate) use condor::{Condor, Paper};
pub(crate) use engine::Engine;
pub(crate) use jobs::{JobSize, Submission};
pub(crate) use roles::Retries;

use std::collections::BTreeMap;
use windlass_core::requests::book::{self, NodeCounts, RunRow};
use windlass_core::requests::failures::{AttemptNews, ByRole};
use windlass_core::requests::lifecycle::{Effect, RunState, Trouble};
use windlass_types::requests::UnitStatus;

/// Each call may be made twice, and by somebody who remembers nothing: what is there says what was done.
pub(crate) trait Backend: Send + Sync + std::fmt::Debug {
    /// Sees to it that a run is there, as the first of its round or going on with the one before it; and says what it is
    /// called there.
    fn hand_over(&self, order: &Order<'_>) -> Result<book::Backend, Trouble>;

    /// What is there of a run is told to end; that it did is seen by looking.
    fn stop(&self, order: &Order<'_>, reason: &str) -> Result<Stop, Trouble>;

    /// How a run stands that was handed over; of failed attempts those after `read`. `None`: it was not.
    fn look(&self, run: &RunRow, read: i64) -> Option<Look>;

    /// Nothing new of a run begins, or it goes on.
    fn pause(&self, run: &RunRow, is_paused: bool) -> Result<(), Trouble>;

    /// What of a run has not begun yet begins at none of the banned sites.
    fn avoid(&self, order: &Order<'_>) -> Result<(), Trouble>;

    /// Jobs of a run that are not over, those that wait for others included, get the priority of the order.
    fn prioritize(&self, order: &Order<'_>) -> Result<(), Trouble>;
}

/// A run, with all that a backend may need to know of it.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) run: &'a RunRow,
    pub(crate) submission: Submission,
    /// Of the same process.
    pub(crate) others: Vec<RunRow>,
    /// Sites where nothing of it may land now.
    pub(crate) banned: Vec<String>,
}

/// What came of [`Backend::stop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is there, under this name, and was told.
    Told(book::Backend),
    /// It certainly does not run and will not.
    NotThere,
}

/// How a run stands. Its state was read before its units: what is over has no more news than these.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// What it is called there.
    pub(crate) backend: book::Backend,
    pub(crate) state: RunState,
    pub(crate) counts: NodeCounts,
    pub(crate) units_completed: u32,
    pub(crate) units_failed: u32,
    /// What happened to units after `units_read` of the run, ascending.
    pub(crate) news: Vec<UnitChange>,
    /// Attempts that failed, ascending.
    pub(crate) attempts: Vec<AttemptNews>,
    /// How many attempts have ended at each site.
    pub(crate) site_totals: BTreeMap<String, ByRole>,
    /// What waits there for a person, and why.
    pub(crate) held: Vec<String>,
    /// Why it ended, where the units do not say it.
    pub(crate) reason: Option<String>,
}

impl Look {
    /// The backend does not answer.
    pub(crate) fn unknown(backend: book::Backend) -> Self {
        Self {
            backend,
            state: RunState::Unknown,
            counts: NodeCounts::default(),
            units_completed: 0,
            units_failed: 0,
            news: Vec::new(),
            attempts: Vec::new(),
            site_totals: BTreeMap::new(),
            held: Vec::new(),
            reason: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitChange {
    pub(crate) seq: i64,
    pub(crate) unit: u32,
    pub(crate) status: UnitStatus,
}

/// All there are.
#[derive(Debug)]
pub(crate) struct Backends {
    pub(crate) engine: Engine,
    pub(crate) condor: Condor,
    /// What becomes of new runs.
    pub(crate) for_new: BackendKind,
}

/// A backend, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// The engine of this server, and its workers.
    #[default]
    Engine,
    Htcondor,
}

impl Backends {
    /// The one that a run is for. Nothing else about a run depends on which it is.
    pub(crate) fn of(&self, run: &RunRow) -> &dyn Backend {
        match &run.backend {
            book::Backend::Engine { .. } => &self.engine,
            book::Backend::Htcondor { .. } => &self.condor,
        }
    }

    /// Where a new run goes, given those that are not over. One that exists stays where it is.
    pub(crate) fn place(
        &self,
        active: impl FnOnce() -> Result<Vec<RunRow>, Trouble>,
    ) -> Result<book::Backend, Trouble> {
        match self.for_new {
            BackendKind::Engine => Ok(book::Backend::Engine { workflow: None, run: None }),
            BackendKind::Htcondor => Ok(self.condor.place(&active()?)),
        }
    }
}

/// Whom an effect may have to wait for, for as long as that one likes, where new runs go there. Nothing else waits behind
/// it.
pub(crate) fn lane(for_new: BackendKind, run: Option<&RunRow>, effect: &Effect) -> Option<String> {
    match (effect, run.map(|run| &run.backend)) {
        // All schedds are asked, until one answers.
        (Effect::Plan { .. }, _) if for_new == BackendKind::Htcondor => Some("any".to_owned()),
        (
            Effect::Submit { .. }
            | Effect::Resume { .. }
            | Effect::Stop { .. }
            | Effect::Unpause { .. }
            | Effect::Prioritize { .. },
            Some(book::Backend::Htcondor { schedd, .. }),
        ) => Some(format!("at {}", schedd.as_deref().unwrap_or_default())),
        _ => None,
    }
}
