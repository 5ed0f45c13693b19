//! Decisions after the end of a run: a rescue, the next round, the end of the request, or a hold.
//!
//! ```text
//! run over ──► all units completed ────────────────────────────────► settled ──► next round, or finished
//!      │                                                                ▲
//!      └─────► failures ──┬─► few, and rescues left: rescue             │
//!                         ├─► few, and only because of bad files ───────┤
//!                         └─► else: held ──────► released by an operator┘
//! ```

use super::failures::FailureTally;
use super::rows::{RequestOverrides, RequestProgress, RoundExtent, RunRow};
use crate::round_plan::RoundPlan;
use std::time::Duration;
use windlass_types::requests::{GenerationParams, PriorityStep, Request, RequestRunStatus};

/// When a request for generated events is complete (DESIGN 6.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McCompletion {
    /// This number of events was produced and registered.
    #[default]
    Produced,
    /// This number of event numbers was assigned, used or not: literally as specified.
    Offset,
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundEnd {
    /// There was nothing to plan.
    Empty,
    /// All its work units are completed.
    Complete,
    /// Some are not, and will not be: progress is recorded.
    Partial,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundDecision {
    /// Everything requested is produced.
    Finished,
    /// Another round, for the rest.
    NextRound,
    /// Further rounds would repeat forever.
    Hold(String),
}

/// Decides after a round that is settled, and whose completed work units are registered.
pub fn decide_after_round(
    request: &Request,
    process: &RequestProgress,
    ended: RoundEnd,
    completion: McCompletion,
) -> RoundDecision {
    let Some(generation) = &request.generation else {
        // Attempted files that are not planned again are no longer in the catalog.
        let is_left = process.more_input || process.files.attempted > 0;
        return if is_left && ended != RoundEnd::Empty {
            RoundDecision::NextRound
        } else {
            RoundDecision::Finished
        };
    };
    let made = match completion {
        McCompletion::Produced => process.events_produced,
        McCompletion::Offset => process.next_first_event.saturating_sub(generation.first_event),
    };
    if made >= generation.events {
        RoundDecision::Finished
    } else if process.events_of_round == 0
        && ended != RoundEnd::Partial
        && !may_be_chance(generation, process, ended)
    {
        RoundDecision::Hold(format!(
            "round {} produced no events: {} of {} are produced; the filter efficiency {} may be wrong",
            process.round, made, generation.events, generation.filter_efficiency
        ))
    } else {
        RoundDecision::NextRound
    }
}

/// Whether a filter may have rejected all events by chance: plausible for few events, but not for many, and not
/// repeatedly.
fn may_be_chance(generation: &GenerationParams, process: &RequestProgress, ended: RoundEnd) -> bool {
    /// Expected number of events from which an empty result is no coincidence.
    const MUCH: u64 = 10;
    const OFTEN: u32 = 3;
    ended == RoundEnd::Complete
        && generation.filter_efficiency < 1.0
        && process.extent.planned < MUCH
        && process.empty_rounds + 1 < OFTEN
}

/// When failures need an operator (E 8.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryPolicy {
    /// Share of failed work units from which the request is held.
    pub hold_threshold: f64,
    /// Maximum number of rescues of a round.
    pub max_rescues: u32,
    /// Delay before the first rescue of a round; doubles for each further one.
    pub rescue_pause: Duration,
}

/// Maximum delay of a rescue, unless the configured delay is longer.
const MAX_RESCUE_PAUSE: Duration = Duration::from_mins(10);

impl Default for RecoveryPolicy {
    fn default() -> Self {
        Self { hold_threshold: 0.20, max_rescues: 3, rescue_pause: Duration::from_mins(1) }
    }
}

impl RecoveryPolicy {
    /// Returns the delay of a rescue, counted from 1.
    pub fn rescue_delay(&self, rescue: u32) -> Duration {
        let times = 1_u32.checked_shl(rescue.saturating_sub(1)).unwrap_or(u32::MAX);
        self.rescue_pause.saturating_mul(times).min(MAX_RESCUE_PAUSE.max(self.rescue_pause))
    }

    /// Overrides set for the request take precedence.
    #[must_use]
    pub fn with_overrides(self, overrides: &RequestOverrides) -> Self {
        Self {
            hold_threshold: overrides.error_hold_threshold.unwrap_or(self.hold_threshold),
            max_rescues: overrides.max_rescue_attempts.unwrap_or(self.max_rescues),
            ..self
        }
    }
}

/// What is done about a run that ended with failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunRecovery {
    /// Another run for the remaining units of the round.
    Rescue { reason: String },
    /// No other attempt helps, and only these files are bad: they are excluded, and the next round follows.
    Settle { reason: String, files: Vec<String> },
    /// An operator has to decide.
    Hold { reason: String },
}

