//! The nodes of a run as they are at the moment, and where their logs are: jobs of the engine, or nodes of DAGMan.

use super::run;
use crate::error::{Answer, ApiError};
use crate::requests::page;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_api::requests::{DagLogs, DagNode, DagNodes};
use windlass_condor::layout;
use windlass_condor::watch::{self, NodeState, NodeView};
use windlass_core::requests::book::{Backend, RunRow};
use windlass_store::Database;
use windlass_store::model::{JobFilter, JobRow};
use windlass_types::requests::UnitName;
use windlass_types::{JobStatus, WorkflowId};

/// Which nodes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// In one of these states: of jobs of the engine, or of nodes of DAGMan.
    pub status: Vec<String>,
    /// Of this work unit, by its number.
    pub unit: Option<u32>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// As they are at this moment. A run that was not handed over yet has none.
pub fn nodes(db: &dyn Database, uuid: &str, wanted: &Nodes) -> Answer<DagNodes> {
    let run = run(db, uuid)?;
    let items = match run.backend {
        Backend::Engine { workflow: None, .. } => Vec::new(),
        Backend::Engine { workflow: Some(workflow), .. } => of_engine(db, workflow, wanted)?,
        Backend::Htcondor { .. } => of_condor(&run, wanted)?,
    };
    Ok(DagNodes { items, offset: wanted.offset })
}

fn of_engine(db: &dyn Database, workflow: WorkflowId, wanted: &Nodes) -> Answer<Vec<DagNode>> {
    let parse = |word: &String| {
        word.parse::<JobStatus>().map_err(|error| ApiError::invalid(format!("`status`: {error}")))
    };
    let filter = JobFilter {
        status: wanted.status.iter().map(parse).collect::<Answer<_>>()?,
        name_contains: wanted.unit.map(|unit| format!("_{unit:06}")),
        offset: wanted.offset,
        limit: Some(page(wanted.limit)),
        ..JobFilter::default()
    };
    Ok(db.jobs(workflow, &filter)?.into_iter().map(job).collect())
}

fn job(job: JobRow) -> DagNode {
    let kind = job.kind.unwrap_or_default();
    DagNode {
        role: kind.split('_').next().unwrap_or_default().to_owned(),
        work_unit: unit_of(&job.name).map(|unit| UnitName(unit).to_string()),
        name: job.name,
        status: job.status.name().to_owned(),
        attempt: job.attempt_id.0.into(),
        return_code: job.return_code,
        reason: job.reason,
        job_id: Some(job.id.0),
        cluster_id: None,
        site: None,
    }
}

/// `proc_000012_3` → 12
fn unit_of(name: &str) -> Option<u32> {
    name.split('_').nth(1)?.parse().ok()
}

/// Unit by unit, and no more of them than it takes.
fn of_condor(run: &RunRow, wanted: &Nodes) -> Answer<Vec<DagNode>> {
    if let Some(unknown) =
        wanted.status.iter().find(|word| !NodeState::ALL.iter().any(|state| state.name() == *word))
    {
        let known: Vec<_> = NodeState::ALL.iter().map(|state| state.name()).collect();
        let detail = format!("`status`: `{unknown}` is no state of a node; there are {}", known.join(", "));
        return Err(ApiError::invalid(detail));
    }
    let directory = Path::new(&run.submit_dir);
    let units = wanted.unit.map_or(0..run.totals.units, |unit| unit..unit.saturating_add(1));
    let (mut skip, limit) = (wanted.offset, page(wanted.limit) as usize);
    let mut found = Vec::new();
    for unit in units {
        let views = watch::nodes(directory, Some(unit)).map_err(|error| unreadable(directory, &error))?;
        for view in views {
            let is_wanted =
                wanted.status.is_empty() || wanted.status.iter().any(|word| view.state.name() == word);
            match is_wanted {
                false => {}
                true if skip > 0 => skip -= 1,
                true => found.push(node(unit, view)),
            }
        }
        if found.len() >= limit {
            found.truncate(limit);
            break;
        }
    }
    Ok(found)
}

fn unreadable(directory: &Path, error: &io::Error) -> ApiError {
    let detail = format!("the files of the run in {} cannot be read: {error}", directory.display());
    ApiError::unavailable(detail, Duration::from_secs(5))
}

