//! The simulation: its state and its events.

use crate::backends::{SimulatedAttemptFailure, SimulatedBackends, SimulatedNodeId};
use crate::event_queue::SimulationEventQueue;
use crate::history::RequestHistories;
use crate::invariants::{InvariantChecker, OutputCatalog};
use crate::memory_store::MemoryStore;
use crate::request_generator::{FileDefect, GeneratedRequest, RequestGroundTruth, generate_request};
use crate::seeded_random::SeededRandom;
use crate::setup::{InjectedFault, SimulationSetup, failure_rates};
use crate::simulated_operators::SimulatedOperators;
use crate::simulated_server::{SimulatedEffectKey, SimulatedServer};
use crate::sites::{SimulatedGrid, SiteHealth};
use crate::statistics::{SimulationOutcome, SimulationStatistics};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::requests::admission;
use windlass_core::requests::lifecycle::LifecycleSettings;
use windlass_core::round_plan::{PlanSettings, RoundPlan};
use windlass_types::Timestamp;
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::Request;

/// 2027-01-15, on the hour.
const START: Timestamp = Timestamp(1_800_000_000_000_000);

/// An event.
#[derive(Debug)]
pub(crate) enum SimulationEvent {
    Submit(Box<Request>),
    /// A unit selects a site.
    StartLanding(SimulatedNodeId),
    Landed {
        id: SimulatedNodeId,
        site: usize,
        fails: bool,
    },
    Attempt {
        id: SimulatedNodeId,
        attempt: u64,
        site: usize,
        failure: Option<Box<SimulatedAttemptFailure>>,
    },
    Retry(SimulatedNodeId),
    /// The server is notified about a request.
    WakeServer(String),
    Pass {
        generation: u32,
    },
    EffectDone {
        generation: u32,
        key: SimulatedEffectKey,
    },
    Crash,
    Restart,
    Site {
        site: usize,
        health: SiteHealth,
    },
    Catalog {
        is_up: bool,
    },
    Schedd {
        is_up: bool,
    },
    Operator(String),
    /// A user changes a request.
    RandomChange,
    /// Check for stalled requests.
    CheckProgress,
}

/// Input files with their flaws.
#[derive(Debug)]
pub(crate) struct SimulatedInputFiles {
    pub(crate) files: Vec<CatalogFile>,
    pub(crate) defects: BTreeMap<String, FileDefect>,
    index: BTreeMap<String, usize>,
}

impl SimulatedInputFiles {
    pub(crate) fn file(&self, lfn: &str) -> Option<&CatalogFile> {
        self.index.get(lfn).map(|&at| &self.files[at])
    }
}

/// The true properties of a request and its input.
#[derive(Clone, Debug)]
pub(crate) struct RequestScenario {
    pub(crate) truth: RequestGroundTruth,
    pub(crate) data: Arc<SimulatedInputFiles>,
    /// The stated time per event.
    pub(crate) time_hint: f64,
}

#[derive(Debug)]
pub(crate) struct RequestSimulation {
    pub(crate) setup: SimulationSetup,
    pub(crate) now: Timestamp,
    pub(crate) events: SimulationEventQueue<SimulationEvent>,
    pub(crate) grid: SimulatedGrid,
    pub(crate) backends: SimulatedBackends,
    pub(crate) catalog: OutputCatalog,
    pub(crate) store: MemoryStore,
    pub(crate) server: SimulatedServer,
    pub(crate) operators: SimulatedOperators,
    pub(crate) invariants: InvariantChecker,
    pub(crate) histories: RequestHistories,
    pub(crate) statistics: SimulationStatistics,
    pub(crate) request_facts: BTreeMap<String, RequestScenario>,
    /// Written plans by the directory of their round.
    pub(crate) written_plans: BTreeMap<String, Arc<RoundPlan>>,
    pub(crate) lifecycle_settings: LifecycleSettings,
    pub(crate) admission_settings: admission::AdmissionSettings,
    pub(crate) plan_settings: PlanSettings,
    /// Whether random failures have stopped.
    pub(crate) are_faults_over: bool,
    random: SeededRandom,
    end_at: Timestamp,
    unsubmitted: u32,
}

/// Runs a simulation to its end.
pub fn run_simulation(setup: &SimulationSetup) -> SimulationOutcome {
    let mut sim = RequestSimulation::new(setup.clone());
    let limit = sim.end_at.plus(failure_rates::DRAIN);
    while let Some((at, event)) = sim.events.next_event() {
        if at > limit || sim.invariants.has_too_many_violations() {
            break;
        }
        sim.now = at;
        sim.are_faults_over = at > sim.end_at;
        sim.on_event(event);
        if sim.are_faults_over && sim.unsubmitted == 0 && sim.store.open_requests().next().is_none() {
            break;
        }
    }
    if !sim.invariants.has_too_many_violations() {
        sim.check_final_state();
    }
    sim.into_outcome()
}

