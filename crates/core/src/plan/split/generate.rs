//! Events without input: numbers, and the lumis they are put into. Both go on from where the rounds before have ended,
//! so that none is ever used twice. A lumi belongs to one job.

use super::too_many;
use crate::adaptive::to_make;
use crate::plan::fault::Faults;
use crate::plan::input::PlanInput;
use crate::plan::terms::{Limits, Terms};
use crate::plan::value::Generated;
use windlass_types::requests::{Generation, SplittingAlgo};

#[derive(Debug, Default)]
pub(in crate::plan) struct Made {
    pub(in crate::plan) jobs: Vec<Generated>,
    /// That are to be made in later rounds.
    pub(in crate::plan) events_left: u64,
}

pub(in crate::plan) fn generate(
    input: &PlanInput<'_>,
    terms: &Terms,
    generation: Generation,
    faults: &mut Faults,
) -> Made {
    let wanted = input.events_wanted.unwrap_or(generation.events);
    let now = input.until_step.map_or(wanted, |step| step.clamp(1, wanted.max(1)));
    let made = |wanted| to_make(wanted, terms.sizing.efficiency);
    let (Some(events), Some(now)) = (made(wanted), made(now)) else {
        let what = format!("{wanted} events with this filter efficiency need more than can be numbered");
        faults.request("generation.events", what, "ask for fewer events");
        return Made::default();
    };
    let per_job = per_job(input.request.splitting_algo, &terms.limits, generation.events_per_lumi);
    let first_event = input.start.first_event.max(generation.first_event).max(1);
    let first_lumi = u64::from(input.start.first_lumi.max(generation.first_lumi).max(1));
    let most = most_jobs(input, terms, per_job);
    let jobs = now.div_ceil(per_job).min(most);
    if jobs > u64::from(input.settings.max_nodes) {
        too_many(input, faults);
        return Made::default();
    }
    let planned = jobs.saturating_mul(per_job).min(now);
    let lumis_per_job = per_job.div_ceil(generation.events_per_lumi);
    // One more than is used, for the next round to begin with.
    if first_event.checked_add(planned).is_none() {
        faults.request("generation.first_event", "the numbers of the events exceed 64 bits", "begin lower");
    }
    if first_lumi.saturating_add(jobs.saturating_mul(lumis_per_job)) > u64::from(u32::MAX) {
        let remedy = "let a lumi have more events (`events_per_lumi`), or begin lower";
        faults.request("generation.first_lumi", "the numbers of the lumis exceed 32 bits", remedy);
        return Made::default();
    }
    let job = |index: u64| {
        let before = index * per_job;
        let count = per_job.min(planned - before);
        let lumi = first_lumi + index * lumis_per_job;
        let lumis = count.div_ceil(generation.events_per_lumi);
        Generated {
            first_event: first_event.saturating_add(before),
            last_event: first_event.saturating_add(before + count - 1),
            first_lumi: lumi as u32,
            last_lumi: (lumi + lumis - 1) as u32,
        }
    };
    Made { jobs: (0..jobs).map(job).collect(), events_left: events.saturating_sub(planned) }
}

/// As many events as the algorithm wants; those that cut no lumi take whole ones.
fn per_job(algo: SplittingAlgo, limits: &Limits, per_lumi: u64) -> u64 {
    let most = limits.most_events().unwrap_or(u64::MAX);
    let whole = |lumis: u64| lumis.max(1).saturating_mul(per_lumi);
    match algo {
        SplittingAlgo::EventBased | SplittingAlgo::FileBased => most,
        SplittingAlgo::LumiBased => whole(limits.count.min(most / per_lumi)),
        SplittingAlgo::EventAwareLumiBased => whole(most / per_lumi),
    }
}

/// As many as the units of this round have room for.
fn most_jobs(input: &PlanInput<'_>, terms: &Terms, per_job: u64) -> u64 {
    let of_unit = crate::plan::units::jobs_per_unit(per_job, terms);
    let in_units = input.max_units.map_or(u64::MAX, |units| u64::from(units).saturating_mul(of_unit));
    in_units.min(input.max_jobs.unwrap_or(u64::MAX)).max(1)
}
