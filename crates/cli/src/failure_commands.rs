//! Failure commands given by a user, and their results as text.

use crate::args::auth::AuthSubcommand;
use crate::args::jobs::{JobsSubcommand, RequirementsSubcommand};
use crate::args::workflows::WorkflowsSubcommand;
use crate::args::{CliCommand, MachineArgs};
use crate::commands::cancel;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::recovery::local_capacity;
use crate::ui::style::TextTone;
use crate::ui::{run_summary, text};
use crate::workflow_view;
use serde::Serialize;
use windlass_insight::allocation_planning::is_on_slurm;
use windlass_insight::failure_commands;
use windlass_process::agent_mark::is_agent_descendant;
use windlass_store::Store;
use windlass_store::lock::LockHolder;
use windlass_store::model::{EventSeverity, NewEvent, WorkflowRow};
use windlass_types::failure_commands::{
    FailureCommandBatch, FailureCommandKind, FailureCommandOutcome, FailureCommandStatus, PendingCommand,
};
use windlass_types::{JobId, WorkflowId};

/// Maximum number of jobs named.
const MAX_NAMED: usize = 5;

/// Set for a started agent: its decisions on the command line are recorded under this name.
pub(crate) const AGENT_VARIABLE: &str = "WINDLASS_AGENT";

/// Name of an agent that removed its name from its environment.
const UNNAMED_AGENT: &str = "agent";

/// The agent that decides here; `None` for a user. A process started by an agent acts as the agent, regardless
/// of its environment.
pub(crate) fn acting_agent(named: Option<&str>) -> Option<String> {
    let shown = || std::env::var(AGENT_VARIABLE).ok().filter(|name| !name.is_empty());
    let marked = || is_agent_descendant().then(|| UNNAMED_AGENT.to_owned());
    named.map(str::to_owned).or_else(shown).or_else(marked)
}

/// Rejects commands of agents that bypass the policy for their decisions: for each agent those that change jobs,
/// and for processes started by an agent also those that grant permissions or affect whole workflows.
pub(crate) fn refuse_command_for_agents(command: &CliCommand) -> Result<(), CliError> {
    let is_refused = acting_agent(None).is_some() && changes_jobs(command)
        || is_agent_descendant() && requires_person(command);
    if !is_refused {
        return Ok(());
    }
    let why =
        "agents may not use this command: it grants permissions, or changes more than agents may decide";
    Err(CliError::refused(why)
        .with_hint("agents use `windlass failures`; for anything else, ask the user who started the agent"))
}

fn requires_person(command: &CliCommand) -> bool {
    use WorkflowsSubcommand as W;
    match command {
        CliCommand::Serve(_) | CliCommand::Db(_) | CliCommand::Cancel(_) => true,
        CliCommand::Auth(args) => !matches!(args.verb, AuthSubcommand::Whoami | AuthSubcommand::Ping),
        CliCommand::Workflows(args) => {
            matches!(args.verb, Some(W::Update(_) | W::Delete(_) | W::Archive(_) | W::Import(_)))
        }
        _ => changes_jobs(command),
    }
}

fn changes_jobs(command: &CliCommand) -> bool {
    use JobsSubcommand as J;
    use RequirementsSubcommand as R;
    let CliCommand::Jobs(args) = command else { return false };
    match &args.verb {
        Some(J::Create(_) | J::CreateFromFile(_) | J::Update(_) | J::Delete(_) | J::DeleteAll(_)) => true,
        Some(J::Requirements(args)) => {
            matches!(args.verb, Some(R::Create(_) | R::Update(_) | R::Delete(_)))
        }
        _ => false,
    }
}

/// Prevents an agent from rerunning jobs for which the workflow requires a decision. `goes_back` selects the
/// jobs that would be rerun.
pub(crate) fn refuse_agent_rerun(
    store: &dyn Store,
    row: &WorkflowRow,
    goes_back: impl Fn(JobId) -> bool,
) -> Result<(), CliError> {
    if acting_agent(None).is_none() {
        return Ok(());
    }
    let mut kept = failure_commands::jobs_barred_to_agents(store, row)?;
    kept.retain(|job, _| goes_back(*job));
    failure_commands::describe_barred_jobs(&kept).map_or(Ok(()), |why| {
        Err(CliError::refused(why).with_hint(
            "`windlass failures pending` lists waiting failures, and `windlass failures retry` retries them; anything else needs a user",
        ))
    })
}

