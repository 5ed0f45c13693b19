//! The retry policy of a workflow, for every owner of a workflow state: classifies failures, finds the matching
//! rule, and keeps the retry budget.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::change::WorkflowAlert;
use windlass_core::classify::{FailureClassifier, FailureEvidence, NodeFailureCounts, TerminationCause};
use windlass_core::dispatch::LocationConstraint;
use windlass_core::failure_handlers::{
    self, CompiledHandler, HandlerDecision, HandlerFinal, HandlerRuleError, NoRetryReason, RetryBudgetUsage,
    RetryContext, decide_retry,
};
use windlass_core::workflow_state::{
    DiagnosedRetryDecision, FailedAttemptContext, FailureDiagnosis, RetryDecision, WorkflowState,
};
use windlass_store::model::{EventFilter, EventSeverity, NewEvent, WorkflowRow};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{FailureHandler, FailureRule, RetryBudget};
use windlass_types::worker_messages::{AttemptEndCause, AttemptEndReport};
use windlass_types::{Capacity, Timestamp};

/// The category of the event that records whether the retry budget of a run is spent.
const BUDGET_EVENT: &str = "retry_budget";

/// The failure handling settings of a workflow, and its use of the retry budget.
pub(crate) struct WorkflowRetryPolicy {
    handlers: Vec<LoadedFailureHandler>,
    classifier: Option<Arc<FailureClassifier>>,
    /// Failures without a matching rule wait for a decision of an operator.
    asks_operator: bool,
    budget: Option<RetryBudget>,
    /// Retries granted in this run before an operator last renewed the spent budget, and since then.
    granted_before: u64,
    granted: u64,
    is_budget_spent: bool,
    random: RetryJitter,
}

struct LoadedFailureHandler {
    handler: Result<CompiledHandler, HandlerRuleError>,
    /// Some of its rules increase the resource request of jobs.
    grows_resources: bool,
}

impl LoadedFailureHandler {
    fn compile(handler: &FailureHandler) -> Self {
        let grows =
            |rule: &FailureRule| rule.memory.is_some() || rule.runtime.is_some() || rule.cpus.is_some();
        Self { handler: CompiledHandler::compile(handler), grows_resources: handler.rules.iter().any(grows) }
    }
}

/// Inputs of a decision in addition to the failure and the rules.
#[derive(Clone, Copy)]
pub(crate) struct RetryInputs<'a> {
    /// The capacities of workers that accept this location. Called only if needed.
    pub(crate) worker_capacities: &'a dyn Fn(&LocationConstraint) -> WorkerCapacities,
    /// The recent failure record of the attempt's node.
    pub(crate) node_record: Option<NodeFailureCounts>,
    pub(crate) now: Timestamp,
}

/// The capacities of workers; empty if unknown.
#[derive(Default)]
pub(crate) struct WorkerCapacities {
    pub(crate) workers: Vec<Capacity>,
    /// No worker has a longer total lifetime than this.
    pub(crate) longest_stay: Option<Duration>,
}

impl WorkflowRetryPolicy {
    /// Loads the policy. `None` for `classifier`: only the built-in rules classify failures.
    pub(crate) fn load(
        store: &dyn Store,
        workflow: &WorkflowRow,
        state: &WorkflowState,
        classifier: Option<Arc<FailureClassifier>>,
    ) -> Result<Self, StoreError> {
        let mut policy = Self {
            handlers: state.handlers().iter().map(LoadedFailureHandler::compile).collect(),
            classifier,
            asks_operator: workflow.settings.use_pending_failed,
            budget: workflow.settings.retry_budget,
            granted_before: 0,
            granted: state.retries_granted(),
            is_budget_spent: false,
            random: RetryJitter::new(),
        };
        // No event can have been recorded before that.
        if policy.granted >= RetryBudget::max_retries(policy.budget, state.counts().total()) {
            policy.load_budget(store, workflow)?;
        }
        Ok(policy)
    }

    /// Loads the use of the budget from the database.
    fn load_budget(&mut self, store: &dyn Store, workflow: &WorkflowRow) -> Result<(), StoreError> {
        let Some(noted) = load_budget_event(store, workflow)? else { return Ok(()) };
        self.is_budget_spent = noted["is_used_up"] == true;
        if !self.is_budget_spent {
            self.granted_before = noted["granted"].as_u64().unwrap_or(0).min(self.granted);
            self.granted -= self.granted_before;
        }
        Ok(())
    }

