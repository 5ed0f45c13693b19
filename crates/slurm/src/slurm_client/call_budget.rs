//! The call budget for Slurm: a token bucket that fills slowly, and pauses that grow with failures. It has no
//! clock.

use super::{CallResultLabel, SlurmService, SlurmTool};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::Timestamp;

/// Limits for calls to Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallBudgetOptions {
    pub per_minute: u32,
    /// Burst.
    pub burst: u32,
    /// Pause after the first failure; doubled with each further one.
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for CallBudgetOptions {
    fn default() -> Self {
        Self {
            per_minute: 60,
            burst: 20,
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_mins(5),
        }
    }
}

/// Counters of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStatistics {
    pub calls: u64,
    /// Slurm rejected the call.
    pub refused: u64,
    /// No answer, for reasons other than a timeout.
    pub failed: u64,
    pub timed_out: u64,
    pub total_time: Duration,
}

impl CallStatistics {
    pub const fn failures(&self) -> u64 {
        self.refused + self.failed + self.timed_out
    }

    fn add_call(&mut self, ending: CallResultLabel, took: Duration) {
        self.calls += 1;
        self.total_time += took;
        match ending {
            CallResultLabel::Answered => {}
            CallResultLabel::Refused => self.refused += 1,
            CallResultLabel::TimedOut => self.timed_out += 1,
            CallResultLabel::Failed => self.failed += 1,
        }
    }
}

/// The remaining call budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingCalls {
    /// Besides the one that is reserved for canceling.
    pub calls: u32,
    /// No calls to the controller before this time.
    pub paused_until: Option<Timestamp>,
    /// Number of consecutive calls without an answer.
    pub unanswered: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct ServicePause {
    failures: u32,
    until: Option<Timestamp>,
}

/// The bucket and the pauses.
#[derive(Debug)]
pub struct CallBudget {
    options: CallBudgetOptions,
    /// In thousandths of a call.
    level: u64,
    filled_at: Timestamp,
    pauses: BTreeMap<SlurmService, ServicePause>,
    recent: BTreeMap<&'static str, CallStatistics>,
    totals: BTreeMap<&'static str, CallStatistics>,
}

const CALL_COST: u64 = 1000;

impl CallBudget {
    pub fn new(options: CallBudgetOptions, now: Timestamp) -> Self {
        let options = CallBudgetOptions {
            per_minute: options.per_minute.max(1),
            burst: options.burst.max(1),
            ..options
        };
        Self {
            options,
            level: u64::from(options.burst) * CALL_COST,
            filled_at: now,
            pauses: BTreeMap::new(),
            recent: BTreeMap::new(),
            totals: BTreeMap::new(),
        }
    }

    /// Takes one call from the bucket, or returns when one will be available.
    pub(crate) fn take_call(&mut self, tool: SlurmTool, now: Timestamp) -> Result<(), Timestamp> {
        self.refill(now);
        let pause =
            self.pauses.get(&tool.service()).and_then(|pause| pause.until).filter(|until| *until > now);
        if let Some(until) = pause {
            return Err(until);
        }
        // The last one is reserved for canceling: unneeded allocations hold nodes, and must not wait.
        let wanted =
            if tool == SlurmTool::Scancel { CALL_COST } else { CALL_COST + self.reserved_for_cancel() };
        if self.level < wanted {
            let missing = (wanted - self.level) * 60_000 / (u64::from(self.options.per_minute) * CALL_COST);
            return Err(now.plus(Duration::from_millis(missing + 1)));
        }
        self.level -= CALL_COST;
        Ok(())
    }

    /// Records the result of a call. A rejection is an answer.
    pub(crate) fn record_call(
        &mut self,
        tool: SlurmTool,
        ending: CallResultLabel,
        took: Duration,
        now: Timestamp,
    ) {
        self.recent.entry(tool.name()).or_default().add_call(ending, took);
        self.totals.entry(tool.name()).or_default().add_call(ending, took);
        let pause = self.pauses.entry(tool.service()).or_default();
        if matches!(ending, CallResultLabel::Answered | CallResultLabel::Refused) {
            *pause = ServicePause::default();
            return;
        }
        pause.failures = pause.failures.saturating_add(1);
        let doubled = self.options.first_pause.saturating_mul(1 << (pause.failures - 1).min(16));
        let length = doubled.min(self.options.longest_pause);
        // Between 75 % and 100 % of it, at random: so servers that failed together do not return
        // together.
        let spread = u32::try_from(now.micros().rem_euclid(256)).unwrap_or(0);
        pause.until = Some(now.plus(length * 3 / 4 + length / 4 * spread / 256));
    }

    pub(crate) fn remaining(&mut self, now: Timestamp) -> RemainingCalls {
        self.refill(now);
        let pause = self.pauses.get(&SlurmService::Controller).copied().unwrap_or_default();
        RemainingCalls {
            calls: u32::try_from(self.level.saturating_sub(self.reserved_for_cancel()) / CALL_COST)
                .unwrap_or(u32::MAX),
            paused_until: pause.until.filter(|until| *until > now),
            unanswered: pause.failures,
        }
    }

    /// The calls reserved for canceling, where the burst has room for them.
    const fn reserved_for_cancel(&self) -> u64 {
        if self.options.burst > 1 { CALL_COST } else { 0 }
    }

