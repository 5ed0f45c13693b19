//! The use cases, written once over [`Db`](crate::db::Db): what is read, what is changed, and what has to hold before it
//! is. Here is the store itself; where its transactions come from is the matter of a [`Backend`].

mod access;
mod action_changes;
mod allocations;
pub(crate) mod apply;
pub(crate) mod column;
pub(crate) mod command;
pub(crate) mod create;
mod datasets;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod export;
mod failures;
pub(crate) mod fleet;
pub(crate) mod import;
pub(crate) mod job_events;
pub(crate) mod lists;
pub(crate) mod load;
pub(crate) mod manage;
mod nodes;
pub(crate) mod one_by_one;
pub(crate) mod orders;
mod part_calls;
pub(crate) mod parts;
pub(crate) mod query;
pub(crate) mod read;
pub(crate) mod records;
pub(crate) mod requests;
pub(crate) mod runs;
pub(crate) mod spawn;
mod store;
pub(crate) mod units;
mod wishes;

pub(crate) use store::Backend;
pub(crate) use store::Books;
