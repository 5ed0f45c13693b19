//! What can be done about a run: hold it, let it go on, end it, go on with it.
//!
//! Ending a run and going on with it are wishes about its request, which the reconciler sees to. Holding is between a
//! person and HTCondor: the DAG stays what it is, and only begins nothing.

use super::{dag, run};
use crate::error::{Answer, ApiError};
use crate::requests::change::{change, wanted, wish};
use crate::requests::{Actor, request, text};
use std::path::Path;
use std::time::Duration;
use windlass_api::requests::DagAction;
use windlass_condor::pausing::{self, PauseError};
use windlass_condor::pool::{Condor, CondorError};
use windlass_core::requests::book::{Backend, RequestRow, RunRow, Want, Wanted};
use windlass_core::requests::change::RequestChange;
use windlass_store::Database;
use windlass_store::model::RunFilter;
use windlass_types::Timestamp;
use windlass_types::requests::{RequestStatus, RunStatus};

/// A run, whose request it is, and that somebody may act on it.
struct Subject {
    run: RunRow,
    request: RequestRow,
}

fn subject(db: &dyn Database, uuid: &str, reason: &str, actor: Actor<'_>) -> Answer<Subject> {
    text("reason", reason)?;
    let run = run(db, uuid)?;
    let process = db.process_by_uuid(&run.process)?;
    let process = process.ok_or_else(|| ApiError::not_found(format_args!("workflow of DAG {uuid}")))?;
    let request = request(db, &process.request_name)?;
    (actor.may)(&request.request.requestor)?;
    Ok(Subject { run, request })
}

/// DAGMan begins nothing more, nor do those of its units; what runs goes on.
pub fn hold(db: &dyn Database, uuid: &str, reason: &str, actor: Actor<'_>) -> Answer<DagAction> {
    let subject = subject(db, uuid, reason, actor)?;
    let (condor, cluster) = at_condor(&subject.run, "held")?;
    let done = condor.hold(cluster, &said(reason, actor)).map_err(|error| of_condor(&error))?;
    pausing::pause(Path::new(&subject.run.submit_dir)).map_err(|error| of_pause(&error))?;
    let message = if done { "DAGMan is held: nothing more begins, what runs goes on." } else { GONE };
    Ok(answer(subject, "hold", message))
}

/// It goes on where it was; also one that was paused because its attempts fail alike.
pub fn release(
    db: &dyn Database,
    uuid: &str,
    reason: &str,
    actor: Actor<'_>,
    now: Timestamp,
) -> Answer<DagAction> {
    let subject = subject(db, uuid, reason, actor)?;
    if subject.run.paused.is_some() && subject.run.status.is_active() {
        let name = subject.request.request.request_name.clone();
        change(db, &name, None, actor, now, |_| Ok(vec![wanted(Want::Release, reason, actor, now)]))?;
        return Ok(answer(subject, "release", "The run is no longer paused, and goes on where it was."));
    }
    let (condor, cluster) = at_condor(&subject.run, "released")?;
    let was_paused = pausing::go_on(Path::new(&subject.run.submit_dir)).map_err(|error| of_pause(&error))?;
    let done = condor.release(cluster, &said(reason, actor)).map_err(|error| of_condor(&error))?;
    let message = if done || was_paused { "DAGMan is released, and goes on where it was." } else { GONE };
    Ok(answer(subject, "release", message))
}

const GONE: &str = "There was nothing to do: the schedd does not know it, or it is so already.";

fn said(reason: &str, actor: Actor<'_>) -> String {
    if reason.is_empty() { format!("by {}", actor.name) } else { format!("{reason} ({})", actor.name) }
}

