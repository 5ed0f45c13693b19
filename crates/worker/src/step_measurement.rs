//! The process between a launcher and a job that runs elsewhere: it measures the job there and writes the usage
//! to a file.
//!
//! `PROGRAM __step PREFIX MARK INTERVAL /bin/sh -c COMMAND` runs the job as its child and ends with the job's
//! exit status. Errors of the measurement do not affect the job: where the program does not exist, the job runs
//! without it.
//!
//! Each task of a step writes one file, `PREFIX.TASK`, in the directory of the logs, which all nodes share. The
//! worker reads and removes the files when the launcher has ended; those of a dead worker are removed by the
//! job's next attempt. The worker never looks their names up earlier: a network file system may cache for a
//! while that a file does not exist.

use crate::job_slot::{FIRST_SAMPLE_AFTER, next_sample};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use windlass_process::cgroup::{self, CgroupPaths};
use windlass_process::step_supervisor::{StepSupervisor, exec_program, exit_like};
use windlass_process::usage_sample::{self, FinalUsage, UsageSample, UsageSummary};
use windlass_types::worker_messages::{AttemptKey, AttemptUsage, return_code};
use windlass_types::{Attempt, Bytes};

/// The name of the command: the first argument of the program.
pub(crate) const STEP_COMMAND: &str = "__step";

/// The suffix of the file names, before the number of the task.
const EXTENSION: &str = "used";

/// A script that runs the words after `$1` to `$5` directly if the program does not exist.
const EXEC_IF_PRESENT: &str = r#"[ -x "$1" ] || shift 5; exec "$@""#;

/// A job that ends before this time writes only its final usage.
const FIRST_WRITE_AFTER: Duration = Duration::from_secs(2);
/// The length of every record, larger than any content, so that a record overwrites the previous one
/// completely.
const USAGE_RECORD_LENGTH: usize = 512;

/// The files in which the tasks of one launch leave their usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepUsageFiles {
    /// The path without the number of the task.
    prefix: PathBuf,
    /// Stands in each file, so that an unrelated file of the same name is not used.
    mark: String,
    tasks: u32,
}

/// The record of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StepUsageRecord {
    mark: String,
    #[serde(flatten)]
    seen: StepUsage,
}

/// The usage of a job, measured in one task or summed over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepUsage {
    pub(crate) usage: AttemptUsage,
    /// The kernel killed a process of it for lack of memory.
    pub(crate) ran_out: bool,
}

impl StepUsage {
    /// Memory and cores are requested per node, so the largest value counts; CPU times are added.
    fn combine(self, other: &Self) -> Self {
        let (a, b) = (self.usage, other.usage);
        let larger = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        Self {
            usage: AttemptUsage {
                peak_memory: a.peak_memory.max(b.peak_memory),
                avg_memory: a.avg_memory.max(b.avg_memory),
                cpu_time: a.cpu_time.saturating_add(b.cpu_time),
                peak_cpu_percent: larger(a.peak_cpu_percent, b.peak_cpu_percent),
                avg_cpu_percent: larger(a.avg_cpu_percent, b.avg_cpu_percent),
            },
            ran_out: self.ran_out || other.ran_out,
        }
    }
}

impl StepUsageFiles {
    pub(crate) fn new(logs: &Path, key: &AttemptKey, mark: String, tasks: u32) -> Self {
        Self { prefix: usage_file_prefix(logs, key), mark, tasks }
    }

    /// The words between those of the launcher and `bash -c COMMAND`. `None` if a path is not valid UTF-8.
    pub(crate) fn measuring_command(
        &self,
        program: &Path,
        interval: Option<Duration>,
    ) -> Option<Vec<String>> {
        let interval = interval.map_or(0, |interval| interval.as_millis().max(1));
        let call = [
            program.to_str()?.to_owned(),
            STEP_COMMAND.to_owned(),
            self.prefix.to_str()?.to_owned(),
            self.mark.clone(),
            interval.to_string(),
        ];
        Some(["/bin/sh", "-c", EXEC_IF_PRESENT, "sh"].into_iter().map(str::to_owned).chain(call).collect())
    }

    /// Reads and removes the files of the tasks. `None` if there are none: the tasks were killed early or ran
    /// without measurement.
    pub(crate) fn take_usage(&self) -> Option<StepUsage> {
        let files = (0..self.tasks).map(|task| usage_file_path(&self.prefix, task));
        let notes = files.filter_map(|path| {
            let text = fs::read(&path).ok()?;
            // Removed regardless of its content, since the name is ours.
            fs::remove_file(&path).ok();
            serde_json::from_slice::<StepUsageRecord>(&text).ok().filter(|note| note.mark == self.mark)
        });
        notes.map(|note| note.seen).reduce(|all, one| all.combine(&one))
    }
}

