//! Parser of job state logs (`JOBSTATE_LOG`): what DAGMan did with its nodes, line by line.
//!
//! ```text
//! 1794723537 INTERNAL *** DAGMAN_STARTED 20.0 ***
//! 1794723546 proc_000001 POST_SCRIPT_FAILURE 31.0 - - 3
//! 1794723558 INTERNAL *** DAGMAN_FINISHED 0 ***
//! ```
//!
//! DAGMan only appends to it: a rescue run continues in the same file, and so does a DAGMan that was held,
//! released or killed (it then writes RECOVERY). Lines are not strictly ordered in time, and a recovery may omit
//! some: a reader that needs every line must also read the status file.

use super::complete_lines;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobstateLine<'a> {
    /// Unix time of the event, not of the writing.
    pub at: i64,
    pub entry: JobstateEntry<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobstateEntry<'a> {
    /// With the id of DAGMan's own job, also when it restarts after a hold or a crash.
    Started {
        cluster: u64,
    },
    /// With the exit code: 3 means that it was held or stopped and will continue.
    Finished {
        exit_code: i32,
    },
    RecoveryStarted,
    RecoveryFinished,
    Node(JobstateNodeLine<'a>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobstateNodeLine<'a> {
    pub node: &'a str,
    pub step: JobstateStep,
    /// The cluster of its job, if there is one.
    pub cluster: Option<u64>,
    /// Each attempt of a node has its own.
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobstateStep {
    PreStarted,
    PreSucceeded,
    PreFailed,
    Submitted,
    SubmitFailed,
    Executing,
    Evicted,
    Held,
    Released,
    /// Its job was removed.
    Aborted,
    Terminated,
    JobSucceeded,
    /// With the return value of the job in DAGMan's notation: negative for signals and removals.
    JobFailed(i32),
    PostStarted,
    PostSucceeded,
    PostFailed,
    Other,
}

/// Parses the complete, valid lines of a log.
pub fn parse_lines(log: &[u8]) -> impl Iterator<Item = JobstateLine<'_>> {
    complete_lines(log).filter_map(parse_line)
}

/// Parses a line without its end. `None` if DAGMan does not write such a line.
pub fn parse_line(line: &[u8]) -> Option<JobstateLine<'_>> {
    let line = str::from_utf8(line).ok()?;
    let (at, rest) = line.split_once(' ')?;
    let at = super::parse_digits(at)?.try_into().ok()?;
    let (name, rest) = rest.split_once(' ')?;
    let entry = if name == "INTERNAL" {
        parse_internal(rest)?
    } else {
        JobstateEntry::Node(parse_node_line(name, rest)?)
    };
    Some(JobstateLine { at, entry })
}

/// `*** DAGMAN_STARTED 20.0 ***`
fn parse_internal(text: &str) -> Option<JobstateEntry<'_>> {
    let text = text.strip_prefix("*** ")?.strip_suffix(" ***")?;
    match text.split_once(' ') {
        Some(("DAGMAN_STARTED", id)) => Some(JobstateEntry::Started { cluster: parse_cluster(id)? }),
        Some(("DAGMAN_FINISHED", exit)) => Some(JobstateEntry::Finished { exit_code: exit.parse().ok()? }),
        None if text == "RECOVERY_STARTED" => Some(JobstateEntry::RecoveryStarted),
        None if text == "RECOVERY_FINISHED" => Some(JobstateEntry::RecoveryFinished),
        _ => None,
    }
}

/// `POST_SCRIPT_FAILURE 31.0 - - 3`
fn parse_node_line<'a>(node: &'a str, rest: &str) -> Option<JobstateNodeLine<'a>> {
    let mut words = rest.split(' ');
    let (step, id) = (words.next()?, words.next()?);
    // Two unused fields, then the number of the attempt, and nothing after it.
    let sequence = super::parse_digits(words.nth(2)?)?;
    if words.next().is_some() || node.is_empty() {
        return None;
    }
    Some(JobstateNodeLine { node, step: parse_step(step, id)?, cluster: parse_cluster(id), sequence })
}

