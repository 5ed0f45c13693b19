//! Renders a run as the text of DAGs and submit files, and writes those files to disk.
//!
//! Pure functions render the text; [`render_run`] writes it. Text from a request passes through [`quote`]: it is
//! written as a word of a DAG file, in quotes, or rejected.
//!
//! Each work unit has one directory and one file, `group.dag`; the submit files are shared. Differences between
//! nodes are in the VARS of the DAG; values that are known only later are in files that are read when a node is
//! submitted (`elected.inc`, `NODE.inc`, `bans.inc`).

mod outer_dag;
pub mod quote;
mod submit_files;
mod unit_dag;
mod workflow_dag;

pub use quote::UnquotableText;
pub use submit_files::{node_priority, render_elected_site, render_next_attempt};
pub use workflow_dag::{FileTransfer, WorkflowDagRun, find_unsupported_features, render_workflow};

use crate::file_layout;
use crate::script_settings::{NodeGroupSettings, RequestRetrySettings, ScriptSettings, ScriptSettingsError};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_types::requests::NodeRole;
use windlass_types::{Bytes, Resources};

/// A planned run of a request. Its manifests are already in `directory`.
#[derive(Clone, Debug)]
pub struct RequestDagRun<'a> {
    pub directory: &'a Path,
    /// The name of the request.
    pub request: &'a str,
    /// The UUID of the run.
    pub run: &'a str,
    /// The UUID of the request's workflow, to which all its runs belong.
    pub workflow: &'a str,
    pub programs: ProgramPaths<'a>,
    /// Sets of sites that units refer to.
    pub site_sets: &'a [Vec<String>],
    /// Resources of processing nodes.
    pub sizes: &'a [NodeResources],
    /// Resources of the other nodes of units.
    pub unit_sizes: &'a [UnitNodeResources],
    /// In the order of their numbers.
    pub units: &'a [DagUnit],
    pub retries: RoleRetries,
    /// The maximum number of nodes of a category that run at once: `Processing`, `Merge`, `Cleanup` in each unit;
    /// `MergeGroup`: the number of units.
    pub throttles: &'a BTreeMap<String, u64>,
    pub retry_policy: RequestRetrySettings,
    /// Among the jobs of the same user, higher values run first.
    pub priority: i32,
    /// Attributes of all jobs; `accounting_group` and `accounting_group_user` are HTCondor's own.
    pub accounting: &'a BTreeMap<String, String>,
    pub credentials: StorageCredentials<'a>,
    /// Sites where units must not land.
    pub banned_sites: &'a [String],
    /// Memory of landings and processing nodes in MB, instead of what was planned: set by an operator.
    pub memory_override_mb: Option<u64>,
}

/// The `windlass` program that runs scripts and jobs.
#[derive(Clone, Copy, Debug)]
pub struct ProgramPaths<'a> {
    /// On this machine, absolute.
    pub on_this_host: &'a Path,
    /// The path on workers, absolute. `None`: the program is transferred with each job.
    pub on_workers: Option<&'a Path>,
}

/// The resources of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeResources {
    pub cpus: u32,
    pub memory_mb: u64,
    pub disk_kb: u64,
    /// The time limit of the job.
    pub runtime_sec: u64,
}

/// The resources of the nodes of which each work unit has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitNodeResources {
    pub landing: NodeResources,
    pub merge: NodeResources,
    pub cleanup: NodeResources,
}

/// A work unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DagUnit {
    /// Index into [`RequestDagRun::site_sets`].
    pub sites: u32,
    /// Index into [`RequestDagRun::unit_sizes`].
    pub size: u32,
    /// `(index into RequestDagRun::sizes, count)` in the order of the nodes.
    pub nodes: Vec<(u32, u32)>,
}

/// Retries after the first attempt, by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleRetries {
    pub landing: u32,
    pub processing: u32,
    pub merge: u32,
    pub cleanup: u32,
}

/// The credentials of jobs for storage. Both are absolute paths on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct StorageCredentials<'a> {
    /// An X.509 proxy. HTCondor transfers it with the job, and again when it is renewed.
    pub proxy: Option<&'a Path>,
    /// A token; jobs find it by `BEARER_TOKEN_FILE`.
    pub token: Option<&'a Path>,
}

