//! Explains the state of a job: the headline, the evidence, what blocks it, and which command to type next.
//!
//! A pure function of the state that the caller gathered ([`JobSituation`]). The meanings of exit codes and
//! signals are in [`exit_meaning`], the path to blocking jobs in [`blocking_chain`], relevant log lines in
//! [`crate::log_excerpt`].

mod allocations;
mod blocking_chain;
mod exit_meaning;
mod ready_jobs;

pub use allocations::JobAllocations;
pub use blocking_chain::{BlockingChain, ChainLink};
pub use ready_jobs::{LimitUsage, WorkUnitLimitUsage, WorkerAvailability};

use crate::dependency_edges::DependencyEdges;
use crate::dependency_graph::DependencyCycle;
use crate::log_excerpt::{self, LogFinding};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use windlass_types::worker_messages::return_code;
use windlass_types::{
    Attempt, Bytes, JobId, JobStatus, Resources, Timestamp, WorkerId, WorkflowId, format_duration,
};

/// The longest usual interval between contacts of an idle worker.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(21);
/// Maximum number of lines quoted from each log.
const LINES_PER_LOG: usize = 5;

/// A job and everything that may affect its state.
#[derive(Clone, Copy, Debug)]
pub struct JobSituation<'a> {
    pub now: Timestamp,
    pub id: JobId,
    /// Its number in the graph.
    pub job: u32,
    /// `None`: it requests nothing, so nothing limits it.
    pub asked: Option<Resources>,
    /// The worker that holds it, if any.
    pub worker: Option<WorkerId>,
    /// Set if it runs.
    pub started_at: Option<Timestamp>,
    /// Earliest time of its next attempt.
    pub not_before: Option<Timestamp>,
    /// Its newest attempt that ended.
    pub outcome: Option<&'a AttemptSummary>,
    /// Labels that its worker must have.
    pub labels: &'a [String],
    /// Where it may run; empty: anywhere.
    pub sites: &'a [String],
    /// The job limit that applies to it, if any.
    pub limit: Option<LimitUsage<'a>>,
    /// The limit of concurrent work units, if the job would begin one.
    pub unit_limit: Option<WorkUnitLimitUsage>,
    /// Message of the last worker that could not start a job of the workflow.
    pub start_problem: Option<&'a str>,
    /// The allocations of its workers, if the workflow runs on Slurm.
    pub allocations: Option<JobAllocations<'a>>,
    /// Usual runtime of jobs of its group.
    pub typical_runtime: Option<Duration>,
    /// The logs of the newest attempt, or their ends.
    pub logs: &'a [JobLogTail<'a>],
    pub workflow: WorkflowSituation<'a>,
    pub graph: JobGraphView<'a>,
}

#[derive(Clone, Copy, Debug)]
pub struct WorkflowSituation<'a> {
    pub id: WorkflowId,
    pub is_canceled: bool,
    /// Whether a process runs the workflow.
    pub has_scheduler: bool,
    /// Whether that process is a server: workers come and go, and each takes jobs that it accepts.
    pub has_server: bool,
    /// The workers that may run it.
    pub workers: &'a [WorkerAvailability],
}

/// All jobs of the workflow by number, with their dependencies: what an explanation reads of other jobs.
#[derive(Clone, Copy)]
pub struct JobGraphView<'a> {
    pub count: u32,
    pub edges: &'a DependencyEdges,
    pub id: &'a dyn Fn(u32) -> JobId,
    pub name: &'a dyn Fn(u32) -> String,
    pub status: &'a dyn Fn(u32) -> JobStatus,
    /// How its newest attempt ended.
    pub outcome: &'a dyn Fn(u32) -> Option<AttemptSummary>,
}

impl fmt::Debug for JobGraphView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobGraphView").field("count", &self.count).finish_non_exhaustive()
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptSummary {
    pub attempt: Attempt,
    pub status: JobStatus,
    pub return_code: i32,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    /// The stored reason.
    pub reason: Option<String>,
    pub ended_at: Timestamp,
    pub wall: Duration,
    pub peak_memory: Option<Bytes>,
}

#[derive(Clone, Copy, Debug)]
pub struct JobLogTail<'a> {
    /// The displayed name.
    pub name: &'a str,
    pub text: &'a str,
    /// Number of lines before `text` in the file.
    pub skipped_lines: usize,
}

/// The explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobExplanation {
    pub job: JobId,
    pub name: String,
    pub status: JobStatus,
    /// One sentence.
    pub headline: String,
    pub evidence: Vec<ExplanationEvidence>,
    /// From the job to what blocks it.
    pub chain: Option<BlockingChain>,
    pub next: Vec<SuggestedCommand>,
}

