//! What schedds say about our DAGs: asked now and then, in case that one is gone without a word in its files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_condor::pool::{Condor, CondorError, JobState, Leash, QUESTION_LIMIT};

/// A schedd that did not answer is not asked for a place again before so long.
const SILENCE: Duration = Duration::from_mins(1);

/// How schedds are asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) tools: Option<PathBuf>,
    /// Holds what is asked and told, so that nobody who stops has to wait for it.
    pub(super) leash: Leash,
    /// Since when schedds have not answered, as far as that is known.
    silent: Arc<Mutex<HashMap<String, Instant>>>,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    There,
    /// It left the queue, and this is what its history says.
    Ended(String),
    /// Neither the queue nor the history knows it.
    Missing,
    Unreachable(String),
}

/// What is known of a run by asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Presence {
    /// So often in a row it was not there any more. Once may be the moment between its end and what it writes then.
    absent: u32,
    last: Option<Answer>,
}

impl Presence {
    pub(super) fn note(&mut self, answer: Answer) {
        self.absent = match answer {
            Answer::Ended(_) | Answer::Missing => self.absent.saturating_add(1).min(2),
            Answer::There => 0,
            // Nothing can be concluded.
            Answer::Unreachable(_) => self.absent,
        };
        self.last = Some(answer);
    }

    /// It is certainly not in the queue, and this was said about it.
    pub(super) fn gone(&self) -> Option<&Answer> {
        self.last.as_ref().filter(|last| self.absent >= 2 && !matches!(last, Answer::Unreachable(_)))
    }

    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self.last, Some(Answer::Unreachable(_)))
    }
}

impl Queue {
    pub(super) fn new(tools: Option<PathBuf>) -> Self {
        Self { tools, ..Self::default() }
    }

    /// The same, for somebody who stops at another time.
    pub(super) fn apart(&self) -> Self {
        Self { leash: Leash::default(), ..self.clone() }
    }

    pub(super) fn at(&self, schedd: Option<&str>) -> Condor {
        let (tools, leash) = (self.tools.clone(), self.leash.clone());
        Condor { schedd: schedd.map(str::to_owned), tools, leash, ..Condor::default() }
    }

    /// About all of them at once; an answer for each.
    pub(super) fn ask(&self, schedd: Option<&str>, clusters: &[u64]) -> Vec<Answer> {
        let condor = Condor { limit: QUESTION_LIMIT, ..self.at(schedd) };
        let asked = condor.all_dags();
        self.note(schedd, asked.is_ok());
        let present = match asked {
            Ok(jobs) => jobs,
            Err(error) => {
                if !matches!(error, CondorError::CutShort { .. }) {
                    tracing::warn!(schedd, %error, "cannot ask a schedd about its DAGs");
                }
                return vec![unreachable(&error); clusters.len()];
            }
        };
        let is_there = |cluster: &u64| present.iter().any(|job| job.cluster == *cluster);
        let mut silence = None;
        let answer = |cluster: &u64| match &silence {
            _ if is_there(cluster) => Answer::There,
            // What did not tell of one would take as long not to tell of the others.
            Some(silence) => Answer::clone(silence),
            None => {
                let answer = remembered(&condor, *cluster);
                silence = Some(answer.clone()).filter(|answer| matches!(answer, Answer::Unreachable(_)));
                answer
            }
        };
        clusters.iter().map(answer).collect()
    }

    /// Asks it for our DAGs; an error says why it does not answer.
    pub(super) fn probe(&self, schedd: Option<&str>) -> Result<(), CondorError> {
        Condor { limit: QUESTION_LIMIT, ..self.at(schedd) }.all_dags().map(drop)
    }

    /// Whether it takes something new. One that was silent a moment ago is not waited for again.
    pub(super) fn answers(&self, schedd: &str) -> bool {
        if self.silent().get(schedd).is_some_and(|since| since.elapsed() < SILENCE) {
            return false;
        }
        let condor = Condor { limit: QUESTION_LIMIT, ..self.at(Some(schedd)) };
        let answers = condor.all_dags().is_ok();
        self.note(Some(schedd), answers);
        answers
    }

    fn note(&self, schedd: Option<&str>, answers: bool) {
        let Some(schedd) = schedd else { return };
        if answers {
            self.silent().remove(schedd);
        } else {
            self.silent().insert(schedd.to_owned(), Instant::now());
        }
    }

    fn silent(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remembered(condor: &Condor, cluster: u64) -> Answer {
    match condor.history_of(cluster) {
        Ok(Some(job)) => Answer::Ended(match (job.state, job.removal) {
            (JobState::Completed(Some(code)), _) => format!("DAGMan {cluster} exited with {code}"),
            (_, Some(removal)) => format!("DAGMan {cluster} was removed: {removal}"),
            (state, None) => format!("DAGMan {cluster} left the queue ({state:?})"),
        }),
        Ok(None) => Answer::Missing,
        Err(error) => unreachable(&error),
    }
}

fn unreachable(error: &CondorError) -> Answer {
    Answer::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_absent_once_may_be_on_his_way_out() {
        let mut presence = Presence::default();
        let lost = || Answer::Unreachable("no answer".into());
        let table = [
            (Answer::Missing, false, false),
            (lost(), false, true),
            (Answer::Missing, true, false),
            (lost(), false, true),
            (Answer::Ended("exited".into()), true, false),
            (Answer::There, false, false),
            (Answer::Missing, false, false),
        ];
        for (n, (answer, gone, unreachable)) in table.into_iter().enumerate() {
            presence.note(answer);
            assert_eq!((presence.gone().is_some(), presence.is_unreachable()), (gone, unreachable), "{n}");
        }
    }
}
