//! Parser of metrics files (`NAME.dag.metrics`), which DAGMan writes as JSON when it ends.
//!
//! The last field is the outcome. Releases before 23.6 call it `dag_status`, later ones `DagStatus`, and ids may
//! have the schedd's address before them (`host;19`). A rescue run overwrites the file only when it ends; until
//! then it is that of the run before: [`DagMetrics::cluster`] tells them apart.

use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DagMetrics {
    /// The id of the DAGMan job.
    pub cluster: Option<u64>,
    pub exit_code: i32,
    pub end: DagEnd,
    pub rescue: u32,
    /// Nodes that are jobs, and nodes that are DAGs.
    pub jobs: NodeTally,
    pub dags: NodeTally,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTally {
    pub total: u64,
    pub failed: u64,
    pub succeeded: u64,
}

/// How a DAG ended, in DAGMan's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DagEnd {
    Ok,
    Error,
    NodeFailed,
    Aborted,
    Removed,
    Cycle,
    Halted,
    /// A number unknown to this version.
    Other(i64),
}

/// `None` if the file is incomplete or DAGMan did not write it.
pub fn parse_metrics(file: &[u8]) -> Option<DagMetrics> {
    let fields: Map<String, Value> = serde_json::from_slice(file).ok()?;
    let amount = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or_default();
    let tally = |of: &str| NodeTally {
        total: amount(of),
        failed: amount(&format!("{of}_failed")),
        succeeded: amount(&format!("{of}_succeeded")),
    };
    Some(DagMetrics {
        cluster: fields.get("dagman_id").and_then(parse_cluster),
        exit_code: fields.get("exitcode")?.as_i64()?.try_into().ok()?,
        end: DagEnd::from_number(fields.get("DagStatus").or_else(|| fields.get("dag_status"))?.as_i64()?),
        rescue: amount("rescue_dag_number").try_into().unwrap_or_default(),
        jobs: tally("jobs"),
        dags: tally("dag_jobs"),
    })
}

fn parse_cluster(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => super::parse_digits(text.rsplit([';', ':']).next()?),
        other => other.as_u64(),
    }
}

impl DagEnd {
    fn from_number(number: i64) -> Self {
        match number {
            0 => Self::Ok,
            1 => Self::Error,
            2 => Self::NodeFailed,
            3 => Self::Aborted,
            4 => Self::Removed,
            5 => Self::Cycle,
            6 => Self::Halted,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_metrics_layouts_are_parsed() {
        let failed = parse_metrics(include_bytes!("../../tests/data/workflow.dag.metrics.failed")).unwrap();
        assert_eq!(
            failed,
            DagMetrics {
                cluster: Some(19),
                exit_code: 1,
                end: DagEnd::NodeFailed,
                rescue: 0,
                jobs: NodeTally::default(),
                dags: NodeTally { total: 3, failed: 2, succeeded: 1 },
            }
        );
        let old =
            br#"{"dagman_id":"<10.0.0.1:9618>;26","exitcode":0,"jobs":4,"jobs_failed":1,"dag_status":2}"#;
        let old = parse_metrics(old).unwrap();
        assert_eq!((old.cluster, old.exit_code, old.end), (Some(26), 0, DagEnd::NodeFailed));
        let removed = parse_metrics(include_bytes!("../../tests/data/workflow.dag.metrics.removed")).unwrap();
        assert_eq!((removed.end, removed.dags.failed), (DagEnd::Removed, 0));
    }

    #[test]
    fn truncated_metrics_are_ignored() {
        let done = include_bytes!("../../tests/data/group.dag.metrics.done");
        assert_eq!(parse_metrics(done).map(|metrics| metrics.end), Some(DagEnd::Ok));
        for cut in 0..done.len() - 2 {
            assert_eq!(parse_metrics(&done[..cut]), None, "{cut}");
        }
        for other in ["", "[]", "{}", r#"{"exitcode":0}"#, r#"{"exitcode":"0","DagStatus":0}"#] {
            assert_eq!(parse_metrics(other.as_bytes()), None, "{other}");
        }
    }
}