/// Decides what follows a run with failures (E 3.2); the only place to do so. Units that are not completed
/// count as failed: an abort leaves units that never ran.
pub fn decide_recovery(run: &RunRow, failures: &FailureTally, policy: RecoveryPolicy) -> RunRecovery {
    let failed = run.totals.units.saturating_sub(run.units_completed);
    let ratio = f64::from(failed) / f64::from(run.totals.units.max(1));
    let told = describe_failures(run);
    if ratio >= policy.hold_threshold {
        let reason = format!(
            "{told}; {:.1} % failed (limit {:.1} %), waiting for an operator",
            ratio * 100.0,
            policy.hold_threshold * 100.0
        );
        RunRecovery::Hold { reason }
    } else if failures.has_only_bad_files(failed) {
        let files: Vec<String> = failures.files.keys().cloned().collect();
        RunRecovery::Settle {
            reason: format!("{told}; the only cause is {} bad input files", files.len()),
            files,
        }
    } else if run.rescues >= policy.max_rescues {
        RunRecovery::Hold { reason: format!("{told}; the maximum of {} rescues is reached", run.rescues) }
    } else {
        RunRecovery::Rescue {
            reason: format!("{told}; rescue {} of {}", run.rescues + 1, policy.max_rescues),
        }
    }
}

fn describe_failures(run: &RunRow) -> String {
    let left = run.totals.units.saturating_sub(run.units_completed).saturating_sub(run.units_failed);
    format!(
        "round {} ended {}: {} of {} work units completed, {} failed, {left} never ended; jobs: {} completed, {} failed",
        run.round,
        if run.status == RequestRunStatus::Failed { "without any success" } else { "with failures" },
        run.units_completed,
        run.totals.units,
        run.units_failed,
        run.counts.done,
        run.counts.failed,
    )
}

/// Returns the number of production steps reached (R-045), possibly several at once. A step is a share of the
/// whole request, independent of rounds.
pub fn count_steps_reached(steps: &[PriorityStep], process: &RequestProgress, run: &RunRow) -> usize {
    let done = share_done(process, run);
    steps.iter().take_while(|step| step.fraction <= done).count()
}

/// Returns the amount until the next production step, in events or files: a round ends there, so that the
/// following work is planned with new measurements (spec 5.7). `done` is complete, `left` files are unread.
/// `None`: no step remains.
pub fn amount_until_next_step(request: &Request, done: u64, left: u64) -> Option<u64> {
    let whole = request.generation.map_or(done.saturating_add(left), |generation| generation.events);
    let missing = |step: &PriorityStep| {
        let reached_at = (step.fraction * whole as f64).ceil() as u64;
        reached_at.checked_sub(done).filter(|missing| *missing > 0)
    };
    request.production_steps.iter().find_map(missing)
}

/// Returns the part of the request that a round with this plan covers. Generated events count after the filter.
pub fn round_extent(request: &Request, process: &RequestProgress, plan: &RoundPlan) -> RoundExtent {
    let Some(generation) = &request.generation else {
        let planned = plan.files.len() as u64;
        return RoundExtent { before: process.files.processed, planned, later: plan.left_out.later };
    };
    let wanted = generation.events.saturating_sub(process.events_produced);
    // The share of events after the filter equals that before it.
    let all = plan.asked.events.saturating_add(plan.events_left).max(1);
    let later = (u128::from(wanted) * u128::from(plan.events_left) / u128::from(all)) as u64;
    RoundExtent { before: process.events_produced, planned: wanted - later, later }
}

