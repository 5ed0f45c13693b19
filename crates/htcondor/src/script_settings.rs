//! Settings for the scripts of a run's nodes, in `condor.json` beside its DAG. The scripts never contact a
//! server.
//!
//! DAGMan calls them in the directory where it works: that of the unit, or that of the run for nodes of the outer
//! DAG and of a workflow spec. The rendered lines are (`$…` are macros of DAGMan, KIND is a key of
//! [`ScriptSettings::node_groups`]):
//!
//! ```text
//! PRE  of all nodes     PROGRAM condor pre $JOB $RETRY
//! POST of a landing     PROGRAM condor elect $JOB $RETURN $RETRY $MAX_RETRIES $JOBID KIND
//! POST of other nodes   PROGRAM condor post $JOB $RETURN $RETRY $MAX_RETRIES $JOBID KIND
//! POST of a unit        PROGRAM condor unit $JOB $RETURN
//! ```
//!
//! If a PRE script exits with [`TOO_EARLY_EXIT_CODE`], DAGMan runs it again after
//! [`RequestRetrySettings::recheck_interval_sec`].

use crate::file_layout;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use windlass_types::requests::NodeRole;
use windlass_types::settings::FailureHandler;
use windlass_types::{Ratio, Resources};

/// The exit code of a PRE script while the cool-off of its node is not over, or its run is paused.
pub const TOO_EARLY_EXIT_CODE: u8 = 75;

/// The settings for the scripts of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptSettings {
    /// The name of the request or the workflow.
    pub name: String,
    /// The UUID of the run.
    pub run: String,
    /// The absolute path of `windlass` on this machine, which runs the scripts.
    pub program: PathBuf,
    /// The groups of nodes with the same settings, by name.
    #[serde(rename = "kinds")]
    pub node_groups: BTreeMap<String, NodeGroupSettings>,
    /// For nodes of requests.
    #[serde(default, rename = "care")]
    pub retry_settings: RequestRetrySettings,
    /// For jobs of a workflow spec, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handlers: BTreeMap<String, FailureHandler>,
    /// The hash of the text of a workflow spec: identifies an interrupted submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The base of the relative paths of a workflow spec, and the working directory of its recovery scripts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_dir: Option<PathBuf>,
    /// Attributes of all jobs for accounting.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accounting: BTreeMap<String, String>,
}

/// The settings that the nodes of a group share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGroupSettings {
    /// `None`: a job of a workflow spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<NodeRole>,
    /// Attempts after the first one: the number in its `RETRY` line.
    pub retries: u32,
    /// The resources of the first attempt.
    pub asked: Resources,
    /// A key of [`ScriptSettings::handlers`]. Without one, a job of a workflow spec is not retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
}

/// How failures of a request's nodes are retried, depending on their class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRetrySettings {
    /// The delay before the second attempt; doubled for each further attempt.
    pub cool_off_sec: u64,
    pub longest_cool_off_sec: u64,
    /// Factor for memory or time after a failure for lack of it.
    pub growth: Ratio,
    /// The largest memory of a job, in MB per core.
    pub max_memory_per_core_mb: u64,
    pub longest_runtime_sec: u64,
}

impl Default for RequestRetrySettings {
    fn default() -> Self {
        Self {
            cool_off_sec: 60,
            longest_cool_off_sec: 600,
            growth: Ratio::from_millionths(1_500_000),
            max_memory_per_core_mb: 3000,
            longest_runtime_sec: 48 * 3600,
        }
    }
}

impl RequestRetrySettings {
    /// How long DAGMan waits before it asks again whether a cool-off is over.
    pub fn recheck_interval_sec(&self) -> u64 {
        self.cool_off_sec.clamp(1, 10)
    }

    /// The largest memory of a job with this number of cores.
    pub fn memory_ceiling_mb(&self, cpus: u32) -> u64 {
        self.max_memory_per_core_mb.saturating_mul(u64::from(cpus.max(1)))
    }
}

/// `condor.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptSettingsError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot parse {path}: {source}")]
    Invalid { path: PathBuf, source: serde_json::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "there is no {} in {directory} nor above it: it is no directory of a run",
        file_layout::SCRIPT_SETTINGS_FILE
    )]
    Missing { directory: PathBuf },
}

impl ScriptSettings {
    /// Reads the settings of the run in this directory.
    pub fn load(run: &Path) -> Result<Self, ScriptSettingsError> {
        read_json(run.join(file_layout::SCRIPT_SETTINGS_FILE))
    }

