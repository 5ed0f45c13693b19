//! `attempts.jsonl` in the directory of a run: one line per finished attempt of a node, appended by POST scripts.
//! Readers learn about failures from the appended lines and do not have to look at ten thousand nodes.
//!
//! A line is appended with a single write, so that concurrent scripts do not interleave. DAGMan may run the
//! script of an attempt a second time: then there are two lines about it, and readers ignore the duplicate.

use crate::file_layout;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use windlass_core::requests::failures::MAX_LOG_TAIL;
use windlass_types::requests::NodeRole;
use windlass_types::{FailureClass, Timestamp};

/// A finished attempt of a node of a work unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptLogLine {
    pub unit: u32,
    pub node: String,
    /// The job id, such as `32.0`.
    pub job: String,
    /// Counted from 1 since the DAG was submitted.
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Absent if the attempt succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureLine>,
}

/// Why an attempt failed and what follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureLine {
    pub role: NodeRole,
    pub class: FailureClass,
    pub code: i32,
    pub why: String,
    #[serde(rename = "final")]
    pub is_final: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_files: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_tail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    pub at: Timestamp,
}

impl AttemptLogLine {
    /// Appends the line to the file of its run.
    pub(crate) fn append(&self, run: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        let mut file =
            OpenOptions::new().create(true).append(true).open(run.join(file_layout::ATTEMPTS_FILE))?;
        // A single write, so that lines do not interleave. Readers skip a line that a full disk has cut off.
        file.write_all(&text)
    }
}

/// The end of the output of a job, limited to what fits into a line.
pub(crate) fn truncate_log_tail(log: &str) -> String {
    log[log.ceil_char_boundary(log.len().saturating_sub(MAX_LOG_TAIL))..].to_owned()
}
