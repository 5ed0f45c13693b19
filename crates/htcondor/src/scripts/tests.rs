//! Tests of the decisions of scripts, case by case and for random input; and of the files that they write.

mod arbitrary_input;
mod decision_table;
mod script_files;

use super::*;
use crate::script_settings::RequestRetrySettings;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::requests::NodeRole;
use windlass_types::settings::{FailureHandler, FailureRule};
use windlass_types::{Bytes, Resources, Timestamp};

const GIB: u64 = 1 << 30;
const CEILING_MB: u64 = 3 * 1024;

pub(super) fn requested_memory(memory: u64) -> Resources {
    Resources { memory: Bytes(memory), runtime: Some(Duration::from_hours(1)), ..Resources::DEFAULT }
}

pub(super) fn group_settings(role: NodeRole) -> NodeGroupSettings {
    NodeGroupSettings { role: Some(role), retries: 3, asked: requested_memory(GIB), handler: None }
}

/// The settings of a run with a kind for each role, and two for jobs of a spec: with a handler, and without.
pub(super) fn settings() -> ScriptSettings {
    let job = |handler: Option<&str>| NodeGroupSettings {
        role: None,
        retries: 3,
        asked: requested_memory(GIB),
        handler: handler.map(str::to_owned),
    };
    let rule = FailureRule {
        exit_codes: vec![10],
        max_retries: 2,
        recovery_script: Some(
            "echo \"$WINDLASS_JOB_NAME $WINDLASS_RETURN_CODE $WINDLASS_FAILED_ATTEMPT_ID\"".into(),
        ),
        delay: Some(Duration::from_secs(5)),
        ..FailureRule::default()
    };
    let handler = FailureHandler { name: "fixes".into(), rules: vec![rule] };
    let roles = [NodeRole::Landing, NodeRole::Processing, NodeRole::Merge, NodeRole::Cleanup];
    let kinds = roles.map(|role| (role.name().to_lowercase(), group_settings(role)));
    let jobs =
        [("handled", job(Some("fixes"))), ("plain", job(None))].map(|(name, kind)| (name.to_owned(), kind));
    ScriptSettings {
        name: "request".into(),
        run: "550e8400-e29b-41d4-a716-446655440000".into(),
        program: "/usr/bin/windlass".into(),
        node_groups: kinds.into_iter().chain(jobs).collect(),
        retry_settings: RequestRetrySettings {
            max_memory_per_core_mb: CEILING_MB,
            ..RequestRetrySettings::default()
        },
        handlers: [("fixes".to_owned(), handler)].into(),
        digest: None,
        submission_dir: None,
        accounting: BTreeMap::new(),
    }
}

pub(super) fn attempt(returned: i32, tail: &str) -> NodeAttempt {
    NodeAttempt {
        node: "proc_000003".into(),
        retry: 0,
        max_retries: 3,
        returned: DagmanReturn::from_number(returned),
        job_id: "32.0".into(),
        job_log: JobLogSummary::default(),
        report: None,
        missing_report: None,
        stderr_tail: tail.to_owned(),
        previous_report: None,
        now: Timestamp(1_000_000_000),
        random: 7,
    }
}

pub(super) fn reported(code: i32, message: &str, bad_inputs: &[&str]) -> JobReportSummary {
    JobReportSummary {
        cmssw: CmsswReport {
            exit_code: code,
            error_message: Some(message.to_owned()),
            ..CmsswReport::default()
        },
        bad_inputs: bad_inputs.iter().map(|&lfn| lfn.to_owned()).collect(),
    }
}