fn parse_step(name: &str, id: &str) -> Option<JobstateStep> {
    Some(match name {
        "PRE_SCRIPT_STARTED" => JobstateStep::PreStarted,
        "PRE_SCRIPT_SUCCESS" => JobstateStep::PreSucceeded,
        "PRE_SCRIPT_FAILURE" => JobstateStep::PreFailed,
        "SUBMIT" => JobstateStep::Submitted,
        "SUBMIT_FAILURE" | "SUBMIT_FAILED" => JobstateStep::SubmitFailed,
        "EXECUTE" => JobstateStep::Executing,
        "JOB_EVICTED" => JobstateStep::Evicted,
        "JOB_HELD" => JobstateStep::Held,
        "JOB_RELEASED" => JobstateStep::Released,
        "JOB_ABORTED" => JobstateStep::Aborted,
        "JOB_TERMINATED" => JobstateStep::Terminated,
        "JOB_SUCCESS" => JobstateStep::JobSucceeded,
        "JOB_FAILURE" => JobstateStep::JobFailed(id.parse().ok()?),
        "POST_SCRIPT_STARTED" => JobstateStep::PostStarted,
        "POST_SCRIPT_SUCCESS" => JobstateStep::PostSucceeded,
        "POST_SCRIPT_FAILURE" => JobstateStep::PostFailed,
        _ => JobstateStep::Other,
    })
}

/// `31.0`; a lone number is an exit code, and `-` is nothing.
fn parse_cluster(id: &str) -> Option<u64> {
    let (cluster, process) = id.split_once('.')?;
    super::parse_digits(process)?;
    super::parse_digits(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;

    const GROUP: &[u8] = include_bytes!("../../tests/data/group.jobstate.log");

    #[test]
    fn jobstate_log_of_a_unit_is_parsed() {
        let lines: Vec<_> = parse_lines(GROUP).collect();
        assert_eq!(lines.len(), GROUP.lines().count(), "all lines are valid");
        assert_eq!(
            lines[0],
            JobstateLine { at: 1_794_723_537, entry: JobstateEntry::Started { cluster: 20 } }
        );
        let retry = JobstateNodeLine {
            node: "proc_000001",
            step: JobstateStep::PostFailed,
            cluster: Some(31),
            sequence: 3,
        };
        assert!(lines.iter().any(|line| line.entry == JobstateEntry::Node(retry.clone())));
        assert_eq!(lines.last().unwrap().entry, JobstateEntry::Finished { exit_code: 0 });
        let unknown = lines.iter().filter(
            |line| matches!(&line.entry, JobstateEntry::Node(line) if line.step == JobstateStep::Other),
        );
        assert_eq!(
            unknown.count(),
            7,
            "POST_SCRIPT_TERMINATED is followed by SUCCESS or FAILURE and adds nothing"
        );
    }

    #[test]
    fn steps_of_nodes_are_parsed() {
        let step = |line: &'static str| match parse_line(line.as_bytes())?.entry {
            JobstateEntry::Node(JobstateNodeLine { step, cluster, .. }) => Some((step, cluster)),
            _ => None,
        };
        assert_eq!(step("1 a JOB_FAILURE -1002 - - 4"), Some((JobstateStep::JobFailed(-1002), None)));
        assert_eq!(step("1 a JOB_SUCCESS 0 - - 4"), Some((JobstateStep::JobSucceeded, None)));
        assert_eq!(step("1 a PRE_SCRIPT_STARTED - - - 4"), Some((JobstateStep::PreStarted, None)));
        assert_eq!(step("1 a JOB_HELD 7.0 - - 4"), Some((JobstateStep::Held, Some(7))));
        assert_eq!(step("1 a IMAGE_SIZE 7.0 - - 4"), Some((JobstateStep::Other, Some(7))));
        for broken in [
            "",
            "1",
            "1 a",
            "1 a JOB_SUCCESS",
            "1 a JOB_SUCCESS 0 - -",
            "1 a JOB_SUCCESS 0 - - 4 5",
            "x a JOB_SUCCESS 0 - - 4",
            "-1 a JOB_SUCCESS 0 - - 4",
            "1 a JOB_FAILURE x - - 4",
            "1 INTERNAL *** DAGMAN_STARTED 20.0",
            "1 INTERNAL *** DAGMAN_FINISHED ***",
            "1 INTERNAL *** SOMETHING ***",
        ] {
            assert_eq!(parse_line(broken.as_bytes()), None, "{broken:?}");
        }
        assert_eq!(parse_line(b"1 \xff SUBMIT 1.0 - - 1"), None);
    }

    #[test]
    fn incomplete_line_is_ignored() {
        let text = b"1 a POST_SCRIPT_SUCCESS 7.0 - - 1\n1 a POST_SCRIPT_SUCCESS 7.0 - - 12";
        assert_eq!(parse_lines(text).count(), 1);
        assert_eq!(parse_lines(b"").count(), 0);
        assert_eq!(parse_lines(b"\n").count(), 0);
    }
}
