//! Processes on Linux, as Windlass needs them: start one, wait for it, find its whole family, measure it, limit it, end
//! it; and afterwards, from another process, make sure that nothing of it lives.
//!
//! Mechanism only. *When* a job is ended, and with how much grace, is decided by the worker. The only crate with
//! `unsafe` code, and only in [`agent_mark`], [`spawn`], `attached`, [`wait`], [`session`], [`escort`] and [`signals`], where the system's own interface asks for it.
//!
//! What everything here rests on: the worker is the *subreaper* of all that it starts, so whatever a job leaves behind
//! becomes a child of the worker's main thread, which starts nothing itself. An empty list of that thread's children
//! says that no daemon got away, for the price of one read.

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
