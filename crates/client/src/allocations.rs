//! Slurm allocations.

use crate::{Client, ClientError, ProblemDetails};
use windlass_api::allocations::{
    AllocationList, AllocationRefreshResult, AllocationResponse, CreateAllocations,
};
use windlass_api::slurm::{SlurmAccountingEntry, SlurmAccountingList, SlurmStatus};
use windlass_types::{AllocationId, WorkflowId};

impl Client {
    /// Returns whether the server manages Slurm allocations, and the state of its reconciler.
    pub fn slurm_status(&self) -> Result<SlurmStatus, ClientError> {
        self.get("/api/v1/slurm").map_err(|error| match error {
            ClientError::Rejected(problem) if problem.status == 404 => {
                ClientError::Rejected(Box::new(self.server_too_old_error(*problem)))
            }
            other => other,
        })
    }

    /// A server without this route is too old; its plain 404 would not help the user.
    fn server_too_old_error(&self, problem: ProblemDetails) -> ProblemDetails {
        ProblemDetails {
            detail: format!(
                "the server at {} is older than this windlass: it does not support Slurm",
                self.url()
            ),
            hint: Some("restart the server with this version: `windlass serve --slurm`".to_owned()),
            ..problem
        }
    }

    /// Lists the allocations of a workflow by number.
    pub fn allocations(&self, workflow: WorkflowId) -> Result<Vec<AllocationResponse>, ClientError> {
        Ok(self.get::<AllocationList>(&format!("/api/v1/workflows/{workflow}/allocations"))?.items)
    }

    pub fn allocation(&self, id: AllocationId) -> Result<AllocationResponse, ClientError> {
        self.get(&format!("/api/v1/allocations/{id}"))
    }

    /// Requests allocations with a scheduler of the workflow.
    pub fn create_allocations(
        &self,
        workflow: WorkflowId,
        wanted: &CreateAllocations,
    ) -> Result<Vec<AllocationResponse>, ClientError> {
        let path = format!("/api/v1/workflows/{workflow}/allocations");
        Ok(self.post::<AllocationList>(&path, wanted)?.items)
    }

    /// Refreshes the state of allocations from Slurm now.
    pub fn refresh_allocations(&self, workflow: WorkflowId) -> Result<AllocationRefreshResult, ClientError> {
        self.post(&format!("/api/v1/workflows/{workflow}/allocations/look"), &serde_json::json!({}))
    }

    /// Returns Slurm accounting data of a workflow's allocations, queried by the server.
    pub fn slurm_accounting(&self, workflow: WorkflowId) -> Result<Vec<SlurmAccountingEntry>, ClientError> {
        Ok(self
            .get::<SlurmAccountingList>(&format!("/api/v1/workflows/{workflow}/allocations/accounts"))?
            .items)
    }

    /// Cancels an allocation.
    pub fn cancel_allocation(&self, id: AllocationId) -> Result<AllocationResponse, ClientError> {
        self.delete(&format!("/api/v1/allocations/{id}"))
    }
}
