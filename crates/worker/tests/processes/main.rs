//! The worker as a process, with real jobs.

mod basics;
mod crash;
mod families;
mod limits;
mod order;
mod stopping;
mod support;
