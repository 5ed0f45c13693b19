//! `windlass watch`: follows a workflow until it is over, recovers it on the way, and says by its exit code how it went.

mod news;
mod nodes;

use crate::args::recover::WatchArgs;
use crate::context::Context;
use crate::drive::{Failed, conduct};
use crate::error::{CliError, Exit};
use crate::recovery::{self, Talk};
use crate::ui::summary;
use crate::ui::text;
use crate::view::{self, State};
use crate::{rerun, select};
use news::News;
use nodes::{Attendant, Nodes};
use std::sync::Arc;
use windlass_engine::{RunEnd, budget_is_used_up};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{JobStatus, WorkflowId};

pub(crate) fn run(ctx: &Context, args: &WatchArgs) -> Result<Exit, CliError> {
    let acts = args.recover || args.how.ai.is_asked || args.slurm.auto_schedule || args.wait_for_decisions;
    let store = if acts { ctx.open_write()? } else { ctx.open_read()? };
    let row = select::workflow(&*store, &args.workflow)?;
    let attendant = Attendant::of(ctx, &*store, row.id, args)?;
    let has_waited = false;
    let mut watch = Watch { ctx, store, workflow: row.id, args, recoveries: 0, attendant, has_waited };
    let state = watch.follow_to_the_end()?;
    summary::report_followed(ctx, &*watch.store, row.id)?;
    watch.say_why(state)?;
    Ok(exit_of(state))
}

const fn exit_of(state: State) -> Exit {
    match state {
        State::Completed => Exit::Success,
        State::Failed | State::Canceled => Exit::JobsFailed,
        State::NeedsDecision => Exit::NeedsDecision,
        State::Created | State::Running | State::Interrupted => Exit::Interrupted,
    }
}

struct Watch<'a> {
    ctx: &'a Context,
    store: Arc<dyn Store>,
    workflow: WorkflowId,
    args: &'a WatchArgs,
    recoveries: u32,
    /// Sees to the allocations of one that runs on Slurm.
    attendant: Option<Attendant<'a>>,
    /// Jobs waited for a decision, and it was made: the workflow goes on.
    has_waited: bool,
}

