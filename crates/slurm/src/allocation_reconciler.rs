//! The steward: the one who talks to Slurm's controller about allocations, so that nobody else has to.
//!
//! One thread makes passes: when it is told something, and otherwise at an interval that is short while something happens and
//! long while nothing does. Nothing that matters is in memory alone. What a pass does, in this order:
//!
//! 1. Actions that ask for allocations become rows, and are then claimed ([`intents`]).
//! 2. All open allocations are looked up with one question, and for those that the controller does not have, accounting is
//!    asked with another ([`pass`]).
//! 3. What follows is decided in `core/src/slurm/allocation_decision.rs`, and committed.
//! 4. Only then is something submitted or canceled ([`submit`]): a row says `submitting` before `sbatch` is called, so that
//!    whoever comes after a crash looks for the job by its tag before it is asked for again.
//!
//! Before all that, steps are ended whose worker is gone ([`fences`]).
//!
//! Without an open allocation Slurm is asked nothing.

mod allocation_actions;
mod mailbox;
mod reconcile_pass;
mod step_fencing;
mod submit;

pub use mailbox::{PollOutcome, ReconcilerMailbox};

use crate::slurm_client::{
    CallStatistics, RemainingCalls, SlurmClient, SlurmClientOptions, SlurmUnavailable,
};
use mailbox::ReceivedNotices;
use reconcile_pass::ReconcilePasses;
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

/// So many calls are not for people who want to know something.
const RESERVED_CALLS: u32 = 5;

/// What the steward works with.
#[derive(Clone)]
pub struct ReconcilerDependencies {
    pub database: Arc<dyn StoreDatabase>,
    pub scheduler: SchedulerHandle,
}

impl std::fmt::Debug for ReconcilerDependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct AllocationReconcilerOptions {
    pub slurm: SlurmClientOptions,
    pub patience: AllocationTimeouts,
    /// How often Slurm is asked while something happens.
    pub active_interval: Duration,
    /// How often while nothing does.
    pub idle_interval: Duration,
    /// Where workers find the server.
    pub server: String,
    /// The program that a worker is, as its nodes see it.
    pub windlass: PathBuf,
    /// Of the books, as [`windlass_core::slurm::home`] has it.
    pub tag_prefix: String,
    /// So long before its end the worker of an allocation is told.
    pub warning: Duration,
    /// What workers in allocations show to the server. `None`: the server asks for nothing.
    pub credentials: Option<Arc<dyn CredentialIssuer>>,
    /// Whose workflows get allocations: their jobs run with the account of this process. `None`: all users.
    pub users: Option<Vec<String>>,
}

/// Makes what the workers of an allocation show to the server, and ends it with the allocation.
pub trait CredentialIssuer: std::fmt::Debug + Send + Sync {
    /// The path of a file with it, the same for each call until the allocation is over.
    fn issue_credential(&self, allocation: AllocationId, workflow: &WorkflowRow) -> std::io::Result<PathBuf>;
    /// Those of all other allocations are accepted no more.
    fn revoke_others(&self, open: &BTreeSet<AllocationId>);
}

