//! Allocations of Slurm.

use crate::{Client, Error};
use windlass_api::allocations::{Allocation, Allocations, AskForAllocations, LookedAtAllocations};
use windlass_api::slurm::SlurmStatus;
use windlass_types::{AllocationId, WorkflowId};

impl Client {
    /// Whether the server asks Slurm for allocations, and how that goes.
    pub fn slurm_status(&self) -> Result<SlurmStatus, Error> {
        self.get("/api/v1/slurm")
    }

    /// Those of a workflow, by number.
    pub fn allocations(&self, workflow: WorkflowId) -> Result<Vec<Allocation>, Error> {
        Ok(self.get::<Allocations>(&format!("/api/v1/workflows/{workflow}/allocations"))?.items)
    }

    pub fn allocation(&self, id: AllocationId) -> Result<Allocation, Error> {
        self.get(&format!("/api/v1/allocations/{id}"))
    }

    /// More of them, as a scheduler of the workflow says.
    pub fn ask_for_allocations(
        &self,
        workflow: WorkflowId,
        wanted: &AskForAllocations,
    ) -> Result<Vec<Allocation>, Error> {
        let path = format!("/api/v1/workflows/{workflow}/allocations");
        Ok(self.post::<Allocations>(&path, wanted)?.items)
    }

    /// Has Slurm asked now how they stand.
    pub fn look_at_allocations(&self, workflow: WorkflowId) -> Result<LookedAtAllocations, Error> {
        self.post(&format!("/api/v1/workflows/{workflow}/allocations/look"), &serde_json::json!({}))
    }

    /// It is not wanted any more.
    pub fn cancel_allocation(&self, id: AllocationId) -> Result<Allocation, Error> {
        self.delete(&format!("/api/v1/allocations/{id}"))
    }
}
