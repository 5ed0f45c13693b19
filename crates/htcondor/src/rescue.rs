//! Continues a run whose DAG ended before all of its units were completed.
//!
//! DAGMan does this itself: submitted again, the same DAG continues from its newest rescue file, and so do the
//! DAGs of its units. Only a unit whose site is now banned, or apparently caused its failure, must move: its
//! progress is discarded, and its landing elects a new site. A DAGMan that was removed while held, or was lost,
//! has written no rescue file: it is written here instead, so that completed nodes do not run again; failed nodes
//! are known from the job state log.

mod overrides;

pub use overrides::apply_overrides;

use crate::file_layout;
use crate::parsers::jobstate::{self, JobstateEntry, JobstateNodeLine, JobstateStep};
use crate::parsers::rescue_file::{self, RescueFile};
use crate::watch::DagPoller;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use windlass_types::FailureClass;
use windlass_types::requests::{RequestUnitStatus, WorkUnitName};

/// A unit that lands again, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedUnit {
    pub unit: u32,
    /// The site where it was.
    pub site: String,
    pub reason: MoveReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    Banned,
    /// It failed there, for a reason that may not occur at other sites.
    Failed,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct RescueError {
    path: PathBuf,
    source: io::Error,
}

/// Must be called before the DAG is submitted again, never while it runs. May be called again after a crash.
pub fn prepare_rescue(run: &Path, banned: &[String]) -> Result<Vec<MovedUnit>, RescueError> {
    remove_dagman_lock(&run.join(file_layout::OUTER_DAG))?;
    // A rescue resumes a paused run.
    remove_if_exists(&run.join(file_layout::PAUSED_FILE))?;
    for name in unit_names(run)? {
        remove_dagman_lock(&run.join(name).join(file_layout::GROUP_DAG))?;
    }
    let rescue = find_newest_rescue(run)?;
    let past = OuterDagHistory::read(run, rescue.as_ref().map(|(_, rescue)| rescue))?;
    let is_missing = |node: &String| rescue.as_ref().is_none_or(|(_, rescue)| !rescue.done.contains(node));
    let done = match rescue {
        Some((number, _)) if past.completed.iter().any(is_missing) => {
            write_rescue_file(run, number + 1, &past.completed)?
        }
        Some((_, rescue)) => rescue.done.into_iter().collect(),
        None if !past.completed.is_empty() => write_rescue_file(run, 1, &past.completed)?,
        None => BTreeSet::new(),
    };
    let mut moved = Vec::new();
    for name in unit_names(run)?.into_iter().filter(|name| !done.contains(name)) {
        let directory = run.join(&name);
        // The outcome of the previous run must not be taken for that of the next one, which may end without
        // writing one.
        remove_if_exists(&directory.join(format!(
            "{}{}",
            file_layout::GROUP_DAG,
            file_layout::METRICS_SUFFIX
        )))?;
        let (Some(unit), Some(site)) = (file_layout::unit_number(&name), read_elected_site(&directory)?)
        else {
            continue;
        };
        let why = match () {
            () if banned.contains(&site) => MoveReason::Banned,
            () if past.failed.contains(&name) && blames_site(&final_classes(&directory)?) => {
                MoveReason::Failed
            }
            () => continue,
        };
        reset_unit(&directory)?;
        moved.push(MovedUnit { unit, site, reason: why });
    }
    Ok(moved)
}

/// The outcomes of the nodes of the outer DAG.
struct OuterDagHistory {
    /// Nodes that were completed in any run.
    completed: BTreeSet<String>,
    /// Nodes that failed in the last run, not only in an earlier one.
    failed: BTreeSet<String>,
}

impl OuterDagHistory {
    fn read(run: &Path, rescue: Option<&RescueFile>) -> Result<Self, RescueError> {
        let mut watch = DagPoller::new(run);
        let updates = watch.poll().units.into_iter();
        let completed = updates.filter(|update| update.status == RequestUnitStatus::Completed);
        let mut completed: BTreeSet<String> =
            completed.map(|update| WorkUnitName(update.number).to_string()).collect();
        completed.extend(completed_nodes(run)?);
        let mut failed: BTreeSet<String> =
            watch.failed_units().map(|unit| WorkUnitName(unit).to_string()).collect();
        // A rescue file of a run before the last one lists units that may have landed elsewhere since.
        if watch.has_current_rescue() {
            failed.extend(rescue.iter().flat_map(|rescue| rescue.failed.iter().cloned()));
        }
        Ok(Self { completed, failed })
    }
}

