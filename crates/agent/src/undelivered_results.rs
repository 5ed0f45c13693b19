//! Cleans up after dead workers of this machine: ends their processes, and delivers their undelivered results
//! to the server under their identity.

use crate::result_journal::{JournalEntry, ResultJournal, is_final_report, report_key};
use crate::state_directory::{SavedWorkerState, StateDirectory};
use crate::{RemoteWorkerError, worker_process};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;
use windlass_client::Client;
use windlass_process::ensure_dead;
use windlass_types::WorkerId;
use windlass_types::worker_messages::{
    AttemptEndReport as JobEnd, AttemptKey, AttemptReport, AttemptUsage, ReturnReason,
};
use windlass_types::worker_protocol::{
    ActionReport, RegistrationReply, WorkerExchange, WorkerReconnect, WorkerRegistration,
};
use windlass_worker::read_ends;

/// The timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// The largest number of reports in one exchange.
const REPORTS_PER_EXCHANGE: usize = WorkerExchange::MAX_REPORTS;

/// What one dead worker left, after its processes were ended.
#[derive(Debug)]
pub(crate) struct UndeliveredResults {
    state_directory: StateDirectory,
    saved_state: SavedWorkerState,
    entries: Vec<JournalEntry>,
    /// The attempts that have or may have started there lately.
    started_attempts: Vec<AttemptKey>,
    /// The ends that its worker process recorded, delivered or not.
    recorded_ends: HashMap<AttemptKey, JobEnd>,
    /// The usage of processes that had to be ended, by the attempt that started them.
    leftover_usage: HashMap<AttemptKey, AttemptUsage>,
}

/// A worker that was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedWorker {
    /// The address of its server.
    pub url: String,
    /// Its id there.
    pub worker: Option<WorkerId>,
}

