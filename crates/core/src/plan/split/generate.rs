//! Events without input: numbers, and the lumis they are put into. Both go on from where the rounds before have ended,
//! so that none is ever used twice. A lumi belongs to one job.

use super::too_many;
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
    let Some(events) = to_make(wanted, generation.filter_efficiency) else {
        let what = format!("{wanted} events with this filter efficiency need more than can be numbered");
        faults.request("generation.events", what, "ask for fewer events");
        return Made::default();
    };
    let per_job = per_job(input.request.splitting_algo, &terms.limits, generation.events_per_lumi);
    let first_event = input.start.first_event.max(generation.first_event).max(1);
    let first_lumi = u64::from(input.start.first_lumi.max(generation.first_lumi).max(1));
    let most = most_jobs(input, terms, per_job);
    let jobs = events.div_ceil(per_job).min(most);
    if jobs > u64::from(input.settings.max_nodes) {
        too_many(input, faults);
        return Made::default();
    }
    let planned = jobs.saturating_mul(per_job).min(events);
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
    Made { jobs: (0..jobs).map(job).collect(), events_left: events - planned }
}

/// Before the filter.
fn to_make(wanted: u64, efficiency: f64) -> Option<u64> {
    let made = wanted as f64 / efficiency;
    // 0.1 is not a tenth exactly: what is whole but for that is taken as whole.
    let near = made.round();
    let made = if (made - near).abs() <= near * 1e-12 { near } else { made.ceil() };
    let most = i64::MAX as f64;
    if efficiency >= 1.0 { Some(wanted) } else { (made < most).then_some(made as u64) }
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
    let Some(units) = input.max_units else { return u64::MAX };
    u64::from(units).saturating_mul(crate::plan::units::jobs_per_unit(per_job, terms))
}
