//! Statements for workers, permissions, and single parts of workflows, for both SQLite and PostgreSQL.

super::statements! {
    // ---- workers ----

    INSERT_WORKER = "
        INSERT INTO worker (kind, workflow_id, run_id, user_name, version, labels, host, boot_id, pid,
            pid_start_ticks,
            token, secret_hash, ledger_path, cpus, memory_bytes, gpus, nodes, max_jobs, allocation_id,
                extra, started_at,
            site)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
        RETURNING id";
    UPDATE_WORKER = "
        UPDATE worker SET host = $1, boot_id = $2, pid = $3, pid_start_ticks = $4, version = $5, labels =
            $6, cpus = $7,
            memory_bytes = $8, gpus = $9, nodes = $10, max_jobs = $11, secret_hash = $12, allocation_id =
                $13, extra = $14,
            is_draining = $15, started_at = $16, ended_at = $17, site = $18
        WHERE id = $19";
    RETIRE_WORKER = "UPDATE worker SET ended_at = $1 WHERE id = $2 AND ended_at IS NULL";
    DELETE_WORKER = "UPDATE worker SET is_deleted = 1, ended_at = COALESCE(ended_at, $1) WHERE id = $2";
    /// Conditions, order, limit and offset are appended.
    SELECT_WORKERS = "
        SELECT w.id, w.kind, w.workflow_id, w.run_id, w.user_name, w.version, w.labels, w.host, w.boot_id, w.pid,
            w.pid_start_ticks, w.token, w.secret_hash, w.ledger_path, w.cpus, w.memory_bytes, w.gpus,
                w.nodes, w.max_jobs,
            w.allocation_id, w.extra, w.started_at, w.ended_at, w.is_draining, w.site
        FROM worker w WHERE ";
    SELECT_COUNT_OF_WORKERS = "SELECT COUNT(*) FROM worker w WHERE ";
    ACTIVE_WORKERS_OF = "
        SELECT w.id, w.kind, w.workflow_id, w.run_id, w.user_name, w.version, w.labels, w.host, w.boot_id, w.pid,
            w.pid_start_ticks, w.token, w.secret_hash, w.ledger_path, w.cpus, w.memory_bytes, w.gpus,
                w.nodes, w.max_jobs,
            w.allocation_id, w.extra, w.started_at, w.ended_at, w.is_draining, w.site
        FROM worker w WHERE w.workflow_id = $1 AND w.ended_at IS NULL ORDER BY w.id";
    /// A job held by a worker, of any workflow. Literally the condition of the index, so that only the few
    /// active or failed jobs are read.
    JOB_HELD_BY = "
        SELECT id, name FROM job
        WHERE status >= 3 AND status <> 5 AND status <> 9 AND status <= 4 AND worker_id = $1
        LIMIT 1";
    OPEN_RUNS = "
        SELECT r.workflow_id FROM run r CROSS JOIN workflow w
        WHERE r.ended_at IS NULL AND w.id = r.workflow_id AND w.run_id = r.run_id AND w.is_archived = 0
        ORDER BY r.workflow_id";

    // ---- node quarantine ----

    QUARANTINED_NODES = "
        SELECT host, since, until, set_by, reason, evidence, user_name FROM quarantined_node ORDER BY host,
            user_name";
    QUARANTINE_NODE = "
        INSERT INTO quarantined_node (host, since, until, set_by, reason, evidence, user_name)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (host, user_name) DO UPDATE SET since = excluded.since, until = excluded.until, set_by
            = excluded.set_by,
            reason = excluded.reason, evidence = excluded.evidence";
    RELEASE_QUARANTINED_NODE = "
        DELETE FROM quarantined_node WHERE host = $1 AND (CAST($2 AS TEXT) IS NULL OR user_name = $2)";

    // ---- permissions ----

    INSERT_GROUP = "
        INSERT INTO access_group (name, description, created_at) VALUES ($1, $2, $3) RETURNING id";
    SELECT_GROUPS = "SELECT g.id, g.name, g.description, g.created_at FROM access_group g WHERE ";
    DELETE_GROUP = "DELETE FROM access_group WHERE id = $1";
    DELETE_MEMBERS = "DELETE FROM group_member WHERE group_id = $1";
    UNSHARE_ALL = "DELETE FROM workflow_group WHERE group_id = $1";
    INSERT_MEMBER = "
        INSERT INTO group_member (group_id, user_name, role, created_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (group_id, user_name) DO UPDATE SET role = excluded.role
        RETURNING id, group_id, user_name, role, created_at";
    DELETE_MEMBER = "DELETE FROM group_member WHERE group_id = $1 AND user_name = $2";
    MEMBERS = "
        SELECT id, group_id, user_name, role, created_at FROM group_member WHERE group_id = $1 ORDER BY user_name";
    GROUPS_OF_USER = "
        SELECT g.id, g.name, g.description, g.created_at, m.id, m.group_id, m.user_name, m.role, m.created_at
        FROM group_member m JOIN access_group g ON g.id = m.group_id WHERE m.user_name = $1 ORDER BY g.id";
    SHARE = "
        INSERT INTO workflow_group (workflow_id, group_id, created_at) VALUES ($1, $2, $3)
        ON CONFLICT (workflow_id, group_id) DO NOTHING";
    SHARED_SINCE = "SELECT created_at FROM workflow_group WHERE workflow_id = $1 AND group_id = $2";
    UNSHARE = "DELETE FROM workflow_group WHERE workflow_id = $1 AND group_id = $2";
    GROUPS_SHARING = "
        SELECT g.id, g.name, g.description, g.created_at
        FROM workflow_group s JOIN access_group g ON g.id = s.group_id WHERE s.workflow_id = $1 ORDER BY g.id";
    SHARED_WITH = "
        SELECT 1 FROM workflow_group s JOIN group_member m ON m.group_id = s.group_id
        WHERE s.workflow_id = $1 AND m.user_name = $2 LIMIT 1";
    INSERT_TOKEN = "
        INSERT INTO api_token (hash, name, user_name, role, scopes, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    SELECT_TOKENS = "
        SELECT t.id, t.name, t.user_name, t.role, t.scopes, t.created_at, t.expires_at, t.last_used_at, t.revoked_at
        FROM api_token t WHERE ";
    REVOKE_TOKEN = "
        UPDATE api_token SET revoked_at = COALESCE(revoked_at, $1) WHERE id = $2 RETURNING name, user_name";
    RECORD_TOKEN_USE = "UPDATE api_token SET last_used_at = $1 WHERE id = $2";

    // ---- the workflow of a part ----

    OWNER_OF_JOB = "SELECT workflow_id FROM job WHERE id = $1";
    OWNER_OF_FILE = "SELECT workflow_id FROM file WHERE id = $1";
    OWNER_OF_USER_DATA = "SELECT workflow_id FROM user_data WHERE id = $1";
    OWNER_OF_RESULT = "SELECT j.workflow_id FROM result r JOIN job j ON j.id = r.job_id WHERE r.id = $1";
    OWNER_OF_REQUIREMENTS = "SELECT workflow_id FROM resource_requirements WHERE id = $1";
    OWNER_OF_HANDLER = "SELECT workflow_id FROM failure_handler WHERE id = $1";
    OWNER_OF_SCHEDULER = "SELECT workflow_id FROM slurm_scheduler WHERE id = $1";
    OWNER_OF_ACTION = "SELECT workflow_id FROM action WHERE id = $1";
    OWNER_OF_EVENT = "SELECT workflow_id FROM event WHERE id = $1";
    OWNER_OF_WORKER = "SELECT workflow_id FROM worker WHERE id = $1";
    OWNER_OF_RECORD = "SELECT workflow_id FROM record WHERE id = $1";

    // ---- lists ----

    /// Conditions, order, limit and offset are appended.
    SELECT_WORKFLOWS = "
        SELECT w.id, w.uuid, w.name, w.user_name, w.description, w.created_at, w.run_id, w.is_canceled,
            w.submission_dir, w.output_dir, w.spec_path, w.spec_digest, w.env, w.stdio_mode,
            w.stdio_delete_on_success, r.started_at, r.ended_at, w.is_archived, w.settings, w.file_count
        FROM workflow w LEFT JOIN run r ON r.workflow_id = w.id AND r.run_id = w.run_id
        WHERE ";
    SELECT_COUNT_OF_WORKFLOWS = "SELECT COUNT(*) FROM workflow w WHERE ";
    SELECT_COUNT_OF_FILES = "SELECT COUNT(*) FROM file f WHERE ";
    SELECT_COUNT_OF_USER_DATA = "SELECT COUNT(*) FROM user_data u WHERE ";
    SELECT_COUNT_OF_EVENTS = "SELECT COUNT(*) FROM event e WHERE ";
    /// Direct dependencies and those through dependency groups, without duplicates.
    DEPENDENCIES = "
        SELECT d.job_id, j.name, d.depends_on, o.name
        FROM (
            SELECT e.job_id AS job_id, e.depends_on AS depends_on FROM job_edge e WHERE e.workflow_id = $1
            UNION
            SELECT g.job_id, m.job_id FROM job_dependency_group g
                JOIN dependency_group_member m ON m.workflow_id = g.workflow_id AND m.group_number = g.group_number
                WHERE g.workflow_id = $1
            ORDER BY 1, 2 LIMIT $2 OFFSET $3
        ) d CROSS JOIN job j CROSS JOIN job o
        WHERE j.id = d.job_id AND o.id = d.depends_on
        ORDER BY d.job_id, d.depends_on";
    COUNT_DEPENDENCIES = "
        SELECT COUNT(*) FROM (
            SELECT e.job_id, e.depends_on FROM job_edge e WHERE e.workflow_id = $1
            UNION
            SELECT g.job_id, m.job_id FROM job_dependency_group g
                JOIN dependency_group_member m ON m.workflow_id = g.workflow_id AND m.group_number = g.group_number
                WHERE g.workflow_id = $1
        ) d";
    READY_REQUIREMENTS = "
        SELECT j.requirements_id, j.job_group_id, COUNT(*)
        FROM job_block b CROSS JOIN job j
        WHERE b.workflow_id = $1 AND j.id >= b.first_job_id AND j.id < b.first_job_id + b.job_count AND j.status = 2
        GROUP BY j.requirements_id, j.job_group_id
        ORDER BY j.requirements_id NULLS FIRST, j.job_group_id NULLS FIRST";
    SCHEDULERS_OF_GROUPS = "SELECT id, scheduler_id FROM job_group WHERE workflow_id = $1";
    WORK_DONE = "
        SELECT CASE WHEN SUM(CAST(r.wall_us AS DOUBLE PRECISION)) >= 9e18 THEN 9000000000000000000
            ELSE CAST(SUM(CAST(r.wall_us AS DOUBLE PRECISION)) AS BIGINT) END, MIN(r.started_at), MAX(r.ended_at)
        FROM job_block b CROSS JOIN result r
        WHERE b.workflow_id = $1 AND r.job_id >= b.first_job_id AND r.job_id < b.first_job_id + b.job_count";
    COMPLETED_JOBS = "
        SELECT j.id FROM job_block b CROSS JOIN job j
        WHERE b.workflow_id = $1 AND j.id >= b.first_job_id AND j.id < b.first_job_id + b.job_count AND j.status = 5
        ORDER BY b.first_job_id, j.id";
    MISSING_DATA = "SELECT id FROM user_data WHERE workflow_id = $1 AND data IS NULL ORDER BY id";

    // ---- single parts ----

    CLEAR_EPHEMERAL = "
        UPDATE user_data SET data = NULL, changed_at = $1
        WHERE workflow_id = $2 AND is_ephemeral = 1 AND data IS NOT NULL";
    UPDATE_USER_DATA = "
        UPDATE user_data SET name = $1, data = $2, is_ephemeral = $3, changed_at = $4 WHERE id = $5";
    UPDATE_SETTINGS = "UPDATE workflow SET settings = $1, env = $2, submission_dir = $3 WHERE id = $4";
    UPDATE_HANDLER = "UPDATE failure_handler SET name = $1, rules = $2 WHERE id = $3";
    NAME_OF_HANDLER = "SELECT name FROM failure_handler WHERE id = $1";
    DELETE_HANDLER = "DELETE FROM failure_handler WHERE id = $1";
    USER_OF_HANDLER = "
        SELECT j.id, j.name FROM job_block b CROSS JOIN job j JOIN job_group k ON k.id = j.job_group_id
        WHERE b.workflow_id = $1 AND j.id >= b.first_job_id AND j.id < b.first_job_id + b.job_count
            AND k.failure_handler_id = $2
        LIMIT 1";
    CLEAR_HANDLER = "
        UPDATE job_group SET failure_handler_id = NULL WHERE workflow_id = $1 AND failure_handler_id = $2";
    UPDATE_SCHEDULER = "UPDATE slurm_scheduler SET name = $1, settings = $2 WHERE id = $3";
    NAME_OF_SCHEDULER = "SELECT name FROM slurm_scheduler WHERE id = $1";
    DELETE_SCHEDULER = "DELETE FROM slurm_scheduler WHERE id = $1";
    USER_OF_SCHEDULER = "
        SELECT j.id, j.name FROM job_block b CROSS JOIN job j JOIN job_group k ON k.id = j.job_group_id
        WHERE b.workflow_id = $1 AND j.id >= b.first_job_id AND j.id < b.first_job_id + b.job_count
            AND k.scheduler_id = $2
        LIMIT 1";
    CLEAR_SCHEDULER = "UPDATE job_group SET scheduler_id = NULL WHERE workflow_id = $1 AND scheduler_id = $2";
    ADD_USER_DATA_RELATION = "
        INSERT INTO job_user_data (job_id, is_output, user_data_id) VALUES ($1, $2, $3)";
    ADD_ACTION_JOB = "INSERT INTO action_job (action_id, job_id) VALUES ($1, $2)";
    MARK_RECOVERY = "UPDATE action SET is_recovery = 1 WHERE id = $1";
    UPDATE_ACTION = "UPDATE action SET settings = $1, is_recovery = $2 WHERE id = $3";
    DELETE_ACTION_JOBS = "DELETE FROM action_job WHERE action_id = $1";
    DELETE_ACTION_RUNS = "DELETE FROM action_run WHERE action_id = $1";
    DELETE_ACTION = "DELETE FROM action WHERE id = $1";
    TRIGGER_ACTION = "
        UPDATE action SET trigger_count = $1 WHERE id = $2 AND workflow_id = $3 AND trigger_count = $4";
    START_ACTION = "
        INSERT INTO action_run (action_id, attempt, run_id, worker_id, cause, started_at, ended_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (action_id, attempt) DO NOTHING";
    WITHDRAW_ACTION = "DELETE FROM action_run WHERE action_id = $1 AND attempt = $2 AND ended_at IS NULL";
    END_ACTION = "
        UPDATE action_run SET ended_at = $1, return_code = $2, message = $3
        WHERE action_id = $4 AND attempt = $5 AND ended_at IS NULL";
    RESET_ACTION = "UPDATE action SET trigger_count = 0 WHERE id = $1";
    /// Earlier executions no longer count.
    REARM_ACTION = "
        UPDATE action SET armed_after = (SELECT COALESCE(MAX(attempt), 0) FROM action_run WHERE action_id = $1)
        WHERE id = $1";
    RUNS_OF_ACTION = "
        SELECT action_id, attempt, run_id, worker_id, cause, started_at, ended_at, return_code, message
        FROM action_run WHERE action_id = $1 ORDER BY attempt";
    ACTION_RUNS = "
        SELECT r.action_id, r.attempt, r.run_id, r.worker_id, r.cause, r.started_at, r.ended_at,
            r.return_code, r.message
        FROM action a CROSS JOIN action_run r
        WHERE a.workflow_id = $1 AND r.action_id = a.id ORDER BY a.id, r.attempt";

    INSERT_CLIENT_RESULT = "
        INSERT INTO result (job_id, run_id, attempt_id, worker_id, status, return_code, out_of_memory,
            ended_at, wall_us,
            cpu_time_us, peak_memory_bytes, avg_memory_bytes, peak_cpu_percent, avg_cpu_percent)
        VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, 0, $9, $10, $11, $12)
        RETURNING id";
    UPDATE_RESULT = "
        UPDATE result SET job_id = $1, run_id = $2, attempt_id = $3, worker_id = $4, status = $5, return_code = $6,
            ended_at = $7, wall_us = $8, peak_memory_bytes = $9, avg_memory_bytes = $10, peak_cpu_percent = $11,
            avg_cpu_percent = $12
        WHERE id = $13";
    DELETE_RESULTS = "DELETE FROM result WHERE job_id >= $1 AND job_id < $2";
    UPDATE_EVENT = "UPDATE event SET data = $1 WHERE id = $2 AND message = '' AND job_id IS NULL";
    DELETE_EVENTS = "DELETE FROM event WHERE workflow_id = $1 AND message = '' AND job_id IS NULL";

    INSERT_RECORD = "
        INSERT INTO record (workflow_id, kind, name, data, created_at, changed_at) VALUES ($1, $2, $3, $4, $5, $6)
        RETURNING id";
    SELECT_RECORDS = "
        SELECT r.id, r.workflow_id, r.kind, r.name, r.data, r.created_at, r.changed_at FROM record r WHERE ";
    UPDATE_RECORD = "UPDATE record SET data = $1, changed_at = $2 WHERE id = $3";
    DELETE_RECORD = "DELETE FROM record WHERE id = $1";
    DELETE_RECORDS = "DELETE FROM record WHERE workflow_id = $1 AND kind = $2";
}

/// Inserts `rows` events of jobs: `$1` is the workflow, `$2` the time, `$3` the actor, followed by the values
/// of each.
pub(crate) fn insert_job_events(rows: usize) -> String {
    const WIDTH: usize = 7;
    let row = |n: usize| {
        let values: Vec<String> = (4 + WIDTH * n..4 + WIDTH * (n + 1)).map(|p| format!("${p}")).collect();
        format!("($1, $2, $3, '', {})", values.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!(
        "INSERT INTO event (workflow_id, at, actor, message, severity, category, job_id, run_id,
            attempt_id, worker_id,
            return_code)
        VALUES {}",
        rows.join(", ")
    )
}
