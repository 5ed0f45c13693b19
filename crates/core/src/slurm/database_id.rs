//! Identification of the jobs in Slurm that belong to this database.
//!
//! A copy of a database has the rows of the original, including tags. Two servers of one user would then treat
//! each other's allocations as their own, and cancel those that their own copy does not need. So Slurm gets the
//! tag together with an id of the database; a server with another database neither sees these jobs nor modifies
//! them.

use super::slurm_jobs::{SacctJob, SqueueJob};
use windlass_types::digest_bytes;

/// Separator between a tag and the database id; does not occur in generated tags.
const MARK_SEPARATOR: &str = "..";
const ID_DIGITS: usize = 8;

/// Returns an id of the database, short enough for the name of a job. `place`: its path or address.
pub fn database_id(place: &str) -> String {
    let mut digits = digest_bytes(place.as_bytes());
    digits.retain(|c| c.is_ascii_hexdigit());
    digits.truncate(ID_DIGITS);
    digits
}

/// Adds the database id to a tag, or to the name of a series.
pub fn add_database_id(text: &str, home: &str) -> String {
    if home.is_empty() { text.to_owned() } else { format!("{text}{MARK_SEPARATOR}{home}") }
}

/// Removes the id; `None` if it is that of another database. A text without id is from an older version.
fn unmark_tag<'a>(text: &'a str, home: &str) -> Option<&'a str> {
    match text.rsplit_once(MARK_SEPARATOR) {
        Some((text, mark)) if is_database_id(mark) => (mark == home).then_some(text),
        _ => Some(text),
    }
}

fn is_database_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// Removes the id from name and comment; `None`: they belong to another database.
fn unmark_job(name: &str, comment: &str, home: &str) -> Option<(String, String)> {
    // A comment that was not stored is empty.
    Some((unmark_tag(name, home)?.to_owned(), unmark_tag(comment, home)?.to_owned()))
}

/// Returns the jobs of this database, with their tags as in the database.
pub fn own_queue_jobs(jobs: Vec<SqueueJob>, home: &str) -> Vec<SqueueJob> {
    let here = |job: SqueueJob| {
        let (name, comment) = unmark_job(&job.name, &job.comment, home)?;
        Some(SqueueJob { name, comment, ..job })
    };
    jobs.into_iter().filter_map(here).collect()
}

/// The same for a job in accounting.
pub fn own_accounted_job(job: SacctJob, home: &str) -> Option<SacctJob> {
    let (name, comment) = unmark_job(&job.name, &job.comment, home)?;
    Some(SacctJob { name, comment, ..job })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::allocation_rows::is_valid_tag;

    #[test]
    fn database_id_depends_on_the_path_and_fits_a_tag() {
        let (here, there) =
            (database_id("/data/a/.windlass/windlass.db"), database_id("/data/b/.windlass/windlass.db"));
        assert_ne!(here, there);
        assert!(is_database_id(&here) && here == database_id("/data/a/.windlass/windlass.db"));
        assert!(is_valid_tag(&add_database_id("windlass-6f1c9a02-17", &here)));
        assert_eq!(add_database_id("windlass-6f1c9a02-17", ""), "windlass-6f1c9a02-17");
    }

    #[test]
    fn jobs_of_a_copied_database_are_ignored() {
        let (here, there) = (database_id("here"), database_id("there"));
        let job = |job_id, name: String, comment: String| SqueueJob {
            job_id,
            name,
            comment,
            ..SqueueJob::default()
        };
        let tag = "windlass-6f1c9a02-17";
        let queue = vec![
            job(1, add_database_id(tag, &here), add_database_id(tag, &here)),
            job(2, add_database_id(tag, &there), add_database_id(tag, &there)),
            // Of a series, identified by the comment.
            job(3, add_database_id("windlass-6f1c9a02-wf1-night", &here), add_database_id(tag, &here)),
            job(4, add_database_id("windlass-6f1c9a02-wf1-night", &there), add_database_id(tag, &there)),
            // From an older version, and one of another user.
            job(5, tag.into(), tag.into()),
            job(6, "a..b".into(), String::new()),
        ];
        let seen: Vec<(u64, String, String)> =
            own_queue_jobs(queue, &here).into_iter().map(|job| (job.job_id, job.name, job.comment)).collect();
        let series = "windlass-6f1c9a02-wf1-night";
        assert_eq!(
            seen,
            [
                (1, tag.to_owned(), tag.to_owned()),
                (3, series.to_owned(), tag.to_owned()),
                (5, tag.to_owned(), tag.to_owned()),
                (6, "a..b".to_owned(), String::new()),
            ]
        );
    }

    #[test]
    fn accounting_without_comments_matches_names() {
        let (here, there) = (database_id("here"), database_id("there"));
        let accounted = |name: String| SacctJob { job_id: 1, name, ..SacctJob::default() };
        let of = |name: &str| {
            own_accounted_job(accounted(add_database_id(name, &here)), &here).map(|job| job.name)
        };
        assert_eq!(of("windlass-6f1c9a02-17").as_deref(), Some("windlass-6f1c9a02-17"));
        assert_eq!(
            own_accounted_job(accounted(add_database_id("windlass-6f1c9a02-17", &there)), &here),
            None
        );
    }
}
