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
fn has_started(directory: &Path, cluster: u64) -> Result<bool, SubmitError> {
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
