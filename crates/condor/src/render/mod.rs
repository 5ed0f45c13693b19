//! A run as the text of DAGs and submit files, and those files on disk.
//!
//! The text is made by pure functions; [`render_run`] writes it. What a request says ends up here only through
//! [`quote`]: as the words of a DAG file, in quotes, or not at all.
//!
//! Per work unit there are one directory and one file, `group.dag`; the submit files are there once. What differs between
//! nodes is in the VARS of the DAG, what is known only later in files that are read when a node is submitted
//! (`elected.inc`, `NODE.inc`, `bans.inc`).

mod group;
mod outer;
pub mod quote;
mod spec;
mod submits;

pub use quote::Unfit;
pub use spec::{SpecRun, Transfer, render_spec, spec_faults};
pub use submits::{elected, next_attempt, node_priority};

use crate::layout;
use crate::terms::{Care, NodeKind, Terms, TermsError};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_types::requests::NodeRole;
use windlass_types::{Bytes, Resources};

/// A planned run of a request. Its manifests are in `directory` already.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    pub directory: &'a Path,
    /// The name of the request.
    pub request: &'a str,
    /// The UUID of the run.
    pub run: &'a str,
    /// The UUID of the request's workflow, to which all its runs belong.
    pub workflow: &'a str,
    pub programs: Programs<'a>,
    /// Sets of sites that units name.
    pub site_sets: &'a [Vec<String>],
    /// What processing nodes ask for.
    pub sizes: &'a [NodeSize],
    /// What the other nodes of units ask for.
    pub unit_sizes: &'a [UnitSize],
    /// In the order of their numbers.
    pub units: &'a [Unit],
    pub retries: Retries,
    /// How many nodes of a category at once: `Processing`, `Merge`, `Cleanup` in each unit; `MergeGroup`: how many units.
    pub throttles: &'a BTreeMap<String, u64>,
    pub care: Care,
    /// Among the jobs of the same user, the higher first.
    pub priority: i32,
    /// Attributes that all jobs bear; `accounting_group` and `accounting_group_user` are HTCondor's own.
    pub accounting: &'a BTreeMap<String, String>,
    pub credentials: Credentials<'a>,
    /// Sites where nothing is to land.
    pub banned: &'a [String],
    /// What landings and processing nodes get, in MB, whatever was planned for them: somebody said so later.
    pub memory_mb: Option<u64>,
}

/// The `windlass` that scripts and jobs are.
#[derive(Clone, Copy, Debug)]
pub struct Programs<'a> {
    /// On this machine, absolute.
    pub here: &'a Path,
    /// Where workers have it, absolute. `None`: it is sent along with each job.
    pub on_workers: Option<&'a Path>,
}

/// What a node asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSize {
    pub cpus: u32,
    pub memory_mb: u64,
    pub disk_kb: u64,
    /// It is ended then.
    pub runtime_sec: u64,
}

/// What the nodes of a work unit ask for that are there once in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitSize {
    pub landing: NodeSize,
    pub merge: NodeSize,
    pub cleanup: NodeSize,
}

/// A work unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Index into [`Run::site_sets`].
    pub sites: u32,
    /// Index into [`Run::unit_sizes`].
    pub size: u32,
    /// `(index into Run::sizes, how many)` in the order of the nodes.
    pub nodes: Vec<(u32, u32)>,
}

/// After the first attempt, by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    pub landing: u32,
    pub processing: u32,
    pub merge: u32,
    pub cleanup: u32,
}

