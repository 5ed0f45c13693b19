//! What the request and the settings come to: how much fits into a job, what a job needs, where it may run. Settled once,
//! before anything is cut, so that nothing that is planned can disagree with what is counted afterwards.

use super::choose::Selection;
use super::fault::{Faults, PlanFault};
use super::input::{PlanInput, PlanSettings};
use crate::adaptive::{self, Decision, Hints, decide};
use std::collections::BTreeSet;
use windlass_types::requests::{Generation, Request, SplittingAlgo, SplittingParams};

#[derive(Debug)]
pub(super) struct Terms {
    /// What all the rest follows from.
    pub(super) decision: Decision,
    pub(super) limits: Limits,
    pub(super) sizing: Sizing,
    pub(super) selection: Selection,
    /// By name, ascending.
    pub(super) sites: Vec<String>,
    pub(super) target_merged_kb: u64,
    pub(super) most_jobs_per_unit: u32,
    pub(super) target_block_kb: u64,
}

/// How much goes into a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Files (FileBased) or lumis (LumiBased).
    pub(super) count: u64,
    /// Events: no more (EventBased), as near as possible (EventAwareLumiBased).
    pub(super) events: Option<u64>,
    /// More events than this take longer than `time_per_job`.
    pub(super) in_time: Option<u64>,
    /// Of a single lumi.
    pub(super) lumi: Option<u64>,
    pub(super) one_file: bool,
}

impl Limits {
    /// Whether so much fills a job by itself.
    pub(super) fn is_full(&self, count: u64, events: u64) -> bool {
        count >= self.count || self.most_events().is_some_and(|most| events >= most)
    }

    /// How many events make a job follows from how long each of them takes.
    fn tune(&mut self, decision: &Decision, time_per_job: Option<u64>) {
        self.events = decision.events_per_job;
        self.in_time = time_per_job
            .filter(|_| is_amount(decision.time_per_event))
            .map(|time| ((time as f64 / decision.time_per_event).floor() as u64).max(1));
    }

    pub(super) fn most_events(&self) -> Option<u64> {
        [self.events, self.in_time].into_iter().flatten().min()
    }
}

/// What a job is said to need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizing {
    pub(super) cores: u32,
    pub(super) memory_mb: u64,
    /// What was measured would need more than is allowed.
    pub(super) is_memory_capped: bool,
    pub(super) time_per_event: f64,
    pub(super) size_per_event_kb: f64,
    /// Of the events that go in, this share comes out.
    pub(super) efficiency: f64,
    min_time_sec: u64,
    min_disk_kb: u64,
}

impl Sizing {
    pub(super) fn time_sec(&self, events: u64) -> u64 {
        let estimate = (events as f64 * self.time_per_event).ceil() as u64;
        estimate.max(self.min_time_sec)
    }

    /// Twice what goes in or comes out, whichever is more.
    pub(super) fn disk_kb(&self, input_bytes: u64, events: u64) -> u64 {
        let most = input_bytes.max(self.output_bytes(events));
        (most / 1024).saturating_mul(2).max(self.min_disk_kb)
    }

    /// All datasets together. Whole bytes, so that sums do not depend on how they are taken.
    pub(super) fn output_bytes(&self, events: u64) -> u64 {
        (events as f64 * self.efficiency * self.size_per_event_kb * 1024.0).ceil() as u64
    }

    pub(super) fn output_events(&self, events: u64) -> u64 {
        (events as f64 * self.efficiency).round() as u64
    }
}

impl Terms {
    pub(super) fn of(input: &PlanInput<'_>) -> Result<Self, Vec<PlanFault>> {
        let mut faults = Faults::default();
        let request = input.request;
        check_shape(input, &mut faults);
        check_hints(request, input, &mut faults);
        let mut limits = limits(request, input.settings, &mut faults);
        let hints = hints(input, &limits);
        let settings = input.settings;
        let decision = decide(&hints, &settings.window(), &settings.adaptive, input.metrics);
        limits.tune(&decision, request.splitting_params.time_per_job);
        let sizing = Sizing::new(&decision, &hints, settings);
        let selection = Selection::of(&request.splitting_params, &mut faults);
        let sites = sites(input, &mut faults);
        let params = &request.splitting_params;
        let target = |field: &str, given: Option<u64>, usual: u64, faults: &mut Faults| {
            positive(field, given, faults).unwrap_or(usual)
        };
        let target_merged_kb = target(
            "splitting_params.target_merged_size_kb",
            params.target_merged_size_kb,
            input.settings.target_merged_size_kb,
            &mut faults,
        );
        let target_block_kb = target(
            "splitting_params.target_block_size_kb",
            params.target_block_size_kb,
            input.settings.target_block_size_kb,
            &mut faults,
        );
        faults.into_result()?;
        let most_jobs_per_unit = settings.max_jobs_per_unit.max(1);
        Ok(Self {
            decision,
            limits,
            sizing,
            selection,
            sites,
            target_merged_kb,
            most_jobs_per_unit,
            target_block_kb,
        })
    }
}

