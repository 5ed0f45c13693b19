//! Recording outputs that was given up, tried again by whoever releases a request that is not held. One that is over may have
//! some: whole blocks of a request that was aborted still go to tape, and those of an old version are taken back.

use super::RequestActor;
use super::release::describe_overrides;
use super::request_update::reason_or_none;
use crate::error::{ApiError, ApiResult};
use serde_json::json;
use windlass_api::requests::ReleaseRequest;
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::rows::{NewAlert, OutputStepState};
use windlass_core::requests::{RequestView, outputs};
use windlass_types::Timestamp;

/// What trying again comes to.
pub(super) struct OutputRetry {
    /// In words.
    pub(super) message: String,
    pub(super) changes: ApiResult<Vec<RequestChange>>,
}

/// `None`: nothing was given up.
pub(super) fn plan_output_retry(
    view: &RequestView,
    wanted: &ReleaseRequest,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> Option<OutputRetry> {
    let changes = outputs::retry_failed_steps(&view.blocks, &view.steps, now);
    let steps = view.steps.iter().filter(|step| step.state == OutputStepState::Failed).count();
    if steps == 0 {
        return None;
    }
    let what = match steps {
        1 => "1 step".to_owned(),
        many => format!("{many} steps"),
    };
    let message = format!("{what} about its outputs that had been given up will be tried again.");
    let changes = if describe_overrides(wanted).is_some() {
        Err(only_outputs_error(view))
    } else {
        Ok(append_alert(changes, view, &what, &wanted.reason, actor))
    };
    Some(OutputRetry { message, changes })
}

fn only_outputs_error(view: &RequestView) -> ApiError {
    let detail = format!(
        "request `{}` is {}, not held: its outputs can be tried again, but nothing else about it can be changed",
        view.row.request.request_name, view.row.status
    );
    ApiError::conflict("not_held", detail).with_hint("release it without any of that")
}

/// Its status stays what it is: who wanted this, and why, is kept with what people are told.
fn append_alert(
    mut changes: Vec<RequestChange>,
    view: &RequestView,
    what: &str,
    reason: &str,
    actor: RequestActor<'_>,
) -> Vec<RequestChange> {
    let reason = reason_or_none(reason);
    changes.push(RequestChange::Alert(Box::new(NewAlert {
        kind: "outputs_retried".to_owned(),
        request: Some(view.row.request.request_name.clone()),
        message: format!(
            "{} had {what} about its outputs tried again that had been given up: {reason}",
            actor.name
        ),
        detail: json!({ "by": actor.name, "reason": reason, "steps": what }),
    })));
    changes
}
