//! Relations: dependencies of jobs, readers and writers of data, and files that must exist at the start.

use super::call_context::{TorcCallContext, limit, offset};
use super::input;
use super::operation_table::OperationTable;
use crate::error::ApiResult;
use crate::extract::{Path, Query};
use std::collections::{BTreeMap, HashMap};
use windlass_api::torc::query::{ListInWorkflow, ReadyJobsQuery};
use windlass_api::torc::{
    GetReadyJobRequirementsResponse, JobDependencyModel, JobFileRelationshipModel,
    JobUserDataRelationshipModel, ListMissingUserDataResponse, ListPage, ListRequiredExistingFilesResponse,
};
use windlass_auth::AuthOperation;
use windlass_store::model::{CountQuery, DataFilter};
use windlass_types::{JobId, Resources};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("relations")
        .get(
            "/workflows/{id}/job_dependencies",
            "list_job_dependencies",
            "List dependencies between jobs",
            list_dependencies,
        )
        .get(
            "/workflows/{id}/job_file_relationships",
            "list_job_file_relationships",
            "List the files that jobs write and read",
            list_job_files,
        )
        .get(
            "/workflows/{id}/job_user_data_relationships",
            "list_job_user_data_relationships",
            "List the user data that jobs write and read",
            list_job_user_data,
        )
        .get(
            "/workflows/{id}/required_existing_files",
            "list_required_existing_files",
            "List the files that must exist before the workflow starts",
            list_required_files,
        )
        .get(
            "/workflows/{id}/missing_user_data",
            "list_missing_user_data",
            "List user data without a value",
            list_missing_user_data,
        )
        .get(
            "/workflows/{id}/ready_job_requirements",
            "get_ready_job_requirements",
            "Get the total resource requirements of the ready jobs",
            get_ready_job_requirements,
        )
}

fn list_dependencies(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ListInWorkflow>,
) -> ApiResult<ListPage<JobDependencyModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let view = query.view();
    let total = call.store().count_rows(&CountQuery::Dependencies(row.id))?;
    let rows = call.store().dependencies(row.id, offset(view), limit(view))?;
    let items = rows.into_iter().map(|row| JobDependencyModel {
        depends_on_job_id: row.depends_on_job_id.0,
        depends_on_job_name: row.depends_on_job_name,
        job_id: row.job_id.0,
        job_name: row.job_name,
        workflow_id: id,
    });
    Ok(ListPage::new(items.collect(), view.offset, total as i64))
}

/// Pairs each writer of an object with each reader; writers without readers and readers without writers are
/// single rows.
struct ProducerConsumerMap<K> {
    writers: BTreeMap<K, Vec<JobId>>,
    readers: BTreeMap<K, Vec<JobId>>,
    names: HashMap<JobId, String>,
}

impl<K: Ord + Copy> ProducerConsumerMap<K> {
    fn new(call: &TorcCallContext, rows: impl IntoIterator<Item = (JobId, bool, K)>) -> ApiResult<Self> {
        let mut ties = Self { writers: BTreeMap::new(), readers: BTreeMap::new(), names: HashMap::new() };
        for (job, is_output, what) in rows {
            let side = if is_output { &mut ties.writers } else { &mut ties.readers };
            side.entry(what).or_default().push(job);
            ties.names.insert(job, String::new());
        }
        let jobs: Vec<JobId> = ties.names.keys().copied().collect();
        ties.names = jobs.iter().copied().zip(call.store().job_names(&jobs)?).collect();
        Ok(ties)
    }