/// Either there is input or events are generated.
fn check_shape(input: &PlanInput<'_>, faults: &mut Faults) {
    let request = input.request;
    match (&request.input_dataset, request.generation) {
        (Some(_), Some(_)) => faults.request(
            "generation",
            "the request has an input dataset as well",
            "leave out one of `input_dataset` and `generation`",
        ),
        (None, None) => faults.request(
            "input_dataset",
            "there is none, and no events are generated",
            "name a dataset or say how many events to generate",
        ),
        (Some(name), None) if input.files.is_empty() => faults.request(
            "input_dataset",
            format!("{name} has no files that are to be processed"),
            "add files to it, or name another dataset",
        ),
        (None, Some(_)) if request.splitting_algo == SplittingAlgo::FileBased => faults.request(
            "splitting_algo",
            "FileBased cuts files, and there are none when events are generated",
            "use EventBased",
        ),
        (None, Some(generation)) => check_generation(&generation, faults),
        (Some(_), None) => {}
    }
    if input.events_wanted == Some(0) {
        faults.request("events_wanted", "is 0", "nothing is left to plan: there are enough events");
    }
    if request.output_datasets.is_empty() {
        faults.request("output_datasets", "there are none", "name the datasets that the request makes");
    }
    if input.max_units == Some(0) {
        faults.request("max_units", "a round of no work units plans nothing", "let it have at least one");
    }
}

fn check_generation(generation: &Generation, faults: &mut Faults) {
    let efficiency = generation.filter_efficiency;
    if !(efficiency > 0.0 && efficiency <= 1.0) {
        let what = format!("{efficiency} is not a share of events");
        faults.request("generation.filter_efficiency", what, "give a number above 0 and not above 1");
    }
    if generation.events_per_lumi == 0 {
        faults.request("generation.events_per_lumi", "is 0", "let a lumi have at least one event");
    }
    if generation.events == 0 {
        faults.request("generation.events", "is 0", "say how many events are wanted");
    }
}

/// Faults of what the request says about its jobs.
fn check_hints(request: &Request, input: &PlanInput<'_>, faults: &mut Faults) {
    for (field, value) in
        [("time_per_event_sec", request.time_per_event_sec), ("size_per_event_kb", request.size_per_event_kb)]
    {
        if !(value.is_finite() && value >= 0.0) {
            faults.request(field, format!("{value} is no amount"), "give a number that is not negative");
        }
    }
    if request.multicore == 0 {
        faults.request("multicore", "is 0", "a job needs at least one core");
    }
    //
    let (cores, most) = (request.multicore, input.settings.window().most(request.multicore));
    let memory_mb = input.memory_mb.unwrap_or(request.memory_mb);
    if memory_mb > most && cores > 0 {
        let what = format!(
            "{memory_mb} MB for {cores} cores is more than {} MB per core, and no site is asked for that",
            input.settings.max_memory_per_core
        );
        let remedy = format!("ask for at most {most} MB, or for more cores (`multicore`)");
        faults.request("memory_mb", what, &remedy);
    }
}

/// What the request says, for [`decide`] to hold against what was measured.
fn hints(input: &PlanInput<'_>, limits: &Limits) -> Hints {
    let request = input.request;
    Hints {
        adaptive: request.adaptive,
        cores: request.multicore,
        memory_mb: request.memory_mb,
        fixed_memory_mb: input.memory_mb,
        time_per_event: request.time_per_event_sec,
        fixed_time_per_event: input.time_per_event,
        size_per_event_kb: request.size_per_event_kb,
        efficiency: request.generation.map_or(1.0, |generation| efficiency(input, &generation)),
        events_per_job: limits.events,
        time_per_job: request.splitting_params.time_per_job,
    }
}

