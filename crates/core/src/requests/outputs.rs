//! Catalog steps for outputs (DESIGN 6.6): a list of idempotent steps.
//!
//! ```text
//! open ──► register U ──► protect U ──┐
//!     └──► register V ──► protect V ──┴─► close ──► archive          (invalidate replaces all open steps)
//! ```

use super::change::{BlockChange, RequestChange};
use super::rows::{BlockRow, OutputStep, OutputStepKind, OutputStepState};
use serde_json::{Value, json};
use std::time::Duration;
use windlass_types::Timestamp;
use windlass_types::requests::{ProcessingBlockStatus, WorkUnitName};

/// How long a failing service is retried (R-114).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRetryPolicy {
    /// Delay after the first failure, the second, …; the last one for all following ones.
    pub backoff: Vec<Duration>,
    /// Maximum time since the first consecutive failure.
    pub limit: Duration,
}

impl OutputRetryPolicy {
    /// Whether the step can be performed. A delay longer than all of the policy means that the clock was set
    /// back.
    fn is_due(&self, step: &OutputStep, now: Timestamp) -> bool {
        let longest = self.backoff.iter().max().copied().unwrap_or_default();
        step.due_at <= now || step.due_at > now.plus(longest)
    }
}

impl Default for OutputRetryPolicy {
    fn default() -> Self {
        Self {
            backoff: [60, 300, 1800, 7200, 14_400, 28_800].map(Duration::from_secs).to_vec(),
            limit: Duration::from_hours(72),
        }
    }
}

/// Adds a step that is due immediately.
pub fn add_step(
    block: &str,
    unit: Option<u32>,
    kind: OutputStepKind,
    detail: Value,
    now: Timestamp,
) -> RequestChange {
    RequestChange::AddStep(Box::new(OutputStep {
        block: block.to_owned(),
        unit,
        kind,
        state: OutputStepState::Pending,
        attempts: 0,
        due_at: now,
        first_failed_at: None,
        last_error: None,
        result: None,
        detail,
    }))
}

/// Whether all work units that will ever be in it are registered and protected, and it is not closed.
pub fn is_full(block: &BlockRow) -> bool {
    block.status == ProcessingBlockStatus::Open
        && !block.is_closed
        && block.units_completed >= block.units_expected
}

/// Undoes everything that was recorded for these blocks.
pub fn plan_invalidation(blocks: &[BlockRow], now: Timestamp) -> Vec<RequestChange> {
    let there = blocks.iter().filter(|block| block.status != ProcessingBlockStatus::Invalidated);
    there
        .map(|block| add_step(&block.uuid, None, OutputStepKind::Invalidate, undo_detail(block), now))
        .collect()
}

/// Returns the steps that can be performed now, in order, and when the next of the others is due.
pub fn ready_steps(
    open: &[OutputStep],
    policy: &OutputRetryPolicy,
    now: Timestamp,
) -> (Vec<OutputStep>, Option<Timestamp>) {
    let free = open.iter().filter(|step| step.state == OutputStepState::Pending && !is_waiting(step, open));
    let (mut ready, later): (Vec<_>, Vec<_>) = free.partition(|step| policy.is_due(step, now));
    ready.sort_by(|a, b| (a.kind, &a.block, a.unit).cmp(&(b.kind, &b.block, b.unit)));
    (ready.into_iter().cloned().collect(), later.iter().map(|step| step.due_at).min())
}

/// Whether an earlier step is not done: of its unit, or of the whole block.
fn is_waiting(step: &OutputStep, open: &[OutputStep]) -> bool {
    open.iter().any(|other| {
        other.state.is_open()
            && other.block == step.block
            && other.kind < step.kind
            && (other.unit.is_none() || step.unit.is_none() || other.unit == step.unit)
    })
}