/// Records an action of an agent that is not a decision about a job.
pub(crate) fn record_agent_action(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    what: &str,
) -> Result<(), CliError> {
    let Some(agent) = acting_agent(None) else { return Ok(()) };
    let event = NewEvent {
        workflow: Some(workflow),
        job: None,
        severity: EventSeverity::Info,
        category: "agent".to_owned(),
        message: format!("agent `{agent}`: {what}"),
        data: Some(serde_json::json!({ "agent": agent })),
    };
    store.add_event(&event, ctx.clock.now())?;
    Ok(())
}

/// Applies the commands in the process that may apply them, and returns the result per command.
pub(crate) fn submit_failure_commands(
    store: &dyn Store,
    workflow: WorkflowId,
    wanted: &PendingCommand,
) -> Result<Vec<FailureCommandOutcome>, CliError> {
    // If the signal fails, the process still polls for pending commands.
    Ok(failure_commands::submit_failure_commands(store, workflow, wanted, &|holder| {
        drop(cancel::signal_holder(holder));
    })?)
}

/// Checks for users and agents alike that no job requests more than any worker has. A server checks this
/// itself.
pub(crate) fn submit_failure_commands_within_limits(
    store: &dyn Store,
    workflow: WorkflowId,
    orders: FailureCommandBatch,
) -> Result<Vec<FailureCommandOutcome>, CliError> {
    let is_capacity_unknown = windlass_insight::is_remote_store(store) || is_on_slurm(store, workflow)?;
    if is_capacity_unknown || !failure_commands::changes_resources(&orders) {
        return submit_failure_commands(store, workflow, &PendingCommand::Orders(orders));
    }
    let eligible = local_capacity(store, workflow, &MachineArgs::default())?;
    let wake_holder = |holder: &LockHolder| drop(cancel::signal_holder(holder));
    Ok(failure_commands::submit_within_limits(store, workflow, orders, &eligible, &wake_holder)?)
}

/// Results of failure commands, for text and JSON output.
pub(crate) struct FailureCommandReport<'a> {
    pub(crate) workflow: &'a WorkflowRow,
    pub(crate) dry_run: bool,
    pub(crate) outcomes: Vec<FailureCommandOutcome>,
}

#[derive(Serialize)]
struct FailureCommandReportView<'a> {
    workflow_id: WorkflowId,
    dry_run: bool,
    done: usize,
    proposed: usize,
    refused: usize,
    jobs: Vec<FailureCommandResultView<'a>>,
}

#[derive(Serialize)]
struct FailureCommandResultView<'a> {
    job_id: JobId,
    name: &'a str,
    action: FailureCommandKind,
    result: FailureCommandStatus,
    message: &'a str,
    status: Option<windlass_types::JobStatus>,
    attempt_id: Option<windlass_types::Attempt>,
}

