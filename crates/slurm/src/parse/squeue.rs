//! `squeue`: all jobs of a user known to the controller, with one call.
//!
//! Not with `--json`: in 22.05 it prints an empty list and exits with 0 when the controller does not answer.

use super::values::{parse_time, parse_value};
use windlass_core::slurm::slurm_jobs::SqueueJob;
use windlass_types::slurm::SlurmJobState;

/// The columns. Free text comes last.
pub const FORMAT: &str = "%A|%T|%V|%S|%e|%N|%r|%j|%k";

/// All rows. A line that does not begin with a number is the rest of a name with a newline, and not a row.
pub fn parse_queue(text: &str) -> Vec<SqueueJob> {
    text.lines().filter_map(parse_row).collect()
}

fn parse_row(line: &str) -> Option<SqueueJob> {
    let mut fields = line.splitn(8, '|');
    let job_id = fields.next()?.trim().parse().ok()?;
    let state = SlurmJobState::parse(fields.next()?);
    let (submitted_at, started_at, ends_at) =
        (parse_time(fields.next()?), parse_time(fields.next()?), parse_time(fields.next()?));
    let (nodes, reason) = (parse_value(fields.next()?), parse_value(fields.next()?));
    // The name may contain bars. Our tags have none, and the comment follows the last one.
    let (name, comment) = fields.next()?.rsplit_once('|')?;
    let comment = parse_value(comment).unwrap_or_default();
    Some(SqueueJob {
        job_id,
        state,
        reason,
        submitted_at,
        started_at,
        ends_at,
        nodes,
        name: name.to_owned(),
        comment,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squeue_rows_are_parsed() {
        let text = "8|COMPLETED|2026-11-15T06:31:13|2026-11-15T06:31:14|2026-11-15T06:31:14|n1|None|wl-1|wl-1\n\
                    15|PENDING|2026-11-15T06:31:13|N/A|N/A||PartitionTimeLimit|series|wl-2\n\
                    31|RUNNING|2026-11-15T06:31:13|2026-11-15T06:31:14|2026-11-15T07:31:14|n[1-2]|None|a|b|(null)\n";
        let rows = parse_queue(text);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].job_id, rows[0].state), (8, Some(SlurmJobState::Completed)));
        assert!(!rows[0].is_alive() && rows[0].has_tag("wl-1") && rows[0].reason.is_none());
        assert_eq!(rows[1].reason.as_deref(), Some("PartitionTimeLimit"));
        assert_eq!((rows[1].started_at, rows[1].nodes.as_deref()), (None, None));
        assert!(rows[1].is_alive() && rows[1].has_tag("wl-2") && !rows[1].has_tag("wl-1"));
        assert_eq!((rows[2].name.as_str(), rows[2].comment.as_str()), ("a|b", ""));
        assert_eq!(rows[2].nodes.as_deref(), Some("n[1-2]"));
        assert!(rows[2].ends_at > rows[2].started_at);
    }

    #[test]
    fn row_with_unknown_state_is_a_job() {
        let rows = parse_queue("9|FROZEN|N/A|N/A|N/A|n1|None|x|wl-3\n");
        assert_eq!((rows[0].state, rows[0].is_alive()), (None, true));
    }

    #[test]
    fn malformed_squeue_rows_are_skipped() {
        for text in [
            "",
            "\n",
            "slurm_load_jobs error: Invalid job id specified\n",
            "8|RUNNING|n1\n",
            "rest|of|a|name",
        ] {
            assert_eq!(parse_queue(text), [], "{text:?}");
        }
    }
}
