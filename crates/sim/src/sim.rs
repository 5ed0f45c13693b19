//! A world: everything that there is, and what happens next.

use crate::agenda::Agenda;
use crate::books::Books;
use crate::dice::Dice;
use crate::figures::{Figures, Outcome};
use crate::grid::{Failure, Grid, NodeId};
use crate::land::{Health, Land};
use crate::people::People;
use crate::server::{EffectKey, Server};
use crate::setup::{Mistake, Setup, weather};
use crate::story::Stories;
use crate::watch::{Catalog, Watch};
use crate::wishes::{Flaw, Truth, Wish, wish};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::plan::{Plan, PlanSettings};
use windlass_core::requests::admission;
use windlass_core::requests::lifecycle::Settings;
use windlass_types::Timestamp;
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::Request;

/// 2027-01-15, on the hour.
const START: Timestamp = Timestamp(1_800_000_000_000_000);

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) enum Event {
    Submit(Box<Request>),
    /// A unit looks for a site.
    Land(NodeId),
    Landed {
        id: NodeId,
        site: usize,
        fails: bool,
    },
    Attempt {
        id: NodeId,
        attempt: u64,
        site: usize,
        failure: Option<Box<Failure>>,
    },
    Retry(NodeId),
    /// Somebody tells the server that something happened to a request.
    Nudge(String),
    Pass {
        life: u32,
    },
    Outcome {
        life: u32,
        key: EffectKey,
    },
    Crash,
    Restart,
    Site {
        site: usize,
        health: Health,
    },
    Catalog {
        is_up: bool,
    },
    Schedd {
        is_up: bool,
    },
    Person(String),
    /// Somebody changes his mind about something.
    Whim,
    /// Whether anybody is forgotten.
    Inspect,
}

/// Input files, with what is wrong with some of them.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) files: Vec<CatalogFile>,
    pub(crate) flaws: BTreeMap<String, Flaw>,
    index: BTreeMap<String, usize>,
}

impl Data {
    pub(crate) fn file(&self, lfn: &str) -> Option<&CatalogFile> {
        self.index.get(lfn).map(|&at| &self.files[at])
    }
}

/// What is true of a request.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) wish: Truth,
    pub(crate) data: Arc<Data>,
    /// What was said about the time that an event takes.
    pub(crate) time_hint: f64,
}

#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) setup: Setup,
    pub(crate) now: Timestamp,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) land: Land,
    pub(crate) grid: Grid,
    pub(crate) catalog: Catalog,
    pub(crate) books: Books,
    pub(crate) server: Server,
    pub(crate) people: People,
    pub(crate) watch: Watch,
    pub(crate) stories: Stories,
    pub(crate) figures: Figures,
    pub(crate) truths: BTreeMap<String, Facts>,
    /// Plans that were written, by the directory of their round.
    pub(crate) disk: BTreeMap<String, Arc<Plan>>,
    pub(crate) decisions: Settings,
    pub(crate) admission: admission::Settings,
    pub(crate) plan_settings: PlanSettings,
    /// Nothing more goes wrong by itself.
    pub(crate) is_calm: bool,
    weather: Dice,
    end: Timestamp,
    unborn: u32,
}

/// Lets a world run to its end.
pub fn run(setup: &Setup) -> Outcome {
    let mut sim = Sim::new(setup.clone());
    let limit = sim.end.after(weather::DRAIN);
    while let Some((at, event)) = sim.agenda.next() {
        if at > limit || sim.watch.is_over() {
            break;
        }
        sim.now = at;
        sim.is_calm = at > sim.end;
        sim.happen(event);
        if sim.is_calm && sim.unborn == 0 && sim.books.open().next().is_none() {
            break;
        }
    }
    if !sim.watch.is_over() {
        sim.check_the_end();
    }
    sim.into_outcome()
}

/// The first round is small, the later ones grow; both less than in production, as all here is.
fn plan_settings() -> PlanSettings {
    let mut settings = PlanSettings::default();
    (settings.adaptive.first_round_units, settings.adaptive.growth) = (4, 4);
    settings
}

/// As production has them.
fn decisions(mistake: Option<Mistake>) -> Settings {
    let mut settings = Settings::default();
    if mistake == Some(Mistake::RescueForEver) {
        settings.recovery.max_rescues = u32::MAX;
    }
    settings
}

impl Sim {
    fn new(setup: Setup) -> Self {
        let seed = setup.seed;
        let places = (f64::from(setup.requests) * weather::PLACES).ceil() as usize;
        let mut sim = Self {
            now: START,
            agenda: Agenda::default(),
            land: Land::new(setup.sites, seed),
            grid: Grid::new(seed),
            catalog: Catalog::default(),
            books: Books::default(),
            server: Server::new(seed),
            people: People::new(seed),
            watch: Watch::default(),
            stories: Stories::new(setup.story_of.clone()),
            figures: Figures::default(),
            truths: BTreeMap::new(),
            disk: BTreeMap::new(),
            decisions: decisions(setup.mistake),
            admission: admission::Settings { max_active: places, ..admission::Settings::default() },
            plan_settings: plan_settings(),
            is_calm: false,
            weather: Dice::of(seed, "weather"),
            end: START.after(Duration::from_hours(24 * u64::from(setup.days))),
            unborn: setup.requests,
            setup,
        };
        sim.arrange();
        sim
    }

