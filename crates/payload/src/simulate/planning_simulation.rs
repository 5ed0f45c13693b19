//! Simulated rounds: planned as always, run only in this model with the law of the simulated program, and learned
//! from as always. Shows whether estimates improve, without running jobs.

use super::mix_bits;
use super::profile::{ProgramProfile, ResourceDemand, compute_demand};
use crate::metrics;
use crate::processing_job::choose_parallelism;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::adaptive::{
    RequestMeasurements, RoundEstimate, RoundMeasurement, RoundRecord, decide_round_size,
};
use windlass_core::failure_handlers::RequestRetryPolicy;
use windlass_core::round_plan::{
    PlanInput, PlanJob, PlanProblem, PlanSettings, RoundPlan, RoundStart, plan_round,
};
use windlass_types::ResourceGrowth;
use windlass_types::payload::{
    ManifestStep, ProcessingEstimates, ProcessingJob, ProcessingReport, StepMetrics, StepParallelism,
    WorkUnitMetrics,
};
use windlass_types::requests::{CleanupPolicy, GenerationParams, Request, SplittingAlgo, SplittingParams};

/// A request, and the real properties of its programs.
#[derive(Clone, Debug)]
pub struct SimulatedRequest {
    pub request: Request,
    /// Its steps in order.
    pub programs: Vec<ProgramProfile>,
    /// The steps that can run in several instances; the others are commands without a join command.
    pub can_split: Vec<bool>,
    /// Largest relative difference between jobs.
    pub noise: f64,
    pub seed: u64,
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedRound {
    pub asked: RoundEstimate,
    pub measured: RoundMeasurement,
    /// All CPU time, including job starts and attempts that ran out of memory.
    pub events_per_core_hour: f64,
    /// Attempts that were killed for memory.
    pub killed: u64,
    /// Attempts that timed out.
    pub timed_out: u64,
}

impl SimulatedRound {
    /// Relative error of the estimates of memory and time, the larger of them: 0.2 is 20 %.
    pub fn estimate_error(&self) -> f64 {
        let off = |estimate: f64, actual: f64| (estimate / actual - 1.0).abs();
        let memory = off(self.asked.expected_memory_mb, self.measured.memory_mb);
        memory.max(off(self.asked.time_per_event_sec, self.measured.time_per_event_sec))
    }
}

/// A request whose hints are wrong by factors from 0.3 to 5, in memory and in time, of programs without earlier
/// measurements. The same for the same seed.
pub fn request_with_wrong_hints(seed: u64, settings: &PlanSettings) -> SimulatedRequest {
    let mut random = RandomSource(seed);
    let cores: u32 = [4, 8, 8, 16][random.next_below(4)];
    let steps = 1 + random.next_below(3);
    let most_per_thread = 0.85 * settings.max_memory_per_core as f64 - 2000.0 / f64::from(cores);
    let programs: Vec<ProgramProfile> = (0..steps)
        .map(|index| ProgramProfile {
            name: format!("STEP{index}"),
            serial_fraction: random.next_between(0.0, 0.5),
            base_mb: random.next_between(500.0, 2000.0) as u64,
            // At most what may be requested: nothing could run otherwise.
            mb_per_thread: random.next_factor(100.0, most_per_thread) as u64,
            sec_per_event: random.next_between(1.0, 60.0),
            kb_per_event: random.next_between(20.0, 400.0) as u64,
        })
        .collect();
    let can_split = programs.iter().map(|_| random.next_below(2) == 0).collect();
    let at_most = |value: fn(&ResourceDemand) -> f64| {
        programs.iter().map(|program| value(&compute_demand(program, 1, cores, 1.0))).fold(0.0, f64::max)
    };
    let memory = at_most(|needs| needs.memory as f64 / MB);
    let time: f64 =
        programs.iter().map(|program| wall_seconds(&compute_demand(program, 1, cores, 1.0))).sum();
    let hint = random.next_factor(0.3, 5.0) * memory;
    let memory_mb = (hint as u64).min(settings.memory_window().max_memory_mb(cores));
    let time_per_event_sec = random.next_factor(0.3, 5.0) * time;
    let aimed_at = (settings.adaptive.target_job_sec - settings.adaptive.job_overhead_sec) as f64;
    let events_per_job = (aimed_at / time_per_event_sec).max(1.0) as u64;
    SimulatedRequest {
        request: build_request(cores, memory_mb, time_per_event_sec, events_per_job),
        programs,
        can_split,
        noise: 0.08,
        seed,
    }
}

/// Simulates that many rounds.
pub fn simulate_rounds(
    truth: &SimulatedRequest,
    settings: &PlanSettings,
    rounds: u32,
) -> Result<Vec<SimulatedRound>, Vec<PlanProblem>> {
    let mut random = RandomSource(truth.seed ^ 0x5eed);
    let mut experience = RequestMeasurements::default();
    let mut start = RoundStart::default();
    let mut all = Vec::new();
    for round in 0..rounds {
        let size = decide_round_size(&settings.adaptive, true, Some(&experience));
        let plan = plan_round(&PlanInput {
            request: &truth.request,
            files: &[],
            attempted: &BTreeSet::new(),
            remaining: &BTreeMap::new(),
            sites: &BTreeMap::from([("T1".to_owned(), None)]),
            settings,
            start,
            events_wanted: None,
            memory_mb: None,
            time_per_event: None,
            metrics: Some(&experience),
            max_units: size.map(|size| size.units),
            max_jobs: size.and_then(|size| size.jobs),
            until_step: None,
        })?;
        start = plan.next;
        experience.record_round(RoundRecord { round, asked: plan.asked, measured: None });
        let spent = simulate_round(truth, &plan, settings, &mut random);
        experience =
            experience.with_round_measurement(round, &spent.units).with_units(round + 1, &spent.units);
        let measured = RoundMeasurement::from_units(&spent.units, plan.resources.cores).unwrap_or_default();
        all.push(SimulatedRound {
            asked: plan.asked,
            measured,
            events_per_core_hour: spent.events as f64 * 3600.0 / spent.core_seconds,
            killed: spent.killed,
            timed_out: spent.timed_out,
        });
    }
    Ok(all)
}

const MB: f64 = 1024.0 * 1024.0;

#[derive(Default)]
struct RoundUsage {
    units: Vec<WorkUnitMetrics>,
    events: u64,
    core_seconds: f64,
    killed: u64,
    timed_out: u64,
}

fn simulate_round(
    truth: &SimulatedRequest,
    plan: &RoundPlan,
    settings: &PlanSettings,
    random: &mut RandomSource,
) -> RoundUsage {
    /// Later rounds have tens of thousands of equal jobs.
    const CARRIED_OUT: usize = 100;
    let mut spent = RoundUsage::default();
    for unit in plan.units().step_by(plan.units().len().div_ceil(CARRIED_OUT).max(1)) {
        let mut reports = Vec::new();
        for node in unit.nodes() {
            let job = SimulatedNodeJob::new(truth, plan, &node, random);
            if !job.run_with_retries(settings, plan, &node, &mut spent) {
                // Its unit is not merged, so nothing of it is known.
                break;
            }
            reports.push(ProcessingReport { steps: job.steps, ..ProcessingReport::default() });
        }
        if reports.len() == unit.len() as usize {
            spent.events += unit.events();
            spent.units.push(metrics::unit_metrics(&truth.request.request_name, "mg", "T1", &reports));
        }
    }
    spent
}

/// One job with the usage of its steps.
struct SimulatedNodeJob {
    steps: Vec<StepMetrics>,
}

impl SimulatedNodeJob {
    fn new(
        truth: &SimulatedRequest,
        plan: &RoundPlan,
        node: &PlanJob<'_>,
        random: &mut RandomSource,
    ) -> Self {
        let told = ProcessingJob {
            estimates: ProcessingEstimates { memory_mb: node.memory_mb(), ..ProcessingEstimates::default() },
            probe: node.probe().map(|probes| probes.way),
            ..ProcessingJob::default()
        };
        let speed = random.next_between(1.0 - truth.noise, 1.0 + truth.noise);
        let size = random.next_between(1.0 - truth.noise, 1.0 + truth.noise);
        let step = |(program, can_split): (&ProgramProfile, &bool)| {
            let step = ManifestStep {
                name: program.name.clone(),
                command: (!can_split).then(|| "true".to_owned()),
                threads: plan.resources.cores,
                reads: None,
                join: None,
                simulation: None,
            };
            let way = choose_parallelism(&told, &step, plan.profile.as_ref());
            StepMetrics { can_split: *can_split, ..step_usage(program, way, node.events(), speed, size) }
        };
        Self { steps: truth.programs.iter().zip(&truth.can_split).map(step).collect() }
    }

