//! The store in memory: its rows, and how it applies commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::requests::RequestView;
use windlass_core::requests::change::{RequestChange, RequestCommit, RunChange};
use windlass_core::requests::failures::FailureTally;
use windlass_core::requests::input_files;
use windlass_core::requests::rows::{
    NewAlert, NewBan, OutputStep, OutputStepKind, OutputStepState, RequestFileRow, RequestOverrides,
    RequestRow, RunRow, SiteBan,
};
use windlass_types::Timestamp;
use windlass_types::requests::{Request, RequestStatus};

/// The key of a step.
pub(crate) type OutputStepKey = (String, Option<u32>, OutputStepKind);

#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    pub(crate) views: BTreeMap<String, RequestView>,
    /// Finished steps, which views do not contain.
    pub(crate) finished_steps: BTreeMap<OutputStepKey, OutputStepState>,
    pub(crate) bans: Vec<SiteBan>,
    pub(crate) alerts: Vec<(Timestamp, NewAlert)>,
    /// By request and LFN.
    pub(crate) files: BTreeMap<String, BTreeMap<String, RequestFileRow>>,
    /// The request of each block.
    block_owners: BTreeMap<String, String>,
    /// All runs, oldest first.
    runs: Vec<StoredRun>,
    /// The known failed attempts of each run, by its UUID.
    failure_tallies: BTreeMap<String, Arc<FailureTally>>,
}

#[derive(Debug)]
struct StoredRun {
    uuid: String,
    process: String,
    round: u32,
}

/// Why a commit was rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommitRefusal {
    /// The row has been changed by another commit.
    Outdated,
    /// It contradicts the rows, so the decision was wrong.
    Invalid(String),
}

impl MemoryStore {
    pub(crate) fn insert_request(&mut self, request: Request, now: Timestamp) {
        let row = RequestRow {
            request,
            overrides: RequestOverrides::default(),
            status: RequestStatus::Submitted,
            version: 1,
            created_at: now,
            updated_at: now,
            since: now,
            wanted: None,
            reason: None,
            alerted_at: None,
        };
        let name = row.request.request_name.clone();
        let view = RequestView {
            row,
            process: None,
            run: None,
            failures: Arc::default(),
            blocks: Vec::new(),
            steps: Vec::new(),
        };
        self.views.insert(name, view);
    }

    /// Applies a commit atomically, and only if the version of the request is unchanged.
    pub(crate) fn commit(&mut self, commit: &RequestCommit) -> Result<i64, CommitRefusal> {
        let view = self
            .views
            .get(&commit.request)
            .ok_or_else(|| CommitRefusal::Invalid("no such request".into()))?;
        if view.row.version != commit.version {
            return Err(CommitRefusal::Outdated);
        }
        self.check_commit(view, commit)?;
        for change in &commit.changes {
            self.apply_change(&commit.request, change, commit.at);
        }
        let view = self.views.get_mut(&commit.request).expect("exists: it was read above");
        view.row.version += 1;
        view.row.updated_at = commit.at;
        Ok(view.row.version)
    }

    /// Checks what the store rejects. Each change is checked against the rows after the previous ones.
    fn check_commit(&self, view: &RequestView, commit: &RequestCommit) -> Result<(), CommitRefusal> {
        let mut after = view.clone();
        for change in &commit.changes {
            let fits = match change {
                RequestChange::Status { from, .. } => after.row.status == *from,
                RequestChange::AddRun(run) => !self.runs.iter().any(|known| known.uuid == run.uuid),
                RequestChange::Run { run, change } => after.run.as_ref().is_some_and(|row| {
                    row.uuid == *run
                        && !matches!(change, RunChange::Status { from, .. } if *from != row.status)
                }),
                RequestChange::Step { block, unit, kind, .. } => {
                    after.steps.iter().any(|step| step.is_step(block, *unit, *kind))
                }
                RequestChange::AddVersion(new, _) => !self.views.contains_key(&new.request_name),
                _ => true,
            };
            if !fits {
                return Err(CommitRefusal::Invalid(format!("{change:?} contradicts the rows")));
            }
            after.apply_change(change, commit.at);
        }
        Ok(())
    }

