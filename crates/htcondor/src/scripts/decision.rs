//! Decides what follows an attempt: pure and deterministic.
//!
//! Nodes of requests are treated by their failure class
//! ([`RequestRetryPolicy`](windlass_core::failure_handlers::RequestRetryPolicy)), jobs of a workflow spec by
//! their failure handler; both are rules for `core::failure_handlers`, which the engine uses as well.

use super::attempt::{DagmanReturn, NodeAttempt};
use super::classify::{self, ClassifiedFailure};
use super::post_report::{AttemptClassification, FollowUpAction, PostReport, ReportedJob};
use crate::script_settings::{self, NodeGroupSettings, ScriptSettings};
use std::time::Duration;
use windlass_core::classify::cms_exit_codes;
use windlass_core::failure_handlers::{
    self, CompiledHandler, FailedAttemptFacts, HandlerRetry, HandlerRuleError, NoRetryReason,
    RequestRetryPolicy, RetryBudgetUsage, RetryContext,
};
use windlass_core::redact::SecretRedactor;
use windlass_types::requests::NodeRole;
use windlass_types::settings::FailureHandler;
use windlass_types::{Bytes, FailureClass, Resources};

/// The meaning of a script's exit code for DAGMan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ScriptExitCode {
    Success = 0,
    /// The node failed and is retried if attempts are left.
    Retry = 1,
    /// The node failed for good: `RETRY … UNLESS-EXIT 42`.
    Permanent = 42,
    /// The whole DAG ends: `ABORT-DAG-ON … 43 RETURN 1`.
    Abort = 43,
}

impl ScriptExitCode {
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// The decision about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptDecision {
    pub exit_code: ScriptExitCode,
    /// For `NODE.post.json`: all facts for the next script and for later inspection.
    pub report: PostReport,
}

/// The rules for a node.
#[derive(Clone, Debug)]
pub struct NodeRules {
    role: Option<NodeRole>,
    asked: Resources,
    /// Without one, nothing is retried.
    handler: Option<CompiledHandler>,
    longest_runtime: Option<Duration>,
}

impl NodeRules {
    /// The rules for a kind of nodes.
    pub fn from_group(
        group: &NodeGroupSettings,
        settings: &ScriptSettings,
    ) -> Result<Self, HandlerRuleError> {
        let handler = match group.role {
            Some(role) => Some(&FailureHandler {
                name: role.name().to_lowercase(),
                rules: request_retry_policy(&settings.retry_settings, group).failure_rules(),
            }),
            None => group.handler.as_ref().and_then(|name| settings.handlers.get(name)),
        };
        let handler = handler.map(CompiledHandler::compile).transpose()?;
        let longest_runtime =
            group.role.map(|_| Duration::from_secs(settings.retry_settings.longest_runtime_sec));
        Ok(Self { role: group.role, asked: group.asked, handler, longest_runtime })
    }
}

fn request_retry_policy(
    retry_settings: &script_settings::RequestRetrySettings,
    group: &NodeGroupSettings,
) -> RequestRetryPolicy {
    RequestRetryPolicy {
        retries: group.retries,
        initial_delay: Duration::from_secs(retry_settings.cool_off_sec),
        max_delay: Duration::from_secs(retry_settings.longest_cool_off_sec),
        memory_growth: retry_settings.growth,
        max_memory: Bytes(retry_settings.memory_ceiling_mb(group.asked.cpus).saturating_mul(1 << 20)),
        max_runtime: Duration::from_secs(retry_settings.longest_runtime_sec),
    }
}

/// Decides what follows an attempt of a node with these rules.
pub fn decide_attempt(attempt: &NodeAttempt, rules: &NodeRules) -> ScriptDecision {
    let asked = requested_resources(attempt, rules);
    let report = new_report(attempt, asked);
    match classify::classify_failure(attempt, known_limits(rules, asked)) {
        None => decide_success(report),
        Some(classified) => decide_failure(attempt, rules, &classified, report),
    }
}

/// DAGMan calls a script a second time if it died while the script ran: that attempt is still the last one. Jobs
/// that were never submitted all have the same id (`-1.-1`); the retry number distinguishes them.
fn is_repeated(attempt: &NodeAttempt, earlier: &PostReport) -> bool {
    let is_same_retry = earlier.attempt == attempt.retry.saturating_add(1);
    !attempt.job_id.is_empty()
        && earlier.job.id == attempt.job_id
        && (attempt.returned != DagmanReturn::NotSubmitted || is_same_retry)
}

/// The resources that this attempt requested, from the report about the one before it.
fn requested_resources(attempt: &NodeAttempt, rules: &NodeRules) -> Resources {
    match &attempt.previous_report {
        Some(earlier) if is_repeated(attempt, earlier) => earlier.asked,
        // An operator may have raised it before a rescue.
        Some(earlier) if rules.role.is_some() => {
            let next = earlier.next_resources();
            Resources { memory: next.memory.max(rules.asked.memory), ..next }
        }
        Some(earlier) => earlier.next_resources(),
        None => rules.asked,
    }
}

/// A job of a spec without requirements has no limit that could be raised.
fn known_limits(rules: &NodeRules, asked: Resources) -> Option<Resources> {
    (rules.role.is_some() || asked != Resources::DEFAULT).then_some(asked)
}

