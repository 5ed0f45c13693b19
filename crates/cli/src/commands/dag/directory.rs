//! DAGs that are in no books: workflow specs that were submitted to HTCondor. Their directory says all about them.

use super::tell_held;
use crate::args::dag::NodesArgs;
use crate::context::Context;
use crate::desk::DagVerb;
use crate::error::{CliError, Exit, with_sources};
use crate::ui::listing::{Field, Listing};
use serde_json::json;
use std::path::{Path, PathBuf};
use windlass_api::requests::{DagLogs, DagNode};
use windlass_condor::pool::{Condor, CondorError};
use windlass_condor::submit::{self, Record, SubmitError};
use windlass_condor::watch::{self, DagState, Look, NodeView, Outcome, Watch};
use windlass_condor::{layout, rescue};
use windlass_server::requests::dags::{Which, log_files};

pub(super) struct Directory {
    path: PathBuf,
}

/// One DAG as it is.
struct Whole {
    directory: String,
    look: Look,
}

const WHOLE: &[Field<Whole>] = &[
    Field::new("directory", |w: &Whole| (&w.directory).into()),
    Field::new("state", |w: &Whole| tell_state(&w.look.state).into()),
    Field::new("dagman", |w: &Whole| w.look.cluster.into()),
    Field::new("done", |w: &Whole| w.look.counts.done.into()),
    Field::new("running", |w: &Whole| w.look.counts.running.into()),
    Field::new("idle", |w: &Whole| w.look.counts.idle.into()),
    Field::new("failed", |w: &Whole| w.look.counts.failed.into()),
    Field::new("held", |w: &Whole| w.look.counts.held.into()),
    Field::new("trouble", |w: &Whole| w.look.trouble.clone().into()),
];

fn tell_state(state: &DagState) -> String {
    match state {
        DagState::NotYet => "submitted".to_owned(),
        DagState::Running => "running".to_owned(),
        DagState::Unknown => "unknown".to_owned(),
        DagState::Over(Outcome::Completed) => "completed".to_owned(),
        DagState::Over(Outcome::Failed) => "failed".to_owned(),
        DagState::Over(Outcome::Aborted) => "aborted".to_owned(),
        DagState::Over(Outcome::Removed) => "removed".to_owned(),
        DagState::Over(Outcome::Broken(why)) => format!("broken: {why}"),
    }
}

impl Directory {
    /// `None`: there is no DAG there.
    pub(super) fn at(path: &Path) -> Option<Self> {
        path.join(layout::OUTER_DAG).is_file().then(|| Self { path: path.to_owned() })
    }

    pub(super) fn show(&self, ctx: &Context) -> Result<Exit, CliError> {
        let look = Watch::new(&self.path).look();
        let held = look.tell_held();
        let directory = self.path.display().to_string();
        if ctx.ui.json_wanted() {
            let shown = json!({
                "directory": directory, "state": tell_state(&look.state), "dagman": look.cluster,
                "nodes": look.counts, "held": held, "trouble": look.trouble,
            });
            ctx.ui.print_json(&shown)?;
            return Ok(Exit::Success);
        }
        ctx.ui.print_record(&Listing::new(WHOLE), Whole { directory, look })?;
        tell_held(ctx, &held)?;
        Ok(Exit::Success)
    }

    pub(super) fn nodes(&self, args: &NodesArgs) -> Result<Vec<DagNode>, CliError> {
        let unreadable = |error| CliError::io(format!("{}: {error}", self.path.display()));
        let views = watch::nodes(&self.path, args.unit).map_err(unreadable)?;
        let is_wanted = |view: &NodeView| {
            args.status.is_empty() || args.status.iter().any(|word| view.state.name() == word)
        };
        let wanted = views.into_iter().filter(is_wanted).skip(args.offset as usize);
        Ok(wanted.take(args.limit as usize).map(node).collect())
    }

    pub(super) fn logs(&self, which: &Which) -> DagLogs {
        let directory = self.path.display().to_string();
        let files = log_files(&self.path, which);
        let message = if files.is_empty() { "there are no such logs yet" } else { "the logs that there are" };
        DagLogs {
            dag_id: String::new(),
            submit_dir: directory.clone(),
            log_dir: Some(directory),
            engine_workflow_id: None,
            files,
            message: message.to_owned(),
        }
    }

    pub(super) fn act(&self, ctx: &Context, verb: DagVerb, reason: &str) -> Result<Exit, CliError> {
        let record = Record::read(&self.path).map_err(|error| of_submit(&error))?;
        let last = record.as_ref().and_then(|record| record.submissions.last());
        let (Some(record), Some(last)) = (&record, last) else {
            return Err(CliError::refused(format!("the DAG of {} was never submitted", self.path.display())));
        };
        let condor = Condor { schedd: last.schedd.clone(), ..Condor::default() };
        if verb == DagVerb::Rescue {
            return self.rescue(ctx, &condor, &record.batch, last.number + 1);
        }
        let cluster = last.cluster.ok_or_else(|| {
            CliError::refused(
                "whether it was submitted is not known: submit it again, and it is found".to_owned(),
            )
        })?;
        let reason = if reason.is_empty() { "by windlass dag" } else { reason };
        let done = match verb {
            DagVerb::Hold => condor.hold(cluster, reason),
            DagVerb::Release => condor.release(cluster, reason),
            DagVerb::Remove | DagVerb::Rescue => condor.remove(cluster, reason),
        };
        let told = if done.map_err(|error| of_condor(&error))? {
            "is told to"
        } else {
            "is gone, or so already, and is not told to"
        };
        ctx.ui.note(&format!("DAGMan {cluster} {told} {}", verb.name()));
        Ok(Exit::Success)
    }

    fn rescue(&self, ctx: &Context, condor: &Condor, batch: &str, number: u32) -> Result<Exit, CliError> {
        if let DagState::Over(Outcome::Completed) = Watch::new(&self.path).look().state {
            return Err(CliError::refused("it is completed: nothing is left to do".to_owned()));
        }
        rescue::prepare(&self.path, &[]).map_err(|error| CliError::io(error.to_string()))?;
        let submitted =
            submit::rescue(condor, &self.path, batch, number).map_err(|error| of_submit(&error))?;
        ctx.ui.note(&format!("DAGMan {} goes on with it", submitted.cluster));
        Ok(Exit::Success)
    }
}

fn node(view: NodeView) -> DagNode {
    let held = view.held.map(|hold| hold.to_string());
    DagNode {
        name: view.name,
        role: String::new(),
        work_unit: None,
        status: view.state.name().to_owned(),
        attempt: view.attempts.into(),
        return_code: None,
        reason: held.or(Some(view.details).filter(|details| !details.is_empty())),
        job_id: None,
        cluster_id: view.cluster,
        site: view.site,
    }
}

fn of_condor(error: &CondorError) -> CliError {
    CliError::io(with_sources(error))
}

fn of_submit(error: &SubmitError) -> CliError {
    CliError::refused(with_sources(error))
}
