//! What only PostgreSQL says.

super::statements! {
    /// Writers come one after the other, as in SQLite: ids of events become visible in their order, and nobody decides on
    /// what another one is about to change. Its number is the one of [`crate::postgres`]'s lock for writing.
    WAIT_TO_WRITE = "SELECT pg_advisory_xact_lock($1)";
    COUNT_COMMIT = "UPDATE counter SET next_value = next_value + 1 WHERE name = 'commits'";
    /// The transaction's number, by which it can be asked for later; which server may write; and who is at work on it.
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
    /// Of those of ours that somebody holds alone, from the first number to before the second.
    LOCK_HOLDERS = "
        SELECT l.k, h.holder FROM (
            SELECT (classid::bigint << 32) | objid::bigint AS k FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND mode = 'ExclusiveLock'
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        ) l LEFT JOIN lock_holder h ON h.lock_key = l.k
        WHERE l.k >= $1 AND l.k < $2 ORDER BY l.k";
    DELETE_LOCK_HOLDER = "DELETE FROM lock_holder WHERE lock_key = $1";

    /// Who is the server, and for how many microseconds nothing was heard of it while it could have been; `NULL` if it said
    /// goodbye.
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
    /// One that did not say goodbye.
    SERVER_WITH_HEARTBEAT = "SELECT 1 FROM server_epoch WHERE epoch = $1 AND heartbeat_at > 0";
    SUPERSEDE_SERVER = "
        UPDATE server_epoch SET epoch = epoch + 1, heartbeat_at = 0 WHERE epoch = $1 AND heartbeat_at > 0";
    /// All connections of a process, by the name it gave them.
    END_SESSIONS = "
        SELECT pg_terminate_backend(pid)::int FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()";

    /// One of them.
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
/// Writers wait for each other for as long as it takes, and a lock is held for as long as its process lives: whatever the
/// role or the database says about patience is for others. Not every version knows all of them.
pub(crate) const DISABLE_TIMEOUTS: &str = "
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',
        'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')";
/// Whoever is cut off without a farewell is noticed, and holds up nobody for hours: in seconds and milliseconds.
pub(crate) const SET_TCP_KEEPALIVE: &str = "
    SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 20000";

pub(crate) const COMMIT: &str = "COMMIT";
pub(crate) const ROLLBACK: &str = "ROLLBACK";

pub(crate) const BEGIN_SAVEPOINT: &str = "SAVEPOINT request";
pub(crate) const RELEASE_SAVEPOINT: &str = "RELEASE SAVEPOINT request";
pub(crate) const ROLLBACK_SAVEPOINT: &str = "ROLLBACK TO SAVEPOINT request";

/// Ends with what is around it. Statements over arrays find each row by its key, also while PostgreSQL has not counted the
/// rows of a new workflow and would rather read them all.
pub(crate) const BEGIN_PIPELINE: &str = "
    SAVEPOINT pipeline; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
pub(crate) const ROLLBACK_PIPELINE: &str = "ROLLBACK TO SAVEPOINT pipeline";
