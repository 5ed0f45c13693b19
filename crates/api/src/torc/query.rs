//! Query parameters of lists and operations.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use windlass_types::JobStatus;

use super::{JobStatusName, MAX_PAGE};

/// Declares the parameters of one operation.
macro_rules! queries {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    )*};
}

/// Declares the parameters of a list: those given, and offset, length and order.
macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
            #[into_params(parameter_in = Query)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
                /// Number of items to skip.
                #[param(minimum = 0)]
                pub offset: Option<i64>,
                /// Maximum number of items. Default and maximum: 100,000.
                #[param(minimum = 0)]
                pub limit: Option<i64>,
                /// Field to sort by. Default: id.
                pub sort_by: Option<String>,
                pub reverse_sort: Option<bool>,
            }

            impl $name {
                pub fn view(&self) -> ListPageQuery<'_> {
                    ListPageQuery::new(self.offset, self.limit, self.sort_by.as_deref(), self.reverse_sort)
                }
            }
        )*
    };
}

/// Offset, length and order of a page.
#[derive(Clone, Copy, Debug)]
pub struct ListPageQuery<'a> {
    pub offset: i64,
    pub limit: i64,
    pub sort_by: Option<&'a str>,
    pub reverse: bool,
}

impl<'a> ListPageQuery<'a> {
    pub fn new(
        offset: Option<i64>,
        limit: Option<i64>,
        sort_by: Option<&'a str>,
        reverse: Option<bool>,
    ) -> Self {
        Self {
            offset: offset.unwrap_or(0).max(0),
            limit: limit.unwrap_or(MAX_PAGE).clamp(0, MAX_PAGE),
            // Torc's command line sends an empty value for the default order.
            sort_by: sort_by.filter(|field| !field.is_empty()),
            reverse: reverse.unwrap_or(false),
        }
    }
}

lists! {
    ListWorkflows {
        name: Option<String>,
        user: Option<String>,
        description: Option<String>,
        /// Default: only workflows that are not archived.
        is_archived: Option<bool>,
        /// Only workflows shared with this group.
        access_group: Option<String>,
    }
    ListJobs {
        workflow_id: i64,
        #[param(value_type = Option<JobStatusName>)]
        status: Option<JobStatus>,
        /// Only jobs that read this file.
        needs_file_id: Option<i64>,
        /// Only jobs that depend on this job.
        upstream_job_id: Option<i64>,
        /// Include dependencies, input and output of each job.
        include_relationships: Option<bool>,
        /// Only jobs held by this worker.
        active_compute_node_id: Option<i64>,
        /// true: only jobs added later, as a retry or by another job. false: only the others.
        origin_is_set: Option<bool>,
        /// Substring of the name.
        name: Option<String>,
        /// Substring of the command.
        command: Option<String>,
        /// Comma-separated labels: only jobs that have all of them.
        labels: Option<String>,
    }
    ListFiles {
        workflow_id: i64,
        produced_by_job_id: Option<i64>,
        name: Option<String>,
        path: Option<String>,
        /// true: only files that a job writes. false: only the others.
        is_output: Option<bool>,
    }
    ListUserData {
        workflow_id: i64,
        consumer_job_id: Option<i64>,
        producer_job_id: Option<i64>,
        name: Option<String>,
        is_ephemeral: Option<bool>,
    }
    ListRequirements {
        workflow_id: i64,
        job_id: Option<i64>,
        name: Option<String>,
        memory: Option<String>,
        num_cpus: Option<i64>,
        num_gpus: Option<i64>,
        num_nodes: Option<i64>,
        /// Runtime in seconds.
        runtime: Option<i64>,
    }
    ListResults {
        workflow_id: i64,
        job_id: Option<i64>,
        run_id: Option<i64>,
        return_code: Option<i64>,
        #[param(value_type = Option<JobStatusName>)]
        status: Option<JobStatus>,
        compute_node_id: Option<i64>,
        /// Include results of all runs. Default: only the latest result of each job.
        all_runs: Option<bool>,
    }
    ListComputeNodes {
        workflow_id: i64,
        hostname: Option<String>,
        is_active: Option<bool>,
        scheduled_compute_node_id: Option<i64>,
    }
    ListEvents {
        workflow_id: i64,
        category: Option<String>,
        /// Milliseconds since 1970.
        after_timestamp: Option<i64>,
    }
    ListLocalSchedulers {
        workflow_id: i64,
        memory: Option<String>,
        num_cpus: Option<i64>,
    }
    ListScheduledComputeNodes {
        workflow_id: i64,
        scheduler_id: Option<String>,
        scheduler_config_id: Option<String>,
        status: Option<String>,
    }
    ListSlurmSchedulers {
        workflow_id: i64,
    }
    ListRoCrateEntities {
        file_id: Option<i64>,
        entity_id: Option<String>,
    }
    /// Sort order and page of a list within the workflow of the path.
    ListInWorkflow {
    }
}

queries! {
    WorkflowQuery {
        workflow_id: i64,
    }
    PageQuery {
        #[param(minimum = 0)]
        offset: Option<i64>,
        #[param(minimum = 0)]
        limit: Option<i64>,
    }
    ListSlurmStats {
        workflow_id: i64,
        job_id: Option<i64>,
        run_id: Option<i64>,
        attempt_id: Option<i64>,
        #[param(minimum = 0)]
        offset: Option<i64>,
        #[param(minimum = 0)]
        limit: Option<i64>,
    }
    CreateUserDataQuery {
        /// Id of the job that reads the user data.
        consumer_job_id: Option<i64>,
        /// Id of the job that writes the user data.
        producer_job_id: Option<i64>,
    }
    ClaimNextQuery {
        /// Maximum number of jobs. Default: 1.
        limit: Option<i64>,
        /// Comma-separated labels.
        labels: Option<String>,
    }
    ClaimFittingQuery {
        /// Claim only jobs of the runner's scheduler; do not fall back to jobs of other schedulers if there are
        /// none.
        strict_scheduler_match: Option<bool>,
    }
    InitializeQuery {
        /// Initialize only jobs in status uninitialized.
        only_uninitialized: Option<bool>,
        clear_ephemeral_user_data: Option<bool>,
        /// Return a task at once and initialize in the background.
        r#async: Option<bool>,
    }
    ResetStatusQuery {
        /// Reset also while workers hold jobs or allocations are pending.
        force: Option<bool>,
    }
    ResetJobsQuery {
        /// Reset only jobs that did not complete successfully.
        failed_only: Option<bool>,
    }
    DryRunQuery {
        /// Change nothing; report what would be done.
        dry_run: Option<bool>,
    }
    RetryQuery {
        /// Maximum number of attempts.
        max_retries: i32,
    }
    ReadyJobsQuery {
        scheduler_config_id: Option<i64>,
    }
}

impl PageQuery {
    pub fn view(&self) -> ListPageQuery<'_> {
        ListPageQuery::new(self.offset, self.limit, None, None)
    }
}

impl ListSlurmStats {
    pub fn view(&self) -> ListPageQuery<'_> {
        ListPageQuery::new(self.offset, self.limit, None, None)
    }
}

/// Trigger types of pending actions to return; may be repeated.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PendingActionsQuery {
    #[param(value_type = Option<Vec<String>>)]
    #[serde(default)]
    pub trigger_type: Vec<String>,
}
