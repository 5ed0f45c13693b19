//! `NODE.post.json`: the outcome of the last attempt of a node, and a summary of earlier ones.
//!
//! The fields of the specification have their names; additional fields say what the next attempt requests. After
//! the end of a run, these files are the complete record of its failures.

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
    /// Counted from 1 since the DAG was submitted.
    pub attempt: u32,
    pub max_retries: u32,
    /// No other attempt follows: it succeeded, fails each time, or has used up its retries.
    #[serde(rename = "final")]
    pub is_final: bool,
    pub job: ReportedJob,
    /// Absent if neither the payload nor its program left a report.
    #[serde(default)]
    pub cmssw: Option<CmsswReport>,
    pub classification: AttemptClassification,
    /// The end of its stderr.
    #[serde(default)]
    pub log_tail: String,
    /// The resources that this attempt requested.
    pub asked: Resources,
    /// The resources of the next attempt, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Resources>,
    /// The next attempt waits until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The recovery script that runs before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryScript>,
    /// Earlier attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<EarlierAttempt>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportedJob {
    /// `32.0`; tells whether a script is called a second time for the same attempt.
    #[serde(default)]
    pub id: String,
    /// Of the process; without one, DAGMan's number (-1001: not submitted, -1002: removed).
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    pub hold_reason: Option<String>,
    pub wall_time_sec: Option<u64>,
    pub cpu_time_sec: Option<u64>,
    pub memory_mb: Option<u64>,
    pub site: Option<String>,
    pub schedd: Option<String>,
}

/// The report of the job about itself.
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
    /// 0 if it succeeded, otherwise 1.
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
    /// Whether failures of this class are retried while attempts are left.
    pub retryable: bool,
    pub bad_input_files: Vec<String>,
    pub action: FollowUpAction,
    /// One sentence for people, without its full stop.
    #[serde(default)]
    pub why: String,
}

/// The decision about what follows an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowUpAction {
    #[default]
    Done,
    Retry,
    /// Retry with more memory or more time.
    RetryWithMore,
    /// It would be retried if attempts were left.
    RetriesSpent,
    PermanentFailure,
    /// The whole run ends: all other nodes would fail as well.
    Abort,
}

/// A summary of an attempt before the last one.
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
    /// The number of earlier attempts that are kept: those of several rescues.
    const MAX_EARLIER_ATTEMPTS: usize = 50;

    /// All attempts up to this one, for the next report.
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

    /// A summary for programs that follow the run.
    pub(super) fn to_log_line(&self, unit: u32) -> AttemptLogLine {
        // Any word that is not a failure class means success.
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

    /// The CMS code if there is one, otherwise as a shell would return it.
    fn failure_code(&self) -> i32 {
        let reported = self.cmssw.as_ref().map(|report| report.exit_code).filter(|code| *code != 0);
        let by_signal = || self.job.exit_signal.map(|signal| 128 + signal);
        reported.or(self.job.exit_code).or_else(by_signal).unwrap_or(-1)
    }

    /// The resources of the attempt after this one.
    pub(super) fn next_resources(&self) -> Resources {
        self.next.unwrap_or(self.asked)
    }
}