/// Rounds start small and grow, both less than in production because everything is smaller here.
fn plan_settings() -> PlanSettings {
    let mut settings = PlanSettings::default();
    (settings.adaptive.first_round_units, settings.adaptive.growth) = (4, 4);
    settings
}

/// The settings of production.
fn lifecycle_settings(mistake: Option<InjectedFault>) -> LifecycleSettings {
    let mut settings = LifecycleSettings::default();
    if mistake == Some(InjectedFault::RescueForEver) {
        settings.recovery.max_rescues = u32::MAX;
    }
    settings
}

impl RequestSimulation {
    fn new(setup: SimulationSetup) -> Self {
        let seed = setup.seed;
        let places = (f64::from(setup.requests) * failure_rates::ACTIVE_RUNS_PER_REQUEST).ceil() as usize;
        let mut sim = Self {
            now: START,
            events: SimulationEventQueue::default(),
            grid: SimulatedGrid::new(setup.sites, seed),
            backends: SimulatedBackends::new(seed),
            catalog: OutputCatalog::default(),
            store: MemoryStore::default(),
            server: SimulatedServer::new(seed),
            operators: SimulatedOperators::new(seed),
            invariants: InvariantChecker::default(),
            histories: RequestHistories::new(setup.history_of.clone()),
            statistics: SimulationStatistics::default(),
            request_facts: BTreeMap::new(),
            written_plans: BTreeMap::new(),
            lifecycle_settings: lifecycle_settings(setup.fault),
            admission_settings: admission::AdmissionSettings {
                max_active: places,
                ..admission::AdmissionSettings::default()
            },
            plan_settings: plan_settings(),
            are_faults_over: false,
            random: SeededRandom::for_part(seed, "weather"),
            end_at: START.plus(Duration::from_hours(24 * u64::from(setup.days))),
            unsubmitted: setup.requests,
            setup,
        };
        sim.schedule_initial_events();
        sim
    }

    /// Schedules the initial and the recurring events.
    fn schedule_initial_events(&mut self) {
        let names = self.grid.names();
        let mut rng = SeededRandom::for_part(self.setup.seed, "arrivals");
        let hours = 24.0 * f64::from(self.setup.days);
        for number in 0..self.setup.requests {
            let GeneratedRequest { request, truth, files, defects } =
                generate_request(number, self.setup.seed, &names);
            let index = files.iter().enumerate().map(|(at, file)| (file.lfn.clone(), at)).collect();
            let data = Arc::new(SimulatedInputFiles { files, defects, index });
            let facts = RequestScenario { truth, data, time_hint: request.time_per_event_sec };
            self.request_facts.insert(request.request_name.clone(), facts);
            // Most requests are submitted early, to leave time for failures.
            let after = rng.random_hours(0.0, hours * 0.6);
            self.schedule_after(after, SimulationEvent::Submit(Box::new(request)));
        }
        for site in 0..self.grid.sites.len() {
            self.schedule_outage(site);
        }
        self.schedule_next(failure_rates::CRASH_EVERY, SimulationEvent::Crash);
        self.schedule_next(failure_rates::CATALOG_OUTAGE_EVERY, SimulationEvent::Catalog { is_up: false });
        self.schedule_next(failure_rates::SCHEDD_OUTAGE_EVERY, SimulationEvent::Schedd { is_up: false });
        self.schedule_random_change();
        self.schedule_after(Duration::from_hours(1), SimulationEvent::CheckProgress);
    }

    pub(crate) fn schedule_after(&mut self, after: Duration, event: SimulationEvent) {
        self.events.schedule(self.now.plus(after), event);
    }

    /// Schedules a failure with this mean interval, until the end of failures.
    fn schedule_next(&mut self, mean: Duration, event: SimulationEvent) {
        let at = self.now.plus(self.random.time_until_next(mean));
        if at < self.end_at {
            self.events.schedule(at, event);
        }
    }

    fn schedule_outage(&mut self, site: usize) {
        let is_hole = self.random.chance(failure_rates::BLACK_HOLES);
        let health = if is_hole { SiteHealth::BlackHole } else { SiteHealth::Down };
        self.schedule_next(failure_rates::OUTAGE_EVERY, SimulationEvent::Site { site, health });
    }