impl AllocationReconcilerOptions {
    pub fn new(server: impl Into<String>, windlass: impl Into<PathBuf>) -> Self {
        Self {
            slurm: SlurmClientOptions::default(),
            patience: AllocationTimeouts::default(),
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

/// How it goes.
#[derive(Clone, Debug, Default)]
pub struct ReconcilerStatus {
    pub passes: u64,
    pub last_pass_at: Option<Timestamp>,
    /// When the controller last answered a poll.
    pub last_answer_at: Option<Timestamp>,
    /// What went wrong last, until something goes well.
    pub problem: Option<String>,
    /// Open allocations by state.
    pub open_allocations: BTreeMap<AllocationState, u64>,
}

/// The handle; cheap to clone. When the last one is dropped the steward ends, after its pass.
#[derive(Clone, Debug)]
pub struct AllocationReconciler(Arc<ReconcilerThread>);

#[derive(Debug)]
struct ReconcilerThread {
    mailbox: ReconcilerMailbox,
    slurm: Arc<SlurmClient>,
    status: Arc<Mutex<ReconcilerStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AllocationReconciler {
    /// Takes up all allocations that the books know to be open. `nudge` is what others tell it by; the caller is the only one
    /// who does this with these books.
    pub fn open(
        parts: ReconcilerDependencies,
        nudge: ReconcilerMailbox,
        options: AllocationReconcilerOptions,
    ) -> std::io::Result<Self> {
        let slurm = Arc::new(SlurmClient::new(options.slurm.clone()));
        let status = Arc::new(Mutex::new(ReconcilerStatus::default()));
        let passes = ReconcilePasses::new(parts, Arc::clone(&slurm), options, Arc::clone(&status));
        nudge.reopen();
        let mailbox = nudge.clone();
        let told = Arc::clone(&status);
        let thread = thread::Builder::new()
            .name("windlass-slurm".into())
            .spawn(move || run_passes(&mailbox, &told, passes))?;
        Ok(Self(Arc::new(ReconcilerThread {
            mailbox: nudge,
            slurm,
            status,
            thread: Mutex::new(Some(thread)),
        })))
    }

    pub fn mailbox(&self) -> &ReconcilerMailbox {
        &self.0.mailbox
    }

    pub fn status(&self) -> ReconcilerStatus {
        lock_ignoring_poison(&self.0.status).clone()
    }

    /// Asks Slurm now what became of the allocations, as far as the budget allows, notes that, and says whether it answered. Waits
    /// no longer than `limit`.
    pub fn poll_now(&self, limit: Duration) -> PollOutcome {
        let number = self.0.mailbox.request_poll();
        self.0.mailbox.wait_for_poll(number, Instant::now() + limit)
    }

    /// The way to Slurm, for questions of people: they count like those of the steward. `Err`: when there will be room for
    /// them, for what is left now is kept for allocations.
    pub fn client_for_users(&self) -> Result<&SlurmClient, SlurmUnavailable> {
        let left = self.0.slurm.remaining_budget();
        if let Some(until) = left.paused_until {
            return Err(SlurmUnavailable::OutOfBudget { until });
        }
        if left.calls < RESERVED_CALLS {
            return Err(SlurmUnavailable::OutOfBudget {
                until: SystemClock.now().after(Duration::from_mins(1)),
            });
        }
        Ok(&self.0.slurm)
    }

    /// What may be asked of Slurm still.
    pub fn remaining_budget(&self) -> RemainingCalls {
        self.0.slurm.remaining_budget()
    }

    /// What was asked of Slurm since the start, by command.
    pub fn total_statistics(&self) -> BTreeMap<&'static str, CallStatistics> {
        self.0.slurm.total_statistics()
    }

    /// Ends it; returns when the pass that is under way is over.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl ReconcilerThread {
    fn stop(&self) {
        self.mailbox.stop();
        let is_other = |thread: &mut JoinHandle<()>| thread.thread().id() != thread::current().id();
        let thread = lock_ignoring_poison(&self.thread).take_if(is_other);
        if let Some(thread) = thread {
            // A panic of the loop itself has been told by the hook.
            drop(thread.join());
        }
    }
}

impl Drop for ReconcilerThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Nothing that is kept behind these locks can be left half done by a panic.
fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shortest pause between two passes: what comes at once is seen to at once, together.
const MIN_PASS_INTERVAL: Duration = Duration::from_millis(5);

fn run_passes(mailbox: &ReconcilerMailbox, status: &Mutex<ReconcilerStatus>, mut passes: ReconcilePasses) {
    let mut wait_until = Instant::now();
    while let Some(heard) = mailbox.wait_for_notice(wait_until) {
        let began = Instant::now();
        let pause = run_pass_catching_panics(&mut passes, &heard, status);
        if let Some(number) = heard.poll_request {
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

/// A panic in a pass is told like any other trouble, and the next pass begins anew from the rows.
fn run_pass_catching_panics(
    passes: &mut ReconcilePasses,
    heard: &ReceivedNotices,
    status: &Mutex<ReconcilerStatus>,
) -> Duration {
    catch_unwind(AssertUnwindSafe(|| passes.run_pass(heard))).unwrap_or_else(|_| {
        tracing::error!("a pass over the allocations has failed; the next one begins anew");
        lock_ignoring_poison(status).problem =
            Some("a pass has failed; the log of the server says where".to_owned());
        Duration::from_mins(1)
    })
}
