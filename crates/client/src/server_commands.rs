//! Operations that only a server supports: starting workflows, and managing workers.

use crate::{Client, ClientError};
use serde::{Deserialize, Serialize};
use windlass_types::{RunId, Timestamp, WorkerId, WorkflowId};

/// Health of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHealth {
    pub status: String,
    #[serde(default)]
    pub role: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub database: String,
}

/// A worker of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WorkerInfo {
    pub id: WorkerId,
    pub kind: String,
    pub user: String,
    pub host: String,
    pub pid: u32,
    /// It runs jobs of this workflow only.
    pub workflow_id: Option<WorkflowId>,
    /// Its site, if known.
    #[serde(default)]
    pub site: Option<String>,
    pub labels: Vec<String>,
    pub num_cpus: u32,
    pub memory_bytes: u64,
    pub num_gpus: u32,
    pub max_jobs: Option<u32>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub is_draining: bool,
    /// Absent for workers that are gone, and from older servers.
    #[serde(default)]
    pub held_jobs: Option<u64>,
    #[serde(default)]
    pub silence_seconds: Option<f64>,
    #[serde(default)]
    pub time_left_seconds: Option<f64>,
    /// `trusted`, `quarantined` or `on_probation`, like its node; the reason, and the end of the quarantine.
    #[serde(default)]
    pub standing: Option<String>,
    #[serde(default, alias = "set_aside_because")]
    pub quarantine_reason: Option<String>,
    #[serde(default, alias = "set_aside_until")]
    pub quarantined_until: Option<Timestamp>,
}

impl Client {
    /// Lists the connected workers that the caller may see: of one workflow and of all workflows, or all.
    pub fn workers(&self, workflow: Option<WorkflowId>) -> Result<Vec<WorkerInfo>, ClientError> {
        #[derive(Deserialize)]
        struct WorkersPage {
            items: Vec<WorkerInfo>,
        }
        let of = workflow.map(|id| format!("&workflow={id}")).unwrap_or_default();
        Ok(self.get::<WorkersPage>(&format!("/api/v1/workers?is_active=true{of}"))?.items)
    }

    /// Returns a connected or former worker.
    pub fn worker(&self, worker: WorkerId) -> Result<WorkerInfo, ClientError> {
        self.get(&format!("/api/v1/workers/{worker}"))
    }

    /// Starts the workflow on the workers of the server. A workflow that is already started does not change.
    pub fn start_workflow(&self, workflow: WorkflowId) -> Result<RunId, ClientError> {
        #[derive(Deserialize)]
        struct StartedRun {
            run_id: RunId,
        }
        let started: StartedRun = self.post(&format!("/api/v1/workflows/{workflow}/start"), &EmptyBody {})?;
        Ok(started.run_id)
    }

    /// Returns the machine on which a worker runs or ran.
    pub fn worker_host(&self, worker: WorkerId) -> Result<String, ClientError> {
        Ok(self.worker(worker)?.host)
    }

    /// Drains a worker: it gets no new jobs and leaves when its jobs have ended.
    pub fn drain_worker(&self, worker: WorkerId) -> Result<(), ClientError> {
        self.post::<serde::de::IgnoredAny>(&format!("/api/v1/workers/{worker}/drain"), &EmptyBody {})
            .map(|_| ())
    }

    /// Retires a worker that is certainly dead: its jobs run again at once.
    pub fn retire_worker(&self, worker: WorkerId) -> Result<(), ClientError> {
        self.post::<serde::de::IgnoredAny>(&format!("/api/v1/workers/{worker}/retire"), &EmptyBody {})
            .map(|_| ())
    }

    /// Returns the health of the server; needs no credentials. Also succeeds if the server is unhealthy.
    pub fn health(&self) -> Result<ServerHealth, ClientError> {
        let answer =
            self.http.get(self.url_for("/health")).send().map_err(|error| self.unreachable_error(error))?;
        let (status, bytes) =
            (answer.status().as_u16(), answer.bytes().map_err(|e| self.unreachable_error(e))?);
        match serde_json::from_slice(&bytes) {
            Ok(health) => Ok(health),
            Err(source) if status == 200 => Err(ClientError::Response { url: self.url().to_owned(), source }),
            Err(_) => {
                Err(ClientError::Rejected(Box::new(crate::ProblemDetails { status, ..Default::default() })))
            }
        }
    }
}

#[derive(Serialize)]
struct EmptyBody {}
