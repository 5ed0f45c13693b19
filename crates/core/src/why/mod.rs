//! Why a job is where it is: the verdict, the evidence for it, what really blocks it, and what to type next.
//!
//! A pure function of the state that the caller gathered ([`Situation`]). What an exit code or a signal means is in
//! [`exit`], the way to the jobs that block in [`chain`], the lines of a log that matter in [`crate::telltale`].

mod chain;
mod exit;
mod nodes;
mod ready;

pub use chain::{Chain, Link};
pub use nodes::Nodes;
pub use ready::{Limit, Offer, UnitLimit};

use crate::edges::Edges;
use crate::graph::Cycle;
use crate::telltale::{self, Finding};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use windlass_types::work::return_code;
use windlass_types::{
    Attempt, Bytes, JobId, JobStatus, Resources, Timestamp, WorkerId, WorkflowId, format_duration,
};

/// A worker that waits for something to do is heard of about this often.
const LONGEST_CALL: Duration = Duration::from_secs(21);
/// Lines that are quoted from each log.
const LINES_PER_LOG: usize = 5;

/// A job and all that may have to do with where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
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
    pub outcome: Option<&'a Outcome>,
    /// What it may only run beside.
    pub labels: &'a [String],
    /// Where it may run; empty: anywhere.
    pub sites: &'a [String],
    /// How many of its sort are claimed at once, if the workflow says.
    pub limit: Option<Limit<'a>>,
    /// How many units may be under way at once, if it would begin one and the workflow says.
    pub units: Option<UnitLimit>,
    /// What the last worker that could not start a job of the workflow said about it.
    pub trouble: Option<&'a str>,
    /// The allocations that its workers come with, if the workflow runs on Slurm.
    pub nodes: Option<Nodes<'a>>,
    /// How long jobs of its kind usually take.
    pub usual: Option<Duration>,
    /// What the newest attempt wrote, or the end of it.
    pub logs: &'a [Log<'a>],
    pub workflow: Workflow<'a>,
    pub graph: Jobs<'a>,
}

#[derive(Clone, Copy, Debug)]
pub struct Workflow<'a> {
    pub id: WorkflowId,
    pub is_canceled: bool,
    /// Some process is running it.
    pub is_driven: bool,
    /// That process is a server: workers come and go, and each takes what suits it.
    pub is_served: bool,
    /// Those who may work on it.
    pub workers: &'a [Offer],
}

/// All jobs of the workflow, by number.
#[derive(Clone, Copy)]
pub struct Jobs<'a> {
    pub count: u32,
    pub edges: &'a Edges,
    pub id: &'a dyn Fn(u32) -> JobId,
    pub name: &'a dyn Fn(u32) -> String,
    pub status: &'a dyn Fn(u32) -> JobStatus,
    /// How its newest attempt ended.
    pub outcome: &'a dyn Fn(u32) -> Option<Outcome>,
}

impl fmt::Debug for Jobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("count", &self.count).finish_non_exhaustive()
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
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
pub struct Log<'a> {
    /// As it is shown.
    pub name: &'a str,
    pub text: &'a str,
    /// How many lines come before `text` in the file.
    pub skipped_lines: usize,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub job: JobId,
    pub name: String,
    pub status: JobStatus,
    /// One sentence.
    pub headline: String,
    pub evidence: Vec<Evidence>,
    /// From the job to what really blocks it.
    pub chain: Option<Chain>,
    pub next: Vec<Next>,
}

/// What the verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Evidence {
    Fact { text: String },
    LogLine { log: String, line: usize, text: String, means: &'static str },
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fact { text } => f.pad(text),
            Self::LogLine { log, line, text, .. } => write!(f, "{log}:{line}: {text}"),
        }
    }
}

/// A command to type, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Next {
    pub command: String,
    pub does: String,
}

/// Explains where the job stands.
pub fn why(situation: &Situation<'_>) -> Result<Verdict, Cycle> {
    let mut answer = Answer::new(situation);
    match (situation.graph.status)(situation.job) {
        JobStatus::Completed => answer.completed(),
        JobStatus::Running => answer.running(),
        JobStatus::Pending => answer.pending(),
        JobStatus::Ready => answer.ready(),
        JobStatus::Blocked => answer.blocked()?,
        JobStatus::Uninitialized => answer.uninitialized()?,
        JobStatus::Canceled => answer.canceled()?,
        JobStatus::Failed => answer.failed(),
        JobStatus::PendingFailed => answer.pending_failed(),
        JobStatus::Terminated => answer.terminated(),
        JobStatus::Disabled => answer.disabled(),
    }
    Ok(answer.verdict)
}

/// A verdict in the making.
struct Answer<'s> {
    of: &'s Situation<'s>,
    verdict: Verdict,
}

impl<'s> Answer<'s> {
    fn new(of: &'s Situation<'s>) -> Self {
        let verdict = Verdict {
            job: of.id,
            name: (of.graph.name)(of.job),
            status: (of.graph.status)(of.job),
            headline: String::new(),
            evidence: Vec::new(),
            chain: None,
            next: Vec::new(),
        };
        Self { of, verdict }
    }

