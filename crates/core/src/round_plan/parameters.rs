//! What the request and the settings come to: how much fits into a job, what a job needs, where it may run. Settled once,
//! before anything is cut, so that nothing that is planned can disagree with what is counted afterwards.

use super::file_selection::LumiSelection;
use super::input::{PlanInput, PlanSettings};
use super::problems::{PlanProblem, PlanProblems};
use crate::adaptive::{self, JobHints, JobTuning, decide_tuning};
use std::collections::BTreeSet;
use windlass_types::requests::{GenerationParams, Request, SplittingAlgo, SplittingParams};

#[derive(Debug)]
pub(super) struct PlanParameters {
    /// What all the rest follows from.
    pub(super) tuning: JobTuning,
    pub(super) limits: SplitLimits,
    pub(super) estimates: JobEstimates,
    pub(super) selection: LumiSelection,
    /// By name, ascending.
    pub(super) sites: Vec<String>,
    pub(super) target_merged_kb: u64,
    pub(super) max_jobs_per_unit: u32,
    pub(super) target_block_kb: u64,
}

/// How much goes into a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitLimits {
    /// Files (FileBased) or lumis (LumiBased).
    pub(super) count: u64,
    /// Events: no more (EventBased), as near as possible (EventAwareLumiBased).
    pub(super) events: Option<u64>,
    /// More events than this take longer than `time_per_job`.
    pub(super) events_in_time: Option<u64>,
    /// Of a single lumi.
    pub(super) events_per_lumi: Option<u64>,
    pub(super) one_file: bool,
}

impl SplitLimits {
    /// Whether so much fills a job by itself.
    pub(super) fn is_full(&self, count: u64, events: u64) -> bool {
        count >= self.count || self.max_events().is_some_and(|most| events >= most)
    }

    /// How many events make a job follows from how long each of them takes.
    fn apply_tuning(&mut self, decision: &JobTuning, time_per_job: Option<u64>) {
        self.events = decision.events_per_job;
        self.events_in_time = time_per_job
            .filter(|_| is_amount(decision.time_per_event))
            .map(|time| ((time as f64 / decision.time_per_event).floor() as u64).max(1));
    }

    pub(super) fn max_events(&self) -> Option<u64> {
        [self.events, self.events_in_time].into_iter().flatten().min()
    }
}

/// What a job is said to need.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobEstimates {
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

impl JobEstimates {
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

impl PlanParameters {
    pub(super) fn from_input(input: &PlanInput<'_>) -> Result<Self, Vec<PlanProblem>> {
        let mut faults = PlanProblems::default();
        let request = input.request;
        check_input_kind(input, &mut faults);
        check_hints(request, input, &mut faults);
        let mut limits = split_limits(request, input.settings, &mut faults);
        let hints = job_hints(input, &limits);
        let settings = input.settings;
        let decision = decide_tuning(&hints, &settings.memory_window(), &settings.adaptive, input.metrics);
        limits.apply_tuning(&decision, request.splitting_params.time_per_job);
        let sizing = JobEstimates::new(&decision, &hints, settings);
        let selection = LumiSelection::from_params(&request.splitting_params, &mut faults);
        let sites = allowed_sites(input, &mut faults);
        let params = &request.splitting_params;
        let target = |field: &str, given: Option<u64>, usual: u64, faults: &mut PlanProblems| {
            positive_value(field, given, faults).unwrap_or(usual)
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
            tuning: decision,
            limits,
            estimates: sizing,
            selection,
            sites,
            target_merged_kb,
            max_jobs_per_unit: most_jobs_per_unit,
            target_block_kb,
        })
    }
}

/// Either there is input or events are generated.
fn check_input_kind(input: &PlanInput<'_>, faults: &mut PlanProblems) {
    let request = input.request;
    match (&request.input_dataset, request.generation) {
        (Some(_), Some(_)) => faults.add_request_problem(
            "generation",
            "the request has an input dataset as well",
            "leave out one of `input_dataset` and `generation`",
        ),
        (None, None) => faults.add_request_problem(
            "input_dataset",
            "there is none, and no events are generated",
            "name a dataset or say how many events to generate",
        ),
        (Some(name), None) if input.files.is_empty() => faults.add_request_problem(
            "input_dataset",
            format!("{name} has no files that are to be processed"),
            "add files to it, or name another dataset",
        ),
        (None, Some(_)) if request.splitting_algo == SplittingAlgo::FileBased => faults.add_request_problem(
            "splitting_algo",
            "FileBased cuts files, and there are none when events are generated",
            "use EventBased",
        ),
        (None, Some(generation)) => check_generation(&generation, faults),
        (Some(_), None) => {}
    }
    if input.events_wanted == Some(0) {
        faults.add_request_problem(
            "events_wanted",
            "is 0",
            "nothing is left to plan: there are enough events",
        );
    }
    if request.output_datasets.is_empty() {
        faults.add_request_problem(
            "output_datasets",
            "there are none",
            "name the datasets that the request makes",
        );
    }
    if input.max_units == Some(0) {
        faults.add_request_problem(
            "max_units",
            "a round of no work units plans nothing",
            "let it have at least one",
        );
    }
}