    fn pairs(&self, what: K) -> Vec<(Option<JobId>, Option<JobId>)> {
        let side = |side: &BTreeMap<K, Vec<JobId>>| match side.get(&what) {
            Some(jobs) => jobs.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let readers = side(&self.readers);
        let pairs = side(&self.writers)
            .into_iter()
            .flat_map(|writer| readers.iter().map(move |reader| (writer, *reader)));
        pairs.filter(|pair| *pair != (None, None)).collect()
    }

    fn job_name(&self, job: Option<JobId>) -> Option<String> {
        job.and_then(|job| self.names.get(&job).cloned())
    }
}

fn list_job_files(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ListInWorkflow>,
) -> ApiResult<ListPage<JobFileRelationshipModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let rows = call.store().job_files(row.id)?;
    let ties =
        ProducerConsumerMap::new(call, rows.into_iter().map(|row| (row.job_id, row.is_output, row.file_id)))?;
    let mut items = Vec::new();
    for file in call.store().files(row.id, &DataFilter::default())? {
        items.extend(ties.pairs(file.id).into_iter().map(|(writer, reader)| JobFileRelationshipModel {
            consumer_job_id: reader.map(|id| id.0),
            consumer_job_name: ties.job_name(reader),
            file_id: file.id.0,
            file_name: file.name.clone(),
            file_path: file.path.clone(),
            producer_job_id: writer.map(|id| id.0),
            producer_job_name: ties.job_name(writer),
            workflow_id: id,
        }));
    }
    let view = query.view();
    Ok(ListPage::from_full_list(items, view.offset, view.limit))
}

fn list_job_user_data(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ListInWorkflow>,
) -> ApiResult<ListPage<JobUserDataRelationshipModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let rows = call.store().job_user_data(row.id)?;
    let ties = ProducerConsumerMap::new(
        call,
        rows.into_iter().map(|row| (row.job_id, row.is_output, row.user_data_id)),
    )?;
    let mut items = Vec::new();
    for piece in call.store().user_data(row.id, &DataFilter::default())? {
        items.extend(ties.pairs(piece.id).into_iter().map(|(writer, reader)| JobUserDataRelationshipModel {
            consumer_job_id: reader.map(|id| id.0),
            consumer_job_name: ties.job_name(reader),
            producer_job_id: writer.map(|id| id.0),
            producer_job_name: ties.job_name(writer),
            user_data_id: piece.id.0,
            user_data_name: piece.name.clone(),
            workflow_id: id,
        }));
    }
    let view = query.view();
    Ok(ListPage::from_full_list(items, view.offset, view.limit))
}

fn list_required_files(
    call: &TorcCallContext,
    Path(id): Path<i64>,
) -> ApiResult<ListRequiredExistingFilesResponse> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let files = call.store().required_files(row.id)?.into_iter().map(|id| id.0).collect();
    Ok(ListRequiredExistingFilesResponse { files })
}

fn list_missing_user_data(
    call: &TorcCallContext,
    Path(id): Path<i64>,
) -> ApiResult<ListMissingUserDataResponse> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let user_data = call.store().missing_user_data(row.id)?.into_iter().map(|id| id.0).collect();
    Ok(ListMissingUserDataResponse { user_data })
}

fn get_ready_job_requirements(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ReadyJobsQuery>,
) -> ApiResult<GetReadyJobRequirementsResponse> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let ready = call.store().ready_requirements(row.id, query.scheduler_config_id)?;
    let total =
        |of: fn(&Resources) -> u64| ready.iter().map(|row| of(&row.resources) * row.jobs).sum::<u64>();
    let longest = ready.iter().map(|row| row.resources.runtime.unwrap_or(Resources::ASSUMED_RUNTIME)).max();
    Ok(GetReadyJobRequirementsResponse {
        max_num_nodes: ready.iter().map(|row| i64::from(row.resources.nodes)).max().unwrap_or(0),
        max_runtime: input::render_duration(longest.unwrap_or_default()),
        memory_gb: total(|resources| resources.memory.0) as f64 / f64::from(1 << 30),
        num_cpus: total(|resources| u64::from(resources.cpus)) as i64,
        num_gpus: total(|resources| u64::from(resources.gpus)) as i64,
        num_jobs: ready.iter().map(|row| row.jobs).sum::<u64>() as i64,
    })
}
