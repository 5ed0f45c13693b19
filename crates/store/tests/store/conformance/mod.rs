//! Requirements for every store. Each case gets an empty store and does not know its backend.

pub(crate) mod access;
pub(crate) mod actions;
pub(crate) mod allocations;
pub(crate) mod changes;
pub(crate) mod client_results;
pub(crate) mod creating;
pub(crate) mod datasets;
pub(crate) mod editing;
pub(crate) mod exporting;
pub(crate) mod failure_commands;
pub(crate) mod failure_commands_model;
pub(crate) mod failures;
pub(crate) mod lists;
pub(crate) mod model;
pub(crate) mod records;
pub(crate) mod recovery;
pub(crate) mod requests;
pub(crate) mod runs;
pub(crate) mod sites;
pub(crate) mod spawning;
pub(crate) mod units;
pub(crate) mod workers;
pub(crate) mod workflow_changes;
pub(crate) mod workflow_contents;
pub(crate) mod workflow_parts;
