//! Statements for both SQLite and PostgreSQL. Job states are the numbers of the contract.

super::statements! {
    // ---- creating a workflow ----

    NEXT_ID = "SELECT next_value FROM counter WHERE name = $1";
    SET_NEXT_ID = "UPDATE counter SET next_value = $1 WHERE name = $2";
    INSERT_WORKFLOW = "
        INSERT INTO workflow (uuid, name, user_name, description, created_at, submission_dir, output_dir, spec_path,
            spec_digest, env, stdio_mode, stdio_delete_on_success, settings, file_count)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0)
        RETURNING id";
    INSERT_HANDLER = "
        INSERT INTO failure_handler (workflow_id, name, rules) VALUES ($1, $2, $3) RETURNING id";
    INSERT_SCHEDULER = "
        INSERT INTO slurm_scheduler (workflow_id, name, settings) VALUES ($1, $2, $3) RETURNING id";
    INSERT_JOB_GROUP = "
        INSERT INTO job_group (workflow_id, name, env, invocation_script, stdio_mode, stdio_delete_on_success,
            supports_termination, failure_handler_id, scheduler_id, labels, parameters, sites, limit_name,
                elects_site)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        RETURNING id";
    INSERT_ACTION = "INSERT INTO action (workflow_id, settings) VALUES ($1, $2) RETURNING id";
    INSERT_FILE = "
        INSERT INTO file (id, workflow_id, name, path, identifier, mtime_ns) VALUES ($1, $2, $3, $4, $5, $6)";
    ADD_FILE_COUNT = "UPDATE workflow SET file_count = file_count + $1 WHERE id = $2";
    INSERT_USER_DATA = "
        INSERT INTO user_data (id, workflow_id, name, data, is_ephemeral, changed_at)
        VALUES ($1, $2, $3, $4, $5, $6)";
    INSERT_REQUIREMENTS = "
        INSERT INTO resource_requirements (workflow_id, name, cpus, memory_bytes, gpus, nodes, runtime_us)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        RETURNING id";
    /// The first id of the block.
    INSERT_FIRST_JOB = "
        INSERT INTO job (workflow_id, status, priority, cancel_on_blocking_job_failure, requirements_id,
            name, command,
            job_group_id, has_files, reused_from, invocation_script, env, params, reused_work, options, id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
    INSERT_JOB_BLOCK = "INSERT INTO job_block (workflow_id, first_job_id, job_count) VALUES ($1, $2, $3)";
    JOB_NAMED = "SELECT id FROM job WHERE workflow_id = $1 AND name = $2";
    ADD_EDGE = "
        INSERT INTO job_edge (workflow_id, job_id, depends_on) VALUES ($1, $2, $3)
        ON CONFLICT (workflow_id, job_id, depends_on) DO NOTHING";
    INSERT_COUNT = "INSERT INTO status_count (workflow_id, status, n) VALUES ($1, $2, $3)";

    // ---- changes, one job each; a row in an unexpected state is not affected ----

    IS_CURRENT_RUN = "SELECT 1 FROM workflow WHERE id = $1 AND run_id = $2";
    CURRENT_RUN = "SELECT run_id FROM workflow WHERE id = $1";
    SET_STATUS = "UPDATE job SET status = $1 WHERE id = $2 AND workflow_id = $3 AND status = $4";
    CLAIM_JOB = "
        UPDATE job SET status = 3, worker_id = $1
        WHERE id = $2 AND workflow_id = $3 AND status = 2 AND attempt_id = $4";
    START_JOB = "
        UPDATE job SET status = 4, started_at = $1, pid = $2
        WHERE id = $3 AND workflow_id = $4 AND status = 3 AND attempt_id = $5 AND worker_id = $6";
    END_ATTEMPT = "
        UPDATE job SET status = $1, attempt_id = $2, orphaned_attempts = orphaned_attempts + $3,
            worker_id = NULL, pid = NULL, started_at = NULL
        WHERE id = $4 AND workflow_id = $5 AND status = $6 AND attempt_id = $7 AND worker_id = $8";
    TRANSFER_CLAIM = "
        UPDATE job SET worker_id = $1 WHERE id = $2 AND workflow_id = $3 AND status = 3 AND worker_id = $4";
    RETRY_JOB = "
        UPDATE job SET status = 2, attempt_id = $1, origin = COALESCE(origin, 'retry')
        WHERE id = $2 AND workflow_id = $3 AND status = $4 AND attempt_id = $5";
    MARK_RETRIED = "UPDATE job SET origin = COALESCE(origin, 'retry') WHERE id = $1";
    RELEASE_CLAIM = "
        UPDATE job SET status = 2, worker_id = NULL
        WHERE id = $1 AND workflow_id = $2 AND status = 3 AND worker_id = $3";
    /// Restarts within the same run.
    RESET_JOB_IN_RUN = "
        UPDATE job SET status = 0, attempt_id = $1, reused_from = NULL, reused_work = NULL, done_with = NULL
        WHERE id = $2 AND workflow_id = $3 AND status = $4";
    INSERT_RESULT = "
        INSERT INTO result (job_id, run_id, attempt_id, worker_id, status, return_code, exit_code, signal,
            out_of_memory,
            started_at, ended_at, wall_us, cpu_time_us, peak_memory_bytes, avg_memory_bytes, peak_cpu_percent,
            avg_cpu_percent, reason, files, recovered)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)";
    INSERT_FAILURE = "
        INSERT INTO failure (job_id, run_id, attempt_id, workflow_id, class, rule, signature, message,
            line, log_excerpt,
            retry_decision, decision_reason, seq)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
            (SELECT COALESCE(MAX(f.seq), 0) + 1 FROM failure f WHERE f.workflow_id = $4 AND f.seq IS NOT NULL))";
    /// Everything that the next attempt of a job inherits.
    SAVE_NEXT_ATTEMPT = "
        INSERT INTO next_attempt (job_id, workflow_id, run_id, not_before, recovery, uncounted_retries, delay_us)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (job_id) DO UPDATE SET run_id = excluded.run_id, not_before = excluded.not_before,
            delay_us = excluded.delay_us, recovery = excluded.recovery, uncounted_retries =
                excluded.uncounted_retries";
    /// A set with the same name has the same values, because the name contains them.
    ADD_REQUIREMENTS_IF_MISSING = "
        INSERT INTO resource_requirements (workflow_id, name, cpus, memory_bytes, gpus, nodes, runtime_us)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (workflow_id, name) DO UPDATE SET name = excluded.name";
    SET_JOB_REQUIREMENTS_BY_NAME = "
        UPDATE job SET requirements_id = (SELECT id FROM resource_requirements WHERE workflow_id = $1 AND name = $2)
        WHERE id = $3";
    GROUP_OF_JOB = "SELECT job_group_id FROM job WHERE id = $1";
    SET_JOB_GROUP = "UPDATE job SET job_group_id = $1 WHERE id = $2";
    SET_JOB_REQUIREMENTS = "UPDATE job SET requirements_id = $1 WHERE id = $2";
    IGNORE_FAILURE = "
        INSERT INTO ignored_failure (job_id, workflow_id, run_id, attempt_id) VALUES ($1, $2, $3, $4)
        ON CONFLICT (job_id) DO UPDATE SET run_id = excluded.run_id, attempt_id = excluded.attempt_id";
    INSERT_DECISION = "
        INSERT INTO decision (workflow_id, job_id, run_id, attempt_id, made_at, made_by, is_agent, command,
            confidence,
            reason, evidence, changes, state)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    SETTLE_DECISION = "
        UPDATE decision SET state = $1, reviewed_by = $2, reviewed_at = $3
        WHERE id = $4 AND workflow_id = $5 AND state = 'proposed' AND superseded_at IS NULL";
    /// Proposals about failures that are no longer open. $3: `pending_failed`.
    CLOSE_OVERTAKEN_PROPOSALS = "
        UPDATE decision SET superseded_at = $1
        WHERE workflow_id = $2 AND state = 'proposed' AND superseded_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM job j JOIN workflow w ON w.id = j.workflow_id
            WHERE j.id = decision.job_id AND j.status = $3 AND j.attempt_id = decision.attempt_id
                AND w.run_id = decision.run_id)";
    FIND_SAME_PROPOSAL = "
        SELECT confidence FROM decision
        WHERE job_id = $1 AND run_id = $2 AND attempt_id = $3 AND made_by = $4 AND command = $5 AND changes = $6
            AND state = 'proposed' AND superseded_at IS NULL";
    /// Earlier proposals of an author who makes another one.
    CLOSE_EARLIER_PROPOSALS = "
        UPDATE decision SET superseded_at = $1
        WHERE job_id = $2 AND made_by = $3 AND state = 'proposed' AND superseded_at IS NULL";
    REVISE_JOB = "
        UPDATE job SET command = COALESCE($1, command), priority = COALESCE($2, priority)
        WHERE id = $3 AND workflow_id = $4 AND status = $5 AND worker_id IS NULL";
    INSERT_REVISION = "
        INSERT INTO revision (batch, workflow_id, job_id, made_at, made_by, reason, before, after, attempts)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, (SELECT COUNT(*) FROM result e WHERE e.job_id = $3))";
    FILES_OF_JOB = "SELECT file_id, is_output FROM job_file WHERE job_id = $1 ORDER BY is_output, file_id";
    RECORD_FILE_STATE = "UPDATE file SET mtime_ns = $1, size_bytes = $2 WHERE id = $3";
    ADD_COUNT = "UPDATE status_count SET n = n + $1 WHERE workflow_id = $2 AND status = $3";
    /// For reporting the actual state in a conflict.
    JOB_STATE = "SELECT status, attempt_id FROM job WHERE id = $1 AND workflow_id = $2";

    // ---- work units ----

    INSERT_UNIT_COUNT = "INSERT INTO unit_count (workflow_id, status, n) VALUES ($1, $2, $3)";
    ADD_UNIT_COUNT = "UPDATE unit_count SET n = n + $1 WHERE workflow_id = $2 AND status = $3";
    CHANGE_UNIT = "
        UPDATE unit SET status = $1, site = $2, ended_at = $3, run_id = $4,
            seq = (SELECT MAX(seq) + 1 FROM unit WHERE workflow_id = $5)
        WHERE workflow_id = $5 AND number = $6 AND status = $7";
    CANCEL_UNITS = "
        UPDATE unit SET status = 'canceled', ended_at = $1, run_id = $2,
            seq = (SELECT MAX(seq) + 1 FROM unit WHERE workflow_id = $3)
        WHERE workflow_id = $3 AND ended_at IS NULL";
    EMPTY_OPEN_UNIT_COUNTS = "
        UPDATE unit_count SET n = 0 WHERE workflow_id = $1 AND status IN ('waiting', 'active')";
    UNITS = "
        SELECT number, site, status, ended_at, run_id, seq FROM unit
        WHERE workflow_id = $1 AND seq > $2 ORDER BY seq, number";
    UNIT_COUNTS = "SELECT status, n FROM unit_count WHERE workflow_id = $1";
    /// Adds to the number of ended attempts at a site.
    ADD_SITE_COUNT = "
        INSERT INTO site_count (workflow_id, site, handler, n) VALUES ($1, $2, $3, $4)
        ON CONFLICT (workflow_id, site, handler) DO UPDATE SET n = site_count.n + excluded.n";
    SITE_COUNTS = "SELECT site, handler, n FROM site_count WHERE workflow_id = $1 ORDER BY site, handler";
    UNIT_JOBS = "
        SELECT first_job_id, job_count, number FROM unit_jobs WHERE workflow_id = $1 ORDER BY first_job_id";

    // ---- runs ----

    BEGIN_RUN = "
        INSERT INTO run (workflow_id, run_id, started_at)
        SELECT id, run_id, $1 FROM workflow WHERE id = $2
        ON CONFLICT (workflow_id, run_id) DO UPDATE SET ended_at = NULL";
    END_RUN = "
        UPDATE run SET ended_at = $1
        WHERE workflow_id = $2 AND run_id = (SELECT run_id FROM workflow WHERE id = $2)";
    ADVANCE_RUN = "
        UPDATE workflow SET run_id = run_id + 1, is_canceled = 0, cancel_requested_at = NULL WHERE id = $1
        RETURNING run_id";
    RESET_JOB = "
        UPDATE job SET status = 0, attempt_id = 1, orphaned_attempts = 0, reused_from = NULL, reused_work = NULL,
            done_with = NULL
        WHERE id = $1 AND workflow_id = $2 AND status = $3";
    /// Also resets the counters of interrupted jobs that wait for another attempt.
    RESET_ATTEMPTS = "
        UPDATE job SET attempt_id = 1, orphaned_attempts = 0
        WHERE id >= $1 AND id < $2 AND status < 3 AND attempt_id > 1";
    REQUEST_CANCEL = "
        UPDATE workflow SET cancel_requested_at = COALESCE(cancel_requested_at, $1) WHERE id = $2";
    CANCEL_REQUESTED = "SELECT cancel_requested_at IS NOT NULL FROM workflow WHERE id = $1";
    END_CANCEL_REQUEST = "UPDATE workflow SET is_canceled = $1, cancel_requested_at = NULL WHERE id = $2";

    // ---- reading workflows ----

    WORKFLOWS = "
        SELECT w.id, w.uuid, w.name, w.user_name, w.description, w.created_at, w.run_id, w.is_canceled,
            w.submission_dir, w.output_dir, w.spec_path, w.spec_digest, w.env, w.stdio_mode,
            w.stdio_delete_on_success, r.started_at, r.ended_at, w.is_archived, w.settings, w.file_count
        FROM workflow w LEFT JOIN run r ON r.workflow_id = w.id AND r.run_id = w.run_id
        ORDER BY w.id";
    WORKFLOW = "
        SELECT w.id, w.uuid, w.name, w.user_name, w.description, w.created_at, w.run_id, w.is_canceled,
            w.submission_dir, w.output_dir, w.spec_path, w.spec_digest, w.env, w.stdio_mode,
            w.stdio_delete_on_success, r.started_at, r.ended_at, w.is_archived, w.settings, w.file_count
        FROM workflow w LEFT JOIN run r ON r.workflow_id = w.id AND r.run_id = w.run_id
        WHERE w.id = $1";
    NEWEST_BY_DIGEST = "SELECT MAX(id) FROM workflow WHERE spec_digest = $1 AND submission_dir = $2";
    COUNTS = "SELECT status, n FROM status_count WHERE workflow_id = $1";
    JOB_BLOCKS = "SELECT first_job_id, job_count FROM job_block WHERE workflow_id = $1 ORDER BY first_job_id";
    SETTINGS = "SELECT settings FROM workflow WHERE id = $1";

    // ---- reading jobs ----

    LOAD_REQUIREMENTS = "
        SELECT id, cpus, memory_bytes, gpus, nodes, runtime_us
        FROM resource_requirements WHERE workflow_id = $1 ORDER BY id";
    LOAD_JOBS = "
        SELECT status, attempt_id, priority, cancel_on_blocking_job_failure, requirements_id, job_group_id
        FROM job WHERE id >= $1 AND id < $2 ORDER BY id";
    LOAD_JOB_LOCATIONS = "
        SELECT id, labels, scheduler_id, sites, limit_name, elects_site FROM job_group WHERE workflow_id =
            $1 ORDER BY id";
    LOAD_GROUPS_WITH_HANDLER = "
        SELECT id, failure_handler_id FROM job_group
        WHERE workflow_id = $1 AND failure_handler_id IS NOT NULL ORDER BY id";
    LOAD_NEXT_ATTEMPTS = "
        SELECT c.job_id, j.status, c.not_before, c.recovery, c.uncounted_retries, c.delay_us
        FROM next_attempt c JOIN job j ON j.id = c.job_id
        WHERE c.workflow_id = $1 AND c.run_id = $2 ORDER BY c.job_id";
    COUNT_RETRIES = "
        SELECT COUNT(*) FROM failure WHERE workflow_id = $1 AND run_id = $2 AND retry_decision = 'retry'";
    LOAD_EDGES = "SELECT job_id, depends_on FROM job_edge WHERE workflow_id = $1 ORDER BY job_id, depends_on";
    LOAD_DEPENDENCY_GROUP_MEMBERS = "
        SELECT group_number, job_id FROM dependency_group_member WHERE workflow_id = $1 ORDER BY
            group_number, job_id";
    LOAD_JOB_DEPENDENCY_GROUPS = "
        SELECT job_id, group_number FROM job_dependency_group WHERE workflow_id = $1 ORDER BY job_id,
            group_number";
    JOB_COMMAND = "
        SELECT name, command, env, job_group_id, has_files, invocation_script, params, workflow_id FROM job
            WHERE id = $1";
    PATHS_OF_JOB = "
        SELECT r.is_output, f.id, f.path FROM job_file r JOIN file f ON f.id = r.file_id
        WHERE r.job_id = $1 ORDER BY r.is_output, r.file_id";
    JOB_GROUP = "
        SELECT env, invocation_script, stdio_mode, stdio_delete_on_success FROM job_group WHERE id = $1";
    JOB_NAME = "SELECT name FROM job WHERE id = $1";
    /// The conditions are literally those of the partial index: only then can it be used.
    HELD_JOBS = "
        SELECT id, status, attempt_id, worker_id, pid, started_at
        FROM job
        WHERE workflow_id = $1 AND status >= 3 AND status <= 4 AND status <> 5 AND status <> 9
        ORDER BY id";
    HELD_JOB = "
        SELECT id, status, attempt_id, worker_id, pid, started_at
        FROM job
        WHERE workflow_id = $1 AND id = $2 AND status >= 3 AND status <= 4";

    // ---- reading parts of jobs ----

    REQUIREMENTS = "
        SELECT id, cpus, memory_bytes, gpus, nodes, runtime_us, name
        FROM resource_requirements WHERE workflow_id = $1 ORDER BY id";
    JOB_GROUPS = "
        SELECT k.env, k.invocation_script, k.stdio_mode, k.stdio_delete_on_success, k.id, k.name,
            k.supports_termination, h.name, s.name, k.labels, k.parameters, k.sites, k.limit_name, k.elects_site
        FROM job_group k
        LEFT JOIN failure_handler h ON h.id = k.failure_handler_id
        LEFT JOIN slurm_scheduler s ON s.id = k.scheduler_id
        WHERE k.workflow_id = $1 ORDER BY k.id";
    HANDLERS = "SELECT id, name, rules FROM failure_handler WHERE workflow_id = $1 ORDER BY id";
    SCHEDULERS = "SELECT id, settings FROM slurm_scheduler WHERE workflow_id = $1 ORDER BY id";
    ACTIONS = "
        SELECT id, settings, trigger_count, armed_after, is_recovery FROM action WHERE workflow_id = $1
            ORDER BY id";
    ACTION_JOBS = "SELECT job_id FROM action_job WHERE action_id = $1 ORDER BY job_id";
    JOB_FILES = "
        SELECT r.job_id, r.is_output, r.file_id
        FROM job_block b CROSS JOIN job_file r
        WHERE b.workflow_id = $1 AND r.job_id >= b.first_job_id AND r.job_id < b.first_job_id + b.job_count
        ORDER BY b.first_job_id, r.job_id, r.is_output, r.file_id";
    JOB_USER_DATA = "
        SELECT r.job_id, r.is_output, r.user_data_id
        FROM job_block b CROSS JOIN job_user_data r
        WHERE b.workflow_id = $1 AND r.job_id >= b.first_job_id AND r.job_id < b.first_job_id + b.job_count
        ORDER BY b.first_job_id, r.job_id, r.is_output, r.user_data_id";
    /// Jobs that read and write one file: adding a job requires only these, however many jobs there are.
    JOBS_OF_FILE = "SELECT job_id, is_output FROM job_file WHERE file_id = $1";
    JOBS_OF_USER_DATA = "SELECT job_id, is_output FROM job_user_data WHERE user_data_id = $1";
    /// Conditions, order, limit and offset are appended.
    SELECT_FILES = "
        SELECT f.id, f.workflow_id, f.name, f.path, f.identifier, f.mtime_ns, f.size_bytes FROM file f WHERE ";
    /// Conditions, order, limit and offset are appended.
    SELECT_USER_DATA = "
        SELECT u.id, u.workflow_id, u.name, u.data, u.is_ephemeral, u.changed_at FROM user_data u WHERE ";

    /// For a reused job, the copy made at reuse: later changes of the original are not part of it.
    COMPLETION_RECORDS = "
        SELECT j.id, r.run_id, r.attempt_id, r.started_at, r.ended_at, r.files, j.reused_work, j.done_with
        FROM job_block b CROSS JOIN job j
        LEFT JOIN result r ON j.reused_from IS NULL AND r.id = (
            SELECT n.id FROM result n WHERE n.job_id = j.id AND n.status = 5
            ORDER BY n.run_id DESC, n.attempt_id DESC LIMIT 1)
        WHERE b.workflow_id = $1 AND j.id >= b.first_job_id AND j.id < b.first_job_id + b.job_count AND j.status = 5
            AND (r.id IS NOT NULL OR j.reused_work IS NOT NULL)
        ORDER BY b.first_job_id, j.id";

    // ---- spawned jobs ----

    INSERT_SPAWNED_BLOCK = "
        INSERT INTO job_block (workflow_id, first_job_id, job_count, spawned_by, lineage, iteration,
            digest, requested_in_run,
            requested_in_attempt)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    BLOCK_OF_JOB = "
        SELECT first_job_id, job_count, spawned_by, lineage, iteration, digest, requested_in_run,
            requested_in_attempt FROM job_block
        WHERE workflow_id = $1 AND first_job_id <= $2 ORDER BY first_job_id DESC LIMIT 1";
    BLOCKS_ADDED_BY = "
        SELECT first_job_id, job_count, spawned_by, lineage, iteration, digest, requested_in_run,
            requested_in_attempt FROM job_block
        WHERE workflow_id = $1 AND spawned_by >= $2 AND spawned_by < $3 ORDER BY first_job_id";
    SPAWNING_JOBS = "
        SELECT DISTINCT spawned_by FROM job_block
        WHERE workflow_id = $1 AND spawned_by IS NOT NULL AND is_replaced = 0 ORDER BY spawned_by";
    ITERATIONS = "
        SELECT first_job_id, iteration FROM job_block WHERE workflow_id = $1 AND lineage = $2 AND is_replaced = 0";
    BLOCKS_OF_ITERATION = "
        SELECT COUNT(*) FROM job_block WHERE workflow_id = $1 AND lineage = $2 AND iteration = $3";
    MARK_BLOCK_REQUESTED = "
        UPDATE job_block SET requested_in_run = $1, requested_in_attempt = $2 WHERE workflow_id = $3 AND
            first_job_id = $4";
    REPLACE_BLOCK = "UPDATE job_block SET is_replaced = 1 WHERE workflow_id = $1 AND first_job_id = $2";
    COUNT_DISABLED_JOBS = "SELECT COUNT(*) FROM job WHERE id >= $1 AND id < $2 AND status = 9";
    RENAME_JOB = "UPDATE job SET name = $1 WHERE id = $2";
    USER_DATA_NAMED = "SELECT id FROM user_data WHERE workflow_id = $1 AND name = $2";
    RENAME_USER_DATA = "UPDATE user_data SET name = $1 WHERE id = $2";
    MARK_SPAWNED = "UPDATE job SET origin = 'spawn' WHERE id >= $1 AND id < $2";
    REQUIREMENTS_NAMED = "SELECT id FROM resource_requirements WHERE workflow_id = $1 AND name = $2";
    BLOCKS_AFTER = "SELECT COUNT(*) FROM job_block WHERE workflow_id = $1 AND first_job_id > $2";
    EDGES_AFTER = "
        SELECT job_id, depends_on FROM job_edge WHERE workflow_id = $1 AND job_id > $2 ORDER BY job_id, depends_on";

    // ---- files of workflows ----

    EXPORT_JOBS = "
        SELECT j.id, j.name, j.command, j.status, j.attempt_id, j.priority, j.cancel_on_blocking_job_failure,
            j.requirements_id, j.job_group_id, j.origin, j.invocation_script, j.env, j.params, j.options
        FROM job_block b CROSS JOIN job j
        WHERE b.workflow_id = $1 AND j.id >= b.first_job_id AND j.id < b.first_job_id + b.job_count
        ORDER BY b.first_job_id, j.id";
    EXPORT_RESULTS = "
        SELECT r.job_id, r.run_id, r.attempt_id, r.worker_id, r.status, r.return_code, r.exit_code, r.signal,
            r.out_of_memory, r.started_at, r.ended_at, r.wall_us, r.cpu_time_us, r.peak_memory_bytes,
            r.avg_memory_bytes, r.peak_cpu_percent, r.avg_cpu_percent, r.reason, r.files
        FROM job_block b CROSS JOIN result r
        WHERE b.workflow_id = $1 AND r.job_id >= b.first_job_id AND r.job_id < b.first_job_id + b.job_count
        ORDER BY b.first_job_id, r.job_id, r.run_id, r.attempt_id";
    EXPORT_WORKERS = "
        SELECT id, run_id, host, pid, started_at, ended_at, cpus, memory_bytes, gpus, nodes
        FROM worker WHERE workflow_id = $1 ORDER BY id";
    RUNS = "SELECT run_id, started_at, ended_at FROM run WHERE workflow_id = $1 ORDER BY run_id";
    SPAWNED_BLOCKS = "
        SELECT first_job_id, job_count, spawned_by, lineage, iteration, digest FROM job_block
        WHERE workflow_id = $1 AND spawned_by IS NOT NULL ORDER BY first_job_id";
    SET_RUN = "UPDATE workflow SET run_id = $1, is_canceled = $2 WHERE id = $3";
    INSERT_RUN = "INSERT INTO run (workflow_id, run_id, started_at, ended_at) VALUES ($1, $2, $3, $4)";
    SET_ATTEMPT = "UPDATE job SET attempt_id = $1 WHERE id = $2";
    SET_BLOCK_LENGTH = "UPDATE job_block SET job_count = $1 WHERE workflow_id = $2 AND first_job_id = $3";

    // ---- changes of workflows by users ----

    UPDATE_WORKFLOW = "
        UPDATE workflow SET name = $1, user_name = $2, description = $3, settings = $4 WHERE id = $5";
    ARCHIVE = "UPDATE workflow SET is_archived = $1 WHERE id = $2";
    UPDATE_REQUIREMENTS = "
        UPDATE resource_requirements SET cpus = $1, memory_bytes = $2, gpus = $3, nodes = $4, runtime_us = $5
        WHERE id = $6";
    USE_REQUIREMENTS = "UPDATE job SET requirements_id = $1 WHERE id = $2 AND workflow_id = $3";
    USE_REQUIREMENTS_IN_GROUP = "
        UPDATE job SET requirements_id = $1 WHERE id >= $2 AND id < $3 AND job_group_id = $4";
    CHANGE_PRIORITY = "UPDATE job SET priority = $1 WHERE id >= $2 AND id < $3 AND priority = $4";
    SET_USER_DATA = "UPDATE user_data SET data = $1, changed_at = $2 WHERE id = $3";
    DELETE_USER_DATA_RELATIONS = "
        DELETE FROM job_user_data WHERE job_id >= $1 AND job_id < $2 AND user_data_id = $3";
    DELETE_USER_DATA = "DELETE FROM user_data WHERE id = $1";

    // ---- manual edits ----

    /// The block that the next job id would belong to.
    LAST_BLOCK = "
        SELECT first_job_id, job_count, spawned_by FROM job_block
        WHERE workflow_id = $1 ORDER BY first_job_id DESC LIMIT 1";
    HAS_FILES = "UPDATE job SET has_files = 1 WHERE id = $1";
    FILE_OF = "SELECT 1 FROM file WHERE id = $1 AND workflow_id = $2";
    REQUIREMENTS_OF = "
        SELECT id, cpus, memory_bytes, gpus, nodes, runtime_us, name, workflow_id
        FROM resource_requirements WHERE id = $1";
    EDITED_JOB = "
        SELECT status, name, command, priority, requirements_id, job_group_id, done_with, invocation_script,
            cancel_on_blocking_job_failure
        FROM job WHERE id = $1 AND workflow_id = $2";
    EDIT_JOB = "
        UPDATE job SET name = $1, command = $2, priority = $3, requirements_id = $4, job_group_id = $5, done_with = $6
        WHERE id = $7";
    SHARED_BY_GROUP = "
        SELECT labels, supports_termination, failure_handler_id, scheduler_id FROM job_group WHERE id = $1";
    /// A job group equal to another one except for values that differ by job.
    FIND_SIMILAR_GROUP = "
        SELECT n.id FROM job_group o JOIN job_group n ON n.workflow_id = o.workflow_id
        WHERE o.id = $1 AND n.labels = $2
            AND n.supports_termination IS NOT DISTINCT FROM $3
            AND n.failure_handler_id IS NOT DISTINCT FROM $4
            AND n.scheduler_id IS NOT DISTINCT FROM $5
            AND n.name = o.name AND n.parameters = o.parameters
            AND n.env IS NOT DISTINCT FROM o.env
            AND n.invocation_script IS NOT DISTINCT FROM o.invocation_script
            AND n.stdio_mode IS NOT DISTINCT FROM o.stdio_mode
            AND n.stdio_delete_on_success IS NOT DISTINCT FROM o.stdio_delete_on_success
            AND n.sites IS NOT DISTINCT FROM o.sites
            AND n.limit_name IS NOT DISTINCT FROM o.limit_name AND n.elects_site = o.elects_site
        ORDER BY n.id LIMIT 1";
    COPY_JOB_GROUP = "
        INSERT INTO job_group (workflow_id, name, env, invocation_script, stdio_mode, stdio_delete_on_success,
            labels, supports_termination, failure_handler_id, scheduler_id, parameters, sites, limit_name,
                elects_site)
        SELECT workflow_id, name, env, invocation_script, stdio_mode, stdio_delete_on_success, $1, $2, $3,
            $4, parameters,
            sites, limit_name, elects_site
        FROM job_group WHERE id = $5
        RETURNING id";
    /// The unnamed job group of jobs that were added individually with these values.
    FIND_UNNAMED_GROUP = "
        SELECT id FROM job_group
        WHERE workflow_id = $1 AND name = '' AND labels = $2
            AND supports_termination IS NOT DISTINCT FROM $3
            AND failure_handler_id IS NOT DISTINCT FROM $4
            AND scheduler_id IS NOT DISTINCT FROM $5
            AND stdio_mode IS NOT DISTINCT FROM $6
            AND stdio_delete_on_success IS NOT DISTINCT FROM $7
            AND sites IS NOT DISTINCT FROM $8 AND limit_name IS NOT DISTINCT FROM $9 AND elects_site = 0
        ORDER BY id LIMIT 1";
    /// Requirements with the same values; the block limits the search.
    USER_OF_REQUIREMENTS = "
        SELECT id, name FROM job WHERE id >= $1 AND id < $2 AND requirements_id = $3 AND id <> $4
        ORDER BY id LIMIT 1";
    RENAME_REQUIREMENTS = "UPDATE resource_requirements SET name = $1 WHERE id = $2";
    DELETE_REQUIREMENTS = "DELETE FROM resource_requirements WHERE id = $1";
    EDIT_JOB_MORE = "
        UPDATE job SET invocation_script = $1, cancel_on_blocking_job_failure = $2 WHERE id = $3";
    UPDATE_FILE = "UPDATE file SET name = $1, path = $2, mtime_ns = $3, size_bytes = $4 WHERE id = $5";
    USER_OF_FILE = "
        SELECT j.id, j.name FROM job_block b CROSS JOIN job_file r JOIN job j ON j.id = r.job_id
        WHERE b.workflow_id = $1 AND r.job_id >= b.first_job_id AND r.job_id < b.first_job_id + b.job_count
            AND r.file_id = $2
        LIMIT 1";
    DELETE_FILE = "DELETE FROM file WHERE id = $1";
    DELETE_EVENT = "DELETE FROM event WHERE id = $1 AND message = '' AND job_id IS NULL
        RETURNING workflow_id, category, at";
    RESULT_KEY = "
        SELECT j.workflow_id, r.job_id, r.run_id, r.attempt_id, j.name
        FROM result r JOIN job j ON j.id = r.job_id WHERE r.id = $1";
    DELETE_RESULT = "DELETE FROM result WHERE id = $1";
    EDGES_OF_JOB = "
        SELECT depends_on FROM job_edge WHERE workflow_id = $1 AND job_id = $2
        UNION SELECT m.job_id FROM job_dependency_group g
            JOIN dependency_group_member m ON m.workflow_id = g.workflow_id AND m.group_number = g.group_number
            WHERE g.workflow_id = $1 AND g.job_id = $2
        ORDER BY 1";
    WORKFLOW_OF_JOB = "SELECT workflow_id FROM job WHERE id = $1";
    USER_DATA_OF_JOB = "
        SELECT user_data_id, is_output FROM job_user_data WHERE job_id = $1 ORDER BY is_output, user_data_id";
    ALL_ACTION_JOBS = "
        SELECT a.id, r.job_id FROM action a JOIN action_job r ON r.action_id = a.id WHERE a.workflow_id = $1";
    DELETE_EDGES_OF = "DELETE FROM job_edge WHERE workflow_id = $1 AND job_id >= $2 AND job_id < $3";
    DELETE_DEPENDENCY_GROUPS_OF = "
        DELETE FROM job_dependency_group WHERE workflow_id = $1 AND job_id >= $2 AND job_id < $3";
    DELETE_DEPENDENCY_GROUP_MEMBER = "
        DELETE FROM dependency_group_member WHERE workflow_id = $1 AND group_number = $2 AND job_id = $3";
    /// Another part of a block that was split.
    SPLIT_BLOCK = "
        INSERT INTO job_block (workflow_id, first_job_id, job_count, spawned_by, lineage, iteration, requested_in_run,
            requested_in_attempt, is_replaced)
        SELECT workflow_id, $1, $2, spawned_by, lineage, iteration, requested_in_run, requested_in_attempt,
            is_replaced FROM job_block
        WHERE workflow_id = $3 AND first_job_id = $4";
    DELETE_BLOCK = "DELETE FROM job_block WHERE workflow_id = $1 AND first_job_id = $2";

    // ---- failures ----

    /// Conditions, order, limit and offset are appended.
    SELECT_FAILURES = "
        SELECT f.job_id, j.name, j.status, f.run_id, f.attempt_id, f.class, f.rule, f.signature, f.message, f.line,
            f.log_excerpt, f.retry_decision, f.decision_reason, r.return_code, r.signal, r.out_of_memory,
                r.ended_at, r.worker_id, w.host
        FROM failure f JOIN job j ON j.id = f.job_id
        JOIN result r ON r.job_id = f.job_id AND r.run_id = f.run_id AND r.attempt_id = f.attempt_id
        JOIN worker w ON w.id = r.worker_id
        WHERE ";
    /// By sequence number.
    FAILURES_AFTER = "
        SELECT f.seq, j.name, f.run_id, f.attempt_id, f.class, f.signature, f.message, f.log_excerpt,
            f.retry_decision,
            r.return_code, r.peak_memory_bytes, r.ended_at, w.site
        FROM failure f JOIN job j ON j.id = f.job_id
        JOIN result r ON r.job_id = f.job_id AND r.run_id = f.run_id AND r.attempt_id = f.attempt_id
        JOIN worker w ON w.id = r.worker_id
        WHERE f.workflow_id = $1 AND f.seq > $2 ORDER BY f.seq LIMIT $3";
    /// A failure is open while its job is still in the state that it left.
    FAILURE_GROUPS = "
        SELECT f.signature, MIN(f.class), MIN(f.message), MIN(f.line), COUNT(*), COUNT(DISTINCT f.job_id),
            SUM(CASE WHEN f.attempt_id = j.attempt_id AND j.status IN (6, 8) THEN 1 ELSE 0 END),
            SUM(CASE WHEN f.attempt_id = j.attempt_id AND j.status = 10 THEN 1 ELSE 0 END),
            SUM(CASE WHEN f.retry_decision = 'retry' THEN 1 ELSE 0 END), MIN(f.job_id)
        FROM failure f JOIN job j ON j.id = f.job_id
        WHERE f.workflow_id = $1 AND f.run_id = $2
        GROUP BY f.signature
        ORDER BY 7 DESC, 5 DESC, f.signature";

    // ---- failure commands ----

    /// Failures to ignore, while their jobs are still in the state that they left.
    LOAD_IGNORED = "
        SELECT i.job_id FROM ignored_failure i JOIN job j ON j.id = i.job_id
        WHERE i.workflow_id = $1 AND i.run_id = $2 AND i.attempt_id = j.attempt_id AND j.status IN (6, 8)
        ORDER BY i.job_id";
    /// The outcome of the next attempt tells whether the retry was right. Conditions and order are appended.
    SELECT_DECISIONS = "
        SELECT d.id, d.job_id, j.name, d.run_id, d.attempt_id, d.made_at, d.made_by, d.is_agent, d.command,
            d.confidence,
            d.reason, d.evidence, d.changes,
            CASE WHEN d.superseded_at IS NULL THEN d.state ELSE 'overtaken' END,
            d.reviewed_at, d.reviewed_by, n.status, f.class, f.signature, f.message
        FROM decision d JOIN job j ON j.id = d.job_id
        LEFT JOIN result n ON n.job_id = d.job_id AND n.run_id = d.run_id AND n.attempt_id = (
            SELECT MIN(e.attempt_id) FROM result e
            LEFT JOIN failure x ON x.job_id = e.job_id AND x.run_id = e.run_id AND x.attempt_id = e.attempt_id
            WHERE e.job_id = d.job_id AND e.run_id = d.run_id AND e.attempt_id > d.attempt_id
                AND COALESCE(x.retry_decision, CASE WHEN e.reason LIKE 'interrupted%' THEN 'excused' ELSE
                    '' END) <> 'excused')
        LEFT JOIN failure f ON f.job_id = d.job_id AND f.run_id = d.run_id AND f.attempt_id = d.attempt_id
        WHERE ";
    SELECT_REVISIONS = "
        SELECT r.id, r.batch, r.job_id, j.name, j.status, r.made_at, r.made_by, r.reason, r.before,
            r.after, r.undone_at,
            r.undone_by, CASE WHEN r.attempts < (SELECT COUNT(*) FROM result e WHERE e.job_id = r.job_id)
                THEN 1 ELSE 0 END
        FROM revision r JOIN job j ON j.id = r.job_id
        WHERE ";
    LAST_BATCH = "SELECT COALESCE(MAX(batch), 0) FROM revision WHERE workflow_id = $1";
    UNDO_REVISION = "UPDATE revision SET undone_at = $1, undone_by = $2 WHERE id = $3 AND undone_at IS NULL";
    ADD_PENDING_COMMAND = "
        INSERT INTO pending_command (workflow_id, made_at, made_by, command) VALUES ($1, $2, $3, $4) RETURNING id";
    OPEN_PENDING_COMMANDS = "
        SELECT id FROM pending_command WHERE workflow_id = $1 AND answered_at IS NULL ORDER BY id";
    OPEN_PENDING_COMMAND = "
        SELECT made_by, command FROM pending_command WHERE id = $1 AND workflow_id = $2 AND answered_at IS
            NULL";
    SET_PENDING_COMMAND_RESULT = "
        UPDATE pending_command SET answered_at = $1, answer = $2 WHERE id = $3 AND answered_at IS NULL";
    WITHDRAW_PENDING_COMMAND = "DELETE FROM pending_command WHERE id = $1 AND answered_at IS NULL";
    PENDING_COMMAND_RESULT = "SELECT answer FROM pending_command WHERE id = $1";
    JOB_FOR_COMMAND = "
        SELECT j.status, j.attempt_id, j.requirements_id, j.command, j.priority, k.scheduler_id
        FROM job j LEFT JOIN job_group k ON k.id = j.job_group_id
        WHERE j.id = $1 AND j.workflow_id = $2";
    FAILURE_LOG_EXCERPT = "
        SELECT COALESCE(line, ''), COALESCE(log_excerpt, '') FROM failure
        WHERE job_id = $1 AND run_id = $2 AND attempt_id = $3";
    AGENT_RETRIES = "
        SELECT COUNT(*) FROM decision
        WHERE job_id = $1 AND run_id = $2 AND is_agent = 1 AND command = 'retry' AND state = 'done'";
    /// The last attempt of each job with a result in a run.
    ATTEMPTS_DONE = "
        SELECT r.job_id, MAX(r.attempt_id) FROM job_block b CROSS JOIN result r
        WHERE b.workflow_id = $1 AND r.job_id >= b.first_job_id AND r.job_id < b.first_job_id + b.job_count
            AND r.run_id = $2
        GROUP BY r.job_id";

    // ---- events ----

    INSERT_EVENT = "
        INSERT INTO event (workflow_id, at, severity, category, actor, message, data, job_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        RETURNING id";
    /// Conditions, order and limit are appended.
    SELECT_EVENTS = "
        SELECT e.id, e.workflow_id, e.at, e.severity, e.category, e.actor, e.message, e.data, e.job_id, e.run_id,
            e.attempt_id, e.worker_id, e.return_code, j.name
        FROM event e LEFT JOIN job j ON j.id = e.job_id WHERE ";
}

