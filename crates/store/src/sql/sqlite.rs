//! What only SQLite says.

super::statements! {
    /// Takes the write lock at once: a transaction that begins as a reader may be refused when it wants to write.
    BEGIN_WRITE = "BEGIN IMMEDIATE";
    BEGIN_READ = "BEGIN DEFERRED";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";

    BEGIN_REQUEST = "SAVEPOINT request";
    KEEP_REQUEST = "RELEASE request";
    UNDO_REQUEST = "ROLLBACK TO request";

    /// How many frames the log holds and how many of them are already in the database file.
    LOG_FRAMES = "PRAGMA wal_checkpoint(NOOP)";
    CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)";
    CHECKPOINT_AND_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)";
}
