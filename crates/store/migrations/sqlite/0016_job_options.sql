-- Rarely used fields of a job: a JSON object. NULL: it has none.
ALTER TABLE job ADD COLUMN options TEXT;
