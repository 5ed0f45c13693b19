//! An allocation reconciler on a real cluster: a database, the service, and workers that are shell scripts.

use crate::support::{Cluster, Work, eventually};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use windlass_core::slurm::allocation_rows::NewAllocation;
use windlass_scheduler::service::{CallError, CallReply, SchedulerHandle, SchedulerOptions};
use windlass_slurm::allocation_reconciler::{
    AllocationReconciler, AllocationReconcilerDependencies, AllocationReconcilerOptions,
    AllocationReconcilerWaker,
};
use windlass_slurm::slurm_client::CallBudgetOptions;
use windlass_store::StoreDatabase;
use windlass_store::fault_injection::{self, FaultInjector};
use windlass_store::model::{
    AllocationFilter, InMemoryJobSource, NewAction, NewJob, NewRequirements, NewWorkflow,
};
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_types::settings::{ActionTrigger, ActionType, SlurmScheduler, WorkflowAction};
use windlass_types::slurm::{Allocation, AllocationRequest, AllocationState};
use windlass_types::{AllocationId, JobDefinition, JobStatus, Resources, SystemClock, WorkflowId};

pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    pub(crate) work: Work,
    pub(crate) job_store: Arc<dyn StoreDatabase>,
    pub(crate) service: SchedulerHandle,
    waker: AllocationReconcilerWaker,
}

impl Fixture {
    pub(crate) fn new(cluster: Cluster, name: &str) -> Self {
        Self::with_lease(cluster, name, SchedulerOptions::default().lease)
    }

    /// The same with this timeout for workers without contact.
    pub(crate) fn with_lease(cluster: Cluster, name: &str, lease: Duration) -> Self {
        let work = cluster.work(name);
        let store = SqliteStore::create(work.path().join("windlass.db")).unwrap().store;
        let job_store: Arc<dyn StoreDatabase> = Arc::new(store);
        let waker = AllocationReconcilerWaker::default();
        let (told, of_silence) = (waker.clone(), waker.clone());
        let options = SchedulerOptions {
            lease,
            on_silent_worker: Some(Arc::new(move |silent| of_silence.notify_silent_worker(silent))),
            on_change: Some(Arc::new(move |workflow| told.notify_workflow(workflow))),
            ..SchedulerOptions::default()
        };
        let service = SchedulerHandle::start(job_store.clone(), options).unwrap();
        Self { cluster, work, job_store, service, waker }
    }

    /// A reconciler whose workers do this.
    pub(crate) fn reconciler(&self, worker: &str) -> AllocationReconciler {
        self.start_reconciler(worker, &self.job_store, |_| {})
    }

    /// The same with this limit of calls to Slurm.
    pub(crate) fn reconciler_with_budget(
        &self,
        worker: &str,
        budget: CallBudgetOptions,
    ) -> AllocationReconciler {
        self.start_reconciler(worker, &self.job_store, |options| options.slurm.budget = budget)
    }

    /// The same with a store wrapper that decides about its calls to the database.
    pub(crate) fn reconciler_with_faults(
        &self,
        worker: &str,
        door: FaultInjector,
        tools: &Path,
    ) -> AllocationReconciler {
        let store =
            SqliteStore::open(self.work.path().join("windlass.db"), OpenMode::ReadWrite).unwrap().store;
        let job_store: Arc<dyn StoreDatabase> = fault_injection::inject_faults(door, &store);
        self.start_reconciler(worker, &job_store, |options| options.slurm.tools_dir = Some(tools.to_owned()))
    }

    fn start_reconciler(
        &self,
        worker: &str,
        job_store: &Arc<dyn StoreDatabase>,
        change: impl FnOnce(&mut AllocationReconcilerOptions),
    ) -> AllocationReconciler {
        let windlass = self.script("worker", worker);
        let mut options = AllocationReconcilerOptions::new("http://127.0.0.1:1", windlass);
        let environment = self.cluster.environment().into_iter();
        options.slurm.environment = environment.map(|(name, value)| (name.to_owned(), value)).collect();
        options.slurm.budget = CallBudgetOptions {
            per_minute: 600,
            first_pause: Duration::from_millis(500),
            ..CallBudgetOptions::default()
        };
        options.slurm.budget.longest_pause = Duration::from_secs(2);
        options.active_interval = Duration::from_millis(200);
        // Long enough to be found, short enough to wait for.
        options.timeouts.until_accepted = Duration::from_secs(10);
        change(&mut options);
        let parts = AllocationReconcilerDependencies {
            database: Arc::clone(job_store),
            scheduler: self.service.clone(),
        };
        AllocationReconciler::open(parts, self.waker.clone(), options).unwrap()
    }