    fn schedule_random_change(&mut self) {
        let mean = Duration::from_hours(24 * u64::from(self.setup.days)) * 3 / self.setup.requests.max(1);
        self.schedule_next(mean, SimulationEvent::RandomChange);
    }

    pub(crate) fn has_fault(&self, mistake: InjectedFault) -> bool {
        self.setup.fault == Some(mistake)
    }

    fn on_event(&mut self, event: SimulationEvent) {
        match event {
            SimulationEvent::Submit(request) => {
                self.unsubmitted -= 1;
                let name = request.request_name.clone();
                self.histories.record(self.now, &name, "submitted");
                self.store.insert_request(*request, self.now);
                self.wake_server(&name);
            }
            SimulationEvent::StartLanding(id) => self.start_landing(id),
            SimulationEvent::Landed { id, site, fails } => self.on_landing_ended(id, site, fails),
            SimulationEvent::Attempt { id, attempt, site, failure } => {
                self.on_attempt_ended(id, attempt, site, failure.map(|failure| *failure));
            }
            SimulationEvent::Retry(id) => self.on_cooled_off(id),
            SimulationEvent::WakeServer(request) => self.wake_server(&request),
            SimulationEvent::Pass { generation: life } => self.run_pass(life),
            SimulationEvent::EffectDone { generation: life, key } => self.on_effect_done(life, &key),
            SimulationEvent::Crash => {
                self.crash_server();
                self.schedule_next(failure_rates::CRASH_EVERY, SimulationEvent::Crash);
            }
            SimulationEvent::Restart => self.restart_server(),
            SimulationEvent::Site { site, health } => self.set_site_health(site, health),
            SimulationEvent::Catalog { is_up } => self.set_catalog_up(is_up),
            SimulationEvent::Schedd { is_up } => self.set_schedd_up(is_up),
            SimulationEvent::Operator(request) => self.on_operator(&request),
            SimulationEvent::RandomChange => {
                self.on_random_change();
                self.schedule_random_change();
            }
            SimulationEvent::CheckProgress => {
                self.check_no_request_stalled();
                self.schedule_after(Duration::from_hours(1), SimulationEvent::CheckProgress);
            }
        }
    }

    fn set_site_health(&mut self, site: usize, health: SiteHealth) {
        self.grid.sites[site].health = health;
        match health {
            SiteHealth::Healthy => {
                self.fill_slots(site);
                self.schedule_outage(site);
            }
            SiteHealth::Down | SiteHealth::BlackHole => {
                if health == SiteHealth::Down {
                    self.fail_site_attempts(site);
                }
                let lasts = self.random.random_hours(0.5, failure_rates::LONGEST_OUTAGE);
                self.schedule_after(lasts, SimulationEvent::Site { site, health: SiteHealth::Healthy });
            }
        }
    }

    fn set_catalog_up(&mut self, is_up: bool) {
        self.catalog.is_up = is_up;
        if is_up {
            self.schedule_next(
                failure_rates::CATALOG_OUTAGE_EVERY,
                SimulationEvent::Catalog { is_up: false },
            );
        } else {
            // Sometimes longer than any timeout.
            let is_long = self.random.chance(0.15);
            let lasts = if is_long {
                self.random.random_hours(70.0, 90.0)
            } else {
                self.random.random_hours(0.2, 10.0)
            };
            self.schedule_after(lasts, SimulationEvent::Catalog { is_up: true });
        }
    }

    fn set_schedd_up(&mut self, is_up: bool) {
        self.backends.is_schedd_up = is_up;
        if is_up {
            self.schedule_next(failure_rates::SCHEDD_OUTAGE_EVERY, SimulationEvent::Schedd { is_up: false });
        } else {
            let lasts = self.random.random_hours(0.1, 8.0);
            self.schedule_after(lasts, SimulationEvent::Schedd { is_up: true });
        }
    }

    fn into_outcome(mut self) -> SimulationOutcome {
        let mut ends = BTreeMap::new();
        for view in self.store.views.values() {
            *ends.entry(view.row.status).or_default() += 1;
        }
        self.statistics.attempts = self.backends.attempts();
        SimulationOutcome {
            seed: self.setup.seed,
            final_statuses: ends,
            history: self
                .setup
                .history_of
                .as_ref()
                .map(|name| self.histories.history_of(name))
                .unwrap_or_default(),
            digest: self.histories.digest(),
            statistics: self.statistics,
            violations: self.invariants.violations,
            simulated: self.now.since(START),
        }
    }
}
