//! What only a server can do: starting workflows, and managing those who work on them.

use crate::{Client, ClientError};
use serde::{Deserialize, Serialize};
use windlass_types::{RunId, Timestamp, WorkerId, WorkflowId};

/// How a server is.
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

/// A worker of a server, as it tells of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WorkerInfo {
    pub id: WorkerId,
    pub kind: String,
    pub user: String,
    pub host: String,
    pub pid: u32,
    /// It works for this one only.
    pub workflow_id: Option<WorkflowId>,
    /// Where it is, if that is known.
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
    /// Not told by servers of earlier versions, nor of those that are gone.
    #[serde(default)]
    pub held_jobs: Option<u64>,
    #[serde(default)]
    pub silence_seconds: Option<f64>,
    #[serde(default)]
    pub time_left_seconds: Option<f64>,
    /// `trusted`, `set_aside` or `on_probation`, as its node is; why, and until when it gets nothing.
    #[serde(default)]
    pub standing: Option<String>,
    #[serde(default)]
    pub set_aside_because: Option<String>,
    #[serde(default)]
    pub set_aside_until: Option<Timestamp>,
}

impl Client {
    /// Those who are there now and may be seen: of one workflow and for all, or all there are.
    pub fn workers(&self, workflow: Option<WorkflowId>) -> Result<Vec<WorkerInfo>, ClientError> {
        #[derive(Deserialize)]
        struct WorkersPage {
            items: Vec<WorkerInfo>,
        }
        let of = workflow.map(|id| format!("&workflow={id}")).unwrap_or_default();
        Ok(self.get::<WorkersPage>(&format!("/api/v1/workers?is_active=true{of}"))?.items)
    }

    /// One that is there, or was.
    pub fn worker(&self, worker: WorkerId) -> Result<WorkerInfo, ClientError> {
        self.get(&format!("/api/v1/workers/{worker}"))
    }

    /// Has the workers of the server run the workflow. One that was started is left as it is.
    pub fn start_workflow(&self, workflow: WorkflowId) -> Result<RunId, ClientError> {
        #[derive(Deserialize)]
        struct StartedRun {
            run_id: RunId,
        }
        let started: StartedRun = self.post(&format!("/api/v1/workflows/{workflow}/start"), &EmptyBody {})?;
        Ok(started.run_id)
    }

    /// The machine on which a worker runs or ran.
    pub fn worker_host(&self, worker: WorkerId) -> Result<String, ClientError> {
        Ok(self.worker(worker)?.host)
    }

    /// Has a worker finish what it has, and leave.
    pub fn drain_worker(&self, worker: WorkerId) -> Result<(), ClientError> {
        self.post::<serde::de::IgnoredAny>(&format!("/api/v1/workers/{worker}/drain"), &EmptyBody {})
            .map(|_| ())
    }

    /// Says that a worker is certainly dead: what it held runs again at once.
    pub fn retire_worker(&self, worker: WorkerId) -> Result<(), ClientError> {
        self.post::<serde::de::IgnoredAny>(&format!("/api/v1/workers/{worker}/retire"), &EmptyBody {})
            .map(|_| ())
    }

    /// How the server is; needs no credentials. One that is not well says so too.
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