    /// Whether it succeeded. Killed jobs are retried with half as much memory more, as long as that may be
    /// requested, and timed-out jobs with more time.
    fn run_with_retries(
        &self,
        settings: &PlanSettings,
        plan: &RoundPlan,
        node: &PlanJob<'_>,
        spent: &mut RoundUsage,
    ) -> bool {
        let cores = plan.resources.cores;
        let overhead = settings.adaptive.job_overhead_sec as f64;
        let needs = |step: &StepMetrics| step.peak_rss_mb * f64::from(step.instances);
        let mut memory = node.memory_mb() as f64;
        let mut limit = RequestRetryPolicy::time_limit(node.time_sec());
        for _ in 0..=settings.retries.processing {
            // Programs allocate their memory at the start.
            let killed = self.steps.iter().position(|step| needs(step) > memory);
            let done = &self.steps[..killed.unwrap_or(self.steps.len())];
            let wall = done.iter().map(|step| step.wall_sec).sum::<f64>() + overhead;
            let is_too_long = wall > limit.as_secs_f64();
            spent.core_seconds += wall.min(limit.as_secs_f64()) * f64::from(cores);
            if is_too_long {
                spent.timed_out += 1;
                limit = ResourceGrowth::Times(RequestRetryPolicy::RUNTIME_GROWTH)
                    .grow(limit)
                    .min(RequestRetryPolicy::MAX_RUNTIME);
            } else if killed.is_none() {
                return true;
            } else {
                spent.killed += 1;
                memory = (memory * 1.5).min(settings.memory_window().max_memory_mb(cores) as f64);
            }
        }
        false
    }
}

/// The usage of a program, as the payload would measure it.
fn step_usage(
    program: &ProgramProfile,
    way: StepParallelism,
    events: u64,
    speed: f64,
    size: f64,
) -> StepMetrics {
    // The largest share decides when all are done.
    let instances = u64::from(way.instances).min(events).max(1);
    let needs = compute_demand(program, events.div_ceil(instances), way.threads, 1.0);
    let wall_sec = wall_seconds(&needs) * speed;
    let threads = f64::from(way.threads);
    let work = compute_demand(program, events, 1, 1.0);
    let cpu_sec = wall_seconds(&work) * speed;
    StepMetrics {
        step: program.name.clone(),
        threads: way.threads,
        instances: instances as u32,
        wall_sec,
        cpu_sec,
        cpu_efficiency: cpu_sec / (wall_sec * threads * instances as f64),
        peak_rss_mb: needs.memory as f64 / MB * size,
        events_read: events,
        events_written: events,
        time_per_event_sec: wall_sec / events as f64,
        ..StepMetrics::default()
    }
}

fn wall_seconds(needs: &ResourceDemand) -> f64 {
    (needs.serial + needs.parallel).as_secs_f64()
}

fn build_request(cores: u32, memory_mb: u64, time_per_event_sec: f64, events_per_job: u64) -> Request {
    Request {
        request_name: "rehearsal".to_owned(),
        requestor: "unknown".to_owned(),
        requestor_dn: None,
        group: None,
        input_dataset: None,
        secondary_input_dataset: None,
        output_datasets: vec!["/A/B-v1/GEN".to_owned()],
        generation: Some(GenerationParams {
            events: 1_000_000_000,
            first_event: 1,
            first_lumi: 1,
            events_per_lumi: 1000,
            filter_efficiency: 1.0,
        }),
        cmssw_version: None,
        scram_arch: Vec::new(),
        global_tag: None,
        memory_mb,
        time_per_event_sec,
        // Eight jobs of the first round make a unit.
        size_per_event_kb: 4_000_000.0 / (8.0 * events_per_job as f64),
        multicore: cores,
        site_whitelist: Vec::new(),
        site_blacklist: Vec::new(),
        adaptive: true,
        trust_sitelists: false,
        splitting_algo: SplittingAlgo::EventBased,
        splitting_params: SplittingParams {
            events_per_job: Some(events_per_job),
            ..SplittingParams::default()
        },
        campaign: None,
        processing_string: None,
        acquisition_era: None,
        processing_version: 1,
        priority: 1,
        urgent: false,
        production_steps: Vec::new(),
        payload_config: serde_json::Map::new(),
        previous_version_request: None,
        superseded_by_request: None,
        cleanup_policy: CleanupPolicy::KeepUntilReplaced,
    }
}

/// Pseudo-random, and the same for the same seed.
struct RandomSource(u64);

impl RandomSource {
    fn next_fraction(&mut self) -> f64 {
        self.0 = mix_bits(self.0, 1);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next_between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_fraction()
    }

    /// Half is as likely as double.
    fn next_factor(&mut self, low: f64, high: f64) -> f64 {
        self.next_between(low.ln(), high.ln()).exp()
    }

    fn next_below(&mut self, count: usize) -> usize {
        (self.next_fraction() * count as f64) as usize
    }
}