fn node(unit: u32, view: NodeView) -> DagNode {
    let held = view.held.map(|hold| hold.to_string());
    DagNode {
        role: role_of(&view.name).to_owned(),
        work_unit: Some(UnitName(unit).to_string()),
        name: view.name,
        status: view.state.name().to_owned(),
        attempt: view.attempts.into(),
        return_code: None,
        reason: held.or(Some(view.details).filter(|details| !details.is_empty())),
        job_id: None,
        cluster_id: view.cluster,
        site: view.site,
    }
}

fn role_of(node: &str) -> &str {
    if layout::processing_index(node).is_some() { "processing" } else { node }
}

/// Of which node logs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    pub unit: Option<u32>,
    pub node: Option<String>,
}

/// Where the logs are.
pub fn logs(db: &dyn Database, uuid: &str, which: &Which) -> Answer<DagLogs> {
    let run = run(db, uuid)?;
    match run.backend {
        Backend::Engine { workflow, .. } => logs_of_engine(db, run, workflow),
        Backend::Htcondor { .. } => logs_of_condor(run, which),
    }
}

fn logs_of_engine(db: &dyn Database, run: RunRow, workflow: Option<WorkflowId>) -> Answer<DagLogs> {
    let log_dir = match workflow {
        Some(id) => db.workflow(id)?.map(|row| row.output_dir),
        None => None,
    };
    let message = match workflow {
        Some(id) => format!("`windlass logs show JOB --workflow {id}` prints what a job of it said"),
        None => "it was not handed over yet: there are no logs".to_owned(),
    };
    Ok(DagLogs {
        dag_id: run.uuid,
        submit_dir: run.submit_dir,
        log_dir,
        engine_workflow_id: workflow.map(|id| id.0),
        files: Vec::new(),
        message,
    })
}

fn logs_of_condor(run: RunRow, which: &Which) -> Answer<DagLogs> {
    let found = log_files(Path::new(&run.submit_dir), which)?;
    let message = match found.trouble {
        Some(trouble) => trouble,
        None if found.files.is_empty() => "it was not handed over yet: there are no logs".to_owned(),
        None => "they are on the machine of the schedd".to_owned(),
    };
    let log_dir = Some(run.submit_dir.clone());
    let (dag_id, submit_dir) = (run.uuid, run.submit_dir);
    Ok(DagLogs { dag_id, submit_dir, log_dir, engine_workflow_id: None, files: found.files, message })
}

/// Logs in the directory of a DAG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFiles {
    pub files: Vec<String>,
    /// Why there are none of the node that was asked for.
    pub trouble: Option<String>,
}

/// Those of a node, or of DAGMan itself: what is there of them.
pub fn log_files(directory: &Path, which: &Which) -> Answer<LogFiles> {
    let Some(node) = which.node.as_deref() else { return Ok(of_dagman(directory, which.unit)) };
    if !layout::is_node_name(node) {
        let detail =
            format!("`node`: `{node}` cannot be the name of a node, which has letters, digits, _ and -");
        return Err(ApiError::invalid(detail));
    }
    match layout::unit_number(node).filter(|_| which.unit.is_none()) {
        // A unit is a node of the outer DAG, and what it says is what its own DAGMan says.
        Some(unit) => Ok(of_dagman(directory, Some(unit))),
        None => of_node(directory, which.unit, node),
    }
}

fn of_dagman(directory: &Path, unit: Option<u32>) -> LogFiles {
    let logs = watch::logs(directory, unit, "");
    let files = names([logs.dagman, logs.events]);
    let unit = unit.filter(|_| files.is_empty()).map(UnitName);
    LogFiles {
        files,
        trouble: unit.map(|unit| format!("{unit} has not begun, or there is no such work unit")),
    }
}

