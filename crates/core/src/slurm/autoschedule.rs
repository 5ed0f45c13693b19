//! When allocations are asked for without anybody saying so: jobs became ready that nothing will serve.

use std::time::Duration;
use windlass_types::{JobId, Timestamp};

/// When it is worth while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoscheduleSettings {
    /// So many jobs are enough.
    pub threshold: u32,
    /// So long after the last time.
    pub cooldown: Duration,
    /// Fewer are enough after this time: they are not left behind.
    pub stranded_after: Duration,
}

impl Default for AutoscheduleSettings {
    fn default() -> Self {
        Self { threshold: 5, cooldown: Duration::from_mins(30), stranded_after: Duration::from_hours(2) }
    }
}

/// A job that is ready, and that no open allocation or armed action will serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnservedJob {
    pub id: JobId,
    pub ready_since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoscheduleDecision {
    /// There is nothing to be asked for.
    Nothing,
    /// More may come; at this time at the latest it is decided anew.
    Wait { until: Timestamp },
    /// Ask now.
    Schedule(ScheduleCause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleCause {
    /// There are enough of them.
    Enough,
    /// One waits for too long.
    Stranded,
    /// Nothing is open any more, so nobody else will come to serve them.
    Alone,
}

/// How the allocations of the workflow stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAllocations {
    /// Some are asked for or run, which may still take the jobs on.
    SomeOpen,
    /// None, but what was asked for the last time has worked: so will what is asked for now.
    NoneLeft,
    /// None, and of those that were asked for the last time none has begun: they were refused, or taken back. Whoever asks again
    /// at once asks again and again.
    NoneBegan,
}

/// Whether to ask for allocations.
pub fn decide_autoschedule(
    unplanned: &[UnservedJob],
    last: Option<Timestamp>,
    open: OpenAllocations,
    settings: &AutoscheduleSettings,
    now: Timestamp,
) -> AutoscheduleDecision {
    let Some(oldest) = unplanned.iter().map(|job| job.ready_since).min() else {
        return AutoscheduleDecision::Nothing;
    };
    if open == OpenAllocations::NoneLeft {
        return AutoscheduleDecision::Schedule(ScheduleCause::Alone);
    }
    let stranded_at = oldest.after(settings.stranded_after);
    if now >= stranded_at && last.is_none_or(|last| now >= last.after(settings.cooldown)) {
        return AutoscheduleDecision::Schedule(ScheduleCause::Stranded);
    }
    let rested_at = last.map(|last| last.after(settings.cooldown));
    if let Some(rested_at) = rested_at.filter(|rested_at| now < *rested_at) {
        return AutoscheduleDecision::Wait { until: rested_at };
    }
    if open == OpenAllocations::NoneBegan {
        return AutoscheduleDecision::Schedule(ScheduleCause::Alone);
    }
    if unplanned.len() as u64 >= u64::from(settings.threshold) {
        return AutoscheduleDecision::Schedule(ScheduleCause::Enough);
    }
    AutoscheduleDecision::Wait { until: stranded_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_allocations_are_asked_for() {
        use ScheduleCause::{Alone, Enough, Stranded};
        let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |minutes: u64| begin.after(Duration::from_mins(minutes));
        let wait = |minutes| AutoscheduleDecision::Wait { until: at(minutes) };
        let settings = AutoscheduleSettings::default();
        for (jobs, last, open, now, expected) in [
            (0, None, OpenAllocations::SomeOpen, 0, AutoscheduleDecision::Nothing),
            (0, None, OpenAllocations::NoneLeft, 9999, AutoscheduleDecision::Nothing),
            (4, None, OpenAllocations::SomeOpen, 0, wait(120)),
            (5, None, OpenAllocations::SomeOpen, 0, AutoscheduleDecision::Schedule(Enough)),
            // Not again so soon, however many there are.
            (5, Some(0), OpenAllocations::SomeOpen, 29, wait(30)),
            (5, Some(0), OpenAllocations::SomeOpen, 30, AutoscheduleDecision::Schedule(Enough)),
            // Few are not left behind.
            (1, None, OpenAllocations::SomeOpen, 119, wait(120)),
            (1, None, OpenAllocations::SomeOpen, 120, AutoscheduleDecision::Schedule(Stranded)),
            (1, Some(100), OpenAllocations::SomeOpen, 120, wait(130)),
            (1, Some(100), OpenAllocations::SomeOpen, 130, AutoscheduleDecision::Schedule(Stranded)),
            // Nobody else will come.
            (1, None, OpenAllocations::NoneLeft, 0, AutoscheduleDecision::Schedule(Alone)),
            (1, Some(0), OpenAllocations::NoneLeft, 1, AutoscheduleDecision::Schedule(Alone)),
            // What was refused a moment ago is refused again.
            (1, None, OpenAllocations::NoneBegan, 0, AutoscheduleDecision::Schedule(Alone)),
            (5, Some(0), OpenAllocations::NoneBegan, 29, wait(30)),
            (1, Some(0), OpenAllocations::NoneBegan, 30, AutoscheduleDecision::Schedule(Alone)),
        ] {
            let jobs: Vec<UnservedJob> =
                (0..jobs).map(|id| UnservedJob { id: JobId(id), ready_since: begin }).collect();
            let found = decide_autoschedule(&jobs, last.map(at), open, &settings, at(now));
            assert_eq!(found, expected, "{} jobs, last {last:?}, {open:?}, now {now}", jobs.len());
        }
    }
}
