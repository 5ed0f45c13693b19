//! The setup of a simulation: size, duration, and rates of failures.

/// The setup of a simulation. Equal setups give equal histories.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationSetup {
    pub seed: u64,
    pub requests: u32,
    pub sites: u32,
    /// Number of days with failures. Afterwards there are none, and all remaining requests must end.
    pub days: u32,
    /// Name of the request with a complete history.
    pub history_of: Option<String>,
    /// A fault to inject, to test that it is detected.
    pub fault: Option<InjectedFault>,
}

impl SimulationSetup {
    /// The reference setup: 300 requests at 100 sites for 30 days.
    pub const fn large(seed: u64) -> Self {
        Self { seed, requests: 300, sites: 100, days: 30, history_of: None, fault: None }
    }

    /// A setup that takes a debug build a second or two.
    pub fn small(seed: u64) -> Self {
        Self { requests: 40, sites: 20, days: 12, ..Self::large(seed) }
    }
}

/// A fault that the simulation injects to test that it is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// A failed unit is reported as completed.
    ReportFailedUnitCompleted,
    /// The input of a failed unit is credited as processed.
    CreditFailedUnit,
    /// Input that earlier rounds have processed is planned again.
    ForgetFileRows,
    /// A file that was not reported as bad is excluded.
    ExcludeGoodFile,
    /// A request fails although no person requested it.
    FailByItself,
    /// One of the requests is never processed again.
    ForgetRequest,
    /// Generated events begin at the same number in each round.
    RepeatNumbers,
    /// Alerts are lost.
    LoseAlerts,
    /// A round is rescued without limit.
    RescueForEver,
    /// The completion of a unit is not reported.
    LoseUnit,
    /// Commands of people are lost.
    LoseOperatorRequests,
}

/// Rates of failures. They are constants, because a simulation with fewer failures tests less.
pub(crate) mod failure_rates {
    use std::time::Duration;

    const HOUR: Duration = Duration::from_hours(1);

    /// Time between two outages of a site, and the maximum duration of one.
    pub(crate) const OUTAGE_EVERY: Duration = Duration::from_hours(24 * 20);
    pub(crate) const LONGEST_OUTAGE: f64 = 40.0;
    /// Share of outages in which jobs are accepted and fail at once.
    pub(crate) const BLACK_HOLES: f64 = 0.35;
    /// Share of sites that are much slower than others.
    pub(crate) const SLOW_SITES: f64 = 0.10;
    pub(crate) const CRASH_EVERY: Duration = Duration::from_hours(16);
    pub(crate) const CATALOG_OUTAGE_EVERY: Duration = Duration::from_hours(24 * 4);
    pub(crate) const SCHEDD_OUTAGE_EVERY: Duration = Duration::from_hours(24 * 3);
    /// Shares of input files that are unreadable, and that have one bad copy.
    pub(crate) const CORRUPT_FILES: f64 = 0.010;
    pub(crate) const BAD_COPIES: f64 = 0.004;
    /// Share of input files that crash the jobs that read them.
    pub(crate) const POISON: f64 = 0.002;
    /// Share of requests that cannot succeed before an operator fixes them.
    pub(crate) const BROKEN_REQUESTS: f64 = 0.06;
    /// Shares of attempts.
    pub(crate) const TRANSIENT: f64 = 0.020;
    pub(crate) const INFRASTRUCTURE: f64 = 0.010;
    pub(crate) const UNKNOWN: f64 = 0.004;
    pub(crate) const PERMANENT: f64 = 0.0015;
    /// Shares of effects that fail, and that succeed but lose their response.
    pub(crate) const EFFECT_FAILS: f64 = 0.01;
    pub(crate) const ANSWER_LOST: f64 = 0.01;
    /// Time until an operator looks at a held request.
    pub(crate) const OPERATOR_DELAY_HOURS: (f64, f64) = (1.0, 30.0);
    /// Maximum number of active runs per hundred requests.
    pub(crate) const ACTIVE_RUNS_PER_REQUEST: f64 = 0.35;
    /// Interval for checking all requests, with or without notifications.
    pub(crate) const FULL_SCAN_INTERVAL: Duration = Duration::from_hours(6);
    /// Time after the end for the remaining requests to finish.
    pub(crate) const DRAIN: Duration = HOUR.saturating_mul(24 * 40);
}
