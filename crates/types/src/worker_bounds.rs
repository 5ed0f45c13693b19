//! Bounds of the worker protocol. A message is checked before anything is decided upon it or written.
//!
//! Windlass's own workers stay far below these bounds, so a message beyond one is a mistake or an attack and is rejected
//! as a whole. Only free texts are shortened, and times that mean "very long": a worker may send them in good faith.

use crate::fleet::{ActionReport, Exchange, Introduction, JobsOf};
use crate::work::{EndCause, Ended, Exit, FileState, Recovered, Report, ReturnReason, Usage};
use crate::{Bytes, Capacity, Timestamp, check_site_name};
use std::fmt;
use std::time::Duration;

/// Names: hosts, boots, versions, labels, nodes of Slurm. Bytes.
pub const LONGEST_NAME: usize = 255;
pub const MOST_LABELS: usize = 64;
/// Users whose jobs a worker takes besides those of its own.
pub const MOST_USERS: usize = 1000;
pub const MOST_CPUS: u32 = 1_000_000;
pub const MOST_GPUS: u32 = 1_000_000;
/// Nodes of one worker. The scheduler keeps a record of each.
pub const MOST_NODES: u32 = 65_536;
/// Jobs that one worker runs at once.
pub const MOST_JOBS: u32 = 1_000_000;
/// Memory of one node.
pub const MOST_MEMORY: Bytes = Bytes(1 << 60);
/// Attempts that a worker holds when it comes back.
pub const MOST_HELD: usize = 100_000;
/// Files of one attempt.
pub const MOST_FILES: usize = 1_000_000;
/// Walltimes, time limits, time left: about a hundred years.
pub const LONGEST_TIME: Duration = Duration::from_hours(24 * 36_525);
/// CPU time of one attempt: that of many cores together.
pub const LONGEST_CPU_TIME: Duration = Duration::from_hours(24 * 36_525 * 100);
/// Slurm's job ids have 32 bits.
pub const LARGEST_SLURM_JOB: u64 = u32::MAX as u64;
/// Texts for people: the end of standard error, messages, reasons. Bytes.
pub const LONGEST_TEXT: usize = 64 << 10;

/// Exchanges and process start times are stored in signed columns.
const LARGEST_NUMBER: u64 = i64::MAX as u64;
/// Beyond any kernel's.
const LARGEST_PID: u32 = i32::MAX as u32;
const LONGEST_SECRET: usize = 256;
const LARGEST_SIGNAL: i32 = 127;
const LARGEST_PERCENT: f64 = 1e9;

/// A field of a worker's message that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct OutOfBounds {
    pub field: String,
    pub problem: String,
}

type Checked = Result<(), OutOfBounds>;

fn reject(field: &dyn fmt::Display, problem: impl Into<String>) -> Checked {
    Err(OutOfBounds { field: field.to_string(), problem: problem.into() })
}

fn at_most<T: Copy + PartialOrd + fmt::Display>(field: &dyn fmt::Display, value: T, most: T) -> Checked {
    if value > most { reject(field, format!("is {value}, and at most {most} is accepted")) } else { Ok(()) }
}

fn no_more_than(field: &dyn fmt::Display, count: usize, most: usize) -> Checked {
    if count > most {
        return reject(field, format!("has {count} entries, and at most {most} are accepted"));
    }
    Ok(())
}

/// One line of text that is safe to store and to print.
fn name(field: &dyn fmt::Display, text: &str) -> Checked {
    if text.len() > LONGEST_NAME {
        return reject(field, format!("has {} bytes, and at most {LONGEST_NAME} are accepted", text.len()));
    }
    if text.chars().any(char::is_control) {
        return reject(field, "contains a control character");
    }
    Ok(())
}

fn time(field: &dyn fmt::Display, at: Timestamp) -> Checked {
    if at.0 < 0 { reject(field, "is before 1970") } else { Ok(()) }
}

fn duration(field: &dyn fmt::Display, length: Duration, longest: Duration) -> Checked {
    at_most(&format_args!("{field} (seconds)"), length.as_secs(), longest.as_secs())
}

fn shorten(text: &mut String) {
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
    }
}