/// Evidence for the headline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExplanationEvidence {
    Fact { text: String },
    LogLine { log: String, line: usize, text: String, means: &'static str },
}

impl fmt::Display for ExplanationEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fact { text } => f.pad(text),
            Self::LogLine { log, line, text, .. } => write!(f, "{log}:{line}: {text}"),
        }
    }
}

/// A command to type, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuggestedCommand {
    pub command: String,
    pub does: String,
}

/// Explains the state of the job.
pub fn explain_job(situation: &JobSituation<'_>) -> Result<JobExplanation, DependencyCycle> {
    let mut answer = ExplanationBuilder::new(situation);
    match (situation.graph.status)(situation.job) {
        JobStatus::Completed => answer.explain_completed(),
        JobStatus::Running => answer.explain_running(),
        JobStatus::Pending => answer.explain_pending(),
        JobStatus::Ready => answer.explain_ready(),
        JobStatus::Blocked => answer.explain_blocked()?,
        JobStatus::Uninitialized => answer.explain_uninitialized()?,
        JobStatus::Canceled => answer.explain_canceled()?,
        JobStatus::Failed => answer.explain_failed(),
        JobStatus::PendingFailed => answer.explain_pending_failed(),
        JobStatus::Terminated => answer.explain_terminated(),
        JobStatus::Disabled => answer.explain_disabled(),
    }
    Ok(answer.explanation)
}

/// An explanation under construction.
struct ExplanationBuilder<'s> {
    situation: &'s JobSituation<'s>,
    explanation: JobExplanation,
}

impl<'s> ExplanationBuilder<'s> {
    fn new(situation: &'s JobSituation<'s>) -> Self {
        let explanation = JobExplanation {
            job: situation.id,
            name: (situation.graph.name)(situation.job),
            status: (situation.graph.status)(situation.job),
            headline: String::new(),
            evidence: Vec::new(),
            chain: None,
            next: Vec::new(),
        };
        Self { situation, explanation }
    }

    fn set_headline(&mut self, text: impl Into<String>) {
        self.explanation.headline = text.into();
    }

    fn add_fact(&mut self, text: impl Into<String>) {
        self.explanation.evidence.push(ExplanationEvidence::Fact { text: text.into() });
    }

    fn suggest_command(&mut self, command: String, does: &str) {
        self.explanation.next.push(SuggestedCommand { command, does: does.to_owned() });
    }

    fn explain_completed(&mut self) {
        let Some(outcome) = self.situation.outcome else {
            self.set_headline("completed; its result was reused from an earlier workflow");
            return;
        };
        self.set_headline(format!("completed in {}, at {}", format_duration(outcome.wall), outcome.ended_at));
        self.explain_usage(outcome);
        self.suggest_command(format!("windlass logs {}", self.situation.id), "shows what it printed");
    }

    fn explain_running(&mut self) {
        let since = self.situation.started_at.map(|at| (at, self.situation.now.since(at)));
        match since {
            Some((at, so_far)) => {
                self.set_headline(format!("running for {}, since {at}", format_duration(so_far)));
                self.compare_runtime(so_far);
            }
            None => self.set_headline("running"),
        }
        self.explain_silence();
        self.explain_no_scheduler(
            "recorded as running, but no process runs this workflow: the machine or the run died",
        );
        self.suggest_command(format!("windlass logs {} --follow", self.situation.id), "shows what it prints");
    }

    /// Explains a worker without contact: it keeps its jobs until its lease expires.
    fn explain_silence(&mut self) {
        let has_it =
            |offer: &&WorkerAvailability| offer.worker.is_some() && offer.worker == self.situation.worker;
        let Some(offer) = self.situation.workflow.workers.iter().find(has_it) else { return };
        if let Some(silence) = offer.silence.filter(|silence| *silence > MAX_POLL_INTERVAL) {
            let seconds = Duration::from_secs(silence.as_secs());
            self.add_fact(format!(
                "{} has not reported for {}: if its lease expires, the job runs elsewhere",
                offer.name,
                format_duration(seconds)
            ));
        }
    }

    fn compare_runtime(&mut self, so_far: Duration) {
        if let Some(limit) = self.situation.asked.and_then(|asked| asked.runtime) {
            let text = match limit.checked_sub(so_far) {
                Some(left) => format!("requested {}; {} left", format_duration(limit), format_duration(left)),
                None => format!("requested {}: it is about to be ended", format_duration(limit)),
            };
            self.add_fact(text);
        }
        if let Some(usual) = self.situation.typical_runtime {
            let usually = format_duration(usual);
            let slow = so_far > usual * 2;
            self.add_fact(if slow {
                format!("similar jobs usually take {usually}: this one is unusually slow")
            } else {
                format!("similar jobs usually take {usually}")
            });
        }
    }

