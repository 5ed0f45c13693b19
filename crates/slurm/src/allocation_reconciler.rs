//! The allocation reconciler: the only part of the server that talks to Slurm's controller about allocations.
//!
//! One thread makes passes: after a notice, and otherwise at an interval that is short during activity and long
//! without. All state that matters is in the database. The order of a pass:
//!
//! 1. Actions that request allocations become rows, and are then claimed ([`allocation_actions`]).
//! 2. One `squeue` call queries all open allocations; one `sacct` call queries those that the controller no
//!    longer has ([`reconcile_pass`]).
//! 3. `core/src/slurm/allocation_decision.rs` decides what follows, and the decision is committed.
//! 4. Only then are allocations submitted or canceled ([`submit`]): the row says `submitting` before `sbatch`
//!    is called, so that after a crash the job is searched by its tag before it is submitted again.
//!
//! Before all that, steps of lost workers are canceled ([`step_fencing`]).
//!
//! Without open allocations Slurm is not called.

mod allocation_actions;
mod mailbox;
mod reconcile_pass;
mod step_fencing;
mod submit;

pub use mailbox::{AllocationReconcilerWaker, PollOutcome};

use crate::slurm_client::{
    CallStatistics, RemainingCalls, SlurmClient, SlurmClientOptions, SlurmUnavailable,
};
use mailbox::ReceivedNotices;
use reconcile_pass::AllocationPassRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_core::slurm::allocation_decision::AllocationTimeouts;
use windlass_scheduler::service::SchedulerHandle;
use windlass_store::StoreDatabase;
use windlass_store::model::WorkflowRow;
use windlass_types::slurm::AllocationState;
use windlass_types::{AllocationId, SystemClock, Timestamp};

/// Calls reserved for allocations; user queries cannot use them.
const RESERVED_CALLS: u32 = 5;

/// What the reconciler works with.
#[derive(Clone)]
pub struct AllocationReconcilerDependencies {
    pub database: Arc<dyn StoreDatabase>,
    pub scheduler: SchedulerHandle,
}

impl std::fmt::Debug for AllocationReconcilerDependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct AllocationReconcilerOptions {
    pub slurm: SlurmClientOptions,
    pub timeouts: AllocationTimeouts,
    /// Polling interval during activity.
    pub active_interval: Duration,
    /// Polling interval without activity.
    pub idle_interval: Duration,
    /// The URL of the server for workers.
    pub server: String,
    /// The worker program, as the nodes see it.
    pub windlass: PathBuf,
    /// The identity of the database, see [`windlass_core::slurm::home`].
    pub tag_prefix: String,
    /// Time before the end of an allocation at which its worker is warned.
    pub warning: Duration,
    /// Credentials of workers in allocations. `None`: the server requires no authentication.
    pub credentials: Option<Arc<dyn CredentialIssuer>>,
    /// Users whose workflows get allocations; their jobs run with the account of this process. `None`: all
    /// users.
    pub users: Option<Vec<String>>,
}

/// Creates the credentials for the workers of an allocation, and revokes them when it ends.
pub trait CredentialIssuer: std::fmt::Debug + Send + Sync {
    /// The path of the credentials file; the same for every call until the allocation ends.
    fn issue_credential(&self, allocation: AllocationId, workflow: &WorkflowRow) -> std::io::Result<PathBuf>;
    /// Revokes the credentials of all other allocations.
    fn revoke_others(&self, open: &BTreeSet<AllocationId>);
}

impl AllocationReconcilerOptions {
    pub fn new(server: impl Into<String>, windlass: impl Into<PathBuf>) -> Self {
        Self {
            slurm: SlurmClientOptions::default(),
            timeouts: AllocationTimeouts::default(),
            active_interval: Duration::from_secs(3),
            idle_interval: Duration::from_mins(1),
            server: server.into(),
            windlass: windlass.into(),
            tag_prefix: String::new(),
            warning: Duration::from_mins(3),
            credentials: None,
            users: None,
        }
    }
}

/// Status of the reconciler.
#[derive(Clone, Debug, Default)]
pub struct AllocationReconcilerStatus {
    pub passes: u64,
    pub last_pass_at: Option<Timestamp>,
    /// Time of the last answered poll.
    pub last_answer_at: Option<Timestamp>,
    /// The last error, until the next success.
    pub problem: Option<String>,
    /// Open allocations by state.
    pub open_allocations: BTreeMap<AllocationState, u64>,
}

/// The handle; cheap to clone. When the last one is dropped, the reconciler ends after the current pass.
#[derive(Clone, Debug)]
pub struct AllocationReconciler(Arc<AllocationReconcilerThread>);

