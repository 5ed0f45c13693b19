//! Actions on a run: hold, release, remove, rescue.
//!
//! Removing and rescuing a run are commands on its request, which the reconciler performs. Holding acts on
//! HTCondor only: the DAG keeps its state and starts no new nodes.

use super::{api_dag, load_run};
use crate::error::{ApiError, ApiResult};
use crate::requests::request_update::{pending_command, pending_command_change, update_request};
use crate::requests::{RequestActor, check_text, load_request};
use std::path::Path;
use std::time::Duration;
use windlass_api::requests::DagAction;
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::rows::{BackendRunRef, RequestCommand, RequestCommandKind, RequestRow, RunRow};
use windlass_htcondor::commands::{CondorClient, CondorError};
use windlass_htcondor::pause::{self, PauseError};
use windlass_store::StoreDatabase;
use windlass_store::model::RequestRunFilter;
use windlass_types::Timestamp;
use windlass_types::requests::{RequestRunStatus, RequestStatus};

/// Loads a run and its request, and checks that the caller may act on it.
struct DagActionTarget {
    run: RunRow,
    request: RequestRow,
}

fn load_action_target(
    db: &dyn StoreDatabase,
    uuid: &str,
    reason: &str,
    actor: RequestActor<'_>,
) -> ApiResult<DagActionTarget> {
    check_text("reason", reason)?;
    let run = load_run(db, uuid)?;
    let process = db.process_by_uuid(&run.process)?;
    let process = process.ok_or_else(|| ApiError::not_found(format_args!("workflow of DAG {uuid}")))?;
    let request = load_request(db, &process.request_name)?;
    (actor.authorize)(&request.request.requestor)?;
    Ok(DagActionTarget { run, request })
}

/// Holds the run: its DAGMan and those of its units start nothing new; running nodes continue.
pub fn hold_dag(
    db: &dyn StoreDatabase,
    uuid: &str,
    reason: &str,
    actor: RequestActor<'_>,
) -> ApiResult<DagAction> {
    let subject = load_action_target(db, uuid, reason, actor)?;
    let (condor, cluster) = find_htcondor_dag(&subject.run, "held")?;
    let done = condor.hold(cluster, &render_reason(reason, actor)).map_err(|error| htcondor_error(&error))?;
    pause::pause_run(Path::new(&subject.run.submit_dir)).map_err(|error| pause_error(&error))?;
    let message =
        if done { "DAGMan is held: it starts no new nodes; running nodes continue." } else { NOTHING_TO_DO };
    Ok(api_dag_action(subject, "hold", message))
}

