//! Conversion of a plan into rows, or into a failure.

use super::EffectFailure;
use crate::requests::rows::{
    BackendRunRef, BlockRow, NodeCounts, RequestProgress, RequestRunCause, RunRow, RunTotals,
};
use crate::round_plan::{PlanBlock, PlanProblem, PlanProblemCause, RoundPlan};
use windlass_types::Timestamp;
use windlass_types::requests::{ProcessingBlockStatus, RequestRunStatus};

/// A planned round: its run is `ready`, its files are in the run's directory.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRound {
    pub run: RunRow,
    pub blocks: Vec<BlockRow>,
    /// With the numbers where the next round begins.
    pub process: RequestProgress,
}

/// The first run of a round: name, location, size.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRun {
    pub uuid: String,
    pub submit_dir: String,
    pub backend: BackendRunRef,
    pub totals: RunTotals,
}

impl PlannedRound {
    /// `name_block` generates the UUID of each block.
    pub fn new(
        process: &RequestProgress,
        round: u32,
        plan: &RoundPlan,
        place: PlannedRun,
        name_block: impl Fn(&PlanBlock<'_>) -> String,
        now: Timestamp,
    ) -> Self {
        let block = |block: PlanBlock<'_>| BlockRow {
            uuid: name_block(&block),
            process: process.uuid.clone(),
            round,
            index: block.index,
            dataset: block.dataset.to_owned(),
            first_unit: block.first_unit,
            last_unit: block.last_unit,
            units_completed: 0,
            units_expected: block.last_unit - block.first_unit + 1,
            name: None,
            is_closed: false,
            tape_rule: None,
            status: ProcessingBlockStatus::Open,
            created_at: now,
            updated_at: now,
        };
        Self {
            blocks: plan.blocks().map(block).collect(),
            run: RunRow {
                uuid: place.uuid,
                process: process.uuid.clone(),
                round,
                parent: None,
                cause: RequestRunCause::First,
                rescues: 0,
                paused: None,
                silent: None,
                priority: None,
                backend: place.backend,
                submit_dir: place.submit_dir,
                status: RequestRunStatus::Ready,
                stop_requested_at: None,
                stop_reason: None,
                totals: place.totals,
                counts: NodeCounts::default(),
                units_completed: 0,
                units_failed: 0,
                units_read: 0,
                created_at: now,
                submitted_at: None,
                completed_at: None,
            },
            process: RequestProgress {
                next_first_event: plan.next.first_event,
                next_first_lumi: plan.next.first_lumi,
                next_block: plan.next.first_block,
                more_input: plan.left_out.later > 0,
                updated_at: now,
                ..process.clone()
            },
        }
    }
}

impl EffectFailure {
    /// Joins all problems of a plan. Retryable only if all of them concern sites.
    pub fn from_plan_problems(faults: &[PlanProblem]) -> Self {
        let is_retryable = faults.iter().all(|fault| fault.cause == PlanProblemCause::Sites);
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Self { reason: told.join("\n"), is_retryable }
    }
}
