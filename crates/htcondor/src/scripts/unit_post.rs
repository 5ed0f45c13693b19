//! POST script of a unit: its DAG has ended.
//!
//! A DAGMan of an aborted unit ends with 1, as a failed one does, so an outer `ABORT-DAG-ON` could not
//! distinguish them. The metrics that it writes at its end do.

use super::decision::ScriptExitCode;
use crate::file_layout;
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// DAGMan's status of a DAG that it aborted.
const ABORTED_STATUS: i64 = 3;

#[derive(Deserialize)]
struct UnitMetrics {
    #[serde(rename = "DagStatus")]
    status: i64,
}

/// Returns the result of the unit's node in the outer DAG. The script runs in the directory of the run or of
/// the unit.
pub fn unit(directory: &Path, unit: &str, returned: i32) -> ScriptExitCode {
    match returned {
        0 => return ScriptExitCode::Success,
        // DAGMan was not submitted, or was killed: the existing file is of an earlier run.
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
