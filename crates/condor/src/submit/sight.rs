//! The first seconds of a DAG. That it was queued says little: a DAG that cannot be read ends a second later, without a
//! status file, and the reason is only among DAGMan's own words.

use super::SubmitError;
use crate::layout;
use crate::read::dagman_out;
use crate::read::events::{self, Exit, Hold, JobEvents};
use crate::read::jobstate::{self, Entry};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What was seen of DAGMan after a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It has read the DAG and begun; perhaps it is over already.
    Started,
    /// HTCondor holds it.
    Held(Hold),
    /// It waits in the queue: the schedd has more to do than to start it.
    NotYet,
}

/// How often to look: what is awaited are lines in files.
const LOOK: Duration = Duration::from_millis(100);

/// Returns as soon as there is something to be seen, and after this time in any case.
pub(super) fn watch(directory: &Path, cluster: u64, patience: Duration) -> Result<Sight, SubmitError> {
    let deadline = Instant::now() + patience;
    loop {
        let sight = look(directory, cluster)?;
        if sight != Sight::NotYet || Instant::now() >= deadline {
            return Ok(sight);
        }
        std::thread::sleep(LOOK);
    }
}

fn look(directory: &Path, cluster: u64) -> Result<Sight, SubmitError> {
    // Before the job state log: if it is over, whatever it said there is there by then.
    let life = life_of(directory, cluster)?;
    if has_started(directory, cluster)? {
        return Ok(Sight::Started);
    }
    if life.exit().is_some() || life.removal().is_some() {
        return Err(SubmitError::Rejected { cluster, reason: reason(directory, &life)? });
    }
    Ok(held(&life).map_or(Sight::NotYet, Sight::Held))
}

/// What the schedd wrote about the DAGMan job itself.
fn life_of(directory: &Path, cluster: u64) -> Result<JobEvents, SubmitError> {
    let path = directory.join(format!("{}{}", layout::OUTER_DAG, layout::DAGMAN_LOG));
    or_nothing(events::of_job(&path, cluster)).map_err(SubmitError::io(&path))
}

/// `1794802399 INTERNAL *** DAGMAN_STARTED 64.0 ***`
pub(super) fn has_started(directory: &Path, cluster: u64) -> Result<bool, SubmitError> {
    let path = directory.join(layout::OUTER_JOBSTATE);
    let log = or_nothing(fs::read(&path)).map_err(SubmitError::io(&path))?;
    let is_it = |entry: &Entry<'_>| matches!(entry, Entry::Started { cluster: by } if *by == cluster);
    Ok(jobstate::parse(&log).any(|line| is_it(&line.entry)))
}

/// The last word counts: one that was held may have been released.
fn held(life: &JobEvents) -> Option<Hold> {
    let last = life.0.iter().rev().find_map(|event| match &event.what {
        events::What::Held(hold) => Some(Some(hold.clone())),
        events::What::Released { .. } | events::What::Executing { .. } => Some(None),
        _ => None,
    });
    last.flatten()
}

fn reason(directory: &Path, life: &JobEvents) -> Result<String, SubmitError> {
    if let Some(removal) = life.removal() {
        return Ok(format!("it was removed before it began: {removal}"));
    }
    let path = directory.join(format!("{}{}", layout::OUTER_DAG, layout::DAGMAN_OUT));
    let out = or_nothing(fs::read(&path)).map_err(SubmitError::io(&path))?;
    let said = dagman_out::last_run(&out).errors;
    if !said.is_empty() {
        return Ok(said.join("; "));
    }
    let ending = match life.exit() {
        Some(Exit::Signal(signal)) => format!("signal {signal}"),
        Some(Exit::Code(code)) => format!("status {code}"),
        None => "no status".to_owned(),
    };
    Ok(format!("it ended with {ending}; see {}", path.display()))
}

/// A file that is not there yet is empty.
fn or_nothing<T: Default>(read: io::Result<T>) -> io::Result<T> {
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

    /// What is seen of DAGMan 64, given what is in its two logs.
    fn seen(life: &[&str], jobstate: &str) -> Result<Sight, SubmitError> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("workflow.dag.dagman.log"), life.concat()).unwrap();
        fs::write(directory.path().join("workflow.jobstate"), jobstate).unwrap();
        look(directory.path(), 64)
    }

    #[test]
    fn it_has_begun_when_it_says_so_itself() {
        let started = "1794802399 INTERNAL *** DAGMAN_STARTED 64.0 ***\n";
        assert_eq!(seen(&[SUBMITTED], started).unwrap(), Sight::Started);
        assert_eq!(
            seen(&[SUBMITTED, ENDED], started).unwrap(),
            Sight::Started,
            "a DAG that failed had begun"
        );
        let earlier = "1794802399 INTERNAL *** DAGMAN_STARTED 63.0 ***\n";
        assert_eq!(seen(&[SUBMITTED], earlier).unwrap(), Sight::NotYet, "that was the one before it");
    }

    #[test]
    fn one_that_waits_is_told_from_one_that_is_held() {
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(look(nothing.path(), 64).unwrap(), Sight::NotYet);
        let Sight::Held(hold) = seen(&[SUBMITTED, HELD], "").unwrap() else { panic!("it is held") };
        assert_eq!((hold.reason.as_str(), hold.code), ("no such file", 6));
        assert_eq!(seen(&[SUBMITTED, HELD, RELEASED], "").unwrap(), Sight::NotYet);
    }

    #[test]
    fn one_that_ends_without_a_word_is_rejected_all_the_same() {
        let error = seen(&[SUBMITTED, ENDED], "").unwrap_err().to_string();
        assert!(error.contains("DAGMan 64 did not accept the DAG: it ended with status 1"), "{error}");
    }
}
