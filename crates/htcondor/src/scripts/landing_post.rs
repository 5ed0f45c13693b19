//! POST script of a landing: the unit runs at the site where the landing ran.

use super::decision::{ScriptDecision, ScriptExitCode};
use super::post_report::{AttemptClassification, FollowUpAction};
use super::{ScriptCall, ScriptError, files, node_post};
use crate::file_layout;
use crate::render;
use windlass_types::FailureClass;

/// Decides about the landing; if it succeeded, the other jobs of the unit go to its site.
pub fn run_landing_post(call: &ScriptCall) -> Result<ScriptDecision, ScriptError> {
    let decision = node_post::decide_call(call)?;
    let decision = match decision.exit_code {
        ScriptExitCode::Success => match write_elected_site(call, decision.report.job.site.as_deref()) {
            Ok(()) => decision,
            Err(error) => retry_without_site(call, decision, &error),
        },
        _ => decision,
    };
    node_post::save_decision(call, &decision)?;
    Ok(decision)
}

fn write_elected_site(call: &ScriptCall, site: Option<&str>) -> Result<(), ScriptError> {
    let job = || call.job_id.clone();
    let site = site.ok_or_else(|| ScriptError::NoSite { job: job() })?;
    let text =
        render::render_elected_site(site).map_err(|source| ScriptError::BadSite { job: job(), source })?;
    let path = call.directory.join(file_layout::ELECTED_SITE_FILE);
    files::write_atomically(&path, text.as_bytes()).map_err(|source| ScriptError::File {
        doing: "write",
        path,
        source,
    })
}

/// A landing at an unknown site does not count: the next one may be known.
fn retry_without_site(call: &ScriptCall, mut decision: ScriptDecision, why: &ScriptError) -> ScriptDecision {
    let has_retries = call.retry < call.max_retries;
    decision.exit_code = ScriptExitCode::Retry;
    decision.report.is_final = !has_retries;
    decision.report.classification = AttemptClassification {
        category: FailureClass::Infrastructure.as_str().to_owned(),
        retryable: true,
        bad_input_files: Vec::new(),
        action: if has_retries { FollowUpAction::Retry } else { FollowUpAction::RetriesSpent },
        why: why.to_string(),
    };
    decision
}