    /// Reads the settings of the run of a DAGMan that works in `directory`, the run's own or that of a unit; with
    /// the run's directory.
    pub fn find_for_directory(directory: &Path) -> Result<(Self, PathBuf), ScriptSettingsError> {
        let missing = || ScriptSettingsError::Missing { directory: directory.to_owned() };
        let whole = directory.canonicalize().map_err(|_| missing())?;
        let run =
            whole.ancestors().take(2).find(|above| above.join(file_layout::SCRIPT_SETTINGS_FILE).is_file());
        let run = run.ok_or_else(missing)?;
        Ok((Self::load(run)?, run.to_owned()))
    }

    /// Writes atomically: a script may read while a rescue is being prepared.
    pub fn save(&self, run: &Path) -> Result<(), ScriptSettingsError> {
        write_json(run, file_layout::SCRIPT_SETTINGS_FILE, self)
    }
}

/// The jobs of a workflow spec whose nodes have other names than the jobs: node → job.
///
/// Not among the settings, which are read after each attempt: there may be as many of these as there are jobs.
pub fn read_names(run: &Path) -> Result<BTreeMap<String, String>, ScriptSettingsError> {
    match read_json(run.join(file_layout::NAMES_FILE)) {
        Err(ScriptSettingsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(BTreeMap::new())
        }
        names => names,
    }
}

/// See [`read_names`].
pub(crate) fn write_names(run: &Path, names: &BTreeMap<String, String>) -> Result<(), ScriptSettingsError> {
    write_json(run, file_layout::NAMES_FILE, names)
}

fn read_json<T: DeserializeOwned>(path: PathBuf) -> Result<T, ScriptSettingsError> {
    let text = fs::read(&path).map_err(|source| ScriptSettingsError::Read { path: path.clone(), source })?;
    serde_json::from_slice(&text).map_err(|source| ScriptSettingsError::Invalid { path, source })
}

fn write_json(run: &Path, name: &str, what: &impl Serialize) -> Result<(), ScriptSettingsError> {
    let path = run.join(name);
    let hidden = run.join(format!(".{name}"));
    let text = serde_json::to_vec_pretty(what).map_err(io::Error::from);
    text.and_then(|text| fs::write(&hidden, text))
        .and_then(|()| fs::rename(&hidden, &path))
        .map_err(|source| ScriptSettingsError::Write { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::Bytes;

    fn settings() -> ScriptSettings {
        let asked = Resources { cpus: 4, memory: Bytes(8 << 30), ..Resources::DEFAULT };
        let group = NodeGroupSettings { role: Some(NodeRole::Processing), retries: 3, asked, handler: None };
        ScriptSettings {
            name: "request".into(),
            run: "550e8400-e29b-41d4-a716-446655440000".into(),
            program: "/usr/bin/windlass".into(),
            node_groups: [("processing_0".to_owned(), group)].into(),
            retry_settings: RequestRetrySettings::default(),
            handlers: BTreeMap::new(),
            digest: None,
            submission_dir: None,
            accounting: BTreeMap::new(),
        }
    }

    #[test]
    fn scripts_find_the_settings_of_their_run() {
        let run = tempfile::tempdir().unwrap();
        let unit = file_layout::unit_directory(run.path(), 12);
        fs::create_dir_all(unit.join("deeper")).unwrap();
        assert!(matches!(
            ScriptSettings::find_for_directory(&unit),
            Err(ScriptSettingsError::Missing { .. })
        ));
        settings().save(run.path()).unwrap();
        for directory in [run.path(), &unit] {
            let (found, home) = ScriptSettings::find_for_directory(directory).unwrap();
            assert_eq!((found, home), (settings(), run.path().canonicalize().unwrap()));
        }
        assert!(matches!(
            ScriptSettings::find_for_directory(&unit.join("deeper")),
            Err(ScriptSettingsError::Missing { .. })
        ));
    }

    #[test]
    fn invalid_settings_differ_from_missing_settings() {
        let run = tempfile::tempdir().unwrap();
        assert!(matches!(ScriptSettings::load(run.path()), Err(ScriptSettingsError::Read { .. })));
        fs::write(run.path().join(file_layout::SCRIPT_SETTINGS_FILE), "{").unwrap();
        assert!(matches!(ScriptSettings::load(run.path()), Err(ScriptSettingsError::Invalid { .. })));
    }

    #[test]
    fn memory_ceiling_grows_with_the_cores() {
        let retry_settings =
            RequestRetrySettings { max_memory_per_core_mb: 2000, ..RequestRetrySettings::default() };
        assert_eq!([0, 1, 8].map(|cpus| retry_settings.memory_ceiling_mb(cpus)), [2000, 2000, 16_000]);
    }
}
