//! What schedds say about our DAGs: asked now and then, in case that one is gone without a word in its files.

use std::path::PathBuf;
use windlass_condor::pool::{Condor, CondorError, JobState};

/// How schedds are asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) tools: Option<PathBuf>,
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
    pub(super) fn at(&self, schedd: Option<&str>) -> Condor {
        Condor { schedd: schedd.map(str::to_owned), tools: self.tools.clone(), ..Condor::default() }
    }

    /// About all of them at once; an answer for each.
    pub(super) fn ask(&self, schedd: Option<&str>, clusters: &[u64]) -> Vec<Answer> {
        let condor = self.at(schedd);
        let present = match condor.all_dags() {
            Ok(jobs) => jobs,
            Err(error) => {
                tracing::warn!(schedd, %error, "cannot ask a schedd about its DAGs");
                return vec![Answer::Unreachable(error.to_string()); clusters.len()];
            }
        };
        let is_there = |cluster: &u64| present.iter().any(|job| job.cluster == *cluster);
        let answer =
            |cluster: &u64| if is_there(cluster) { Answer::There } else { remembered(&condor, *cluster) };
        clusters.iter().map(answer).collect()
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