impl Watch<'_> {
    /// Follows, recovers and goes on, until there is nothing more to be done from here.
    fn follow_to_the_end(&mut self) -> Result<State, CliError> {
        loop {
            let state = self.follow()?;
            let goes_on = match state {
                State::Failed | State::NeedsDecision if self.recover(state)? => true,
                State::NeedsDecision if self.args.wait_for_decisions && self.undecided()? > 0 => {
                    self.wait_for_decisions()?;
                    continue;
                }
                State::Created | State::Interrupted if std::mem::take(&mut self.has_waited) => true,
                // Where nothing but allocations is missing, beginning anew brings none.
                State::Interrupted if self.has_no_nodes() => false,
                // Each time it stops by itself: a budget of retries may be used up again and again.
                State::Created | State::Interrupted => self.args.recover && self.may_try_again(),
                State::Failed
                | State::NeedsDecision
                | State::Running
                | State::Completed
                | State::Canceled => false,
            };
            if !goes_on {
                return Ok(state);
            }
            if !self.has_somebody_go_on()? {
                return Ok(State::Interrupted);
            }
        }
    }

    /// Waits until nobody goes on with it.
    fn follow(&mut self) -> Result<State, CliError> {
        let row = rerun::row(&*self.store, self.workflow)?;
        let mut state = self.state(&row)?;
        if state != State::Running {
            return Ok(state);
        }
        self.ctx.ui.note(&format!("following workflow {} ({})", row.id, text::one_line(&row.name)));
        let mut news = News::begin(self.ctx, &*self.store, &row)?;
        while state == State::Running {
            let row = news.look(&mut self.store)?;
            state = self.state(&row)?;
            if let Some(attendant) = self.attendant.as_mut().filter(|_| state == State::Running)
                && attendant.look(&*self.store, &row)? == Nodes::Gone
            {
                return Ok(State::Interrupted);
            }
        }
        Ok(state)
    }

    /// Waits until something was decided about the jobs that are `pending_failed`.
    fn wait_for_decisions(&mut self) -> Result<(), CliError> {
        let row = rerun::row(&*self.store, self.workflow)?;
        let before = row.counts.get(JobStatus::PendingFailed);
        let (id, jobs) = (row.id, text::count(before, "job"));
        self.ctx.ui.note(&format!(
            "{jobs} of workflow {id} wait for a decision: `windlass triage {id}` shows them; waiting"
        ));
        let mut news = News::begin(self.ctx, &*self.store, &row)?;
        loop {
            let row = news.look(&mut self.store)?;
            if self.state(&row)? != State::NeedsDecision || row.counts.get(JobStatus::PendingFailed) < before
            {
                self.has_waited = true;
                return Ok(());
            }
        }
    }

    fn state(&self, row: &WorkflowRow) -> Result<State, CliError> {
        let state = State::of(row, view::is_run_by_somebody(&*self.store, row));
        let stands_still = row.counts.active() == 0 && matches!(state, State::Running | State::Interrupted);
        let is_held = stands_still && budget_is_used_up(&*self.store, row)?;
        Ok(if is_held { State::NeedsDecision } else { state })
    }

    fn has_no_nodes(&self) -> bool {
        self.attendant.as_ref().is_some_and(Attendant::has_given_up)
    }

    /// Counts, and says so when it was often enough.
    fn may_try_again(&mut self) -> bool {
        let most = self.args.max_retries;
        if self.recoveries >= most {
            let times = text::count(u64::from(most), "time");
            self.ctx.ui.warn(&format!("it was brought back {times}, which is all that --max-retries allows"));
            return false;
        }
        self.recoveries += 1;
        true
    }

    /// Whether something runs again.
    fn recover(&mut self, state: State) -> Result<bool, CliError> {
        let (ctx, args, workflow) = (self.ctx, self.args, self.workflow);
        let asks_only = !args.recover && state == State::NeedsDecision && args.how.ai.is_asked;
        if !(args.recover || asks_only) || !self.may_try_again() {
            return Ok(false);
        }
        let before = self.undecided()?;
        if asks_only {
            let row = rerun::row(&*self.store, workflow)?;
            recovery::agent::ask(ctx, &*self.store, &row, &args.how.ai)?;
            return Ok(self.undecided()? < before);
        }
        let (round, most) = (self.recoveries, args.max_retries);
        ctx.ui.note(&format!("workflow {workflow} stopped with failures; recovering it ({round} of {most})"));
        let talk = if ctx.ui.json_wanted() { Talk::Briefly } else { Talk::Fully };
        let done = recovery::recover(ctx, &*self.store, workflow, &args.how, &args.machine, talk)?;
        Ok(done.again > 0 || self.undecided()? < before)
    }

    fn undecided(&self) -> Result<u64, CliError> {
        Ok(rerun::row(&*self.store, self.workflow)?.counts.get(JobStatus::PendingFailed))
    }

    /// A server has its workers; here we run it ourselves, unless somebody does. Whether it went on.
    fn has_somebody_go_on(&self) -> Result<bool, CliError> {
        let Self { ctx, store, workflow, args, .. } = self;
        if let Some(client) = ctx.server()? {
            client.start_workflow(*workflow)?;
            return Ok(true);
        }
        let row = rerun::row(&**store, *workflow)?;
        if view::is_run_by_somebody(&**store, &row) {
            return Ok(true);
        }
        let observer = ctx.ui.observer(row.counts.total());
        let run = conduct(ctx, &**store, *workflow, Failed::Keep, &args.machine, observer)?;
        Ok(run.end != RunEnd::Interrupted)
    }

    /// What a person should know who wonders about the exit code.
    fn say_why(&self, state: State) -> Result<(), CliError> {
        let (ui, id) = (&self.ctx.ui, self.workflow);
        match state {
            State::NeedsDecision => match self.undecided()? {
                0 => ui.note(&format!(
                    "its retry budget is used up; `windlass resume {id}` goes on all the same"
                )),
                n => {
                    let jobs = text::count(n, "job");
                    ui.note(&format!("{jobs} of workflow {id} wait for a decision (pending_failed)"));
                    ui.note("next: windlass watch --wait-for-decisions waits for it and goes on");
                }
            },
            State::Failed if !self.args.recover => ui.note("--recover brings it back and goes on"),
            State::Interrupted if self.has_no_nodes() => {
                ui.note(&format!(
                    "jobs of workflow {id} are ready, and no allocation is left: `windlass slurm regenerate {id} --submit` asks \
                     for new ones, and --auto-schedule does so whenever that happens"
                ));
            }
            State::Created | State::Interrupted => {
                ui.note(&format!("nobody runs workflow {id}; `windlass resume {id}` goes on"));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_exit_code() {
        assert_eq!(exit_of(State::Completed), Exit::Success);
        assert_eq!(exit_of(State::NeedsDecision), Exit::NeedsDecision);
        for state in [State::Failed, State::Canceled] {
            assert_eq!(exit_of(state), Exit::JobsFailed);
        }
        for state in [State::Created, State::Interrupted, State::Running] {
            assert_eq!(exit_of(state), Exit::Interrupted);
        }
    }
}