/// With those of its DAG, if it has left any itself.
fn of_node(directory: &Path, unit: Option<u32>, node: &str) -> Answer<LogFiles> {
    let logs = watch::logs(directory, unit, node);
    let own = names([logs.output, logs.error, logs.report]);
    if !own.is_empty() {
        return Ok(LogFiles { files: [own, names([logs.dagman, logs.events])].concat(), trouble: None });
    }
    let views = watch::nodes(directory, unit).map_err(|error| unreadable(directory, &error))?;
    let has_units = layout::unit_directory(directory, 0).is_dir();
    let trouble = match unit {
        _ if views.iter().any(|view| view.name == node) => format!("{node} has left no logs yet"),
        None if has_units => {
            format!("{node} is no node of the whole run: say of which work unit it is (--unit N)")
        }
        Some(unit) => format!("there is no node {node} in {}, or it has not begun", UnitName(unit)),
        None => format!("there is no node {node}, or it has not begun"),
    };
    Ok(LogFiles { files: Vec::new(), trouble: Some(trouble) })
}

fn names<const N: usize>(logs: [Option<PathBuf>; N]) -> Vec<String> {
    logs.into_iter().flatten().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_of_which_unit_it_is() {
        for (name, unit) in [
            ("landing_000000", Some(0)),
            ("proc_000012_3", Some(12)),
            ("merge_1000000", Some(1_000_000)),
            ("x", None),
        ] {
            assert_eq!(unit_of(name), unit, "{name}");
        }
        assert_eq!((role_of("proc_000003"), role_of("merge")), ("processing", "merge"));
    }

    /// A run of one unit, whose landing has left logs and whose merge is known and has not.
    fn run() -> tempfile::TempDir {
        let run = tempfile::tempdir().unwrap();
        let unit = run.path().join("mg_000000");
        std::fs::create_dir(&unit).unwrap();
        let jobstate = "1 INTERNAL *** DAGMAN_STARTED 7.0 ***\n2 merge PRE_SCRIPT_STARTED - - - 1\n";
        for (name, text) in [
            ("workflow.dag.dagman.out", ""),
            ("workflow.dag.nodes.log", ""),
            ("mg_000000/group.dag.dagman.out", ""),
            ("mg_000000/group.dag.nodes.log", ""),
            ("mg_000000/group.jobstate", jobstate),
            ("mg_000000/landing.err", ""),
            ("mg_000000/landing.post.json", "{}"),
        ] {
            std::fs::write(run.path().join(name), text).unwrap();
        }
        run
    }

    fn found(unit: Option<u32>, node: Option<&str>) -> (Vec<String>, Option<String>) {
        let run = run();
        let which = Which { unit, node: node.map(str::to_owned) };
        let LogFiles { files, trouble } = log_files(run.path(), &which).unwrap();
        let here = format!("{}/", run.path().display());
        (files.iter().map(|file| file.strip_prefix(&here).unwrap().to_owned()).collect(), trouble)
    }

    #[test]
    fn logs_are_those_that_were_asked_for() {
        let outer = ["workflow.dag.dagman.out", "workflow.dag.nodes.log"];
        let inner = ["mg_000000/group.dag.dagman.out", "mg_000000/group.dag.nodes.log"];
        let landing = ["mg_000000/landing.err", "mg_000000/landing.post.json"];
        assert_eq!(found(None, None).0, outer);
        assert_eq!(found(Some(0), None).0, inner);
        assert_eq!(found(None, Some("mg_000000")).0, inner);
        assert_eq!(found(Some(0), Some("landing")).0, [landing, inner].concat());
        let nothing = |text: &str| (Vec::new(), Some(text.to_owned()));
        let unit = "landing is no node of the whole run: say of which work unit it is (--unit N)";
        assert_eq!(found(None, Some("landing")), nothing(unit));
        assert_eq!(found(Some(0), Some("merge")), nothing("merge has left no logs yet"));
        let mistyped = "there is no node lnading in mg_000000, or it has not begun";
        assert_eq!(found(Some(0), Some("lnading")), nothing(mistyped));
        let unknown = "mg_000007 has not begun, or there is no such work unit";
        assert_eq!(found(Some(7), None), nothing(unknown));
        assert_eq!(found(None, Some("mg_000007")), nothing(unknown));
    }

    #[test]
    fn nobody_is_led_out_of_the_directory() {
        let run = run();
        for node in ["../x", "/x", "", "a b", "mg_000000/landing"] {
            let which = Which { unit: None, node: Some(node.to_owned()) };
            let error = log_files(run.path(), &which).unwrap_err();
            assert_eq!(error.status.as_u16(), 422, "{node:?}");
        }
    }
}