impl Capacity {
    /// Rejects what no worker has. `field` names where it was said.
    pub fn check(&self, field: &dyn fmt::Display) -> Checked {
        at_most(&format_args!("{field}.cpus"), self.cpus, MOST_CPUS)?;
        at_most(&format_args!("{field}.memory"), self.memory.0, MOST_MEMORY.0)?;
        at_most(&format_args!("{field}.gpus"), self.gpus, MOST_GPUS)?;
        at_most(&format_args!("{field}.nodes"), self.nodes, MOST_NODES)?;
        at_most(&format_args!("{field}.max_jobs"), self.max_jobs.unwrap_or_default(), MOST_JOBS)
    }
}

/// Rejects a limit of time that no worker has.
pub fn check_time_limit(field: &dyn fmt::Display, limit: Duration) -> Checked {
    duration(field, limit, LONGEST_TIME)
}

impl Introduction {
    pub fn check(&self) -> Checked {
        if self.host.is_empty() {
            return reject(&"host", "is empty");
        }
        name(&"host", &self.host)?;
        name(&"boot_id", &self.boot_id)?;
        name(&"version", &self.version)?;
        at_most(&"pid", self.pid, LARGEST_PID)?;
        at_most(&"pid_start_ticks", self.pid_start_ticks, LARGEST_NUMBER)?;
        self.capacity.check(&"capacity")?;
        if let JobsOf::Users(users) = &self.jobs_of {
            no_more_than(&"jobs_of", users.len(), MOST_USERS)?;
            users.iter().try_for_each(|user| name(&"jobs_of", user))?;
        }
        no_more_than(&"labels", self.labels.len(), MOST_LABELS)?;
        for label in &self.labels {
            name(&"labels", label)?;
            if label.trim().is_empty() || label.contains(',') {
                return reject(&"labels", "contains a label that is empty or has a comma in it");
            }
        }
        if let Err(error) = check_site_name(&self.site) {
            return reject(&"site", format!("is not a name of a site: {error}"));
        }
        if let Some(before) = &self.before {
            at_most(&"before.secret (bytes)", before.secret.len(), LONGEST_SECRET)?;
            no_more_than(&"before.held", before.held.len(), MOST_HELD)?;
            no_more_than(&"before.actions", before.actions.len(), MOST_HELD)?;
        }
        if let Some(place) = &self.slurm {
            at_most(&"slurm.job_id", place.job_id, LARGEST_SLURM_JOB)?;
            at_most(&"slurm.restarts", place.restarts, LARGEST_PID)?;
            name(&"slurm.node", &place.node)?;
        }
        Ok(())
    }
}

impl Exchange {
    /// The exchange with its texts shortened and its waits limited, or the field that is out of bounds.
    pub fn into_checked(mut self) -> Result<Self, OutOfBounds> {
        at_most(&"secret (bytes)", self.secret.len(), LONGEST_SECRET)?;
        at_most(&"number", self.number, LARGEST_NUMBER)?;
        self.wait = self.wait.min(LONGEST_TIME);
        self.time_left = self.time_left.map(|left| left.min(LONGEST_TIME));
        for (n, report) in self.reports.iter_mut().enumerate() {
            report.check(&format_args!("reports[{n}]"))?;
        }
        for (n, action) in self.actions.iter_mut().enumerate() {
            action.check(&format_args!("actions[{n}]"))?;
        }
        Ok(self)
    }
}

impl ActionReport {
    fn check(&mut self, field: &dyn fmt::Display) -> Checked {
        time(&format_args!("{field}.started_at"), self.started_at)?;
        time(&format_args!("{field}.ended_at"), self.ended_at)?;
        self.message.iter_mut().for_each(shorten);
        Ok(())
    }
}

impl Report {
    fn check(&mut self, field: &dyn fmt::Display) -> Checked {
        match self {
            Self::Started { at, pid, .. } => {
                time(&format_args!("{field}.at"), *at)?;
                at_most(&format_args!("{field}.pid"), *pid, LARGEST_PID)
            }
            Self::Ended(ended) => ended.check(field),
            Self::Returned { why: ReturnReason::WorkerTrouble(text), .. } => {
                shorten(text);
                Ok(())
            }
            Self::Returned { .. } => Ok(()),
        }
    }
}