/// The share of generated events that is kept. It is learnt whether or not the request is to learn what its jobs need: it is
/// no matter of what they are given, but of how much is still to be made.
fn efficiency(input: &PlanInput<'_>, generation: &Generation) -> f64 {
    let hint = generation.filter_efficiency;
    // Whoever does not say how many are still wanted does not say either how many there are.
    let (Some(wanted), Some(known)) = (input.events_wanted, input.metrics) else { return hint };
    adaptive::efficiency(hint, generation.events.saturating_sub(wanted), known.events_in)
}

impl Sizing {
    fn new(decision: &Decision, hints: &Hints, settings: &PlanSettings) -> Self {
        Self {
            cores: decision.cores,
            memory_mb: decision.memory_mb,
            is_memory_capped: decision.is_memory_capped,
            time_per_event: decision.time_per_event,
            size_per_event_kb: decision.size_per_event_kb,
            efficiency: hints.efficiency,
            min_time_sec: settings.min_time_sec,
            min_disk_kb: settings.min_disk_kb,
        }
    }
}

fn is_amount(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn limits(request: &Request, settings: &PlanSettings, faults: &mut Faults) -> Limits {
    let SplittingParams {
        files_per_job,
        events_per_job,
        lumis_per_job,
        max_events_per_lumi,
        time_per_job,
        ..
    } = request.splitting_params;
    let files = positive("splitting_params.files_per_job", files_per_job, faults);
    let events = positive("splitting_params.events_per_job", events_per_job, faults);
    let lumis = positive("splitting_params.lumis_per_job", lumis_per_job, faults);
    let lumi = positive("splitting_params.max_events_per_lumi", max_events_per_lumi, faults);
    let time = positive("splitting_params.time_per_job", time_per_job, faults);
    let is_by_time = time.is_some() && is_amount(request.time_per_event_sec);
    let usual_events = if is_by_time { None } else { Some(settings.events_per_job.max(1)) };
    let (count, events) = match request.splitting_algo {
        SplittingAlgo::FileBased => (files.unwrap_or(settings.files_per_job.max(1)), None),
        SplittingAlgo::LumiBased => (lumis.unwrap_or(settings.lumis_per_job.max(1)), None),
        SplittingAlgo::EventBased | SplittingAlgo::EventAwareLumiBased => (u64::MAX, events.or(usual_events)),
    };
    Limits {
        count,
        events,
        in_time: None,
        lumi,
        one_file: request.splitting_params.halt_job_on_file_boundaries,
    }
}

fn positive(field: &str, given: Option<u64>, faults: &mut Faults) -> Option<u64> {
    if given == Some(0) {
        faults.request(field, "is 0", "give at least 1, or leave it out");
        return None;
    }
    given
}

/// Usable, wished for, and large enough for a job.
fn sites(input: &PlanInput<'_>, faults: &mut Faults) -> Vec<String> {
    let request = input.request;
    let white: BTreeSet<&str> = request.site_whitelist.iter().map(String::as_str).collect();
    let black: BTreeSet<&str> = request.site_blacklist.iter().map(String::as_str).collect();
    let cores = u64::from(request.multicore);
    let wished = |name: &str| (white.is_empty() || white.contains(name)) && !black.contains(name);
    let (sites, small): (Vec<_>, Vec<_>) = input
        .sites
        .iter()
        .filter(|(name, _)| wished(name))
        .partition(|(_, slots)| slots.is_none_or(|slots| slots >= cores));
    if sites.is_empty() {
        let (at, what) = if input.sites.is_empty() {
            ("sites", "no site may be used at present".to_owned())
        } else if let Some((name, _)) = small.first() {
            ("multicore", format!("no allowed site has {cores} slots, {name} neither"))
        } else if white.iter().any(|name| !black.contains(name)) {
            ("site_whitelist", format!("none of {} may be used at present", join(white.iter().copied())))
        } else {
            let left = join(input.sites.keys().map(String::as_str));
            ("site_blacklist", format!("of the sites that may be used ({left}) it leaves none"))
        };
        faults.sites(at, what, "enable a site, lift its ban, or change the lists of the request");
    }
    sites.into_iter().map(|(name, _)| name.clone()).collect()
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
