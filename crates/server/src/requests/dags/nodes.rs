//! Nodes of a run in their current state, and the location of their logs: jobs of the engine or nodes of
//! DAGMan.

use super::load_run;
use crate::error::{ApiError, ApiResult};
use crate::requests::page_length;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_api::requests::{DagLogs, RequestDagNode, RequestDagNodeList};
use windlass_core::requests::rows::{BackendRunRef, RunRow};
use windlass_htcondor::file_layout;
use windlass_htcondor::watch::{self, DagNodeState, DagNodeView};
use windlass_store::StoreDatabase;
use windlass_store::model::{JobFilter, JobRow};
use windlass_types::requests::WorkUnitName;
use windlass_types::{JobStatus, WorkflowId};

/// Filter for nodes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DagNodeFilter {
    /// Statuses of engine jobs or DAGMan nodes.
    pub status: Vec<String>,
    /// Number of the work unit.
    pub unit: Option<u32>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Lists the nodes in their current state. A run that was not submitted yet has none.
pub fn list_dag_nodes(
    db: &dyn StoreDatabase,
    uuid: &str,
    wanted: &DagNodeFilter,
) -> ApiResult<RequestDagNodeList> {
    let run = load_run(db, uuid)?;
    let items = match run.backend {
        BackendRunRef::Engine { workflow: None, .. } => Vec::new(),
        BackendRunRef::Engine { workflow: Some(workflow), .. } => list_engine_nodes(db, workflow, wanted)?,
        BackendRunRef::Htcondor { .. } => list_htcondor_nodes(&run, wanted)?,
    };
    Ok(RequestDagNodeList { items, offset: wanted.offset })
}

fn list_engine_nodes(
    db: &dyn StoreDatabase,
    workflow: WorkflowId,
    wanted: &DagNodeFilter,
) -> ApiResult<Vec<RequestDagNode>> {
    let parse = |word: &String| {
        word.parse::<JobStatus>().map_err(|error| ApiError::invalid(format!("`status`: {error}")))
    };
    let filter = JobFilter {
        status: wanted.status.iter().map(parse).collect::<ApiResult<_>>()?,
        name_contains: wanted.unit.map(|unit| format!("_{unit:06}")),
        offset: wanted.offset,
        limit: Some(page_length(wanted.limit)),
        ..JobFilter::default()
    };
    Ok(db.jobs(workflow, &filter)?.into_iter().map(api_engine_node).collect())
}

