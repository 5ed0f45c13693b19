//! The queue of schedds: queried now and then, in case a DAG disappeared without a trace in its files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_htcondor::commands::{CancelToken, CondorClient, CondorError, DagmanJobState, QUERY_TIMEOUT};

/// A schedd that did not answer is not tried for new runs before this time.
const SILENT_RETRY_DELAY: Duration = Duration::from_mins(1);

/// Queries schedds.
#[derive(Clone, Debug, Default)]
pub(super) struct ScheddQueue {
    pub(super) tools_directory: Option<PathBuf>,
    /// Protects the answers, so that stopping does not wait for a query.
    pub(super) cancel_token: CancelToken,
    /// When schedds stopped answering, as far as known.
    silent_since: Arc<Mutex<HashMap<String, Instant>>>,
}

/// The answer of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DagQueueStatus {
    Queued,
    /// It left the queue, with this record in the history.
    Ended(String),
    /// Neither the queue nor the history knows it.
    Missing,
    Unreachable(String),
}

/// What the queries show about a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DagPresence {
    /// Number of consecutive queries without it. A single one may fall between its end and its last record.
    times_absent: u32,
    last: Option<DagQueueStatus>,
}

impl DagPresence {
    pub(super) fn record(&mut self, answer: DagQueueStatus) {
        self.times_absent = match answer {
            DagQueueStatus::Ended(_) | DagQueueStatus::Missing => self.times_absent.saturating_add(1).min(2),
            DagQueueStatus::Queued => 0,
            // Nothing follows from it.
            DagQueueStatus::Unreachable(_) => self.times_absent,
        };
        self.last = Some(answer);
    }

    /// It is certainly not in the queue; the reason.
    pub(super) fn confirmed_absence(&self) -> Option<&DagQueueStatus> {
        self.last
            .as_ref()
            .filter(|last| self.times_absent >= 2 && !matches!(last, DagQueueStatus::Unreachable(_)))
    }

    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self.last, Some(DagQueueStatus::Unreachable(_)))
    }
}

impl ScheddQueue {
    pub(super) fn new(tools_directory: Option<PathBuf>) -> Self {
        Self { tools_directory, ..Self::default() }
    }

    /// The same, with a cancel token of its own.
    pub(super) fn with_own_cancel_token(&self) -> Self {
        Self { cancel_token: CancelToken::default(), ..self.clone() }
    }

    pub(super) fn client_for(&self, schedd: Option<&str>) -> CondorClient {
        let (tools, cancel) = (self.tools_directory.clone(), self.cancel_token.clone());
        CondorClient {
            schedd: schedd.map(str::to_owned),
            tools_directory: tools,
            cancel_token: cancel,
            ..CondorClient::default()
        }
    }

    /// Queries all of them at once; one answer each.
    pub(super) fn query_clusters(&self, schedd: Option<&str>, clusters: &[u64]) -> Vec<DagQueueStatus> {
        let condor = CondorClient { timeout: QUERY_TIMEOUT, ..self.client_for(schedd) };
        let asked = condor.all_dags();
        self.record_answer(schedd, asked.is_ok());
        let present = match asked {
            Ok(jobs) => jobs,
            Err(error) => {
                if !matches!(error, CondorError::Canceled { .. }) {
                    tracing::warn!(schedd, %error, "cannot query a schedd about its DAGs");
                }
                return vec![unreachable_status(&error); clusters.len()];
            }
        };
        let is_there = |cluster: &u64| present.iter().any(|job| job.cluster == *cluster);
        let mut silence = None;
        let answer = |cluster: &u64| match &silence {
            _ if is_there(cluster) => DagQueueStatus::Queued,
            // A query that timed out for one would time out for the others.
            Some(silence) => DagQueueStatus::clone(silence),
            None => {
                let answer = query_history(&condor, *cluster);
                silence =
                    Some(answer.clone()).filter(|answer| matches!(answer, DagQueueStatus::Unreachable(_)));
                answer
            }
        };
        clusters.iter().map(answer).collect()
    }

    /// Queries its DAGs; an error tells why it does not answer.
    pub(super) fn probe(&self, schedd: Option<&str>) -> Result<(), CondorError> {
        CondorClient { timeout: QUERY_TIMEOUT, ..self.client_for(schedd) }.all_dags().map(drop)
    }

    /// Whether it accepts new runs. A schedd that was silent a moment ago is not waited for again.
    pub(super) fn is_answering(&self, schedd: &str) -> bool {
        if self.lock_silent().get(schedd).is_some_and(|since| since.elapsed() < SILENT_RETRY_DELAY) {
            return false;
        }
        let condor = CondorClient { timeout: QUERY_TIMEOUT, ..self.client_for(Some(schedd)) };
        let answers = condor.all_dags().is_ok();
        self.record_answer(Some(schedd), answers);
        answers
    }

    fn record_answer(&self, schedd: Option<&str>, answers: bool) {
        let Some(schedd) = schedd else { return };
        if answers {
            self.lock_silent().remove(schedd);
        } else {
            self.lock_silent().insert(schedd.to_owned(), Instant::now());
        }
    }

    fn lock_silent(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.silent_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn query_history(condor: &CondorClient, cluster: u64) -> DagQueueStatus {
    match condor.find_job_in_history(cluster) {
        Ok(Some(job)) => DagQueueStatus::Ended(match (job.state, job.removal) {
            (DagmanJobState::Completed(Some(code)), _) => format!("DAGMan {cluster} exited with {code}"),
            (_, Some(removal)) => format!("DAGMan {cluster} was removed: {removal}"),
            (state, None) => format!("DAGMan {cluster} left the queue ({state:?})"),
        }),
        Ok(None) => DagQueueStatus::Missing,
        Err(error) => unreachable_status(&error),
    }
}

fn unreachable_status(error: &CondorError) -> DagQueueStatus {
    DagQueueStatus::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dag_is_missing_only_after_second_absence() {
        let mut presence = DagPresence::default();
        let lost = || DagQueueStatus::Unreachable("no answer".into());
        let table = [
            (DagQueueStatus::Missing, false, false),
            (lost(), false, true),
            (DagQueueStatus::Missing, true, false),
            (lost(), false, true),
            (DagQueueStatus::Ended("exited".into()), true, false),
            (DagQueueStatus::Queued, false, false),
            (DagQueueStatus::Missing, false, false),
        ];
        for (n, (answer, gone, unreachable)) in table.into_iter().enumerate() {
            presence.record(answer);
            assert_eq!(
                (presence.confirmed_absence().is_some(), presence.is_unreachable()),
                (gone, unreachable),
                "{n}"
            );
        }
    }
}