    fn explain_pending(&mut self) {
        self.set_headline("a worker holds it and is about to start it");
        self.explain_silence();
        self.explain_no_scheduler("a worker held it, but no process runs this workflow any more");
    }

    /// If no process runs the workflow, replaces the headline and suggests a command.
    fn explain_no_scheduler(&mut self, headline: &str) -> bool {
        if self.situation.workflow.has_scheduler {
            return false;
        }
        self.set_headline(headline);
        let workflow = self.situation.workflow.id;
        self.suggest_command(
            format!("windlass resume {workflow}"),
            "resumes the workflow; jobs that were running run again",
        );
        true
    }

    fn explain_blocked(&mut self) -> Result<(), DependencyCycle> {
        let chain = blocking_chain::find_blockers(&self.situation.graph, self.situation.job)?;
        let Some(root) = chain.roots.first() else {
            self.set_headline(
                "blocked, although all its dependencies have ended: it is released when the workflow resumes",
            );
            self.explain_no_scheduler(
                "blocked, although all its dependencies have ended: no process runs the workflow",
            );
            return Ok(());
        };
        let what = match root.status {
            JobStatus::Running | JobStatus::Pending => "which is running",
            JobStatus::Ready => "which has not started yet",
            JobStatus::PendingFailed => "which failed and waits for a decision",
            _ => "which has not run",
        };
        let others = match chain.root_count {
            1 => String::new(),
            n => format!(" and {} other {}", n - 1, if n == 2 { "job" } else { "jobs" }),
        };
        self.set_headline(format!("blocked by {} ({}), {what}{others}", root.name, root.job));
        if let Some(root) = chain.roots.iter().find(|root| root.status == JobStatus::PendingFailed) {
            self.suggest_decision(root.job);
        }
        self.add_fact(format!("dependencies that have not ended: {}", chain.waiting));
        let root = root.job;
        self.explanation.chain = Some(chain);
        if self.situation.workflow.has_scheduler {
            self.suggest_command(format!("windlass why {root}"), "explains the blocking job");
        } else {
            let workflow = self.situation.workflow.id;
            self.add_fact("no process runs this workflow");
            self.suggest_command(format!("windlass resume {workflow}"), "resumes the workflow");
        }
        Ok(())
    }

    fn explain_uninitialized(&mut self) -> Result<(), DependencyCycle> {
        if self.situation.workflow.has_scheduler {
            return self.explain_blocked();
        }
        let again = if self.situation.outcome.is_some() { "it was reset and has" } else { "it has" };
        self.set_headline(format!("not started: {again} not been part of a run"));
        self.suggest_command(format!("windlass resume {}", self.situation.workflow.id), "runs the workflow");
        Ok(())
    }

    fn explain_canceled(&mut self) -> Result<(), DependencyCycle> {
        let chain = blocking_chain::find_cancel_causes(&self.situation.graph, self.situation.job)?;
        let workflow = self.situation.workflow.id;
        if let Some(root) = chain.roots.first() {
            let others = match chain.root_count {
                1 => String::new(),
                n => format!(", and {} more did not complete", n - 1),
            };
            let how = root.note.clone().unwrap_or_else(|| root.status.to_string());
            self.set_headline(format!("canceled because {} ({}) {how}{others}", root.name, root.job));
            let root = root.job;
            self.explanation.chain = Some(chain);
            self.suggest_command(format!("windlass why {root}"), "explains the original failure");
        } else if self.situation.workflow.is_canceled {
            self.set_headline("canceled together with its workflow");
        } else {
            self.set_headline("canceled by a user");
        }
        self.suggest_command(
            format!("windlass resume {workflow} --retry-failed"),
            "runs failed and canceled jobs again",
        );
        Ok(())
    }

    fn explain_failed(&mut self) {
        let Some(outcome) = self.situation.outcome else {
            self.set_headline("failed; there is no record of an attempt");
            return;
        };
        self.set_headline(exit_meaning::end_headline(outcome, self.situation.asked.as_ref()));
        self.explain_end(outcome);
        self.suggest_retry(outcome);
    }

    fn explain_pending_failed(&mut self) {
        match self.situation.outcome {
            Some(outcome) => {
                let headline = exit_meaning::end_headline(outcome, self.situation.asked.as_ref());
                self.set_headline(format!("{headline}; waiting for a decision"));
                self.explain_end(outcome);
            }
            None => self.set_headline("failed, waiting for a decision"),
        }
        self.suggest_decision(self.situation.id);
    }