/// The nodes that are completed according to the job state log: units, or the jobs of a workflow spec.
fn completed_nodes(run: &Path) -> Result<Vec<String>, RescueError> {
    let path = run.join(file_layout::OUTER_JOBSTATE);
    let log = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(io_error_at(&path))?,
    };
    let name = |line: jobstate::JobstateLine<'_>| match line.entry {
        JobstateEntry::Node(JobstateNodeLine { node, step: JobstateStep::PostSucceeded, .. }) => {
            Some(node.to_owned())
        }
        _ => None,
    };
    Ok(jobstate::parse_lines(&log).filter_map(name).collect())
}

/// A DAGMan that was removed while held, or was lost, leaves its lock file. The next DAGMan would assume that it
/// crashed itself and replay the old log, where all nodes were removed, instead of reading the rescue file.
fn remove_dagman_lock(dag: &Path) -> Result<(), RescueError> {
    let mut path = dag.as_os_str().to_owned();
    path.push(".lock");
    remove_if_exists(path.as_ref())
}

/// Removes a file if it exists.
fn remove_if_exists(path: &Path) -> Result<(), RescueError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error_at(path)(error)),
        _ => Ok(()),
    }
}

/// The rescue file from which DAGMan would continue, and its number.
fn find_newest_rescue(run: &Path) -> Result<Option<(u32, RescueFile)>, RescueError> {
    let files = rescue_files(run, file_layout::OUTER_DAG)?;
    let Some((number, path)) = files.into_iter().max() else { return Ok(None) };
    let text = fs::read(&path).map_err(io_error_at(&path))?;
    Ok(Some((number, rescue_file::parse_rescue_file(&text))))
}

/// Writes a rescue file as DAGMan would have written it, atomically.
fn write_rescue_file(
    run: &Path,
    number: u32,
    completed: &BTreeSet<String>,
) -> Result<BTreeSet<String>, RescueError> {
    let path = run.join(format!("{}.rescue{number:03}", file_layout::OUTER_DAG));
    let hidden = run.join(".rescue");
    let lines = completed.iter().map(|node| format!("DONE {node}\n"));
    let text = "# Written by windlass: DAGMan left no rescue file\n".to_owned() + &lines.collect::<String>();
    fs::write(&hidden, &text).and_then(|()| fs::rename(&hidden, &path)).map_err(io_error_at(&path))?;
    Ok(completed.clone())
}

fn rescue_files(directory: &Path, dag: &str) -> Result<Vec<(u32, PathBuf)>, RescueError> {
    let names = list_file_names(directory)?;
    Ok(names
        .iter()
        .filter_map(|name| Some((rescue_file::rescue_number(dag, name)?, directory.join(name))))
        .collect())
}

fn unit_names(run: &Path) -> Result<Vec<String>, RescueError> {
    let mut names = list_file_names(run)?;
    names.retain(|name| file_layout::unit_number(name).is_some());
    names.sort_unstable();
    Ok(names)
}

fn list_file_names(directory: &Path) -> Result<Vec<String>, RescueError> {
    let entries = fs::read_dir(directory).map_err(io_error_at(directory))?;
    let name =
        |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<io::Result<_>>().map_err(io_error_at(directory))
}

/// The site of a unit. `None`: it has not landed.
fn read_elected_site(unit: &Path) -> Result<Option<String>, RescueError> {
    let path = unit.join(file_layout::ELECTED_SITE_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.split('"').nth(1).map(str::to_owned)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error_at(&path)(error)),
    }
}

/// The fields of a `NODE.post.json` that are needed here.
#[derive(Deserialize)]
struct FinalReport {
    #[serde(rename = "final")]
    is_final: bool,
    classification: ReportedCategory,
}

#[derive(Deserialize)]
struct ReportedCategory {
    category: String,
}

/// The classes of the final failures of the nodes of a unit. An unreadable report is ignored.
fn final_classes(unit: &Path) -> Result<Vec<String>, RescueError> {
    let reports = list_file_names(unit)?.into_iter().filter(|name| name.ends_with(".post.json"));
    let read = |name: String| serde_json::from_slice::<FinalReport>(&fs::read(unit.join(name)).ok()?).ok();
    let is_failure = |report: &FinalReport| report.is_final && report.classification.category != "success";
    Ok(reports.filter_map(read).filter(is_failure).map(|report| report.classification.category).collect())
}

/// Whether the unit may succeed at another site. Failures caused by the job itself or by its data follow it; a
/// node that failed without a report gets another site.
fn blames_site(classes: &[String]) -> bool {
    let own = [FailureClass::Permanent, FailureClass::Data, FailureClass::Memory, FailureClass::Timeout];
    let is_own = |class: &String| own.iter().any(|own| own.as_str() == class);
    classes.is_empty() || !classes.iter().all(is_own)
}

