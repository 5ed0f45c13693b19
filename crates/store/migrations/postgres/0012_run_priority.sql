-- The comments are in the file of the same name for SQLite.
ALTER TABLE request_run ADD COLUMN priority BIGINT;