    fn suggest_decision(&mut self, job: JobId) {
        self.suggest_command(
            format!("windlass failures show {job}"),
            "shows its output and earlier decisions",
        );
        self.suggest_command(
            format!("windlass failures retry {job}"),
            "runs it again; `--memory`, `--runtime` change it",
        );
        self.suggest_command(
            format!("windlass failures fail {job}"),
            "fails it and cancels its dependents; `ignore` lets them run",
        );
    }

    fn explain_terminated(&mut self) {
        let Some(outcome) = self.situation.outcome else {
            self.set_headline("ended by windlass; there is no record of an attempt");
            return;
        };
        self.set_headline(exit_meaning::end_headline(outcome, self.situation.asked.as_ref()));
        self.explain_end(outcome);
        self.suggest_retry(outcome);
    }

    fn explain_disabled(&mut self) {
        self.set_headline("disabled; its dependents do not wait for it");
        let (workflow, id) = (self.situation.workflow.id, self.situation.id);
        self.suggest_command(format!("windlass jobs reset-status {id}"), "lets it run");
        self.suggest_command(format!("windlass resume {workflow}"), "then resumes the workflow");
    }

    /// Explains a failed end: the reason, the resources used, the logs.
    fn explain_end(&mut self, outcome: &AttemptSummary) {
        if let Some(reason) = &outcome.reason
            && !self.explanation.headline.contains(reason.as_str())
        {
            self.add_fact(reason.clone());
        }
        let wall = format_duration(outcome.wall);
        self.add_fact(format!("attempt {} ended at {} after {wall}", outcome.attempt, outcome.ended_at));
        self.explain_usage(outcome);
        // The shell also prints `Killed` when windlass or the kernel killed the job for a known reason.
        let known = outcome.out_of_memory || outcome.status == JobStatus::Terminated;
        let is_news = |finding: &LogFinding| !known || finding.means != log_excerpt::KILLED_MEANING;
        let mut quoted = false;
        for log in self.situation.logs {
            for finding in log_excerpt::excerpt_lines(log.text, LINES_PER_LOG).into_iter().filter(is_news) {
                quoted = true;
                self.explanation.evidence.push(ExplanationEvidence::LogLine {
                    log: log.name.to_owned(),
                    line: log.skipped_lines + finding.line,
                    text: finding.text,
                    means: finding.means,
                });
            }
        }
        if !quoted {
            self.add_log_tail();
        }
    }

    /// If no log line looks like an error, adds the last lines: they may still help.
    fn add_log_tail(&mut self) {
        let last = |log: &JobLogTail<'_>| {
            let lines = log.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            lines.last().map(|(number, line)| ExplanationEvidence::LogLine {
                log: log.name.to_owned(),
                line: log.skipped_lines + number + 1,
                text: line.trim().chars().take(300).collect(),
                means: "last line of the log",
            })
        };
        let lines: Vec<ExplanationEvidence> = self.situation.logs.iter().filter_map(last).collect();
        if lines.is_empty() {
            self.add_fact("it printed nothing");
        }
        self.explanation.evidence.extend(lines);
    }

    /// Compares memory and time used with the request.
    fn explain_usage(&mut self, outcome: &AttemptSummary) {
        let Some(asked) = self.situation.asked else { return };
        if let Some(peak) = outcome.peak_memory {
            self.add_fact(format!("used {peak} of the requested {} of memory", asked.memory));
        }
        if let Some(limit) = asked.runtime {
            let share = outcome.wall.as_secs_f64() / limit.as_secs_f64().max(1e-9);
            if share >= 0.8 {
                self.add_fact(format!(
                    "took {:.0} % of the requested {}",
                    share * 100.0,
                    format_duration(limit)
                ));
            }
        }
    }

    fn suggest_retry(&mut self, outcome: &AttemptSummary) {
        let workflow = self.situation.workflow.id;
        if outcome.out_of_memory || outcome.return_code == return_code::TIMEOUT {
            if self.situation.workflow.has_scheduler {
                self.suggest_command(
                    format!("windlass resources correct {workflow} --dry-run"),
                    "proposes new resource requests",
                );
            } else {
                self.suggest_command(
                    format!("windlass recover {workflow}"),
                    "raises the requests of such jobs and runs them again",
                );
            }
        }
        self.suggest_command(format!("windlass logs {}", self.situation.id), "shows all its output");
        self.suggest_command(format!("windlass resume {workflow} --retry-failed"), "runs failed jobs again");
    }
}

#[cfg(test)]
mod tests;