#[derive(Debug)]
struct AllocationReconcilerThread {
    mailbox: AllocationReconcilerWaker,
    slurm: Arc<SlurmClient>,
    status: Arc<Mutex<AllocationReconcilerStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AllocationReconciler {
    /// Resumes all open allocations of the database. `wake` is the handle for notices. Only one reconciler may
    /// run per database.
    pub fn open(
        parts: AllocationReconcilerDependencies,
        waker: AllocationReconcilerWaker,
        options: AllocationReconcilerOptions,
    ) -> std::io::Result<Self> {
        let slurm = Arc::new(SlurmClient::new(options.slurm.clone()));
        let status = Arc::new(Mutex::new(AllocationReconcilerStatus::default()));
        let passes = AllocationPassRunner::new(parts, Arc::clone(&slurm), options, Arc::clone(&status));
        waker.reopen();
        let mailbox = waker.clone();
        let shared_status = Arc::clone(&status);
        let thread = thread::Builder::new()
            .name("windlass-slurm".into())
            .spawn(move || run_passes(&mailbox, &shared_status, passes))?;
        Ok(Self(Arc::new(AllocationReconcilerThread {
            mailbox: waker,
            slurm,
            status,
            thread: Mutex::new(Some(thread)),
        })))
    }

    pub fn mailbox(&self) -> &AllocationReconcilerWaker {
        &self.0.mailbox
    }

    pub fn status(&self) -> AllocationReconcilerStatus {
        lock_ignoring_poison(&self.0.status).clone()
    }

    /// Polls Slurm now, within the call budget, stores the answers, and returns whether it answered. Waits at
    /// most `limit`.
    pub fn poll_now(&self, limit: Duration) -> PollOutcome {
        let number = self.0.mailbox.request_poll();
        self.0.mailbox.wait_for_poll(number, Instant::now() + limit)
    }

    /// The Slurm client, for queries of users: they count towards the same budget. `Err`: when calls will be
    /// available, because the rest is reserved for allocations.
    pub fn client_for_users(&self) -> Result<&SlurmClient, SlurmUnavailable> {
        let left = self.0.slurm.remaining_budget();
        if let Some(until) = left.paused_until {
            return Err(SlurmUnavailable::OutOfBudget { until });
        }
        if left.calls < RESERVED_CALLS {
            return Err(SlurmUnavailable::OutOfBudget {
                until: SystemClock.now().plus(Duration::from_mins(1)),
            });
        }
        Ok(&self.0.slurm)
    }

    /// The remaining call budget.
    pub fn remaining_budget(&self) -> RemainingCalls {
        self.0.slurm.remaining_budget()
    }

    /// Number of Slurm calls since the start, by command.
    pub fn total_statistics(&self) -> BTreeMap<&'static str, CallStatistics> {
        self.0.slurm.total_statistics()
    }

    /// Stops the reconciler; returns after the current pass.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl AllocationReconcilerThread {
    fn stop(&self) {
        self.mailbox.stop();
        let is_other = |thread: &mut JoinHandle<()>| thread.thread().id() != thread::current().id();
        let thread = lock_ignoring_poison(&self.thread).take_if(is_other);
        if let Some(thread) = thread {
            // The panic hook has logged a panic of the loop itself.
            drop(thread.join());
        }
    }
}

impl Drop for AllocationReconcilerThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A panic leaves nothing inconsistent behind these locks.
fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shortest pause between two passes: notices that arrive together are handled together.
const MIN_PASS_INTERVAL: Duration = Duration::from_millis(5);

fn run_passes(
    mailbox: &AllocationReconcilerWaker,
    status: &Mutex<AllocationReconcilerStatus>,
    mut passes: AllocationPassRunner,
) {
    let mut wait_until = Instant::now();
    while let Some(notices) = mailbox.wait_for_notice(wait_until) {
        let began = Instant::now();
        let pause = run_pass_catching_panics(&mut passes, &notices, status);
        if let Some(number) = notices.poll_request {
            mailbox.complete_poll(number, passes.poll_outcome());
        }
        {
            let mut status = lock_ignoring_poison(status);
            status.passes += 1;
            status.last_pass_at = Some(SystemClock.now());
        }
        wait_until = Instant::now() + pause;
        if !mailbox
            .wait_until(Instant::now() + began.elapsed().max(MIN_PASS_INTERVAL).min(Duration::from_secs(1)))
        {
            break;
        }
    }
}

/// A panic in a pass is reported like any other error, and the next pass starts again from the rows.
fn run_pass_catching_panics(
    passes: &mut AllocationPassRunner,
    notices: &ReceivedNotices,
    status: &Mutex<AllocationReconcilerStatus>,
) -> Duration {
    catch_unwind(AssertUnwindSafe(|| passes.run_pass(notices))).unwrap_or_else(|_| {
        tracing::error!("a pass over the allocations failed; the next one starts again from the database");
        lock_ignoring_poison(status).problem = Some("a pass failed; see the log of the server".to_owned());
        Duration::from_mins(1)
    })
}