fn at_condor(run: &RunRow, done: &str) -> Answer<(Condor, u64)> {
    let Backend::Htcondor { schedd, cluster } = &run.backend else {
        return Err(ApiError::conflict("not_htcondor", format!("a run of the engine is not {done}"))
            .with_hint(
                "`windlass request stop` stops a request cleanly, and it goes on when its turn comes",
            ));
    };
    let cluster = cluster.as_ref().and_then(|cluster| cluster.parse().ok());
    let cluster = cluster.filter(|_| run.status.is_active()).ok_or_else(|| {
        ApiError::conflict(
            "not_in_queue",
            format!("DAG {} is {}: it is not in the queue", run.uuid, run.status),
        )
    })?;
    Ok((Condor { schedd: schedd.clone(), ..Condor::default() }, cluster))
}

fn of_condor(error: &CondorError) -> ApiError {
    ApiError::unavailable(error.to_string(), Duration::from_secs(10))
}

fn of_pause(error: &PauseError) -> ApiError {
    ApiError::unavailable(error.to_string(), Duration::from_secs(10))
}

/// Ends it; its request is held until somebody releases it.
pub fn remove(
    db: &dyn Database,
    uuid: &str,
    reason: &str,
    actor: Actor<'_>,
    now: Timestamp,
) -> Answer<DagAction> {
    let subject = subject(db, uuid, reason, actor)?;
    let run = &subject.run;
    if !run.status.is_active() {
        return Err(ApiError::conflict(
            "not_running",
            format!("DAG {uuid} is {}: there is nothing to end", run.status),
        ));
    }
    let name = subject.request.request.request_name.clone();
    change(db, &name, None, actor, now, |row| match row.status {
        RequestStatus::Active => Ok(vec![wanted(Want::Remove, reason, actor, now)]),
        // It is being ended anyway.
        RequestStatus::Stopping | RequestStatus::Held => Ok(Vec::new()),
        status => Err(ApiError::conflict("status", format!("request `{name}` is {status}, not active"))),
    })?;
    Ok(answer(
        subject,
        "remove",
        "The run is being ended; its request is held, and `rescue` goes on with it.",
    ))
}

/// Another run for what is left of it.
pub fn rescue(
    db: &dyn Database,
    uuid: &str,
    reason: &str,
    actor: Actor<'_>,
    now: Timestamp,
) -> Answer<DagAction> {
    let subject = subject(db, uuid, reason, actor)?;
    let run = &subject.run;
    let refuse = |detail: String| Err(ApiError::conflict("no_rescue", detail));
    match run.status {
        RunStatus::Completed => return refuse(format!("DAG {uuid} is completed: nothing is left to do")),
        status if !status.is_over() => {
            return refuse(format!("DAG {uuid} is {status}: only one that is over is gone on with"));
        }
        _ => {}
    }
    if newest(db, run)?.is_some_and(|newest| newest != run.uuid) {
        return refuse(format!("DAG {uuid} was gone on with before; only the newest run of a request is"));
    }
    let name = subject.request.request.request_name.clone();
    change(db, &name, None, actor, now, |row| match row.status {
        // Within its round, instead of with the next one.
        RequestStatus::Held => {
            let release = Wanted { rescue: true, ..wish(Want::Release, reason, actor, now) };
            Ok(vec![RequestChange::Wanted(Some(release))])
        }
        status => Err(ApiError::conflict(
            "not_held",
            format!("request `{name}` is {status}: a rescue is for one that is held"),
        )),
    })?;
    Ok(answer(subject, "rescue", "Another run for what is left is prepared, and begins when its turn comes."))
}

/// The newest run of the same workflow.
fn newest(db: &dyn Database, run: &RunRow) -> Answer<Option<String>> {
    let filter = RunFilter { process: Some(run.process.clone()), ..RunFilter::default() };
    Ok(db.request_runs(&filter)?.pop().map(|newest| newest.uuid))
}

fn answer(subject: Subject, action: &str, message: &str) -> DagAction {
    let Subject { run, request } = subject;
    DagAction {
        request_name: request.request.request_name,
        action: action.to_owned(),
        message: message.to_owned(),
        dag: dag(run),
    }
}
