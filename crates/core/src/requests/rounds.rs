//! What follows the end of a run: the next round, the end of the request, or a person.

use super::View;
use super::book::{Process, RunRow};
use windlass_types::requests::{ProductionStep, Request, RunStatus};

/// When a request for generated events has all that it wants (DESIGN 6.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McCompletion {
    /// So many events were produced and registered.
    #[default]
    Produced,
    /// The numbers of so many events were given out, whatever became of them: the letter of the specification.
    Offset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Everything that was wished for is made.
    Finished,
    /// Another round, for what is left.
    Round,
    /// Going on like this would go on for ever.
    Hold(String),
}

/// After a round all of whose work units are completed and registered.
pub fn after_round(request: &Request, process: &Process, completion: McCompletion) -> Next {
    let Some(generation) = &request.generation else {
        return if process.more_input { Next::Round } else { Next::Finished };
    };
    let made = match completion {
        McCompletion::Produced => process.events_produced,
        McCompletion::Offset => process.next_first_event.saturating_sub(generation.first_event),
    };
    if made >= generation.events {
        Next::Finished
    } else if process.events_of_round == 0 {
        Next::Hold(format!(
            "round {} produced no events: {} of {} are there; the filter efficiency {} may be wrong",
            process.round, made, generation.events, generation.filter_efficiency
        ))
    } else {
        Next::Round
    }
}

/// What is done about a run that ended with failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Another run for what is left of the round.
    Rescue { reason: String },
    /// A person is to decide.
    Hold { reason: String },
}

/// The one place that decides what follows a round with failures. Until rescues exist: a person.
pub fn after_failure(view: &View) -> Recovery {
    Recovery::Hold { reason: view.run.as_ref().map_or_else(|| "its run is lost".to_owned(), tell_failures) }
}

fn tell_failures(run: &RunRow) -> String {
    let left = run.totals.units.saturating_sub(run.units_completed).saturating_sub(run.units_failed);
    format!(
        "round {} ended {}: {} of {} work units completed, {} failed, {left} never ended; jobs: {} done, {} failed",
        run.round,
        if run.status == RunStatus::Failed { "without a single success" } else { "with failures" },
        run.units_completed,
        run.totals.units,
        run.units_failed,
        run.counts.done,
        run.counts.failed,
    )
}

/// How many production steps have been reached: several at once if the work went past several.
pub fn steps_reached(steps: &[ProductionStep], run: &RunRow) -> usize {
    if run.totals.units == 0 {
        return 0;
    }
    let done = f64::from(run.units_completed) / f64::from(run.totals.units);
    steps.iter().take_while(|step| step.fraction <= done).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::lifecycle::samples;
    use windlass_types::requests::Generation;

    /// N-1, DESIGN 6.5.
    #[test]
    fn generation_is_over_when_enough_was_produced() {
        use McCompletion::{Offset, Produced};
        // completion, produced, of this round, next first event → what
        let table = [
            (Produced, 1000, 400, 1500, Next::Finished),
            (Produced, 1200, 400, 1500, Next::Finished),
            (Produced, 999, 400, 5000, Next::Round),
            (Offset, 999, 400, 1011, Next::Finished),
            (Offset, 999, 400, 1010, Next::Round),
        ];
        for (completion, produced, of_round, next, expected) in table {
            let mut view = samples::view();
            view.row.request.generation = Some(Generation {
                events: 1000,
                first_event: 11,
                first_lumi: 1,
                events_per_lumi: 10,
                filter_efficiency: 1.0,
            });
            let mut process = samples::process();
            (process.events_produced, process.events_of_round) = (produced, of_round);
            process.next_first_event = next;
            assert_eq!(after_round(&view.row.request, &process, completion), expected, "{produced} {next}");
        }
    }

    #[test]
    fn a_round_without_events_is_not_repeated_for_ever() {
        let mut view = samples::view();
        view.row.request.generation = Some(Generation {
            events: 1000,
            first_event: 1,
            first_lumi: 1,
            events_per_lumi: 10,
            filter_efficiency: 0.5,
        });
        let next = after_round(&view.row.request, &samples::process(), McCompletion::Produced);
        assert!(matches!(&next, Next::Hold(reason) if reason.contains("produced no events")), "{next:?}");
    }

    ///
    #[test]
    fn steps_are_reached_one_or_several_at_once() {
        let steps =
            [ProductionStep { fraction: 0.1, priority: 80 }, ProductionStep { fraction: 0.5, priority: 50 }];
        for (done, total, reached) in
            [(0, 20, 0), (1, 20, 0), (2, 20, 1), (9, 20, 1), (10, 20, 2), (20, 20, 2), (0, 0, 0)]
        {
            let mut run = samples::run(total);
            run.units_completed = done;
            assert_eq!(steps_reached(&steps, &run), reached, "{done} of {total}");
        }
    }
}