impl Ended {
    fn check(&mut self, field: &dyn fmt::Display) -> Checked {
        time(&format_args!("{field}.started_at"), self.started_at)?;
        time(&format_args!("{field}.ended_at"), self.ended_at)?;
        duration(&format_args!("{field}.wall"), self.wall, LONGEST_TIME)?;
        self.exit.check(&format_args!("{field}.exit"))?;
        self.usage.check(&format_args!("{field}.usage"))?;
        match &mut self.cause {
            EndCause::MissingOutputs(paths) => {
                no_more_than(&format_args!("{field}.cause"), paths.len(), MOST_FILES)?;
                paths.iter_mut().for_each(shorten);
            }
            EndCause::CannotStart(text) => shorten(text),
            EndCause::Itself | EndCause::Timeout | EndCause::OutOfMemory | EndCause::Stopped(_) => {}
        }
        if let Some(files) = &self.files {
            let place = format!("{field}.files");
            for list in [&files.inputs, &files.outputs] {
                no_more_than(&place, list.len(), MOST_FILES)?;
                list.iter().flatten().try_for_each(|file| file.check(&place))?;
            }
        }
        self.last_words.iter_mut().for_each(shorten);
        match self.recovered.as_deref_mut() {
            Some(Recovered::Ended { exit, wall }) => {
                exit.check(&format_args!("{field}.recovered.exit"))?;
                duration(&format_args!("{field}.recovered.wall"), *wall, LONGEST_TIME)
            }
            Some(Recovered::TimedOut { limit }) => {
                duration(&format_args!("{field}.recovered.limit"), *limit, LONGEST_TIME)
            }
            Some(Recovered::CannotStart(text)) => {
                shorten(text);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Exit {
    fn check(self, field: &dyn fmt::Display) -> Checked {
        match self {
            Self::Signal(signal) if !(0..=LARGEST_SIGNAL).contains(&signal) => {
                reject(field, format!("names signal {signal}, and there is none above {LARGEST_SIGNAL}"))
            }
            Self::Signal(_) | Self::Code(_) => Ok(()),
        }
    }
}

impl Usage {
    fn check(&self, field: &dyn fmt::Display) -> Checked {
        for memory in [self.peak_memory, self.avg_memory].into_iter().flatten() {
            // Of all nodes together.
            at_most(&format_args!("{field}.memory"), memory.0, LARGEST_NUMBER)?;
        }
        duration(&format_args!("{field}.cpu_time"), self.cpu_time, LONGEST_CPU_TIME)?;
        let percents = [self.peak_cpu_percent, self.avg_cpu_percent];
        if percents.into_iter().flatten().any(|percent| !(0.0..=LARGEST_PERCENT).contains(&percent)) {
            return reject(field, "has a percentage that is negative or too large");
        }
        Ok(())
    }
}

impl FileState {
    fn check(&self, field: &dyn fmt::Display) -> Checked {
        at_most(&format_args!("{field}.size"), self.size, LARGEST_NUMBER)?;
        self.hash.as_deref().map_or(Ok(()), |hash| name(&format_args!("{field}.hash"), hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Comeback;
    use crate::slurm::SlurmPlace;
    use crate::work::{AttemptKey, FilesSeen};
    use crate::{Attempt, JobId, RunId, WorkerId, WorkflowId};

    fn worker() -> Introduction {
        let json = serde_json::json!({
            "host": "node1", "boot_id": "b", "pid": 7, "pid_start_ticks": 9,
            "capacity": { "cpus": 8, "memory": 1 << 30, "gpus": 0, "nodes": 1, "max_jobs": null },
        });
        serde_json::from_value(json).unwrap()
    }

    fn key() -> AttemptKey {
        AttemptKey { workflow: WorkflowId(1), job: JobId(1), run: RunId(1), attempt: Attempt(1) }
    }

    fn end() -> Ended {
        Ended {
            key: key(),
            started_at: Timestamp(1),
            ended_at: Timestamp(2),
            wall: Duration::from_secs(1),
            exit: Exit::Code(0),
            cause: EndCause::Itself,
            usage: Usage::default(),
            files: None,
            last_words: None,
            recovered: None,
        }
    }

    fn exchange(report: Report) -> Exchange {
        Exchange {
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

    type Change = fn(&mut Introduction);

    #[test]
    fn every_field_of_an_introduction_is_bounded() {
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
            ("jobs_of", |who| who.jobs_of = JobsOf::Users(vec!["u".into(); 100_000])),
            ("jobs_of", |who| who.jobs_of = JobsOf::Users(vec!["u".repeat(256)])),
            ("labels", |who| who.labels = vec!["l".into(); 100_000]),
            ("labels", |who| who.labels = vec!["l".repeat(256)]),
            ("labels", |who| who.labels = vec![" ".into()]),
            ("labels", |who| who.labels = vec!["a,b".into()]),
            ("site", |who| who.site = "two words".into()),
            ("slurm.job_id", |who| {
                who.slurm = Some(SlurmPlace { job_id: u64::MAX, restarts: 0, node: "n".into() });
            }),
            ("before.held", |who| {
                let held = vec![key(); MOST_HELD + 1];
                who.before =
                    Some(Comeback { worker: WorkerId(1), secret: "s".into(), held, actions: Vec::new() });
            }),
            ("before.secret (bytes)", |who| {
                let (secret, held, actions) = ("s".repeat(1000), Vec::new(), Vec::new());
                who.before = Some(Comeback { worker: WorkerId(1), secret, held, actions });
            }),
        ];
        for (field, change) in cases {
            let mut who = worker();
            change(&mut who);
            assert_eq!(who.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn the_largest_that_is_accepted() {
        let mut who = worker();
        who.host = "h".repeat(LONGEST_NAME);
        who.labels = (0..MOST_LABELS).map(|n| format!("label {n}")).collect();
        let (cpus, gpus, nodes, memory) = (MOST_CPUS, MOST_GPUS, MOST_NODES, MOST_MEMORY);
        who.capacity = Capacity { cpus, memory, gpus, nodes, max_jobs: Some(MOST_JOBS) };
        assert_eq!(who.check(), Ok(()));
    }

    #[test]
    fn every_number_of_a_report_is_bounded() {
        let forever = Duration::from_secs(u64::MAX);
        let file = FileState { mtime_ns: 0, size: u64::MAX, hash: None };
        let files = FilesSeen { inputs: vec![Some(file)], outputs: Vec::new() };
        let usage = |usage| Ended { usage, ..end() };
        let recovered = |one| Ended { recovered: Some(Box::new(one)), ..end() };
        let cases = [
            ("reports[0].wall (seconds)", Ended { wall: forever, ..end() }),
            ("reports[0].started_at", Ended { started_at: Timestamp(-1), ..end() }),
            ("reports[0].ended_at", Ended { ended_at: Timestamp(i64::MIN), ..end() }),
            ("reports[0].exit", Ended { exit: Exit::Signal(i32::MAX), ..end() }),
            ("reports[0].exit", Ended { exit: Exit::Signal(-1), ..end() }),
            ("reports[0].usage.cpu_time (seconds)", usage(Usage { cpu_time: forever, ..Usage::default() })),
            (
                "reports[0].usage.memory",
                usage(Usage { peak_memory: Some(Bytes(u64::MAX)), ..Usage::default() }),
            ),
            ("reports[0].usage", usage(Usage { avg_cpu_percent: Some(-1.0), ..Usage::default() })),
            ("reports[0].usage", usage(Usage { peak_cpu_percent: Some(f64::NAN), ..Usage::default() })),
            ("reports[0].files.size", Ended { files: Some(Box::new(files)), ..end() }),
            (
                "reports[0].recovered.wall (seconds)",
                recovered(Recovered::Ended { exit: Exit::Code(0), wall: forever }),
            ),
            ("reports[0].recovered.limit (seconds)", recovered(Recovered::TimedOut { limit: forever })),
        ];
        for (field, ended) in cases {
            let error = exchange(Report::Ended(ended)).into_checked().unwrap_err();
            assert_eq!(error.field, field);
        }
        let started = Report::Started { key: key(), at: Timestamp(-5), pid: 1 };
        assert_eq!(exchange(started).into_checked().unwrap_err().field, "reports[0].at");
        let late = Exchange { number: u64::MAX, ..exchange(Report::Ended(end())) };
        assert_eq!(late.into_checked().unwrap_err().field, "number");
    }

    #[test]
    fn long_texts_are_shortened_and_long_waits_limited() {
        let long = "é".repeat(LONGEST_TEXT);
        let ended = Ended { cause: EndCause::CannotStart(long.clone()), last_words: Some(long), ..end() };
        let said = Exchange {
            wait: Duration::MAX,
            time_left: Some(Duration::MAX),
            ..exchange(Report::Ended(ended))
        };
        let said = said.into_checked().unwrap();
        assert_eq!((said.wait, said.time_left), (LONGEST_TIME, Some(LONGEST_TIME)));
        let Report::Ended(ended) = &said.reports[0] else { panic!("it is an end") };
        assert_eq!(ended.last_words.as_ref().map(String::len), Some(LONGEST_TEXT));
        assert!(matches!(&ended.cause, EndCause::CannotStart(text) if text.len() == LONGEST_TEXT));
    }
}
