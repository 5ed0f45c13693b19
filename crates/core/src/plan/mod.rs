//! How a request becomes work: files, events or lumis are cut into jobs, jobs are put into work units, units into blocks.
//!
//! Pure, and a function of its input alone: files may come in any order and the plan is the same. The way through it:
//! [`terms`] checks the request and says what is allowed, [`choose`] which files and lumis there are and in what order,
//! [`split`] cuts them, [`rounds`] leaves for later what is more than asked for, [`units`] gathers jobs into units and
//! blocks. The outcome is a [`Plan`], a compact value that manifests are made from.
//!
//! What was decided, and why: docs/design/014-planning.md.

mod choose;
mod fault;
mod input;
mod rounds;
mod sites;
mod split;
mod summary;
mod terms;
mod units;
mod value;

pub use fault::{Cause, PlanFault};
pub use input::{PlanInput, PlanSettings, Retries, Start};
pub use summary::{PlanSummary, SiteShare, Spread};
pub use value::{
    Generated, InputView, LeftOut, LumiRange, NodeView, Part, Plan, PlanBlock, PlanFile, Replica, Resources,
    Slice, UnitView, Work,
};

use crate::adaptive::{self, Probes};
use fault::Faults;
use split::Draft;
use terms::Terms;

/// Everything that is to be done for a request, or for one round of it; or all that stands against it.
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, Vec<PlanFault>> {
    let terms = Terms::of(input)?;
    let mut plan = match input.request.generation {
        Some(generation) => generate(input, &terms, generation),
        None => cut(input, &terms),
    }?;
    plan.probes = probes(input, &terms, &plan);
    Ok(plan)
}

/// What is found out is of use only if another round follows.
fn probes(input: &PlanInput<'_>, terms: &Terms, plan: &Plan) -> Option<Probes> {
    if !input.request.adaptive || plan.left_out.later == 0 && plan.events_left == 0 {
        return None;
    }
    let jobs = plan.unit(0)?.len();
    adaptive::probes(&input.settings.adaptive, &input.settings.window(), &terms.decision, jobs)
}

fn generate(
    input: &PlanInput<'_>,
    terms: &Terms,
    generation: windlass_types::requests::Generation,
) -> Result<Plan, Vec<PlanFault>> {
    let mut faults = Faults::default();
    let made = split::generate(input, terms, generation, &mut faults);
    faults.into_result()?;
    let mut sets = sites::SiteSets::default();
    let anywhere = sets.intern((0..terms.sites.len() as u32).collect());
    let mut draft = Draft::default();
    for work in made.jobs {
        draft.push_generated(work, anywhere);
    }
    let groups = units::units(&draft, &mut sets, terms);
    let mut plan = value::assemble(input, terms, draft, groups, &sets, &[]);
    plan.events_left = made.events_left;
    Ok(plan)
}

fn cut(input: &PlanInput<'_>, terms: &Terms) -> Result<Plan, Vec<PlanFault>> {
    let mut faults = Faults::default();
    let mut sets = sites::SiteSets::default();
    let chosen = choose::choose(input, terms, &mut sets, &mut faults);
    faults.into_result()?;
    let round = rounds::fit(input, terms, chosen.files, &mut sets)?;
    let mut plan = value::assemble(input, terms, round.draft, round.units, &sets, &round.files);
    plan.left_out = LeftOut {
        nothing_to_do: chosen.nothing_to_do,
        later: round.later,
        later_attempted: round.later_attempted,
    };
    Ok(plan)
}

#[cfg(test)]
mod tests;
