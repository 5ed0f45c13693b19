//! `sacct` with usage: what accounting measured of allocations and their steps.

use super::values::{parse_time, parse_value};
use windlass_api::slurm::SlurmAccountingEntry;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{Attempt, JobId, RunId, WorkflowId};

/// The columns. Free text comes last.
pub const FORMAT: &str = "JobIDRaw,State,ExitCode,Start,End,ElapsedRaw,AllocCPUS,TotalCPU,AveCPU,MaxRSS,AveRSS,MaxVMSize,\
                          MaxDiskRead,MaxDiskWrite,NodeList,JobName";

/// The attempt that a step runs.
pub fn parse_attempt(account: &SlurmAccountingEntry) -> Option<AttemptKey> {
    account.step.as_ref()?;
    let mut rest = account.name.strip_prefix("job_wf")?;
    let mut number = |end: &str| {
        let (number, after) = rest.split_once(end).unwrap_or((rest, ""));
        rest = after;
        number.parse::<i64>().ok()
    };
    let (workflow, job) = (WorkflowId(number("_j")?), JobId(number("_r")?));
    let (run, attempt) = (RunId(number("_a")?), Attempt(u32::try_from(number("\n")?).ok()?));
    Some(AttemptKey { workflow, job, run, attempt })
}

/// In printed order; all runs of a requeued job.
pub fn parse_accounting(text: &str) -> Vec<SlurmAccountingEntry> {
    text.lines().filter_map(parse_row).collect()
}

fn parse_row(line: &str) -> Option<SlurmAccountingEntry> {
    let mut fields = line.splitn(16, '|');
    let id = fields.next()?;
    let (job, step) = id.split_once('.').map_or((id, None), |(job, step)| (job, Some(step.to_owned())));
    let slurm_job_id = job.parse().ok()?;
    let mut next = || fields.next();
    Some(SlurmAccountingEntry {
        slurm_job_id,
        step,
        state: next()?.trim().to_owned(),
        exit_code: parse_value(next()?),
        started_at: parse_time(next()?).map(|at| at.to_string()),
        ended_at: parse_time(next()?).map(|at| at.to_string()),
        elapsed_seconds: next()?.parse::<u32>().ok().map(f64::from),
        cpus: next()?.parse().ok(),
        total_cpu_seconds: parse_duration(next()?),
        ave_cpu_seconds: parse_duration(next()?),
        max_rss_bytes: parse_size(next()?),
        ave_rss_bytes: parse_size(next()?),
        max_vm_size_bytes: parse_size(next()?),
        max_disk_read_bytes: parse_size(next()?),
        max_disk_write_bytes: parse_size(next()?),
        node_list: parse_value(next()?),
        name: next()?.to_owned(),
        ..SlurmAccountingEntry::default()
    })
}

/// `265724K`, `0`, `1.50M`.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1u64 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        b'T' => (&text[..text.len() - 1], 1 << 40),
        _ => (text, 1),
    };
    let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)?;
    Some((number * factor as f64) as u64)
}

/// `00:01.234`, `01:02:03`, `1-02:03:04`.
fn parse_duration(text: &str) -> Option<f64> {
    let (days, rest) = text.trim().split_once('-').unwrap_or(("0", text.trim()));
    let seconds = rest.split(':').try_fold(0.0, |sum: f64, part| {
        part.parse::<f64>().ok().filter(|part| *part >= 0.0).map(|part| sum * 60.0 + part)
    })?;
    Some(days.parse::<f64>().ok()? * 86400.0 + seconds).filter(|seconds| seconds.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
2|OUT_OF_MEMORY|0:125|2026-11-15T06:31:14|2026-11-15T06:31:20|6|4|00:01.234|||||||n1|wl-6f1c9a02-17
2.batch|OUT_OF_MEMORY|0:125|2026-11-15T06:31:14|2026-11-15T06:31:20|6|4|00:01.234|00:00:01|265724K|265724K|512M|0.50M|0|n1|batch
2.0|COMPLETED|0:0|2026-11-15T06:31:15|2026-11-15T06:31:16|1|1|00:00.010|00:00:00||||||n1|job_wf3_j7_r1_a2
3|CANCELLED by 0|0:0|None|Unknown|0|0|00:00:00|||||||None assigned|a|b
Slurm accounting storage is disabled
";

    #[test]
    fn usage_of_allocations_and_steps_is_parsed() {
        let rows = parse_accounting(PRINTED);
        let ids: Vec<_> = rows.iter().map(|row| (row.slurm_job_id, row.step.as_deref())).collect();
        assert_eq!(ids, [(2, None), (2, Some("batch")), (2, Some("0")), (3, None)]);
        assert_eq!(rows[1].max_rss_bytes, Some(265_724 << 10));
        assert_eq!((rows[1].max_disk_read_bytes, rows[1].max_disk_write_bytes), (Some(1 << 19), Some(0)));
        assert_eq!((rows[0].max_rss_bytes, rows[0].total_cpu_seconds), (None, Some(1.234)));
        assert_eq!(
            (&rows[3].started_at, rows[3].node_list.as_deref(), rows[3].name.as_str()),
            (&None, None, "a|b")
        );
    }

    #[test]
    fn step_name_gives_the_attempt() {
        let rows = parse_accounting(PRINTED);
        assert_eq!(parse_attempt(&rows[2]).map(|key| key.log_stem()), Some("job_wf3_j7_r1_a2".into()));
        assert_eq!((parse_attempt(&rows[0]), parse_attempt(&rows[1])), (None, None));
        for name in ["job_wf3_j7_r1", "job_wf3_j7_r1_ax", "job_wfa_j7_r1_a1", "job_wf", ""] {
            let step = SlurmAccountingEntry {
                step: Some("0".into()),
                name: name.into(),
                ..SlurmAccountingEntry::default()
            };
            assert_eq!(parse_attempt(&step), None, "{name}");
        }
    }

    #[test]
    fn sacct_times_and_sizes_are_parsed() {
        for (text, seconds) in [
            ("00:01.500", Some(1.5)),
            ("01:02:03", Some(3723.0)),
            ("1-00:00:01", Some(86401.0)),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(parse_duration(text), seconds, "{text}");
        }
        for (text, bytes) in
            [("1.5K", Some(1536)), ("2G", Some(2 << 30)), ("17", Some(17)), ("", None), ("-1K", None)]
        {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }
}
