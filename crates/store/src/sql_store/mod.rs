//! The use cases of the store, written once over [`SqlConnection`](crate::db::SqlConnection): queries, changes
//! and their preconditions. The store itself is here; a [`StoreBackend`] provides its transactions.

mod access;
mod action_changes;
mod allocations;
pub(crate) mod apply_changes;
pub(crate) mod claimed_commands;
pub(crate) mod column_decoding;
pub(crate) mod completion_records;
pub(crate) mod create;
pub(crate) mod crud;
mod datasets;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod failure_commands;
mod failures;
pub(crate) mod import;
pub(crate) mod job_events;
pub(crate) mod job_loading;
mod node_quarantine;
mod pending_commands;
pub(crate) mod queries;
pub(crate) mod query_builder;
pub(crate) mod requests;
pub(crate) mod runs;
pub(crate) mod spawn;
mod store;
pub(crate) mod torc_lists;
pub(crate) mod work_units;
pub(crate) mod workers;
mod workflow_part_store;
pub(crate) mod workflow_parts;
pub(crate) mod workflow_updates;

pub(crate) use store::SqlStore;
pub(crate) use store::StoreBackend;
