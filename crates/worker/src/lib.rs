//! The worker: a small process of its own that starts jobs, watches them, ends them, and reports.
//!
//! Small, because `exec` folds the memory peak of the starting process into that of the job; a process of its
//! own, because it can then be the subreaper of all that jobs start, and end all of it when the engine dies.
//! The engine talks to it in lines of JSON ([`windlass_types::worker_messages`]) over a socket that is the
//! worker's standard input: see [`launch`] and [`serve_on_stdin`].
//!
//! Threads: the main one reads the link and starts nothing, so that any other child it has was left behind by a
//! job. *Slots* take jobs from a queue, strictly in order, and each runs one at a time. One supervisor enforces
//! limits, takes samples and reports the start of longer jobs; one thread sends reports that can wait a moment.
//!
//! A worker serves one workflow, or any number of them that are introduced to it ([`workflow_context`]). Jobs
//! of a worker with a lease are frozen when it expires ([`lease`]).
//!
//! A job ends when its first process ends. Its leftover processes are ended, first by SIGTERM and then by
//! SIGKILL, before the report. Lock order: reaping, job queue, slot, then outbox or alarm; no thread waits for
//! a process while it holds a lock.

mod end_log;
mod environment;
mod file_states;
mod job_queue;
mod job_run;
mod job_slot;
mod job_termination;
mod launch;
mod launched_jobs;
mod lease;
mod logs;
mod options;
mod orphan_usage;
mod possible_interruptions;
mod report_outbox;
mod resource_pool;
mod series_recorder;
mod shutdown_signal;
mod step_measurement;
mod supervisor;
mod worker_process;
mod workflow_context;

pub use end_log::{read_ends, remove_ends};
pub use file_states::FileInspector;
pub use launch::{LaunchedWorker, launch_worker, serve_on_stdin};
pub use options::{ResourceSeriesOptions, WorkerOptions};
pub use series_recorder::RecorderError;
pub use step_measurement::run_step_if_requested;
pub use worker_process::{WorkerError, run_worker};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex also after a thread panicked with it; the others continue, so that jobs are still ended and
/// reported.
fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
