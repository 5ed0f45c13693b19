//! Orders about failed and waiting jobs as a person gives them, and what came of them, in words.

use crate::args::jobs::JobsVerb;
use crate::args::workflows::WorkflowsVerb;
use crate::args::{Command, MachineArgs};
use crate::commands::cancel;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::recovery::local_room;
use crate::ui::style::Tone;
use crate::ui::{summary, text};
use crate::view;
use serde::Serialize;
use windlass_insight::allocating::is_on_slurm;
use windlass_insight::orders;
use windlass_proc::agent_mark::is_marked;
use windlass_store::Store;
use windlass_store::lock::Holder;
use windlass_store::model::{NewEvent, Severity, WorkflowRow};
use windlass_types::orders::{Answer, Orders, Outcome, Verdict, Wanted};
use windlass_types::{JobId, WorkflowId};

/// So many jobs are named.
const NAMED: usize = 5;

/// Set for an agent that we start: whatever it decides through the command line, it decides as this agent.
pub(crate) const AGENT: &str = "WINDLASS_AGENT";

/// What an agent is called that took its name out of its environment.
const UNNAMED: &str = "agent";

/// The agent that decides here, unless it is a person. What an agent starts acts as an agent, whatever its environment says.
pub(crate) fn agent(named: Option<&str>) -> Option<String> {
    let said = || std::env::var(AGENT).ok().filter(|name| !name.is_empty());
    let marked = || is_marked().then(|| UNNAMED.to_owned());
    named.map(str::to_owned).or_else(said).or_else(marked)
}

/// Commands that give rights, or change something else than what agents decide about, are not for a process that an agent
/// has started.
pub(crate) fn refuse_command(command: &Command) -> Result<(), CliError> {
    if !is_marked() || !is_for_people(command) {
        return Ok(());
    }
    let why = "an agent may not use this command: it gives rights, or changes more than agents decide about";
    Err(CliError::refused(why)
        .with_hint("`windlass triage` is for agents; for all else ask the person who started the agent"))
}

fn is_for_people(command: &Command) -> bool {
    use JobsVerb as J;
    use WorkflowsVerb as W;
    match command {
        Command::Token(_)
        | Command::Login(_)
        | Command::Logout(_)
        | Command::Password(_)
        | Command::AccessGroups(_)
        | Command::Serve(_)
        | Command::Db(_)
        | Command::Delete(_)
        | Command::Archive(_)
        | Command::Import(_)
        | Command::Cancel(_) => true,
        Command::Jobs(args) => matches!(
            args.verb,
            Some(J::Create(_) | J::CreateFromFile(_) | J::Update(_) | J::Delete(_) | J::DeleteAll(_))
        ),
        Command::Workflows(args) => {
            matches!(args.verb, Some(W::Update(_) | W::Delete(_) | W::Archive(_) | W::Import(_)))
        }
        _ => false,
    }
}

/// What a workflow keeps for decisions, an agent does not have run again with everything else. `goes_back`: what would be.
pub(crate) fn refuse_agents(
    store: &dyn Store,
    row: &WorkflowRow,
    goes_back: impl Fn(JobId) -> bool,
) -> Result<(), CliError> {
    if agent(None).is_none() {
        return Ok(());
    }
    let mut kept = orders::not_for_agents(store, row)?;
    kept.retain(|job, _| goes_back(*job));
    orders::in_words(&kept).map_or(Ok(()), |why| {
        Err(CliError::refused(why).with_hint(
            "`windlass triage` shows what waits, and `windlass triage retry` decides; the rest is for a person",
        ))
    })
}

/// That an agent had something done which is no decision about a job.
pub(crate) fn note_agent(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    what: &str,
) -> Result<(), CliError> {
    let Some(agent) = agent(None) else { return Ok(()) };
    let event = NewEvent {
        workflow: Some(workflow),
        job: None,
        severity: Severity::Info,
        category: "orders".to_owned(),
        message: format!("agent `{agent}` had {what}"),
        data: Some(serde_json::json!({ "agent": agent })),
    };
    store.add_event(&event, ctx.clock.now())?;
    Ok(())
}

/// Has it done, by whom it may be done. What each order came to.
pub(crate) fn give(
    store: &dyn Store,
    workflow: WorkflowId,
    wanted: &Wanted,
) -> Result<Vec<Outcome>, CliError> {
    // Who cannot be told looks once in a while.
    Ok(orders::give(store, workflow, wanted, &|holder| drop(cancel::tell(holder)))?)
}

/// The same for decisions of people and agents: none makes a job ask for more than any worker has. A server sees to that
/// itself.
pub(crate) fn give_within_limits(
    store: &dyn Store,
    workflow: WorkflowId,
    orders: Orders,
) -> Result<Vec<Outcome>, CliError> {
    let is_judged_elsewhere = windlass_insight::is_elsewhere(store) || is_on_slurm(store, workflow)?;
    if is_judged_elsewhere || !orders::change_resources(&orders) {
        return give(store, workflow, &Wanted::Orders(orders));
    }
    let room = local_room(store, workflow, &MachineArgs::default())?;
    let nudge = |holder: &Holder| drop(cancel::tell(holder));
    Ok(orders::give_within_limits(store, workflow, orders, &room, &nudge)?)
}