    pub(crate) fn script(&self, name: &str, does: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.work.write(name, &format!("#!/bin/sh\n{does}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A started workflow of one job, with an action that requests this many allocations.
    pub(crate) fn workflow(&self, allocations: u32) -> WorkflowId {
        self.begin(allocations, None, false)
    }

    /// The same with an action that other workers may also run.
    pub(crate) fn persistent(&self, allocations: u32) -> WorkflowId {
        self.begin(allocations, None, true)
    }

    /// A started workflow of one job with these requests.
    pub(crate) fn asking(&self, asks: Resources) -> WorkflowId {
        self.begin(0, Some(asks), false)
    }

    fn begin(&self, allocations: u32, asks: Option<Resources>, persistent: bool) -> WorkflowId {
        let place = self.work.path().to_str().unwrap();
        let schedulers = [SlurmScheduler {
            name: "small".to_owned(),
            mem: Some("100M".to_owned()),
            walltime: "00:10:00".to_owned(),
            ..SlurmScheduler::default()
        }];
        let action = WorkflowAction {
            trigger_type: ActionTrigger::OnWorkflowStart,
            action_type: ActionType::ScheduleNodes,
            commands: Vec::new(),
            scheduler: Some("small".to_owned()),
            scheduler_type: Some("slurm".to_owned()),
            num_allocations: Some(allocations),
            start_one_worker_per_node: false,
            max_parallel_jobs: None,
            persistent,
        };
        let actions = [NewAction { action: &action, jobs: &[] }];
        let requirements = asks.map(|resources| NewRequirements { name: "much", resources });
        let workflow = NewWorkflow {
            requirements: requirements.as_slice(),
            name: "test",
            user: "me",
            submission_dir: place,
            output_dir: place,
            schedulers: &schedulers,
            actions: if allocations > 0 { &actions } else { &[] },
            ..NewWorkflow::default()
        };
        let status = JobStatus::Uninitialized;
        let resource_requirements = asks.map(|_| 0);
        let job = JobDefinition { resource_requirements, ..JobDefinition::new("job", "true") };
        let job = NewJob { status, ..job.into() };
        let mut jobs = InMemoryJobSource::new([job]);
        let id = self.job_store.create_workflow(&workflow, &mut jobs, SystemClock.now()).unwrap();
        ask(|reply| self.service.start_workflow(id, "me", reply)).unwrap();
        id
    }

    /// Requests an allocation.
    pub(crate) fn want(&self, workflow: WorkflowId, request: AllocationRequest) -> AllocationId {
        let new = NewAllocation {
            workflow,
            scheduler: None,
            tag: String::new(),
            request,
            action: None,
            by: "me".to_owned(),
        };
        let id = self.job_store.add_allocations(&[new], SystemClock.now()).unwrap()[0];
        self.waker.notify_all();
        id
    }

    pub(crate) fn row(&self, id: AllocationId) -> Allocation {
        self.job_store.allocation(id).unwrap().unwrap()
    }

    pub(crate) fn rows(&self, workflow: WorkflowId) -> Vec<Allocation> {
        let filter = AllocationFilter { workflow: Some(workflow), ..AllocationFilter::default() };
        self.job_store.allocations(&filter).unwrap()
    }

    #[track_caller]
    pub(crate) fn await_row(
        &self,
        id: AllocationId,
        what: &str,
        holds: impl Fn(&Allocation) -> bool,
    ) -> Allocation {
        let mut last = None;
        eventually(&format!("allocation {id}: {what}"), || {
            let row = self.row(id);
            let is_so = holds(&row);
            last = Some(row);
            is_so
        });
        last.unwrap()
    }

    #[track_caller]
    pub(crate) fn await_state(&self, id: AllocationId, state: AllocationState) -> Allocation {
        self.await_row(id, state.name(), |row| row.state == state)
    }

    /// The reconciler checks all workflows.
    pub(crate) fn look(&self, reconciler: &AllocationReconciler) {
        let before = reconciler.status().passes;
        self.waker.notify_all();
        // A check that started earlier may still be running.
        eventually("it has checked", || {
            self.waker.notify_all();
            reconciler.status().passes > before + 1
        });
    }

    pub(crate) fn unwanted(&self, id: AllocationId, why: &str) {
        self.job_store.discard_allocations(&[id], why, SystemClock.now()).unwrap();
        self.waker.notify_all();
    }
}

impl Drop for Fixture {
    /// Jobs left by a test would use the nodes of the next one.
    fn drop(&mut self) {
        let filter = AllocationFilter { is_open: Some(true), ..AllocationFilter::default() };
        for row in self.job_store.allocations(&filter).unwrap_or_default() {
            if let Some(job) = row.job_id {
                self.cluster.command("scancel").arg(job.to_string()).output().ok();
            }
        }
    }
}

/// A small one.
pub(crate) fn request() -> AllocationRequest {
    AllocationRequest {
        scheduler: "small".to_owned(),
        nodes: 1,
        mem: Some("100M".to_owned()),
        walltime: Duration::from_mins(10),
        ..AllocationRequest::default()
    }
}

pub(crate) fn ask<T: Send + 'static>(call: impl FnOnce(CallReply<T>)) -> Result<T, CallError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().unwrap()
}