#[derive(Debug, thiserror::Error)]
pub enum DagRenderError {
    #[error("cannot write {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{what}: {source}")]
    Unquotable { what: String, source: UnquotableText },
    #[error("unit {unit} of the run refers to {what} that does not exist")]
    InvalidIndex { unit: usize, what: &'static str },
    #[error("the run has no work units: there is nothing to submit")]
    Empty,
    #[error("the workflow cannot run as an HTCondor DAG:\n  {}", .0.join("\n  "))]
    NoDag(Vec<String>),
    #[error("a unit of the run has no allowed site")]
    NoSites,
    #[error(transparent)]
    Settings(#[from] ScriptSettingsError),
}

/// Names the text that could not be quoted.
fn with_subject<T>(what: &str, result: Result<T, UnquotableText>) -> Result<T, DagRenderError> {
    result.map_err(|source| DagRenderError::Unquotable { what: what.to_owned(), source })
}

/// Writes all files of a run for HTCondor into its directory. The outer DAG is written last: if it exists, all
/// files exist.
pub fn render_run(run: &RequestDagRun<'_>) -> Result<(), DagRenderError> {
    if run.units.is_empty() {
        return Err(DagRenderError::Empty);
    }
    let words = QuotedFragments::from_run(run)?;
    let put = |name: &str, text: &str| write_file(&run.directory.join(name), text);
    put(file_layout::DAGMAN_CONFIG_FILE, outer_dag::DAGMAN_CONFIG)?;
    write_script_settings(run, &words)?;
    let mut text = String::new();
    for (number, unit) in (0..).zip(run.units) {
        text.clear();
        unit_dag::write_unit_dag(&mut text, run, &words, number, unit)?;
        let directory = file_layout::unit_directory(run.directory, number);
        fs::create_dir_all(&directory)
            .map_err(|source| DagRenderError::Io { path: directory.clone(), source })?;
        write_file(&directory.join(file_layout::GROUP_DAG), &text)?;
    }
    put(file_layout::OUTER_DAG, &outer_dag::render_outer_dag(run, &words))
}

/// Rewrites the files that may change when a run continues: all but its DAGs, which rescue files amend. The
/// number of retries is in the script settings; DAGMan gets it from
/// [`rescue::apply_overrides`](crate::rescue::apply_overrides).
pub fn rewrite_run_files(run: &RequestDagRun<'_>) -> Result<(), DagRenderError> {
    write_script_settings(run, &QuotedFragments::from_run(run)?)
}

/// Rewrites the submit files while DAGMan runs: it reads them whenever it submits a node.
pub fn rewrite_submit_files(run: &RequestDagRun<'_>) -> Result<(), DagRenderError> {
    write_submit_files(run, &QuotedFragments::from_run(run)?)
}

fn write_submit_files(run: &RequestDagRun<'_>, words: &QuotedFragments<'_>) -> Result<(), DagRenderError> {
    for role in NodeRole::ALL {
        let text = submit_files::render_submit_file(run, words, *role)?;
        write_atomically(run.directory, submit_files::submit_file_name(*role), &text)?;
    }
    Ok(())
}

/// Writes the submit files, bans, and settings of the scripts.
fn write_script_settings(run: &RequestDagRun<'_>, words: &QuotedFragments<'_>) -> Result<(), DagRenderError> {
    write_submit_files(run, words)?;
    write_bans(run.directory, run.banned_sites)?;
    Ok(script_settings(run).save(run.directory)?)
}

/// Writes the sites where units must not land from now on. The file is read whenever a landing is submitted.
pub fn write_bans(directory: &Path, sites: &[String]) -> Result<(), DagRenderError> {
    let text = with_subject("a banned site", submit_files::render_bans(sites))?;
    write_atomically(directory, file_layout::BANS_FILE, &text)
}

/// Replaces the file atomically: it may be read at any moment.
fn write_atomically(directory: &Path, name: &str, text: &str) -> Result<(), DagRenderError> {
    let (hidden, path) = (directory.join(format!(".{name}")), directory.join(name));
    write_file(&hidden, text)?;
    fs::rename(&hidden, &path).map_err(|source| DagRenderError::Io { path, source })
}

fn write_file(path: &Path, text: &str) -> Result<(), DagRenderError> {
    fs::write(path, text).map_err(|source| DagRenderError::Io { path: path.to_owned(), source })
}

/// Text that occurs in many lines, checked once.
#[derive(Debug)]
struct QuotedFragments<'a> {
    program: &'a str,
    /// Each as one list, in the order of [`RequestDagRun::site_sets`].
    site_sets: Vec<String>,
    /// The kinds of processing nodes, in the order of [`RequestDagRun::sizes`].
    node_groups: Vec<String>,
    /// Whether `step_profile.json` exists.
    has_profile: bool,
}

impl<'a> QuotedFragments<'a> {
    fn from_run(run: &RequestDagRun<'a>) -> Result<Self, DagRenderError> {
        if run.site_sets.iter().any(Vec::is_empty) {
            return Err(DagRenderError::NoSites);
        }
        let sets =
            run.site_sets.iter().map(|set| with_subject("a site of the run", quote::quote_site_list(set)));
        let what = "the path of windlass";
        Ok(Self {
            program: with_subject(
                what,
                quote::quote_dag_word(submit_files::absolute_path(what, run.programs.on_this_host)?),
            )?,
            site_sets: sets.collect::<Result<_, _>>()?,
            node_groups: (0..run.sizes.len()).map(|size| format!("processing_{size}")).collect(),
            has_profile: run.directory.join(STEP_PROFILE_FILE).is_file(),
        })
    }
}

/// Measurements of earlier rounds; jobs look for this file beside their manifest.
const STEP_PROFILE_FILE: &str = "step_profile.json";

/// The kind of a node of which each unit has one, in a run with this number of unit sizes.
fn unit_node_group(role: NodeRole, size: u32, sizes: usize) -> String {
    if sizes <= 1 { role_group(role).to_owned() } else { format!("{}_{size}", role_group(role)) }
}

/// The prefix of the names of kinds.
const fn role_group(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Landing => file_layout::LANDING_NODE,
        NodeRole::Processing => "processing",
        NodeRole::Merge => file_layout::MERGE_NODE,
        NodeRole::Cleanup => file_layout::CLEANUP_NODE,
    }
}