fn new_report(attempt: &NodeAttempt, asked: Resources) -> PostReport {
    let ad = &attempt.job_log;
    let attempts = match &attempt.previous_report {
        Some(earlier) if is_repeated(attempt, earlier) => earlier.attempts.clone(),
        Some(earlier) => earlier.attempt_history(),
        None => Vec::new(),
    };
    PostReport {
        node_name: attempt.node.clone(),
        timestamp: attempt.now,
        attempt: attempt.retry.saturating_add(1),
        max_retries: attempt.max_retries,
        is_final: true,
        job: ReportedJob {
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
        classification: AttemptClassification::default(),
        log_tail: String::new(),
        asked,
        next: None,
        not_before: None,
        recovery: None,
        attempts,
    }
}

/// The output of a successful node is in its log; the report of one among ten thousand stays small.
fn decide_success(mut report: PostReport) -> ScriptDecision {
    report.classification =
        AttemptClassification { category: "success".to_owned(), ..AttemptClassification::default() };
    ScriptDecision { exit_code: ScriptExitCode::Success, report }
}

fn decide_failure(
    attempt: &NodeAttempt,
    rules: &NodeRules,
    classified: &ClassifiedFailure,
    mut report: PostReport,
) -> ScriptDecision {
    redact_secrets(&mut report, attempt);
    report.classification = AttemptClassification {
        category: classified.class.as_str().to_owned(),
        retryable: false,
        bad_input_files: classify::find_bad_inputs(attempt, classified),
        action: FollowUpAction::PermanentFailure,
        why: SecretRedactor::default().redact(&classified.why).into_owned(),
    };
    if affects_whole_run(rules.role, classified) {
        report.classification.action = FollowUpAction::Abort;
        return ScriptDecision { exit_code: ScriptExitCode::Abort, report };
    }
    let used = attempt.retry.saturating_add(1);
    let failure = FailedAttemptFacts {
        return_code: classified.code,
        exit: None,
        cause: classified.cause,
        class: classified.class,
        stderr_tail: &attempt.stderr_tail,
    };
    let situation = RetryContext {
        attempt: windlass_types::Attempt(used),
        used_attempts: used,
        asked: known_limits(rules, report.asked),
        workers: &[],
        max_worker_lifetime: rules.longest_runtime,
        budget: RetryBudgetUsage { granted: 0, limit: u64::MAX },
        random: attempt.random,
    };
    let has_retries = attempt.retry < attempt.max_retries;
    match failure_handlers::decide_retry(rules.handler.as_ref(), &failure, &situation) {
        failure_handlers::HandlerDecision::Retry(retry) if has_retries => {
            decide_retry(attempt, *retry, report)
        }
        failure_handlers::HandlerDecision::Retry(_) => decide_no_retry(ScriptExitCode::Retry, report),
        failure_handlers::HandlerDecision::Final(end) => {
            // If no rule matches, this adds nothing for the nodes of requests.
            if let Some(words) =
                end.message.filter(|_| end.reason != NoRetryReason::NoMatchingRule || rules.role.is_none())
            {
                report.classification.why = format!("{}; {words}", report.classification.why);
            }
            match end.reason {
                // DAGMan would retry, so it has to be stopped explicitly.
                NoRetryReason::Exhausted if has_retries => decide_no_retry(ScriptExitCode::Permanent, report),
                NoRetryReason::Exhausted => decide_no_retry(ScriptExitCode::Retry, report),
                _ => ScriptDecision { exit_code: ScriptExitCode::Permanent, report },
            }
        }
    }
}

/// More people read the output of a job than may know its secrets.
fn redact_secrets(report: &mut PostReport, attempt: &NodeAttempt) {
    let redactor = SecretRedactor::default();
    report.log_tail = redactor.redact(&attempt.stderr_tail).into_owned();
    if let Some(message) = report.cmssw.as_mut().and_then(|report| report.error_message.as_mut()) {
        *message = redactor.redact(message).into_owned();
    }
}

/// A landing tries out a site, and a cleanup runs at the very end: their failures affect no other node.
fn affects_whole_run(role: Option<NodeRole>, classified: &ClassifiedFailure) -> bool {
    matches!(role, Some(NodeRole::Processing | NodeRole::Merge))
        && classified.class == FailureClass::Permanent
        && cms_exit_codes::is_run_wide(classified.code)
}

fn decide_retry(attempt: &NodeAttempt, retry: HandlerRetry, mut report: PostReport) -> ScriptDecision {
    let what = &mut report.classification;
    what.retryable = true;
    what.action =
        if retry.resources.is_some() { FollowUpAction::RetryWithMore } else { FollowUpAction::Retry };
    what.why = format!("{}; {}", what.why, retry.message);
    report.is_final = false;
    report.next = retry.resources;
    report.not_before = (!retry.delay.is_zero()).then(|| attempt.now.plus(retry.delay));
    report.recovery = retry.recovery;
    ScriptDecision { exit_code: ScriptExitCode::Retry, report }
}

fn decide_no_retry(exit_code: ScriptExitCode, mut report: PostReport) -> ScriptDecision {
    report.classification.retryable = true;
    report.classification.action = FollowUpAction::RetriesSpent;
    ScriptDecision { exit_code, report }
}
