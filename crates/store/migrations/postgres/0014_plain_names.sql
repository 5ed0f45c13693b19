-- Tables and columns are named after what they hold. Only names change.

ALTER TABLE gate_member RENAME COLUMN gate TO group_number;
ALTER TABLE job_gate RENAME COLUMN gate TO group_number;
ALTER TABLE job RENAME COLUMN kind_id TO job_group_id;
ALTER TABLE job_kind RENAME COLUMN elects TO elects_site;
ALTER TABLE carried RENAME COLUMN excused TO uncounted_retries;
ALTER TABLE allocation RENAME COLUMN is_over TO is_ended;
ALTER TABLE allocation RENAME COLUMN asked_by TO requested_by;
ALTER TABLE allocation RENAME COLUMN unwanted TO cancel_reason;
ALTER TABLE allocation RENAME COLUMN missed TO missed_polls;
ALTER TABLE failure RENAME COLUMN last_words TO log_excerpt;
ALTER TABLE failure RENAME COLUMN next TO retry_decision;
ALTER TABLE failure RENAME COLUMN why TO decision_reason;
ALTER TABLE decision RENAME COLUMN verdict TO command;
ALTER TABLE decision RENAME COLUMN settled_at TO reviewed_at;
ALTER TABLE decision RENAME COLUMN settled_by TO reviewed_by;
ALTER TABLE decision RENAME COLUMN overtaken_at TO superseded_at;
ALTER TABLE alert RENAME COLUMN told_at TO notified_at;
ALTER TABLE site_ban RENAME COLUMN expiry_told_at TO expiry_notified_at;
ALTER TABLE job_edge RENAME COLUMN waits_for TO depends_on;
ALTER TABLE job_block RENAME COLUMN asked_run TO requested_in_run;
ALTER TABLE job_block RENAME COLUMN asked_attempt TO requested_in_attempt;
ALTER TABLE request_failure RENAME COLUMN tally TO counts;
ALTER TABLE request RENAME COLUMN wanted TO requested_change;
ALTER TABLE wish RENAME COLUMN wanted TO command;
ALTER TABLE carried RENAME TO next_attempt;
ALTER TABLE gate_member RENAME TO dependency_group_member;
ALTER TABLE job_gate RENAME TO job_dependency_group;
ALTER TABLE job_kind RENAME TO job_group;
ALTER TABLE ignored RENAME TO ignored_failure;
ALTER TABLE node_aside RENAME TO quarantined_node;
ALTER TABLE wish RENAME TO pending_command;

ALTER INDEX job_kind_of RENAME TO job_group_by_workflow;
ALTER INDEX carried_in RENAME TO next_attempt_by_run;
ALTER INDEX ignored_in RENAME TO ignored_failure_by_run;
ALTER INDEX wish_in RENAME TO pending_command_by_workflow;
ALTER INDEX alert_untold RENAME TO alert_not_notified;
