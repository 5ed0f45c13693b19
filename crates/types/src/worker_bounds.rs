//! Bounds of the worker protocol. A message is checked before anything is decided or written because of it.
//!
//! Windlass's own workers stay far below these bounds, so a message beyond one is an error or an attack and is
//! rejected as a whole. Only free texts are shortened, and times that mean "very long", because a correct
//! worker may send them.

use crate::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptReport, AttemptUsage, FileSnapshot, ProcessExit,
    RecoveryScriptResult, ReturnReason,
};
use crate::worker_protocol::{AcceptedJobOwners, ActionReport, WorkerExchange, WorkerRegistration};
use crate::{Bytes, Capacity, Resources, Timestamp, check_site_name};
use std::fmt;
use std::time::Duration;

/// Bytes of names: hosts, boot ids, versions, labels, Slurm nodes.
pub const MAX_NAME_BYTES: usize = 255;
pub const MAX_LABELS: usize = 64;
/// Other users whose jobs a worker takes.
pub const MAX_USERS: usize = 1000;
pub const MAX_CPUS: u32 = 1_000_000;
pub const MAX_GPUS: u32 = 1_000_000;
/// Nodes of one worker. The scheduler keeps a record of each.
pub const MAX_NODES: u32 = 65_536;
/// Workers that one user may have at a server at the same time.
pub const MAX_WORKERS_PER_USER: usize = 20_000;
/// Nodes of all these workers together.
pub const MAX_NODES_PER_USER: u64 = 200_000;
/// Parallel jobs of one worker.
pub const MAX_JOBS: u32 = 1_000_000;
/// Memory of one node.
pub const MAX_MEMORY: Bytes = Bytes(1 << 60);
/// Attempts that a worker holds when it reconnects.
pub const MAX_HELD_ATTEMPTS: usize = 100_000;
/// Files of one attempt.
pub const MAX_FILES: usize = 1_000_000;
/// Walltimes, time limits, remaining time: about a hundred years.
pub const MAX_DURATION: Duration = Duration::from_hours(24 * 36_525);
/// CPU time of one attempt, summed over many cores.
pub const MAX_CPU_TIME: Duration = Duration::from_hours(24 * 36_525 * 100);
/// Slurm's job ids have 32 bits.
pub const MAX_SLURM_JOB_ID: u64 = u32::MAX as u64;
/// Bytes of texts for people: the end of standard error, messages, reasons.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// Exchange numbers and process start times are stored in signed columns.
const MAX_STORED_NUMBER: u64 = i64::MAX as u64;
/// Higher than any kernel's number.
const MAX_PID: u32 = i32::MAX as u32;
const MAX_SECRET_BYTES: usize = 256;
const MAX_SIGNAL: i32 = 127;
const MAX_PERCENT: f64 = 1e9;

/// A field of a worker's message that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct FieldOutOfBounds {
    pub field: String,
    pub problem: String,
}

type BoundsResult = Result<(), FieldOutOfBounds>;

fn reject_field(field: &dyn fmt::Display, problem: impl Into<String>) -> BoundsResult {
    Err(FieldOutOfBounds { field: field.to_string(), problem: problem.into() })
}

fn check_at_most<T: Copy + PartialOrd + fmt::Display>(
    field: &dyn fmt::Display,
    value: T,
    most: T,
) -> BoundsResult {
    if value > most { reject_field(field, format!("is {value}; the maximum is {most}")) } else { Ok(()) }
}

fn check_count(field: &dyn fmt::Display, count: usize, most: usize) -> BoundsResult {
    if count > most {
        return reject_field(field, format!("has {count} entries; the maximum is {most}"));
    }
    Ok(())
}

/// Checks one line of text that is to be stored and printed.
fn check_name(field: &dyn fmt::Display, text: &str) -> BoundsResult {
    if text.len() > MAX_NAME_BYTES {
        return reject_field(field, format!("has {} bytes; the maximum is {MAX_NAME_BYTES}", text.len()));
    }
    if text.chars().any(char::is_control) {
        return reject_field(field, "contains a control character");
    }
    Ok(())
}

