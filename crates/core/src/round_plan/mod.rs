//! Planning of requests: files, events or lumis are split into jobs, jobs are grouped into work units, units
//! into blocks.
//!
//! A pure function of its input: the order of files does not matter. The stages: [`parameters`] checks the
//! request and determines limits, [`file_selection`] selects files and lumis and their order, [`split`] makes
//! jobs, [`round_fit`] leaves what exceeds the round to later ones, [`work_units`] groups jobs into units and
//! blocks. The result is a [`RoundPlan`], a compact value from which manifests are made.
//!
//! Design and reasons: docs/design/014-planning.md.

mod file_selection;
mod input;
mod parameters;
mod plan_tables;
mod problems;
mod round_fit;
mod site_sets;
mod split;
mod summary;
mod work_units;

pub use input::{PlanInput, PlanSettings, RetriesByRole, RoundStart};
pub use plan_tables::{
    FileReplica, FileSlice, GeneratedRange, LumiRange, PlanBlock, PlanFile, PlanJob, PlanJobInput,
    PlanJobWork, PlanRemainder, PlanResources, PlanUnit, RoundPlan, SlicePart,
};
pub use problems::{PlanProblem, PlanProblemCause};
pub use summary::{PlanSummary, SiteShare, ValueSpread};

use crate::adaptive::{self, ThreadProbeJobs};
use parameters::PlanParameters;
use problems::PlanProblems;
use split::PlanDraft;

/// Plans a request or one round of it, or returns all problems.
pub fn plan_round(input: &PlanInput<'_>) -> Result<RoundPlan, Vec<PlanProblem>> {
    let terms = PlanParameters::from_input(input)?;
    let mut plan = match input.request.generation {
        Some(generation) => plan_generation(input, &terms, generation),
        None => plan_splitting(input, &terms),
    }?;
    plan.probes = plan_probes(input, &terms, &plan);
    Ok(plan)
}

/// Measurements of probes are useful only if another round follows.
fn plan_probes(input: &PlanInput<'_>, terms: &PlanParameters, plan: &RoundPlan) -> Option<ThreadProbeJobs> {
    if !input.request.adaptive || plan.left_out.later == 0 && plan.events_left == 0 {
        return None;
    }
    let jobs = plan.unit(0)?.len();
    adaptive::plan_thread_probe_jobs(
        &input.settings.adaptive,
        &input.settings.memory_window(),
        &terms.tuning,
        jobs,
    )
}

fn plan_generation(
    input: &PlanInput<'_>,
    terms: &PlanParameters,
    generation: windlass_types::requests::GenerationParams,
) -> Result<RoundPlan, Vec<PlanProblem>> {
    let mut faults = PlanProblems::default();
    let made = split::generate_jobs(input, terms, generation, &mut faults);
    faults.into_result()?;
    let mut sets = site_sets::SiteSets::default();
    let anywhere = sets.intern((0..terms.sites.len() as u32).collect());
    let mut draft = PlanDraft::default();
    for work in made.jobs {
        draft.push_generated(work, anywhere);
    }
    let groups = work_units::group_into_units(&draft, &mut sets, terms);
    let mut plan = plan_tables::assemble_plan(input, terms, draft, groups, &sets, &[]);
    plan.events_left = made.events_left;
    Ok(plan)
}

fn plan_splitting(input: &PlanInput<'_>, terms: &PlanParameters) -> Result<RoundPlan, Vec<PlanProblem>> {
    let mut faults = PlanProblems::default();
    let mut sets = site_sets::SiteSets::default();
    let chosen = file_selection::select_files(input, terms, &mut sets, &mut faults);
    faults.into_result()?;
    let round = round_fit::fit_round(input, terms, chosen.files, &mut sets)?;
    let mut plan = plan_tables::assemble_plan(input, terms, round.draft, round.units, &sets, &round.files);
    plan.left_out = PlanRemainder {
        nothing_to_do: chosen.nothing_to_do,
        later: round.deferred,
        later_attempted: round.deferred_attempted,
    };
    Ok(plan)
}

#[cfg(test)]
mod tests;
