//! What DAGMan says for people (`NAME.dag.dagman.out`).
//!
//! A DAG that is not accepted leaves no metrics and no status file: the reason is only here, between the last
//! `STARTING UP` and `EXITING WITH STATUS`.
//!
//! ```text
//! 11/16/26 04:00:31 workflow.dag (line 2): ERROR: expected JOB, DATA, SUBDAG, …
//! 11/16/26 04:00:31 Failed to parse workflow.dag
//! 11/16/26 04:00:31 **** condor_dagman (condor_DAGMAN) pid 20218 EXITING WITH STATUS 1
//! ```

/// The last time that DAGMan ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastRun {
    /// With what it exited, if it did.
    pub exit: Option<i32>,
    /// The first lines that tell of an error.
    pub errors: Vec<String>,
    /// It says that it left metrics.
    pub wrote_metrics: bool,
}

const MOST_ERRORS: usize = 5;
/// Somebody will read it: a line of DAGMan may list all words that it knows.
const LONGEST: usize = 300;

/// What comes after a warning that is taken for an error; the warning says what it was.
const STRICT: &str = "ERROR: Warning is fatal";

/// `out` may begin anywhere.
pub fn last_run(out: &[u8]) -> LastRun {
    let mut run = LastRun::default();
    let mut before = String::new();
    for line in super::whole_lines(out) {
        let line = String::from_utf8_lossy(line);
        let said = without_time(&line);
        if said.ends_with("STARTING UP") {
            run = LastRun::default();
        } else if let Some((_, status)) = said.split_once(" EXITING WITH STATUS ") {
            run.exit = status.trim().parse().ok();
        } else if said.starts_with("Wrote metrics file ") {
            run.wrote_metrics = true;
        } else if run.errors.len() < MOST_ERRORS && tells_an_error(said) {
            let warning = said.starts_with(STRICT).then(|| std::mem::take(&mut before));
            run.errors.push(warning.unwrap_or_else(|| shortened(said)));
        }
        before = shortened(said);
    }
    run
}

/// Not every ERROR is one: `STATUS_ERROR` is what a node has become.
fn tells_an_error(said: &str) -> bool {
    said.contains("ERROR: ") || said.starts_with("Failed to parse") || said.contains("FATAL")
}

fn shortened(said: &str) -> String {
    said.chars().take(LONGEST).collect()
}

/// `11/16/26 04:00:31 `
fn without_time(line: &str) -> &str {
    let time = line
        .get(..18)
        .filter(|time| time.bytes().all(|byte| byte.is_ascii_digit() || b"/: ".contains(&byte)));
    if time.is_some() { &line[18..] } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_dag_was_not_accepted() {
        let run = last_run(include_bytes!("../../tests/data/unparsable.dag.dagman.out"));
        assert_eq!((run.exit, run.wrote_metrics), (Some(1), false));
        assert_eq!(run.errors.len(), 2);
        assert!(run.errors[0].starts_with("workflow.dag (line 2): ERROR: expected JOB,"), "{:?}", run.errors);
        assert_eq!(run.errors[1], "Failed to parse workflow.dag");
    }

    #[test]
    fn a_warning_may_be_the_error() {
        let out = b"11/16/26 05:02:59 Warning: category c has no throttle value set\n\
            11/16/26 05:02:59 ERROR: Warning is fatal error because of DAGMAN_USE_STRICT setting\n\
            11/16/26 05:02:59     Node Status: STATUS_ERROR\n";
        assert_eq!(last_run(out).errors, ["Warning: category c has no throttle value set"]);
    }

    #[test]
    fn only_the_last_run_counts() {
        let mut out = include_bytes!("../../tests/data/unparsable.dag.dagman.out").to_vec();
        out.extend_from_slice(b"11/16/26 04:00:31 ** condor_dagman (CONDOR_DAGMAN) STARTING UP\n");
        assert_eq!(last_run(&out), LastRun::default());
        out.extend_from_slice(b"11/16/26 04:00:32 Wrote metrics file workflow.dag.metrics.\n");
        assert!(last_run(&out).wrote_metrics);
        out.extend_from_slice(
            b"11/16/26 04:00:31 **** condor_dagman (condor_DAGMAN) pid 1 EXITING WITH STATUS 1",
        );
        assert_eq!(last_run(&out).exit, None, "the line has no end: it may be 12");
    }
}
