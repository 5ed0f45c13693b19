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
use windlass_condor::submit::{Desk, Record, SubmitError};
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

    pub(super) fn logs(&self, which: &Which) -> Result<DagLogs, CliError> {
        let directory = self.path.display().to_string();
        let found = log_files(&self.path, which)?;
        let message = match found.trouble {
            Some(trouble) => trouble,
            None if found.files.is_empty() => "there are no logs yet".to_owned(),
            None => "the logs that there are".to_owned(),
        };
        Ok(DagLogs {
            dag_id: String::new(),
            submit_dir: directory.clone(),
            log_dir: Some(directory),
            engine_workflow_id: None,
            files: found.files,
            message,
        })
    }

    pub(super) fn act(&self, ctx: &Context, verb: DagVerb, reason: &str) -> Result<Exit, CliError> {
        let record = Record::read(&self.path).map_err(|error| self.refused(&error))?;
        let last = record.as_ref().and_then(|record| record.submissions.last());
        let (Some(record), Some(last)) = (&record, last) else {
            return Err(CliError::refused(format!("the DAG of {} was never submitted", self.path.display())));
        };
        let condor = Condor { schedd: last.schedd.clone(), ..Condor::default() };
        if verb == DagVerb::Rescue {
            return self.rescue(ctx, &condor, &record.batch);
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
        let done = done.map_err(|error| of_condor(&error))?;
        let told = if done { "is told to" } else { "is gone, or so already, and is not told to" };
        self.acted(ctx, verb, cluster, done, &format!("{told} {}", verb.name()))
    }

    /// Under the lock of the directory, so that nothing is changed of a DAG that somebody has submitted meanwhile.
    fn rescue(&self, ctx: &Context, condor: &Condor, batch: &str) -> Result<Exit, CliError> {
        let refused = |error: SubmitError| self.refused(&error);
        let mut desk = Desk::open(condor, &self.path, batch).map_err(refused)?;
        desk.check_alone().map_err(refused)?;
        if let DagState::Over(Outcome::Completed) = Watch::new(&self.path).look().state {
            return Err(CliError::refused("it is completed: nothing is left to do".to_owned()));
        }
        let number = desk.next_number();
        if desk.is_to_be_made(number).map_err(refused)? {
            rescue::prepare(&self.path, &[]).map_err(|error| CliError::io(error.to_string()))?;
        }
        let submitted = desk.hand_over(number).map_err(refused)?;
        self.acted(ctx, DagVerb::Rescue, submitted.cluster, true, "goes on with it")
    }

    /// What came of it, for people and for programs.
    fn acted(
        &self,
        ctx: &Context,
        verb: DagVerb,
        cluster: u64,
        done: bool,
        told: &str,
    ) -> Result<Exit, CliError> {
        let message = format!("DAGMan {cluster} {told}");
        if ctx.ui.json_wanted() {
            ctx.ui.print_json(&json!({
                "directory": self.path.display().to_string(), "verb": verb.name(), "dagman": cluster,
                "done": done, "message": message,
            }))?;
        }
        ctx.ui.note(&message);
        Ok(Exit::Success)
    }

    fn refused(&self, error: &SubmitError) -> CliError {
        let refused = CliError::refused(with_sources(error));
        match again(&self.path, error) {
            Some(hint) => refused.with_hint(hint),
            None => refused,
        }
    }
}

/// How to submit a DAG again that DAGMan did not accept.
pub(crate) fn again(directory: &Path, error: &SubmitError) -> Option<String> {
    let is_rejected = matches!(error, SubmitError::Rejected { .. });
    let place = directory.display();
    is_rejected.then(|| format!("once that is mended, `windlass dag rescue {place}` submits it again"))
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