    /// Decides what follows a failure.
    pub(crate) fn decide_retry(
        &mut self,
        failed: FailedAttemptContext<'_>,
        inputs: &RetryInputs<'_>,
    ) -> DiagnosedRetryDecision {
        let words = output_tail(failed.ended);
        let evidence = failure_evidence(&failed, &words, inputs.node_record);
        let classifier = self.classifier.as_deref().unwrap_or_else(|| FailureClassifier::standard());
        let diagnosis = FailureDiagnosis::from_evidence(classifier, &evidence);
        let failure = failure_handlers::FailedAttemptFacts {
            stderr_tail: &words,
            ..failed.as_failed_attempt(diagnosis.class)
        };
        let limit = RetryBudget::max_retries(self.budget, failed.jobs);
        let compiled = failed.handler.and_then(|number| self.handlers.get(number));
        let grows = compiled.is_some_and(|it| it.grows_resources);
        let room =
            if grows { (inputs.worker_capacities)(failed.location) } else { WorkerCapacities::default() };
        let situation = RetryContext {
            attempt: failed.ended.key.attempt,
            used_attempts: failed.used_attempts,
            asked: failed.asked,
            workers: &room.workers,
            max_worker_lifetime: room.longest_stay,
            budget: RetryBudgetUsage { granted: self.granted, limit },
            random: self.random.next_number(),
        };
        let decision = match compiled.map(|it| &it.handler) {
            Some(Err(bad)) => HandlerDecision::Final(HandlerFinal {
                reason: NoRetryReason::NoMatchingRule,
                message: Some(bad.to_string()),
            }),
            Some(Ok(handler)) => decide_retry(Some(handler), &failure, &situation),
            None => decide_retry(None, &failure, &situation),
        };
        match &decision {
            HandlerDecision::Retry(_) => self.granted += 1,
            HandlerDecision::Final(last) => self.is_budget_spent |= last.reason == NoRetryReason::OverBudget,
        }
        DiagnosedRetryDecision {
            decision: RetryDecision::from_handler_decision(decision, self.asks_operator, inputs.now),
            diagnosis: Some(diagnosis),
        }
    }

    /// A retry was refused because the budget is spent: no more jobs are started.
    pub(crate) const fn is_budget_spent(&self) -> bool {
        self.is_budget_spent
    }

    /// How many jobs may be claimed ahead, given the number of jobs and of held jobs. While failures spend the
    /// retry budget, no more than the remaining retries: jobs claimed ahead start also after the budget is
    /// spent.
    pub(crate) fn max_claims_ahead(&self, jobs: u64, held: usize) -> usize {
        if self.granted == 0 {
            return usize::MAX;
        }
        let left = RetryBudget::max_retries(self.budget, jobs).saturating_sub(self.granted);
        usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(held)
    }

    /// Renews a spent budget, because an operator lets the workflow continue. Returns the event to record.
    pub(crate) fn renew_budget(&mut self, workflow: &WorkflowRow) -> NewEvent {
        self.granted_before += std::mem::take(&mut self.granted);
        self.is_budget_spent = false;
        let data = serde_json::json!({ "run_id": workflow.run_id, "is_used_up": false, "granted": self.granted_before });
        NewEvent {
            workflow: Some(workflow.id),
            job: None,
            severity: EventSeverity::Info,
            category: BUDGET_EVENT.to_owned(),
            message: "the retry budget was renewed".to_owned(),
            data: Some(data),
        }
    }

    /// The alarm that the retry budget is spent, in the same commit as the failure that was refused a retry.
    pub(crate) fn budget_alarm(&self, workflow: &WorkflowRow) -> WorkflowAlert {
        let message = format!(
            "the retry budget is used up ({} retries were granted): no more jobs are started until the workflow is resumed",
            self.granted
        );
        let granted = self.granted_before + self.granted;
        let data = serde_json::json!({ "run_id": workflow.run_id, "is_used_up": true, "granted": granted });
        WorkflowAlert { category: BUDGET_EVENT.to_owned(), message, data }
    }
}

/// The latest event about the budget in this run.
fn load_budget_event(
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Option<serde_json::Value>, StoreError> {
    let filter =
        EventFilter { category: Some(BUDGET_EVENT.to_owned()), newest: Some(1), ..EventFilter::default() };
    let last = store.events(Some(workflow.id), &filter)?.pop().and_then(|event| event.data);
    Ok(last.filter(|data| data["run_id"].as_i64() == Some(workflow.run_id.0)))
}

/// Whether no more jobs are started because the retry budget is spent.
pub fn is_retry_budget_spent(store: &dyn Store, workflow: &WorkflowRow) -> Result<bool, StoreError> {
    Ok(load_budget_event(store, workflow)?.is_some_and(|noted| noted["is_used_up"] == true))
}

fn failure_evidence<'a>(
    failed: &FailedAttemptContext<'a>,
    tail: &'a str,
    node: Option<NodeFailureCounts>,
) -> FailureEvidence<'a> {
    let ended = failed.ended;
    FailureEvidence {
        return_code: failed.return_code,
        signal: ended.exit.signal(),
        cause: TerminationCause::from(&ended.cause),
        tail,
        wall: ended.wall,
        peak_memory: ended.usage.peak_memory,
        asked: failed.asked,
        node,
    }
}

/// The end of the attempt's output, or the cause of its end if it has no output.
fn output_tail(ended: &AttemptEndReport) -> Cow<'_, str> {
    match (ended.last_words.as_deref().filter(|words| !words.trim().is_empty()), &ended.cause) {
        (Some(words), _) => words.into(),
        (None, AttemptEndCause::CannotStart(why)) => why.into(),
        (None, AttemptEndCause::MissingOutputs(paths)) => {
            format!("did not write {}", paths.join(", ")).into()
        }
        (None, _) => "".into(),
    }
}

/// Random numbers that need not be secret, so that jobs that failed together are not retried at the same
/// moment.
struct RetryJitter(u64);

impl RetryJitter {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
