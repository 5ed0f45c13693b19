//! What follows an attempt: pure, the same answer for the same question.
//!
//! Nodes of requests are treated by their class ([`Care`](windlass_core::handlers::Care)), jobs of a workflow spec by the
//! failure handler that they name; both are rules for `core::handlers`, which the engine asks as well.

use super::attempt::{Attempt, Returned};
use super::judge::{self, Judged};
use super::report::{Action, Classification, Job, PostReport};
use crate::terms::{self, NodeKind, Terms};
use std::time::Duration;
use windlass_core::classify::cms;
use windlass_core::handlers::{self, BadRule, Budget, Care, Failure, Handler, Retry, Situation, Stop};
use windlass_core::redact::Redactor;
use windlass_types::requests::NodeRole;
use windlass_types::settings::FailureHandler;
use windlass_types::{Bytes, FailureClass, Resources};

/// What a script tells DAGMan by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    Success = 0,
    /// The node failed, and is tried again if attempts are left.
    Retry = 1,
    /// The node failed for good: `RETRY … UNLESS-EXIT 42`.
    Permanent = 42,
    /// The whole DAG ends: `ABORT-DAG-ON … 43 RETURN 1`.
    Abort = 43,
}

impl Verdict {
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// What is done about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub verdict: Verdict,
    /// For `NODE.post.json`: all that the next script and whoever looks later have to know.
    pub report: PostReport,
}

/// By what a node is treated.
#[derive(Clone, Debug)]
pub struct Rules {
    role: Option<NodeRole>,
    asked: Resources,
    /// Without one nothing is tried again.
    handler: Option<Handler>,
    longest_runtime: Option<Duration>,
}

impl Rules {
    /// Those of a kind of nodes.
    pub fn of(kind: &NodeKind, terms: &Terms) -> Result<Self, BadRule> {
        let handler = match kind.role {
            Some(role) => Some(&FailureHandler {
                name: role.name().to_lowercase(),
                rules: request_care(&terms.care, kind).rules(),
            }),
            None => kind.handler.as_ref().and_then(|name| terms.handlers.get(name)),
        };
        let handler = handler.map(Handler::compile).transpose()?;
        let longest_runtime = kind.role.map(|_| Duration::from_secs(terms.care.longest_runtime_sec));
        Ok(Self { role: kind.role, asked: kind.asked, handler, longest_runtime })
    }
}

fn request_care(care: &terms::Care, kind: &NodeKind) -> Care {
    Care {
        retries: kind.retries,
        cool_off: Duration::from_secs(care.cool_off_sec),
        longest_cool_off: Duration::from_secs(care.longest_cool_off_sec),
        growth: care.growth,
        max_memory: Bytes(care.memory_ceiling_mb(kind.asked.cpus).saturating_mul(1 << 20)),
        longest_runtime: Duration::from_secs(care.longest_runtime_sec),
    }
}

/// What follows an attempt of a node that is treated by these rules.
pub fn decide(attempt: &Attempt, rules: &Rules) -> Decision {
    let asked = asked(attempt, rules);
    let report = begin_report(attempt, asked);
    match judge::judge(attempt, limits(rules, asked)) {
        None => succeeded(report),
        Some(judged) => failed(attempt, rules, &judged, report),
    }
}

/// DAGMan asks a second time if it died while a script ran: that attempt is still the last one. Jobs that were never
/// submitted have all the same number (`-1.-1`): of those the retry tells.
fn is_repeated(attempt: &Attempt, earlier: &PostReport) -> bool {
    let is_same_retry = earlier.attempt == attempt.retry.saturating_add(1);
    !attempt.job_id.is_empty()
        && earlier.job.id == attempt.job_id
        && (attempt.returned != Returned::NotSubmitted || is_same_retry)
}

/// What this attempt asked for: what the one before it left for it.
fn asked(attempt: &Attempt, rules: &Rules) -> Resources {
    match &attempt.earlier {
        Some(earlier) if is_repeated(attempt, earlier) => earlier.asked,
        // It may have been given more before a rescue.
        Some(earlier) if rules.role.is_some() => {
            let next = earlier.asks_next();
            Resources { memory: next.memory.max(rules.asked.memory), ..next }
        }
        Some(earlier) => earlier.asks_next(),
        None => rules.asked,
    }
}

/// A job of a spec that names no requirements is limited by nothing that it could have more of.
fn limits(rules: &Rules, asked: Resources) -> Option<Resources> {
    (rules.role.is_some() || asked != Resources::DEFAULT).then_some(asked)
}

