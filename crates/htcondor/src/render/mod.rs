//! A run as the text of DAGs and submit files, and those files on disk.
//!
//! The text is made by pure functions; [`render_run`] writes it. What a request says ends up here only through
//! [`quote`]: as the words of a DAG file, in quotes, or not at all.
//!
//! Per work unit there are one directory and one file, `group.dag`; the submit files are there once. What differs between
//! nodes is in the VARS of the DAG, what is known only later in files that are read when a node is submitted
//! (`elected.inc`, `NODE.inc`, `bans.inc`).

mod outer_dag;
pub mod quote;
mod submit_files;
mod unit_dag;
mod workflow_dag;

pub use quote::UnquotableText;
pub use submit_files::{node_priority, render_elected_site, render_next_attempt};
pub use workflow_dag::{FileTransfer, WorkflowDagRun, find_unsupported_features, render_workflow};

use crate::file_layout;
use crate::script_settings::{NodeKind, RequestRetrySettings, ScriptSettings, ScriptSettingsError};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_types::requests::NodeRole;
use windlass_types::{Bytes, Resources};

/// A planned run of a request. Its manifests are in `directory` already.
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
    /// Sets of sites that units name.
    pub site_sets: &'a [Vec<String>],
    /// What processing nodes ask for.
    pub sizes: &'a [NodeResources],
    /// What the other nodes of units ask for.
    pub unit_sizes: &'a [UnitNodeResources],
    /// In the order of their numbers.
    pub units: &'a [DagUnit],
    pub retries: RoleRetries,
    /// How many nodes of a category at once: `Processing`, `Merge`, `Cleanup` in each unit; `MergeGroup`: how many units.
    pub throttles: &'a BTreeMap<String, u64>,
    pub retry_policy: RequestRetrySettings,
    /// Among the jobs of the same user, the higher first.
    pub priority: i32,
    /// Attributes that all jobs bear; `accounting_group` and `accounting_group_user` are HTCondor's own.
    pub accounting: &'a BTreeMap<String, String>,
    pub credentials: StorageCredentials<'a>,
    /// Sites where nothing is to land.
    pub banned_sites: &'a [String],
    /// What landings and processing nodes get, in MB, whatever was planned for them: somebody said so later.
    pub memory_override_mb: Option<u64>,
}

/// The `windlass` that scripts and jobs are.
#[derive(Clone, Copy, Debug)]
pub struct ProgramPaths<'a> {
    /// On this machine, absolute.
    pub on_this_host: &'a Path,
    /// Where workers have it, absolute. `None`: it is sent along with each job.
    pub on_workers: Option<&'a Path>,
}

/// What a node asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeResources {
    pub cpus: u32,
    pub memory_mb: u64,
    pub disk_kb: u64,
    /// It is ended then.
    pub runtime_sec: u64,
}

/// What the nodes of a work unit ask for that are there once in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitNodeResources {
    pub landing: NodeResources,
    pub merge: NodeResources,
    pub cleanup: NodeResources,
}

/// A work unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DagUnit {
    /// Index into [`Run::site_sets`].
    pub sites: u32,
    /// Index into [`Run::unit_sizes`].
    pub size: u32,
    /// `(index into Run::sizes, how many)` in the order of the nodes.
    pub nodes: Vec<(u32, u32)>,
}

/// After the first attempt, by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleRetries {
    pub landing: u32,
    pub processing: u32,
    pub merge: u32,
    pub cleanup: u32,
}

