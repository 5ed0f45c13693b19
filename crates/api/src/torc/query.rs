//! What lists and verbs can be asked for, behind the `?` of a path.

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

/// The same for lists, which have a place to begin, a length and an order besides.
macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
            #[into_params(parameter_in = Query)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
                /// How many to leave out.
                #[param(minimum = 0)]
                pub offset: Option<i64>,
                /// At most so many; 100,000 where nothing is said, and never more.
                #[param(minimum = 0)]
                pub limit: Option<i64>,
                /// A field of what is listed; by id where nothing is said.
                pub sort_by: Option<String>,
                pub reverse_sort: Option<bool>,
            }

            impl $name {
                pub fn view(&self) -> ListView<'_> {
                    ListView::new(self.offset, self.limit, self.sort_by.as_deref(), self.reverse_sort)
                }
            }
        )*
    };
}

/// Which page of a list, in which order.
#[derive(Clone, Copy, Debug)]
pub struct ListView<'a> {
    pub offset: i64,
    pub limit: i64,
    pub sort_by: Option<&'a str>,
    pub reverse: bool,
}

impl<'a> ListView<'a> {
    pub fn new(
        offset: Option<i64>,
        limit: Option<i64>,
        sort_by: Option<&'a str>,
        reverse: Option<bool>,
    ) -> Self {
        Self {
            offset: offset.unwrap_or(0).max(0),
            limit: limit.unwrap_or(MAX_PAGE).clamp(0, MAX_PAGE),
            // Torc's command line sends an empty one where none is asked for.
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
        /// Where nothing is said, those that are not archived.
        is_archived: Option<bool>,
        /// Only those shared with this group.
        access_group: Option<String>,
    }
    ListJobs {
        workflow_id: i64,
        #[param(value_type = Option<JobStatusName>)]
        status: Option<JobStatus>,
        /// Only those that read this file.
        needs_file_id: Option<i64>,
        /// Only those that wait for this job.
        upstream_job_id: Option<i64>,
        /// Also what each waits for, reads and writes.
        include_relationships: Option<bool>,
        /// Only those that this worker holds.
        active_compute_node_id: Option<i64>,
        /// Only those that came later, as a retry or from another job; or only the others.
        origin_is_set: Option<bool>,
        /// Part of the name.
        name: Option<String>,
        /// Part of the command.
        command: Option<String>,
        /// Words between commas: only those that have all of these labels.
        labels: Option<String>,
    }
    ListFiles {
        workflow_id: i64,
        produced_by_job_id: Option<i64>,
        name: Option<String>,
        path: Option<String>,
        /// Only those that a job writes, or only the others.
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
        /// In seconds.
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
        /// Where nothing is said, of each job its latest.
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
    /// Of what belongs to the workflow in the path.
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
        /// The job that reads it.
        consumer_job_id: Option<i64>,
        /// The job that writes it.
        producer_job_id: Option<i64>,
    }
    ClaimNextQuery {
        /// At most so many; one where nothing is said.
        limit: Option<i64>,
        /// Words between commas.
        labels: Option<String>,
    }
    ClaimFittingQuery {
        /// Only jobs of the scheduler that the runner names, and of none.
        strict_scheduler_match: Option<bool>,
    }
    InitializeQuery {
        /// Leave alone what was looked at before.
        only_uninitialized: Option<bool>,
        clear_ephemeral_user_data: Option<bool>,
        /// Answer at once with a task, and do it then.
        r#async: Option<bool>,
    }
    ResetStatusQuery {
        /// Also while jobs are held or allocations wait.
        force: Option<bool>,
    }
    ResetJobsQuery {
        /// Only jobs that did not succeed.
        failed_only: Option<bool>,
    }
    DryRunQuery {
        /// Only say what would happen.
        dry_run: Option<bool>,
    }
    RetryQuery {
        /// A cap on attempts.
        max_retries: i32,
    }
    ReadyJobsQuery {
        scheduler_config_id: Option<i64>,
    }
}

impl PageQuery {
    pub fn view(&self) -> ListView<'_> {
        ListView::new(self.offset, self.limit, None, None)
    }
}

impl ListSlurmStats {
    pub fn view(&self) -> ListView<'_> {
        ListView::new(self.offset, self.limit, None, None)
    }
}

/// Which pending actions; the parameter may stand more than once.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PendingActionsQuery {
    #[param(value_type = Option<Vec<String>>)]
    #[serde(default)]
    pub trigger_type: Vec<String>,
}
