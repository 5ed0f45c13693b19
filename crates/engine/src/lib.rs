//! Runs workflows: the dispatcher that turns decisions of `windlass-core` into commits and assignments.

pub mod observe;