/// Returns the share of the whole request that is done, including the completed work units of the current
/// round.
pub fn share_done(process: &RequestProgress, run: &RunRow) -> f64 {
    if run.totals.units == 0 {
        return 0.0;
    }
    process.extent.done_share(f64::from(run.units_completed) / f64::from(run.totals.units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::lifecycle::samples;

    /// R-185, R-186, N-1, DESIGN 6.5.
    #[test]
    fn generation_ends_when_enough_events_exist() {
        use McCompletion::{Offset, Produced};
        // completion, produced, of this round, next first event → result
        let table = [
            (Produced, 1000, 400, 1500, RoundDecision::Finished),
            (Produced, 1200, 400, 1500, RoundDecision::Finished),
            (Produced, 999, 400, 5000, RoundDecision::NextRound),
            (Offset, 999, 400, 1011, RoundDecision::Finished),
            (Offset, 999, 400, 1010, RoundDecision::NextRound),
        ];
        for (completion, produced, of_round, next, expected) in table {
            let mut view = samples::view();
            view.row.request.generation = Some(GenerationParams {
                events: 1000,
                first_event: 11,
                first_lumi: 1,
                events_per_lumi: 10,
                filter_efficiency: 1.0,
            });
            let mut process = samples::process();
            (process.events_produced, process.events_of_round) = (produced, of_round);
            process.next_first_event = next;
            for ended in [RoundEnd::Complete, RoundEnd::Partial] {
                let found = decide_after_round(&view.row.request, &process, ended, completion);
                assert_eq!(found, expected, "{produced} {next}");
            }
        }
    }

    #[test]
    fn empty_round_is_not_repeated_forever() {
        let mut view = samples::view();
        view.row.request.generation = Some(GenerationParams {
            events: 1000,
            first_event: 1,
            first_lumi: 1,
            events_per_lumi: 10,
            filter_efficiency: 0.5,
        });
        let process = RequestProgress {
            extent: RoundExtent { before: 0, planned: 1000, later: 0 },
            ..samples::process()
        };
        let next = |ended| decide_after_round(&view.row.request, &process, ended, McCompletion::Produced);
        let whole = next(RoundEnd::Complete);
        assert!(
            matches!(&whole, RoundDecision::Hold(reason) if reason.contains("produced no events")),
            "{whole:?}"
        );
        assert_eq!(next(RoundEnd::Partial), RoundDecision::NextRound, "it failed, and was released");
    }

    /// That none of a few events passes a filter is bad luck: the request continues.
    #[test]
    fn empty_last_rounds_do_not_hold_the_request() {
        // efficiency, expected in the round, empty rounds before it → is it held
        let table = [
            (0.1, 1, 0, false),
            (0.1, 9, 0, false),
            (0.1, 9, 1, false),
            (0.1, 1, 2, true),
            (0.1, 10, 0, true),
            // Without a filter nothing is random.
            (1.0, 1, 0, true),
        ];
        for (filter_efficiency, planned, empty_rounds, is_held) in table {
            let mut request = samples::request();
            request.generation = Some(GenerationParams {
                events: 100,
                first_event: 1,
                first_lumi: 1,
                events_per_lumi: 10,
                filter_efficiency,
            });
            let process = RequestProgress {
                extent: RoundExtent { before: 100 - planned, planned, later: 0 },
                events_produced: 100 - planned,
                empty_rounds,
                ..samples::process()
            };
            let found = |ended| decide_after_round(&request, &process, ended, McCompletion::Produced);
            let next = found(RoundEnd::Complete);
            assert_eq!(
                matches!(next, RoundDecision::Hold(_)),
                is_held,
                "{filter_efficiency} {planned} {empty_rounds}: {next:?}"
            );
            assert!(
                matches!(found(RoundEnd::Empty), RoundDecision::Hold(_)),
                "nothing could be planned, and nothing will be"
            );
        }
    }

    /// R-188, R-189: all files are processed or excluded.
    #[test]
    fn request_with_input_ends_without_remaining_files() {
        use RoundEnd::{Complete, Empty, Partial};
        // more input, files attempted, how the round ended → result
        let table = [
            (false, 0, Complete, RoundDecision::Finished),
            (false, 0, Partial, RoundDecision::Finished),
            (true, 0, Complete, RoundDecision::NextRound),
            (false, 3, Complete, RoundDecision::NextRound),
            (true, 3, Partial, RoundDecision::NextRound),
            (false, 3, Empty, RoundDecision::Finished),
        ];
        for (more_input, attempted, ended, expected) in table {
            let mut process = samples::process();
            (process.more_input, process.files.attempted) = (more_input, attempted);
            let next = decide_after_round(&samples::request(), &process, ended, McCompletion::Produced);
            assert_eq!(next, expected, "{more_input} {attempted} {ended:?}");
        }
    }

    fn word(recovery: &RunRecovery) -> &'static str {
        match recovery {
            RunRecovery::Rescue { .. } => "rescue",
            RunRecovery::Settle { .. } => "settle",
            RunRecovery::Hold { .. } => "hold",
        }
    }

    /// E 3.2, with the numbers of E 8.1: below the threshold and not at it, three rescues and not four.
    #[test]
    fn few_failures_are_rescued_and_many_hold_the_request() {
        // units, completed, rescues so far → result
        let table = [
            (100, 99, 0, "rescue"),
            (100, 81, 0, "rescue"),
            (100, 80, 0, "hold"),
            (15, 12, 0, "hold"),
            (5, 4, 0, "hold"),
            (6, 5, 2, "rescue"),
            (6, 5, 3, "hold"),
            (100, 0, 0, "hold"),
            (1, 0, 0, "hold"),
        ];
        for (units, completed, rescues, expected) in table {
            let run = RunRow { units_completed: completed, rescues, ..samples::run(units) };
            let found = decide_recovery(&run, &FailureTally::default(), RecoveryPolicy::default());
            assert_eq!(word(&found), expected, "{completed} of {units} after {rescues}: {found:?}");
        }
    }

    /// A rescue cannot help if a file is unreadable; but with too many or other failures the request is held.
    #[test]
    fn only_unreadable_files_end_the_round() {
        use crate::requests::failures::BadFile;
        // completed of 10, failed units and whether only because of files → result
        let table = [
            (9, vec![(3, true)], "settle"),
            (9, vec![(3, false)], "rescue"),
            (9, vec![], "rescue"),
            (8, vec![(3, true), (4, true)], "hold"),
            (9, vec![(3, true), (4, true)], "rescue"),
        ];
        for (completed, units, expected) in table {
            let run = RunRow { units_completed: completed, ..samples::run(10) };
            let failures = FailureTally {
                units: units.iter().copied().collect(),
                files: [("/store/bad".to_owned(), BadFile::default())].into(),
                ..FailureTally::default()
            };
            let found = decide_recovery(&run, &failures, RecoveryPolicy::default());
            assert_eq!(word(&found), expected, "{units:?}: {found:?}");
            let exhausted =
                decide_recovery(&RunRow { rescues: 3, ..run }, &failures, RecoveryPolicy::default());
            let expected = if expected == "rescue" { "hold" } else { expected };
            assert_eq!(word(&exhausted), expected, "{units:?}: {exhausted:?}");
        }
    }

    #[test]
    fn request_overrides_precede_settings() {
        let run = RunRow { units_completed: 7, rescues: 3, ..samples::run(10) };
        let word = |threshold, rescues| {
            let overrides = RequestOverrides {
                error_hold_threshold: threshold,
                max_rescue_attempts: rescues,
                ..RequestOverrides::default()
            };
            word(&decide_recovery(
                &run,
                &FailureTally::default(),
                RecoveryPolicy::default().with_overrides(&overrides),
            ))
        };
        assert_eq!(word(None, None), "hold");
        assert_eq!(word(Some(0.5), None), "hold");
        assert_eq!(word(None, Some(5)), "hold");
        assert_eq!(word(Some(0.5), Some(5)), "rescue");
    }

    #[test]
    fn round_ends_at_the_next_production_step() {
        type Row<'s> = (Option<u64>, u64, u64, &'s [PriorityStep], Option<u64>);
        let steps = [0.1, 0.5].map(|fraction| PriorityStep { fraction, priority: 50 });
        // events to generate, done, files left, steps → amount until the next one
        let table: [Row<'_>; 8] = [
            (None, 0, 100, &steps, Some(10)),
            (None, 0, 24, &steps, Some(3)),
            (None, 10, 90, &steps, Some(40)),
            (None, 12, 88, &steps[1..], Some(38)),
            (None, 50, 50, &steps, None),
            (None, 0, 100, &[], None),
            (Some(1000), 0, 0, &steps, Some(100)),
            (Some(1000), 130, 0, &steps, Some(370)),
        ];
        for (generated, done, left, steps, expected) in table {
            let mut request = samples::request();
            request.production_steps = steps.to_vec();
            request.generation = generated.map(|events| GenerationParams {
                events,
                first_event: 1,
                first_lumi: 1,
                events_per_lumi: 10,
                filter_efficiency: 1.0,
            });
            assert_eq!(
                amount_until_next_step(&request, done, left),
                expected,
                "{generated:?} {done} {left} {steps:?}"
            );
        }
    }

    /// R-045, R-177.
    #[test]
    fn several_production_steps_can_be_reached_at_once() {
        let steps =
            [PriorityStep { fraction: 0.1, priority: 80 }, PriorityStep { fraction: 0.5, priority: 50 }];
        for (done, total, reached) in
            [(0, 20, 0), (1, 20, 0), (2, 20, 1), (9, 20, 1), (10, 20, 2), (20, 20, 2), (0, 0, 0)]
        {
            let mut run = samples::run(total);
            run.units_completed = done;
            assert_eq!(count_steps_reached(&steps, &samples::process(), &run), reached, "{done} of {total}");
        }
    }

    /// A completed small first round is a small share of the request.
    #[test]
    fn production_steps_are_fractions_of_the_request() {
        let steps =
            [PriorityStep { fraction: 0.1, priority: 80 }, PriorityStep { fraction: 0.5, priority: 50 }];
        // before, planned, later, completed units of 10 → steps reached
        let table = [
            (0, 90, 910, 10, 0),
            (0, 100, 900, 9, 0),
            (0, 100, 900, 10, 1),
            (100, 900, 0, 0, 1),
            (100, 900, 0, 4, 1),
            (100, 900, 0, 5, 2),
            (600, 100, 300, 0, 2),
        ];
        for (before, planned, later, done, reached) in table {
            let process =
                RequestProgress { extent: RoundExtent { before, planned, later }, ..samples::process() };
            let run = RunRow { units_completed: done, ..samples::run(10) };
            let found = count_steps_reached(&steps, &process, &run);
            assert_eq!(found, reached, "{before} {planned} {later}: {done}");
        }
    }
}
