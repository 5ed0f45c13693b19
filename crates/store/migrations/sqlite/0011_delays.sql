-- How long the job was to wait when that was decided; NULL: from before that was noted. It bounds the wait when the wall
-- clock is set back.
ALTER TABLE carried ADD COLUMN delay_us INTEGER CHECK (delay_us >= 0);