fn api_engine_node(job: JobRow) -> RequestDagNode {
    let kind = job.kind.unwrap_or_default();
    RequestDagNode {
        role: kind.split('_').next().unwrap_or_default().to_owned(),
        work_unit: parse_work_unit(&job.name).map(|unit| WorkUnitName(unit).to_string()),
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
fn parse_work_unit(name: &str) -> Option<u32> {
    name.split('_').nth(1)?.parse().ok()
}

/// Reads unit by unit, and no more units than needed.
fn list_htcondor_nodes(run: &RunRow, wanted: &DagNodeFilter) -> ApiResult<Vec<RequestDagNode>> {
    if let Some(unknown) =
        wanted.status.iter().find(|word| !DagNodeState::ALL.iter().any(|state| state.name() == *word))
    {
        let known: Vec<_> = DagNodeState::ALL.iter().map(|state| state.name()).collect();
        let detail =
            format!("`status`: `{unknown}` is not a node status; expected one of {}", known.join(", "));
        return Err(ApiError::invalid(detail));
    }
    let directory = Path::new(&run.submit_dir);
    let units = wanted.unit.map_or(0..run.totals.units, |unit| unit..unit.saturating_add(1));
    let (mut skip, limit) = (wanted.offset, page_length(wanted.limit) as usize);
    let mut found = Vec::new();
    for unit in units {
        let views = watch::list_nodes(directory, Some(unit))
            .map_err(|error| unreadable_directory_error(directory, &error))?;
        for view in views {
            let is_wanted =
                wanted.status.is_empty() || wanted.status.iter().any(|word| view.state.name() == word);
            match is_wanted {
                false => {}
                true if skip > 0 => skip -= 1,
                true => found.push(api_htcondor_node(unit, view)),
            }
        }
        if found.len() >= limit {
            found.truncate(limit);
            break;
        }
    }
    Ok(found)
}

fn unreadable_directory_error(directory: &Path, error: &io::Error) -> ApiError {
    let detail = format!("cannot read the files of the run in {}: {error}", directory.display());
    ApiError::unavailable(detail, Duration::from_secs(5))
}

fn api_htcondor_node(unit: u32, view: DagNodeView) -> RequestDagNode {
    let held = view.held.map(|hold| hold.to_string());
    RequestDagNode {
        role: node_role(&view.name).to_owned(),
        work_unit: Some(WorkUnitName(unit).to_string()),
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

fn node_role(node: &str) -> &str {
    if file_layout::processing_index(node).is_some() { "processing" } else { node }
}

/// The node whose logs are requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DagLogSelector {
    pub unit: Option<u32>,
    pub node: Option<String>,
}

/// Returns the location of the logs.
pub fn get_dag_logs(db: &dyn StoreDatabase, uuid: &str, which: &DagLogSelector) -> ApiResult<DagLogs> {
    let run = load_run(db, uuid)?;
    match run.backend {
        BackendRunRef::Engine { workflow, .. } => engine_logs(db, run, workflow),
        BackendRunRef::Htcondor { .. } => htcondor_logs(run, which),
    }
}

fn engine_logs(db: &dyn StoreDatabase, run: RunRow, workflow: Option<WorkflowId>) -> ApiResult<DagLogs> {
    let log_dir = match workflow {
        Some(id) => db.workflow(id)?.map(|row| row.output_dir),
        None => None,
    };
    let message = match workflow {
        Some(id) => format!("`windlass logs show JOB --workflow {id}` prints the output of a job"),
        None => "the run was not submitted yet: there are no logs".to_owned(),
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

fn htcondor_logs(run: RunRow, which: &DagLogSelector) -> ApiResult<DagLogs> {
    let found = find_log_files(Path::new(&run.submit_dir), which)?;
    let message = match found.problem {
        Some(error_text) => error_text,
        None if found.files.is_empty() => "the run was not submitted yet: there are no logs".to_owned(),
        None => "the logs are on the machine of the schedd".to_owned(),
    };
    let log_dir = Some(run.submit_dir.clone());
    let (dag_id, submit_dir) = (run.uuid, run.submit_dir);
    Ok(DagLogs { dag_id, submit_dir, log_dir, engine_workflow_id: None, files: found.files, message })
}

/// Log files in the directory of a DAG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DagLogFiles {
    pub files: Vec<String>,
    /// Why there are no logs of the requested node.
    pub problem: Option<String>,
}

/// Finds the existing log files of a node, or of DAGMan itself.
pub fn find_log_files(directory: &Path, which: &DagLogSelector) -> ApiResult<DagLogFiles> {
    let Some(node) = which.node.as_deref() else { return Ok(find_dagman_logs(directory, which.unit)) };
    if !file_layout::is_node_name(node) {
        let detail = format!("`node`: `{node}` is not a valid node name (letters, digits, _ and -)");
        return Err(ApiError::invalid(detail));
    }
    match file_layout::unit_number(node).filter(|_| which.unit.is_none()) {
        // A unit is a node of the outer DAG; its logs are those of its own DAGMan.
        Some(unit) => Ok(find_dagman_logs(directory, Some(unit))),
        None => find_node_logs(directory, which.unit, node),
    }
}

fn find_dagman_logs(directory: &Path, unit: Option<u32>) -> DagLogFiles {
    let logs = watch::find_node_logs(directory, unit, "");
    let files = path_names([logs.dagman, logs.events]);
    let unit = unit.filter(|_| files.is_empty()).map(WorkUnitName);
    DagLogFiles {
        files,
        problem: unit.map(|unit| format!("{unit} has not started, or there is no such work unit")),
    }
}

/// Adds the logs of its DAG to those of the node.
fn find_node_logs(directory: &Path, unit: Option<u32>, node: &str) -> ApiResult<DagLogFiles> {
    let logs = watch::find_node_logs(directory, unit, node);
    let own = path_names([logs.output, logs.error, logs.report]);
    if !own.is_empty() {
        return Ok(DagLogFiles {
            files: [own, path_names([logs.dagman, logs.events])].concat(),
            problem: None,
        });
    }
    let views =
        watch::list_nodes(directory, unit).map_err(|error| unreadable_directory_error(directory, &error))?;
    let has_units = file_layout::unit_directory(directory, 0).is_dir();
    let error_text = match unit {
        _ if views.iter().any(|view| view.name == node) => format!("{node} has no logs yet"),
        None if has_units => {
            format!("{node} is not a node of the outer DAG: specify its work unit (--unit N)")
        }
        Some(unit) => format!("there is no node {node} in {}, or it has not started", WorkUnitName(unit)),
        None => format!("there is no node {node}, or it has not started"),
    };
    Ok(DagLogFiles { files: Vec::new(), problem: Some(error_text) })
}

fn path_names<const N: usize>(logs: [Option<PathBuf>; N]) -> Vec<String> {
    logs.into_iter().flatten().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_name_gives_its_work_unit() {
        for (name, unit) in [
            ("landing_000000", Some(0)),
            ("proc_000012_3", Some(12)),
            ("merge_1000000", Some(1_000_000)),
            ("x", None),
        ] {
            assert_eq!(parse_work_unit(name), unit, "{name}");
        }
        assert_eq!((node_role("proc_000003"), node_role("merge")), ("processing", "merge"));
    }

    /// A run of one unit, whose landing has logs and whose merge is known but has none.
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
        let which = DagLogSelector { unit, node: node.map(str::to_owned) };
        let DagLogFiles { files, problem: error_text } = find_log_files(run.path(), &which).unwrap();
        let here = format!("{}/", run.path().display());
        (files.iter().map(|file| file.strip_prefix(&here).unwrap().to_owned()).collect(), error_text)
    }

    #[test]
    fn log_selector_finds_requested_files() {
        let outer = ["workflow.dag.dagman.out", "workflow.dag.nodes.log"];
        let inner = ["mg_000000/group.dag.dagman.out", "mg_000000/group.dag.nodes.log"];
        let landing = ["mg_000000/landing.err", "mg_000000/landing.post.json"];
        assert_eq!(found(None, None).0, outer);
        assert_eq!(found(Some(0), None).0, inner);
        assert_eq!(found(None, Some("mg_000000")).0, inner);
        assert_eq!(found(Some(0), Some("landing")).0, [landing, inner].concat());
        let nothing = |text: &str| (Vec::new(), Some(text.to_owned()));
        let unit = "landing is not a node of the outer DAG: specify its work unit (--unit N)";
        assert_eq!(found(None, Some("landing")), nothing(unit));
        assert_eq!(found(Some(0), Some("merge")), nothing("merge has no logs yet"));
        let mistyped = "there is no node lnading in mg_000000, or it has not started";
        assert_eq!(found(Some(0), Some("lnading")), nothing(mistyped));
        let unknown = "mg_000007 has not started, or there is no such work unit";
        assert_eq!(found(Some(7), None), nothing(unknown));
        assert_eq!(found(None, Some("mg_000007")), nothing(unknown));
    }

    #[test]
    fn node_names_cannot_escape_the_run_directory() {
        let run = run();
        for node in ["../x", "/x", "", "a b", "mg_000000/landing"] {
            let which = DagLogSelector { unit: None, node: Some(node.to_owned()) };
            let error = find_log_files(run.path(), &which).unwrap_err();
            assert_eq!(error.status.as_u16(), 422, "{node:?}");
        }
    }
}
