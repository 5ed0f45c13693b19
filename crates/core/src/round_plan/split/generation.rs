//! Generation: event and lumi numbers. Both continue from earlier rounds, so that none is used twice. A lumi
//! belongs to one job.

use super::report_too_many_jobs;
use crate::adaptive::events_to_generate;
use crate::round_plan::input::PlanInput;
use crate::round_plan::parameters::{PlanParameters, SplitLimits};
use crate::round_plan::plan_tables::GeneratedRange;
use crate::round_plan::problems::PlanProblems;
use windlass_types::requests::{GenerationParams, SplittingAlgo};

#[derive(Debug, Default)]
pub(in crate::round_plan) struct GeneratedJobs {
    pub(in crate::round_plan) jobs: Vec<GeneratedRange>,
    /// Events to be generated in later rounds.
    pub(in crate::round_plan) events_left: u64,
}

pub(in crate::round_plan) fn generate_jobs(
    input: &PlanInput<'_>,
    terms: &PlanParameters,
    generation: GenerationParams,
    faults: &mut PlanProblems,
) -> GeneratedJobs {
    let wanted = input.events_wanted.unwrap_or(generation.events);
    let now = input.until_step.map_or(wanted, |step| step.clamp(1, wanted.max(1)));
    let made = |wanted| events_to_generate(wanted, terms.estimates.efficiency);
    let (Some(events), Some(now)) = (made(wanted), made(now)) else {
        let what = format!("{wanted} events with this filter efficiency exceed the event numbers");
        faults.add_request_problem("generation.events", what, "request fewer events");
        return GeneratedJobs::default();
    };
    let per_job = events_per_job(input.request.splitting_algo, &terms.limits, generation.events_per_lumi);
    let first_event = input.start.first_event.max(generation.first_event).max(1);
    let first_lumi = u64::from(input.start.first_lumi.max(generation.first_lumi).max(1));
    let most = max_jobs(input, terms, per_job);
    let jobs = now.div_ceil(per_job).min(most);
    if jobs > u64::from(input.settings.max_nodes) {
        report_too_many_jobs(input, faults);
        return GeneratedJobs::default();
    }
    let planned = jobs.saturating_mul(per_job).min(now);
    let lumis_per_job = per_job.div_ceil(generation.events_per_lumi);
    // One more than is used, as the first number of the next round.
    if first_event.checked_add(planned).is_none() {
        faults.add_request_problem(
            "generation.first_event",
            "the numbers of the events exceed 64 bits",
            "start at lower numbers",
        );
    }
    if first_lumi.saturating_add(jobs.saturating_mul(lumis_per_job)) > u64::from(u32::MAX) {
        let remedy = "use more events per lumi (`events_per_lumi`), or start at lower numbers";
        faults.add_request_problem(
            "generation.first_lumi",
            "the numbers of the lumis exceed 32 bits",
            remedy,
        );
        return GeneratedJobs::default();
    }
    let job = |index: u64| {
        let before = index * per_job;
        let count = per_job.min(planned - before);
        let lumi = first_lumi + index * lumis_per_job;
        let lumis = count.div_ceil(generation.events_per_lumi);
        GeneratedRange {
            first_event: first_event.saturating_add(before),
            last_event: first_event.saturating_add(before + count - 1),
            first_lumi: lumi as u32,
            last_lumi: (lumi + lumis - 1) as u32,
        }
    };
    GeneratedJobs { jobs: (0..jobs).map(job).collect(), events_left: events.saturating_sub(planned) }
}

/// Returns the number of events set by the algorithm; algorithms that do not split lumis use whole ones.
fn events_per_job(algo: SplittingAlgo, limits: &SplitLimits, per_lumi: u64) -> u64 {
    let most = limits.max_events().unwrap_or(u64::MAX);
    let whole = |lumis: u64| lumis.max(1).saturating_mul(per_lumi);
    match algo {
        SplittingAlgo::EventBased | SplittingAlgo::FileBased => most,
        SplittingAlgo::LumiBased => whole(limits.count.min(most / per_lumi)),
        SplittingAlgo::EventAwareLumiBased => whole(most / per_lumi),
    }
}

/// Returns the maximum number of jobs in the units of this round.
fn max_jobs(input: &PlanInput<'_>, terms: &PlanParameters, per_job: u64) -> u64 {
    let of_unit = crate::round_plan::work_units::jobs_per_unit(per_job, terms);
    let in_units = input.max_units.map_or(u64::MAX, |units| u64::from(units).saturating_mul(of_unit));
    in_units.min(input.max_jobs.unwrap_or(u64::MAX)).max(1)
}
