//! Requirements for every store. Each case gets an empty store and does not know its backend.

pub(crate) mod access;
pub(crate) mod actions;
pub(crate) mod allocations;
pub(crate) mod changes;
pub(crate) mod contents;
pub(crate) mod creating;
pub(crate) mod datasets;
pub(crate) mod editing;
pub(crate) mod exporting;
pub(crate) mod failures;
pub(crate) mod fleet;
pub(crate) mod managing;
pub(crate) mod model;
pub(crate) mod orders;
pub(crate) mod orders_model;
pub(crate) mod parts;
pub(crate) mod reading;
pub(crate) mod records;
pub(crate) mod recovery;
pub(crate) mod requests;
pub(crate) mod runs;
pub(crate) mod sites;
pub(crate) mod spawning;
pub(crate) mod stated;
pub(crate) mod units;
