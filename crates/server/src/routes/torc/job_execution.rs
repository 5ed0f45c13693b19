//! Operations of runners: claim, start, complete and retry jobs, and add jobs.

use super::call_context::TorcCallContext;
use super::input;
use super::jobs;
use super::operation_table::{DescribedSchema, HandlerReply, OperationDescription, OperationTable};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use windlass_api::torc::query::{ClaimFittingQuery, ClaimNextQuery, PageQuery, RetryQuery};
use windlass_api::torc::{
    BatchCompleteJobsRequest, BatchCompleteJobsResponse, ClaimJobsBasedOnResources, ClaimNextJobsResponse,
    ComputeNodesResources, JobCompletionError, JobModel, ListPage, MAX_PAGE, ResultModel, RunningJobModel,
    SlurmJobCorrelationModel, SpawnJobModel, SpawnJobsRequest, SpawnJobsResponse,
};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::{ClaimRequest, JobCompletion, NodeCapacityOffer, SchedulerHandle};
use windlass_store::model::{
    JobFilter, SpawnJob, SpawnRequest, WorkerFilter, WorkerRow, WorkflowPartId, WorkflowRow,
};
use windlass_types::worker_messages::{AttemptKey, AttemptUsage};
use windlass_types::{
    Attempt, Bytes, Capacity, JobDefinition, JobId, JobSettings, JobStatus, RunId, WorkerId,
};

/// Maximum duration of an attempt: about a hundred years.
const MAX_MINUTES: f64 = 60.0 * 24.0 * 36_525.0;
/// Maximum number of jobs that a job adds at once.
const MAX_SPAWNED: usize = 100_000;

pub(super) fn operations() -> OperationTable {
    OperationTable::new("running")
        .post(
            "/workflows/{id}/claim_next_jobs",
            "claim_next_jobs",
            "Claim ready jobs regardless of their resource requirements",
            claim_next_jobs,
        )
        .post(
            "/workflows/{id}/claim_jobs_based_on_resources/{limit}",
            "claim_jobs_based_on_resources",
            "Claim ready jobs that fit a runner together",
            claim_fitting_jobs,
        )
        .put("/jobs/{id}/start_job/{run_id}/{compute_node_id}", "start_job", "Start a claimed job", start_job)
        .post(
            "/jobs/{id}/complete_job/{status}/{run_id}",
            "complete_job",
            "Report the result of a job",
            complete_job,
        )
        .post(
            "/workflows/{id}/batch_complete_jobs",
            "batch_complete_jobs",
            "Report the results of jobs",
            complete_jobs,
        )
        .post("/jobs/{id}/retry/{run_id}", "retry_job", "Retry a failed job", retry_job)
        .put(
            "/jobs/{id}/manage_status_change/{status}/{run_id}",
            "manage_status_change",
            "Change the status of a job",
            change_job_status,
        )
        .post("/jobs/{id}/spawn_jobs", "spawn_jobs", "Add jobs from a running job", spawn_jobs)
        .get(
            "/workflows/{id}/running_jobs",
            "get_running_jobs",
            "List running jobs with their workers",
            list_running_jobs,
        )
        .get(
            "/workflows/{id}/slurm_job_correlations",
            "get_slurm_job_correlations",
            "List jobs with the Slurm jobs that hosted their workers",
            list_slurm_job_correlations,
        )
}

/// A response with claimed jobs. If the client has disconnected, the jobs are returned.
pub(super) struct ClaimedJobs<T> {
    answer: T,
    guard: ClaimGuard,
}

struct ClaimGuard {
    service: SchedulerHandle,
    jobs: Vec<JobId>,
    run: RunId,
    by: String,
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        for job in self.jobs.drain(..) {
            // If the scheduler has stopped, the next server returns them.
            self.service.change_job_status(job, JobStatus::Ready, self.run, &self.by, Box::new(drop));
        }
    }
}

