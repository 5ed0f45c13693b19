//! Tables for bulk loading, and the columns that are loaded.

use crate::db::BulkTable;

pub(crate) const JOB_EDGE: BulkTable =
    BulkTable { name: "job_edge", columns: &["workflow_id", "job_id", "depends_on"] };
pub(crate) const DEPENDENCY_GROUP_MEMBER: BulkTable =
    BulkTable { name: "dependency_group_member", columns: &["workflow_id", "group_number", "job_id"] };
pub(crate) const JOB_DEPENDENCY_GROUP: BulkTable =
    BulkTable { name: "job_dependency_group", columns: &["workflow_id", "job_id", "group_number"] };
pub(crate) const JOB_FILE: BulkTable =
    BulkTable { name: "job_file", columns: &["job_id", "is_output", "file_id"] };
pub(crate) const JOB_USER_DATA: BulkTable =
    BulkTable { name: "job_user_data", columns: &["job_id", "is_output", "user_data_id"] };
pub(crate) const ACTION_JOB: BulkTable = BulkTable { name: "action_job", columns: &["action_id", "job_id"] };
pub(crate) const UNIT: BulkTable =
    BulkTable { name: "unit", columns: &["workflow_id", "number", "status", "ended_at", "run_id", "seq"] };
pub(crate) const UNIT_JOBS: BulkTable =
    BulkTable { name: "unit_jobs", columns: &["workflow_id", "first_job_id", "job_count", "number"] };
pub(crate) const FILE: BulkTable =
    BulkTable { name: "file", columns: &["id", "workflow_id", "name", "path", "identifier", "mtime_ns"] };
pub(crate) const USER_DATA: BulkTable = BulkTable {
    name: "user_data",
    columns: &["id", "workflow_id", "name", "data", "is_ephemeral", "changed_at"],
};
pub(crate) const RESULT: BulkTable = BulkTable {
    name: "result",
    columns: &[
        "job_id",
        "run_id",
        "attempt_id",
        "worker_id",
        "status",
        "return_code",
        "exit_code",
        "signal",
        "out_of_memory",
        "started_at",
        "ended_at",
        "wall_us",
        "cpu_time_us",
        "peak_memory_bytes",
        "avg_memory_bytes",
        "peak_cpu_percent",
        "avg_cpu_percent",
        "reason",
        "files",
    ],
};
