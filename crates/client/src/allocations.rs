//! Allocations of Slurm.

use crate::{Client, ClientError, ProblemDetails};
use windlass_api::allocations::{
    AllocationList, AllocationRefreshResult, AllocationResponse, CreateAllocations,
};
use windlass_api::slurm::{SlurmAccountingEntry, SlurmAccountingList, SlurmStatus};
use windlass_types::{AllocationId, WorkflowId};

impl Client {
    /// Whether the server asks Slurm for allocations, and how that goes.
    pub fn slurm_status(&self) -> Result<SlurmStatus, ClientError> {
        self.get("/api/v1/slurm").map_err(|error| match error {
            ClientError::Rejected(problem) if problem.status == 404 => {
                ClientError::Rejected(Box::new(self.server_too_old_error(*problem)))
            }
            other => other,
        })
    }

    /// That there is no such page says nothing to whoever asked for something else.
    fn server_too_old_error(&self, problem: ProblemDetails) -> ProblemDetails {
        ProblemDetails {
            detail: format!(
                "the server at {} is older than this windlass: it knows nothing of Slurm",
                self.url()
            ),
            hint: Some("start the server again with this version: `windlass serve --slurm`".to_owned()),
            ..problem
        }
    }

    /// Those of a workflow, by number.
    pub fn allocations(&self, workflow: WorkflowId) -> Result<Vec<AllocationResponse>, ClientError> {
        Ok(self.get::<AllocationList>(&format!("/api/v1/workflows/{workflow}/allocations"))?.items)
    }

    pub fn allocation(&self, id: AllocationId) -> Result<AllocationResponse, ClientError> {
        self.get(&format!("/api/v1/allocations/{id}"))
    }

    /// More of them, as a scheduler of the workflow says.
    pub fn create_allocations(
        &self,
        workflow: WorkflowId,
        wanted: &CreateAllocations,
    ) -> Result<Vec<AllocationResponse>, ClientError> {
        let path = format!("/api/v1/workflows/{workflow}/allocations");
        Ok(self.post::<AllocationList>(&path, wanted)?.items)
    }

    /// Has Slurm asked now how they stand.
    pub fn refresh_allocations(&self, workflow: WorkflowId) -> Result<AllocationRefreshResult, ClientError> {
        self.post(&format!("/api/v1/workflows/{workflow}/allocations/look"), &serde_json::json!({}))
    }

    /// What Slurm's accounting has of those of a workflow, asked by the server.
    pub fn slurm_accounting(&self, workflow: WorkflowId) -> Result<Vec<SlurmAccountingEntry>, ClientError> {
        Ok(self
            .get::<SlurmAccountingList>(&format!("/api/v1/workflows/{workflow}/allocations/accounts"))?
            .items)
    }

    /// It is not wanted any more.
    pub fn cancel_allocation(&self, id: AllocationId) -> Result<AllocationResponse, ClientError> {
        self.delete(&format!("/api/v1/allocations/{id}"))
    }
}