impl<T: Serialize + DescribedSchema + Send + 'static> HandlerReply for ClaimedJobs<T> {
    fn describe(description: OperationDescription<'_>) -> OperationDescription<'_> {
        <T as HandlerReply>::describe(description)
    }

    fn render(mut self) -> Response {
        self.guard.jobs.clear();
        Json(self.answer).into_response()
    }
}

fn claim_jobs(
    call: &TorcCallContext,
    row: &WorkflowRow,
    request: ClaimRequest,
) -> ApiResult<ClaimedJobs<Vec<JobModel>>> {
    let jobs = call.call_service(|service, reply| service.claim_jobs(row.id, request, reply))?;
    let held = ClaimGuard {
        service: call.state.service.clone(),
        jobs: jobs.clone(),
        run: row.run_id,
        by: call.caller_name().to_owned(),
    };
    let answer = jobs::load_jobs_to_run(call, row, &jobs)?;
    Ok(ClaimedJobs { answer, guard: held })
}

fn claim_next_jobs(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ClaimNextQuery>,
) -> ApiResult<ClaimedJobs<ClaimNextJobsResponse>> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, id)?;
    let limit = parse_claim_limit(query.limit.unwrap_or(1))?;
    let labels = input::parse_label_list(query.labels.as_deref())?;
    if row.is_canceled || limit == 0 {
        return claim_nothing(call, &row, ClaimNextJobsResponse { jobs: Some(Vec::new()) });
    }
    let ClaimedJobs { answer, guard: held } =
        claim_jobs(call, &row, ClaimRequest { limit, labels, node: None })?;
    Ok(ClaimedJobs { answer: ClaimNextJobsResponse { jobs: Some(answer) }, guard: held })
}

fn claim_fitting_jobs(
    call: &TorcCallContext,
    Path((id, limit)): Path<(i64, i64)>,
    Query(query): Query<ClaimFittingQuery>,
    Json(body): Json<ComputeNodesResources>,
) -> ApiResult<ClaimedJobs<ClaimJobsBasedOnResources>> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, id)?;
    let limit = parse_claim_limit(limit)?;
    let labels = input::parse_labels(body.labels.as_deref())?;
    let node = parse_node_offer(&body, query.strict_scheduler_match.unwrap_or(false))?;
    let none =
        |reason: &str| ClaimJobsBasedOnResources { jobs: Some(Vec::new()), reason: Some(reason.to_owned()) };
    if row.is_canceled || limit == 0 {
        let reason = if row.is_canceled { "the workflow was canceled" } else { "no jobs were requested" };
        return claim_nothing(call, &row, none(reason));
    }
    let ClaimedJobs { answer, guard: held } =
        claim_jobs(call, &row, ClaimRequest { limit, labels, node: Some(node) })?;
    let answer = if answer.is_empty() {
        none("no ready job fits")
    } else {
        ClaimJobsBasedOnResources { jobs: Some(answer), reason: None }
    };
    Ok(ClaimedJobs { answer, guard: held })
}

#[expect(clippy::unnecessary_wraps, reason = "like a claim that returns jobs")]
fn claim_nothing<T>(call: &TorcCallContext, row: &WorkflowRow, answer: T) -> ApiResult<ClaimedJobs<T>> {
    let service = call.state.service.clone();
    Ok(ClaimedJobs {
        answer,
        guard: ClaimGuard { service, jobs: Vec::new(), run: row.run_id, by: String::new() },
    })
}

fn parse_claim_limit(limit: i64) -> ApiResult<usize> {
    if limit > MAX_PAGE {
        return Err(ApiError::invalid(format!("at most {MAX_PAGE} jobs per request")));
    }
    input::convert_number("limit", limit)
}