    fn headline(&mut self, text: impl Into<String>) {
        self.verdict.headline = text.into();
    }

    fn fact(&mut self, text: impl Into<String>) {
        self.verdict.evidence.push(Evidence::Fact { text: text.into() });
    }

    fn next(&mut self, command: String, does: &str) {
        self.verdict.next.push(Next { command, does: does.to_owned() });
    }

    fn completed(&mut self) {
        let Some(outcome) = self.of.outcome else {
            self.headline("completed; its result was taken over from an earlier workflow");
            return;
        };
        self.headline(format!("completed in {}, at {}", format_duration(outcome.wall), outcome.ended_at));
        self.usage(outcome);
        self.next(format!("windlass logs {}", self.of.id), "shows what it printed");
    }

    fn running(&mut self) {
        let since = self.of.started_at.map(|at| (at, self.of.now.since(at)));
        match since {
            Some((at, so_far)) => {
                self.headline(format!("running for {}, since {at}", format_duration(so_far)));
                self.compare_runtime(so_far);
            }
            None => self.headline("running"),
        }
        self.tell_silence();
        self.undriven("it counts as running, but no process runs this workflow: the machine or the run died");
        self.next(format!("windlass logs {} --follow", self.of.id), "shows what it prints");
    }

    /// A worker that was not heard of for a while keeps its jobs until its lease is over.
    fn tell_silence(&mut self) {
        let has_it = |offer: &&Offer| offer.worker.is_some() && offer.worker == self.of.worker;
        let Some(offer) = self.of.workflow.workers.iter().find(has_it) else { return };
        if let Some(silence) = offer.silence.filter(|silence| *silence > LONGEST_CALL) {
            let seconds = Duration::from_secs(silence.as_secs());
            self.fact(format!(
                "{} is silent for {}: if its lease ends before it is heard of, the job runs elsewhere",
                offer.name,
                format_duration(seconds)
            ));
        }
    }

    fn compare_runtime(&mut self, so_far: Duration) {
        if let Some(limit) = self.of.asked.and_then(|asked| asked.runtime) {
            let text = match limit.checked_sub(so_far) {
                Some(left) => format!("asked for {}; {} left", format_duration(limit), format_duration(left)),
                None => format!("asked for {}: it is about to be ended", format_duration(limit)),
            };
            self.fact(text);
        }
        if let Some(usual) = self.of.usual {
            let usually = format_duration(usual);
            let slow = so_far > usual * 2;
            self.fact(if slow {
                format!("jobs like it usually take {usually}: this one is unusually slow")
            } else {
                format!("jobs like it usually take {usually}")
            });
        }
    }

    fn pending(&mut self) {
        self.headline("a worker holds it and is about to start it");
        self.undriven("a worker held it, but no process runs this workflow any more");
    }

    /// Nobody works on the workflow: says so instead of what stands in the headline, and what helps.
    fn undriven(&mut self, headline: &str) -> bool {
        if self.of.workflow.is_driven {
            return false;
        }
        self.headline(headline);
        let workflow = self.of.workflow.id;
        self.next(
            format!("windlass resume {workflow}"),
            "goes on with the workflow; what was running runs again",
        );
        true
    }

