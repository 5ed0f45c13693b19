//! Clients that claim, start and complete jobs themselves, and people who decide on single jobs.
//!
//! Claims that name no worker are held by a worker that stands for all such clients; starting a job hands it over to the
//! compute node that runs it. Neither has a lease: they hold what they hold until somebody says otherwise.

use super::call::Completed;
use super::desk::Desk;
use super::figures::count;
use super::office::{Office, refused, unavailable};
use super::talk::{ClaimRequest, Completion, NodeOffer, Refused, Reply};
use std::collections::HashMap;
use windlass_core::board::{Orphan, Stated};
use windlass_core::change::Change;
use windlass_core::dispatch::{Mirror, Taste, Want};
use windlass_store::Store;
use windlass_store::model::{NewWorker, ResultFilter, WorkerFilter, WorkerKind, WorkflowRow};
use windlass_types::work::{Usage, return_code};
use windlass_types::{Attempt, JobId, JobStatus, RunId, WorkerId, WorkflowId};

/// What an attempt returned that was canceled where nobody of ours could see it: as if it had got SIGTERM.
const CANCELED_ELSEWHERE: i32 = 143;

impl Office {
    pub(super) fn on_claim(
        &mut self,
        workflow: WorkflowId,
        request: &ClaimRequest,
        reply: Reply<Vec<JobId>>,
    ) {
        match self.claim(workflow, request) {
            Ok(jobs) => self.when_on_disk(workflow, reply, jobs),
            Err(why) => reply(Err(why)),
        }
    }

    fn claim(&mut self, workflow: WorkflowId, request: &ClaimRequest) -> Result<Vec<JobId>, Refused> {
        let desk = self.open(workflow)?;
        if desk.is_in_trouble() {
            return Err(unavailable("the database takes nothing at the moment"));
        }
        if !desk.is_active || desk.is_canceled || !desk.board.has_ready() || request.limit == 0 {
            return Ok(Vec::new());
        }
        let worker = self.claims_worker(workflow)?;
        let desk = self.open(workflow)?;
        let taken = match &request.node {
            None => {
                let taste = Taste::default().with_labels(request.labels.clone()).at_site(None);
                desk.board.claim_oldest(worker, &taste, request.limit, &mut desk.open.changes)
            }
            Some(node) => claim_for_node(desk, worker, request, node),
        };
        let mut claimed = Vec::with_capacity(taken.len());
        for job in taken {
            let key = desk.board.key(job);
            desk.hold(worker, &key, true);
            claimed.push(key.job);
        }
        count(&self.gauges.assigned, claimed.len());
        Ok(claimed)
    }

    /// The worker that stands for all who do not say who they are.
    fn claims_worker(&mut self, workflow: WorkflowId) -> Result<WorkerId, Refused> {
        let (store, now) = (std::sync::Arc::clone(&self.store), self.now.wall);
        let desk = self.open(workflow)?;
        if let Some(worker) = desk.claims {
            return Ok(worker);
        }
        let filter = WorkerFilter {
            workflow: Some(workflow),
            kinds: vec![WorkerKind::Claims],
            is_active: Some(true),
            ..WorkerFilter::default()
        };
        let known = store.workers(&filter).map_err(|error| refused(&error))?.first().map(|row| row.id);
        let new = || {
            let row = NewWorker {
                kind: WorkerKind::Claims,
                workflow: Some(workflow),
                run: Some(desk.row.run_id),
                host: "claims".to_owned(),
                ..NewWorker::default()
            };
            store.add_worker(&row, now).map_err(|error| refused(&error))
        };
        let worker = known.map_or_else(new, Ok)?;
        desk.claims = Some(worker);
        Ok(worker)
    }

    pub(super) fn on_start_job(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        node: WorkerId,
        reply: Reply<()>,
    ) {
        match self.start_job(workflow, job, run, node) {
            Ok(()) => self.when_on_disk(workflow, reply, ()),
            Err(why) => reply(Err(why)),
        }
    }

