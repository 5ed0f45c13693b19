//! What an agent sits at.

use crate::requests::AboutRequests;
use crate::shown;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::orders::beyond_workers;
use windlass_core::redact::{Masking, Redactor};
use windlass_core::slurm::profile::Profile;
use windlass_core::why::Offer;
use windlass_insight::orders;
use windlass_insight::recovery::Room;
use windlass_store::lock::Holder;
use windlass_store::model::{JobFilter, JobRow, NewWorker, RequirementsChange, UsedBy, WorkflowRow};
use windlass_store::wire::error::Sort;
use windlass_store::{Location, Store};
use windlass_types::orders::{Changes, Orders, Outcome, Wanted};
use windlass_types::slurm::AllocationRequest;
use windlass_types::{Attempt, Clock, JobId, Resources, RunId, Timestamp, WorkerId, WorkflowId};

/// The books that are read in, who does what changes something, and what may be done at all. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pub books: Arc<dyn Store>,
    pub hands: Arc<dyn Hands>,
    /// Which names of variables mean secrets.
    pub masking: Masking,
    /// What the agent calls itself: its decisions are kept under this name.
    pub agent: String,
    /// What it is called by whoever started it, whatever it calls itself.
    pub known_as: Option<String>,
    /// Without it, tools that change something are not even listed.
    pub allow_write: bool,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("allow_write", &self.allow_write).finish_non_exhaustive()
    }
}

/// What not all hands can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skill {
    MakeWorkflows,
    /// Workers that cannot reach their server write results down where they are.
    ReadJournals,
    /// Ask the cluster what it has.
    PlanAllocations,
}

/// Those who act for an agent. What they do is what its person may do, and nothing more.
pub trait Hands: Send + Sync {
    fn can(&self, _skill: Skill) -> bool {
        false
    }

    /// Makes a workflow and says what there is now. `working_dir`: where its jobs are to run.
    fn create(&self, _spec: &SpecText, _working_dir: Option<&str>) -> Result<Value, Trouble> {
        Err(Trouble::refused("workflows cannot be made here"))
    }

    /// Results of a workflow that workers on this machine have and their server does not.
    fn journals(&self, _workflow: WorkflowId) -> Result<Vec<Undelivered>, Trouble> {
        Err(Trouble::refused("journals lie on the machines of the workers"))
    }

    /// What the cluster has: as it says itself, or as a profile of this name does.
    fn cluster(&self, _profile: Option<&str>) -> Result<Profile, Trouble> {
        Err(no_cluster())
    }

    /// When such an allocation would start, in Slurm's words.
    fn would_start(&self, _request: &AllocationRequest) -> Result<String, Trouble> {
        Err(no_cluster())
    }

    /// What Slurm's accounting has of the allocations of a workflow and of their steps: a list.
    fn accounts(&self, _workflow: WorkflowId) -> Result<Vec<Value>, Trouble> {
        Err(no_cluster())
    }

    /// Writes a spec to a new file and says where it is.
    fn save(&self, _spec: &SpecText, _path: &str) -> Result<Value, Trouble> {
        Err(Trouble::refused("files cannot be written here"))
    }

    /// Answers a question about requests, or does something to one.
    fn requests(&self, _asked: &AboutRequests) -> Result<Value, Trouble> {
        Err(Trouble::refused("requests are not kept here"))
    }

    /// Has the workflow run, and comes back while it does.
    fn start(&self, workflow: WorkflowId) -> Result<Value, Trouble>;
    fn cancel(&self, workflow: WorkflowId) -> Result<Value, Trouble>;
    /// Sends jobs back to run again: those that did not end well, or all that ran.
    fn reset(&self, workflow: WorkflowId, failed_only: bool) -> Result<Value, Trouble>;
    /// Those who may work on the workflow now.
    fn workers(&self, books: &dyn Store, workflow: WorkflowId) -> Result<Vec<Offer>, Trouble> {
        let rows = books.active_workers(Some(workflow))?;
        let offer = |worker: NewWorker| Offer {
            labels: worker.labels,
            site: worker.site,
            ..Offer::of(worker.capacity)
        };
        Ok(rows.into_iter().map(|row| offer(row.worker)).collect())
    }