fn parse_node_offer(body: &ComputeNodesResources, strict: bool) -> ApiResult<NodeCapacityOffer> {
    if !(0.0..1e9).contains(&body.memory_gb) {
        return Err(ApiError::invalid("memory_gb is out of range"));
    }
    let capacity = input::check_capacity(Capacity {
        cpus: input::convert_number("num_cpus", body.num_cpus)?,
        memory: Bytes((body.memory_gb * f64::from(1 << 30)) as u64),
        gpus: input::convert_number("num_gpus", body.num_gpus)?,
        nodes: input::convert_number("num_nodes", body.num_nodes)?,
        max_jobs: None,
    })?;
    let time_left =
        body.time_limit.as_deref().map(|text| input::parse_duration_field("time_limit", text)).transpose()?;
    Ok(NodeCapacityOffer { capacity, time_left, scheduler: body.scheduler_config_id, strict })
}

fn start_job(call: &TorcCallContext, Path((id, run, node)): Path<(i64, i64, i64)>) -> ApiResult<JobModel> {
    let row = call.authorize_part(AuthOperation::RunJobs, WorkflowPartId::Job(JobId(id)))?;
    call.check_part_of(row.id, WorkflowPartId::Worker(WorkerId(node)))?;
    call.call_service(|service, reply| service.start_job(JobId(id), RunId(run), WorkerId(node), reply))?;
    jobs::load_job_model(call, &row, JobId(id))
}

fn complete_job(
    call: &TorcCallContext,
    Path((id, status, run)): Path<(i64, JobStatus, i64)>,
    Json(result): Json<ResultModel>,
) -> ApiResult<JobModel> {
    let row = call.authorize_part(AuthOperation::RunJobs, WorkflowPartId::Job(JobId(id)))?;
    let completion = parse_completion(call, &row, id, status, run, &result)?;
    let answers =
        call.call_service(|service, reply| service.complete_jobs(row.id, vec![completion], reply))?;
    match answers.into_iter().next() {
        Some((_, Err(refused))) => Err(as_unprocessable(ApiError::from(refused))),
        _ => jobs::load_job_model(call, &row, JobId(id)),
    }
}

/// The contract has no conflict status here: such requests are invalid (422).
fn as_unprocessable(mut error: ApiError) -> ApiError {
    if error.status == axum::http::StatusCode::CONFLICT {
        error.status = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
    }
    error
}

fn complete_jobs(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<BatchCompleteJobsRequest>,
) -> ApiResult<BatchCompleteJobsResponse> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, id)?;
    let mut answer = BatchCompleteJobsResponse::default();
    let mut good = Vec::new();
    for entry in &body.completions {
        match parse_completion(call, &row, entry.job_id, entry.status, entry.run_id, &entry.result) {
            Ok(completion) => good.push(completion),
            Err(error) if error.status.is_client_error() => {
                answer.errors.push(completion_error(entry.job_id, &error.detail));
            }
            Err(error) => return Err(error),
        }
    }
    if good.is_empty() {
        return Ok(answer);
    }
    for (job, outcome) in call.call_service(|service, reply| service.complete_jobs(row.id, good, reply))? {
        match outcome {
            Ok(()) => answer.completed.push(job.0),
            Err(refused) => answer.errors.push(completion_error(job.0, &refused.to_string())),
        }
    }
    Ok(answer)
}

fn completion_error(job_id: i64, message: &str) -> JobCompletionError {
    JobCompletionError { job_id, message: message.to_owned() }
}