/// What orders came to, for people and programs.
pub(crate) struct Given<'a> {
    pub(crate) workflow: &'a WorkflowRow,
    pub(crate) dry_run: bool,
    pub(crate) outcomes: Vec<Outcome>,
}

#[derive(Serialize)]
struct GivenView<'a> {
    workflow_id: WorkflowId,
    dry_run: bool,
    done: usize,
    proposed: usize,
    refused: usize,
    jobs: Vec<OutcomeView<'a>>,
}

#[derive(Serialize)]
struct OutcomeView<'a> {
    job_id: JobId,
    name: &'a str,
    verdict: Verdict,
    answer: Answer,
    words: &'a str,
    status: Option<windlass_types::JobStatus>,
    attempt_id: Option<windlass_types::Attempt>,
}

impl Given<'_> {
    /// Prints what came of the orders; the exit code says whether all were carried out.
    pub(crate) fn show(&self, ctx: &Context, store: &dyn Store) -> Result<Exit, CliError> {
        let ids: Vec<JobId> = self.outcomes.iter().map(|outcome| outcome.job).collect();
        let names = store.job_names(&ids)?;
        if ctx.ui.json_wanted() {
            ctx.ui.print_json(&self.view(&names))?;
        } else {
            ctx.ui.print_lines(&self.lines(ctx, &names))?;
            if !self.dry_run && self.count(Answer::Done) > 0 {
                self.say_next(ctx, store)?;
            }
        }
        Ok(self.exit())
    }

    fn count(&self, answer: Answer) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.answer == answer).count()
    }

    fn exit(&self) -> Exit {
        match (self.count(Answer::Refused), self.count(Answer::Proposed)) {
            (0, 0) => Exit::Success,
            (0, _) => Exit::NeedsDecision,
            _ => Exit::Refused,
        }
    }

    fn view<'n>(&'n self, names: &'n [String]) -> GivenView<'n> {
        let one = |(outcome, name): (&'n Outcome, &'n String)| OutcomeView {
            job_id: outcome.job,
            name,
            verdict: outcome.verdict,
            answer: outcome.answer,
            words: &outcome.words,
            status: outcome.status,
            attempt_id: outcome.attempt,
        };
        GivenView {
            workflow_id: self.workflow.id,
            dry_run: self.dry_run,
            done: self.count(Answer::Done),
            proposed: self.count(Answer::Proposed),
            refused: self.count(Answer::Refused),
            jobs: self.outcomes.iter().zip(names).map(one).collect(),
        }
    }

    /// Those of whom the same is to be said on one line.
    fn lines(&self, ctx: &Context, names: &[String]) -> Vec<String> {
        let mut alike: Vec<((Answer, &str), Vec<&str>)> = Vec::new();
        for (outcome, name) in self.outcomes.iter().zip(names) {
            let key = (outcome.answer, outcome.words.as_str());
            match alike.iter_mut().find(|(known, _)| *known == key) {
                Some((_, jobs)) => jobs.push(name),
                None => alike.push((key, vec![name])),
            }
        }
        let paint = ctx.ui.paint_out();
        let line = |((answer, words), jobs): ((Answer, &str), Vec<&str>)| {
            let (word, tone) = match answer {
                Answer::Done if self.dry_run => ("would", Tone::Good),
                Answer::Done => ("done", Tone::Good),
                Answer::Proposed => ("proposed", Tone::Warn),
                Answer::Refused => ("refused", Tone::Bad),
            };
            format!("{}: {} ({})", paint.apply(tone, word), text::one_line(words), in_words(&jobs))
        };
        alike.into_iter().map(line).collect()
    }

    /// Where the workflow stands now, and how it goes on.
    fn say_next(&self, ctx: &Context, store: &dyn Store) -> Result<(), CliError> {
        let Some(now) = store.workflow(self.workflow.id)? else { return Ok(()) };
        let counts = summary::counts_line(&now.counts, ctx.ui.paint_err());
        ctx.ui.note(&format!("workflow {} ({}): {counts}", now.id, text::one_line(&now.name)));
        let is_over = now.counts.settled() == now.counts.total();
        let waits = windlass_insight::needs_verdict(&now.counts);
        if !is_over && !waits && !view::is_run_by_somebody(store, &now) {
            ctx.ui.note(&format!("next: windlass resume {}", now.id));
        }
        Ok(())
    }
}

/// `a, b, c, d, e and 45 more`
fn in_words(names: &[&str]) -> String {
    let named: Vec<String> = names.iter().take(NAMED).map(|name| text::one_line(name)).collect();
    match names.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_named_by_the_first_of_them() {
        assert_eq!(in_words(&["a", "b"]), "a, b");
        assert_eq!(in_words(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
