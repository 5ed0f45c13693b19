//! Outcomes of attempts: for the attempt, for its job, and in words.

use crate::job_state::JobStateEvent;
use windlass_types::worker_messages::{AttemptEndCause, AttemptEndReport, StopReason, return_code};
use windlass_types::{JobStatus, Resources, format_duration};

const SIGKILL: i32 = 9;

/// Reason of an attempt that was stopped because its worker had to stop, until the cause is known.
pub const INTERRUPTED: &str = "interrupted";

/// The return codes of attempts that Windlass ended; a workflow may choose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnCodes {
    pub timeout: i32,
    pub out_of_memory: i32,
}

impl Default for ReturnCodes {
    fn default() -> Self {
        Self { timeout: return_code::TIMEOUT, out_of_memory: return_code::OUT_OF_MEMORY }
    }
}

pub(crate) struct AttemptEndDecision {
    pub(crate) event: JobStateEvent,
    pub(crate) attempt_status: JobStatus,
    pub(crate) return_code: i32,
    pub(crate) reason: Option<String>,
}

/// Why an attempt is out of memory; the one text for it.
pub(crate) fn describe_memory_limit(asked: &Resources) -> String {
    format!("used more than the requested {}", asked.memory)
}

/// Decides the outcome. An interrupted attempt counts as not completed even if it returned 0: a program that
/// exits with 0 on SIGTERM has not finished its work.
pub(crate) fn decide_outcome(
    ended: &AttemptEndReport,
    asked: &Resources,
    codes: ReturnCodes,
    canceling: bool,
) -> AttemptEndDecision {
    let code = ended.exit.return_code();
    let decided_end = |event, attempt_status, return_code, reason: Option<String>| AttemptEndDecision {
        event,
        attempt_status,
        return_code,
        reason,
    };
    match &ended.cause {
        AttemptEndCause::Itself if code == 0 => {
            decided_end(JobStateEvent::Complete, JobStatus::Completed, 0, None)
        }
        AttemptEndCause::Itself => {
            let killed = ended.exit.signal() == Some(SIGKILL);
            let reason =
                killed.then(|| "killed, but not by windlass: is the machine out of memory?".to_owned());
            decided_end(JobStateEvent::Fail, JobStatus::Failed, code, reason)
        }
        AttemptEndCause::Timeout => {
            let runtime = asked.runtime.unwrap_or_default();
            let limit = format_duration(runtime);
            let reason = if ended.wall < runtime {
                format!("was asked to end because its runtime of {limit} was nearly over")
            } else {
                format!("ran longer than its runtime of {limit}")
            };
            decided_end(JobStateEvent::Terminate, JobStatus::Terminated, codes.timeout, Some(reason))
        }
        AttemptEndCause::OutOfMemory => {
            let reason = Some(describe_memory_limit(asked));
            decided_end(JobStateEvent::Fail, JobStatus::Failed, codes.out_of_memory, reason)
        }
        AttemptEndCause::Stopped(StopReason::Interrupted) if !canceling => {
            let reason = INTERRUPTED.to_owned();
            decided_end(JobStateEvent::Requeue, JobStatus::Terminated, code, Some(reason))
        }
        AttemptEndCause::Stopped(StopReason::Interrupted | StopReason::Canceled) => decided_end(
            JobStateEvent::Cancel,
            JobStatus::Canceled,
            code,
            Some("the workflow was canceled".to_owned()),
        ),
        AttemptEndCause::MissingOutputs(paths) => {
            let reason = format!("ended with 0 but did not write {}", paths.join(", "));
            decided_end(JobStateEvent::Fail, JobStatus::Failed, return_code::MISSING_OUTPUT, Some(reason))
        }
        AttemptEndCause::CannotStart(why) => {
            let reason = format!("could not be started: {why}");
            decided_end(JobStateEvent::Fail, JobStatus::Failed, return_code::CANNOT_START, Some(reason))
        }
    }
}