/// Converts and checks a reported result.
fn parse_completion(
    call: &TorcCallContext,
    row: &WorkflowRow,
    job: i64,
    status: JobStatus,
    run: i64,
    result: &ResultModel,
) -> ApiResult<JobCompletion> {
    let ends = [
        JobStatus::Completed,
        JobStatus::Failed,
        JobStatus::Canceled,
        JobStatus::Terminated,
        JobStatus::PendingFailed,
    ];
    if !ends.contains(&status) {
        return Err(ApiError::invalid(format!("{status} is not a final status")));
    }
    if status == JobStatus::PendingFailed && !row.settings.use_pending_failed {
        return Err(ApiError::invalid(format!(
            "workflow {} does not use pending_failed, so its jobs cannot wait for a decision",
            row.id
        ))
        .with_hint("complete the job as failed, or set `use_pending_failed: true` for the workflow"));
    }
    let agrees = [
        ("job_id", result.job_id == job),
        ("workflow_id", result.workflow_id == row.id.0),
        ("run_id", result.run_id == run),
        ("status", result.status == status),
    ];
    if let Some((field, _)) = agrees.iter().find(|(_, is_same)| !is_same) {
        return Err(ApiError::invalid(format!(
            "{field} in the result differs from that of the completed job"
        )));
    }
    call.check_part_of(row.id, WorkflowPartId::Job(JobId(job)))?;
    if run != row.run_id.0 {
        return Err(ApiError::invalid(format!(
            "run {run} is not active: the workflow is at run {}",
            row.run_id
        )));
    }
    let node = Some(result.compute_node_id).filter(|id| *id > 0).map(WorkerId);
    call.check_parts_of(row.id, node.map(WorkflowPartId::Worker))?;
    Ok(JobCompletion {
        job: JobId(job),
        run: RunId(run),
        attempt: result
            .attempt_id
            .map(|id| input::convert_number("attempt_id", id).map(Attempt))
            .transpose()?,
        status,
        return_code: input::convert_number("return_code", result.return_code)?,
        exec_time: parse_minutes(result.exec_time_minutes)?,
        completion_time: input::parse_time("completion_time", &result.completion_time)?,
        usage: parse_usage(result)?,
        node,
    })
}

pub(super) fn parse_minutes(minutes: f64) -> ApiResult<Duration> {
    match minutes {
        0.0..MAX_MINUTES => Ok(Duration::from_secs_f64(minutes * 60.0)),
        _ => Err(ApiError::invalid("exec_time_minutes is out of range")),
    }
}

pub(super) fn parse_usage(result: &ResultModel) -> ApiResult<AttemptUsage> {
    let bytes = |field: &str, value: Option<i64>| {
        value.map(|value| input::convert_number(field, value).map(Bytes)).transpose()
    };
    Ok(AttemptUsage {
        peak_memory: bytes("peak_memory_bytes", result.peak_memory_bytes)?,
        avg_memory: bytes("avg_memory_bytes", result.avg_memory_bytes)?,
        peak_cpu_percent: result.peak_cpu_percent,
        avg_cpu_percent: result.avg_cpu_percent,
        ..AttemptUsage::default()
    })
}

fn retry_job(
    call: &TorcCallContext,
    Path((id, run)): Path<(i64, i64)>,
    Query(query): Query<RetryQuery>,
) -> ApiResult<JobModel> {
    let row = call.authorize_part(AuthOperation::RunJobs, WorkflowPartId::Job(JobId(id)))?;
    let most = u32::try_from(query.max_retries)
        .map_err(|_| ApiError::invalid("max_retries: must not be negative"))?;
    call.call_service(|service, reply| {
        service.retry_job(JobId(id), RunId(run), most, call.caller_name(), reply);
    })
    .map_err(as_unprocessable)?;
    jobs::load_job_model(call, &row, JobId(id))
}

fn change_job_status(
    call: &TorcCallContext,
    Path((id, status, run)): Path<(i64, JobStatus, i64)>,
) -> ApiResult<JobModel> {
    let row = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Job(JobId(id)))?;
    call.call_service(|service, reply| {
        service.change_job_status(JobId(id), status, RunId(run), call.caller_name(), reply);
    })
    .map_err(as_unprocessable)?;
    jobs::load_job_model(call, &row, JobId(id))
}

