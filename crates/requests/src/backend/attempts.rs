//! Failed attempts in the terms of decisions, for every backend.

use super::role_retries::role_of_handler;
use crate::planned_run_units::unit_directory;
use std::collections::BTreeMap;
use std::path::Path;
use windlass_core::failure_signature::FailureSignature;
use windlass_core::requests::failures::{FailedAttemptReport, RoleCounts};
use windlass_htcondor::watch;
use windlass_payload::LoggedFailure;
use windlass_store::model::{AttemptCountsBySite, FailedAttempt};
use windlass_types::FailureClass;
use windlass_types::payload::ProcessingReport;
use windlass_types::requests::NodeRole;

/// Number of attempts that are read at once; the rest follows with the next look.
pub(crate) const MAX_ATTEMPTS_PER_READ: usize = 1000;

/// The engine's record, with the report of the job itself. `None`: not a job of this run.
pub(super) fn from_engine_attempt(directory: &Path, failed: FailedAttempt) -> Option<FailedAttemptReport> {
    let EngineNodeName { role, unit, index } = EngineNodeName::parse_job_name(&failed.job_name)?;
    let tail = failed.last_words.unwrap_or_default();
    let logged = LoggedFailure::from_log_tail(&tail);
    let report = match index {
        Some(index) => read_report(directory, unit, &format!("proc_{index}.json"))
            .filter(|report| report.attempt == failed.attempt_id.0),
        None if role == NodeRole::Landing => read_report(directory, unit, "landing.json"),
        None => None,
    };
    let reported =
        report.as_ref().and_then(|report| report.failure.as_ref()).map(|failure| failure.exit_code);
    let code = reported.or(logged.as_ref().map(|logged| logged.code)).unwrap_or(failed.return_code);
    let bad_files = match (failed.class, report) {
        (FailureClass::Data, Some(report)) => report.bad_inputs,
        // Files that it did not find may be at another site.
        (FailureClass::Infrastructure, Some(report)) if role == NodeRole::Landing => report.bad_inputs,
        _ => Vec::new(),
    };
    Some(FailedAttemptReport {
        seq: failed.seq,
        unit,
        node: failed.job_name,
        role,
        attempt: failed.attempt_id.0,
        site: failed.site,
        class: failed.class,
        code,
        signature: failed.signature,
        message: logged.map_or(failed.message, |logged| logged.message),
        is_final: failed.is_final,
        bad_files,
        log_tail: tail,
        memory_mb: failed.peak_memory.map(|bytes| bytes.0 >> 20).filter(|mb| *mb > 0),
        at: failed.ended_at,
    })
}

/// The attempts that ended at sites, as counted by the engine.
pub(super) fn counts_by_role(counts: &AttemptCountsBySite) -> BTreeMap<String, RoleCounts> {
    let roles = |counts: &BTreeMap<String, u64>| {
        counts.iter().map(|(handler, ended)| RoleCounts::for_role(role_of_handler(handler), *ended)).sum()
    };
    counts.iter().map(|(site, counts)| (site.clone(), roles(counts))).collect()
}

/// Reads the record of a POST script. `None`: success.
pub(super) fn from_condor_attempt(failed: watch::FailedNodeAttempt) -> Option<FailedAttemptReport> {
    let line = failed.line;
    let failure = line.failure?;
    let ending = format!("exit code {}", failure.code);
    Some(FailedAttemptReport {
        seq: failed.seq,
        unit: line.unit,
        node: line.node,
        role: failure.role,
        attempt: line.attempt,
        site: line.site,
        class: failure.class,
        code: failure.code,
        signature: FailureSignature::new(failure.class, &ending, Some(&failure.why)).key,
        message: failure.why,
        is_final: failure.is_final,
        bad_files: failure.bad_files,
        log_tail: failure.log_tail,
        memory_mb: failure.memory_mb,
        at: failure.at,
    })
}