/// Ends all workers with directories here, alive or dead, with all processes that they started: for a caller
/// that started them and needs them no more. Undelivered results stay for the next worker here.
pub fn end_all_workers(state_dir: &Path) -> Result<Vec<EndedWorker>, RemoteWorkerError> {
    let mut ended = Vec::new();
    for notes in StateDirectory::load_all_states(state_dir) {
        // The main process first: it would restart its worker process.
        let processes = notes.agent.iter().chain(&notes.running_worker);
        let mut ended_processes = processes.map(|process| {
            worker_process::ensure_recorded_process_dead(process, &notes.host, &notes.boot_id)
        });
        match ended_processes.try_for_each(|one| one.map(drop)) {
            Ok(()) => ended.push(EndedWorker { url: notes.url, worker: notes.me.map(|me| me.worker) }),
            // The directory is shared with another machine, whose processes cannot be ended from here.
            Err(ensure_dead::EnsureDeadError::OtherHost { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ended)
}

/// Ensures that no processes of dead workers live.
pub(crate) fn ensure_all_dead(state_dir: &Path) -> Result<Vec<UndeliveredResults>, RemoteWorkerError> {
    let mut found = Vec::new();
    for home in StateDirectory::lock_abandoned(state_dir) {
        // Without a state file it had not started anything.
        let Ok(notes) = home.load_state() else {
            home.remove();
            continue;
        };
        let (mut started, mut leftover_usage) = (Vec::new(), HashMap::new());
        let mut is_elsewhere = false;
        for process in notes.running_worker.iter().chain(&notes.agent) {
            match worker_process::ensure_recorded_process_dead(process, &notes.host, &notes.boot_id) {
                Ok(report) => {
                    started.extend(report.started_attempts.unwrap_or_default());
                    leftover_usage
                        .extend(report.leftover_usage.into_iter().map(|(key, usage)| (key, usage.into())));
                }
                // The directory is shared with another machine, whose workers clean it up.
                Err(ensure_dead::EnsureDeadError::OtherHost { .. }) => is_elsewhere = true,
                Err(error) => return Err(error.into()),
            }
        }
        let entries = ResultJournal::read_entries(&home.journal_path());
        // An unreadable journal is left alone: it may be readable later.
        if let (false, Ok(entries)) = (is_elsewhere, entries) {
            let ends = notes
                .running_worker
                .iter()
                .flat_map(|running_worker| read_ends(&running_worker.ledger))
                .collect();
            found.push(UndeliveredResults {
                state_directory: home,
                saved_state: notes,
                entries,
                started_attempts: started,
                recorded_ends: ends,
                leftover_usage,
            });
        }
    }
    Ok(found)
}

impl UndeliveredResults {
    /// Delivers the results, if the dead worker served this server, or an earlier one of this database.
    /// Returns the number of results.
    pub(crate) fn deliver(
        self,
        client: &Client,
        database: Option<&str>,
        as_me: &WorkerRegistration,
    ) -> Result<usize, windlass_client::ClientError> {
        let here = self.saved_state.url == client.url()
            || (database.is_some() && self.saved_state.database.as_deref() == database);
        let Some(me) = self.saved_state.me.clone().filter(|_| here) else {
            if self.entries.is_empty() {
                self.state_directory.remove();
            }
            return Ok(0);
        };
        let held =
            self.reported_attempts().chain(self.started_attempts.iter().copied()).collect::<HashSet<_>>();
        let ended = self.entries.iter().filter_map(|entry| match entry {
            JournalEntry::Action(report) => Some((report.action, report.attempt)),
            JournalEntry::Report(_) => None,
        });
        let (held, actions) = (held.into_iter().collect(), ended.collect());
        let before = WorkerReconnect { worker: me.worker, secret: me.secret, held, actions };
        let who = WorkerRegistration {
            before: Some(before),
            labels: Vec::new(),
            workflow: None,
            allocation: None,
            slurm: None,
            ..as_me.clone()
        };
        let registration = client.register_worker(&who, CALL_TIMEOUT)?;
        let (reports, actions) = self.build_reports(&registration.lost);
        let count = self.entries.len();
        send_reports(client, &registration, &reports, actions)?;
        self.state_directory.remove();
        Ok(count)
    }

    fn reported_attempts(&self) -> impl Iterator<Item = AttemptKey> {
        self.entries.iter().filter_map(|entry| match entry {
            JournalEntry::Report(report) => Some(report_key(report)),
            JournalEntry::Action(_) => None,
        })
    }

    /// All results, also stale ones, which become visible at the server that way, and the attempts that died
    /// with their worker.
    fn build_reports(&self, lost: &[AttemptKey]) -> (Vec<AttemptReport>, Vec<ActionReport>) {
        let (mut reports, mut actions) = (Vec::new(), Vec::new());
        let mut settled: HashSet<AttemptKey> = lost.iter().copied().collect();
        for entry in &self.entries {
            match entry {
                JournalEntry::Report(report) => {
                    if is_final_report(report) {
                        settled.insert(report_key(report));
                    }
                    reports.push(report.clone());
                }
                JournalEntry::Action(report) => actions.push(report.clone()),
            }
        }
        // The attempts that the server still waits for: jobs that ended unreported, and those that died.
        for key in self.started_attempts.iter().filter(|key| !settled.contains(key)) {
            if let Some(ended) = self.recorded_ends.get(key) {
                reports.push(AttemptReport::Ended(ended.clone()));
                continue;
            }
            let usage = self.leftover_usage.get(key);
            reports.extend(usage.map(|usage| AttemptReport::LeftBehind { key: *key, usage: *usage }));
            reports.push(AttemptReport::Returned { key: *key, why: ReturnReason::WorkerDied });
        }
        (reports, actions)
    }
}

/// Sends the reports under the identity of the dead worker, which then leaves.
fn send_reports(
    client: &Client,
    registration: &RegistrationReply,
    reports: &[AttemptReport],
    actions: Vec<ActionReport>,
) -> Result<(), windlass_client::ClientError> {
    let mut actions = Some(actions);
    let batches = reports.len().div_ceil(REPORTS_PER_EXCHANGE).max(1);
    for number in 1..=batches {
        let batch = reports.iter().skip((number - 1) * REPORTS_PER_EXCHANGE).take(REPORTS_PER_EXCHANGE);
        let exchange = WorkerExchange {
            worker: registration.worker,
            secret: registration.secret.clone(),
            number: number as u64,
            reports: batch.cloned().collect(),
            actions: actions.take().unwrap_or_default(),
            wait: Duration::ZERO,
            time_left: None,
            draining: true,
            leaving: number == batches,
        };
        client.exchange(&exchange, CALL_TIMEOUT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::worker_messages::{AttemptEndCause, ProcessExit};
    use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

    fn key(job: i64) -> AttemptKey {
        AttemptKey { workflow: WorkflowId(1), job: JobId(job), run: RunId(1), attempt: Attempt(1) }
    }

    #[test]
    fn only_recorded_undelivered_ends_are_delivered() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDirectory::create(directory.path()).unwrap();
        let end = |job| JobEnd {
            key: key(job),
            started_at: Timestamp(1),
            ended_at: Timestamp(2),
            wall: Duration::ZERO,
            exit: ProcessExit::Code(0),
            cause: AttemptEndCause::Itself,
            usage: AttemptUsage::default(),
            files: None,
            last_words: None,
            recovered: None,
        };
        // 1 was delivered already, 2 ended, 3 ran, 4 is in the journal.
        let usage = AttemptUsage { cpu_time: Duration::from_secs(7), ..AttemptUsage::default() };
        let undelivered = UndeliveredResults {
            state_directory: home,
            saved_state: SavedWorkerState::default(),
            entries: vec![JournalEntry::Report(AttemptReport::Ended(end(4)))],
            started_attempts: vec![key(1), key(2), key(3), key(4)],
            recorded_ends: [1, 2, 4].map(|job| (key(job), end(job))).into(),
            leftover_usage: [2, 3].map(|job| (key(job), usage)).into(),
        };
        let (reports, _) = undelivered.build_reports(&[key(1)]);
        let died = AttemptReport::Returned { key: key(3), why: ReturnReason::WorkerDied };
        let left = AttemptReport::LeftBehind { key: key(3), usage };
        assert_eq!(reports, [AttemptReport::Ended(end(4)), AttemptReport::Ended(end(2)), left, died]);
        undelivered.state_directory.remove();
    }
}
