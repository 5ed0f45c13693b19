//! Why a job is where it is: the verdict, the evidence for it, what really blocks it, and what to type next.
//!
//! A pure function of the state that the caller gathered ([`Situation`]). What an exit code or a signal means is in
//! [`exit`], the way to the jobs that block in [`chain`], the lines of a log that matter in [`crate::telltale`].

mod allocations;
mod blocking_chain;
mod exit_meaning;
mod ready_jobs;

pub use allocations::JobAllocations;
pub use blocking_chain::{BlockingChain, ChainLink};
pub use ready_jobs::{LimitUsage, WorkUnitLimitUsage, WorkerAvailability};

use crate::edges::DependencyEdges;
use crate::graph::DependencyCycle;
use crate::log_excerpt::{self, LogFinding};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use windlass_types::worker_messages::return_code;
use windlass_types::{
    Attempt, Bytes, JobId, JobStatus, Resources, Timestamp, WorkerId, WorkflowId, format_duration,
};

/// A worker that waits for something to do is heard of about this often.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(21);
/// Lines that are quoted from each log.
const LINES_PER_LOG: usize = 5;

/// A job and all that may have to do with where it stands.
#[derive(Clone, Copy, Debug)]
pub struct JobSituation<'a> {
    pub now: Timestamp,
    pub id: JobId,
    /// Its number in the graph.
    pub job: u32,
    /// `None`: it asked for nothing, so nothing limits it.
    pub asked: Option<Resources>,
    /// The worker that has it, if one has.
    pub worker: Option<WorkerId>,
    /// If it runs.
    pub started_at: Option<Timestamp>,
    /// It is to be tried again, but not earlier.
    pub not_before: Option<Timestamp>,
    /// Its newest attempt that ended.
    pub outcome: Option<&'a AttemptSummary>,
    /// What it may only run beside.
    pub labels: &'a [String],
    /// Where it may run; empty: anywhere.
    pub sites: &'a [String],
    /// How many of its sort are claimed at once, if the workflow says.
    pub limit: Option<LimitUsage<'a>>,
    /// How many units may be under way at once, if it would begin one and the workflow says.
    pub unit_limit: Option<WorkUnitLimitUsage>,
    /// What the last worker that could not start a job of the workflow said about it.
    pub start_problem: Option<&'a str>,
    /// The allocations that its workers come with, if the workflow runs on Slurm.
    pub allocations: Option<JobAllocations<'a>>,
    /// How long jobs of its kind usually take.
    pub typical_runtime: Option<Duration>,
    /// What the newest attempt wrote, or the end of it.
    pub logs: &'a [JobLogTail<'a>],
    pub workflow: WorkflowSituation<'a>,
    pub graph: JobGraph<'a>,
}

#[derive(Clone, Copy, Debug)]
pub struct WorkflowSituation<'a> {
    pub id: WorkflowId,
    pub is_canceled: bool,
    /// Some process is running it.
    pub has_scheduler: bool,
    /// That process is a server: workers come and go, and each takes what suits it.
    pub has_server: bool,
    /// Those who may work on it.
    pub workers: &'a [WorkerAvailability],
}

/// All jobs of the workflow, by number.
#[derive(Clone, Copy)]
pub struct JobGraph<'a> {
    pub count: u32,
    pub edges: &'a DependencyEdges,
    pub id: &'a dyn Fn(u32) -> JobId,
    pub name: &'a dyn Fn(u32) -> String,
    pub status: &'a dyn Fn(u32) -> JobStatus,
    /// How its newest attempt ended.
    pub outcome: &'a dyn Fn(u32) -> Option<AttemptSummary>,
}

impl fmt::Debug for JobGraph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("count", &self.count).finish_non_exhaustive()
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
    /// What was noted when it ended.
    pub reason: Option<String>,
    pub ended_at: Timestamp,
    pub wall: Duration,
    pub peak_memory: Option<Bytes>,
}

#[derive(Clone, Copy, Debug)]
pub struct JobLogTail<'a> {
    /// As it is shown.
    pub name: &'a str,
    pub text: &'a str,
    /// How many lines come before `text` in the file.
    pub skipped_lines: usize,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobExplanation {
    pub job: JobId,
    pub name: String,
    pub status: JobStatus,
    /// One sentence.
    pub headline: String,
    pub evidence: Vec<ExplanationEvidence>,
    /// From the job to what really blocks it.
    pub chain: Option<BlockingChain>,
    pub next: Vec<SuggestedCommand>,
}