/// Finds the jobs of a workflow if no other index applies: block by block, in the order of `b.first_job_id`,
/// then by job. Parameters: the workflow and, twice, the smallest id, where the search begins (so that later
/// pages of a long list do not read the earlier ones).
pub(crate) const JOBS_IN_BLOCKS: &str = "
    b.workflow_id = ? AND j.id < b.first_job_id + b.job_count
    AND j.id >= CASE WHEN b.first_job_id > ? THEN b.first_job_id ELSE ? END";
/// The same without blocks: from the start of the first to the end of the last, without jobs of other
/// workflows. The sum prevents the use of the index on names, which is not in this order. Parameters: the
/// workflow, again, the smallest id, and the workflow.
pub(crate) const JOBS_IN_SPAN: &str = "
    j.workflow_id + 0 = ?
    AND j.id >= GREATEST((SELECT MIN(first_job_id) FROM job_block WHERE workflow_id = ?), ?)
    AND j.id < (SELECT MAX(first_job_id + job_count) FROM job_block WHERE workflow_id = ?)";
/// Both for results.
pub(crate) const RESULTS_IN_SPAN: &str = "
    j.workflow_id + 0 = ?
    AND r.job_id >= GREATEST((SELECT MIN(first_job_id) FROM job_block WHERE workflow_id = ?), ?)
    AND r.job_id < (SELECT MAX(first_job_id + job_count) FROM job_block WHERE workflow_id = ?)";
