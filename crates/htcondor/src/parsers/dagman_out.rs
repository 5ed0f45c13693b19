//! Parser of the log that DAGMan writes for people (`NAME.dag.dagman.out`).
//!
//! A rejected DAG leaves no metrics and no status file: the reason is only here, between the last `STARTING UP`
//! and `EXITING WITH STATUS`.
//!
//! ```text
//! 11/16/26 04:00:31 workflow.dag (line 2): ERROR: expected JOB, DATA, SUBDAG, …
//! 11/16/26 04:00:31 Failed to parse workflow.dag
//! 11/16/26 04:00:31 **** condor_dagman (condor_DAGMAN) pid 20218 EXITING WITH STATUS 1
//! ```

/// The last execution of DAGMan in its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DagmanLastRun {
    /// The exit code, if DAGMan exited.
    pub exit_code: Option<i32>,
    /// The first lines that report an error.
    pub errors: Vec<String>,
    /// DAGMan logged that it wrote its metrics file.
    pub has_metrics: bool,
}

const MAX_ERRORS: usize = 5;
/// Limits a line for display: DAGMan may list all keywords that it knows.
const MAX_ERROR_LENGTH: usize = 300;

/// Follows a warning that is treated as an error; the warning itself is the reason.
const FATAL_WARNING_LINE: &str = "ERROR: Warning is fatal";

/// Parses the last execution. `out` may start anywhere in the log.
pub fn parse_last_run(out: &[u8]) -> DagmanLastRun {
    let mut run = DagmanLastRun::default();
    let mut before = String::new();
    for line in super::complete_lines(out) {
        let line = String::from_utf8_lossy(line);
        let message = strip_timestamp(&line);
        if message.ends_with("STARTING UP") {
            run = DagmanLastRun::default();
        } else if let Some((_, status)) = message.split_once(" EXITING WITH STATUS ") {
            run.exit_code = status.trim().parse().ok();
        } else if message.starts_with("Wrote metrics file ") {
            run.has_metrics = true;
        } else if run.errors.len() < MAX_ERRORS && is_error_line(message) {
            let warning = message.starts_with(FATAL_WARNING_LINE).then(|| std::mem::take(&mut before));
            run.errors.push(warning.unwrap_or_else(|| truncate_line(message)));
        }
        before = truncate_line(message);
    }
    run
}

/// Whether the line reports an error. Not every ERROR does: `STATUS_ERROR` is the state of a node.
fn is_error_line(message: &str) -> bool {
    message.contains("ERROR: ") || message.starts_with("Failed to parse") || message.contains("FATAL")
}

fn truncate_line(message: &str) -> String {
    message.chars().take(MAX_ERROR_LENGTH).collect()
}

/// `11/16/26 04:00:31 `
fn strip_timestamp(line: &str) -> &str {
    let time = line
        .get(..18)
        .filter(|time| time.bytes().all(|byte| byte.is_ascii_digit() || b"/: ".contains(&byte)));
    if time.is_some() { &line[18..] } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_rejected_dag_are_parsed() {
        let run = parse_last_run(include_bytes!("../../tests/data/unparsable.dag.dagman.out"));
        assert_eq!((run.exit_code, run.has_metrics), (Some(1), false));
        assert_eq!(run.errors.len(), 2);
        assert!(run.errors[0].starts_with("workflow.dag (line 2): ERROR: expected JOB,"), "{:?}", run.errors);
        assert_eq!(run.errors[1], "Failed to parse workflow.dag");
    }

    #[test]
    fn fatal_warning_is_reported_as_the_error() {
        let out = b"11/16/26 05:02:59 Warning: category c has no throttle value set\n\
            11/16/26 05:02:59 ERROR: Warning is fatal error because of DAGMAN_USE_STRICT setting\n\
            11/16/26 05:02:59     Node Status: STATUS_ERROR\n";
        assert_eq!(parse_last_run(out).errors, ["Warning: category c has no throttle value set"]);
    }

    #[test]
    fn only_the_last_run_is_parsed() {
        let mut out = include_bytes!("../../tests/data/unparsable.dag.dagman.out").to_vec();
        out.extend_from_slice(b"11/16/26 04:00:31 ** condor_dagman (CONDOR_DAGMAN) STARTING UP\n");
        assert_eq!(parse_last_run(&out), DagmanLastRun::default());
        out.extend_from_slice(b"11/16/26 04:00:32 Wrote metrics file workflow.dag.metrics.\n");
        assert!(parse_last_run(&out).has_metrics);
        out.extend_from_slice(
            b"11/16/26 04:00:31 **** condor_dagman (condor_DAGMAN) pid 1 EXITING WITH STATUS 1",
        );
        assert_eq!(parse_last_run(&out).exit_code, None, "the line has no end: it may be 12");
    }
}
