//! Failures that wait for somebody to decide: looking at them, and deciding.
//!
//! What an agent says is checked before anything is done: that the workflow lets somebody decide at all, that the job
//! waits for it, that the amounts make sense, and that the lines it quotes stand in the log. Each job is decided on for
//! itself: one that cannot be does not keep the others from it.

use super::Answer;
use super::jobs::{failure, last_failed, last_failure};
use super::logs::{MOST_BYTES, MOST_LINES, tail_of};
use super::page::Page;
use crate::desk::{Desk, Trouble};
use crate::shown;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::orders::is_quoted;
use windlass_insight::logs::Stream;
use windlass_store::model::{JobFilter, JobRow, ResultRow, WorkflowRow};
use windlass_types::orders::{Answer as Given, Changes, Order, Orders, Outcome, Verdict};
use windlass_types::{JobStatus, ParseAmountError, parse_duration};

/// Lines of stderr that are shown of each job.
const TAIL: usize = 50;
/// So much of all of them together, and at least so much of each.
const TAILS: u64 = 128 << 10;
const LEAST: u64 = 1 << 10;
const COMMAND: usize = 2000;
/// More at once nobody looks through.
const MOST: usize = 200;

const GUIDANCE: &str = "For each job decide whether another attempt can help. Retry what may go away by itself (networks, busy \
services, nodes, locks), and what ran out of memory or time with more of it. Fail what happens again each time (syntax errors, \
missing modules, wrong input); failing cancels what depends on it. Quote the log lines that your decision rests on as evidence, \
word for word. If the log does not say why, say so in the reason and leave the job to a person. Then call \
classify_and_resolve_failures, first with dry_run, then with confirm: true.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingFailed {
    workflow_id: i64,
    /// At most so many (20; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

pub(super) fn list(desk: &Desk, args: &PendingFailed) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    let page = Page::new(args.offset, args.limit.or(Some(20)));
    let filter = JobFilter {
        status: vec![JobStatus::PendingFailed],
        offset: page.offset,
        limit: Some(page.asked()),
        ..JobFilter::default()
    };
    let jobs = desk.books.jobs(workflow.id, &filter)?;
    let each = (TAILS / (jobs.len() as u64).max(1)).clamp(LEAST, MOST_BYTES);
    let views = jobs
        .iter()
        .map(|job| Ok::<_, Trouble>((job.id, view(desk, &workflow, job, each)?)))
        .collect::<Result<_, _>>()?;
    let mut shown = page.show(desk.told_of(workflow.id, views)?, |view| view);
    let items = shown["items"].take();
    let more = json!({
        "workflow_id": workflow.id, "use_pending_failed": workflow.settings.use_pending_failed,
        "total": workflow.counts.get(JobStatus::PendingFailed), "note": shown::NOTE, "guidance": GUIDANCE, "jobs": items,
    });
    if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
        shown.remove("items");
        shown.extend(more);
    }
    Ok(shown)
}

