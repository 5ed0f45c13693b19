//! Invariants of every database, as queries for violations: their number, and the first id.

/// A description of the violation, and the statement that counts it.
pub(crate) const INVARIANT_CHECKS: &[(&str, &str)] = &[
    (
        "job counts by state that differ from the jobs (workflow)",
        "SELECT COUNT(*), MIN(c.workflow_id) FROM status_count c LEFT JOIN
            (SELECT workflow_id, status, COUNT(*) AS n FROM job GROUP BY workflow_id, status) g
            ON g.workflow_id = c.workflow_id AND g.status = c.status
         WHERE c.n <> COALESCE(g.n, 0)",
    ),
    (
        "workflows without a count for each state (workflow)",
        "SELECT COUNT(*), MIN(w.id) FROM workflow w
         WHERE (SELECT COUNT(*) FROM status_count c WHERE c.workflow_id = w.id) <> 11",
    ),
    (
        "file counts that differ from the files (workflow)",
        "SELECT COUNT(*), MIN(w.id) FROM workflow w
         WHERE w.file_count <> (SELECT COUNT(*) FROM file f WHERE f.workflow_id = w.id)",
    ),
    (
        "jobs of a missing workflow (job)",
        "SELECT COUNT(*), MIN(j.id) FROM job j
         WHERE NOT EXISTS (SELECT 1 FROM workflow w WHERE w.id = j.workflow_id)",
    ),
    (
        "jobs outside of the blocks of their workflow (job)",
        "SELECT COUNT(*), MIN(j.id) FROM job j WHERE NOT EXISTS (
            SELECT 1 FROM job_block b WHERE b.workflow_id = j.workflow_id
                AND j.id >= b.first_job_id AND j.id < b.first_job_id + b.job_count)",
    ),
    (
        "workflows whose blocks do not match their number of jobs (workflow)",
        "SELECT COUNT(*), MIN(b.workflow_id) FROM
            (SELECT workflow_id, SUM(job_count) AS n FROM job_block GROUP BY workflow_id) b LEFT JOIN
            (SELECT workflow_id, COUNT(*) AS n FROM job GROUP BY workflow_id) j ON j.workflow_id = b.workflow_id
         WHERE b.n <> COALESCE(j.n, 0)",
    ),
    (
        "active jobs without a worker, or inactive jobs with one (job)",
        "SELECT COUNT(*), MIN(id) FROM job WHERE (status IN (3, 4)) <> (worker_id IS NOT NULL)",
    ),
    (
        "jobs held by a missing worker (job)",
        "SELECT COUNT(*), MIN(j.id) FROM job j WHERE j.worker_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = j.worker_id)",
    ),
    (
        "jobs with missing requirements (job)",
        "SELECT COUNT(*), MIN(j.id) FROM job j WHERE j.requirements_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM resource_requirements r
                WHERE r.id = j.requirements_id AND r.workflow_id = j.workflow_id)",
    ),
    (
        "jobs with a missing job group (job)",
        "SELECT COUNT(*), MIN(j.id) FROM job j WHERE j.job_group_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM job_group k WHERE k.id = j.job_group_id AND k.workflow_id = j.workflow_id)",
    ),
    (
        "dependencies of or on jobs outside of the workflow (job)",
        "SELECT COUNT(*), MIN(e.job_id) FROM job_edge e
         WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = e.depends_on AND j.workflow_id = e.workflow_id)
            OR NOT EXISTS (SELECT 1 FROM job j WHERE j.id = e.job_id AND j.workflow_id = e.workflow_id)",
    ),
    (
        "members of dependency groups outside of the workflow (job)",
        "SELECT COUNT(*), MIN(m.job_id) FROM dependency_group_member m
         WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = m.job_id AND j.workflow_id = m.workflow_id)",
    ),
    (
        "dependents of dependency groups outside of the workflow (job)",
        "SELECT COUNT(*), MIN(g.job_id) FROM job_dependency_group g
         WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = g.job_id AND j.workflow_id = g.workflow_id)",
    ),
    (
        "relations to files where job or file is missing (job)",
        "SELECT COUNT(*), MIN(r.job_id) FROM job_file r
         WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = r.job_id)
            OR NOT EXISTS (SELECT 1 FROM file f WHERE f.id = r.file_id)",
    ),
    (
        "jobs with a wrong `has_files` flag (job)",
        "SELECT COUNT(*), MIN(j.id) FROM job j
         WHERE (j.has_files = 1) <> EXISTS (SELECT 1 FROM job_file r WHERE r.job_id = j.id)",
    ),
    (
        "relations to user data where job or user data is missing (job)",
        "SELECT COUNT(*), MIN(r.job_id) FROM job_user_data r
         WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = r.job_id)
            OR NOT EXISTS (SELECT 1 FROM user_data u WHERE u.id = r.user_data_id)",
    ),
    (
        "results with a missing job or worker (result)",
        "SELECT COUNT(*), MIN(r.id) FROM result r
         WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = r.job_id)
            OR NOT EXISTS (SELECT 1 FROM worker w WHERE w.id = r.worker_id)",
    ),
    (
        "actions that wait for a missing job (action)",
        "SELECT COUNT(*), MIN(a.action_id) FROM action_job a
         WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = a.job_id)",
    ),
    (
        "next ids that are already used (next number)",
        "SELECT COUNT(*), MIN(c.next_value) FROM counter c
         WHERE c.next_value <= CASE c.name
            WHEN 'job' THEN (SELECT COALESCE(MAX(id), 0) FROM job)
            WHEN 'file' THEN (SELECT COALESCE(MAX(id), 0) FROM file)
            WHEN 'user_data' THEN (SELECT COALESCE(MAX(id), 0) FROM user_data)
            ELSE 0 END",
    ),
];
