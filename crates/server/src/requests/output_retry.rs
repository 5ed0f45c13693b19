//! Retries output steps that were given up, when a request that is not held is released. A request that has
//! ended may have some: whole blocks of an aborted request still go to tape, and blocks of an old version are
//! invalidated.

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

/// The plan of a retry.
pub(super) struct OutputRetry {
    /// Description for the user.
    pub(super) message: String,
    pub(super) changes: ApiResult<Vec<RequestChange>>,
}

/// `None`: no step was given up.
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
    let message = format!("{what} for its outputs that had been given up will be retried.");
    let changes = if describe_overrides(wanted).is_some() {
        Err(only_outputs_error(view))
    } else {
        Ok(append_alert(changes, view, &what, &wanted.reason, actor))
    };
    Some(OutputRetry { message, changes })
}

fn only_outputs_error(view: &RequestView) -> ApiError {
    let detail = format!(
        "request `{}` is {}, not held: the steps of its outputs can be retried, but nothing else can be changed",
        view.row.request.request_name, view.row.status
    );
    ApiError::conflict("not_held", detail).with_hint("release it without these options")
}

/// The status does not change: the user and the reason are stored with the alerts.
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
        message: format!("{} retried {what} for its outputs that had been given up: {reason}", actor.name),
        detail: json!({ "by": actor.name, "reason": reason, "steps": what }),
    })));
    changes
}
