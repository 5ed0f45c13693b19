//! `NODE.post.json`: what became of the last attempt of a node, and in short of those before it.
//!
//! The fields of the specification are there under their names; ours beside them say what the next attempt gets. Whoever
//! looks at a run after its end reads these files and needs nothing else.

use crate::attempt_log::{self, AttemptLogLine, FailureLine};
use crate::file_layout;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_types::worker_messages::RecoveryScript;
use windlass_types::{Resources, Timestamp};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PostReport {
    pub node_name: String,
    pub timestamp: Timestamp,
    /// Since the DAG was submitted, from 1.
    pub attempt: u32,
    pub max_retries: u32,
    /// No other attempt follows: it succeeded, fails each time, or was tried often enough.
    #[serde(rename = "final")]
    pub is_final: bool,
    pub job: ReportedJob,
    /// Absent where neither the payload nor its program left a report.
    #[serde(default)]
    pub cmssw: Option<CmsswReport>,
    pub classification: AttemptClassification,
    /// The end of its stderr.
    #[serde(default)]
    pub log_tail: String,
    /// What this attempt asked for.
    pub asked: Resources,
    /// What the next one asks for, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Resources>,
    /// The next attempt waits until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Runs before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryScript>,
    /// Earlier ones, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<EarlierAttempt>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportedJob {
    /// `32.0`; tells whether a script is asked a second time about the same attempt.
    #[serde(default)]
    pub id: String,
    /// Of the process; what DAGMan says (-1001: not submitted, -1002: removed) where there was none.
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    pub hold_reason: Option<String>,
    pub wall_time_sec: Option<u64>,
    pub cpu_time_sec: Option<u64>,
    pub memory_mb: Option<u64>,
    pub site: Option<String>,
    pub schedd: Option<String>,
}

/// What the job reports of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CmsswReport {
    pub exit_code: i32,
    pub steps: BTreeMap<String, StepResult>,
    pub error_message: Option<String>,
    pub input_files: Vec<String>,
    pub output_files: Vec<String>,
    pub performance: CmsswPerformance,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResult {
    /// 0 if it went well, else 1.
    pub status: u8,
    pub exit_code: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CmsswPerformance {
    pub peak_rss_mb: Option<f64>,
    pub avg_event_time_sec: Option<f64>,
    pub events_read: u64,
    pub events_written: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptClassification {
    /// `success`, or the class of the failure.
    pub category: String,
    /// Whether failures of this sort are tried again, as long as attempts are left.
    pub retryable: bool,
    pub bad_input_files: Vec<String>,
    pub action: FollowUpAction,
    /// One sentence for people, without its full stop.
    #[serde(default)]
    pub why: String,
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowUpAction {
    #[default]
    Done,
    Retry,
    /// With more memory or more time.
    RetryWithMore,
    /// It would be tried again if attempts were left.
    RetriesSpent,
    PermanentFailure,
    /// The whole run ends: no other node can do better.
    Abort,
}

/// An attempt before the last one, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierAttempt {
    pub timestamp: Timestamp,
    pub attempt: u32,
    pub job: String,
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    pub category: String,
    pub site: Option<String>,
    pub wall_time_sec: Option<u64>,
    pub memory_mb: Option<u64>,
    pub why: String,
}

impl PostReport {
    /// So many earlier attempts are kept: those of some rescues.
    const MAX_EARLIER_ATTEMPTS: usize = 50;

    /// All attempts up to this one, as the next report keeps them.
    pub(super) fn attempt_history(&self) -> Vec<EarlierAttempt> {
        let mut attempts = self.attempts.clone();
        attempts.push(EarlierAttempt {
            timestamp: self.timestamp,
            attempt: self.attempt,
            job: self.job.id.clone(),
            exit_code: self.cmssw.as_ref().map(|report| report.exit_code).or(self.job.exit_code),
            exit_signal: self.job.exit_signal,
            category: self.classification.category.clone(),
            site: self.job.site.clone(),
            wall_time_sec: self.job.wall_time_sec,
            memory_mb: self.job.memory_mb,
            why: self.classification.why.clone(),
        });
        attempts.drain(..attempts.len().saturating_sub(Self::MAX_EARLIER_ATTEMPTS));
        attempts
    }

    /// In short, for whoever follows the run.
    pub(super) fn to_log_line(&self, unit: u32) -> AttemptLogLine {
        // What is no class of failures is success.
        let class = self.classification.category.parse().ok();
        AttemptLogLine {
            unit,
            node: self.node_name.clone(),
            job: self.job.id.clone(),
            attempt: self.attempt,
            site: self.job.site.clone(),
            failure: class.map(|class| FailureLine {
                role: file_layout::node_role(&self.node_name),
                class,
                code: self.failure_code(),
                why: self.classification.why.clone(),
                is_final: self.is_final,
                bad_files: self.classification.bad_input_files.clone(),
                log_tail: attempt_log::truncate_log_tail(&self.log_tail),
                memory_mb: self.job.memory_mb,
                at: self.timestamp,
            }),
        }
    }

    /// Of CMS where there is one, else as a shell would tell it.
    fn failure_code(&self) -> i32 {
        let reported = self.cmssw.as_ref().map(|report| report.exit_code).filter(|code| *code != 0);
        let by_signal = || self.job.exit_signal.map(|signal| 128 + signal);
        reported.or(self.job.exit_code).or_else(by_signal).unwrap_or(-1)
    }

    /// What the attempt after this one asks for.
    pub(super) fn next_resources(&self) -> Resources {
        self.next.unwrap_or(self.asked)
    }
}
