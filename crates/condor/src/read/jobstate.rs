//! Job state logs (`JOBSTATE_LOG`): what DAGMan did with its nodes, line by line.
//!
//! ```text
//! 1794723537 INTERNAL *** DAGMAN_STARTED 20.0 ***
//! 1794723546 proc_000001 POST_SCRIPT_FAILURE 31.0 - - 3
//! 1794723558 INTERNAL *** DAGMAN_FINISHED 0 ***
//! ```
//!
//! DAGMan only ever appends to it: a rescue run goes on in the same file, and so does one that was held, released or
//! killed (it then says RECOVERY). Lines are not strictly ordered in time, and a recovery may leave some out: who counts
//! on each must look at the status file as well.

use super::whole_lines;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Unix time, of the event rather than of the writing.
    pub at: i64,
    pub entry: Entry<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// With the id of DAGMan's own job, also when it begins again after a hold or a crash.
    Started {
        cluster: u64,
    },
    /// With the exit code: 3 says that it was held or stopped and will go on.
    Finished {
        exit: i32,
    },
    RecoveryStarted,
    RecoveryFinished,
    Node(NodeLine<'a>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLine<'a> {
    pub node: &'a str,
    pub step: Step,
    /// The cluster of its job, where there is one.
    pub cluster: Option<u64>,
    /// Each attempt of a node has its own.
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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
    /// With what the job returned, as DAGMan counts: negative for signals and removals.
    JobFailed(i32),
    PostStarted,
    PostSucceeded,
    PostFailed,
    Other,
}

/// The lines of a log that are whole and can be understood.
pub fn parse(log: &[u8]) -> impl Iterator<Item = Line<'_>> {
    whole_lines(log).filter_map(parse_line)
}

/// A line without its end. `None` if it is none that DAGMan writes.
pub fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let line = str::from_utf8(line).ok()?;
    let (at, rest) = line.split_once(' ')?;
    let at = super::digits(at)?.try_into().ok()?;
    let (name, rest) = rest.split_once(' ')?;
    let entry = if name == "INTERNAL" { internal(rest)? } else { Entry::Node(node(name, rest)?) };
    Some(Line { at, entry })
}

/// `*** DAGMAN_STARTED 20.0 ***`
fn internal(text: &str) -> Option<Entry<'_>> {
    let text = text.strip_prefix("*** ")?.strip_suffix(" ***")?;
    match text.split_once(' ') {
        Some(("DAGMAN_STARTED", id)) => Some(Entry::Started { cluster: cluster(id)? }),
        Some(("DAGMAN_FINISHED", exit)) => Some(Entry::Finished { exit: exit.parse().ok()? }),
        None if text == "RECOVERY_STARTED" => Some(Entry::RecoveryStarted),
        None if text == "RECOVERY_FINISHED" => Some(Entry::RecoveryFinished),
        _ => None,
    }
}

/// `POST_SCRIPT_FAILURE 31.0 - - 3`
fn node<'a>(node: &'a str, rest: &str) -> Option<NodeLine<'a>> {
    let mut words = rest.split(' ');
    let (step, id) = (words.next()?, words.next()?);
    // Two words that nobody fills in, then the number of the attempt, and nothing after it.
    let sequence = super::digits(words.nth(2)?)?;
    if words.next().is_some() || node.is_empty() {
        return None;
    }
    Some(NodeLine { node, step: step_of(step, id)?, cluster: cluster(id), sequence })
}

fn step_of(name: &str, id: &str) -> Option<Step> {
    Some(match name {
        "PRE_SCRIPT_STARTED" => Step::PreStarted,
        "PRE_SCRIPT_SUCCESS" => Step::PreSucceeded,
        "PRE_SCRIPT_FAILURE" => Step::PreFailed,
        "SUBMIT" => Step::Submitted,
        "SUBMIT_FAILURE" | "SUBMIT_FAILED" => Step::SubmitFailed,
        "EXECUTE" => Step::Executing,
        "JOB_EVICTED" => Step::Evicted,
        "JOB_HELD" => Step::Held,
        "JOB_RELEASED" => Step::Released,
        "JOB_ABORTED" => Step::Aborted,
        "JOB_TERMINATED" => Step::Terminated,
        "JOB_SUCCESS" => Step::JobSucceeded,
        "JOB_FAILURE" => Step::JobFailed(id.parse().ok()?),
        "POST_SCRIPT_STARTED" => Step::PostStarted,
        "POST_SCRIPT_SUCCESS" => Step::PostSucceeded,
        "POST_SCRIPT_FAILURE" => Step::PostFailed,
        _ => Step::Other,
    })
}

/// `31.0`; a lone number is an exit code, and `-` is nothing.
fn cluster(id: &str) -> Option<u64> {
    let (cluster, process) = id.split_once('.')?;
    super::digits(process)?;
    super::digits(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;

    const GROUP: &[u8] = include_bytes!("../../tests/data/group.jobstate.log");

    #[test]
    fn a_group_as_dagman_wrote_it() {
        let lines: Vec<_> = parse(GROUP).collect();
        assert_eq!(lines.len(), GROUP.lines().count(), "all are understood");
        assert_eq!(lines[0], Line { at: 1_794_723_537, entry: Entry::Started { cluster: 20 } });
        let retry = NodeLine { node: "proc_000001", step: Step::PostFailed, cluster: Some(31), sequence: 3 };
        assert!(lines.iter().any(|line| line.entry == Entry::Node(retry.clone())));
        assert_eq!(lines.last().unwrap().entry, Entry::Finished { exit: 0 });
        let unknown =
            lines.iter().filter(|line| matches!(&line.entry, Entry::Node(line) if line.step == Step::Other));
        assert_eq!(unknown.count(), 7, "POST_SCRIPT_TERMINATED comes with SUCCESS or FAILURE, and says less");
    }

    #[test]
    fn what_a_line_says() {
        let step = |line: &'static str| match parse_line(line.as_bytes())?.entry {
            Entry::Node(NodeLine { step, cluster, .. }) => Some((step, cluster)),
            _ => None,
        };
        assert_eq!(step("1 a JOB_FAILURE -1002 - - 4"), Some((Step::JobFailed(-1002), None)));
        assert_eq!(step("1 a JOB_SUCCESS 0 - - 4"), Some((Step::JobSucceeded, None)));
        assert_eq!(step("1 a PRE_SCRIPT_STARTED - - - 4"), Some((Step::PreStarted, None)));
        assert_eq!(step("1 a JOB_HELD 7.0 - - 4"), Some((Step::Held, Some(7))));
        assert_eq!(step("1 a IMAGE_SIZE 7.0 - - 4"), Some((Step::Other, Some(7))));
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
    fn a_line_without_its_end_is_not_there() {
        let text = b"1 a POST_SCRIPT_SUCCESS 7.0 - - 1\n1 a POST_SCRIPT_SUCCESS 7.0 - - 12";
        assert_eq!(parse(text).count(), 1);
        assert_eq!(parse(b"").count(), 0);
        assert_eq!(parse(b"\n").count(), 0);
    }
}
