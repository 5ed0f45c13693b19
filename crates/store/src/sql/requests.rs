//! Statements for requests, sites, settings and alerts, for both SQLite and PostgreSQL.

super::statements! {
    // ---- requests ----

    INSERT_REQUEST = "
        INSERT INTO request (name, status, priority, is_urgent, campaign, requestor, production_steps,
            previous_version,
            superseded_by, created_at, updated_at, since, document, payload_config)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $10, $11, $12)";
    /// The same for a new version of a request: affects no row if the name is taken.
    INSERT_VERSION = "
        INSERT INTO request (name, status, priority, is_urgent, campaign, requestor, production_steps,
            previous_version,
            superseded_by, created_at, updated_at, since, document, payload_config)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $10, $11, $12)
        ON CONFLICT (name) DO NOTHING";
    REQUEST_EXISTS = "SELECT 1 FROM request WHERE name = $1";
    /// Updates the existing row too, so that the number of affected rows is as expected.
    CLAIM_OUTPUT = "
        INSERT INTO request_output (dataset, request) VALUES ($1, $2)
        ON CONFLICT (dataset, request) DO UPDATE SET request = excluded.request";
    /// The other request that writes a dataset. Requests that ended without writing to it do not count.
    WRITER_OF_OUTPUT = "
        SELECT o.request FROM request_output o CROSS JOIN request r
        WHERE o.dataset = $1 AND o.request <> $2 AND r.name = o.request AND (r.status NOT IN ('failed', 'aborted')
            OR EXISTS (SELECT 1 FROM request_process p CROSS JOIN request_block b
                WHERE p.request = r.name AND b.process = p.uuid AND b.dataset = o.dataset
                AND (b.units_completed > 0 OR EXISTS (SELECT 1 FROM output_step s WHERE s.block = b.uuid))))
        ORDER BY r.created_at, r.name LIMIT 1";
    /// Conditions, order, limit and offset are appended.
    SELECT_REQUESTS = "
        SELECT r.name, r.status, r.version, r.priority, r.is_urgent, r.production_steps, r.superseded_by,
            r.created_at,
            r.updated_at, r.since, r.reason, r.requested_change, r.alerted_at, r.document, r.payload_config,
            r.overrides
        FROM request r WHERE ";
    SELECT_COUNT_OF_REQUESTS = "SELECT COUNT(*) FROM request r WHERE ";
    /// Literally the condition of the index.
    OPEN_REQUESTS = "
        SELECT r.name, r.version FROM request r WHERE r.status NOT IN ('completed', 'failed', 'aborted')
            ORDER BY r.name";
    /// Ended requests with pending output steps.
    REQUESTS_WITH_PENDING_STEPS = "
        SELECT DISTINCT r.name
        FROM output_step s CROSS JOIN request_process p CROSS JOIN request r
        WHERE s.state = 'pending' AND p.uuid = s.process AND r.name = p.request
            AND r.status IN ('completed', 'failed', 'aborted')
        ORDER BY r.name";
    TRANSITIONS = "
        SELECT n, from_status, to_status, at, made_by, reason FROM request_transition WHERE request = $1 ORDER BY n";
    ADD_TRANSITION = "
        INSERT INTO request_transition (request, n, from_status, to_status, at, made_by, reason)
        VALUES ($1, (SELECT COALESCE(MAX(t.n), 0) + 1 FROM request_transition t WHERE t.request = $1), $2,
            $3, $4, $5, $6)";
    STATUS_AND_VERSION = "SELECT status, version FROM request WHERE name = $1";
    LATER_VERSION = "SELECT name FROM request WHERE previous_version = $1 ORDER BY name LIMIT 1";

    // ---- changes ----

    NEXT_VERSION = "
        UPDATE request SET version = version + 1, updated_at = $1 WHERE name = $2 AND version = $3";
    SET_STATUS = "
        UPDATE request SET status = $1, since = $2, reason = $3, alerted_at = NULL WHERE name = $4 AND status = $5";
    SET_PRIORITY = "UPDATE request SET priority = $1 WHERE name = $2";
    SET_URGENT = "UPDATE request SET is_urgent = $1 WHERE name = $2";
    SET_PRODUCTION_STEPS = "UPDATE request SET production_steps = $1 WHERE name = $2";
    SET_SUPERSEDED_BY = "UPDATE request SET superseded_by = $1 WHERE name = $2";
    SET_WANTED = "UPDATE request SET requested_change = $1 WHERE name = $2";
    SET_OVERRIDES = "UPDATE request SET overrides = $1 WHERE name = $2";
    SET_REASON = "UPDATE request SET reason = $1 WHERE name = $2";
    SET_ALERTED = "UPDATE request SET alerted_at = $1 WHERE name = $2";
    PUT_PROCESS = "
        INSERT INTO request_process (uuid, request, document) VALUES ($1, $2, $3)
        ON CONFLICT (uuid) DO UPDATE SET document = excluded.document WHERE request_process.request =
            excluded.request";
    ADD_RUN = "
        INSERT INTO request_run (uuid, process, n, round, parent, status, backend, workflow_id, run_id,
            schedd, cluster,
            submit_dir, stop_requested_at, stop_reason, totals, counts, units_completed, units_failed, units_read,
            created_at, submitted_at, completed_at, cause, rescues, paused_at, silent_since, priority)
        VALUES ($1, $2, (SELECT COALESCE(MAX(x.n), 0) + 1 FROM request_run x WHERE x.process = $2), $3, $4,
            $5, $6, $7, $8,
            $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)";
    SET_RUN_STATUS = "
        UPDATE request_run SET status = $1, submitted_at = COALESCE(submitted_at, $2),
            completed_at = COALESCE(completed_at, $3)
        WHERE uuid = $4 AND status = $5";
    ADD_RUN_STATUS_EVENT = "
        INSERT INTO request_run_event (run, event_type, from_status, to_status, counts, detail, at)
        SELECT u.uuid, 'status', CAST($1 AS TEXT), CAST($2 AS TEXT), u.counts, '{}', CAST($3 AS BIGINT)
        FROM request_run u WHERE u.uuid = $4";
    SET_RUN_BACKEND = "
        UPDATE request_run SET workflow_id = $1, run_id = $2, schedd = $3, cluster = $4
        WHERE uuid = $5 AND backend = $6";
    SET_RUN_TOTALS = "UPDATE request_run SET totals = $1 WHERE uuid = $2";
    SET_RUN_COUNTS = "UPDATE request_run SET counts = $1 WHERE uuid = $2";
    SET_RUN_UNITS = "
        UPDATE request_run SET units_completed = $1, units_failed = $2, units_read = $3 WHERE uuid = $4";
    SET_RUN_STOP = "UPDATE request_run SET stop_requested_at = $1, stop_reason = $2 WHERE uuid = $3";
    SET_RUN_SILENT_SINCE = "UPDATE request_run SET silent_since = $1 WHERE uuid = $2";
    SET_RUN_PRIORITY = "UPDATE request_run SET priority = $1 WHERE uuid = $2";
    SET_RUN_PAUSE = "UPDATE request_run SET paused_at = $1 WHERE uuid = $2";
    PUT_TALLY = "
        INSERT INTO request_failure (run, counts) VALUES ($1, $2)
        ON CONFLICT (run) DO UPDATE SET counts = excluded.counts";
    ADD_RUN_EVENT = "
        INSERT INTO request_run_event (run, event_type, from_status, to_status, counts, detail, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    /// Updates the existing row too, so that the number of affected rows is as expected.
    ADD_BLOCK = "
        INSERT INTO request_block (uuid, process, round, dataset, n, first_unit, last_unit, units_completed, name,
            is_closed, tape_rule, status, created_at, updated_at, units_expected)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        ON CONFLICT (process, dataset, n) DO UPDATE SET n = excluded.n";
    SET_BLOCK_STATUS = "
        UPDATE request_block SET status = $1, updated_at = $2 WHERE uuid = $3 AND status = $4";
    SET_BLOCK_NAME = "UPDATE request_block SET name = $1, updated_at = $2 WHERE uuid = $3";
    SET_BLOCK_CLOSED = "UPDATE request_block SET is_closed = 1, updated_at = $1 WHERE uuid = $2";
    SET_BLOCK_UNITS = "UPDATE request_block SET units_completed = $1, updated_at = $2 WHERE uuid = $3";
    SET_BLOCK_EXPECTED = "UPDATE request_block SET units_expected = $1, updated_at = $2 WHERE uuid = $3";
    SET_BLOCK_TAPE_RULE = "UPDATE request_block SET tape_rule = $1, updated_at = $2 WHERE uuid = $3";
    /// As for blocks.
    ADD_STEP = "
        INSERT INTO output_step (block, unit, kind, process, state, attempts, due_at, first_failed_at,
            last_error, result,
            detail)
        VALUES ($1, $2, $3, (SELECT b.process FROM request_block b WHERE b.uuid = $1), $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (block, unit, kind) DO UPDATE SET kind = excluded.kind";
    SET_STEP = "
        UPDATE output_step SET state = $1, attempts = $2, due_at = $3, first_failed_at = $4, last_error =
            $5, result = $6
        WHERE block = $7 AND unit = $8 AND kind = $9";
    STATUS_OF_RUN = "SELECT status FROM request_run WHERE uuid = $1";
    STATUS_OF_BLOCK = "SELECT status FROM request_block WHERE uuid = $1";

    // ---- processes, runs, blocks, steps ----

    PROCESS_OF = "SELECT document FROM request_process WHERE request = $1";
    PROCESS = "SELECT document FROM request_process WHERE uuid = $1";
    SELECT_RUNS = "
        SELECT u.uuid, u.process, u.round, u.parent, u.status, u.backend, u.workflow_id, u.run_id,
            u.schedd, u.cluster,
            u.submit_dir, u.stop_requested_at, u.stop_reason, u.totals, u.counts, u.units_completed, u.units_failed,
            u.units_read, u.created_at, u.submitted_at, u.completed_at, u.cause, u.rescues, u.paused_at,
                u.silent_since,
            u.priority
        FROM request_run u WHERE ";
    REQUEST_OF_WORKFLOW = "
        SELECT p.request FROM request_run u CROSS JOIN request_process p
        WHERE u.workflow_id = $1 AND p.uuid = u.process LIMIT 1";
    RUN_EVENTS = "
        SELECT run, event_type, from_status, to_status, counts, detail, at FROM request_run_event
        WHERE run = $1 ORDER BY id";
    BLOCKS = "
        SELECT uuid, process, round, dataset, n, first_unit, last_unit, units_completed, name, is_closed,
            tape_rule, status,
            created_at, updated_at, units_expected
        FROM request_block WHERE process = $1 ORDER BY dataset, n";
    SELECT_STEPS = "
        SELECT s.block, s.unit, s.kind, s.state, s.attempts, s.due_at, s.first_failed_at, s.last_error,
            s.result, s.detail
        FROM output_step s WHERE ";

    FILE_ROWS = "
        SELECT lfn, state, round, remainder, reason FROM request_file WHERE process = $1 ORDER BY lfn";
    SELECT_FILE_ROWS = "SELECT f.lfn, f.state, f.round, f.remainder, f.reason FROM request_file f WHERE ";
    FILES_BY_STATE = "SELECT state, COUNT(*) FROM request_file WHERE process = $1 GROUP BY state";
    PUT_FILE_ROW = "
        INSERT INTO request_file (process, lfn, state, round, remainder, reason) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (process, lfn) DO UPDATE SET state = excluded.state, round = excluded.round,
            remainder = excluded.remainder, reason = excluded.reason";
    REGISTERED_UNITS = "
        SELECT DISTINCT s.unit FROM request_block b CROSS JOIN output_step s
        WHERE b.process = $1 AND b.round = $2 AND s.block = b.uuid AND s.kind = 'register' AND s.state <> 'dropped'
        ORDER BY s.unit";
    FAILURE_TALLIES_OF_PROCESS = "
        SELECT u.uuid, f.counts FROM request_run u CROSS JOIN request_failure f
        WHERE u.process = $1 AND f.run = u.uuid ORDER BY u.n";

    // ---- data for decisions: names of requests and the rest of the order are appended ----

    VIEWED_REQUESTS = "
        SELECT r.name, r.status, r.version, r.priority, r.is_urgent, r.production_steps, r.superseded_by,
            r.created_at,
            r.updated_at, r.since, r.reason, r.requested_change, r.alerted_at, r.document, NULL,
            r.overrides
        FROM request r WHERE r.name ";
    VIEWED_PROCESSES = "SELECT p.document, p.request FROM request_process p WHERE p.request ";
    /// The newest run of each, with the summary of its failures.
    VIEWED_RUNS = "
        SELECT u.uuid, u.process, u.round, u.parent, u.status, u.backend, u.workflow_id, u.run_id,
            u.schedd, u.cluster,
            u.submit_dir, u.stop_requested_at, u.stop_reason, u.totals, u.counts, u.units_completed, u.units_failed,
            u.units_read, u.created_at, u.submitted_at, u.completed_at, u.cause, u.rescues, u.paused_at,
                u.silent_since,
            u.priority, f.counts, p.request
        FROM request_process p CROSS JOIN request_run u LEFT JOIN request_failure f ON f.run = u.uuid
        WHERE u.process = p.uuid AND u.n = (SELECT MAX(x.n) FROM request_run x WHERE x.process = p.uuid)
            AND p.request ";
    VIEWED_BLOCKS = "
        SELECT b.uuid, b.process, b.round, b.dataset, b.n, b.first_unit, b.last_unit, b.units_completed, b.name,
            b.is_closed, b.tape_rule, b.status, b.created_at, b.updated_at, b.units_expected,
            p.request
        FROM request_process p CROSS JOIN request_block b WHERE b.process = p.uuid AND p.request ";
    /// Pending output steps; literally the condition of the index.
    VIEWED_STEPS = "
        SELECT s.block, s.unit, s.kind, s.state, s.attempts, s.due_at, s.first_failed_at, s.last_error,
            s.result, s.detail,
            p.request
        FROM request_process p CROSS JOIN output_step s
        WHERE s.process = p.uuid AND s.state IN ('pending', 'failed') AND p.request ";

    // ---- counts ----

    SELECT_REQUESTS_BY_STATUS = "SELECT status, COUNT(*) FROM request GROUP BY status";
    SELECT_RUNS_BY_STATUS = "SELECT status, COUNT(*) FROM request_run GROUP BY status";
    SELECT_BLOCKS_BY_STATUS = "SELECT status, COUNT(*) FROM request_block GROUP BY status";
    SELECT_OPEN_STEPS_BY_STATE = "
        SELECT state, COUNT(*) FROM output_step WHERE state IN ('pending', 'failed') GROUP BY state";
    SELECT_COUNT_OF_UNNOTIFIED = "SELECT COUNT(*) FROM alert WHERE notified_at IS NULL";

    // ---- sites ----

    SELECT_SITES = "
        SELECT s.name, s.status, s.drain_until, s.total_slots, s.running_slots, s.pending_slots, s.thresholds,
            s.schedd_name, s.collector_host, s.storage_element, s.storage_path, s.updated_at
        FROM site s WHERE ";
    /// Claimed and running jobs by site. The conditions on the status are those of an index.
    SITE_USAGE = "
        SELECT w.site, j.status, COUNT(*)
        FROM job j JOIN worker w ON w.id = j.worker_id
        WHERE j.status >= 3 AND j.status <= 4 AND j.status <> 5 AND j.status <> 9 AND w.site IS NOT NULL
        GROUP BY w.site, j.status";
    PUT_SITE = "
        INSERT INTO site (name, status, drain_until, total_slots, running_slots, pending_slots, thresholds,
            schedd_name,
            collector_host, storage_element, storage_path, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        ON CONFLICT (name) DO UPDATE SET status = excluded.status, drain_until = excluded.drain_until,
            total_slots = excluded.total_slots, running_slots = excluded.running_slots,
            pending_slots = excluded.pending_slots, thresholds = excluded.thresholds, schedd_name =
                excluded.schedd_name,
            collector_host = excluded.collector_host, storage_element = excluded.storage_element,
            storage_path = excluded.storage_path, updated_at = excluded.updated_at";
    /// Inserts a new site, or updates only this column of an existing one.
    RECORD_SITE_SLOTS = "
        INSERT INTO site (name, status, total_slots, running_slots, pending_slots, thresholds, updated_at)
        VALUES ($1, 'enabled', $2, 0, 0, '{}', $3)
        ON CONFLICT (name) DO UPDATE SET total_slots = excluded.total_slots, updated_at = excluded.updated_at";
    SET_SITE_STATUS = "UPDATE site SET status = $1, drain_until = $2, updated_at = $3 WHERE name = $4";
    SITE_EXISTS = "SELECT 1 FROM site WHERE name = $1";
    ADD_BAN = "
        INSERT INTO site_ban (site, request, reason, failure_data, made_by, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    SELECT_BANS = "
        SELECT b.id, b.site, b.request, b.reason, b.failure_data, b.made_by, b.created_at, b.expires_at, b.removed_at,
            b.removed_by, b.expiry_notified_at
        FROM site_ban b WHERE ";
    /// The same within a batch: affects no row if the site is unknown.
    ADD_BAN_IN_COMMIT = "
        INSERT INTO site_ban (site, request, reason, failure_data, made_by, created_at, expires_at)
        SELECT s.name, CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS BIGINT),
            CAST($6 AS BIGINT)
        FROM site s WHERE s.name = $7";
    MARK_EXPIRY_NOTIFIED = "
        UPDATE site_ban SET expiry_notified_at = COALESCE(expiry_notified_at, $1) WHERE id = $2";
    /// The first user who removes it is recorded.
    REMOVE_BAN = "
        UPDATE site_ban SET removed_at = COALESCE(removed_at, $1), removed_by = COALESCE(removed_by, $2)
            WHERE id = $3";

    // ---- settings and alerts ----

    SETTING = "SELECT value FROM setting WHERE name = $1";
    SELECT_SETTINGS = "SELECT name, value, changed_at, changed_by FROM setting ORDER BY name";
    SET_SETTING = "
        INSERT INTO setting (name, value, changed_at, changed_by) VALUES ($1, $2, $3, $4)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at,
            changed_by = excluded.changed_by";
    DELETE_SETTING = "DELETE FROM setting WHERE name = $1";
    ADD_ALERT = "
        INSERT INTO alert (kind, request, message, detail, at) VALUES ($1, $2, $3, $4, $5) RETURNING id";
    /// The same within a batch.
    ADD_ALERT_IN_COMMIT = "
        INSERT INTO alert (kind, request, message, detail, at) VALUES ($1, $2, $3, $4, $5)";
    SELECT_ALERTS = "
        SELECT a.id, a.kind, a.request, a.message, a.detail, a.at, a.notified_at FROM alert a WHERE ";
    MARK_ALERT_NOTIFIED = "UPDATE alert SET notified_at = COALESCE(notified_at, $1) WHERE id = $2";
}

/// Deletes a request with its parts, in an order without dangling references.
pub(crate) const DELETE_REQUEST: &[&str] = &[
    "DELETE FROM output_step WHERE block IN (SELECT b.uuid FROM request_block b WHERE b.process IN
        (SELECT p.uuid FROM request_process p WHERE p.request = $1))",
    "DELETE FROM request_block WHERE process IN (SELECT p.uuid FROM request_process p WHERE p.request = $1)",
    "DELETE FROM request_run_event WHERE run IN (SELECT u.uuid FROM request_run u WHERE u.process IN
        (SELECT p.uuid FROM request_process p WHERE p.request = $1))",
    "DELETE FROM request_failure WHERE run IN (SELECT u.uuid FROM request_run u WHERE u.process IN
        (SELECT p.uuid FROM request_process p WHERE p.request = $1))",
    "DELETE FROM request_file WHERE process IN (SELECT p.uuid FROM request_process p WHERE p.request = $1)",
    "UPDATE request_run SET parent = NULL WHERE process IN (SELECT p.uuid FROM request_process p WHERE p.request = $1)",
    "DELETE FROM request_run WHERE process IN (SELECT p.uuid FROM request_process p WHERE p.request = $1)",
    "DELETE FROM request_process WHERE request = $1",
    "DELETE FROM site_ban WHERE request = $1",
    "DELETE FROM request_output WHERE request = $1",
    "DELETE FROM request_transition WHERE request = $1",
    "DELETE FROM request WHERE name = $1",
];
