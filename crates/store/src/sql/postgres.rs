//! Statements for PostgreSQL only.

super::statements! {
    /// Serializes writers, as in SQLite: event ids become visible in order, and no decision depends on rows
    /// that another writer is changing. The number is the key of [`crate::postgres`]'s write lock.
    WAIT_TO_WRITE = "SELECT pg_advisory_xact_lock($1)";
    /// Counts the commit, and leaves a marker that only this transaction writes. After a crash of the database
    /// the id of a lost transaction is given to another one, so the id alone does not tell what became of it.
    COUNT_COMMIT = "
        WITH counted AS (UPDATE counter SET next_value = next_value + 1 WHERE name = 'commits')
        INSERT INTO counter (name, next_value) VALUES ('commit ' || $1, $2)
        ON CONFLICT (name) DO UPDATE SET next_value = EXCLUDED.next_value";
    IS_COMMIT_MARKED = "SELECT 1 FROM counter WHERE name = 'commit ' || $1 AND next_value = $2";
    /// Markers of connections that committed nothing since a time; the time is in microseconds.
    DELETE_OLD_MARKERS = "DELETE FROM counter WHERE name LIKE 'commit %' AND next_value < $1";
    /// The transaction id, for a later status query; the server that may write; and the process id of the
    /// backend.
    TRANSACTION_INFO = "
        SELECT pg_current_xact_id()::text, (SELECT epoch FROM server_epoch), pg_backend_pid()::bigint";
    COMMITS = "SELECT next_value FROM counter WHERE name = 'commits'";
    TRANSACTION_STATUS = "SELECT pg_xact_status($1::text::xid8)";

    TRY_LOCK = "SELECT pg_try_advisory_lock($1)::int";
    TRY_LOCK_SHARED = "SELECT pg_try_advisory_lock_shared($1)::int";
    WAIT_FOR_LOCK = "SELECT 1 FROM pg_advisory_lock($1)";
    RECORD_LOCK_HOLDER = "
        INSERT INTO lock_holder (lock_key, holder) VALUES ($1, $2)
        ON CONFLICT (lock_key) DO UPDATE SET holder = EXCLUDED.holder";
    /// Exclusive holders of Windlass's locks, from the first key up to (not including) the second.
    LOCK_HOLDERS = "
        SELECT l.k, h.holder FROM (
            SELECT (classid::bigint << 32) | objid::bigint AS k FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND mode = 'ExclusiveLock'
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        ) l LEFT JOIN lock_holder h ON h.lock_key = l.k
        WHERE l.k >= $1 AND l.k < $2 ORDER BY l.k";
    DELETE_LOCK_HOLDER = "DELETE FROM lock_holder WHERE lock_key = $1";

    /// The server, and the microseconds without a heartbeat while the database was reachable; `NULL` after a
    /// clean shutdown.
    SERVER_STATE = "
        SELECT epoch, holder, CASE WHEN heartbeat_at > 0 THEN (extract(epoch FROM clock_timestamp()) *
            1000000)::bigint
            - greatest(heartbeat_at, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint) END
        FROM server_epoch";
    NEXT_EPOCH = "
        UPDATE server_epoch SET epoch = epoch + 1, holder = $1,
            heartbeat_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        RETURNING epoch";
    HEARTBEAT = "
        UPDATE server_epoch SET heartbeat_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        WHERE epoch = $1";
    CLEAR_HEARTBEAT = "UPDATE server_epoch SET heartbeat_at = 0 WHERE epoch = $1";
    /// A server without a clean shutdown.
    SERVER_WITH_HEARTBEAT = "SELECT 1 FROM server_epoch WHERE epoch = $1 AND heartbeat_at > 0";
    SUPERSEDE_SERVER = "
        UPDATE server_epoch SET epoch = epoch + 1, heartbeat_at = 0 WHERE epoch = $1 AND heartbeat_at > 0";
    /// All connections of a process, by application name.
    END_SESSIONS = "
        SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()";

    /// A single connection.
    END_SESSION = "
        SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = $1 AND pid = $2::bigint";

    TABLES = "
        SELECT table_name::text FROM information_schema.tables
        WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY 1";
}

pub(crate) const UNLOCK_ALL: &str = "SELECT pg_advisory_unlock_all()";

pub(crate) const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
pub(crate) const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// Disables timeouts: writers wait for each other for as long as necessary, and a lock is held for the life of
/// its process, regardless of the settings of role and database. Not every version has all of these settings.
pub(crate) const DISABLE_TIMEOUTS: &str = "
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',
        'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')";
/// Detects disconnected clients within minutes, so that they do not block others: in seconds and milliseconds.
pub(crate) const SET_TCP_KEEPALIVE: &str = "
    SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 20000";

pub(crate) const COMMIT: &str = "COMMIT";
pub(crate) const ROLLBACK: &str = "ROLLBACK";

pub(crate) const BEGIN_SAVEPOINT: &str = "SAVEPOINT request";
pub(crate) const RELEASE_SAVEPOINT: &str = "RELEASE SAVEPOINT request";
pub(crate) const ROLLBACK_SAVEPOINT: &str = "ROLLBACK TO SAVEPOINT request";

/// Ends with the enclosing transaction. Makes statements over arrays look up rows by key, even before
/// PostgreSQL has statistics of a new workflow, when it would rather scan the table.
pub(crate) const BEGIN_PIPELINE: &str = "
    SAVEPOINT pipeline; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
pub(crate) const ROLLBACK_PIPELINE: &str = "ROLLBACK TO SAVEPOINT pipeline";
