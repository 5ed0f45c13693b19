-- What is undone belongs to jobs that have not run since, and proposals to failures that still wait.

-- How many attempts of the job had ended when it was changed; NULL: from before that was noted.
ALTER TABLE revision ADD COLUMN attempts INTEGER CHECK (attempts >= 0);

-- Since when nobody is to answer the proposal any more: the job went on without it, or another took its place.
ALTER TABLE decision ADD COLUMN overtaken_at INTEGER;