fn check_time(field: &dyn fmt::Display, at: Timestamp) -> BoundsResult {
    if at.0 < 0 { reject_field(field, "is before 1970") } else { Ok(()) }
}

fn check_duration(field: &dyn fmt::Display, length: Duration, longest: Duration) -> BoundsResult {
    check_at_most(&format_args!("{field} (seconds)"), length.as_secs(), longest.as_secs())
}

fn shorten_text(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    }
}

impl Capacity {
    /// Rejects impossible capacities. `field` names the field of the message.
    pub fn check(&self, field: &dyn fmt::Display) -> BoundsResult {
        check_at_most(&format_args!("{field}.cpus"), self.cpus, MAX_CPUS)?;
        check_at_most(&format_args!("{field}.memory"), self.memory.0, MAX_MEMORY.0)?;
        check_at_most(&format_args!("{field}.gpus"), self.gpus, MAX_GPUS)?;
        check_at_most(&format_args!("{field}.nodes"), self.nodes, MAX_NODES)?;
        check_at_most(&format_args!("{field}.max_jobs"), self.max_jobs.unwrap_or_default(), MAX_JOBS)
    }
}

/// Rejects impossible time limits.
pub fn check_time_limit(field: &dyn fmt::Display, limit: Duration) -> BoundsResult {
    check_duration(field, limit, MAX_DURATION)
}

/// Maximum number of CPUs, GPUs or nodes that one job requests.
pub const MAX_RESOURCE_COUNT: u32 = 1_000_000;

impl Resources {
    /// Rejects requests that no machine can fulfill. Fields are named as in specs and over REST.
    pub fn check(&self) -> BoundsResult {
        check_at_most(&"num_cpus", self.cpus, MAX_RESOURCE_COUNT)?;
        check_at_most(&"memory", self.memory, MAX_MEMORY)?;
        check_at_most(&"num_gpus", self.gpus, MAX_RESOURCE_COUNT)?;
        check_at_most(&"num_nodes", self.nodes, MAX_RESOURCE_COUNT)?;
        check_duration(&"runtime", self.runtime.unwrap_or_default(), MAX_DURATION)
    }
}

/// The workers that one user has at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserWorkerCount {
    pub workers: usize,
    pub nodes: u64,
}

impl UserWorkerCount {
    pub fn add(&mut self, capacity: &Capacity) {
        self.workers += 1;
        self.nodes += u64::from(capacity.nodes.max(1));
    }

    /// Rejects a further worker beyond what one user may have.
    pub fn check_further(mut self, capacity: &Capacity) -> BoundsResult {
        self.add(capacity);
        check_at_most(&"number of workers of this user", self.workers, MAX_WORKERS_PER_USER)?;
        check_at_most(&"number of nodes of this user's workers", self.nodes, MAX_NODES_PER_USER)
    }
}

impl FromIterator<Capacity> for UserWorkerCount {
    fn from_iter<I: IntoIterator<Item = Capacity>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, capacity| {
            sum.add(&capacity);
            sum
        })
    }
}

/// Rejects host names that are empty, too long, or unsafe to print.
pub fn check_host(host: &str) -> BoundsResult {
    if host.is_empty() { reject_field(&"host", "is empty") } else { check_name(&"host", host) }
}

/// Rejects more labels than a worker may have, and labels that cannot be written in a list.
pub fn check_labels(labels: &[String]) -> BoundsResult {
    check_count(&"labels", labels.len(), MAX_LABELS)?;
    for label in labels {
        check_name(&"labels", label)?;
        if label.trim().is_empty() || label.contains(',') {
            return reject_field(&"labels", "contains a label that is empty or has a comma");
        }
    }
    Ok(())
}