/// `most`: so many bytes of what it wrote.
fn view(desk: &Desk, workflow: &WorkflowRow, job: &JobRow, most: u64) -> Result<Value, Trouble> {
    let row = last_failed(desk, workflow, job)?;
    let row = row.as_ref();
    let failure = last_failure(desk, workflow, job)?.map(|row| failure(&row));
    let stderr = row.map(|row| tail_of(desk, workflow, job, row.key.into(), Stream::Stderr, (TAIL, most)));
    let (tail, error) = match stderr {
        Some(Ok(tail)) => (tail.map(|tail| tail.text), None),
        Some(Err(why)) => (None, Some(why.message)),
        None => (None, Some("no attempt of it is known".to_owned())),
    };
    Ok(json!({
        "job_id": job.id, "name": job.name, "command": shown::cut(&job.command, COMMAND),
        "run_id": row.map(|row| row.key.run_id), "attempt_id": job.attempt_id,
        "return_code": row.map(|row| row.return_code).or(job.return_code), "signal": row.and_then(|row| row.signal),
        "out_of_memory": row.is_some_and(|row| row.out_of_memory),
        "exec_time_minutes": row.map(|row| row.wall.as_secs_f64() / 60.0),
        "peak_memory_bytes": row.and_then(|row| row.peak_memory_bytes),
        "reason": job.reason, "stderr_tail": tail, "stderr_read_error": error,
        "rules_say": failure,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    workflow_id: i64,
    /// One for each job, at most 200.
    classifications: Vec<Classification>,
    /// Says what would be done, and does nothing.
    #[serde(default)]
    dry_run: bool,
    /// Without it only what would be done is said.
    #[serde(default)]
    confirm: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Classification {
    job_id: i64,
    action: Action,
    /// For the next attempt, for example `8g`. Only with retry.
    memory: Option<String>,
    /// For the next attempt, for example `PT2H` or `90m`. Only with retry.
    runtime: Option<String>,
    /// For the next attempt: another Slurm scheduler of the workflow, by name. Only with retry.
    scheduler: Option<String>,
    /// For the next attempt: another Slurm partition. Only with retry.
    partition: Option<String>,
    /// Why, in a sentence. It is kept.
    reason: Option<String>,
    /// How sure you are, from 0 to 1.
    confidence: Option<f64>,
    /// Lines of the job's log that the decision rests on, word for word. One that is not there refuses the decision.
    #[serde(default)]
    evidence: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Retry,
    Fail,
}

pub(super) fn resolve(desk: &Desk, args: &Resolve) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    if !workflow.settings.use_pending_failed {
        return Err(Trouble::refused(format!(
            "workflow {} does not let anybody decide on its failures: its spec does not say `use_pending_failed: true`",
            workflow.id
        )));
    }
    if args.classifications.len() > MOST {
        return Err(Trouble::refused(format!("at most {MOST} jobs can be decided on at once")));
    }
    let judged: Vec<Result<Order, Trouble>> =
        args.classifications.iter().map(|one| order(desk, &workflow, one)).collect();
    let orders: Vec<Order> = judged.iter().filter_map(|one| one.as_ref().ok().cloned()).collect();
    let dry_run = args.dry_run || !args.confirm;
    let outcomes = if orders.is_empty() {
        Vec::new()
    } else {
        // Here, where the logs are, and not in the books, which keep the last words only.
        let agent = Some(desk.agent.clone());
        let given = Orders { agent, dry_run, is_looked_up: true, orders };
        desk.give(workflow.id, given)?
    };
    let mut outcomes = outcomes.into_iter();
    let results: Vec<Value> = std::iter::zip(&args.classifications, judged)
        .map(|(said, judged)| match judged {
            Ok(_) => outcomes.next().map_or(Value::Null, |outcome| told(&outcome, dry_run)),
            Err(why) => json!({
                "job_id": said.job_id, "action": said.action.verdict().as_str(), "status": "error",
                "error": why.message, "hint": why.hint,
            }),
        })
        .collect();
    let errors = results.iter().filter(|result| result["status"] == "error").count();
    let next = (!args.dry_run && !args.confirm)
        .then_some("nothing was done: if this is wanted, call this again with confirm: true");
    Ok(json!({
        "workflow_id": workflow.id, "dry_run": dry_run, "resolved": results.len() - errors, "errors": errors,
        "results": results, "next": next,
    }))
}

/// What came of one decision.
fn told(outcome: &Outcome, dry_run: bool) -> Value {
    let (job, action) = (outcome.job, outcome.verdict.as_str());
    let status = match outcome.answer {
        Given::Done if dry_run => "would_apply",
        Given::Done => "applied",
        Given::Proposed => "waits_for_a_person",
        Given::Refused => {
            return json!({ "job_id": job, "action": action, "status": "error", "error": outcome.words });
        }
    };
    json!({ "job_id": job, "action": action, "status": status, "words": outcome.words })
}

impl Action {
    const fn verdict(self) -> Verdict {
        match self {
            Self::Retry => Verdict::Retry,
            Self::Fail => Verdict::Fail,
        }
    }
}

/// The decision on a job, if it can be decided like this.
fn order(desk: &Desk, workflow: &WorkflowRow, said: &Classification) -> Result<Order, Trouble> {
    let job = desk.job_of(workflow, said.job_id)?;
    if job.status != JobStatus::PendingFailed {
        return Err(Trouble::refused(format!("job {} is {}, not pending_failed", job.id, job.status)));
    }
    let verdict = said.action.verdict();
    if verdict == Verdict::Fail && (said.memory.is_some() || said.runtime.is_some()) {
        return Err(Trouble::refused("memory and runtime are for another attempt: only with retry"));
    }
    if said.confidence.is_some_and(|sure| !(0.0..=1.0).contains(&sure)) {
        return Err(Trouble::refused("confidence is a number from 0 to 1"));
    }
    let memory = said.memory.as_deref().map(str::parse).transpose();
    let runtime = said.runtime.as_deref().map(parse_duration).transpose();
    let changes = Changes {
        memory_bytes: memory.map_err(|why: ParseAmountError| Trouble::refused(format!("memory: {why}")))?,
        runtime_seconds: runtime
            .map_err(|why| Trouble::refused(format!("runtime: {why}")))?
            .map(|time| time.as_secs_f64()),
        scheduler: said.scheduler.clone(),
        partition: said.partition.clone(),
        ..Changes::default()
    };
    check_evidence(desk, workflow, &job, &said.evidence)?;
    Ok(Order {
        job: job.id,
        verdict,
        changes,
        reason: said.reason.clone().unwrap_or_default(),
        confidence: said.confidence,
        evidence: said.evidence.clone(),
    })
}

/// Every line that is quoted stands in what is shown of the job's last attempt: its logs, or what the books keep of them.
fn check_evidence(
    desk: &Desk,
    workflow: &WorkflowRow,
    job: &JobRow,
    evidence: &[String],
) -> Result<(), Trouble> {
    if evidence.is_empty() {
        return Ok(());
    }
    let Some(row) = last_failed(desk, workflow, job)? else {
        return Err(Trouble::refused(format!(
            "no attempt of job {} is known, so nothing can be quoted",
            job.id
        )));
    };
    let said = said(desk, workflow, job, &row)?;
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    match evidence.iter().find(|quote| !is_quoted(&said, quote)) {
        None => Ok(()),
        Some(quote) => Err(Trouble::refused(format!(
            "this line is not in the log of job {}: {:?}",
            job.id,
            quote.trim()
        ))
        .with_hint(
            "quote whole lines of its log, or at least ten letters of one, word for word, without numbers or quotation marks around them",
        )),
    }
}

fn said(desk: &Desk, workflow: &WorkflowRow, job: &JobRow, row: &ResultRow) -> Result<Vec<String>, Trouble> {
    let streams = [Stream::Stderr, Stream::Stdout].into_iter();
    let most = (MOST_LINES, MOST_BYTES);
    let tails = streams.map(|stream| tail_of(desk, workflow, job, row.key.into(), stream, most));
    let mut said: Vec<String> =
        tails.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().map(|tail| tail.text).collect();
    if let Some(kept) = last_failure(desk, workflow, job)? {
        said.extend([kept.line, kept.last_words].into_iter().flatten());
    }
    Ok(said)
}
