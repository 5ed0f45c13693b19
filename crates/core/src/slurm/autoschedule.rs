//! Automatic allocation requests, when jobs become ready that nothing will serve.

use std::time::Duration;
use windlass_types::{JobId, Timestamp};

/// When to request allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoscheduleSettings {
    /// Number of jobs from which allocations are requested.
    pub threshold: u32,
    /// Minimum time between requests.
    pub cooldown: Duration,
    /// Time after which fewer jobs are sufficient.
    pub stranded_after: Duration,
}

impl Default for AutoscheduleSettings {
    fn default() -> Self {
        Self { threshold: 5, cooldown: Duration::from_mins(30), stranded_after: Duration::from_hours(2) }
    }
}

/// A ready job that no open allocation or armed action will serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnservedJob {
    pub id: JobId,
    pub ready_since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoscheduleDecision {
    /// Nothing to request.
    Nothing,
    /// More jobs may follow; decide again at this time at the latest.
    Wait { until: Timestamp },
    /// Request allocations now.
    Schedule(ScheduleCause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleCause {
    /// There are enough jobs.
    Enough,
    /// A job has waited too long.
    Stranded,
    /// No allocation is open, so no worker will come for them.
    Alone,
}

/// State of the allocations of the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAllocations {
    /// Some are pending or running, and may still serve the jobs.
    SomeOpen,
    /// None, but the last requested ones started, so new ones probably will too.
    NoneLeft,
    /// None, and none of those requested last has started: they were rejected or withdrawn. An immediate
    /// request would be repeated endlessly.
    NoneBegan,
}

/// Decides whether to request allocations.
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
    let stranded_at = oldest.plus(settings.stranded_after);
    let cooling_since = last.filter(|last| !now.is_delay_over(*last, settings.cooldown));
    if now >= stranded_at && cooling_since.is_none() {
        return AutoscheduleDecision::Schedule(ScheduleCause::Stranded);
    }
    if let Some(last) = cooling_since {
        return AutoscheduleDecision::Wait { until: last.plus(settings.cooldown) };
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
    fn autoschedule_requests_allocations_in_time() {
        use ScheduleCause::{Alone, Enough, Stranded};
        let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |minutes: u64| begin.plus(Duration::from_mins(minutes));
        let wait = |minutes| AutoscheduleDecision::Wait { until: at(minutes) };
        let settings = AutoscheduleSettings::default();
        for (jobs, last, open, now, expected) in [
            (0, None, OpenAllocations::SomeOpen, 0, AutoscheduleDecision::Nothing),
            (0, None, OpenAllocations::NoneLeft, 9999, AutoscheduleDecision::Nothing),
            (4, None, OpenAllocations::SomeOpen, 0, wait(120)),
            (5, None, OpenAllocations::SomeOpen, 0, AutoscheduleDecision::Schedule(Enough)),
            // Not before the cooldown ends, however many there are.
            (5, Some(0), OpenAllocations::SomeOpen, 29, wait(30)),
            (5, Some(0), OpenAllocations::SomeOpen, 30, AutoscheduleDecision::Schedule(Enough)),
            // The clock was set back after the last request.
            (5, Some(1440), OpenAllocations::SomeOpen, 29, AutoscheduleDecision::Schedule(Enough)),
            // Few jobs do not wait forever.
            (1, None, OpenAllocations::SomeOpen, 119, wait(120)),
            (1, None, OpenAllocations::SomeOpen, 120, AutoscheduleDecision::Schedule(Stranded)),
            (1, Some(100), OpenAllocations::SomeOpen, 120, wait(130)),
            (1, Some(100), OpenAllocations::SomeOpen, 130, AutoscheduleDecision::Schedule(Stranded)),
            // No other worker will come.
            (1, None, OpenAllocations::NoneLeft, 0, AutoscheduleDecision::Schedule(Alone)),
            (1, Some(0), OpenAllocations::NoneLeft, 1, AutoscheduleDecision::Schedule(Alone)),
            // A request rejected a moment ago would be rejected again.
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