impl WorkerRegistration {
    pub fn check(&self) -> BoundsResult {
        check_host(&self.host)?;
        check_name(&"boot_id", &self.boot_id)?;
        check_name(&"version", &self.version)?;
        check_at_most(&"pid", self.pid, MAX_PID)?;
        check_at_most(&"pid_start_ticks", self.pid_start_ticks, MAX_STORED_NUMBER)?;
        self.capacity.check(&"capacity")?;
        if let AcceptedJobOwners::Users(users) = &self.jobs_of {
            check_count(&"jobs_of", users.len(), MAX_USERS)?;
            users.iter().try_for_each(|user| check_name(&"jobs_of", user))?;
        }
        check_labels(&self.labels)?;
        if let Err(error) = check_site_name(&self.site) {
            return reject_field(&"site", format!("is not a valid site name: {error}"));
        }
        if let Some(before) = &self.before {
            check_at_most(&"before.secret (bytes)", before.secret.len(), MAX_SECRET_BYTES)?;
            check_count(&"before.held", before.held.len(), MAX_HELD_ATTEMPTS)?;
            check_count(&"before.actions", before.actions.len(), MAX_HELD_ATTEMPTS)?;
        }
        if let Some(place) = &self.slurm {
            check_at_most(&"slurm.job_id", place.job_id, MAX_SLURM_JOB_ID)?;
            check_at_most(&"slurm.restarts", place.restarts, MAX_PID)?;
            check_name(&"slurm.node", &place.node)?;
        }
        Ok(())
    }
}

impl WorkerExchange {
    /// Returns the exchange with long texts shortened and waits limited, or the field that is out of bounds.
    pub fn into_checked(mut self) -> Result<Self, FieldOutOfBounds> {
        check_at_most(&"secret (bytes)", self.secret.len(), MAX_SECRET_BYTES)?;
        check_at_most(&"number", self.number, MAX_STORED_NUMBER)?;
        self.wait = self.wait.min(MAX_DURATION);
        self.time_left = self.time_left.map(|left| left.min(MAX_DURATION));
        for (n, report) in self.reports.iter_mut().enumerate() {
            report.check_bounds(&format_args!("reports[{n}]"))?;
        }
        for (n, action) in self.actions.iter_mut().enumerate() {
            action.check_bounds(&format_args!("actions[{n}]"))?;
        }
        Ok(self)
    }
}

impl ActionReport {
    fn check_bounds(&mut self, field: &dyn fmt::Display) -> BoundsResult {
        check_time(&format_args!("{field}.started_at"), self.started_at)?;
        check_time(&format_args!("{field}.ended_at"), self.ended_at)?;
        self.message.iter_mut().for_each(shorten_text);
        Ok(())
    }
}

impl AttemptReport {
    fn check_bounds(&mut self, field: &dyn fmt::Display) -> BoundsResult {
        match self {
            Self::Started { at, pid, .. } => {
                check_time(&format_args!("{field}.at"), *at)?;
                check_at_most(&format_args!("{field}.pid"), *pid, MAX_PID)
            }
            Self::Ended(ended) => ended.check_bounds(field),
            Self::LeftBehind { usage, .. } => usage.check_bounds(field),
            Self::Returned { why: ReturnReason::WorkerTrouble(text), .. } => {
                shorten_text(text);
                Ok(())
            }
            Self::Returned { .. } => Ok(()),
        }
    }
}

