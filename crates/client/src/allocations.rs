//! Allocations of Slurm.

use crate::{Client, Error, Problem};
use windlass_api::allocations::{Allocation, Allocations, AskForAllocations, LookedAtAllocations};
use windlass_api::slurm::{SlurmAccount, SlurmAccounts, SlurmStatus};
use windlass_types::{AllocationId, WorkflowId};

impl Client {
    /// Whether the server asks Slurm for allocations, and how that goes.
    pub fn slurm_status(&self) -> Result<SlurmStatus, Error> {
        self.get("/api/v1/slurm").map_err(|error| match error {
            Error::Refused(problem) if problem.status == 404 => {
                Error::Refused(Box::new(self.too_old(*problem)))
            }
            other => other,
        })
    }

    /// That there is no such page says nothing to whoever asked for something else.
    fn too_old(&self, problem: Problem) -> Problem {
        Problem {
            detail: format!(
                "the server at {} is older than this windlass: it knows nothing of Slurm",
                self.url()
            ),
            hint: Some("start the server again with this version: `windlass serve --slurm`".to_owned()),
            ..problem
        }
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

    /// What Slurm's accounting has of those of a workflow, asked by the server.
    pub fn slurm_accounts(&self, workflow: WorkflowId) -> Result<Vec<SlurmAccount>, Error> {
        Ok(self.get::<SlurmAccounts>(&format!("/api/v1/workflows/{workflow}/allocations/accounts"))?.items)
    }

    /// It is not wanted any more.
    pub fn cancel_allocation(&self, id: AllocationId) -> Result<Allocation, Error> {
        self.delete(&format!("/api/v1/allocations/{id}"))
    }
}
