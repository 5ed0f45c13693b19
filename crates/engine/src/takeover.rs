//! Taking a workflow over from whoever ran it before: a process that ended well, was interrupted, or died.

use crate::host::{Buried, WorkerHost};
use crate::observe::Observer;
use crate::sequels::{Around, Room, Sequels};
use crate::suspicion;
use crate::terms::return_codes;
use crate::{Error, added};
use std::sync::{Arc, mpsc};
use windlass_core::board::{Board, Failed, Orphan};
use windlass_core::change::Change;
use windlass_core::classify::Classifier;
use windlass_core::dispatch::Place;
use windlass_core::suspects::{Evidence, Whereabouts};
use windlass_store::model::{WorkerKind, WorkerRow, WorkflowRow};
use windlass_store::{Batch, Store};
use windlass_types::work::AttemptKey;
use windlass_types::{Capacity, Resources, RunId, Timestamp, WorkflowId};

/// Builds the board of a workflow. Workers that never said goodbye are first made sure to be dead with all they
/// started; what they held goes back to ready, as a new attempt where it may have run.
pub fn take_over(
    store: &dyn Store,
    host: &mut dyn WorkerHost,
    observer: &mut dyn Observer,
    workflow: &WorkflowRow,
    classifier: Option<Arc<Classifier>>,
    now: Timestamp,
) -> Result<Board, Error> {
    let dead = bury_workers(store, host, workflow.id)?;
    let recorded = commit_recorded_ends(store, host, workflow, &dead, classifier, now)?;
    let mut board = load(store, workflow, host.capacity())?;
    if store.cancel_requested(workflow.id)? {
        board.on_cancel();
    }
    let mut changes = Vec::new();
    board.on_initialize(&mut changes);
    let (orphans, given_up) = requeue_orphans(store, workflow, &dead, &mut board, now, &mut changes)?;
    board.on_going_on(&mut changes);
    commit(store, workflow.id, workflow.run_id, changes)?;
    for (row, buried) in &dead {
        store.retire_worker(row.id, now)?;
        host.forget(&row.worker);
        if buried.ended_processes > 0 {
            let left = buried.ended_processes;
            observer
                .notice(&format!("ended what an earlier worker had left running ({left} of its processes)"));
        }
    }
    if given_up > 0 {
        observer
            .notice(&format!("{given_up} of its jobs failed: each time one of them ran, its worker died"));
    }
    if recorded > 0 {
        observer.notice(&format!("{recorded} of its jobs had ended when an earlier process died"));
    }
    if orphans > 0 {
        observer.notice(&format!("{orphans} of its jobs may have been running when an earlier process died"));
    }
    Ok(board)
}

/// Gives back what dead workers held. Returns how many of those jobs may have been running, and how many were given up.
///
/// Worker and dispatcher died together, or the dispatcher would have charged the jobs itself. A restart of the machine
/// explains that; otherwise one of the jobs may be the cause, so each that ran is charged as at a server that loses a worker.
fn requeue_orphans(
    store: &dyn Store,
    workflow: &WorkflowRow,
    dead: &[(WorkerRow, Buried)],
    board: &mut Board,
    now: Timestamp,
    changes: &mut Vec<Change>,
) -> Result<(usize, usize), Error> {
    let held = store.held_jobs(workflow.id)?;
    if held.is_empty() {
        return Ok((0, 0));
    }
    let mut suspects = suspicion::recall(store, workflow, board)?;
    let is_alone = held.len() == 1 && board.is_trying_alone();
    let (mut orphans, mut given_up) = (0, 0);
    for held in held {
        let Some(job) = board.index(held.id) else { continue };
        let key = board.key(job);
        let buried = dead.iter().find(|(row, _)| row.id == held.worker).map(|(_, buried)| buried);
        let may_have_started = buried.is_none_or(|buried| may_have_started(buried, &key, held.pid));
        let is_charged = buried.is_some_and(|buried| buried.is_same_boot && ran(buried, &key, held.pid));
        let fate = match (may_have_started, is_charged) {
            (false, _) => Orphan::NeverStarted,
            (true, false) => Orphan::RunAgain(None),
            (true, true) => {
                let at = if is_alone { Whereabouts::Alone } else { Whereabouts::Running };
                suspects.on_death(key.job, held.worker, at, Evidence::Silence)
            }
        };
        orphans += usize::from(may_have_started);
        given_up += usize::from(fate == Orphan::GiveUp);
        board.on_orphaned(job, held.worker, fate, held.started_at, now, changes);
    }
    Ok((orphans, given_up))
}

