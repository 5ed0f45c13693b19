//! The startup of a DAG. A queued DAG may be invalid: then DAGMan ends a second later, without a status file, and
//! the reason is only in DAGMan's own log.

use super::DagSubmitError;
use crate::file_layout;
use crate::parsers::dagman_out;
use crate::parsers::events::{self, JobEvents, JobExit, JobHold};
use crate::parsers::jobstate::{self, JobstateEntry};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is known of DAGMan after a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DagStartup {
    /// It has parsed the DAG and started; it may have ended already.
    Started,
    /// HTCondor holds it.
    Held(JobHold),
    /// It waits in the queue: the schedd is too busy to start it.
    NotYet,
}

/// The polling interval: only files are read.
const STARTUP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns when the startup has succeeded or failed, or after this time.
pub(super) fn await_startup(
    directory: &Path,
    cluster: u64,
    max_wait: Duration,
) -> Result<DagStartup, DagSubmitError> {
    let deadline = Instant::now() + max_wait;
    loop {
        let sight = check_startup(directory, cluster)?;
        if sight != DagStartup::NotYet || Instant::now() >= deadline {
            return Ok(sight);
        }
        std::thread::sleep(STARTUP_POLL_INTERVAL);
    }
}

fn check_startup(directory: &Path, cluster: u64) -> Result<DagStartup, DagSubmitError> {
    // Read before the job state log: if DAGMan has ended, the other log is complete by then.
    let life = read_dagman_events(directory, cluster)?;
    if has_started(directory, cluster)? {
        return Ok(DagStartup::Started);
    }
    if life.exit().is_some() || life.removal().is_some() {
        return Err(DagSubmitError::Rejected { cluster, reason: rejection_reason(directory, &life)? });
    }
    Ok(find_hold(&life).map_or(DagStartup::NotYet, DagStartup::Held))
}

/// The schedd's log of the DAGMan job itself.
fn read_dagman_events(directory: &Path, cluster: u64) -> Result<JobEvents, DagSubmitError> {
    let path = directory.join(format!("{}{}", file_layout::OUTER_DAG, file_layout::DAGMAN_LOG_SUFFIX));
    or_default_if_missing(events::read_job_events(&path, cluster)).map_err(DagSubmitError::io(&path))
}

/// `1794802399 INTERNAL *** DAGMAN_STARTED 64.0 ***`
pub(super) fn has_started(directory: &Path, cluster: u64) -> Result<bool, DagSubmitError> {
    let path = directory.join(file_layout::OUTER_JOBSTATE);
    let log = or_default_if_missing(fs::read(&path)).map_err(DagSubmitError::io(&path))?;
    let is_it =
        |entry: &JobstateEntry<'_>| matches!(entry, JobstateEntry::Started { cluster: by } if *by == cluster);
    Ok(jobstate::parse_lines(&log).any(|line| is_it(&line.entry)))
}

/// The last event counts: a held job may have been released.
fn find_hold(life: &JobEvents) -> Option<JobHold> {
    let last = life.0.iter().rev().find_map(|event| match &event.kind {
        events::CondorEventKind::Held(hold) => Some(Some(hold.clone())),
        events::CondorEventKind::Released { .. } | events::CondorEventKind::Executing { .. } => Some(None),
        _ => None,
    });
    last.flatten()
}

fn rejection_reason(directory: &Path, life: &JobEvents) -> Result<String, DagSubmitError> {
    if let Some(removal) = life.removal() {
        return Ok(format!("it was removed before it started: {removal}"));
    }
    let path = directory.join(format!("{}{}", file_layout::OUTER_DAG, file_layout::DAGMAN_OUT_SUFFIX));
    let out = or_default_if_missing(fs::read(&path)).map_err(DagSubmitError::io(&path))?;
    let message = dagman_out::parse_last_run(&out).errors;
    if !message.is_empty() {
        return Ok(message.join("; "));
    }
    let ending = match life.exit() {
        Some(JobExit::Signal(signal)) => format!("signal {signal}"),
        Some(JobExit::Code(code)) => format!("status {code}"),
        None => "no status".to_owned(),
    };
    Ok(format!("it ended with {ending}; see {}", path.display()))
}

/// A file that does not exist yet is empty.
fn or_default_if_missing<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBMITTED: &str =
        "000 (064.000.000) 2026-11-16 04:13:19 Job submitted from host: <127.0.0.1:9618?sock=schedd>\n...\n";
    const HELD: &str =
        "012 (064.000.000) 2026-11-16 04:13:20 Job was held.\n\tno such file\n\tCode 6 Subcode 2\n...\n";
    const RELEASED: &str =
        "013 (064.000.000) 2026-11-16 04:13:21 Job was released.\n\tvia condor_release\n...\n";
    const ENDED: &str = "005 (064.000.000) 2026-11-16 04:13:22 Job terminated.\n\t(1) Normal termination (return value 1)\n...\n";

    /// The startup of DAGMan 64 with these contents of its two logs.
    fn seen(life: &[&str], jobstate: &str) -> Result<DagStartup, DagSubmitError> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("workflow.dag.dagman.log"), life.concat()).unwrap();
        fs::write(directory.path().join("workflow.jobstate"), jobstate).unwrap();
        check_startup(directory.path(), 64)
    }

    #[test]
    fn dag_has_started_when_its_own_log_says_so() {
        let started = "1794802399 INTERNAL *** DAGMAN_STARTED 64.0 ***\n";
        assert_eq!(seen(&[SUBMITTED], started).unwrap(), DagStartup::Started);
        assert_eq!(
            seen(&[SUBMITTED, ENDED], started).unwrap(),
            DagStartup::Started,
            "a DAG that failed had started"
        );
        let earlier = "1794802399 INTERNAL *** DAGMAN_STARTED 63.0 ***\n";
        assert_eq!(seen(&[SUBMITTED], earlier).unwrap(), DagStartup::NotYet, "that was the one before it");
    }

    #[test]
    fn waiting_dag_differs_from_a_held_one() {
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(check_startup(nothing.path(), 64).unwrap(), DagStartup::NotYet);
        let DagStartup::Held(hold) = seen(&[SUBMITTED, HELD], "").unwrap() else { panic!("it is held") };
        assert_eq!((hold.reason.as_str(), hold.code), ("no such file", 6));
        assert_eq!(seen(&[SUBMITTED, HELD, RELEASED], "").unwrap(), DagStartup::NotYet);
    }

    #[test]
    fn dag_that_ends_without_starting_is_rejected() {
        let error = seen(&[SUBMITTED, ENDED], "").unwrap_err().to_string();
        assert!(error.contains("DAGMan 64 rejected the DAG: it ended with status 1"), "{error}");
    }
}