impl AttemptEndReport {
    fn check_bounds(&mut self, field: &dyn fmt::Display) -> BoundsResult {
        check_time(&format_args!("{field}.started_at"), self.started_at)?;
        check_time(&format_args!("{field}.ended_at"), self.ended_at)?;
        check_duration(&format_args!("{field}.wall"), self.wall, MAX_DURATION)?;
        self.exit.check_bounds(&format_args!("{field}.exit"))?;
        self.usage.check_bounds(&format_args!("{field}.usage"))?;
        match &mut self.cause {
            AttemptEndCause::MissingOutputs(paths) => {
                check_count(&format_args!("{field}.cause"), paths.len(), MAX_FILES)?;
                paths.iter_mut().for_each(shorten_text);
            }
            AttemptEndCause::CannotStart(text) => shorten_text(text),
            AttemptEndCause::Itself
            | AttemptEndCause::Timeout
            | AttemptEndCause::OutOfMemory
            | AttemptEndCause::Stopped(_) => {}
        }
        if let Some(files) = &self.files {
            let place = format!("{field}.files");
            for list in [&files.inputs, &files.outputs] {
                check_count(&place, list.len(), MAX_FILES)?;
                list.iter().flatten().try_for_each(|file| file.check_bounds(&place))?;
            }
        }
        self.last_words.iter_mut().for_each(shorten_text);
        match self.recovered.as_deref_mut() {
            Some(RecoveryScriptResult::Ended { exit, wall }) => {
                exit.check_bounds(&format_args!("{field}.recovered.exit"))?;
                check_duration(&format_args!("{field}.recovered.wall"), *wall, MAX_DURATION)
            }
            Some(RecoveryScriptResult::TimedOut { limit }) => {
                check_duration(&format_args!("{field}.recovered.limit"), *limit, MAX_DURATION)
            }
            Some(RecoveryScriptResult::CannotStart(text)) => {
                shorten_text(text);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl ProcessExit {
    fn check_bounds(self, field: &dyn fmt::Display) -> BoundsResult {
        match self {
            Self::Signal(signal) if !(0..=MAX_SIGNAL).contains(&signal) => {
                reject_field(field, format!("has signal {signal}; the maximum is {MAX_SIGNAL}"))
            }
            Self::Signal(_) | Self::Code(_) => Ok(()),
        }
    }
}

impl AttemptUsage {
    fn check_bounds(&self, field: &dyn fmt::Display) -> BoundsResult {
        for memory in [self.peak_memory, self.avg_memory].into_iter().flatten() {
            // Total of all nodes.
            check_at_most(&format_args!("{field}.memory"), memory.0, MAX_STORED_NUMBER)?;
        }
        check_duration(&format_args!("{field}.cpu_time"), self.cpu_time, MAX_CPU_TIME)?;
        let percents = [self.peak_cpu_percent, self.avg_cpu_percent];
        if percents.into_iter().flatten().any(|percent| !(0.0..=MAX_PERCENT).contains(&percent)) {
            return reject_field(field, "has a percentage that is negative or too large");
        }
        Ok(())
    }
}

impl FileSnapshot {
    fn check_bounds(&self, field: &dyn fmt::Display) -> BoundsResult {
        check_at_most(&format_args!("{field}.size"), self.size, MAX_STORED_NUMBER)?;
        self.hash.as_deref().map_or(Ok(()), |hash| check_name(&format_args!("{field}.hash"), hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::SlurmJobNode;
    use crate::worker_messages::{AttemptFiles, AttemptKey};
    use crate::worker_protocol::WorkerReconnect;
    use crate::{Attempt, JobId, RunId, WorkerId, WorkflowId};

    fn worker() -> WorkerRegistration {
        let json = serde_json::json!({
            "host": "node1", "boot_id": "b", "pid": 7, "pid_start_ticks": 9,
            "capacity": { "cpus": 8, "memory": 1 << 30, "gpus": 0, "nodes": 1, "max_jobs": null },
        });
        serde_json::from_value(json).unwrap()
    }

    fn key() -> AttemptKey {
        AttemptKey { workflow: WorkflowId(1), job: JobId(1), run: RunId(1), attempt: Attempt(1) }
    }

    fn end() -> AttemptEndReport {
        AttemptEndReport {
            key: key(),
            started_at: Timestamp(1),
            ended_at: Timestamp(2),
            wall: Duration::from_secs(1),
            exit: ProcessExit::Code(0),
            cause: AttemptEndCause::Itself,
            usage: AttemptUsage::default(),
            files: None,
            last_words: None,
            recovered: None,
        }
    }

    fn exchange(report: AttemptReport) -> WorkerExchange {
        WorkerExchange {
            worker: WorkerId(1),
            secret: "s".into(),
            number: 1,
            reports: vec![report],
            actions: Vec::new(),
            wait: Duration::ZERO,
            time_left: None,
            draining: false,
            leaving: false,
        }
    }

    type Change = fn(&mut WorkerRegistration);

    #[test]
    fn every_registration_field_is_bounded() {
        assert_eq!(worker().check(), Ok(()));
        let cases: [(&str, Change); 22] = [
            ("host", |who| who.host = String::new()),
            ("host", |who| who.host = "x".repeat(1 << 20)),
            ("host", |who| who.host = "a\u{1b}[2Jb".into()),
            ("boot_id", |who| who.boot_id = "x".repeat(256)),
            ("version", |who| who.version = "1\0".into()),
            ("pid", |who| who.pid = u32::MAX),
            ("pid_start_ticks", |who| who.pid_start_ticks = u64::MAX),
            ("capacity.cpus", |who| who.capacity.cpus = u32::MAX),
            ("capacity.memory", |who| who.capacity.memory = Bytes(u64::MAX)),
            ("capacity.gpus", |who| who.capacity.gpus = u32::MAX),
            ("capacity.nodes", |who| who.capacity.nodes = u32::MAX),
            ("capacity.max_jobs", |who| who.capacity.max_jobs = Some(u32::MAX)),
            ("jobs_of", |who| who.jobs_of = AcceptedJobOwners::Users(vec!["u".into(); 100_000])),
            ("jobs_of", |who| who.jobs_of = AcceptedJobOwners::Users(vec!["u".repeat(256)])),
            ("labels", |who| who.labels = vec!["l".into(); 100_000]),
            ("labels", |who| who.labels = vec!["l".repeat(256)]),
            ("labels", |who| who.labels = vec![" ".into()]),
            ("labels", |who| who.labels = vec!["a,b".into()]),
            ("site", |who| who.site = "two words".into()),
            ("slurm.job_id", |who| {
                who.slurm = Some(SlurmJobNode { job_id: u64::MAX, restarts: 0, node: "n".into() });
            }),
            ("before.held", |who| {
                let held = vec![key(); MAX_HELD_ATTEMPTS + 1];
                who.before = Some(WorkerReconnect {
                    worker: WorkerId(1),
                    secret: "s".into(),
                    held,
                    actions: Vec::new(),
                });
            }),
            ("before.secret (bytes)", |who| {
                let (secret, held, actions) = ("s".repeat(1000), Vec::new(), Vec::new());
                who.before = Some(WorkerReconnect { worker: WorkerId(1), secret, held, actions });
            }),
        ];
        for (field, change) in cases {
            let mut who = worker();
            change(&mut who);
            assert_eq!(who.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn largest_registration_is_accepted() {
        let mut who = worker();
        who.host = "h".repeat(MAX_NAME_BYTES);
        who.labels = (0..MAX_LABELS).map(|n| format!("label {n}")).collect();
        let (cpus, gpus, nodes, memory) = (MAX_CPUS, MAX_GPUS, MAX_NODES, MAX_MEMORY);
        who.capacity = Capacity { cpus, memory, gpus, nodes, max_jobs: Some(MAX_JOBS) };
        assert_eq!(who.check(), Ok(()));
    }

    #[test]
    fn a_user_has_a_limited_number_of_workers_and_nodes() {
        let of = |nodes| Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes, max_jobs: None };
        let nearly_all: UserWorkerCount = std::iter::repeat_n(of(0), MAX_WORKERS_PER_USER - 1).collect();
        assert_eq!(nearly_all.check_further(&of(1)), Ok(()));
        let all = UserWorkerCount { workers: MAX_WORKERS_PER_USER, ..nearly_all };
        let error = all.check_further(&of(1)).unwrap_err();
        assert!(error.to_string().contains("20001; the maximum is 20000"), "{error}");
        let large: UserWorkerCount = [of(MAX_NODES), of(MAX_NODES), of(MAX_NODES)].into_iter().collect();
        let rest = MAX_NODES_PER_USER - 3 * u64::from(MAX_NODES);
        assert_eq!(large.check_further(&of(rest as u32)), Ok(()));
        assert!(large.check_further(&of(rest as u32 + 1)).is_err());
    }

    #[test]
    fn every_field_of_a_resource_request_is_bounded() {
        let most = Resources {
            cpus: MAX_RESOURCE_COUNT,
            memory: MAX_MEMORY,
            gpus: MAX_RESOURCE_COUNT,
            nodes: MAX_RESOURCE_COUNT,
            runtime: Some(MAX_DURATION),
        };
        assert_eq!(most.check(), Ok(()));
        assert_eq!(Resources::DEFAULT_WITHOUT_CPUS.check(), Ok(()));
        for (field, asked) in [
            ("num_cpus", Resources { cpus: MAX_RESOURCE_COUNT + 1, ..most }),
            ("memory", Resources { memory: Bytes(MAX_MEMORY.0 + 1), ..most }),
            ("num_gpus", Resources { gpus: u32::MAX, ..most }),
            ("num_nodes", Resources { nodes: u32::MAX, ..most }),
            ("runtime (seconds)", Resources { runtime: Some(Duration::MAX), ..most }),
        ] {
            assert_eq!(asked.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn every_report_number_is_bounded() {
        let forever = Duration::from_secs(u64::MAX);
        let file = FileSnapshot { mtime_ns: 0, size: u64::MAX, hash: None };
        let files = AttemptFiles { inputs: vec![Some(file)], outputs: Vec::new() };
        let usage = |usage| AttemptEndReport { usage, ..end() };
        let recovered = |one| AttemptEndReport { recovered: Some(Box::new(one)), ..end() };
        let cases = [
            ("reports[0].wall (seconds)", AttemptEndReport { wall: forever, ..end() }),
            ("reports[0].started_at", AttemptEndReport { started_at: Timestamp(-1), ..end() }),
            ("reports[0].ended_at", AttemptEndReport { ended_at: Timestamp(i64::MIN), ..end() }),
            ("reports[0].exit", AttemptEndReport { exit: ProcessExit::Signal(i32::MAX), ..end() }),
            ("reports[0].exit", AttemptEndReport { exit: ProcessExit::Signal(-1), ..end() }),
            (
                "reports[0].usage.cpu_time (seconds)",
                usage(AttemptUsage { cpu_time: forever, ..AttemptUsage::default() }),
            ),
            (
                "reports[0].usage.memory",
                usage(AttemptUsage { peak_memory: Some(Bytes(u64::MAX)), ..AttemptUsage::default() }),
            ),
            (
                "reports[0].usage",
                usage(AttemptUsage { avg_cpu_percent: Some(-1.0), ..AttemptUsage::default() }),
            ),
            (
                "reports[0].usage",
                usage(AttemptUsage { peak_cpu_percent: Some(f64::NAN), ..AttemptUsage::default() }),
            ),
            ("reports[0].files.size", AttemptEndReport { files: Some(Box::new(files)), ..end() }),
            (
                "reports[0].recovered.wall (seconds)",
                recovered(RecoveryScriptResult::Ended { exit: ProcessExit::Code(0), wall: forever }),
            ),
            (
                "reports[0].recovered.limit (seconds)",
                recovered(RecoveryScriptResult::TimedOut { limit: forever }),
            ),
        ];
        for (field, ended) in cases {
            let error = exchange(AttemptReport::Ended(ended)).into_checked().unwrap_err();
            assert_eq!(error.field, field);
        }
        let started = AttemptReport::Started { key: key(), at: Timestamp(-5), pid: 1 };
        assert_eq!(exchange(started).into_checked().unwrap_err().field, "reports[0].at");
        let late = WorkerExchange { number: u64::MAX, ..exchange(AttemptReport::Ended(end())) };
        assert_eq!(late.into_checked().unwrap_err().field, "number");
    }

    #[test]
    fn long_texts_are_shortened_and_long_waits_limited() {
        let long = "é".repeat(MAX_TEXT_BYTES);
        let ended = AttemptEndReport {
            cause: AttemptEndCause::CannotStart(long.clone()),
            last_words: Some(long),
            ..end()
        };
        let said = WorkerExchange {
            wait: Duration::MAX,
            time_left: Some(Duration::MAX),
            ..exchange(AttemptReport::Ended(ended))
        };
        let said = said.into_checked().unwrap();
        assert_eq!((said.wait, said.time_left), (MAX_DURATION, Some(MAX_DURATION)));
        let AttemptReport::Ended(ended) = &said.reports[0] else { panic!("it is an end") };
        assert_eq!(ended.last_words.as_ref().map(String::len), Some(MAX_TEXT_BYTES));
        assert!(matches!(&ended.cause, AttemptEndCause::CannotStart(text) if text.len() == MAX_TEXT_BYTES));
    }
}