fn begin_report(attempt: &Attempt, asked: Resources) -> PostReport {
    let ad = &attempt.ad;
    let attempts = match &attempt.earlier {
        Some(earlier) if is_repeated(attempt, earlier) => earlier.attempts.clone(),
        Some(earlier) => earlier.history(),
        None => Vec::new(),
    };
    PostReport {
        node_name: attempt.node.clone(),
        timestamp: attempt.now,
        attempt: attempt.retry.saturating_add(1),
        max_retries: attempt.max_retries,
        is_final: true,
        job: Job {
            id: attempt.job_id.clone(),
            exit_code: attempt.returned.code(),
            exit_signal: attempt.returned.signal(),
            hold_reason: ad.hold.as_ref().map(|hold| hold.reason.clone()),
            wall_time_sec: ad.wall_sec,
            cpu_time_sec: ad.cpu_sec,
            memory_mb: ad.memory_mb,
            site: ad.site.clone(),
            schedd: ad.schedd.clone(),
        },
        cmssw: attempt.report.as_ref().map(|report| report.cmssw.clone()),
        classification: Classification::default(),
        log_tail: String::new(),
        asked,
        next: None,
        not_before: None,
        recovery: None,
        attempts,
    }
}

/// What a node that went well said is in its log; the report of one among ten thousand stays small.
fn succeeded(mut report: PostReport) -> Decision {
    report.classification = Classification { category: "success".to_owned(), ..Classification::default() };
    Decision { verdict: Verdict::Success, report }
}

fn failed(attempt: &Attempt, rules: &Rules, judged: &Judged, mut report: PostReport) -> Decision {
    mask(&mut report, attempt);
    report.classification = Classification {
        category: judged.class.as_str().to_owned(),
        retryable: false,
        bad_input_files: judge::bad_inputs(attempt, judged),
        action: Action::PermanentFailure,
        why: Redactor::default().redact(&judged.why).into_owned(),
    };
    if concerns_all(rules.role, judged) {
        report.classification.action = Action::Abort;
        return Decision { verdict: Verdict::Abort, report };
    }
    let used = attempt.retry.saturating_add(1);
    let failure = Failure {
        return_code: judged.code,
        exit: None,
        cause: judged.cause,
        class: judged.class,
        last_words: &attempt.tail,
    };
    let situation = Situation {
        attempt: windlass_types::Attempt(used),
        used,
        asked: limits(rules, report.asked),
        workers: &[],
        longest: rules.longest_runtime,
        budget: Budget { granted: 0, limit: u64::MAX },
        dice: attempt.dice,
    };
    let has_retries = attempt.retry < attempt.max_retries;
    match handlers::decide(rules.handler.as_ref(), &failure, &situation) {
        handlers::Decision::Retry(retry) if has_retries => again(attempt, *retry, report),
        handlers::Decision::Retry(_) => spent(Verdict::Retry, report),
        handlers::Decision::Final(end) => {
            // That no rule is for it says nothing new about a class that has none.
            if let Some(words) = end.words.filter(|_| end.why != Stop::NoMatchingRule || rules.role.is_none())
            {
                report.classification.why = format!("{}; {words}", report.classification.why);
            }
            match end.why {
                // Where DAGMan would go on, it has to be told not to.
                Stop::Exhausted if has_retries => spent(Verdict::Permanent, report),
                Stop::Exhausted => spent(Verdict::Retry, report),
                _ => Decision { verdict: Verdict::Permanent, report },
            }
        }
    }
}

/// What a job said is read by more people than may know its secrets.
fn mask(report: &mut PostReport, attempt: &Attempt) {
    let redactor = Redactor::default();
    report.log_tail = redactor.redact(&attempt.tail).into_owned();
    if let Some(message) = report.cmssw.as_mut().and_then(|report| report.error_message.as_mut()) {
        *message = redactor.redact(message).into_owned();
    }
}

/// A landing tries out a site, and a cleanup comes when all is done: what they find concerns nobody else.
fn concerns_all(role: Option<NodeRole>, judged: &Judged) -> bool {
    matches!(role, Some(NodeRole::Processing | NodeRole::Merge))
        && judged.class == FailureClass::Permanent
        && cms::is_shared(judged.code)
}

fn again(attempt: &Attempt, retry: Retry, mut report: PostReport) -> Decision {
    let what = &mut report.classification;
    what.retryable = true;
    what.action = if retry.resources.is_some() { Action::RetryWithMore } else { Action::Retry };
    what.why = format!("{}; {}", what.why, retry.words);
    report.is_final = false;
    report.next = retry.resources;
    report.not_before = (!retry.delay.is_zero()).then(|| attempt.now.after(retry.delay));
    report.recovery = retry.recovery;
    Decision { verdict: Verdict::Retry, report }
}

fn spent(verdict: Verdict, mut report: PostReport) -> Decision {
    report.classification.retryable = true;
    report.classification.action = Action::RetriesSpent;
    Decision { verdict, report }
}