pub(crate) const RESULTS_IN_BLOCKS: &str = "
    b.workflow_id = ? AND r.job_id < b.first_job_id + b.job_count
    AND r.job_id >= CASE WHEN b.first_job_id > ? THEN b.first_job_id ELSE ? END";

/// The last attempt of its job in its run.
pub(crate) const LAST_ATTEMPT: &str = " AND NOT EXISTS (
    SELECT 1 FROM result l WHERE l.job_id = r.job_id AND l.run_id = r.run_id AND l.attempt_id > r.attempt_id)";

/// Jobs `j`, optionally with blocks `b`. Conditions, order, limit and offset are appended; `$1` is the current
/// run.
pub(crate) fn select_jobs(from: RowLookup, detail: JobColumns) -> String {
    let from = from.render_from_clause("job j");
    let more = match detail {
        JobColumns::Row => "",
        JobColumns::All => {
            ", j.requirements_id, j.worker_id, COALESCE(j.invocation_script, k.invocation_script), k.env, j.env,
            k.stdio_mode, k.stdio_delete_on_success, k.supports_termination, k.failure_handler_id, k.scheduler_id,
            k.labels"
        }
    };
    format!(
        "
        SELECT j.id, j.workflow_id, j.name, j.command, j.status, j.attempt_id, j.priority,
            j.cancel_on_blocking_job_failure, q.name, j.pid, j.started_at, r.return_code, r.reason,
                NULLIF(k.name, ''),
            j.params, j.origin, j.reused_from, j.options{more}
        FROM {from}
        LEFT JOIN resource_requirements q ON q.id = j.requirements_id
        LEFT JOIN job_group k ON k.id = j.job_group_id
        LEFT JOIN result r ON r.job_id = j.id AND r.run_id = $1
            AND r.attempt_id = (SELECT MAX(attempt_id) FROM result WHERE job_id = j.id AND run_id = $1)
        WHERE "
    )
}