    /// What they have, for jobs that need more of it.
    fn room(&self, books: &dyn Store, workflow: WorkflowId) -> Result<Room, Trouble> {
        Ok(Room::of(&self.workers(books, workflow)?))
    }

    /// Has jobs go back whose workers are certainly gone, where nobody does that by himself.
    fn clear_up(&self, _workflow: WorkflowId) -> Result<(), Trouble> {
        Ok(())
    }

    /// Has whoever runs a workflow look into the books.
    fn nudge(&self, _holder: &Holder) {}

    /// The environments of jobs as they are, to find their secrets in what is told of them. Never shown.
    fn environments(
        &self,
        books: &dyn Store,
        workflow: WorkflowId,
        jobs: &[JobId],
    ) -> Result<Vec<Environment>, Trouble> {
        environments(books, workflow, jobs)
    }
}

/// Variables and their values.
pub type Environment = Vec<(String, String)>;

/// What is in the books for each of the jobs, in the order asked for.
pub fn environments(
    books: &dyn Store,
    workflow: WorkflowId,
    jobs: &[JobId],
) -> Result<Vec<Environment>, Trouble> {
    let shared = books.workflow(workflow)?.map(|row| row.env).unwrap_or_default();
    let all = |own: Environment| shared.iter().cloned().chain(own).collect();
    Ok(books.commands(jobs)?.into_iter().map(|command| all(command.env)).collect())
}

/// For those who only look.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHands;

impl NoHands {
    fn nobody<T>() -> Result<T, Trouble> {
        Err(Trouble::refused("nothing can be changed here"))
    }
}

impl Hands for NoHands {
    fn start(&self, _: WorkflowId) -> Result<Value, Trouble> {
        Self::nobody()
    }

    fn cancel(&self, _: WorkflowId) -> Result<Value, Trouble> {
        Self::nobody()
    }

    fn reset(&self, _: WorkflowId, _: bool) -> Result<Value, Trouble> {
        Self::nobody()
    }
}

/// What a worker could not deliver.
#[derive(Clone, Debug, Serialize)]
pub struct Undelivered {
    pub worker_id: Option<WorkerId>,
    pub host: String,
    /// If not, the next worker on its machine delivers it.
    pub is_alive: bool,
    pub attempts: Vec<UndeliveredAttempt>,
}

#[derive(Clone, Debug, Serialize)]
pub struct UndeliveredAttempt {
    pub job_id: JobId,
    pub run_id: RunId,
    pub attempt_id: Attempt,
    /// `None`: it gave the job back.
    pub return_code: Option<i32>,
}

fn no_cluster() -> Trouble {
    Trouble::refused("the cluster cannot be asked here")
        .with_hint("a server that was started with --slurm can, and `windlass mcp` on a login node")
}

/// A spec as an agent wrote it.
#[derive(Clone, Debug)]
pub struct SpecText(pub String);

/// What a job asks for.
pub(crate) fn requirements(books: &dyn Store, job: &JobRow) -> Result<Resources, Trouble> {
    let sets = books.requirements(job.workflow_id)?.into_iter();
    let mut own = sets.filter(|set| Some(&set.name) == job.resource_requirements.as_ref());
    Ok(own.next().map_or(Resources::DEFAULT, |set| set.resources))
}

/// A set of requirements for this job alone, from its next attempt on.
pub(crate) fn change_for(books: &dyn Store, job: &JobRow, resources: Resources) -> Result<(), Trouble> {
    let used_by = UsedBy::Jobs(vec![job.id]);
    let change = RequirementsChange { name: format!("job {}", job.id), resources, used_by };
    books.change_requirements(job.workflow_id, &[change], Desk::now())?;
    Ok(())
}

/// Why something was not done, for an agent: what, and what may help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    pub message: String,
    pub hint: Option<String>,
}

