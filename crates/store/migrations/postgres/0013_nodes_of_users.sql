-- A node that fails jobs is set aside for the workers of one user. With an empty user it is set aside for all workers: by an
-- operator, or where the server shares blame.

ALTER TABLE node_aside ADD COLUMN user_name TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE node_aside DROP CONSTRAINT node_aside_pkey;
ALTER TABLE node_aside ADD PRIMARY KEY (host, user_name);
