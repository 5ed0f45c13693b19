//! The jobs, and the start and end times that they record.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// Records its start before anything else, and its end last; `EPOCHREALTIME` needs no process.
pub(super) const JOB: &str = "\
begin=$EPOCHREALTIME
sleep 0.02
end=$EPOCHREALTIME
echo \"$1 $begin $end\" >> stamps
";

/// The Slurm account, which identifies remaining jobs so that they can be canceled.
pub(super) const ACCOUNT: &str = "windlass-bench";

/// The number and the dependencies of the jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobPattern {
    Independent(usize),
    /// Each job depends on the previous one.
    Chain(usize),
}

impl JobPattern {
    pub(super) fn jobs(&self) -> usize {
        let (Self::Independent(jobs) | Self::Chain(jobs)) = self;
        *jobs
    }
}

/// Windlass and torc read the same file. The allocation has room for one job.
pub(super) fn spec(name: &str, shape: &JobPattern) -> String {
    let mut text = format!(
        "name: {name}\n\
         resource_requirements:\n  - {{name: one, num_cpus: 1, memory: 100m, runtime: PT1M}}\n\
         slurm_schedulers:\n  - {{name: one, account: {ACCOUNT}, partition: standard, nodes: 1, ntasks_per_node: 1, \
         mem: 900M, walltime: \"00:40:00\", extra: \"--cpus-per-task=1\"}}\n\
         actions:\n  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: one, \
         scheduler_type: slurm, num_allocations: 1}}\n\
         jobs:\n"
    );
    for job in 1..=shape.jobs() {
        let waits = match shape {
            JobPattern::Chain(_) if job > 1 => format!(", depends_on: [job_{}]", job - 1),
            _ => String::new(),
        };
        // Writing to a string does not fail.
        writeln!(
            text,
            "  - {{name: job_{job}, command: bash job.sh {job}, resource_requirements: one{waits}}}"
        )
        .unwrap_or_default();
    }
    text
}

/// When each job ran, in seconds of the clock, sorted by start time.
#[derive(Debug)]
pub(super) struct JobTimes(Vec<(f64, f64)>);

impl JobTimes {
    pub(super) fn read(text: &str) -> Result<Self> {
        let line = |line: &str| -> Option<(f64, f64)> {
            let mut words = line.split(' ').skip(1).map(|word| word.parse().ok());
            Some((words.next()??, words.next()??))
        };
        let read = |text: &str| line(text).with_context(|| format!("a job has noted {text:?}"));
        let mut spans = text.lines().map(read).collect::<Result<Vec<_>>>()?;
        spans.sort_by(|left, right| left.0.total_cmp(&right.0));
        Ok(Self(spans))
    }

    pub(super) fn first(&self) -> f64 {
        self.0.first().map_or(f64::NAN, |span| span.0)
    }

    /// The times from the end of each job to the start of the next.
    pub(super) fn gaps(&self) -> Vec<f64> {
        self.0.windows(2).map(|pair| pair[1].0 - pair[0].1).collect()
    }

    pub(super) fn are_alone(&self) -> bool {
        self.gaps().iter().all(|gap| *gap >= 0.0)
    }
}

/// The smallest value that at least this percentage of the values does not exceed.
pub(in crate::bench) fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

/// The time of the clock that the jobs read too.
#[expect(clippy::disallowed_methods, reason = "what jobs note can only be compared with the same clock")]
pub(in crate::bench) fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_between_consecutive_jobs() {
        let spans = JobTimes::read("2 10.5 11.0\n1 9.0 10.0\n3 11.25 12.0\n").unwrap();
        assert_eq!(spans.gaps(), [0.5, 0.25]);
        assert!(spans.are_alone() && spans.first().total_cmp(&9.0).is_eq());
        assert!(!JobTimes::read("1 1.0 3.0\n2 2.0 4.0\n").unwrap().are_alone());
        assert!(JobTimes::read("1 1.0\n").is_err() && JobTimes::read("1 a b\n").is_err());
    }

    #[test]
    fn percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 99), Some(198.0));
        assert_eq!(percentile(&[3.0, 1.0], 99), Some(3.0));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn chain_jobs_depend_on_previous_job() {
        let chain = spec("hop", &JobPattern::Chain(3));
        assert!(chain.contains("name: job_3") && chain.contains("depends_on: [job_2]"), "{chain}");
        assert_eq!(chain.matches("depends_on").count(), 2);
        assert!(!spec("next", &JobPattern::Independent(3)).contains("depends_on"));
    }
}