    fn blocked(&mut self) -> Result<(), Cycle> {
        let chain = chain::blocking(&self.of.graph, self.of.job)?;
        let Some(root) = chain.roots.first() else {
            self.headline(
                "blocked, although all it depends on is over: it is released when the workflow goes on",
            );
            self.undriven("blocked, although all it depends on is over: nothing runs the workflow");
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
        self.headline(format!("blocked by {} ({}), {what}{others}", root.name, root.job));
        if let Some(root) = chain.roots.iter().find(|root| root.status == JobStatus::PendingFailed) {
            self.decide(root.job);
        }
        self.fact(format!("{} of the jobs that it depends on are not over", chain.waiting));
        let root = root.job;
        self.verdict.chain = Some(chain);
        if self.of.workflow.is_driven {
            self.next(format!("windlass why {root}"), "explains the job that blocks");
        } else {
            let workflow = self.of.workflow.id;
            self.fact("no process runs this workflow");
            self.next(format!("windlass resume {workflow}"), "goes on with the workflow");
        }
        Ok(())
    }

    fn uninitialized(&mut self) -> Result<(), Cycle> {
        if self.of.workflow.is_driven {
            return self.blocked();
        }
        let again = if self.of.outcome.is_some() { "it was reset and has" } else { "it has" };
        self.headline(format!("not looked at yet: {again} not been part of a run"));
        self.next(format!("windlass resume {}", self.of.workflow.id), "runs the workflow");
        Ok(())
    }

    fn canceled(&mut self) -> Result<(), Cycle> {
        let chain = chain::canceling(&self.of.graph, self.of.job)?;
        let workflow = self.of.workflow.id;
        if let Some(root) = chain.roots.first() {
            let others = match chain.root_count {
                1 => String::new(),
                n => format!(", and {} more did not end well", n - 1),
            };
            let how = root.note.clone().unwrap_or_else(|| root.status.to_string());
            self.headline(format!("canceled because {} ({}) {how}{others}", root.name, root.job));
            let root = root.job;
            self.verdict.chain = Some(chain);
            self.next(format!("windlass why {root}"), "explains the failure behind it");
        } else if self.of.workflow.is_canceled {
            self.headline("canceled together with its workflow");
        } else {
            self.headline("canceled by somebody");
        }
        self.next(
            format!("windlass resume {workflow} --retry-failed"),
            "runs what failed and what was canceled again",
        );
        Ok(())
    }

    fn failed(&mut self) {
        let Some(outcome) = self.of.outcome else {
            self.headline("failed; no attempt of it is on record");
            return;
        };
        self.headline(exit::headline(outcome, self.of.asked.as_ref()));
        self.ending(outcome);
        self.retry(outcome);
    }

    fn pending_failed(&mut self) {
        match self.of.outcome {
            Some(outcome) => {
                let headline = exit::headline(outcome, self.of.asked.as_ref());
                self.headline(format!("{headline}; somebody is to decide what happens next"));
                self.ending(outcome);
            }
            None => self.headline("it failed, and somebody is to decide what happens next"),
        }
        self.decide(self.of.id);
    }

    fn decide(&mut self, job: JobId) {
        self.next(format!("windlass triage show {job}"), "shows what it said and what was decided before");
        self.next(format!("windlass triage retry {job}"), "runs it again; `--memory`, `--runtime` change it");
        self.next(format!("windlass triage fail {job}"), "lets it fail, or `ignore`: the others go on");
    }

    fn terminated(&mut self) {
        let Some(outcome) = self.of.outcome else {
            self.headline("ended by windlass; no attempt of it is on record");
            return;
        };
        self.headline(exit::headline(outcome, self.of.asked.as_ref()));
        self.ending(outcome);
        self.retry(outcome);
    }

    fn disabled(&mut self) {
        self.headline("left out on purpose; jobs that depend on it do not wait for it");
        let (workflow, id) = (self.of.workflow.id, self.of.id);
        self.next(format!("windlass jobs reset-status {id}"), "lets it run after all");
        self.next(format!("windlass resume {workflow}"), "then goes on with the workflow");
    }

    /// Everything about a bad end: what was noted, what was used, what the logs say.
    fn ending(&mut self, outcome: &Outcome) {
        if let Some(reason) = &outcome.reason
            && !self.verdict.headline.contains(reason.as_str())
        {
            self.fact(reason.clone());
        }
        let wall = format_duration(outcome.wall);
        self.fact(format!("attempt {} ended at {} after {wall}", outcome.attempt, outcome.ended_at));
        self.usage(outcome);
        // A shell says `Killed` too when windlass or the kernel did it for a reason that is known.
        let known = outcome.out_of_memory || outcome.status == JobStatus::Terminated;
        let is_news = |finding: &Finding| !known || finding.means != telltale::BY_FORCE;
        let mut quoted = false;
        for log in self.of.logs {
            for finding in telltale::telling_lines(log.text, LINES_PER_LOG).into_iter().filter(is_news) {
                quoted = true;
                self.verdict.evidence.push(Evidence::LogLine {
                    log: log.name.to_owned(),
                    line: log.skipped_lines + finding.line,
                    text: finding.text,
                    means: finding.means,
                });
            }
        }
        if !quoted {
            self.last_words();
        }
    }

    /// Nothing in the logs looks like an error: what they end with may still say something.
    fn last_words(&mut self) {
        let last = |log: &Log<'_>| {
            let lines = log.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            lines.last().map(|(number, line)| Evidence::LogLine {
                log: log.name.to_owned(),
                line: log.skipped_lines + number + 1,
                text: line.trim().chars().take(300).collect(),
                means: "the last line",
            })
        };
        let lines: Vec<Evidence> = self.of.logs.iter().filter_map(last).collect();
        if lines.is_empty() {
            self.fact("it printed nothing");
        }
        self.verdict.evidence.extend(lines);
    }

    /// Memory and time against what was asked for.
    fn usage(&mut self, outcome: &Outcome) {
        let Some(asked) = self.of.asked else { return };
        if let Some(peak) = outcome.peak_memory {
            self.fact(format!("used {peak} of the {} of memory that it asked for", asked.memory));
        }
        if let Some(limit) = asked.runtime {
            let share = outcome.wall.as_secs_f64() / limit.as_secs_f64().max(1e-9);
            if share >= 0.8 {
                self.fact(format!(
                    "took {:.0} % of the {} that it asked for",
                    share * 100.0,
                    format_duration(limit)
                ));
            }
        }
    }

    fn retry(&mut self, outcome: &Outcome) {
        let workflow = self.of.workflow.id;
        self.next(format!("windlass logs {}", self.of.id), "shows all that it printed");
        if outcome.out_of_memory || outcome.return_code == return_code::TIMEOUT {
            self.next(
                format!("windlass resources correct {workflow} --dry-run"),
                "proposes what it should ask for",
            );
        }
        self.next(format!("windlass resume {workflow} --retry-failed"), "runs what failed again");
    }
}

#[cfg(test)]
mod tests;
