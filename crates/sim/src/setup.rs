//! What a simulated world is like: how large, for how long, with how much going wrong.

/// One world. The same one has the same history, every time.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationSetup {
    pub seed: u64,
    pub requests: u32,
    pub sites: u32,
    /// So long things go wrong. Then they do not any more, and whatever is left has to come to its end.
    pub days: u32,
    /// Of this request everything is told.
    pub history_of: Option<String>,
    /// Something is done wrongly on purpose, to see that it is noticed.
    pub fault: Option<InjectedFault>,
}

impl SimulationSetup {
    /// The world that must hold: 300 requests at 100 sites for 30 days.
    pub const fn large(seed: u64) -> Self {
        Self { seed, requests: 300, sites: 100, days: 30, history_of: None, fault: None }
    }

    /// One that a debug build gets through in a second or two.
    pub fn small(seed: u64) -> Self {
        Self { requests: 40, sites: 20, days: 12, ..Self::large(seed) }
    }
}

/// Something that must not happen, and that the simulation makes happen to see whether anybody notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// A unit that failed is told of as completed.
    ReportFailedUnitCompleted,
    /// The input of a unit that failed is taken for processed.
    CreditFailedUnit,
    /// What earlier rounds have processed is planned once more.
    ForgetFileRows,
    /// A file that nobody found bad is left out.
    ExcludeGoodFile,
    /// A request fails though nobody wanted it to.
    FailByItself,
    /// Nobody looks at one of the requests any more.
    ForgetRequest,
    /// Generated events begin at the same number in each round.
    RepeatNumbers,
    /// Alerts are lost.
    LoseAlerts,
    /// A round is rescued as often as it fails.
    RescueForEver,
    /// That a unit is completed is not told.
    LoseUnit,
    /// What people want is forgotten.
    LoseOperatorRequests,
}

/// How often things go wrong. Not a setting: a world in which less goes wrong shows less.
pub(crate) mod weather {
    use std::time::Duration;

    const HOUR: Duration = Duration::from_hours(1);

    /// Between two outages of a site, and how long one lasts at most.
    pub(crate) const OUTAGE_EVERY: Duration = Duration::from_hours(24 * 20);
    pub(crate) const LONGEST_OUTAGE: f64 = 40.0;
    /// Of outages: those in which jobs are taken, and fail at once.
    pub(crate) const BLACK_HOLES: f64 = 0.35;
    /// Of sites: those that take much longer than others.
    pub(crate) const SLOW_SITES: f64 = 0.10;
    pub(crate) const CRASH_EVERY: Duration = Duration::from_hours(16);
    pub(crate) const CATALOG_OUTAGE_EVERY: Duration = Duration::from_hours(24 * 4);
    pub(crate) const SCHEDD_OUTAGE_EVERY: Duration = Duration::from_hours(24 * 3);
    /// Of input files: those that nobody can read, and those of which one copy is bad.
    pub(crate) const CORRUPT_FILES: f64 = 0.010;
    pub(crate) const BAD_COPIES: f64 = 0.004;
    /// Those that crash whatever reads them.
    pub(crate) const POISON: f64 = 0.002;
    /// Of requests: those that cannot succeed before somebody has mended something.
    pub(crate) const BROKEN_REQUESTS: f64 = 0.06;
    /// Of attempts.
    pub(crate) const TRANSIENT: f64 = 0.020;
    pub(crate) const INFRASTRUCTURE: f64 = 0.010;
    pub(crate) const UNKNOWN: f64 = 0.004;
    pub(crate) const PERMANENT: f64 = 0.0015;
    /// Of effects: those that fail, and those that are done though their answer gets lost.
    pub(crate) const EFFECT_FAILS: f64 = 0.01;
    pub(crate) const ANSWER_LOST: f64 = 0.01;
    /// How soon a person looks at a request that is held.
    pub(crate) const OPERATOR_DELAY_HOURS: (f64, f64) = (1.0, 30.0);
    /// So many runs may be active for each hundred requests.
    pub(crate) const ACTIVE_RUNS_PER_REQUEST: f64 = 0.35;
    /// All requests are looked at so often, whether something was heard of them or not.
    pub(crate) const FULL_SCAN_INTERVAL: Duration = Duration::from_hours(6);
    /// Afterwards, for whatever is left to come to its end.
    pub(crate) const DRAIN: Duration = HOUR.saturating_mul(24 * 40);
}