    /// What is known to happen, or to happen again and again, from the beginning.
    fn arrange(&mut self) {
        let names = self.land.names();
        let mut dice = Dice::of(self.setup.seed, "arrivals");
        let hours = 24.0 * f64::from(self.setup.days);
        for number in 0..self.setup.requests {
            let Wish { request, truth, files, flaws } = wish(number, self.setup.seed, &names);
            let index = files.iter().enumerate().map(|(at, file)| (file.lfn.clone(), at)).collect();
            let data = Arc::new(Data { files, flaws, index });
            let facts = Facts { wish: truth, data, time_hint: request.time_per_event_sec };
            self.truths.insert(request.request_name.clone(), facts);
            // Most come early: there has to be time for something to happen to them.
            let after = dice.hours(0.0, hours * 0.6);
            self.later(after, Event::Submit(Box::new(request)));
        }
        for site in 0..self.land.sites.len() {
            self.next_outage(site);
        }
        self.next_after(weather::CRASH_EVERY, Event::Crash);
        self.next_after(weather::CATALOG_OUTAGE_EVERY, Event::Catalog { is_up: false });
        self.next_after(weather::SCHEDD_OUTAGE_EVERY, Event::Schedd { is_up: false });
        self.next_whim();
        self.later(Duration::from_hours(1), Event::Inspect);
    }

    pub(crate) fn later(&mut self, after: Duration, event: Event) {
        self.agenda.note(self.now.after(after), event);
    }

    /// Something that goes wrong once in so long; not after the end.
    fn next_after(&mut self, mean: Duration, event: Event) {
        let at = self.now.after(self.weather.until_next(mean));
        if at < self.end {
            self.agenda.note(at, event);
        }
    }

    fn next_outage(&mut self, site: usize) {
        let is_hole = self.weather.chance(weather::BLACK_HOLES);
        let health = if is_hole { Health::BlackHole } else { Health::Dark };
        self.next_after(weather::OUTAGE_EVERY, Event::Site { site, health });
    }

    fn next_whim(&mut self) {
        let mean = Duration::from_hours(24 * u64::from(self.setup.days)) * 3 / self.setup.requests.max(1);
        self.next_after(mean, Event::Whim);
    }

    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.setup.mistake == Some(mistake)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Submit(request) => {
                self.unborn -= 1;
                let name = request.request_name.clone();
                self.stories.tell(self.now, &name, "submitted");
                self.books.submit(*request, self.now);
                self.nudge(&name);
            }
            Event::Land(id) => self.land(id),
            Event::Landed { id, site, fails } => self.landing_over(id, site, fails),
            Event::Attempt { id, attempt, site, failure } => {
                self.attempt_over(id, attempt, site, failure.map(|failure| *failure));
            }
            Event::Retry(id) => self.cooled_off(id),
            Event::Nudge(request) => self.nudge(&request),
            Event::Pass { life } => self.pass(life),
            Event::Outcome { life, key } => self.outcome(life, &key),
            Event::Crash => {
                self.crash();
                self.next_after(weather::CRASH_EVERY, Event::Crash);
            }
            Event::Restart => self.restart(),
            Event::Site { site, health } => self.site_becomes(site, health),
            Event::Catalog { is_up } => self.catalog_becomes(is_up),
            Event::Schedd { is_up } => self.schedd_becomes(is_up),
            Event::Person(request) => self.person_looks(&request),
            Event::Whim => {
                self.whim();
                self.next_whim();
            }
            Event::Inspect => {
                self.check_nobody_is_forgotten();
                self.later(Duration::from_hours(1), Event::Inspect);
            }
        }
    }

    fn site_becomes(&mut self, site: usize, health: Health) {
        self.land.sites[site].health = health;
        match health {
            Health::Well => {
                self.fill_slots(site);
                self.next_outage(site);
            }
            Health::Dark | Health::BlackHole => {
                if health == Health::Dark {
                    self.site_down(site);
                }
                let lasts = self.weather.hours(0.5, weather::LONGEST_OUTAGE);
                self.later(lasts, Event::Site { site, health: Health::Well });
            }
        }
    }

    fn catalog_becomes(&mut self, is_up: bool) {
        self.catalog.is_up = is_up;
        if is_up {
            self.next_after(weather::CATALOG_OUTAGE_EVERY, Event::Catalog { is_up: false });
        } else {
            // Now and then for longer than anybody waits.
            let is_long = self.weather.chance(0.15);
            let lasts = if is_long { self.weather.hours(70.0, 90.0) } else { self.weather.hours(0.2, 10.0) };
            self.later(lasts, Event::Catalog { is_up: true });
        }
    }

    fn schedd_becomes(&mut self, is_up: bool) {
        self.grid.is_schedd_up = is_up;
        if is_up {
            self.next_after(weather::SCHEDD_OUTAGE_EVERY, Event::Schedd { is_up: false });
        } else {
            let lasts = self.weather.hours(0.1, 8.0);
            self.later(lasts, Event::Schedd { is_up: true });
        }
    }

    fn into_outcome(mut self) -> Outcome {
        let mut ends = BTreeMap::new();
        for view in self.books.views.values() {
            *ends.entry(view.row.status).or_default() += 1;
        }
        self.figures.attempts = self.grid.attempts();
        Outcome {
            seed: self.setup.seed,
            ends,
            story: self.setup.story_of.as_ref().map(|name| self.stories.of(name)).unwrap_or_default(),
            digest: self.stories.digest(),
            figures: self.figures,
            violations: self.watch.violations,
            simulated: self.now.since(START),
        }
    }
}