/// Removes the files that the tasks of the previous attempt left for a dead worker.
pub(crate) fn remove_stale_files(logs: &Path, key: &AttemptKey, tasks: u32) {
    let Some(before) = key.attempt.0.checked_sub(1).filter(|before| *before > 0) else { return };
    let prefix = usage_file_prefix(logs, &AttemptKey { attempt: Attempt(before), ..*key });
    for task in 0..tasks {
        // Usually there is none.
        fs::remove_file(usage_file_path(&prefix, task)).ok();
    }
}

fn usage_file_prefix(logs: &Path, key: &AttemptKey) -> PathBuf {
    logs.join(format!("{}.{EXTENSION}", key.log_stem()))
}

fn usage_file_path(prefix: &Path, task: u32) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(format!(".{task}"));
    name.into()
}

/// Runs `PROGRAM __step …` if the arguments are that, and does not return then; must be called before anything
/// else in this process. The arguments are generated, so errors in them are for developers.
pub fn run_step_if_requested(words: &[OsString]) -> Option<ExitCode> {
    let [_, command, rest @ ..] = words else { return None };
    if command != STEP_COMMAND {
        return None;
    }
    let [prefix, mark, interval, program, arguments @ ..] = rest else {
        return Some(exit_with_usage_error("missing arguments: PREFIX MARK INTERVAL PROGRAM [ARGUMENT …]"));
    };
    let Some(interval) = interval.to_str().and_then(|text| text.parse().ok()) else {
        return Some(exit_with_usage_error("INTERVAL is not a number of milliseconds"));
    };
    let own = CgroupPaths::of_this_process();
    let Ok(supervisor) =
        StepSupervisor::start(program, arguments, is_step_cgroup(&own.own_cgroup, "freezer"))
    else {
        // Run the job without measurement if possible.
        return Some(exit_with_usage_error(&format!(
            "{}: {}",
            program.display(),
            exec_program(program, arguments)
        )));
    };
    let task = std::env::var("SLURM_PROCID").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let page = UsageFileWriter::new(Path::new(prefix), task, mark.to_string_lossy().into_owned());
    Some(measure_until_over(supervisor, &own, page, Duration::from_millis(interval)))
}

fn measure_until_over(
    supervisor: StepSupervisor,
    own: &CgroupPaths,
    mut page: UsageFileWriter,
    interval: Duration,
) -> ExitCode {
    let evidence = OomEvidence::new(own);
    let started = supervisor.started;
    let series = sample_until_over(&supervisor, interval, |series, cpu_time| {
        let end = FinalUsage { wall: started.elapsed(), cpu_time, peak_rss: None };
        let usage = series.summarize_usage(&end);
        if page.is_due(end.wall, usage.peak_memory) {
            page.write(end.wall, StepUsage { usage, ran_out: evidence.was_oom_killed() });
        }
    });
    let wall = started.elapsed();
    let reaped = match supervisor.reap() {
        Ok(reaped) => reaped,
        Err(error) => return exit_with_usage_error(&format!("cannot wait for the job: {error}")),
    };
    let own_peak = usage_sample::own_peak_rss().unwrap_or(Bytes(u64::MAX));
    let peak_rss = usage_sample::peak_if_trusted(reaped.max_rss, own_peak);
    let usage = series.summarize_usage(&FinalUsage { wall, cpu_time: reaped.cpu_time, peak_rss });
    page.write(wall, StepUsage { usage, ran_out: evidence.was_oom_killed() });
    exit_like(reaped.exit)
}

/// Takes samples as a worker does, until the job ends. Calls `each` with the CPU time so far.
fn sample_until_over(
    supervisor: &StepSupervisor,
    interval: Duration,
    mut each: impl FnMut(&UsageSummary, Duration),
) -> UsageSummary {
    let mut series = UsageSummary::new(supervisor.started);
    let mut next = (!interval.is_zero()).then(|| supervisor.started + FIRST_SAMPLE_AFTER);
    while !supervisor.wait_until(next) {
        let sample = UsageSample::measure(&supervisor.members());
        let now = Instant::now();
        series.add_sample(now, sample.cpu, sample.rss);
        next = Some(next_sample(supervisor.started, now, interval));
        each(&series, sample.cpu);
    }
    series
}

/// The kernel's out-of-memory counters, where they belong to this step alone.
struct OomEvidence<'a> {
    cgroup_paths: Option<&'a CgroupPaths>,
    kills_before: Option<u64>,
}

impl<'a> OomEvidence<'a> {
    fn new(own: &'a CgroupPaths) -> Self {
        let cgroup_paths = Some(own).filter(|own| is_step_cgroup(&own.own_cgroup, "memory"));
        Self { cgroup_paths, kills_before: cgroup_paths.and_then(cgroup::own_oom_kills) }
    }