    fn start_job(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        node: WorkerId,
    ) -> Result<(), Refused> {
        match self.store.worker(node).map_err(|error| refused(&error))? {
            None => return Err(Refused::NotFound(format!("there is no compute node {node}"))),
            Some(row) if row.worker.kind != WorkerKind::Torc => {
                let detail = format!("worker {node} is no compute node of a client");
                return Err(Refused::Conflict { code: "wrong_worker", detail });
            }
            Some(_) => {}
        }
        let now = self.now.wall;
        let desk = self.open(workflow)?;
        check_run(desk, run)?;
        let index = index(desk, job)?;
        let key = desk.board.key(index);
        let status = desk.board.status(index);
        let held = desk.held.get(&job).copied();
        let Some(hold) = held.filter(|hold| status == JobStatus::Pending && Some(hold.worker) == desk.claims)
        else {
            let detail = format!("job {job} is {status}; only a job that was claimed can be started");
            return Err(Refused::Conflict { code: "job_not_pending", detail });
        };
        desk.open.changes.push(Change::HandOver { job, from: hold.worker, to: node });
        let started = desk.board.on_started(node, &key, now, 0, &mut desk.open.changes);
        started.map_err(|stale| Refused::Conflict { code: "stale", detail: stale.to_string() })?;
        desk.hold(node, &key, true);
        if let Some(hold) = desk.held.get_mut(&job) {
            hold.started_at = Some(now);
        }
        Ok(())
    }

    pub(super) fn on_complete(
        &mut self,
        workflow: WorkflowId,
        completions: Vec<Completion>,
        reply: Reply<Completed>,
    ) {
        if let Err(why) = self.open(workflow).map(|_| ()) {
            return reply(Err(why));
        }
        let outcomes = completions.into_iter().map(|completion| {
            let job = completion.job;
            (job, self.complete(workflow, &completion))
        });
        let outcomes: Completed = outcomes.collect();
        self.when_on_disk(workflow, reply, outcomes);
    }

    fn complete(&mut self, workflow: WorkflowId, done: &Completion) -> Result<(), Refused> {
        let claims = {
            let desk = self.open(workflow)?;
            check_run(desk, done.run)?;
            desk.claims
        };
        let (job, status) = (done.job, done.status);
        if !(status.is_complete() || status == JobStatus::PendingFailed) {
            let detail = format!("a job does not end as `{status}`");
            return Err(Refused::Invalid { code: "not_terminal", detail });
        }
        let desk = self.open(workflow)?;
        let index = index(desk, job)?;
        let now = desk.board.status(index);
        if now.is_settled() || now == JobStatus::PendingFailed {
            let detail = format!("job {job} is already complete with status={now}");
            return Err(Refused::Conflict { code: "already_complete", detail });
        }
        let Some(hold) = desk.held.get(&job).copied() else {
            let detail = format!("job {job} is {now}: nobody has claimed it");
            return Err(Refused::Conflict { code: "job_not_active", detail });
        };
        let is_ours = self.mates.contains_key(&hold.worker);
        let is_anothers = done.node.is_some_and(|node| node != hold.worker && claims != Some(hold.worker));
        if is_ours || is_anothers {
            let detail = format!("worker {} has job {job}", hold.worker);
            return Err(Refused::Conflict { code: "job_of_another", detail });
        }
        if done.attempt.is_some_and(|attempt| attempt != hold.attempt) {
            let detail = format!("job {job} is in attempt {}", hold.attempt);
            return Err(Refused::Conflict { code: "stale_attempt", detail });
        }
        let desk = self.open(workflow)?;
        let key = desk.board.key(index);
        let stated = Stated {
            worker: hold.worker,
            status,
            return_code: done.return_code,
            reason: None,
            started_at: hold.started_at,
            ended_at: done.completion_time,
            wall: done.exec_time,
            usage: done.usage,
            again: false,
        };
        self.end_stated(workflow, job, &key, stated)
    }

    /// The end of an attempt that no worker of ours reports.
    fn end_stated(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        key: &windlass_types::work::AttemptKey,
        stated: Stated,
    ) -> Result<(), Refused> {
        let desk = self.open(workflow)?;
        let became = desk
            .board
            .on_stated(key, stated, &mut desk.open.changes)
            .map_err(|stale| Refused::Conflict { code: "stale", detail: stale.to_string() })?;
        desk.held.remove(&job);
        desk.suspects.on_ended(job);
        if became.is_settled() {
            desk.over.push(*key);
            count(&self.gauges.ended, 1);
        }
        Ok(())
    }