/// Results `r` and their jobs `j`, optionally with blocks `b`. Conditions, order, limit and offset are
/// appended.
pub(crate) fn select_results(from: RowLookup) -> String {
    let from = from.render_from_clause("result r");
    format!(
        "
        SELECT r.id, j.workflow_id, r.job_id, r.run_id, r.attempt_id, j.name, r.status, r.return_code, r.signal,
            r.out_of_memory, r.reason, r.worker_id, r.started_at, r.ended_at, r.wall_us, r.cpu_time_us,
            r.peak_memory_bytes, r.avg_memory_bytes, r.peak_cpu_percent, r.avg_cpu_percent, r.files,
                r.recovered, f.class,
            f.signature
        FROM {from} JOIN job j ON j.id = r.job_id
        LEFT JOIN failure f ON r.status <> 5 AND f.job_id = r.job_id AND f.run_id = r.run_id
            AND f.attempt_id = r.attempt_id
        WHERE "
    )
}

/// The same jobs, for counting.
pub(crate) fn count_jobs(from: RowLookup) -> String {
    format!("SELECT COUNT(*) FROM {} WHERE ", from.render_from_clause("job j"))
}

/// The same results, for counting.
pub(crate) fn count_results(from: RowLookup) -> String {
    format!(
        "SELECT COUNT(*) FROM {} JOIN job j ON j.id = r.job_id WHERE ",
        from.render_from_clause("result r")
    )
}