/// `elected.inc` is removed last: while it exists, this is repeated.
fn reset_unit(unit: &Path) -> Result<(), RescueError> {
    for (_, path) in rescue_files(unit, file_layout::GROUP_DAG)? {
        rename_aside(&path)?;
    }
    rename_aside(&unit.join(file_layout::ELECTED_SITE_FILE))
}

/// Kept for later inspection.
fn rename_aside(path: &Path) -> Result<(), RescueError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".aside");
    fs::rename(path, name).map_err(io_error_at(path))
}

fn io_error_at(path: &Path) -> impl FnOnce(io::Error) -> RescueError {
    let path = path.to_owned();
    move |source| RescueError { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESCUE: &str = "# Total number of Nodes: 5\n# Nodes premarked DONE: 1\n# Nodes that failed: 2\n\
        #   mg_000001,mg_000002,<ENDLIST>\n\nDONE mg_000000\n";

    /// A unit that landed, made progress, and has these reports.
    fn unit(run: &Path, number: u32, site: &str, classes: &[(&str, bool)]) -> PathBuf {
        let directory = file_layout::unit_directory(run, number);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(file_layout::ELECTED_SITE_FILE), format!("MY.DESIRED_Sites = \"{site}\"\n"))
            .unwrap();
        fs::write(directory.join("group.dag.rescue001"), "DONE landing\n").unwrap();
        for (n, (class, is_final)) in classes.iter().enumerate() {
            let text =
                format!(r#"{{"final": {is_final}, "classification": {{"category": "{class}"}}, "more": 1}}"#);
            fs::write(directory.join(format!("proc_{n:06}.post.json")), text).unwrap();
        }
        directory
    }

    #[test]
    fn units_of_failed_or_banned_sites_move_on_rescue() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        unit(run, 0, "T2_Banned", &[]);
        unit(run, 1, "T2_Good", &[("success", true), ("transient", true)]);
        unit(run, 2, "T2_Good", &[("data", true), ("infrastructure", false)]);
        let stopped = unit(run, 3, "T2_Banned", &[("success", true)]);
        unit(run, 4, "T2_Good", &[("infrastructure", true)]);
        let banned = ["T2_Banned".to_owned()];
        fs::write(run.join("workflow.dag.rescue001"), "DONE mg_000003\n").unwrap();
        fs::write(run.join("workflow.dag.rescue002"), RESCUE).unwrap();
        let moved = prepare_rescue(run, &banned).unwrap();
        let expected = [(1, "T2_Good", MoveReason::Failed), (3, "T2_Banned", MoveReason::Banned)];
        assert_eq!(
            moved,
            expected.map(|(unit, site, why)| MovedUnit { unit, site: site.into(), reason: why })
        );
        for (name, there) in
            [("elected.inc", false), ("group.dag.rescue001", false), ("group.dag.rescue001.aside", true)]
        {
            assert_eq!(stopped.join(name).exists(), there, "{name}");
        }
        assert_eq!(prepare_rescue(run, &banned).unwrap(), [], "a second call changes nothing");
    }

    /// Removed while held, before any unit was completed: there is no rescue file.
    #[test]
    fn units_move_without_a_complete_rescue_file() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        let log = "1 INTERNAL *** DAGMAN_STARTED 6.0 ***\n2 mg_000002 POST_SCRIPT_FAILURE 8.0 - - 1\n\
            3 INTERNAL *** DAGMAN_FINISHED 1 ***\n4 INTERNAL *** DAGMAN_STARTED 7.0 ***\n\
            5 mg_000001 POST_SCRIPT_FAILURE 9.0 - - 2\n6 INTERNAL *** DAGMAN_FINISHED 3 ***\n";
        fs::write(run.join(file_layout::OUTER_JOBSTATE), log).unwrap();
        let lost = [("transient", true)];
        unit(run, 0, "T2_Banned", &[]);
        unit(run, 1, "T2_Bad", &lost);
        let landed_anew = unit(run, 2, "T2_Good", &lost);
        fs::write(run.join("workflow.dag.rescue001"), "# Nodes that failed: 1\n#   mg_000002,<ENDLIST>\n\n")
            .unwrap();
        unit(run, 3, "T2_Good", &[]);
        fs::create_dir(file_layout::unit_directory(run, 4)).unwrap();
        let moved = prepare_rescue(run, &["T2_Banned".to_owned()]).unwrap();
        let expected = [(0, "T2_Banned", MoveReason::Banned), (1, "T2_Bad", MoveReason::Failed)];
        assert_eq!(
            moved,
            expected.map(|(unit, site, why)| MovedUnit { unit, site: site.into(), reason: why })
        );
        assert!(
            landed_anew.join(file_layout::ELECTED_SITE_FILE).exists(),
            "it failed earlier, at another site"
        );
        // Also without any rescue file.
        let fresh = tempfile::tempdir().unwrap();
        unit(fresh.path(), 0, "T2_Banned", &[]);
        assert_eq!(prepare_rescue(fresh.path(), &["T2_Banned".to_owned()]).unwrap().len(), 1);
    }

    #[test]
    fn rescue_removes_old_metrics_of_unfinished_units() {
        let run = tempfile::tempdir().unwrap();
        let metrics = [0, 1].map(|number| unit(run.path(), number, "T2_Good", &[]).join("group.dag.metrics"));
        for metrics in &metrics {
            fs::write(metrics, r#"{"DagStatus": 3}"#).unwrap();
        }
        fs::write(run.path().join("workflow.dag.rescue001"), "DONE mg_000000\n").unwrap();
        prepare_rescue(run.path(), &[]).unwrap();
        assert_eq!(metrics.map(|metrics| metrics.exists()), [true, false], "completed units have their own");
    }

    /// The DAG of a workflow spec, whose nodes are not units.
    #[test]
    fn completed_jobs_of_a_spec_do_not_run_again() {
        let run = tempfile::tempdir().unwrap();
        let log = "1 INTERNAL *** DAGMAN_STARTED 7.0 ***\n2 first POST_SCRIPT_SUCCESS 8.0 - - 1\n\
            3 second SUBMIT 9.0 - - 2\n4 INTERNAL *** DAGMAN_FINISHED 3 ***\n";
        fs::write(run.path().join(file_layout::OUTER_JOBSTATE), log).unwrap();
        prepare_rescue(run.path(), &[]).unwrap();
        let written = fs::read(run.path().join("workflow.dag.rescue001")).unwrap();
        assert_eq!(rescue_file::parse_rescue_file(&written).done, ["first"]);
    }

    #[test]
    fn missing_or_incomplete_rescue_file_is_written_from_the_log() {
        let run = tempfile::tempdir().unwrap();
        let log = "1 INTERNAL *** DAGMAN_STARTED 7.0 ***\n2 mg_000000 POST_SCRIPT_SUCCESS 8.0 - - 1\n\
            3 mg_000001 POST_SCRIPT_FAILURE 9.0 - - 2\n4 mg_000002 POST_SCRIPT_SUCCESS 10.0 - - 3\n";
        fs::write(run.path().join(file_layout::OUTER_JOBSTATE), log).unwrap();
        let done = |number: u32| {
            let path = run.path().join(format!("workflow.dag.rescue{number:03}"));
            fs::read(path).ok().map(|text| rescue_file::parse_rescue_file(&text).done)
        };
        prepare_rescue(run.path(), &[]).unwrap();
        assert_eq!(done(1).unwrap(), ["mg_000000", "mg_000002"]);
        prepare_rescue(run.path(), &[]).unwrap();
        assert_eq!(done(2), None, "it is there");
        // Of a rescue that was lost.
        fs::write(run.path().join("workflow.dag.rescue001"), "DONE mg_000000\n").unwrap();
        prepare_rescue(run.path(), &[]).unwrap();
        assert_eq!(done(2).unwrap(), ["mg_000000", "mg_000002"]);
    }

    #[test]
    fn rescue_removes_lock_files_and_the_pause() {
        let run = tempfile::tempdir().unwrap();
        let locks = [
            run.path().join("workflow.dag.lock"),
            run.path().join(file_layout::PAUSED_FILE),
            unit(run.path(), 0, "T2_Good", &[]).join("group.dag.lock"),
        ];
        for lock in &locks {
            fs::write(lock, "").unwrap();
        }
        prepare_rescue(run.path(), &[]).unwrap();
        assert!(!locks.iter().any(|lock| lock.exists()));
    }

    #[test]
    fn interrupted_rescue_is_completed() {
        let run = tempfile::tempdir().unwrap();
        let directory = unit(run.path(), 1, "T2_Good", &[]);
        fs::write(run.path().join("workflow.dag.rescue001"), RESCUE).unwrap();
        rename_aside(&directory.join("group.dag.rescue001")).unwrap();
        assert_eq!(prepare_rescue(run.path(), &[]).unwrap().len(), 1);
        assert!(!directory.join(file_layout::ELECTED_SITE_FILE).exists());
    }
}
