//! What runs on a worker for a node of a request: reads the manifest, runs the steps, measures, writes and
//! merges outputs.
//!
//! Every job of a work unit is one of these, started as `windlass payload …`: [`land`] checks a site, [`run`]
//! does the work of a node, [`merge`] makes the files that are registered, [`cleanup`] removes the unmerged ones.
//! [`simulate`] replaces a real program.
//!
//! Common rules: a file for other processes is written under a temporary name, synced, and renamed; the report of
//! success is renamed last; a job that runs again overwrites its earlier output with identical bytes.

pub mod cleanup;
pub mod event_files;
pub mod exit_codes;
mod failure;
pub mod files;
pub mod landing;
pub mod merge;
pub mod metrics;
pub mod processing_job;
pub mod report;
pub mod simulate;
mod step_process;
mod workspace;

pub use failure::{LoggedFailure, PayloadFailure};
pub use step_process::StepControl;
pub use workspace::{InputCheck, UnitWorkspace, UnusableInput};
