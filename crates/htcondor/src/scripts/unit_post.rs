//! POST of a unit: its DAG is over.
//!
//! DAGMan of a group that was aborted ends with 1, as one that failed, so an outer `ABORT-DAG-ON` could not tell them
//! apart. The metrics that it writes at its end can.

use super::decision::ScriptExitCode;
use crate::file_layout;
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// What DAGMan calls a DAG that it aborted.
const ABORTED_STATUS: i64 = 3;

#[derive(Deserialize)]
struct UnitMetrics {
    #[serde(rename = "DagStatus")]
    status: i64,
}

/// What becomes of the unit's node in the outer DAG, whose script runs in the directory of the run or of the unit.
pub fn unit(directory: &Path, unit: &str, returned: i32) -> ScriptExitCode {
    match returned {
        0 => return ScriptExitCode::Success,
        // It was not submitted, or was killed: it has written nothing, and what is there is of a run before.
        ..0 => return ScriptExitCode::Retry,
        1.. => {}
    }
    let name = format!("{}{}", file_layout::GROUP_DAG, file_layout::METRICS_SUFFIX);
    let places = [directory.join(unit).join(&name), directory.join(&name)];
    let text = places.iter().find_map(|place| fs::read(place).ok());
    let metrics = text.and_then(|text| serde_json::from_slice::<UnitMetrics>(&text).ok());
    if metrics.is_some_and(|metrics| metrics.status == ABORTED_STATUS) {
        ScriptExitCode::Abort
    } else {
        ScriptExitCode::Retry
    }
}
