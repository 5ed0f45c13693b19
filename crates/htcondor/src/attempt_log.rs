//! `attempts.jsonl` in the directory of a run: a line for each attempt of a node that is over, as POST scripts append them.
//! Whoever wants to know what fails in a run reads what has been added, and never looks at its ten thousand nodes.
//!
//! A line is written in one go to the end of the file, so that scripts do not get in each other's way. DAGMan may ask about
//! an attempt a second time: then there are two lines about it, and readers take one of them.

use crate::file_layout;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use windlass_core::requests::failures::MAX_LOG_TAIL;
use windlass_types::requests::NodeRole;
use windlass_types::{FailureClass, Timestamp};

/// An attempt of a node of a work unit that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptLogLine {
    pub unit: u32,
    pub node: String,
    /// `32.0`
    pub job: String,
    /// Since the DAG was submitted, from 1.
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Absent if it went well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureLine>,
}

/// What became of an attempt that failed.
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
    /// Adds it to the file of its run.
    pub(crate) fn append(&self, run: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        let mut file =
            OpenOptions::new().create(true).append(true).open(run.join(file_layout::ATTEMPTS_FILE))?;
        // One call, so that nothing comes in between; what a full disk cuts off no reader can make sense of.
        file.write_all(&text)
    }
}

/// The end of what a job said, as much as goes into a line.
pub(crate) fn truncate_log_tail(log: &str) -> String {
    log[log.ceil_char_boundary(log.len().saturating_sub(MAX_LOG_TAIL))..].to_owned()
}