    fn was_oom_killed(&self) -> bool {
        self.cgroup_paths.and_then(cgroup::own_oom_kills) > self.kills_before
    }
}

/// Writes the file of one task repeatedly, in case the task is killed: then at most a tenth of its time and
/// little of its memory peak is missing. That is about a hundred writes per day, and one for a short job.
struct UsageFileWriter {
    path: PathBuf,
    mark: String,
    file: Option<File>,
    /// The wall time at the last write, and the memory peak written.
    written_at: Duration,
    written_peak: Bytes,
}

impl UsageFileWriter {
    fn new(prefix: &Path, task: u32, mark: String) -> Self {
        Self {
            path: usage_file_path(prefix, task),
            mark,
            file: None,
            written_at: Duration::ZERO,
            written_peak: Bytes(0),
        }
    }

    fn is_due(&self, wall: Duration, peak: Option<Bytes>) -> bool {
        let has_aged = wall >= self.written_at + self.written_at / 10;
        let has_grown = peak.is_some_and(|peak| peak.0 > self.written_peak.0 + self.written_peak.0 / 20);
        wall >= FIRST_WRITE_AFTER && (has_aged || has_grown)
    }

    /// Overwrites the whole record at once, so that it can be read at any moment. Write errors are ignored:
    /// only the usage is missing then.
    fn write(&mut self, wall: Duration, seen: StepUsage) {
        (self.written_at, self.written_peak) = (wall, seen.usage.peak_memory.unwrap_or(self.written_peak));
        let note = StepUsageRecord { mark: self.mark.clone(), seen };
        if self.file.is_none() {
            self.file = File::create(&self.path).ok();
        }
        if let (Some(file), Ok(text)) = (&self.file, serde_json::to_string(&note)) {
            file.write_all_at(format!("{text:USAGE_RECORD_LENGTH$}").as_bytes(), 0).ok();
        }
    }
}

/// Whether the cgroup of this controller, one of those in `/proc/self/cgroup`, belongs to a single Slurm step.
///
/// Where Slurm tracks processes in such cgroups, it signals only the first process of each task. Otherwise it
/// signals all processes of the task.
fn is_step_cgroup(own: &str, controller: &str) -> bool {
    own.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return false };
        // The unified hierarchy of cgroup version 2 names no controllers.
        let concerns = controllers.is_empty() || controllers.split(',').any(|name| name == controller);
        concerns && path.split('/').any(|name| name.starts_with("step_"))
    })
}