fn check_generation(generation: &GenerationParams, faults: &mut PlanProblems) {
    let efficiency = generation.filter_efficiency;
    if !(efficiency > 0.0 && efficiency <= 1.0) {
        let what = format!("{efficiency} is not a share of events");
        faults.add_request_problem(
            "generation.filter_efficiency",
            what,
            "give a number above 0 and not above 1",
        );
    }
    if generation.events_per_lumi == 0 {
        faults.add_request_problem(
            "generation.events_per_lumi",
            "is 0",
            "let a lumi have at least one event",
        );
    }
    if generation.events == 0 {
        faults.add_request_problem("generation.events", "is 0", "say how many events are wanted");
    }
}

/// Faults of what the request says about its jobs.
fn check_hints(request: &Request, input: &PlanInput<'_>, faults: &mut PlanProblems) {
    for (field, value) in
        [("time_per_event_sec", request.time_per_event_sec), ("size_per_event_kb", request.size_per_event_kb)]
    {
        if !(value.is_finite() && value >= 0.0) {
            faults.add_request_problem(
                field,
                format!("{value} is no amount"),
                "give a number that is not negative",
            );
        }
    }
    if request.multicore == 0 {
        faults.add_request_problem("multicore", "is 0", "a job needs at least one core");
    }
    //
    let (cores, most) = (request.multicore, input.settings.memory_window().max_memory_mb(request.multicore));
    let memory_mb = input.memory_mb.unwrap_or(request.memory_mb);
    if memory_mb > most && cores > 0 {
        let what = format!(
            "{memory_mb} MB for {cores} cores is more than {} MB per core, and no site is asked for that",
            input.settings.max_memory_per_core
        );
        let remedy = format!("ask for at most {most} MB, or for more cores (`multicore`)");
        faults.add_request_problem("memory_mb", what, &remedy);
    }
}

/// What the request says, for [`decide`] to hold against what was measured.
fn job_hints(input: &PlanInput<'_>, limits: &SplitLimits) -> JobHints {
    let request = input.request;
    JobHints {
        adaptive: request.adaptive,
        cores: request.multicore,
        memory_mb: request.memory_mb,
        fixed_memory_mb: input.memory_mb,
        time_per_event: request.time_per_event_sec,
        fixed_time_per_event: input.time_per_event,
        size_per_event_kb: request.size_per_event_kb,
        efficiency: request.generation.map_or(1.0, |generation| generation_efficiency(input, &generation)),
        events_per_job: limits.events,
        time_per_job: request.splitting_params.time_per_job,
    }
}

/// The share of generated events that is kept. It is learnt whether or not the request is to learn what its jobs need: it is
/// no matter of what they are given, but of how much is still to be made.
fn generation_efficiency(input: &PlanInput<'_>, generation: &GenerationParams) -> f64 {
    let hint = generation.filter_efficiency;
    // Whoever does not say how many are still wanted does not say either how many there are.
    let (Some(wanted), Some(known)) = (input.events_wanted, input.metrics) else { return hint };
    adaptive::estimate_filter_efficiency(hint, generation.events.saturating_sub(wanted), known.events_in)
}

impl JobEstimates {
    fn new(decision: &JobTuning, hints: &JobHints, settings: &PlanSettings) -> Self {
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

fn split_limits(request: &Request, settings: &PlanSettings, faults: &mut PlanProblems) -> SplitLimits {
    let SplittingParams {
        files_per_job,
        events_per_job,
        lumis_per_job,
        max_events_per_lumi,
        time_per_job,
        ..
    } = request.splitting_params;
    let files = positive_value("splitting_params.files_per_job", files_per_job, faults);
    let events = positive_value("splitting_params.events_per_job", events_per_job, faults);
    let lumis = positive_value("splitting_params.lumis_per_job", lumis_per_job, faults);
    let lumi = positive_value("splitting_params.max_events_per_lumi", max_events_per_lumi, faults);
    let time = positive_value("splitting_params.time_per_job", time_per_job, faults);
    let is_by_time = time.is_some() && is_amount(request.time_per_event_sec);
    let usual_events = if is_by_time { None } else { Some(settings.events_per_job.max(1)) };
    let (count, events) = match request.splitting_algo {
        SplittingAlgo::FileBased => (files.unwrap_or(settings.files_per_job.max(1)), None),
        SplittingAlgo::LumiBased => (lumis.unwrap_or(settings.lumis_per_job.max(1)), None),
        SplittingAlgo::EventBased | SplittingAlgo::EventAwareLumiBased => (u64::MAX, events.or(usual_events)),
    };
    SplitLimits {
        count,
        events,
        events_in_time: None,
        events_per_lumi: lumi,
        one_file: request.splitting_params.halt_job_on_file_boundaries,
    }
}

fn positive_value(field: &str, given: Option<u64>, faults: &mut PlanProblems) -> Option<u64> {
    if given == Some(0) {
        faults.add_request_problem(field, "is 0", "give at least 1, or leave it out");
        return None;
    }
    given
}

/// Usable, wished for, and large enough for a job.
fn allowed_sites(input: &PlanInput<'_>, faults: &mut PlanProblems) -> Vec<String> {
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
            (
                "site_whitelist",
                format!("none of {} may be used at present", join_names(white.iter().copied())),
            )
        } else {
            let left = join_names(input.sites.keys().map(String::as_str));
            ("site_blacklist", format!("of the sites that may be used ({left}) it leaves none"))
        };
        faults.add_site_problem(at, what, "enable a site, lift its ban, or change the lists of the request");
    }
    sites.into_iter().map(|(name, _)| name.clone()).collect()
}

fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
