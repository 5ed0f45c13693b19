//! When allocations are asked for without anybody saying so: jobs became ready that nothing will serve.

use std::time::Duration;
use windlass_types::{JobId, Timestamp};

/// When it is worth while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// So many jobs are enough.
    pub threshold: u32,
    /// So long after the last time.
    pub cooldown: Duration,
    /// Fewer are enough after this time: they are not left behind.
    pub stranded: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { threshold: 5, cooldown: Duration::from_mins(30), stranded: Duration::from_hours(2) }
    }
}

/// A job that is ready, and that no open allocation or armed action will serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unplanned {
    pub id: JobId,
    pub ready_since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is nothing to be asked for.
    Nothing,
    /// More may come; at this time at the latest it is decided anew.
    Wait { until: Timestamp },
    /// Ask now.
    Schedule(Cause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There are enough of them.
    Enough,
    /// One waits for too long.
    Stranded,
    /// Nothing is open any more, so nobody else will come to serve them.
    Alone,
}

/// How the allocations of the workflow stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Some are asked for or run, which may still take the jobs on.
    Some,
    /// None, but what was asked for the last time has worked: so will what is asked for now.
    NoneLeft,
    /// None, and of those that were asked for the last time none has begun: they were refused, or taken back. Whoever asks again
    /// at once asks again and again.
    NoneBegan,
}

/// Whether to ask for allocations.
pub fn decide(
    unplanned: &[Unplanned],
    last: Option<Timestamp>,
    open: Open,
    settings: &Settings,
    now: Timestamp,
) -> Verdict {
    let Some(oldest) = unplanned.iter().map(|job| job.ready_since).min() else { return Verdict::Nothing };
    if open == Open::NoneLeft {
        return Verdict::Schedule(Cause::Alone);
    }
    let stranded_at = oldest.after(settings.stranded);
    if now >= stranded_at && last.is_none_or(|last| now >= last.after(settings.cooldown)) {
        return Verdict::Schedule(Cause::Stranded);
    }
    let rested_at = last.map(|last| last.after(settings.cooldown));
    if let Some(rested_at) = rested_at.filter(|rested_at| now < *rested_at) {
        return Verdict::Wait { until: rested_at };
    }
    if open == Open::NoneBegan {
        return Verdict::Schedule(Cause::Alone);
    }
    if unplanned.len() as u64 >= u64::from(settings.threshold) {
        return Verdict::Schedule(Cause::Enough);
    }
    Verdict::Wait { until: stranded_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_allocations_are_asked_for() {
        use Cause::{Alone, Enough, Stranded};
        let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |minutes: u64| begin.after(Duration::from_mins(minutes));
        let wait = |minutes| Verdict::Wait { until: at(minutes) };
        let settings = Settings::default();
        for (jobs, last, open, now, expected) in [
            (0, None, Open::Some, 0, Verdict::Nothing),
            (0, None, Open::NoneLeft, 9999, Verdict::Nothing),
            (4, None, Open::Some, 0, wait(120)),
            (5, None, Open::Some, 0, Verdict::Schedule(Enough)),
            // Not again so soon, however many there are.
            (5, Some(0), Open::Some, 29, wait(30)),
            (5, Some(0), Open::Some, 30, Verdict::Schedule(Enough)),
            // Few are not left behind.
            (1, None, Open::Some, 119, wait(120)),
            (1, None, Open::Some, 120, Verdict::Schedule(Stranded)),
            (1, Some(100), Open::Some, 120, wait(130)),
            (1, Some(100), Open::Some, 130, Verdict::Schedule(Stranded)),
            // Nobody else will come.
            (1, None, Open::NoneLeft, 0, Verdict::Schedule(Alone)),
            (1, Some(0), Open::NoneLeft, 1, Verdict::Schedule(Alone)),
            // What was refused a moment ago is refused again.
            (1, None, Open::NoneBegan, 0, Verdict::Schedule(Alone)),
            (5, Some(0), Open::NoneBegan, 29, wait(30)),
            (1, Some(0), Open::NoneBegan, 30, Verdict::Schedule(Alone)),
        ] {
            let jobs: Vec<Unplanned> =
                (0..jobs).map(|id| Unplanned { id: JobId(id), ready_since: begin }).collect();
            let found = decide(&jobs, last.map(at), open, &settings, at(now));
            assert_eq!(found, expected, "{} jobs, last {last:?}, {open:?}, now {now}", jobs.len());
        }
    }
}
