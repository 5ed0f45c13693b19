//! Statements for allocations, for both SQLite and PostgreSQL.

super::statements! {
    INSERT_ALLOCATION = "
        INSERT INTO allocation (workflow_id, is_ours, scheduler_id, scheduler_name, tag, request, state,
            is_ended, job_id,
            action_id, action_attempt, ordinal, requested_by, created_at, ended_at, end_state)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
        RETURNING id";
    SET_TAG = "UPDATE allocation SET tag = $1 WHERE id = $2";
    UUID_OF_WORKFLOW = "SELECT uuid FROM workflow WHERE id = $1";
    FIND_SAME_REQUEST = "
        SELECT id FROM allocation WHERE action_id = $1 AND action_attempt = $2 AND ordinal = $3";
    /// Conditions, order, limit and offset are appended.
    SELECT_ALLOCATIONS = "
        SELECT a.id, a.workflow_id, a.is_ours, a.scheduler_id, a.tag, a.request, a.state, a.job_id,
            a.restarts, a.reason,
            a.nodes, a.action_id, a.action_attempt, a.ordinal, a.requested_by, a.cancel_reason,
                a.created_at, a.submitted_at,
            a.submissions, a.started_at, a.ends_at, a.ended_at, a.end_state, a.exit_code, a.seen_at, a.missed_polls
        FROM allocation a WHERE ";
    /// Compares the state once more, so that a concurrent change is never overwritten.
    CHANGE_ALLOCATION = "
        UPDATE allocation SET state = $1, is_ended = $2, job_id = $3, restarts = $4, reason = $5, nodes =
            $6, cancel_reason = $7,
            submitted_at = $8, submissions = $9, started_at = $10, ends_at = $11, ended_at = $12, end_state = $13,
            exit_code = $14, seen_at = $15, missed_polls = $16
        WHERE id = $17 AND state = $18";
    /// Few results are not completed (5), and there is an index for them.
    SET_INTERRUPTION_REASON = "
        UPDATE result SET reason = $1
        WHERE status <> 5 AND job_id >= $2 AND job_id < $3 AND reason = $4
            AND worker_id IN (SELECT id FROM worker WHERE allocation_id = $5)";
    SET_LOSS_REASON = "
        UPDATE result SET reason = $1
        WHERE status <> 5 AND job_id >= $2 AND job_id < $3 AND reason LIKE $4
            AND worker_id IN (SELECT id FROM worker WHERE allocation_id = $5)";
    ALLOCATION_OF_WORKER = "SELECT allocation_id FROM worker WHERE id = $1 AND allocation_id IS NOT NULL";
    UPDATE_CLIENT_ALLOCATION = "
        UPDATE allocation SET scheduler_id = $1, scheduler_name = $2, request = $3, state = $4, is_ended =
            $5, job_id = $6,
            ended_at = $7, end_state = $8
        WHERE id = $9 AND workflow_id = $10 AND is_ours = 0";
    DELETE_ALLOCATION = "DELETE FROM allocation WHERE id = $1";
    DELETE_ALLOCATIONS = "DELETE FROM allocation WHERE workflow_id = $1";
    /// Ids of actions and schedulers may be reused.
    CLEAR_ACTION = "
        UPDATE allocation SET action_id = NULL, action_attempt = NULL, ordinal = NULL WHERE action_id = $1";
    CLEAR_SCHEDULER = "
        UPDATE allocation SET scheduler_id = NULL WHERE workflow_id = $1 AND scheduler_id = $2 AND is_ours = 1";
    COUNT_OPEN_ALLOCATIONS = "
        SELECT COUNT(*) FROM allocation WHERE workflow_id = $1 AND is_ours = 1 AND is_ended = 0";
    OWNER_OF_ALLOCATION = "SELECT workflow_id FROM allocation WHERE id = $1";
    ADD_SLURM_CALLS = "
        INSERT INTO slurm_calls (hour, command, calls, failures, took_us) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (hour, command) DO UPDATE SET calls = slurm_calls.calls + excluded.calls,
            failures = slurm_calls.failures + excluded.failures, took_us = slurm_calls.took_us + excluded.took_us";
    SLURM_CALLS_SINCE = "
        SELECT hour, command, calls, failures, took_us FROM slurm_calls WHERE hour >= $1 ORDER BY hour, command";
}