/// Commits the ends that dead workers recorded and that nothing else learned of. Returns how many.
fn commit_recorded_ends(
    store: &dyn Store,
    host: &dyn WorkerHost,
    workflow: &WorkflowRow,
    dead: &[(WorkerRow, Buried)],
    classifier: Option<Arc<Classifier>>,
    now: Timestamp,
) -> Result<usize, Error> {
    if dead.iter().all(|(_, buried)| buried.recorded_ends.is_empty()) {
        return Ok(0);
    }
    let mut board = load(store, workflow, host.capacity())?;
    if store.cancel_requested(workflow.id)? {
        board.on_cancel();
    }
    let mut retries = Sequels::of(store, workflow, &board, classifier)?;
    let room = |_: &Place| Room { workers: vec![host.capacity()], longest: None };
    let (mut changes, mut count, mut over) = (Vec::new(), 0, Vec::new());
    for held in store.held_jobs(workflow.id)? {
        let Some(key) = board.index(held.id).map(|job| board.key(job)) else { continue };
        let of_worker = dead.iter().find(|(row, _)| row.id == held.worker);
        let Some(ended) = of_worker.and_then(|(_, buried)| buried.recorded_ends.get(&key)) else { continue };
        let follow = |failed: Failed<'_>| retries.follow(failed, &Around { room: &room, node: None, now });
        // It cannot be stale: the key is that of the attempt that the worker holds.
        if let Ok(verdict) = board.on_ended_then(held.worker, ended, follow, &mut changes) {
            count += 1;
            over.extend(verdict.job_status.is_settled().then_some(key));
        }
    }
    added::leave_out(store, &over, &mut board, &mut changes)?;
    commit(store, workflow.id, workflow.run_id, changes)?;
    Ok(count)
}

/// Starts the next run of a workflow: what ended badly, and what was built on it, is to run again.
pub fn begin_next_run(store: &dyn Store, workflow: &WorkflowRow, now: Timestamp) -> Result<RunId, Error> {
    begin_next_run_elsewhere(store, workflow, &[], now)
}

/// The same; and units that are not complete and are at one of these sites start over, to elect another one.
pub fn begin_next_run_elsewhere(
    store: &dyn Store,
    workflow: &WorkflowRow,
    left: &[String],
    now: Timestamp,
) -> Result<RunId, Error> {
    let table = store.load_jobs(workflow.id)?;
    let board = Board::new(workflow.id, workflow.run_id, table).map_err(|_| Error::Cycle(workflow.id))?;
    let again = board.to_run_again_elsewhere(left);
    Ok(store.begin_next_run(workflow.id, &again, now)?)
}

fn bury_workers(
    store: &dyn Store,
    host: &mut dyn WorkerHost,
    workflow: WorkflowId,
) -> Result<Vec<(WorkerRow, Buried)>, Error> {
    let workers = holders(store, workflow)?;
    let mut bury = |row: WorkerRow| {
        let buried = host.bury(&row.worker).map_err(Error::Bury)?;
        Ok((row, buried))
    };
    workers.into_iter().map(&mut bury).collect()
}

/// Workers of the workflow that never said goodbye, and others that hold jobs of it. Clients that claim jobs without
/// saying who they are have no process that could be looked for.
pub fn holders(store: &dyn Store, workflow: WorkflowId) -> Result<Vec<WorkerRow>, Error> {
    let mut workers = store.active_workers(Some(workflow))?;
    for held in store.held_jobs(workflow)? {
        if workers.iter().all(|row| row.id != held.worker) {
            workers.extend(store.worker(held.worker)?.filter(WorkerRow::is_active));
        }
    }
    workers.retain(|row| row.worker.kind != WorkerKind::Claims);
    Ok(workers)
}

fn may_have_started(buried: &Buried, key: &AttemptKey, pid: Option<u32>) -> bool {
    pid.is_some() || buried.may_have_started(key)
}

/// There is proof that this attempt had started.
fn ran(buried: &Buried, key: &AttemptKey, pid: Option<u32>) -> bool {
    pid.is_some() || buried.started.as_ref().is_some_and(|started| started.contains(key))
}

pub(crate) fn load(store: &dyn Store, workflow: &WorkflowRow, capacity: Capacity) -> Result<Board, Error> {
    let mut table = store.load_jobs(workflow.id)?;
    if let Some(unasked) = table.requirements.first_mut().filter(|_| capacity.max_jobs.is_some()) {
        *unasked = Resources::UNCOUNTED;
    }
    let mut board = Board::new(workflow.id, workflow.run_id, table).map_err(|_| Error::Cycle(workflow.id))?;
    board.use_return_codes(return_codes(&workflow.settings));
    board.use_limits(&workflow.settings.limits, workflow.settings.max_units);
    Ok(board)
}

/// Commits and waits.
pub(crate) fn commit(
    store: &dyn Store,
    workflow: WorkflowId,
    run: RunId,
    changes: Vec<Change>,
) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let done = Box::new(move |result| sender.send(result).unwrap_or_default());
    store.submit(Batch { workflow, run, changes: changes.into() }, done);
    receiver.recv().unwrap_or(Err(windlass_store::Error::Closed))?;
    Ok(())
}
