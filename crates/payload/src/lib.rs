//! What runs on a worker for a node of a request: reads its manifest, runs the steps, measures, writes and merges outputs.
//!
//! Every job of a work unit is one of these, started as `windlass payload …` by whoever runs the jobs:
//! [`land`] looks whether a site will do, [`run`] does the work of a node, [`merge`] makes the files that are registered,
//! [`cleanup`] removes what they were made of. [`simulate`] stands in for a real program.
//!
//! What holds for all of them: a file that others look at is written under another name, synced, and renamed; the report
//! that says "done" is renamed last; a job that runs again overwrites what it left before, byte for byte alike.

pub mod cleanup;
pub mod codes;
pub mod events;
mod failure;
pub mod files;
pub mod landing;
pub mod merge;
pub mod metrics;
pub mod node_run;
pub mod report;
pub mod simulate;
mod step_process;
mod workspace;

pub use failure::{LoggedFailure, PayloadFailure};
pub use step_process::StepControl;
pub use workspace::{InputCheck, UnitWorkspace, UnusableInput};