    fn apply_change(&mut self, request: &str, change: &RequestChange, at: Timestamp) {
        match change {
            RequestChange::AddVersion(new, overrides) => {
                self.insert_request((**new).clone(), at);
                if let Some(view) = self.views.get_mut(&new.request_name) {
                    view.row.overrides.clone_from(overrides);
                }
            }
            RequestChange::Alert(alert) => self.alerts.push((at, (**alert).clone())),
            RequestChange::Ban(ban) => self.add_ban((**ban).clone(), at),
            RequestChange::AddRun(run) => {
                let RunRow { uuid, process, round, .. } = &**run;
                self.runs.push(StoredRun { uuid: uuid.clone(), process: process.clone(), round: *round });
            }
            RequestChange::FailureTally { run, tally } => {
                self.failure_tallies.insert(run.clone(), Arc::clone(tally));
            }
            RequestChange::AddBlock(block) => {
                self.block_owners.insert(block.uuid.clone(), request.to_owned());
            }
            RequestChange::AddStep(step)
                if self.finished_steps.contains_key(&(step.block.clone(), step.unit, step.kind)) =>
            {
                return;
            }
            RequestChange::Step { block, unit, kind, state, .. } if !state.is_open() => {
                self.finished_steps.insert((block.clone(), *unit, *kind), *state);
            }
            _ => {}
        }
        // Steps for the outputs of an older version are rows of this request.
        let owner = match change {
            RequestChange::AddStep(step) => {
                self.block_owners.get(&step.block).map_or(request, String::as_str)
            }
            _ => request,
        };
        let owner = owner.to_owned();
        if let Some(view) = self.views.get_mut(&owner) {
            view.apply_change(change, at);
        }
    }

    /// Returns the units of a round whose outputs are registered, or about to be.
    pub(crate) fn registered_units(&self, view: &RequestView, round: u32) -> BTreeSet<u32> {
        let blocks: BTreeSet<&str> = view
            .blocks
            .iter()
            .filter(|block| block.round == round)
            .map(|block| block.uuid.as_str())
            .collect();
        let is_it = |block: &str, kind| kind == OutputStepKind::Register && blocks.contains(block);
        let open =
            view.steps.iter().filter(|step| is_it(&step.block, step.kind)).filter_map(|step| step.unit);
        let of_block = |block: &&str| {
            let first = ((*block).to_owned(), None, OutputStepKind::Open);
            let last = ((*block).to_owned(), Some(u32::MAX), OutputStepKind::Invalidate);
            self.finished_steps.range(first..=last)
        };
        let over = blocks.iter().flat_map(of_block);
        let over =
            over.filter(|((block, _, kind), state)| is_it(block, *kind) && **state == OutputStepState::Done);
        open.chain(over.filter_map(|((_, unit, _), _)| *unit)).collect()
    }

    /// Returns the files that units of a round reported as bad, over all its runs.
    pub(crate) fn bad_files(&self, process: &str, round: u32) -> BTreeMap<u32, BTreeSet<String>> {
        let of_round = self.runs.iter().filter(|run| run.process == process && run.round == round);
        let tallies = of_round.filter_map(|run| self.failure_tallies.get(&run.uuid));
        input_files::find_bad_files(&tallies.map(|tally| FailureTally::clone(tally)).collect::<Vec<_>>())
    }

    pub(crate) fn add_ban(&mut self, ban: NewBan, at: Timestamp) {
        let id = self.bans.len() as i64 + 1;
        self.bans.push(SiteBan {
            id,
            ban,
            created_at: at,
            removed_at: None,
            removed_by: None,
            expiry_told_at: None,
        });
    }

    /// Returns the sites that are banned for this request at present.
    pub(crate) fn banned_sites(&self, request: &str, now: Timestamp) -> BTreeSet<String> {
        let holds = |ban: &&SiteBan| {
            ban.removed_at.is_none()
                && ban.ban.expires_at > now
                && ban.ban.request.as_ref().is_none_or(|of| of == request)
        };
        self.bans.iter().filter(holds).map(|ban| ban.ban.site.clone()).collect()
    }

    /// Returns all requests that the lifecycle has to process.
    pub(crate) fn open_requests(&self) -> impl Iterator<Item = &RequestView> {
        self.views.values().filter(|view| is_open(view))
    }
}

/// Whether a request needs further work. Failed steps, and the steps after them, wait for a person.
pub(crate) fn is_open(view: &RequestView) -> bool {
    let is_given_up = |block: &str| {
        view.steps.iter().any(|step| step.block == block && step.state == OutputStepState::Failed)
    };
    let is_due = |step: &OutputStep| step.state == OutputStepState::Pending && !is_given_up(&step.block);
    !view.row.status.is_terminal() || view.steps.iter().any(is_due)
}