/// With what jobs go to storage. Both are files of this machine, absolute.
#[derive(Clone, Copy, Debug, Default)]
pub struct StorageCredentials<'a> {
    /// An X.509 proxy. HTCondor sends it along, and again when it was renewed.
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
    #[error("unit {unit} of the run names {what} that it does not have")]
    InvalidIndex { unit: usize, what: &'static str },
    #[error("the run has no work units: there is nothing to submit")]
    Empty,
    #[error("this cannot be a DAG of HTCondor:\n  {}", .0.join("\n  "))]
    NoDag(Vec<String>),
    #[error("a unit of the run may go to no site at all")]
    NoSites,
    #[error(transparent)]
    Terms(#[from] ScriptSettingsError),
}

/// Says what was unfit.
fn with_subject<T>(what: &str, result: Result<T, UnquotableText>) -> Result<T, DagRenderError> {
    result.map_err(|source| DagRenderError::Unquotable { what: what.to_owned(), source })
}

/// Writes all that HTCondor has to know of a run into its directory. The outer DAG comes last: where it is, all is.
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

/// Writes anew what may be different when a run is gone on with: all but its DAGs, which rescue files are for. The number
/// of retries is in the terms; DAGMan is told of it by [`rescue::adapt`](crate::rescue::adapt).
pub fn rewrite_run_files(run: &RequestDagRun<'_>) -> Result<(), DagRenderError> {
    write_script_settings(run, &QuotedFragments::from_run(run)?)
}

/// Writes the submit files anew while DAGMan works: it reads them whenever it submits a node.
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

/// The submit files, bans, and what scripts have to know.
fn write_script_settings(run: &RequestDagRun<'_>, words: &QuotedFragments<'_>) -> Result<(), DagRenderError> {
    write_submit_files(run, words)?;
    write_bans(run.directory, run.banned_sites)?;
    Ok(script_settings(run).save(run.directory)?)
}

/// Where nothing is to land from now on. Read whenever a landing is submitted.
pub fn write_bans(directory: &Path, sites: &[String]) -> Result<(), DagRenderError> {
    let text = with_subject("a site that is banned", submit_files::render_bans(sites))?;
    write_atomically(directory, file_layout::BANS_FILE, &text)
}

/// What is there may be read at any moment.
fn write_atomically(directory: &Path, name: &str, text: &str) -> Result<(), DagRenderError> {
    let (hidden, path) = (directory.join(format!(".{name}")), directory.join(name));
    write_file(&hidden, text)?;
    fs::rename(&hidden, &path).map_err(|source| DagRenderError::Io { path, source })
}

fn write_file(path: &Path, text: &str) -> Result<(), DagRenderError> {
    fs::write(path, text).map_err(|source| DagRenderError::Io { path: path.to_owned(), source })
}

/// What stands in many lines, once it is known to be fit for them.
#[derive(Debug)]
struct QuotedFragments<'a> {
    program: &'a str,
    /// Each as one list, in the order of [`Run::site_sets`].
    site_sets: Vec<String>,
    /// The kinds of processing nodes, in the order of [`Run::sizes`].
    kinds: Vec<String>,
    /// `step_profile.json` was there.
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
            kinds: (0..run.sizes.len()).map(|size| format!("processing_{size}")).collect(),
            has_profile: run.directory.join(STEP_PROFILE_FILE).is_file(),
        })
    }
}

/// What earlier rounds measured; jobs look for it beside their manifest.
const STEP_PROFILE_FILE: &str = "step_profile.json";

/// The kind of a node of which each unit has one, in a run with so many sizes of units.
fn unit_node_kind(role: NodeRole, size: u32, sizes: usize) -> String {
    if sizes <= 1 { role_kind(role).to_owned() } else { format!("{}_{size}", role_kind(role)) }
}

/// What kinds of nodes are called after.
const fn role_kind(role: NodeRole) -> &'static str {
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
    /// Merges and cleanups need what they need.
    fn memory_override(&self, role: NodeRole) -> Option<u64> {
        self.memory_override_mb.filter(|_| matches!(role, NodeRole::Landing | NodeRole::Processing))
    }
}

fn script_settings(run: &RequestDagRun<'_>) -> ScriptSettings {
    let kind = |role: NodeRole, size: NodeResources| NodeKind {
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
        let named = |role, size| (unit_node_kind(role, number, run.unit_sizes.len()), kind(role, size));
        [
            named(NodeRole::Landing, size.landing),
            named(NodeRole::Merge, size.merge),
            named(NodeRole::Cleanup, size.cleanup),
        ]
    });
    let processing = run.sizes.iter().enumerate();
    let processing =
        processing.map(|(n, size)| (format!("processing_{n}"), kind(NodeRole::Processing, *size)));
    ScriptSettings {
        name: run.request.to_owned(),
        run: run.run.to_owned(),
        program: run.programs.on_this_host.to_owned(),
        kinds: others.chain(processing).collect(),
        care: run.retry_policy,
        handlers: BTreeMap::new(),
        digest: None,
        submission_dir: None,
        accounting: run.accounting.clone(),
    }
}