/// Which columns of a job are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobColumns {
    Row,
    All,
}

/// How the rows of a workflow are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowLookup {
    /// By an index.
    Anywhere,
    /// By id, block by block. A `CROSS JOIN` makes the blocks the outer loop, so that nothing has to be sorted.
    Blocks,
    /// By id, from the first to the last of the workflow: for a database that would sort the rows found block
    /// by block.
    Span,
}

impl RowLookup {
    fn render_from_clause(self, table: &str) -> String {
        match self {
            Self::Anywhere | Self::Span => table.to_owned(),
            Self::Blocks => format!("job_block b CROSS JOIN {table}"),
        }
    }
}

/// Deletes jobs and everything that refers to them, from the first id up to (not including) the second.
pub(crate) const DELETE_JOBS: &[&str] = &[
    "DELETE FROM result WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM failure WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM next_attempt WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM ignored_failure WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM decision WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM revision WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM job_file WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM job_user_data WHERE job_id >= $1 AND job_id < $2",
    "DELETE FROM job WHERE id >= $1 AND id < $2",
];

/// Deletes the other parts of a workflow, and the workflow.
pub(crate) const DELETE_OF_WORKFLOW: &[&str] = &[
    "DELETE FROM job_edge WHERE workflow_id = $1",
    "DELETE FROM dependency_group_member WHERE workflow_id = $1",
    "DELETE FROM job_dependency_group WHERE workflow_id = $1",
    "DELETE FROM action_job WHERE action_id IN (SELECT id FROM action WHERE workflow_id = $1)",
    "DELETE FROM action_run WHERE action_id IN (SELECT id FROM action WHERE workflow_id = $1)",
    "DELETE FROM action WHERE workflow_id = $1",
    "DELETE FROM file WHERE workflow_id = $1",
    "DELETE FROM user_data WHERE workflow_id = $1",
    "DELETE FROM job_group WHERE workflow_id = $1",
    "DELETE FROM resource_requirements WHERE workflow_id = $1",
    "DELETE FROM failure_handler WHERE workflow_id = $1",
    "DELETE FROM slurm_scheduler WHERE workflow_id = $1",
    "DELETE FROM worker WHERE workflow_id = $1",
    "DELETE FROM event WHERE workflow_id = $1",
    "DELETE FROM workflow_group WHERE workflow_id = $1",
    "DELETE FROM record WHERE workflow_id = $1",
    "DELETE FROM allocation WHERE workflow_id = $1",
    "DELETE FROM pending_command WHERE workflow_id = $1",
    "DELETE FROM status_count WHERE workflow_id = $1",
    "DELETE FROM run WHERE workflow_id = $1",
    "DELETE FROM job_block WHERE workflow_id = $1",
    "DELETE FROM unit WHERE workflow_id = $1",
    "DELETE FROM unit_jobs WHERE workflow_id = $1",
    "DELETE FROM unit_count WHERE workflow_id = $1",
    "DELETE FROM site_count WHERE workflow_id = $1",
    "DELETE FROM workflow WHERE id = $1",
];
