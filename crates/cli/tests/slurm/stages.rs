//! A workflow in three stages whose jobs log their executions, and checks of those logs.

use crate::support::eventually;
use crate::test_server::TestServer;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// NAME SECONDS [FIRST]. A job that detects another execution of itself, or a remaining process of one, logs it.
/// FIRST: the duration of the first attempt.
const JOB: &str = r#"
note() { flock stamps.lock sh -c 'echo "$@" >> stamps' note "$@"; }
exec 9>>"locks/$1"
flock -n 9 || note overlap "$1"
note begin "$1" "$WINDLASS_ATTEMPT" "$$" "$SLURM_JOB_ID" "$EPOCHREALTIME"
sleep "$([ "$WINDLASS_ATTEMPT" = 1 ] && echo "${3:-$2}" || echo "$2")"
note end "$1" "$WINDLASS_ATTEMPT" "$$" "$SLURM_JOB_ID" "$EPOCHREALTIME"
"#;

/// The number of jobs per stage: each of the third waits for all of the second, each of the second for one of
/// the first.
pub(crate) struct Stages {
    pub(crate) width: u32,
    pub(crate) last: u32,
    pub(crate) seconds: f64,
    /// The duration of the first attempt of one job: it is affected by all disturbances meanwhile.
    pub(crate) holds: u32,
    /// Additional text of the spec.
    pub(crate) more: String,
}

impl Stages {
    pub(crate) fn jobs(&self) -> u32 {
        self.width * 2 + self.last
    }

    /// Writes the spec, `spec.yaml`, and the script.
    pub(crate) fn write(&self, test_server: &TestServer<'_>) {
        test_server.work.write("job.sh", JOB);
        test_server.work.write("locks/.keep", "");
        let Self { width, last, seconds, holds, more } = self;
        let mut spec = format!(
            "name: stages\n{more}resource_requirements:\n\
             \x20 - {{name: small, num_cpus: 1, memory: 100m, runtime: PT5M}}\n\
             jobs:\n\
             \x20 - {{name: first_1, command: \"bash job.sh first_1 {seconds} {holds}\", resource_requirements: small}}\n"
        );
        let stages = [
            ("first", 2, *width, String::new()),
            ("second", 1, *width, "depends_on: [\"first_{i}\"], ".to_owned()),
            ("third", 1, *last, "depends_on_regexes: [\"^second_\"], ".to_owned()),
        ];
        for (stage, least, count, waits) in stages {
            writeln!(
                spec,
                "  - {{name: \"{stage}_{{i}}\", command: \"bash job.sh {stage}_{{i}} {seconds}\", {waits}\
                 resource_requirements: small, parameters: {{i: \"{least}:{count}\"}}}}"
            )
            .unwrap();
        }
        test_server.work.write("spec.yaml", &spec);
    }

    /// Waits until this number of jobs has ended.
    #[track_caller]
    pub(crate) fn await_ends(test_server: &TestServer<'_>, ends: usize) {
        eventually(&format!("{ends} jobs have ended"), || JobLog::read(test_server).ends() >= ends);
    }

    /// Waits until all jobs are done, and checks that none ran twice at once and none was lost.
    #[track_caller]
    pub(crate) fn prove(&self, test_server: &TestServer<'_>) -> JobLog {
        let mut last = BTreeMap::new();
        eventually("all jobs are done", || {
            last.clear();
            for status in test_server.jobs().into_values() {
                assert!(
                    !["failed", "canceled", "terminated"].contains(&status.as_str()),
                    "a job is {status}"
                );
                *last.entry(status).or_insert(0_u32) += 1;
            }
            last.get("completed") == Some(&self.jobs())
        });
        let stamps = JobLog::read(test_server);
        assert_eq!(stamps.overlaps, 0, "two executions of a job overlapped");
        assert_eq!(stamps.names(), self.jobs() as usize, "jobs are completed that never came to their end");
        stamps
    }
}

/// The log of the jobs.
#[derive(Default)]
pub(crate) struct JobLog {
    overlaps: usize,
    /// For each job: attempt, process and allocation of the finished executions, and how long they took.
    ended: BTreeMap<String, Vec<(String, f64)>>,
    begun: usize,
}

impl JobLog {
    fn read(test_server: &TestServer<'_>) -> Self {
        let text = std::fs::read_to_string(test_server.work.path().join("stamps")).unwrap_or_default();
        let mut stamps = Self::default();
        let mut open = BTreeMap::new();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["overlap", _] => stamps.overlaps += 1,
                ["begin", name, attempt, pid, job, at] => {
                    stamps.begun += 1;
                    open.insert((*name, *attempt, *pid, *job), at.parse::<f64>().unwrap());
                }
                ["end", name, attempt, pid, job, at] => {
                    let begun = open.remove(&(*name, *attempt, *pid, *job)).unwrap();
                    let took = at.parse::<f64>().unwrap() - begun;
                    stamps.ended.entry((*name).to_owned()).or_default().push(((*job).to_owned(), took));
                }
                _ => panic!("a job has logged {line:?}"),
            }
        }
        stamps
    }

    fn ends(&self) -> usize {
        self.ended.values().map(Vec::len).sum()
    }

    fn names(&self) -> usize {
        self.ended.len()
    }

    /// The number of executions that started and did not finish.
    pub(crate) fn killed(&self) -> usize {
        self.begun - self.ends()
    }

    /// Seconds in which jobs ran, and the allocations that they ran in.
    pub(crate) fn work(&self) -> (f64, BTreeSet<&str>) {
        let all = || self.ended.values().flatten();
        (all().map(|(_, took)| took).sum(), all().map(|(job, _)| job.as_str()).collect())
    }
}