/// With what jobs go to storage. Both are files of this machine, absolute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// An X.509 proxy. HTCondor sends it along, and again when it was renewed.
    pub proxy: Option<&'a Path>,
    /// A token; jobs find it by `BEARER_TOKEN_FILE`.
    pub token: Option<&'a Path>,
}

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot write {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{what}: {source}")]
    Unfit { what: String, source: Unfit },
    #[error("unit {unit} of the run names {what} that it does not have")]
    Dangling { unit: usize, what: &'static str },
    #[error("the run has no work units: there is nothing to submit")]
    Empty,
    #[error("this cannot be a DAG of HTCondor:\n  {}", .0.join("\n  "))]
    NoDag(Vec<String>),
    #[error("a unit of the run may go to no site at all")]
    Nowhere,
    #[error(transparent)]
    Terms(#[from] TermsError),
}

/// Says what was unfit.
fn named<T>(what: &str, result: Result<T, Unfit>) -> Result<T, RenderError> {
    result.map_err(|source| RenderError::Unfit { what: what.to_owned(), source })
}

/// Writes all that HTCondor has to know of a run into its directory. The outer DAG comes last: where it is, all is.
pub fn render_run(run: &Run<'_>) -> Result<(), RenderError> {
    if run.units.is_empty() {
        return Err(RenderError::Empty);
    }
    let words = Words::of(run)?;
    let put = |name: &str, text: &str| write(&run.directory.join(name), text);
    put(layout::CONFIG, outer::CONFIG)?;
    write_terms(run, &words)?;
    let mut text = String::new();
    for (number, unit) in (0..).zip(run.units) {
        text.clear();
        group::write(&mut text, run, &words, number, unit)?;
        let directory = layout::unit_directory(run.directory, number);
        fs::create_dir_all(&directory)
            .map_err(|source| RenderError::Io { path: directory.clone(), source })?;
        write(&directory.join(layout::GROUP_DAG), &text)?;
    }
    put(layout::OUTER_DAG, &outer::dag(run, &words))
}

/// Writes anew what may be different when a run is gone on with: all but its DAGs, which rescue files are for. The number
/// of retries is in the terms; DAGMan is told of it by [`rescue::adapt`](crate::rescue::adapt).
pub fn renew(run: &Run<'_>) -> Result<(), RenderError> {
    write_terms(run, &Words::of(run)?)
}

/// Writes the submit files anew while DAGMan works: it reads them whenever it submits a node.
pub fn renew_submit_files(run: &Run<'_>) -> Result<(), RenderError> {
    write_submit_files(run, &Words::of(run)?)
}

fn write_submit_files(run: &Run<'_>, words: &Words<'_>) -> Result<(), RenderError> {
    for role in NodeRole::ALL {
        let text = submits::submit_file(run, words, *role)?;
        write_whole(run.directory, submits::file_name(*role), &text)?;
    }
    Ok(())
}

/// The submit files, bans, and what scripts have to know.
fn write_terms(run: &Run<'_>, words: &Words<'_>) -> Result<(), RenderError> {
    write_submit_files(run, words)?;
    write_bans(run.directory, run.banned)?;
    Ok(terms(run).write(run.directory)?)
}

/// Where nothing is to land from now on. Read whenever a landing is submitted.
pub fn write_bans(directory: &Path, sites: &[String]) -> Result<(), RenderError> {
    let text = named("a site that is banned", submits::bans(sites))?;
    write_whole(directory, layout::BANS, &text)
}

/// What is there may be read at any moment.
fn write_whole(directory: &Path, name: &str, text: &str) -> Result<(), RenderError> {
    let (hidden, path) = (directory.join(format!(".{name}")), directory.join(name));
    write(&hidden, text)?;
    fs::rename(&hidden, &path).map_err(|source| RenderError::Io { path, source })
}

fn write(path: &Path, text: &str) -> Result<(), RenderError> {
    fs::write(path, text).map_err(|source| RenderError::Io { path: path.to_owned(), source })
}

/// What stands in many lines, once it is known to be fit for them.
#[derive(Debug)]
struct Words<'a> {
    program: &'a str,
    /// Each as one list, in the order of [`Run::site_sets`].
    site_sets: Vec<String>,
    /// The kinds of processing nodes, in the order of [`Run::sizes`].
    kinds: Vec<String>,
    /// `step_profile.json` was there.
    has_profile: bool,
}

impl<'a> Words<'a> {
    fn of(run: &Run<'a>) -> Result<Self, RenderError> {
        if run.site_sets.iter().any(Vec::is_empty) {
            return Err(RenderError::Nowhere);
        }
        let sets = run.site_sets.iter().map(|set| named("a site of the run", quote::sites(set)));
        let what = "the path of windlass";
        Ok(Self {
            program: named(what, quote::dag_word(submits::absolute(what, run.programs.here)?))?,
            site_sets: sets.collect::<Result<_, _>>()?,
            kinds: (0..run.sizes.len()).map(|size| format!("processing_{size}")).collect(),
            has_profile: run.directory.join(PROFILE).is_file(),
        })
    }
}

/// What earlier rounds measured; jobs look for it beside their manifest.
const PROFILE: &str = "step_profile.json";

/// The kind of a node of which each unit has one, in a run with so many sizes of units.
fn kind_in_unit(role: NodeRole, size: u32, sizes: usize) -> String {
    if sizes <= 1 { kind_of(role).to_owned() } else { format!("{}_{size}", kind_of(role)) }
}

/// What kinds of nodes are called after.
const fn kind_of(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Landing => layout::LANDING,
        NodeRole::Processing => "processing",
        NodeRole::Merge => layout::MERGE,
        NodeRole::Cleanup => layout::CLEANUP,
    }
}

impl Retries {
    const fn of(self, role: NodeRole) -> u32 {
        match role {
            NodeRole::Landing => self.landing,
            NodeRole::Processing => self.processing,
            NodeRole::Merge => self.merge,
            NodeRole::Cleanup => self.cleanup,
        }
    }
}

impl Run<'_> {
    /// Merges and cleanups need what they need.
    fn said_memory(&self, role: NodeRole) -> Option<u64> {
        self.memory_mb.filter(|_| matches!(role, NodeRole::Landing | NodeRole::Processing))
    }
}

fn terms(run: &Run<'_>) -> Terms {
    let kind = |role: NodeRole, size: NodeSize| NodeKind {
        role: Some(role),
        retries: run.retries.of(role),
        asked: Resources {
            cpus: size.cpus,
            memory: Bytes(run.said_memory(role).unwrap_or(size.memory_mb) << 20),
            runtime: Some(Duration::from_secs(size.runtime_sec)),
            ..Resources::DEFAULT
        },
        handler: None,
    };
    let others = (0..).zip(run.unit_sizes).flat_map(|(number, size)| {
        let named = |role, size| (kind_in_unit(role, number, run.unit_sizes.len()), kind(role, size));
        [
            named(NodeRole::Landing, size.landing),
            named(NodeRole::Merge, size.merge),
            named(NodeRole::Cleanup, size.cleanup),
        ]
    });
    let processing = run.sizes.iter().enumerate();
    let processing =
        processing.map(|(n, size)| (format!("processing_{n}"), kind(NodeRole::Processing, *size)));
    Terms {
        name: run.request.to_owned(),
        run: run.run.to_owned(),
        program: run.programs.here.to_owned(),
        kinds: others.chain(processing).collect(),
        care: run.care,
        handlers: BTreeMap::new(),
        digest: None,
        submission_dir: None,
        accounting: run.accounting.clone(),
    }
}
