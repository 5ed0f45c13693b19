//! POST of a landing: where it ran is where its unit runs.

use super::decide::{Decision, Verdict};
use super::report::{Action, Classification};
use super::{Call, ScriptError, files, post};
use crate::layout;
use crate::render;
use windlass_types::FailureClass;

/// Decides about the landing; if it went well, the jobs that follow are sent to its site.
pub fn elect(call: &Call) -> Result<Decision, ScriptError> {
    let decision = post::decide_about(call)?;
    let decision = match decision.verdict {
        Verdict::Success => match send_unit(call, decision.report.job.site.as_deref()) {
            Ok(()) => decision,
            Err(error) => nowhere(call, decision, &error),
        },
        _ => decision,
    };
    post::leave(call, &decision)?;
    Ok(decision)
}

fn send_unit(call: &Call, site: Option<&str>) -> Result<(), ScriptError> {
    let job = || call.job_id.clone();
    let site = site.ok_or_else(|| ScriptError::NoSite { job: job() })?;
    let text = render::elected(site).map_err(|source| ScriptError::BadSite { job: job(), source })?;
    let path = call.directory.join(layout::ELECTED);
    files::write_whole(&path, text.as_bytes()).map_err(|source| ScriptError::File {
        doing: "write",
        path,
        source,
    })
}

/// A landing of which nobody knows where it was is none: the next one may be.
fn nowhere(call: &Call, mut decision: Decision, why: &ScriptError) -> Decision {
    let has_retries = call.retry < call.max_retries;
    decision.verdict = Verdict::Retry;
    decision.report.is_final = !has_retries;
    decision.report.classification = Classification {
        category: FailureClass::Infrastructure.as_str().to_owned(),
        retryable: true,
        bad_input_files: Vec::new(),
        action: if has_retries { Action::Retry } else { Action::RetriesSpent },
        why: why.to_string(),
    };
    decision
}