fn spawn_jobs(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<SpawnJobsRequest>,
) -> ApiResult<SpawnJobsResponse> {
    let row = call.authorize_part(AuthOperation::SpawnJobs, WorkflowPartId::Job(JobId(id)))?;
    let job = call.store().job(JobId(id))?.ok_or_else(|| ApiError::not_found(format_args!("job {id}")))?;
    if body.jobs.len() > MAX_SPAWNED {
        return Err(ApiError::invalid(format!("at most {MAX_SPAWNED} jobs can be added at once")));
    }
    let names = index_by_name(&body.jobs)?;
    let jobs =
        body.jobs.iter().map(|job| parse_spawn_job(job, &names)).collect::<ApiResult<Vec<SpawnJob>>>()?;
    reject_cycles(&jobs)?;
    let request = SpawnRequest {
        caller: AttemptKey { workflow: row.id, job: JobId(id), run: row.run_id, attempt: job.row.attempt_id },
        lineage: body.lineage.clone(),
        state: body.state.clone(),
        jobs,
    };
    let spawned =
        call.call_service(|service, reply| service.spawn_jobs(request, reply)).map_err(as_unprocessable)?;
    Ok(SpawnJobsResponse {
        iteration: i64::from(spawned.iteration),
        spawned_job_ids: spawned.spawned_job_ids.into_iter().map(|id| id.0).collect(),
    })
}

/// Returns the index of each job by name.
fn index_by_name(jobs: &[SpawnJobModel]) -> ApiResult<HashMap<&str, u32>> {
    let mut names = HashMap::with_capacity(jobs.len());
    for (place, job) in (0..).zip(jobs) {
        if names.insert(job.name.as_str(), place).is_some() {
            return Err(ApiError::invalid(format!("two of the jobs have the name `{}`", job.name)));
        }
    }
    Ok(names)
}

fn parse_spawn_job(job: &SpawnJobModel, names: &HashMap<&str, u32>) -> ApiResult<SpawnJob> {
    let number = |name: &String| {
        names.get(name.as_str()).copied().ok_or_else(|| {
            ApiError::invalid(format!("`{}` depends on `{name}`, which is not in the request", job.name))
        })
    };
    let name = input::check_name("a job", &job.name)?;
    let labels = input::parse_labels(job.labels.as_deref())?;
    Ok(SpawnJob {
        definition: JobDefinition {
            resource_requirements: job.resource_requirements.clone(),
            priority: input::convert_number("priority", job.priority.unwrap_or(0))?,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure.unwrap_or(true),
            settings: JobSettings { labels, ..JobSettings::default() },
            ..JobDefinition::new(name, input::check_text("command", &job.command)?)
        },
        depends_on: job.depends_on.iter().flatten().map(number).collect::<ApiResult<_>>()?,
    })
}

/// Checks for cycles: repeatedly removes jobs without remaining dependencies; none may be left.
fn reject_cycles(jobs: &[SpawnJob]) -> ApiResult<()> {
    let mut waits: Vec<usize> = jobs.iter().map(|job| job.depends_on.len()).collect();
    let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (n, job) in jobs.iter().enumerate() {
        for other in &job.depends_on {
            waiters[*other as usize].push(n);
        }
    }
    let mut free: Vec<usize> = (0..jobs.len()).filter(|n| waits[*n] == 0).collect();
    let mut taken = 0;
    while let Some(n) = free.pop() {
        taken += 1;
        for waiter in &waiters[n] {
            waits[*waiter] -= 1;
            if waits[*waiter] == 0 {
                free.push(*waiter);
            }
        }
    }
    if taken == jobs.len() {
        Ok(())
    } else {
        Err(ApiError::invalid("the dependencies of the jobs form a cycle"))
    }
}

