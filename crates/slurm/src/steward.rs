//! The steward: the one who talks to Slurm's controller about allocations, so that nobody else has to.
//!
//! One thread makes passes: when it is told something, and otherwise at an interval that is short while something happens and
//! long while nothing does. Nothing that matters is in memory alone. What a pass does, in this order:
//!
//! 1. Actions that ask for allocations become rows, and are then claimed ([`intents`]).
//! 2. All open allocations are looked up with one question, and for those that the controller does not have, accounting is
//!    asked with another ([`pass`]).
//! 3. What follows is decided in `core/src/slurm/fate.rs`, and committed.
//! 4. Only then is something submitted or canceled ([`submit`]): a row says `submitting` before `sbatch` is called, so that
//!    whoever comes after a crash looks for the job by its tag before it is asked for again.
//!
//! Before all that, steps are ended whose worker is gone ([`fences`]).
//!
//! Without an open allocation Slurm is asked nothing.

mod fences;
mod intents;
mod mailbox;
mod pass;
mod submit;

pub use mailbox::{Looked, Nudge};

use crate::calls::{Left, Slurm, SlurmOptions, Tally, Unknown};
use mailbox::Heard;
use pass::Passes;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_core::slurm::fate::Patience;
use windlass_engine::service::Service;
use windlass_store::Database;
use windlass_store::model::WorkflowRow;
use windlass_types::slurm::AllocationState;
use windlass_types::{AllocationId, Clock, Timestamp};

/// So many calls are not for people who want to know something.
const KEPT: u32 = 5;

