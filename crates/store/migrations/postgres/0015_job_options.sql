-- Rarely used fields of a job. The comments are in the file of the same name for SQLite.
ALTER TABLE job ADD COLUMN options TEXT;