impl FailureCommandReport<'_> {
    /// Prints the results of the commands; the exit code tells whether all were applied.
    pub(crate) fn print_report(&self, ctx: &CliContext, store: &dyn Store) -> Result<CliExit, CliError> {
        let ids: Vec<JobId> = self.outcomes.iter().map(|outcome| outcome.job).collect();
        let names = store.job_names(&ids)?;
        if ctx.ui.wants_json() {
            ctx.ui.print_json(&self.build_view(&names))?;
        } else {
            ctx.ui.print_lines(&self.render_lines(ctx, &names))?;
            if !self.dry_run && self.count_answers(FailureCommandStatus::Done) > 0 {
                self.print_next_steps(ctx, store)?;
            }
        }
        Ok(self.exit())
    }

    fn count_answers(&self, answer: FailureCommandStatus) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.answer == answer).count()
    }

    fn exit(&self) -> CliExit {
        match (
            self.count_answers(FailureCommandStatus::Refused),
            self.count_answers(FailureCommandStatus::Proposed),
        ) {
            (0, 0) => CliExit::Success,
            (0, _) => CliExit::NeedsDecision,
            _ => CliExit::Refused,
        }
    }

    fn build_view<'n>(&'n self, names: &'n [String]) -> FailureCommandReportView<'n> {
        let one = |(outcome, name): (&'n FailureCommandOutcome, &'n String)| FailureCommandResultView {
            job_id: outcome.job,
            name,
            action: outcome.kind,
            result: outcome.answer,
            message: &outcome.words,
            status: outcome.status,
            attempt_id: outcome.attempt,
        };
        FailureCommandReportView {
            workflow_id: self.workflow.id,
            dry_run: self.dry_run,
            done: self.count_answers(FailureCommandStatus::Done),
            proposed: self.count_answers(FailureCommandStatus::Proposed),
            refused: self.count_answers(FailureCommandStatus::Refused),
            jobs: self.outcomes.iter().zip(names).map(one).collect(),
        }
    }

    /// Jobs with the same result, printed on one line.
    fn render_lines(&self, ctx: &CliContext, names: &[String]) -> Vec<String> {
        let mut alike: Vec<((FailureCommandStatus, &str), Vec<&str>)> = Vec::new();
        for (outcome, name) in self.outcomes.iter().zip(names) {
            let key = (outcome.answer, outcome.words.as_str());
            match alike.iter_mut().find(|(known, _)| *known == key) {
                Some((_, jobs)) => jobs.push(name),
                None => alike.push((key, vec![name])),
            }
        }
        let paint = ctx.ui.stdout_painter();
        let line = |((answer, words), jobs): ((FailureCommandStatus, &str), Vec<&str>)| {
            let (word, tone) = match answer {
                FailureCommandStatus::Done if self.dry_run => ("would", TextTone::Good),
                FailureCommandStatus::Done => ("decided", TextTone::Good),
                FailureCommandStatus::Proposed => ("proposed", TextTone::Warn),
                FailureCommandStatus::Refused => ("refused", TextTone::Bad),
            };
            format!("{}: {} ({})", paint.apply(tone, word), text::one_line(words), render_names(&jobs))
        };
        alike.into_iter().map(line).collect()
    }

    /// The present state of the workflow, and the next command.
    fn print_next_steps(&self, ctx: &CliContext, store: &dyn Store) -> Result<(), CliError> {
        let Some(now) = store.workflow(self.workflow.id)? else { return Ok(()) };
        let counts = run_summary::render_counts(&now.counts, ctx.ui.stderr_painter());
        ctx.ui.print_note(&format!("workflow {} ({}): {counts}", now.id, text::one_line(&now.name)));
        let is_over = now.counts.settled() == now.counts.total();
        let waits = windlass_insight::needs_decision(&now.counts);
        if !is_over && !waits && !workflow_view::has_active_process(store, &now) {
            ctx.ui.print_note(&format!("next: windlass resume {}", now.id));
        }
        Ok(())
    }
}

/// `a, b, c, d, e and 45 more`
fn render_names(names: &[&str]) -> String {
    let named: Vec<String> = names.iter().take(MAX_NAMED).map(|name| text::one_line(name)).collect();
    match names.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_cannot_run_commands_that_grant_permissions() {
        let is_refused = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            requires_person(&crate::args::tests::parse(&words).unwrap())
        };
        for line in [
            "token create --name t --scope read",
            "token list",
            "login http://x",
            "logout http://x",
            "password list f",
            "access-groups list",
            "serve",
            "db check",
            "delete 1",
            "archive 1",
            "import f",
            "cancel 1",
            "workflows cancel 1",
            "workflows update 1",
            "workflows archive true 1",
            "jobs create -n a -c true",
            "jobs delete-all",
            "jobs update 1 --command true",
            "jobs requirements update large --memory 1g",
            "jobs requirements delete large",
        ] {
            assert!(is_refused(line), "{line}");
        }
        for line in [
            "whoami",
            "ping",
            "triage retry a",
            "failures approve 1",
            "export",
            "jobs list",
            "jobs requirements list",
            "workers",
        ] {
            assert!(!is_refused(line), "{line}");
        }
    }

    #[test]
    fn long_name_list_is_shortened() {
        assert_eq!(render_names(&["a", "b"]), "a, b");
        assert_eq!(render_names(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
