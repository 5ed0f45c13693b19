//! The commands with the real binary, each test in a directory of its own. One program for all of them, so that the
//! helper is compiled once.

// `cfg(test)` is what tells clippy that helpers may unwrap.
#[cfg(test)]
mod actions;
#[cfg(test)]
mod again;
#[cfg(test)]
mod allocations;
#[cfg(test)]
mod away;
#[cfg(test)]
mod bad_node;
#[cfg(test)]
mod campaign;
#[cfg(test)]
mod changed;
#[cfg(test)]
mod classify;
#[cfg(test)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(test)]
mod condor;
#[cfg(test)]
mod contents;
mod contract;
#[cfg(test)]
mod cut_off;
#[cfg(test)]
mod db;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod editing;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod execution;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod impostor;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_acting;
mod mcp_policy;
mod mcp_requests;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod payload;
#[cfg(test)]
mod places;
#[cfg(test)]
mod plans;
#[cfg(test)]
#[path = "../../../store/tests/postgres_server/mod.rs"]
mod postgres_server;
#[cfg(test)]
mod previous_version;
#[cfg(test)]
mod recovering;
#[cfg(test)]
mod regenerate;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod reqmgr2;
#[cfg(test)]
#[path = "../../../requests/tests/reqmgr2_stub/mod.rs"]
mod reqmgr2_stub;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod retries;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod secured;
#[cfg(test)]
mod served;
#[cfg(test)]
mod serving;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod slurm;
#[cfg(test)]
mod spawn;
#[cfg(test)]
mod standby;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod stranded;
#[cfg(test)]
mod transcript;
#[cfg(test)]
mod triage;
#[cfg(test)]
mod triaged;
#[cfg(test)]
mod trouble;
#[cfg(test)]
mod watched;
#[cfg(test)]
mod who;
#[cfg(test)]
mod why;
#[cfg(test)]
mod workflow_commands;
