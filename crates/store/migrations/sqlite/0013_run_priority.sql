-- The priority that the jobs of a run have at its backend; NULL: not known. It is set anew when the priority of the request
-- is another one.
ALTER TABLE request_run ADD COLUMN priority INTEGER;
