//! Parameters of a plan, from request and settings: job size, resources of a job, allowed sites. Computed once
//! before splitting, so that the plan and its totals agree.

use super::file_selection::LumiSelection;
use super::input::{PlanInput, PlanSettings};
use super::problems::{PlanProblem, PlanProblems};
use crate::adaptive::{self, JobHints, JobTuning, decide_tuning};
use std::collections::BTreeSet;
use windlass_types::requests::{GenerationParams, Request, SplittingAlgo, SplittingParams};

#[derive(Debug)]
pub(super) struct PlanParameters {
    /// The decision from which the rest follows.
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

/// Limits of the size of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitLimits {
    /// Files (FileBased) or lumis (LumiBased).
    pub(super) count: u64,
    /// Events: the maximum (EventBased), or the target (EventAwareLumiBased).
    pub(super) events: Option<u64>,
    /// Maximum number of events within `time_per_job`.
    pub(super) events_in_time: Option<u64>,
    /// Maximum of a single lumi.
    pub(super) events_per_lumi: Option<u64>,
    pub(super) one_file: bool,
}

impl SplitLimits {
    /// Whether this amount fills a job alone.
    pub(super) fn is_full(&self, count: u64, events: u64) -> bool {
        count >= self.count || self.max_events().is_some_and(|most| events >= most)
    }

    /// Derives the number of events per job from the time per event.
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

/// Estimated resources of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobEstimates {
    pub(super) cores: u32,
    pub(super) memory_mb: u64,
    /// Whether more memory would be needed than is allowed.
    pub(super) is_memory_capped: bool,
    pub(super) time_per_event: f64,
    pub(super) size_per_event_kb: f64,
    /// Share of input events that pass the filter.
    pub(super) efficiency: f64,
    min_time_sec: u64,
    min_disk_kb: u64,
}

impl JobEstimates {
    pub(super) fn time_sec(&self, events: u64) -> u64 {
        let estimate = (events as f64 * self.time_per_event).ceil() as u64;
        estimate.max(self.min_time_sec)
    }

    /// Twice the input or output, whichever is larger.
    pub(super) fn disk_kb(&self, input_bytes: u64, events: u64) -> u64 {
        let most = input_bytes.max(self.output_bytes(events));
        (most / 1024).saturating_mul(2).max(self.min_disk_kb)
    }

    /// All datasets together. In whole bytes, so that sums do not depend on the order.
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

/// Checks that there is either input or generation.
fn check_input_kind(input: &PlanInput<'_>, faults: &mut PlanProblems) {
    let request = input.request;
    match (&request.input_dataset, request.generation) {
        (Some(_), Some(_)) => faults.add_request_problem(
            "generation",
            "the request also has an input dataset",
            "remove one of `input_dataset` and `generation`",
        ),
        (None, None) => faults.add_request_problem(
            "input_dataset",
            "there is none, and no events are generated",
            "set a dataset or the number of events to generate",
        ),
        (Some(name), None) if input.files.is_empty() => faults.add_request_problem(
            "input_dataset",
            format!("{name} has no files to process"),
            "add files to it, or name another dataset",
        ),
        (None, Some(_)) if request.splitting_algo == SplittingAlgo::FileBased => faults.add_request_problem(
            "splitting_algo",
            "FileBased splits files, but generation has none",
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
            "set the output datasets of the request",
        );
    }
    if input.max_units == Some(0) {
        faults.add_request_problem(
            "max_units",
            "a round without work units plans nothing",
            "set it to at least one",
        );
    }
}

fn check_generation(generation: &GenerationParams, faults: &mut PlanProblems) {
    let efficiency = generation.filter_efficiency;
    if !(efficiency > 0.0 && efficiency <= 1.0) {
        let what = format!("{efficiency} is not a valid share of events");
        faults.add_request_problem(
            "generation.filter_efficiency",
            what,
            "set a number above 0 and at most 1",
        );
    }
    if generation.events_per_lumi == 0 {
        faults.add_request_problem("generation.events_per_lumi", "is 0", "set at least one event per lumi");
    }
    if generation.events == 0 {
        faults.add_request_problem("generation.events", "is 0", "set the number of events");
    }
}

/// Checks the hints of the request about its jobs.
fn check_hints(request: &Request, input: &PlanInput<'_>, faults: &mut PlanProblems) {
    for (field, value) in
        [("time_per_event_sec", request.time_per_event_sec), ("size_per_event_kb", request.size_per_event_kb)]
    {
        if !(value.is_finite() && value >= 0.0) {
            faults.add_request_problem(
                field,
                format!("{value} is not a valid amount"),
                "set a number that is not negative",
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
            "{memory_mb} MB for {cores} cores is more than the maximum of {} MB per core",
            input.settings.max_memory_per_core
        );
        let remedy = format!("request at most {most} MB, or more cores (`multicore`)");
        faults.add_request_problem("memory_mb", what, &remedy);
    }
}

/// Collects the hints of the request for [`decide_tuning`], which compares them with measurements.
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

/// Returns the share of generated events that is kept. Measured even if adaptive rounds are disabled: it
/// affects the number of events still to be generated, not the resources of jobs.
fn generation_efficiency(input: &PlanInput<'_>, generation: &GenerationParams) -> f64 {
    let hint = generation.filter_efficiency;
    // Without the number of events still wanted, the hint applies.
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
        faults.add_request_problem(field, "is 0", "set at least 1, or remove it");
        return None;
    }
    given
}

/// Returns the sites that are usable, selected by the request, and large enough for a job.
fn allowed_sites(input: &PlanInput<'_>, faults: &mut PlanProblems) -> Vec<String> {
    let request = input.request;
    let white: BTreeSet<&str> = request.site_whitelist.iter().map(String::as_str).collect();
    let black: BTreeSet<&str> = request.site_blacklist.iter().map(String::as_str).collect();
    let cores = u64::from(request.multicore);
    let is_listed = |name: &str| (white.is_empty() || white.contains(name)) && !black.contains(name);
    let (sites, small): (Vec<_>, Vec<_>) = input
        .sites
        .iter()
        .filter(|(name, _)| is_listed(name))
        .partition(|(_, slots)| slots.is_none_or(|slots| slots >= cores));
    if sites.is_empty() {
        let (at, what) = if input.sites.is_empty() {
            ("sites", "no site is usable at present".to_owned())
        } else if let Some((name, _)) = small.first() {
            ("multicore", format!("no allowed site has {cores} slots, including {name}"))
        } else if white.iter().any(|name| !black.contains(name)) {
            ("site_whitelist", format!("none of {} is usable at present", join_names(white.iter().copied())))
        } else {
            let left = join_names(input.sites.keys().map(String::as_str));
            ("site_blacklist", format!("it excludes all usable sites ({left})"))
        };
        faults.add_site_problem(
            at,
            what,
            "enable a site, remove its ban, or change the site lists of the request",
        );
    }
    sites.into_iter().map(|(name, _)| name.clone()).collect()
}

fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