/// The report of a node; the next attempt may have replaced it.
fn read_report(directory: &Path, unit: u32, name: &str) -> Option<ProcessingReport> {
    let text = std::fs::read(unit_directory(directory, unit).join(name)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// A job of a run, by its name in the engine.
#[derive(Debug, PartialEq, Eq)]
struct EngineNodeName {
    role: NodeRole,
    unit: u32,
    /// Of a processing node.
    index: Option<u32>,
}

impl EngineNodeName {
    /// `proc_000012_3`, `merge_000012`
    fn parse_job_name(name: &str) -> Option<Self> {
        let (role, rest) = name.split_once('_')?;
        let (role, (unit, index)) = match role {
            "landing" => (NodeRole::Landing, (rest, None)),
            "proc" => {
                let (unit, index) = rest.split_once('_')?;
                (NodeRole::Processing, (unit, Some(index.parse().ok()?)))
            }
            "merge" => (NodeRole::Merge, (rest, None)),
            "cleanup" => (NodeRole::Cleanup, (rest, None)),
            _ => return None,
        };
        Some(Self { role, unit: unit.parse().ok()?, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::{Attempt, Bytes, RunId, Timestamp};

    #[test]
    fn node_name_gives_role_unit_and_index() {
        let node = |role, unit, index| Some(EngineNodeName { role, unit, index });
        for (name, expected) in [
            ("landing_000012", node(NodeRole::Landing, 12, None)),
            ("proc_000012_3", node(NodeRole::Processing, 12, Some(3))),
            ("merge_1000000", node(NodeRole::Merge, 1_000_000, None)),
            ("cleanup_000000", node(NodeRole::Cleanup, 0, None)),
            ("proc_000012", None),
            ("other_1", None),
            ("merge", None),
        ] {
            assert_eq!(EngineNodeName::parse_job_name(name), expected, "{name}");
        }
    }

    fn failed(name: &str, attempt: u32, last_words: &str) -> FailedAttempt {
        FailedAttempt {
            seq: 7,
            job_name: name.into(),
            run_id: RunId(1),
            attempt_id: Attempt(attempt),
            class: FailureClass::Data,
            signature: "abc".into(),
            message: "exit code 65".into(),
            last_words: Some(last_words.into()),
            is_final: true,
            return_code: 65,
            peak_memory: Some(Bytes(300 << 20)),
            ended_at: Timestamp(1),
            site: Some("T2_A".into()),
        }
    }

    #[test]
    fn job_report_is_read_for_attempt() {
        let run = tempfile::tempdir().unwrap();
        let unit = run.path().join("mg_000001");
        std::fs::create_dir(&unit).unwrap();
        let report = serde_json::json!({
            "unit": "mg_000001", "node": 2, "site": "T2_A", "attempt": 3, "steps": [], "outputs": [],
            "failure": { "exit_code": 8021, "message": "cannot read /store/a" }, "bad_inputs": ["/store/a"],
        });
        std::fs::write(unit.join("proc_2.json"), report.to_string()).unwrap();
        let attempt = from_engine_attempt(run.path(), failed("proc_000001_2", 3, "")).unwrap();
        assert_eq!(
            (attempt.code, attempt.bad_files, attempt.memory_mb),
            (8021, vec!["/store/a".to_owned()], Some(300))
        );
        let later = from_engine_attempt(run.path(), failed("proc_000001_2", 4, "")).unwrap();
        assert_eq!((later.code, later.bad_files.len()), (65, 0), "the report belongs to another attempt");
        std::fs::write(unit.join("landing.json"), report.to_string()).unwrap();
        let landing = from_engine_attempt(run.path(), failed("landing_000001", 2, "")).unwrap();
        assert_eq!(landing.bad_files, ["/store/a"], "its latest attempt decides");
        let infrastructure = |name: &str| {
            let failed = FailedAttempt { class: FailureClass::Infrastructure, ..failed(name, 3, "") };
            from_engine_attempt(run.path(), failed).unwrap().bad_files
        };
        assert_eq!(infrastructure("landing_000001"), ["/store/a"], "missing files");
        assert_eq!(infrastructure("proc_000001_2"), [""; 0]);
        let stated = "step 1\nwindlass payload: data failure 71101: it is not what the nodes wrote\n";
        let merge = from_engine_attempt(run.path(), failed("merge_000001", 1, stated)).unwrap();
        assert_eq!((merge.code, merge.role), (71101, NodeRole::Merge));
        assert_eq!(merge.message, "it is not what the nodes wrote");
    }
}