/// What the verdict rests on.
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

/// Explains where the job stands.
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

/// A verdict in the making.
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
            self.set_headline("completed; its result was taken over from an earlier workflow");
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
            "it counts as running, but no process runs this workflow: the machine or the run died",
        );
        self.suggest_command(format!("windlass logs {} --follow", self.situation.id), "shows what it prints");
    }

    /// A worker that was not heard of for a while keeps its jobs until its lease is over.
    fn explain_silence(&mut self) {
        let has_it =
            |offer: &&WorkerAvailability| offer.worker.is_some() && offer.worker == self.situation.worker;
        let Some(offer) = self.situation.workflow.workers.iter().find(has_it) else { return };
        if let Some(silence) = offer.silence.filter(|silence| *silence > MAX_POLL_INTERVAL) {
            let seconds = Duration::from_secs(silence.as_secs());
            self.add_fact(format!(
                "{} is silent for {}: if its lease ends before it is heard of, the job runs elsewhere",
                offer.name,
                format_duration(seconds)
            ));
        }
    }

    fn compare_runtime(&mut self, so_far: Duration) {
        if let Some(limit) = self.situation.asked.and_then(|asked| asked.runtime) {
            let text = match limit.checked_sub(so_far) {
                Some(left) => format!("asked for {}; {} left", format_duration(limit), format_duration(left)),
                None => format!("asked for {}: it is about to be ended", format_duration(limit)),
            };
            self.add_fact(text);
        }
        if let Some(usual) = self.situation.typical_runtime {
            let usually = format_duration(usual);
            let slow = so_far > usual * 2;
            self.add_fact(if slow {
                format!("jobs like it usually take {usually}: this one is unusually slow")
            } else {
                format!("jobs like it usually take {usually}")
            });
        }
    }

    fn explain_pending(&mut self) {
        self.set_headline("a worker holds it and is about to start it");
        self.explain_no_scheduler("a worker held it, but no process runs this workflow any more");
    }

    /// Nobody works on the workflow: says so instead of what stands in the headline, and what helps.
    fn explain_no_scheduler(&mut self, headline: &str) -> bool {
        if self.situation.workflow.has_scheduler {
            return false;
        }
        self.set_headline(headline);
        let workflow = self.situation.workflow.id;
        self.suggest_command(
            format!("windlass resume {workflow}"),
            "goes on with the workflow; what was running runs again",
        );
        true
    }

    fn explain_blocked(&mut self) -> Result<(), DependencyCycle> {
        let chain = blocking_chain::find_blockers(&self.situation.graph, self.situation.job)?;
        let Some(root) = chain.roots.first() else {
            self.set_headline(
                "blocked, although all it depends on is over: it is released when the workflow goes on",
            );
            self.explain_no_scheduler(
                "blocked, although all it depends on is over: nothing runs the workflow",
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
        self.add_fact(format!("{} of the jobs that it depends on are not over", chain.waiting));
        let root = root.job;
        self.explanation.chain = Some(chain);
        if self.situation.workflow.has_scheduler {
            self.suggest_command(format!("windlass why {root}"), "explains the job that blocks");
        } else {
            let workflow = self.situation.workflow.id;
            self.add_fact("no process runs this workflow");
            self.suggest_command(format!("windlass resume {workflow}"), "goes on with the workflow");
        }
        Ok(())
    }

    fn explain_uninitialized(&mut self) -> Result<(), DependencyCycle> {
        if self.situation.workflow.has_scheduler {
            return self.explain_blocked();
        }
        let again = if self.situation.outcome.is_some() { "it was reset and has" } else { "it has" };
        self.set_headline(format!("not looked at yet: {again} not been part of a run"));
        self.suggest_command(format!("windlass resume {}", self.situation.workflow.id), "runs the workflow");
        Ok(())
    }

    fn explain_canceled(&mut self) -> Result<(), DependencyCycle> {
        let chain = blocking_chain::find_cancel_causes(&self.situation.graph, self.situation.job)?;
        let workflow = self.situation.workflow.id;
        if let Some(root) = chain.roots.first() {
            let others = match chain.root_count {
                1 => String::new(),
                n => format!(", and {} more did not end well", n - 1),
            };
            let how = root.note.clone().unwrap_or_else(|| root.status.to_string());
            self.set_headline(format!("canceled because {} ({}) {how}{others}", root.name, root.job));
            let root = root.job;
            self.explanation.chain = Some(chain);
            self.suggest_command(format!("windlass why {root}"), "explains the failure behind it");
        } else if self.situation.workflow.is_canceled {
            self.set_headline("canceled together with its workflow");
        } else {
            self.set_headline("canceled by somebody");
        }
        self.suggest_command(
            format!("windlass resume {workflow} --retry-failed"),
            "runs what failed and what was canceled again",
        );
        Ok(())
    }

    fn explain_failed(&mut self) {
        let Some(outcome) = self.situation.outcome else {
            self.set_headline("failed; no attempt of it is on record");
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
                self.set_headline(format!("{headline}; somebody is to decide what happens next"));
                self.explain_end(outcome);
            }
            None => self.set_headline("it failed, and somebody is to decide what happens next"),
        }
        self.suggest_decision(self.situation.id);
    }

    fn suggest_decision(&mut self, job: JobId) {
        self.suggest_command(
            format!("windlass triage show {job}"),
            "shows what it said and what was decided before",
        );
        self.suggest_command(
            format!("windlass triage retry {job}"),
            "runs it again; `--memory`, `--runtime` change it",
        );
        self.suggest_command(
            format!("windlass triage fail {job}"),
            "lets it fail, or `ignore`: the others go on",
        );
    }

    fn explain_terminated(&mut self) {
        let Some(outcome) = self.situation.outcome else {
            self.set_headline("ended by windlass; no attempt of it is on record");
            return;
        };
        self.set_headline(exit_meaning::end_headline(outcome, self.situation.asked.as_ref()));
        self.explain_end(outcome);
        self.suggest_retry(outcome);
    }

    fn explain_disabled(&mut self) {
        self.set_headline("left out on purpose; jobs that depend on it do not wait for it");
        let (workflow, id) = (self.situation.workflow.id, self.situation.id);
        self.suggest_command(format!("windlass jobs reset-status {id}"), "lets it run after all");
        self.suggest_command(format!("windlass resume {workflow}"), "then goes on with the workflow");
    }

    /// Everything about a bad end: what was noted, what was used, what the logs say.
    fn explain_end(&mut self, outcome: &AttemptSummary) {
        if let Some(reason) = &outcome.reason
            && !self.explanation.headline.contains(reason.as_str())
        {
            self.add_fact(reason.clone());
        }
        let wall = format_duration(outcome.wall);
        self.add_fact(format!("attempt {} ended at {} after {wall}", outcome.attempt, outcome.ended_at));
        self.explain_usage(outcome);
        // A shell says `Killed` too when windlass or the kernel did it for a reason that is known.
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

    /// Nothing in the logs looks like an error: what they end with may still say something.
    fn add_log_tail(&mut self) {
        let last = |log: &JobLogTail<'_>| {
            let lines = log.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            lines.last().map(|(number, line)| ExplanationEvidence::LogLine {
                log: log.name.to_owned(),
                line: log.skipped_lines + number + 1,
                text: line.trim().chars().take(300).collect(),
                means: "the last line",
            })
        };
        let lines: Vec<ExplanationEvidence> = self.situation.logs.iter().filter_map(last).collect();
        if lines.is_empty() {
            self.add_fact("it printed nothing");
        }
        self.explanation.evidence.extend(lines);
    }

    /// Memory and time against what was asked for.
    fn explain_usage(&mut self, outcome: &AttemptSummary) {
        let Some(asked) = self.situation.asked else { return };
        if let Some(peak) = outcome.peak_memory {
            self.add_fact(format!("used {peak} of the {} of memory that it asked for", asked.memory));
        }
        if let Some(limit) = asked.runtime {
            let share = outcome.wall.as_secs_f64() / limit.as_secs_f64().max(1e-9);
            if share >= 0.8 {
                self.add_fact(format!(
                    "took {:.0} % of the {} that it asked for",
                    share * 100.0,
                    format_duration(limit)
                ));
            }
        }
    }

    fn suggest_retry(&mut self, outcome: &AttemptSummary) {
        let workflow = self.situation.workflow.id;
        self.suggest_command(format!("windlass logs {}", self.situation.id), "shows all that it printed");
        if outcome.out_of_memory || outcome.return_code == return_code::TIMEOUT {
            self.suggest_command(
                format!("windlass resources correct {workflow} --dry-run"),
                "proposes what it should ask for",
            );
        }
        self.suggest_command(format!("windlass resume {workflow} --retry-failed"), "runs what failed again");
    }
}

#[cfg(test)]
mod tests;