impl Trouble {
    pub fn refused(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<windlass_store::Error> for Trouble {
    fn from(error: windlass_store::Error) -> Self {
        Self { hint: error.hint(), message: error.to_string() }
    }
}

impl From<windlass_insight::why::Error> for Trouble {
    fn from(error: windlass_insight::why::Error) -> Self {
        match error {
            windlass_insight::why::Error::Store(error) => error.into(),
            other => Self::refused(other.to_string()),
        }
    }
}

impl From<orders::Error> for Trouble {
    fn from(error: orders::Error) -> Self {
        Self { hint: error.hint(), message: error.to_string() }
    }
}

impl Desk {
    pub(crate) fn now() -> Timestamp {
        Clock.now()
    }

    pub(crate) fn workflow(&self, id: i64) -> Result<WorkflowRow, Trouble> {
        let found = self.books.workflow(WorkflowId(id))?;
        found.ok_or_else(|| {
            Trouble::refused(format!("there is no workflow {id}"))
                .with_hint("list_workflows says which there are")
        })
    }

    pub(crate) fn job_of(&self, workflow: &WorkflowRow, id: i64) -> Result<JobRow, Trouble> {
        let filter = JobFilter { ids: vec![JobId(id)], ..JobFilter::default() };
        let found = self.books.jobs(workflow.id, &filter)?.pop();
        found.ok_or_else(|| Trouble::refused(format!("workflow {} has no job {id}", workflow.id)))
    }

    /// A job by its number alone.
    pub(crate) fn job(&self, id: i64) -> Result<(WorkflowRow, JobRow), Trouble> {
        let none = || {
            Trouble::refused(format!("there is no job {id}"))
                .with_hint("jobs go by their ids, not their names")
        };
        let job = match self.books.find_job(JobId(id)) {
            // One of somebody else's workflows is none.
            Err(error) if error.sort() == Sort::Missing => None,
            found => found?,
        };
        let job = job.ok_or_else(none)?;
        Ok((self.workflow(job.workflow_id.0)?, job))
    }

    /// Has it done by whoever may do it, also while somebody runs the workflow.
    pub(crate) fn give(&self, workflow: WorkflowId, orders: Orders) -> Result<Vec<Outcome>, Trouble> {
        let nudge = |holder: &Holder| self.hands.nudge(holder);
        // A server sees to its limits itself.
        if self.is_served() || !orders::change_resources(&orders) {
            return Ok(orders::give(&*self.books, workflow, &Wanted::Orders(orders), &nudge)?);
        }
        let room = self.hands.room(&*self.books, workflow)?;
        Ok(orders::give_within_limits(&*self.books, workflow, orders, &room, &nudge)?)
    }

    /// Refuses what no worker could ever give to a job.
    pub(crate) fn check_room(
        &self,
        workflow: WorkflowId,
        changes: &Changes,
        asked: &Resources,
    ) -> Result<(), Trouble> {
        let room = self.hands.room(&*self.books, workflow)?;
        beyond_workers(changes, asked, &room.takers).map_or(Ok(()), |why| Err(Trouble::refused(why)))
    }

    /// The workflow is at a server.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self.books.location(), Location::Server(_))
    }

    /// Takes the secrets of a job out of what it wrote.
    pub(crate) fn redactor(&self, job: &JobRow) -> Result<Redactor, Trouble> {
        Ok(self.redactors(job.workflow_id, &[job.id])?.pop().unwrap_or_default())
    }

    /// The same for several, in the order of the jobs.
    pub(crate) fn redactors(&self, workflow: WorkflowId, jobs: &[JobId]) -> Result<Vec<Redactor>, Trouble> {
        let of = |environment: Environment| {
            let pairs = environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            Redactor::new(&self.masking, pairs)
        };
        Ok(self.hands.environments(&*self.books, workflow, jobs)?.into_iter().map(of).collect())
    }

    /// What is told of jobs, one after the other, each without its secrets.
    pub(crate) fn told_of(
        &self,
        workflow: WorkflowId,
        told: Vec<(JobId, Value)>,
    ) -> Result<Vec<Value>, Trouble> {
        let mut jobs: Vec<JobId> = told.iter().map(|(job, _)| *job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let redactors: BTreeMap<JobId, Redactor> =
            std::iter::zip(jobs.iter().copied(), self.redactors(workflow, &jobs)?).collect();
        let all = Redactor::default();
        let own = |job: &JobId| redactors.get(job).unwrap_or(&all);
        Ok(told.into_iter().map(|(job, view)| shown::redact(view, own(&job))).collect())
    }

    /// An answer as it may be shown, whatever it is about.
    pub(crate) fn show(answer: Value) -> Value {
        shown::redact(answer, &Redactor::default())
    }
}