impl RoleRetries {
    const fn for_role(self, role: NodeRole) -> u32 {
        match role {
            NodeRole::Landing => self.landing,
            NodeRole::Processing => self.processing,
            NodeRole::Merge => self.merge,
            NodeRole::Cleanup => self.cleanup,
        }
    }
}

impl RequestDagRun<'_> {
    /// Merges and cleanups keep their planned resources.
    fn memory_override(&self, role: NodeRole) -> Option<u64> {
        self.memory_override_mb.filter(|_| matches!(role, NodeRole::Landing | NodeRole::Processing))
    }
}

fn script_settings(run: &RequestDagRun<'_>) -> ScriptSettings {
    let group = |role: NodeRole, size: NodeResources| NodeGroupSettings {
        role: Some(role),
        retries: run.retries.for_role(role),
        asked: Resources {
            cpus: size.cpus,
            memory: Bytes(run.memory_override(role).unwrap_or(size.memory_mb) << 20),
            runtime: Some(Duration::from_secs(size.runtime_sec)),
            ..Resources::DEFAULT
        },
        handler: None,
    };
    let others = (0..).zip(run.unit_sizes).flat_map(|(number, size)| {
        let named = |role, size| (unit_node_group(role, number, run.unit_sizes.len()), group(role, size));
        [
            named(NodeRole::Landing, size.landing),
            named(NodeRole::Merge, size.merge),
            named(NodeRole::Cleanup, size.cleanup),
        ]
    });
    let processing = run.sizes.iter().enumerate();
    let processing =
        processing.map(|(n, size)| (format!("processing_{n}"), group(NodeRole::Processing, *size)));
    ScriptSettings {
        name: run.request.to_owned(),
        run: run.run.to_owned(),
        program: run.programs.on_this_host.to_owned(),
        node_groups: others.chain(processing).collect(),
        retry_settings: run.retry_policy,
        handlers: BTreeMap::new(),
        digest: None,
        submission_dir: None,
        accounting: run.accounting.clone(),
    }
}
