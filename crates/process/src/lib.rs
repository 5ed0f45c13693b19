//! Processes on Linux, as Windlass needs them: start a process, wait for it, find all processes it started,
//! measure, limit and end them; and afterwards, from another process, ensure that none of them lives.
//!
//! Mechanism only. The worker decides *when* a job is ended, and with which grace period. The only crate with
//! `unsafe` code, and only in [`agent_mark`], [`spawn`], `attached_spawn`, [`child_wait`], [`session`],
//! [`step_supervisor`] and [`signals`], where the interface of the system requires it.
//!
//! The basis: the worker is the *subreaper* of all that it starts, so leftover processes of a job become
//! children of the worker's main thread, which starts nothing itself. An empty list of that thread's children
//! shows that no daemon escaped, for the cost of one read.

pub mod agent_mark;
mod attached_spawn;
pub mod cgroup;
pub mod child_wait;
pub mod command;
pub mod ensure_dead;
pub mod ledger;
pub mod machine;
pub mod process_identity;
pub mod process_tree;
pub mod procfs;
pub mod session;
pub mod shell;
pub mod signals;
pub mod spawn;
pub mod step_supervisor;
pub mod usage_sample;

pub use rustix::process::{Pid, Signal};
