//! `sacct`: the accounting records of jobs that the controller has forgotten.
//!
//! Not with `--json`: in 22.05 the exit codes in it are wrong.

use super::values::{parse_time, parse_value};
use std::collections::BTreeMap;
use windlass_core::slurm::slurm_jobs::SacctJob;
use windlass_types::slurm::SlurmJobState;

/// The columns. Free text comes last.
pub const FORMAT: &str = "JobIDRaw,State,ExitCode,Submit,Start,End,NodeList,JobName,Comment";

/// The last row of each job: earlier ones are runs before a requeue or the loss of a node.
pub fn parse_jobs(text: &str) -> BTreeMap<u64, SacctJob> {
    text.lines().filter_map(parse_row).map(|job| (job.job_id, job)).collect()
}

/// Accounting is disabled here.
pub fn is_accounting_disabled(complaint: &str) -> bool {
    complaint.contains("accounting storage is disabled")
}

fn parse_row(line: &str) -> Option<SacctJob> {
    let mut fields = line.splitn(8, '|');
    // The ids of steps have a dot.
    let job_id = fields.next()?.parse().ok()?;
    let state_text = fields.next()?.trim().to_owned();
    let exit_code = parse_value(fields.next()?);
    let (submitted_at, started_at, ended_at) =
        (parse_time(fields.next()?), parse_time(fields.next()?), parse_time(fields.next()?));
    let nodes = parse_value(fields.next()?);
    let (name, comment) = fields.next()?.rsplit_once('|')?;
    Some(SacctJob {
        job_id,
        state: SlurmJobState::parse(&state_text),
        state_text,
        exit_code,
        submitted_at,
        started_at,
        ended_at,
        nodes,
        name: name.to_owned(),
        comment: comment.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use SlurmJobState::{Cancelled, Completed, Failed, NodeFail, OutOfMemory, Pending, Preempted, Timeout};

    /// The states and exit codes of the reference, with the other fields around them.
    fn line(number: &str, state: &str, exit: &str, end: &str, nodes: &str) -> String {
        format!(
            "{number}|{state}|{exit}|2026-11-15T06:31:13|2026-11-15T06:31:14|{end}|{nodes}|wl-{number}|\n"
        )
    }

    #[test]
    fn sacct_end_states_are_parsed() {
        let end = "2026-11-15T06:40:00";
        let rows = [
            ("22", "FAILED", "7:0", Failed),
            ("23", "FAILED", "0:9", Failed),
            ("26", "CANCELLED by 1001", "0:0", Cancelled),
            ("42", "CANCELLED", "0:0", Cancelled),
            ("6", "TIMEOUT", "0:0", Timeout),
            ("30", "PREEMPTED", "0:0", Preempted),
            ("34", "NODE_FAIL", "0:0", NodeFail),
            ("2", "OUT_OF_MEMORY", "0:125", OutOfMemory),
            ("3", "COMPLETED", "0:0", Completed),
        ];
        let text: String = rows.iter().map(|(n, state, exit, _)| line(n, state, exit, end, "n1")).collect();
        let accounted = parse_jobs(&text);
        for (number, state_text, exit, state) in rows {
            let job = &accounted[&number.parse::<u64>().unwrap()];
            assert_eq!(
                (job.state, job.state_text.as_str(), job.exit_code.as_deref()),
                (Some(state), state_text, Some(exit))
            );
            assert!(job.ended_at.is_some() && job.has_tag(&format!("wl-{number}")), "{job:?}");
        }
    }

    #[test]
    fn last_sacct_row_of_a_job_wins() {
        let resized = line("119", "RESIZING", "0:0", "2026-11-15T06:40:00", "n[1,3]")
            + &line("119", "CANCELLED by 0", "0:0", "2026-11-15T06:41:00", "n1");
        let job = &parse_jobs(&resized)[&119];
        assert_eq!((job.state, job.nodes.as_deref()), (Some(Cancelled), Some("n1")));
        let requeued = line("31", "PREEMPTED", "0:0", "2026-11-15T06:40:00", "n4")
            + &line("31", "PENDING", "0:0", "Unknown", "None assigned");
        let job = &parse_jobs(&requeued)[&31];
        assert_eq!((job.state, job.ended_at, job.nodes.as_deref()), (Some(Pending), None, None));
    }

    #[test]
    fn steps_and_other_lines_are_skipped() {
        assert!(parse_jobs(&line("22.batch", "FAILED", "7:0", "Unknown", "n1")).is_empty());
        assert!(parse_jobs("Slurm accounting storage is disabled\n").is_empty());
        assert!(is_accounting_disabled("Slurm accounting storage is disabled\n"));
        assert!(!is_accounting_disabled("sacct: error: Problem talking to the database: Connection refused"));
    }
}