/// Releases the run; also one that was paused because its attempts fail alike.
pub fn release_dag(
    db: &dyn StoreDatabase,
    uuid: &str,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<DagAction> {
    let subject = load_action_target(db, uuid, reason, actor)?;
    if subject.run.paused.is_some() && subject.run.status.is_active() {
        let name = subject.request.request.request_name.clone();
        update_request(db, &name, None, actor, now, |_| {
            Ok(vec![pending_command_change(RequestCommandKind::Release, reason, actor, now)])
        })?;
        return Ok(api_dag_action(subject, "release", "The run is no longer paused and continues."));
    }
    let (condor, cluster) = find_htcondor_dag(&subject.run, "released")?;
    let was_paused =
        pause::resume_run(Path::new(&subject.run.submit_dir)).map_err(|error| pause_error(&error))?;
    let done =
        condor.release(cluster, &render_reason(reason, actor)).map_err(|error| htcondor_error(&error))?;
    let message = if done || was_paused { "DAGMan is released and continues." } else { NOTHING_TO_DO };
    Ok(api_dag_action(subject, "release", message))
}

const NOTHING_TO_DO: &str =
    "Nothing to do: the schedd does not know the DAG, or it is already in this state.";

fn render_reason(reason: &str, actor: RequestActor<'_>) -> String {
    if reason.is_empty() { format!("by {}", actor.name) } else { format!("{reason} ({})", actor.name) }
}

fn find_htcondor_dag(run: &RunRow, done: &str) -> ApiResult<(CondorClient, u64)> {
    let BackendRunRef::Htcondor { schedd, cluster } = &run.backend else {
        return Err(ApiError::conflict("not_htcondor", format!("a run of the engine cannot be {done}"))
            .with_hint(
                "`windlass request stop` stops a request cleanly; it continues when it is admitted again",
            ));
    };
    let cluster = cluster.as_ref().and_then(|cluster| cluster.parse().ok());
    let cluster = cluster.filter(|_| run.status.is_active()).ok_or_else(|| {
        ApiError::conflict(
            "not_in_queue",
            format!("DAG {} is {}: it is not in the HTCondor queue", run.uuid, run.status),
        )
    })?;
    Ok((CondorClient { schedd: schedd.clone(), ..CondorClient::default() }, cluster))
}

fn htcondor_error(error: &CondorError) -> ApiError {
    ApiError::unavailable(error.to_string(), Duration::from_secs(10))
}

fn pause_error(error: &PauseError) -> ApiError {
    ApiError::unavailable(error.to_string(), Duration::from_secs(10))
}

/// Ends the run; its request is held until it is released.
pub fn remove_dag(
    db: &dyn StoreDatabase,
    uuid: &str,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<DagAction> {
    let subject = load_action_target(db, uuid, reason, actor)?;
    let run = &subject.run;
    if !run.status.is_active() {
        return Err(ApiError::conflict(
            "not_running",
            format!("DAG {uuid} is {} and cannot be removed", run.status),
        ));
    }
    let name = subject.request.request.request_name.clone();
    update_request(db, &name, None, actor, now, |row| match row.status {
        RequestStatus::Active => {
            Ok(vec![pending_command_change(RequestCommandKind::Remove, reason, actor, now)])
        }
        // The run is already being ended.
        RequestStatus::Stopping | RequestStatus::Held => Ok(Vec::new()),
        status => Err(ApiError::conflict("status", format!("request `{name}` is {status}, not active"))),
    })?;
    Ok(api_dag_action(
        subject,
        "remove",
        "The run is being removed; its request is held, and `rescue` resumes it.",
    ))
}

/// Creates a new run for the work units that are not completed.
pub fn rescue_dag(
    db: &dyn StoreDatabase,
    uuid: &str,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<DagAction> {
    let subject = load_action_target(db, uuid, reason, actor)?;
    let run = &subject.run;
    let refuse = |detail: String| Err(ApiError::conflict("no_rescue", detail));
    match run.status {
        RequestRunStatus::Completed => {
            return refuse(format!("DAG {uuid} is completed: nothing to rescue"));
        }
        status if !status.is_over() => {
            return refuse(format!("DAG {uuid} is {status}: only a run that has ended can be rescued"));
        }
        _ => {}
    }
    if find_newest_run(db, run)?.is_some_and(|newest| newest != run.uuid) {
        return refuse(format!(
            "DAG {uuid} was rescued before; only the newest run of a request can be rescued"
        ));
    }
    let name = subject.request.request.request_name.clone();
    update_request(db, &name, None, actor, now, |row| match row.status {
        // Within the round, instead of the next one.
        RequestStatus::Held => {
            let release = RequestCommand {
                rescue: true,
                ..pending_command(RequestCommandKind::Release, reason, actor, now)
            };
            Ok(vec![RequestChange::SetCommand(Some(release))])
        }
        status => Err(ApiError::conflict(
            "not_held",
            format!("request `{name}` is {status}: only a held request can be rescued"),
        )),
    })?;
    Ok(api_dag_action(
        subject,
        "rescue",
        "A new run for the remaining work units is prepared; it starts when the request is admitted.",
    ))
}

/// Returns the newest run of the same workflow.
fn find_newest_run(db: &dyn StoreDatabase, run: &RunRow) -> ApiResult<Option<String>> {
    let filter = RequestRunFilter { process: Some(run.process.clone()), ..RequestRunFilter::default() };
    Ok(db.request_runs(&filter)?.pop().map(|newest| newest.uuid))
}

fn api_dag_action(subject: DagActionTarget, action: &str, message: &str) -> DagAction {
    let DagActionTarget { run, request } = subject;
    DagAction {
        request_name: request.request.request_name,
        action: action.to_owned(),
        message: message.to_owned(),
        dag: api_dag(run),
    }
}