    /// Nobody can stop what a client of the contract runs: the books say that it is over, and the client finds out.
    pub(super) fn cancel_held_elsewhere(&mut self, workflow: WorkflowId, job: JobId, worker: WorkerId) {
        let now = self.now.wall;
        let Some(desk) = self.desk(workflow) else { return };
        let (Some(number), Some(hold)) = (desk.board.index(job), desk.held.get(&job).copied()) else {
            return;
        };
        if hold.started_at.is_none() {
            desk.held.remove(&job);
            return self.orphan(workflow, number, worker, Orphan::NeverStarted, None);
        }
        let key = desk.board.key(number);
        let stated = Stated {
            worker,
            status: JobStatus::Canceled,
            return_code: CANCELED_ELSEWHERE,
            reason: Some("the workflow was canceled".to_owned()),
            started_at: hold.started_at,
            ended_at: now,
            wall: hold.started_at.map(|started| now.since(started)).unwrap_or_default(),
            usage: Usage::default(),
            again: false,
        };
        // It is held under this key, so it is not stale.
        drop(self.end_stated(workflow, job, &key, stated));
    }

    pub(super) fn on_retry(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        max_retries: u32,
        by: &str,
        reply: Reply<()>,
    ) {
        match self.retry(workflow, job, run, max_retries, by) {
            Ok(Retried::Ready) => self.when_on_disk(workflow, reply, ()),
            Ok(Retried::AfterRemake) => self.look_again_after_remake(workflow, reply),
            Err(why) => reply(Err(why)),
        }
    }

    fn retry(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        max_retries: u32,
        by: &str,
    ) -> Result<Retried, Refused> {
        let now = self.now.wall;
        let desk = self.open(workflow)?;
        check_run(desk, run)?;
        let index = index(desk, job)?;
        let (key, status) = (desk.board.key(index), desk.board.status(index));
        if key.attempt.0 >= max_retries {
            let detail = format!("job {job} is in attempt {} of {max_retries}", key.attempt);
            return Err(Refused::Conflict { code: "retries_used_up", detail });
        }
        match status {
            JobStatus::Failed | JobStatus::Terminated => self.run_again(workflow, index, by),
            JobStatus::PendingFailed => {
                let detail = format!(
                    "job {job} is pending_failed and waits for a decision, which the policy of its workflow and the \
                     record of decisions are for; `windlass triage` takes one, reset_job_status resets the job"
                );
                Err(Refused::Conflict { code: "awaits_decision", detail })
            }
            JobStatus::Running => {
                let Some(hold) = desk.held.get(&job).copied() else {
                    return Err(Refused::Internal(format!("job {job} runs and nobody holds it")));
                };
                if self.mates.contains_key(&hold.worker) {
                    let detail = format!("worker {} runs job {job}; it is retried when it ends", hold.worker);
                    return Err(Refused::Conflict { code: "job_active", detail });
                }
                let stated = Stated {
                    worker: hold.worker,
                    status: JobStatus::Failed,
                    return_code: return_code::NOT_REPORTED,
                    reason: Some(
                        "its runner asked for another attempt and reported no return code".to_owned(),
                    ),
                    started_at: hold.started_at,
                    ended_at: now,
                    wall: hold.started_at.map(|started| now.since(started)).unwrap_or_default(),
                    usage: Usage::default(),
                    again: true,
                };
                self.end_stated(workflow, job, &key, stated)?;
                Ok(Retried::Ready)
            }
            _ => {
                let detail = format!("job {job} is {status}; only what failed, ended or runs can be retried");
                Err(Refused::Conflict { code: "not_retryable", detail })
            }
        }
    }

    /// Has a job run again that is over, and what was canceled because of it wait again.
    fn run_again(&mut self, workflow: WorkflowId, job: u32, by: &str) -> Result<Retried, Refused> {
        self.begin(workflow, by)?;
        self.send_back(workflow, &[job], true, true)?;
        Ok(Retried::AfterRemake)
    }

    /// What went back is looked at again once the board is made anew.
    fn look_again_after_remake(&mut self, workflow: WorkflowId, reply: Reply<()>) {
        self.after_remake(workflow, Box::new(move |office| office.ask_for_all(workflow)), reply);
    }

    pub(super) fn on_change_status(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        to: JobStatus,
        run: RunId,
        by: &str,
        reply: Reply<()>,
    ) {
        match self.change_status(workflow, job, to, run, by) {
            Ok(Retried::Ready) => self.when_on_disk(workflow, reply, ()),
            Ok(Retried::AfterRemake) if to == JobStatus::Ready => {
                self.look_again_after_remake(workflow, reply);
            }
            Ok(Retried::AfterRemake) => self.after_remake(workflow, Box::new(|_| Ok(())), reply),
            Err(why) => reply(Err(why)),
        }
    }