    pub(crate) fn take_statistics(&mut self) -> BTreeMap<&'static str, CallStatistics> {
        std::mem::take(&mut self.recent)
    }

    pub(crate) const fn totals(&self) -> &BTreeMap<&'static str, CallStatistics> {
        &self.totals
    }

    fn refill(&mut self, now: Timestamp) {
        let passed = u64::try_from(now.since(self.filled_at).as_millis()).unwrap_or(u64::MAX);
        let more =
            passed.saturating_mul(u64::from(self.options.per_minute)).saturating_mul(CALL_COST) / 60_000;
        if more > 0 || now < self.filled_at {
            // A clock that was set back adds nothing, and counting continues from there.
            self.level = self.level.saturating_add(more).min(u64::from(self.options.burst) * CALL_COST);
            self.filled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: i64) -> Timestamp {
        Timestamp(millis * 1000)
    }

    fn options() -> CallBudgetOptions {
        CallBudgetOptions {
            per_minute: 60,
            burst: 3,
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_mins(1),
        }
    }

    #[test]
    fn budget_allows_a_burst_then_one_call_per_second() {
        let mut budget = CallBudget::new(options(), at(0));
        for _ in 0..2 {
            assert_eq!(budget.take_call(SlurmTool::Squeue, at(0)), Ok(()));
        }
        let until = budget.take_call(SlurmTool::Sbatch, at(0)).unwrap_err();
        assert!(until > at(999) && until < at(1_100), "{until}");
        assert_eq!(budget.remaining(at(500)).calls, 0);
        assert_eq!(budget.take_call(SlurmTool::Sbatch, until), Ok(()));
        assert!(budget.take_call(SlurmTool::Sbatch, until).is_err());
        assert_eq!(budget.remaining(at(3_600_000)).calls, 2, "never more than the burst");
    }

    #[test]
    fn last_call_is_reserved_for_scancel() {
        for (burst, others) in [(20, 19), (2, 1), (1, 1)] {
            let mut budget = CallBudget::new(CallBudgetOptions { burst, ..options() }, at(0));
            assert_eq!(budget.remaining(at(0)).calls, others, "{burst}");
            let asked = (0..100).filter(|_| budget.take_call(SlurmTool::Squeue, at(0)).is_ok()).count();
            assert_eq!(asked, others as usize, "{burst}");
            assert_eq!(budget.remaining(at(0)).calls, 0, "{burst}");
            assert_eq!(budget.take_call(SlurmTool::Scancel, at(0)).is_ok(), burst > 1, "{burst}");
            // It is returned before any other caller gets one.
            let again = budget.take_call(SlurmTool::Scancel, at(0)).unwrap_err();
            assert!(budget.take_call(SlurmTool::Sbatch, at(0)).unwrap_err() >= again, "{burst}");
            assert_eq!(budget.take_call(SlurmTool::Scancel, again), Ok(()), "{burst}");
        }
    }

    #[test]
    fn hour_of_constant_calls_stays_within_budget() {
        let mut budget = CallBudget::new(options(), at(0));
        let asked = (0..3_600_000)
            .step_by(20)
            .filter(|ms| budget.take_call(SlurmTool::Squeue, at(*ms)).is_ok())
            .count();
        assert!((3_500..=3_603).contains(&asked), "{asked}");
    }

    #[test]
    fn backoff_grows_and_ends_with_the_first_answer() {
        let mut budget = CallBudget::new(CallBudgetOptions { burst: 100, ..options() }, at(0));
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(budget.take_call(SlurmTool::Squeue, now), Ok(()));
            budget.record_call(SlurmTool::Squeue, CallResultLabel::TimedOut, Duration::from_secs(1), now);
            let until = budget.take_call(SlurmTool::Sbatch, now).unwrap_err();
            pauses.push(until.since(now).as_secs_f64());
            now = until;
        }
        let mut full = 2.0_f64;
        for pause in pauses {
            assert!(pause >= full * 0.75 && pause <= full, "{pause} of {full}");
            full = (full * 2.0).min(60.0);
        }
        assert_eq!(budget.remaining(now).unanswered, 8);
        assert_eq!(budget.take_call(SlurmTool::Squeue, now), Ok(()));
        budget.record_call(SlurmTool::Squeue, CallResultLabel::Refused, Duration::ZERO, now);
        assert_eq!((budget.remaining(now).unanswered, budget.remaining(now).paused_until), (0, None));
        assert_eq!(budget.totals()["squeue"].timed_out, 8);
        assert_eq!((budget.take_statistics()["squeue"].calls, budget.take_statistics().len()), (9, 0));
    }

    #[test]
    fn unavailable_accounting_does_not_stop_submission() {
        let mut budget = CallBudget::new(options(), at(0));
        assert_eq!(budget.take_call(SlurmTool::Sacct, at(0)), Ok(()));
        budget.record_call(SlurmTool::Sacct, CallResultLabel::Failed, Duration::ZERO, at(0));
        assert!(budget.take_call(SlurmTool::Sacct, at(1)).is_err());
        assert_eq!(budget.take_call(SlurmTool::Sbatch, at(1)), Ok(()));
    }

    #[test]
    fn clock_set_back_does_not_stop_calls() {
        let mut budget = CallBudget::new(options(), at(10_000_000));
        for _ in 0..2 {
            budget.take_call(SlurmTool::Squeue, at(10_000_000)).unwrap();
        }
        assert!(budget.take_call(SlurmTool::Squeue, at(0)).is_err());
        assert_eq!(budget.take_call(SlurmTool::Squeue, at(1_001)), Ok(()));
    }
}