fn exit_with_usage_error(why: &str) -> ExitCode {
    // Standard error may be closed.
    writeln!(std::io::stderr(), "windlass {STEP_COMMAND}: {why}").ok();
    ExitCode::from(u8::try_from(return_code::CANNOT_START).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::{JobId, RunId, WorkflowId};

    const SECOND: Duration = Duration::from_secs(1);

    fn key(attempt: u32) -> AttemptKey {
        AttemptKey { workflow: WorkflowId(3), job: JobId(7), run: RunId(1), attempt: Attempt(attempt) }
    }

    fn seen(memory: u64, cpu_time: Duration, percent: Option<f64>, ran_out: bool) -> StepUsage {
        StepUsage {
            usage: AttemptUsage {
                peak_memory: Some(Bytes(memory)),
                avg_memory: Some(Bytes(memory / 2)),
                cpu_time,
                peak_cpu_percent: percent,
                avg_cpu_percent: percent.map(|percent| percent / 2.0),
            },
            ran_out,
        }
    }

    fn leave(notes: &StepUsageFiles, task: u32, seen: StepUsage) {
        let note = StepUsageRecord { mark: notes.mark.clone(), seen };
        fs::write(usage_file_path(&notes.prefix, task), serde_json::to_vec(&note).unwrap()).unwrap();
    }

    fn is_empty(directory: &Path) -> bool {
        fs::read_dir(directory).unwrap().next().is_none()
    }

    #[test]
    fn memory_is_the_largest_of_a_node_and_cpu_time_the_sum() {
        let logs = tempfile::tempdir().unwrap();
        let notes = StepUsageFiles::new(logs.path(), &key(1), "m".into(), 3);
        assert_eq!(notes.take_usage(), None);
        leave(&notes, 0, seen(100, SECOND, Some(80.0), false));
        leave(&notes, 1, seen(300, 2 * SECOND, None, true));
        leave(&notes, 2, seen(200, 4 * SECOND, Some(90.0), false));
        assert_eq!(notes.take_usage(), Some(seen(300, 7 * SECOND, Some(90.0), true)));
        assert!(is_empty(logs.path()));
    }

    #[test]
    fn foreign_and_incomplete_records_are_ignored_and_removed() {
        let logs = tempfile::tempdir().unwrap();
        let notes = StepUsageFiles::new(logs.path(), &key(1), "m".into(), 3);
        let earlier = StepUsageFiles { mark: "n".into(), ..notes.clone() };
        leave(&earlier, 0, seen(100, SECOND, None, true));
        fs::write(usage_file_path(&notes.prefix, 1), "{\"mark\":\"m\",\"usa").unwrap();
        assert_eq!(notes.take_usage(), None);
        assert!(is_empty(logs.path()));
    }

    #[test]
    fn an_attempt_removes_the_files_of_the_previous_one() {
        let logs = tempfile::tempdir().unwrap();
        let notes = StepUsageFiles::new(logs.path(), &key(2), "m".into(), 2);
        leave(&notes, 0, StepUsage::default());
        leave(&notes, 1, StepUsage::default());
        for attempt in [1, 2] {
            remove_stale_files(logs.path(), &key(attempt), 2);
        }
        assert!(notes.take_usage().is_some(), "own files stay");
        leave(&notes, 1, StepUsage::default());
        remove_stale_files(logs.path(), &key(3), 2);
        assert!(is_empty(logs.path()));
    }

    #[test]
    fn the_measuring_command_is_inserted_after_the_launcher() {
        let notes = StepUsageFiles::new(Path::new("/out/it's $(x)"), &key(2), "12-7".into(), 1);
        let words = notes.measuring_command(Path::new("/opt/windlass"), Some(SECOND)).unwrap();
        assert_eq!(
            words.join("|"),
            r#"/bin/sh|-c|[ -x "$1" ] || shift 5; exec "$@"|sh|/opt/windlass|__step|/out/it's $(x)/job_wf3_j7_r1_a2.used|12-7|1000"#
        );
        let unmeasured = notes.measuring_command(Path::new("/opt/windlass"), None).unwrap();
        assert_eq!(unmeasured.last().map(String::as_str), Some("0"));
        let nameless = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
        let nameless: OsString = nameless;
        assert_eq!(notes.measuring_command(Path::new(&nameless), None), None);
    }

    #[test]
    fn a_record_is_written_when_usage_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let notes = StepUsageFiles::new(directory.path(), &key(1), "m".into(), 1);
        let mut page = UsageFileWriter::new(&notes.prefix, 0, "m".into());
        let peak = |bytes| Some(Bytes(bytes));
        assert!(!page.is_due(SECOND, peak(1000)) && page.is_due(2 * SECOND, peak(1000)));
        let longest = AttemptUsage {
            peak_memory: peak(u64::MAX),
            avg_memory: peak(u64::MAX),
            cpu_time: Duration::MAX,
            peak_cpu_percent: Some(-f64::MIN_POSITIVE),
            avg_cpu_percent: Some(-f64::MIN_POSITIVE),
        };
        page.write(20 * SECOND, StepUsage { usage: longest, ran_out: false });
        page.write(20 * SECOND, seen(1000, SECOND, None, false));
        for (wall, bytes, expected) in
            [(20, 1000, false), (21, 1050, false), (21, 1051, true), (22, 0, true), (21, 500, false)]
        {
            assert_eq!(page.is_due(wall * SECOND, peak(bytes)), expected, "{wall} s, {bytes} bytes");
        }
        assert_eq!(fs::metadata(&page.path).unwrap().len(), USAGE_RECORD_LENGTH as u64);
        assert_eq!(
            notes.take_usage(),
            Some(seen(1000, SECOND, None, false)),
            "the shorter record is complete"
        );
    }

    #[test]
    fn cgroups_of_slurm_steps_are_recognized() {
        let v1 = "6:freezer:/slurm_n1/uid_0/job_996/step_0\n4:memory:/slurm_n1/uid_0/job_996/step_0/task_0\n1:cpu:/\n0::/\n";
        let v2 = "0::/system.slice/slurmstepd.scope/job_7/step_3/user/task_0\n";
        let none = "4:memory,freezer:/\n0::/system.slice/slurmd.service\n";
        let batch = "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n";
        for (own, controller, expected) in [
            (v1, "freezer", true),
            (v1, "memory", true),
            (v1, "cpu", false),
            (v2, "freezer", true),
            (batch, "memory", true),
            (none, "freezer", false),
            (none, "memory", false),
            ("", "memory", false),
            ("nonsense", "memory", false),
        ] {
            assert_eq!(is_step_cgroup(own, controller), expected, "{controller} in {own}");
        }
    }

    #[test]
    fn other_arguments_are_ignored() {
        for words in
            [vec![], vec!["windlass"], vec!["windlass", "__worker"], vec!["__step", "a", "b", "0", "c"]]
        {
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            assert!(run_step_if_requested(&words).is_none(), "{words:?}");
        }
    }
}