    fn change_status(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        to: JobStatus,
        run: RunId,
        by: &str,
    ) -> Result<Retried, Refused> {
        let desk = self.open(workflow)?;
        check_run(desk, run)?;
        let index = index(desk, job)?;
        let from = desk.board.status(index);
        let impossible = || {
            let detail = format!("job {job} is {from} and cannot be made {to}");
            Refused::Conflict { code: "impossible_transition", detail }
        };
        if from == to {
            return Ok(Retried::Ready);
        }
        if let Some(hold) = desk.held.get(&job).copied() {
            if to != JobStatus::Ready || self.mates.contains_key(&hold.worker) {
                return Err(impossible());
            }
            self.open(workflow)?.held.remove(&job);
            let fate = if hold.started_at.is_some() { Orphan::RunAgain(None) } else { Orphan::NeverStarted };
            self.orphan(workflow, index, hold.worker, fate, hold.started_at);
            return Ok(Retried::Ready);
        }
        match to {
            JobStatus::Uninitialized => {
                self.send_back(workflow, &[index], false, true)?;
                Ok(Retried::AfterRemake)
            }
            JobStatus::Ready
                if matches!(from, JobStatus::Failed | JobStatus::Terminated | JobStatus::PendingFailed) =>
            {
                self.run_again(workflow, index, by)
            }
            _ if desk.board.on_decided(index, to, &mut desk.open.changes) => Ok(Retried::Ready),
            _ => Err(impossible()),
        }
    }
}

/// What has to happen before somebody is told that a job runs again.
enum Retried {
    Ready,
    /// The board cannot be wound back: it is made anew first.
    AfterRemake,
}

/// Packs what fits into the node. Jobs of other schedulers are for it only if there is nothing else.
fn claim_for_node(desk: &mut Desk, worker: WorkerId, request: &ClaimRequest, node: &NodeOffer) -> Vec<u32> {
    let mut claim = |taste: Taste| {
        let mut mirror: Mirror<JobId> = Mirror::with_taste(node.capacity, taste);
        mirror.limit_time(node.time_left);
        let want = Want { most: request.limit, ahead: 0 };
        desk.board.claim_ready(worker, &mut mirror, want, &mut desk.open.changes)
    };
    let labels = Taste::default().with_labels(request.labels.clone()).at_site(None);
    let own = claim(labels.clone().of_scheduler(node.scheduler));
    if own.is_empty() && !node.strict { claim(labels) } else { own }
}

fn check_run(desk: &Desk, run: RunId) -> Result<(), Refused> {
    let found = desk.row.run_id;
    if found == run {
        return Ok(());
    }
    let detail = format!("Run ID mismatch: provided {run} but workflow status has {found}");
    Err(Refused::Conflict { code: "run_mismatch", detail })
}

/// So many jobs are looked up one by one; of more than that all are read.
const ONE_BY_ONE: usize = 32;

fn index(desk: &Desk, job: JobId) -> Result<u32, Refused> {
    desk.board
        .index(job)
        .ok_or_else(|| Refused::NotFound(format!("there is no job {job} in workflow {}", desk.id())))
}

/// Of each of these jobs that left a result in the current run, its newest attempt there.
pub(super) fn attempts_done(
    store: &dyn Store,
    row: &WorkflowRow,
    jobs: &[JobId],
) -> Result<HashMap<JobId, Attempt, rustc_hash::FxBuildHasher>, Refused> {
    let read = |job| {
        let filter = ResultFilter { job, run: Some(row.run_id), ..ResultFilter::default() };
        store.results(row.id, &filter).map_err(|error| refused(&error))
    };
    let results = match jobs.len() {
        0..=ONE_BY_ONE => {
            let each = jobs.iter().map(|job| read(Some(*job))).collect::<Result<Vec<_>, _>>()?;
            each.concat()
        }
        _ => read(None)?,
    };
    let mut done: HashMap<JobId, Attempt, _> = HashMap::default();
    for result in results {
        let newest = done.entry(result.key.job_id).or_insert(result.key.attempt_id);
        *newest = (*newest).max(result.key.attempt_id);
    }
    Ok(done)
}