/// The step succeeded: earlier failures are cleared (R-115).
pub fn record_success(step: &OutputStep, result: Option<&str>, now: Timestamp) -> RequestChange {
    RequestChange::Step {
        block: step.block.clone(),
        unit: step.unit,
        kind: step.kind,
        state: OutputStepState::Done,
        attempts: 0,
        due_at: now,
        first_failed_at: None,
        last_error: None,
        result: result.map(str::to_owned),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum StepFailureDecision {
    Retry(RequestChange),
    /// It has failed for too long.
    GivenUp(RequestChange),
}

pub fn decide_step_failure(
    step: &OutputStep,
    error: &str,
    max_wait: &OutputRetryPolicy,
    now: Timestamp,
) -> StepFailureDecision {
    let first = step.first_failed_at.unwrap_or(now);
    let turn = (step.attempts as usize).min(max_wait.backoff.len().saturating_sub(1));
    let wait = max_wait.backoff.get(turn).copied().unwrap_or_default();
    let given_up = now.since(first) >= max_wait.limit;
    let change = RequestChange::Step {
        block: step.block.clone(),
        unit: step.unit,
        kind: step.kind,
        state: if given_up { OutputStepState::Failed } else { OutputStepState::Pending },
        attempts: step.attempts.saturating_add(1),
        due_at: now.plus(wait),
        first_failed_at: Some(first),
        last_error: Some(error.to_owned()),
        result: None,
    };
    if given_up { StepFailureDecision::GivenUp(change) } else { StepFailureDecision::Retry(change) }
}

/// Restarts a failed step.
pub fn restart_step(step: &OutputStep, now: Timestamp) -> RequestChange {
    OutputStep { attempts: 0, due_at: now, first_failed_at: None, ..step.clone() }
        .change_state(OutputStepState::Pending)
}

/// Restarts all failed steps and restores the status of their blocks. A block that ended with its request has
/// no steps, and stays as it is.
pub fn retry_failed_steps(blocks: &[BlockRow], steps: &[OutputStep], now: Timestamp) -> Vec<RequestChange> {
    let given_up: Vec<&OutputStep> =
        steps.iter().filter(|step| step.state == OutputStepState::Failed).collect();
    let is_meant = |block: &&BlockRow| {
        block.status == ProcessingBlockStatus::Failed && given_up.iter().any(|step| step.block == block.uuid)
    };
    let reopened = blocks.iter().filter(is_meant).map(|block| {
        let to = if block.is_closed { ProcessingBlockStatus::Complete } else { ProcessingBlockStatus::Open };
        let change = BlockChange::Status { from: block.status, to };
        RequestChange::Block { block: block.uuid.clone(), change }
    });
    given_up.iter().map(|step| restart_step(step, now)).chain(reopened).collect()
}

/// Returns what invalidation must undo, by the progress of the block (R-116, S 6.3).
pub fn undo_detail(block: &BlockRow) -> Value {
    json!({
        "source_rules": block.units_completed > 0 || block.name.is_some(),
        "tape_rule": block.tape_rule,
        "block": block.name,
    })
}

/// Describes a failed step for the operator (R-114).
pub fn describe_failure(step: &OutputStep, block: Option<&BlockRow>, error: &str, now: Timestamp) -> String {
    let about = match step.unit {
        Some(unit) => format!("{:?} of work unit {}", step.kind, WorkUnitName(unit)),
        None => format!("{:?}", step.kind),
    };
    let of = block.map_or_else(
        || format!("block {}", step.block),
        |block| {
            format!(
                "block {} of {} ({}/{} work units, catalog name {}, closed: {}, tape rule {})",
                block.index,
                block.dataset,
                block.units_completed,
                block.units_expected,
                block.name.as_deref().unwrap_or("none"),
                block.is_closed,
                block.tape_rule.as_deref().unwrap_or("none"),
            )
        },
    );
    let since = step.first_failed_at.unwrap_or(now);
    format!("{about} of {of} failed {} times since {since}: {error}", step.attempts + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(unit: Option<u32>, kind: OutputStepKind) -> OutputStep {
        match add_step("b", unit, kind, Value::Null, Timestamp(0)) {
            RequestChange::AddStep(step) => *step,
            other => panic!("{other:?}"),
        }
    }

    fn names(steps: &[OutputStep]) -> Vec<(Option<u32>, OutputStepKind)> {
        steps.iter().map(|step| (step.unit, step.kind)).collect()
    }

    /// R-110, R-111, R-112: no step before those that it depends on.
    #[test]
    fn output_steps_run_in_order() {
        use OutputStepKind::{Archive, Close, Open, Protect, Register};
        let mut open = vec![
            step(None, Archive),
            step(None, Close),
            step(Some(2), Protect),
            step(Some(2), Register),
            step(Some(1), Register),
            step(Some(1), Protect),
            step(None, Open),
        ];
        let mut done = Vec::new();
        while !open.is_empty() {
            let (ready, _) = ready_steps(&open, &OutputRetryPolicy::default(), Timestamp(0));
            assert!(!ready.is_empty());
            done.push(names(&ready));
            open.retain(|step| !ready.contains(step));
        }
        let expected: Vec<Vec<_>> = vec![
            vec![(None, Open)],
            vec![(Some(1), Register), (Some(2), Register)],
            vec![(Some(1), Protect), (Some(2), Protect)],
            vec![(None, Close)],
            vec![(None, Archive)],
        ];
        assert_eq!(done, expected);
    }

    #[test]
    fn units_do_not_wait_for_each_other() {
        let mut failing = step(Some(1), OutputStepKind::Register);
        failing.due_at = Timestamp(50);
        let open = [
            failing,
            step(Some(1), OutputStepKind::Protect),
            step(Some(2), OutputStepKind::Protect),
            step(None, OutputStepKind::Close),
        ];
        let (ready, next) = ready_steps(&open, &OutputRetryPolicy::default(), Timestamp(0));
        assert_eq!(names(&ready), [(Some(2), OutputStepKind::Protect)]);
        assert_eq!(next, Some(Timestamp(50)), "of the steps that are possible but not due");
    }

    #[test]
    fn step_is_due_after_the_clock_was_set_back() {
        let policy = OutputRetryPolicy::default();
        let now = Timestamp(1_000_000);
        let longest = *policy.backoff.last().unwrap();
        for (due_at, count) in [(now.plus(longest), 0), (now.plus(longest + Duration::from_secs(1)), 1)] {
            let waiting = OutputStep { due_at, ..step(Some(1), OutputStepKind::Register) };
            assert_eq!(ready_steps(&[waiting], &policy, now).0.len(), count, "{due_at}");
        }
    }

    /// R-114: delays grow, and after three days of failures an operator has to decide.
    #[test]
    fn retry_delay_grows_until_the_step_fails() {
        let max_wait = OutputRetryPolicy::default();
        let mut step = step(None, OutputStepKind::Archive);
        let mut now = Timestamp(1_000_000);
        let begin = now;
        let mut waits = Vec::new();
        loop {
            let (change, over) = match decide_step_failure(&step, "503", &max_wait, now) {
                StepFailureDecision::Retry(change) => (change, false),
                StepFailureDecision::GivenUp(change) => (change, true),
            };
            let RequestChange::Step { state, attempts, due_at, first_failed_at, last_error, .. } = change
            else {
                panic!("a step changes");
            };
            assert_eq!((first_failed_at, last_error.as_deref()), (Some(begin), Some("503")));
            if over {
                assert_eq!(state, OutputStepState::Failed);
                break;
            }
            assert_eq!(state, OutputStepState::Pending);
            waits.push(due_at.since(now).as_secs());
            (step.attempts, step.first_failed_at, now) = (attempts, first_failed_at, due_at);
        }
        assert_eq!(waits[..7], [60, 300, 1800, 7200, 14_400, 28_800, 28_800]);
        assert!(
            now.since(begin) >= max_wait.limit && now.since(begin) < max_wait.limit + max_wait.backoff[5]
        );
    }

    #[test]
    fn failed_steps_are_retried_and_restore_the_block() {
        // status of the block, closed?, kind and state of its step → the block afterwards, and whether the
        // step is due
        use {OutputStepKind as K, OutputStepState as S, ProcessingBlockStatus as B};
        let table = [
            (B::Failed, true, K::Archive, S::Failed, B::Complete, true),
            (B::Failed, false, K::Register, S::Failed, B::Open, true),
            // It never affected the block.
            (B::Archived, true, K::Invalidate, S::Failed, B::Archived, true),
            // It ended with its request.
            (B::Failed, false, K::Register, S::Dropped, B::Failed, false),
            (B::Open, false, K::Register, S::Pending, B::Open, false),
        ];
        for (status, is_closed, kind, state, becomes, is_tried) in table {
            let mut view = crate::requests::lifecycle::samples::view();
            let block = crate::requests::lifecycle::samples::block(0, 0, 0);
            view.blocks = vec![BlockRow { uuid: "b".into(), status, is_closed, ..block }];
            view.steps = vec![OutputStep { state, attempts: 17, ..step(None, kind) }];
            let changes = retry_failed_steps(&view.blocks, &view.steps, Timestamp(9));
            for change in &changes {
                view.apply_change(change, Timestamp(9));
            }
            assert_eq!(view.blocks[0].status, becomes, "{kind:?} {state:?}");
            let due = |step: &OutputStep| step.state == S::Pending && step.attempts == 0;
            assert_eq!(view.steps.iter().any(due), is_tried, "{kind:?} {state:?}");
            assert_eq!(changes.is_empty(), !is_tried, "{kind:?} {state:?}");
        }
    }

    /// R-115.
    #[test]
    fn success_clears_failures() {
        let mut step = step(None, OutputStepKind::Archive);
        (step.attempts, step.first_failed_at, step.last_error) = (4, Some(Timestamp(1)), Some("no".into()));
        let RequestChange::Step { state, attempts, first_failed_at, last_error, result, .. } =
            record_success(&step, Some("rule-1"), Timestamp(9))
        else {
            panic!("a step changes");
        };
        assert_eq!((state, attempts, first_failed_at, last_error), (OutputStepState::Done, 0, None, None));
        assert_eq!(result.as_deref(), Some("rule-1"));
    }
}
