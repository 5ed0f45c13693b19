//! Statements that SQLite and PostgreSQL run alike. Job states stand as the numbers of the contract.

super::statements! {
    // ---- creating a workflow ----

    NEXT_JOB_ID = "SELECT next_value FROM counter WHERE name = 'job'";
    SET_NEXT_JOB_ID = "UPDATE counter SET next_value = $1 WHERE name = 'job'";
    INSERT_WORKFLOW = "
        INSERT INTO workflow (uuid, name, user_name, description, created_at, submission_dir, output_dir, spec_path,
            spec_digest, env, stdio_mode, stdio_delete_on_success, first_job_id, job_count)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0)
        RETURNING id";
    INSERT_REQUIREMENTS = "
        INSERT INTO resource_requirements (workflow_id, name, cpus, memory_bytes, gpus, nodes, runtime_us)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        RETURNING id";
    /// Where the block of ids begins.
    INSERT_FIRST_JOB = "
        INSERT INTO job (workflow_id, status, priority, cancel_on_blocking_job_failure, requirements_id, name, command,
            env, id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    JOB_NAMED = "SELECT id FROM job WHERE workflow_id = $1 AND name = $2";
    INSERT_EDGE = "INSERT INTO job_edge (workflow_id, job_id, waits_for) VALUES ($1, $2, $3)";
    INSERT_GATE_MEMBER = "INSERT INTO gate_member (workflow_id, gate, job_id) VALUES ($1, $2, $3)";
    INSERT_JOB_GATE = "INSERT INTO job_gate (workflow_id, job_id, gate) VALUES ($1, $2, $3)";
    SET_JOB_COUNT = "UPDATE workflow SET job_count = $1 WHERE id = $2";
    INSERT_COUNT = "INSERT INTO status_count (workflow_id, status, n) VALUES ($1, $2, $3)";

    // ---- changes, one job each; a row that is not as expected is not touched ----

    CURRENT_RUN = "SELECT run_id FROM workflow WHERE id = $1";
    SET_STATUS = "UPDATE job SET status = $1 WHERE id = $2 AND workflow_id = $3 AND status = $4";
    CLAIM = "
        UPDATE job SET status = 3, worker_id = $1
        WHERE id = $2 AND workflow_id = $3 AND status = 2 AND attempt_id = $4";
    START = "
        UPDATE job SET status = 4, started_at = $1, pid = $2
        WHERE id = $3 AND workflow_id = $4 AND status = 3 AND attempt_id = $5 AND worker_id = $6";
    END = "
        UPDATE job SET status = $1, attempt_id = $2, orphaned_attempts = orphaned_attempts + $3,
            worker_id = NULL, pid = NULL, started_at = NULL
        WHERE id = $4 AND workflow_id = $5 AND status = $6 AND attempt_id = $7 AND worker_id = $8";
    GIVE_BACK = "
        UPDATE job SET status = 2, worker_id = NULL
        WHERE id = $1 AND workflow_id = $2 AND status = 3 AND worker_id = $3";
    INSERT_RESULT = "
        INSERT INTO result (job_id, run_id, attempt_id, worker_id, status, return_code, exit_code, signal, out_of_memory,
            started_at, ended_at, wall_us, cpu_time_us, peak_memory_bytes, avg_memory_bytes, peak_cpu_percent,
            avg_cpu_percent, reason)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
    ADD_COUNT = "UPDATE status_count SET n = n + $1 WHERE workflow_id = $2 AND status = $3";
    /// For telling what was found where something else was expected.
    FOUND_JOB = "SELECT status, attempt_id FROM job WHERE id = $1 AND workflow_id = $2";

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
        RETURNING run_id, first_job_id, job_count";
    RESET_JOB = "
        UPDATE job SET status = 0, attempt_id = 1, orphaned_attempts = 0
        WHERE id = $1 AND workflow_id = $2 AND status = $3";
    /// Jobs that were interrupted and wait for another attempt also start counting anew.
    RESET_ATTEMPTS = "
        UPDATE job SET attempt_id = 1, orphaned_attempts = 0
        WHERE id >= $1 AND id < $2 AND status < 3 AND attempt_id > 1";
    REQUEST_CANCEL = "UPDATE workflow SET cancel_requested_at = COALESCE(cancel_requested_at, $1) WHERE id = $2";
    CANCEL_REQUESTED = "SELECT cancel_requested_at IS NOT NULL FROM workflow WHERE id = $1";
    ANSWER_CANCEL = "UPDATE workflow SET is_canceled = $1, cancel_requested_at = NULL WHERE id = $2";

    // ---- workers ----

    INSERT_WORKER = "
        INSERT INTO worker (workflow_id, run_id, host, boot_id, pid, pid_start_ticks, token, ledger_path,
            cpus, memory_bytes, gpus, nodes, max_jobs, started_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        RETURNING id";
    RETIRE_WORKER = "UPDATE worker SET ended_at = COALESCE(ended_at, $1) WHERE id = $2";
    ACTIVE_WORKERS = "
        SELECT id, workflow_id, run_id, host, boot_id, pid, pid_start_ticks, token, ledger_path,
            cpus, memory_bytes, gpus, nodes, max_jobs, started_at
        FROM worker WHERE workflow_id = $1 AND ended_at IS NULL ORDER BY id";

    // ---- reading workflows ----

    WORKFLOWS = "
        SELECT w.id, w.uuid, w.name, w.user_name, w.description, w.created_at, w.run_id, w.is_canceled,
            w.submission_dir, w.output_dir, w.spec_path, w.spec_digest, w.env, w.stdio_mode,
            w.stdio_delete_on_success, r.started_at, r.ended_at
        FROM workflow w LEFT JOIN run r ON r.workflow_id = w.id AND r.run_id = w.run_id
        ORDER BY w.id";
    WORKFLOW = "
        SELECT w.id, w.uuid, w.name, w.user_name, w.description, w.created_at, w.run_id, w.is_canceled,
            w.submission_dir, w.output_dir, w.spec_path, w.spec_digest, w.env, w.stdio_mode,
            w.stdio_delete_on_success, r.started_at, r.ended_at
        FROM workflow w LEFT JOIN run r ON r.workflow_id = w.id AND r.run_id = w.run_id
        WHERE w.id = $1";
    NEWEST_BY_DIGEST = "SELECT MAX(id) FROM workflow WHERE spec_digest = $1 AND submission_dir = $2";
    COUNTS = "SELECT status, n FROM status_count WHERE workflow_id = $1";
    JOB_BLOCK = "SELECT first_job_id, job_count, run_id FROM workflow WHERE id = $1";

    // ---- reading jobs ----

    LOAD_REQUIREMENTS = "
        SELECT id, cpus, memory_bytes, gpus, nodes, runtime_us
        FROM resource_requirements WHERE workflow_id = $1 ORDER BY id";
    LOAD_JOBS = "
        SELECT status, attempt_id, priority, cancel_on_blocking_job_failure, requirements_id
        FROM job WHERE id >= $1 AND id < $2 ORDER BY id";
    LOAD_EDGES = "SELECT job_id, waits_for FROM job_edge WHERE workflow_id = $1 ORDER BY job_id, waits_for";
    LOAD_GATE_MEMBERS = "SELECT gate, job_id FROM gate_member WHERE workflow_id = $1 ORDER BY gate, job_id";
    LOAD_JOB_GATES = "SELECT job_id, gate FROM job_gate WHERE workflow_id = $1 ORDER BY job_id, gate";
    JOB_COMMAND = "SELECT name, command, env FROM job WHERE id = $1";
    JOB_NAME = "SELECT name FROM job WHERE id = $1";
    /// The conditions of the partial index stand here word for word: only then may it be used.
    HELD_JOBS = "
        SELECT id, status, attempt_id, worker_id, pid, started_at
        FROM job
        WHERE workflow_id = $1 AND status >= 3 AND status <= 4 AND status <> 5 AND status <> 9
        ORDER BY id";
    /// Conditions, order, limit and offset are appended; `$1` is the current run.
    SELECT_JOBS = "
        SELECT j.id, j.workflow_id, j.name, j.command, j.status, j.attempt_id, j.priority,
            j.cancel_on_blocking_job_failure, q.name, j.pid, j.started_at, r.return_code, r.reason
        FROM job j
        LEFT JOIN resource_requirements q ON q.id = j.requirements_id
        LEFT JOIN result r ON r.job_id = j.id AND r.run_id = $1
            AND r.attempt_id = (SELECT MAX(attempt_id) FROM result WHERE job_id = j.id AND run_id = $1)
        WHERE ";
    /// Conditions, order, limit and offset are appended.
    SELECT_RESULTS = "
        SELECT r.id, j.workflow_id, r.job_id, r.run_id, r.attempt_id, j.name, r.status, r.return_code, r.signal,
            r.out_of_memory, r.reason, r.worker_id, r.started_at, r.ended_at, r.wall_us, r.cpu_time_us,
            r.peak_memory_bytes, r.avg_memory_bytes, r.peak_cpu_percent, r.avg_cpu_percent
        FROM result r JOIN job j ON j.id = r.job_id
        WHERE ";
}
