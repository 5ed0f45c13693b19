//! What a user can say about a job, and about the jobs of one entry of a spec. Shared by specs, the store, the
//! scheduler, the API and jobs that jobs add.
//!
//! Resource requirements, failure handlers and Slurm schedulers are references: `R` is a name (`String`), an id of
//! the database (`i64`) or an index into the lists of a new workflow (`u32`).

use crate::worker_messages::StdioSettings;
use serde::{Deserialize, Serialize};

/// Settings that jobs usually share with other jobs. The store keeps them in job groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "R: Deserialize<'de> + Default"))]
pub struct JobSettings<R = String> {
    /// `None`: the one of the workflow.
    pub stdio: Option<StdioSettings>,
    pub supports_termination: Option<bool>,
    pub failure_handler: Option<R>,
    pub scheduler: Option<R>,
    /// Worker labels: only workers with all of them run the job.
    pub labels: Vec<String>,
    /// Sites where the job may run; empty: any site.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    /// The job limit of the workflow that the job counts towards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// Rarely used fields of a job. The store keeps them in one column, so that a new one needs no migration. `T` is a
/// text, in a spec before its parameters are known a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "T: Deserialize<'de> + Default"))]
pub struct JobOptions<T = String> {
    /// What the job does, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<T>,
}

impl<T> JobOptions<T> {
    /// Converts the texts.
    pub fn map<'a, U>(&'a self, mut convert: impl FnMut(&'a T) -> U) -> JobOptions<U> {
        let Self { description } = self;
        JobOptions { description: description.as_ref().map(&mut convert) }
    }
}

/// A job without its dependencies, files and user data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de> + Default"))]
pub struct JobDefinition<R = String> {
    /// Unique in the workflow.
    pub name: String,
    /// Run by a shell.
    pub command: String,
    /// Text to put before the command. `None`: the one of the job group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<String>,
    /// In addition to the environment of the workflow and of the job group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// `None`: [`Resources::DEFAULT`](crate::Resources::DEFAULT), which limits nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requirements: Option<R>,
    /// Of the jobs that are ready, those with the highest priority start first.
    #[serde(default)]
    pub priority: i32,
    /// Whether the job is canceled if a job that it depends on does not complete.
    pub cancel_on_blocking_job_failure: bool,
    /// Empty for jobs of an entry of a spec: their job group has them.
    #[serde(flatten)]
    pub settings: JobSettings<R>,
    #[serde(flatten)]
    pub options: JobOptions,
}

impl<R> JobDefinition<R> {
    pub fn new(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            command: command.into(),
            invocation_script: None,
            env: Vec::new(),
            resource_requirements: None,
            priority: 0,
            cancel_on_blocking_job_failure: true,
            settings: JobSettings {
                stdio: None,
                supports_termination: None,
                failure_handler: None,
                scheduler: None,
                labels: Vec::new(),
                sites: Vec::new(),
                limit: None,
            },
            options: JobOptions::default(),
        }
    }
}

/// A job without a name; a default for struct updates.
impl<R> Default for JobDefinition<R> {
    fn default() -> Self {
        Self::new("", "")
    }
}

/// A job group: what the jobs of one entry of a spec have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "R: Deserialize<'de> + Default"))]
pub struct JobGroup<R = String> {
    /// Name pattern as written: `solve_{nu:.2f}`. Entries without parameters share a job group if their settings
    /// are equal and their names differ only in numbers: `solve_#`.
    pub name: String,
    /// In addition to the environment of the workflow; only the variables that are the same for all its jobs.
    pub env: Vec<(String, String)>,
    pub invocation_script: Option<String>,
    #[serde(flatten)]
    pub settings: JobSettings<R>,
    /// The names of the parameters of its jobs, in the order written.
    pub parameters: Vec<String>,
    /// Whether its jobs are landing jobs: where one completes, its work unit runs from then on.
    #[serde(rename = "elects", skip_serializing_if = "std::ops::Not::not")]
    pub elects_site: bool,
}

impl<R> JobSettings<R> {
    /// Replaces the references to a failure handler and a scheduler.
    pub fn try_map_references<S, E>(
        self,
        resolve_handler: impl FnOnce(R) -> Result<S, E>,
        resolve_scheduler: impl FnOnce(R) -> Result<S, E>,
    ) -> Result<JobSettings<S>, E> {
        let Self { stdio, supports_termination, failure_handler, scheduler, labels, sites, limit } = self;
        Ok(JobSettings {
            stdio,
            supports_termination,
            failure_handler: failure_handler.map(resolve_handler).transpose()?,
            scheduler: scheduler.map(resolve_scheduler).transpose()?,
            labels,
            sites,
            limit,
        })
    }
}

impl<R> JobGroup<R> {
    /// Replaces the references to a failure handler and a scheduler.
    pub fn try_map_references<S, E>(
        self,
        resolve_handler: impl FnOnce(R) -> Result<S, E>,
        resolve_scheduler: impl FnOnce(R) -> Result<S, E>,
    ) -> Result<JobGroup<S>, E> {
        let Self { name, env, invocation_script, settings, parameters, elects_site } = self;
        let settings = settings.try_map_references(resolve_handler, resolve_scheduler)?;
        Ok(JobGroup { name, env, invocation_script, settings, parameters, elects_site })
    }
}