fn list_running_jobs(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(page): Query<PageQuery>,
) -> ApiResult<ListPage<RunningJobModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let filter = JobFilter { status: vec![JobStatus::Running], ..JobFilter::default() };
    let jobs = call.store().job_details(row.id, &filter)?;
    let workers = load_workers(call, jobs.iter().filter_map(|job| job.worker_id))?;
    let items = jobs.into_iter().map(|job| {
        let worker = workers.iter().find(|worker| Some(worker.id) == job.worker_id);
        RunningJobModel {
            job_id: job.row.id.0,
            job_name: job.row.name,
            compute_node_name: worker.map(|worker| worker.worker.host.clone()).unwrap_or_default(),
            scheduler_job_id: worker.and_then(slurm_job_id),
            scheduler_type: worker.map_or_else(|| "local".to_owned(), super::nodes::node_type),
            start_time: job.row.started_at.map(|at| at.to_string()),
        }
    });
    let view = page.view();
    Ok(ListPage::from_full_list(items.collect(), view.offset, view.limit))
}

fn list_slurm_job_correlations(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(page): Query<PageQuery>,
) -> ApiResult<ListPage<SlurmJobCorrelationModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let filter = windlass_store::model::ResultFilter { all_runs: true, ..Default::default() };
    let results = call.store().results(row.id, &filter)?;
    let workers = load_workers(call, results.iter().map(|result| result.worker_id))?;
    let hosted = results.into_iter().filter_map(|result| {
        let worker = workers.iter().find(|worker| worker.id == result.worker_id)?;
        let slurm_job_id = slurm_job_id(worker)?;
        Some(SlurmJobCorrelationModel {
            job_id: result.key.job_id.0,
            job_name: result.job_name,
            slurm_job_id,
        })
    });
    let view = page.view();
    Ok(ListPage::from_full_list(hosted.collect(), view.offset, view.limit))
}

fn load_workers(call: &TorcCallContext, ids: impl Iterator<Item = WorkerId>) -> ApiResult<Vec<WorkerRow>> {
    let mut ids: Vec<WorkerId> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(call.store().workers(&WorkerFilter { ids, ..WorkerFilter::default() })?)
}

/// Returns the Slurm job that hosts a worker, if known.
fn slurm_job_id(worker: &WorkerRow) -> Option<String> {
    let scheduler = worker.worker.extra.as_ref()?.get("scheduler")?;
    let id = ["slurm_job_id", "scheduler_id", "job_id"].iter().find_map(|key| scheduler.get(*key))?;
    Some(id.as_str().map_or_else(|| id.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, depends_on: &[String]) -> SpawnJobModel {
        let job = serde_json::json!({"name": name, "command": "true", "depends_on": depends_on});
        serde_json::from_value(job).unwrap()
    }

    fn spawned(models: &[SpawnJobModel]) -> ApiResult<Vec<SpawnJob>> {
        let names = index_by_name(models)?;
        let jobs = models.iter().map(|job| parse_spawn_job(job, &names)).collect::<ApiResult<Vec<_>>>()?;
        reject_cycles(&jobs)?;
        Ok(jobs)
    }

    /// A chain in reverse order: scanning all jobs for each one would take minutes.
    #[test]
    fn largest_spawn_is_checked_in_linear_time() {
        let name = |n: usize| format!("j{n}");
        let last = MAX_SPAWNED - 1;
        let waits = |n: usize| if n < last { vec![name(n + 1)] } else { Vec::new() };
        let mut models: Vec<_> = (0..MAX_SPAWNED).map(|n| model(&name(n), &waits(n))).collect();
        assert_eq!(spawned(&models).unwrap()[0].depends_on, [1]);
        models[last] = model(&name(last), &[name(0)]);
        assert!(spawned(&models).unwrap_err().to_string().contains("cycle"));
        models[last] = model(&name(0), &[]);
        assert!(spawned(&models).unwrap_err().to_string().contains("two of the jobs"));
    }

    #[test]
    fn repeated_dependency_counts_once() {
        let models = [model("a", &[]), model("b", &["a".into(), "a".into()])];
        assert_eq!(spawned(&models).unwrap().len(), 2);
        let alone = [model("a", &["a".into()])];
        assert!(spawned(&alone).is_err());
    }
}