/// What the steward works with.
#[derive(Clone)]
pub struct Parts {
    pub books: Arc<dyn Database>,
    pub service: Service,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct StewardOptions {
    pub slurm: SlurmOptions,
    pub patience: Patience,
    /// How often Slurm is asked while something happens.
    pub fastest: Duration,
    /// How often while nothing does.
    pub slowest: Duration,
    /// Where workers find the server.
    pub server: String,
    /// The program that a worker is, as its nodes see it.
    pub windlass: PathBuf,
    /// Of the books, as [`windlass_core::slurm::home`] has it.
    pub home: String,
    /// So long before its end the worker of an allocation is told.
    pub warning: Duration,
    /// What workers in allocations show to the server. `None`: the server asks for nothing.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Whose workflows get allocations: their jobs run with the account of this process. `None`: all users.
    pub users: Option<Vec<String>>,
}

/// Makes what the workers of an allocation show to the server, and ends it with the allocation.
pub trait Credentials: std::fmt::Debug + Send + Sync {
    /// The path of a file with it, the same for each call until the allocation is over.
    fn issue(&self, allocation: AllocationId, workflow: &WorkflowRow) -> std::io::Result<PathBuf>;
    /// Those of all other allocations are accepted no more.
    fn keep_only(&self, open: &BTreeSet<AllocationId>);
}

impl StewardOptions {
    pub fn new(server: impl Into<String>, windlass: impl Into<PathBuf>) -> Self {
        Self {
            slurm: SlurmOptions::default(),
            patience: Patience::default(),
            fastest: Duration::from_secs(3),
            slowest: Duration::from_mins(1),
            server: server.into(),
            windlass: windlass.into(),
            home: String::new(),
            warning: Duration::from_mins(3),
            credentials: None,
            users: None,
        }
    }
}

/// How it goes.
#[derive(Clone, Debug, Default)]
pub struct StewardStatus {
    pub passes: u64,
    pub last_pass_at: Option<Timestamp>,
    /// When the controller last answered a poll.
    pub last_answer_at: Option<Timestamp>,
    /// What went wrong last, until something goes well.
    pub trouble: Option<String>,
    /// Open allocations by state.
    pub open: BTreeMap<AllocationState, u64>,
}

/// The handle; cheap to clone. When the last one is dropped the steward ends, after its pass.
#[derive(Clone, Debug)]
pub struct Steward(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    nudge: Nudge,
    slurm: Arc<Slurm>,
    status: Arc<Mutex<StewardStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Steward {
    /// Takes up all allocations that the books know to be open. `nudge` is what others tell it by; the caller is the only one
    /// who does this with these books.
    pub fn open(parts: Parts, nudge: Nudge, options: StewardOptions) -> std::io::Result<Self> {
        let slurm = Arc::new(Slurm::new(options.slurm.clone()));
        let status = Arc::new(Mutex::new(StewardStatus::default()));
        let passes = Passes::new(parts, Arc::clone(&slurm), options, Arc::clone(&status));
        nudge.begin();
        let mailbox = nudge.clone();
        let told = Arc::clone(&status);
        let thread = thread::Builder::new()
            .name("windlass-slurm".into())
            .spawn(move || run(&mailbox, &told, passes))?;
        Ok(Self(Arc::new(Handle { nudge, slurm, status, thread: Mutex::new(Some(thread)) })))
    }

    pub fn nudge(&self) -> &Nudge {
        &self.0.nudge
    }

    pub fn status(&self) -> StewardStatus {
        lock(&self.0.status).clone()
    }

    /// Asks Slurm now what became of the allocations, as far as the budget allows, notes that, and says whether it answered. Waits
    /// no longer than `limit`.
    pub fn look(&self, limit: Duration) -> Looked {
        let number = self.0.nudge.look();
        self.0.nudge.await_look(number, Instant::now() + limit)
    }

    /// The way to Slurm, for questions of people: they count like those of the steward. `Err`: when there will be room for
    /// them, for what is left now is kept for allocations.
    pub fn for_people(&self) -> Result<&Slurm, Unknown> {
        let left = self.0.slurm.left();
        if let Some(until) = left.paused_until {
            return Err(Unknown::Later { until });
        }
        if left.calls < KEPT {
            return Err(Unknown::Later { until: Clock.now().after(Duration::from_mins(1)) });
        }
        Ok(&self.0.slurm)
    }

    /// What may be asked of Slurm still.
    pub fn left(&self) -> Left {
        self.0.slurm.left()
    }

    /// What was asked of Slurm since the start, by command.
    pub fn totals(&self) -> BTreeMap<&'static str, Tally> {
        self.0.slurm.totals()
    }

    /// Ends it; returns when the pass that is under way is over.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Handle {
    fn stop(&self) {
        self.nudge.stop();
        let is_other = |thread: &mut JoinHandle<()>| thread.thread().id() != thread::current().id();
        let thread = lock(&self.thread).take_if(is_other);
        if let Some(thread) = thread {
            // A panic of the loop itself has been told by the hook.
            drop(thread.join());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Nothing that is kept behind these locks can be left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shortest pause between two passes: what comes at once is seen to at once, together.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

fn run(mailbox: &Nudge, status: &Mutex<StewardStatus>, mut passes: Passes) {
    let mut wait_until = Instant::now();
    while let Some(heard) = mailbox.wait(wait_until) {
        let began = Instant::now();
        let pause = guarded(&mut passes, &heard, status);
        if let Some(number) = heard.look {
            mailbox.has_looked(number, passes.looked());
        }
        {
            let mut status = lock(status);
            status.passes += 1;
            status.last_pass_at = Some(Clock.now());
        }
        wait_until = Instant::now() + pause;
        if !mailbox.rest(Instant::now() + began.elapsed().max(SHORTEST_PAUSE).min(Duration::from_secs(1))) {
            break;
        }
    }
}

/// A panic in a pass is told like any other trouble, and the next pass begins anew from the rows.
fn guarded(passes: &mut Passes, heard: &Heard, status: &Mutex<StewardStatus>) -> Duration {
    catch_unwind(AssertUnwindSafe(|| passes.pass(heard))).unwrap_or_else(|_| {
        tracing::error!("a pass over the allocations has failed; the next one begins anew");
        lock(status).trouble = Some("a pass has failed; the log of the server says where".to_owned());
        Duration::from_mins(1)
    })
}
