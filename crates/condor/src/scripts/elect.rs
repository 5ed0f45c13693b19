//! POST of a landing: where it ran is where its unit runs.

use super::decide::{Decision, Verdict};
use super::{Call, ScriptError, files, post};
use crate::layout;
use crate::render;

/// Decides about the landing; if it went well, the jobs that follow are sent to its site.
pub fn elect(call: &Call) -> Result<Decision, ScriptError> {
    let decision = post::decide_about(call)?;
    if decision.verdict == Verdict::Success {
        let job = || call.job_id.clone();
        let site = decision.report.job.site.as_deref().ok_or_else(|| ScriptError::NoSite { job: job() })?;
        let text = render::elected(site).map_err(|source| ScriptError::BadSite { job: job(), source })?;
        let path = call.directory.join(layout::ELECTED);
        files::write_whole(&path, text.as_bytes()).map_err(|source| ScriptError::File {
            doing: "write",
            path,
            source,
        })?;
    }
    post::leave(call, &decision)?;
    Ok(decision)
}
