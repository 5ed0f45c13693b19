//! Tests of the commands with the real binary, each test in a separate directory. A single test program, so that
//! the helpers are compiled once.

// With `cfg(test)`, clippy allows the helpers to unwrap.
#[cfg(test)]
mod actions;
#[cfg(test)]
mod ai_agents;
#[cfg(test)]
mod allocations;
#[cfg(test)]
mod authentication;
#[cfg(test)]
mod campaign;
#[cfg(test)]
mod changed_specs;
#[cfg(test)]
mod classify;
#[cfg(test)]
#[path = "../common/mod.rs"]
mod common;
#[cfg(test)]
mod config;
#[cfg(test)]
mod dagman_scripts;
#[cfg(test)]
mod db;
#[cfg(test)]
mod disk_and_database_faults;
#[cfg(test)]
mod docs_pages;
#[cfg(test)]
mod editing;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod execution;
#[cfg(test)]
mod failure_commands;
#[cfg(test)]
#[path = "../../../store/tests/free_port/mod.rs"]
mod free_port;
#[cfg(test)]
mod generated_docs;
#[cfg(test)]
mod kill_9;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod lost_server;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_acting;
mod mcp_policy;
mod mcp_requests;
#[cfg(test)]
mod node_quarantine;
#[cfg(test)]
mod page_transcript;
#[cfg(test)]
mod payload;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod postgres_outage;
#[cfg(test)]
#[path = "../../../store/tests/postgres_server/mod.rs"]
mod postgres_server;
#[cfg(test)]
mod previous_version;
#[cfg(test)]
mod recover;
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
mod request_operations;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod reruns;
#[cfg(test)]
mod resources;
#[cfg(test)]
mod retries;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod run_selection;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod server_commands;
#[cfg(test)]
mod server_identity;
#[cfg(test)]
mod sites_and_limits;
#[cfg(test)]
mod slurm;
#[cfg(test)]
mod spawn;
#[cfg(test)]
mod standby_server;
#[cfg(test)]
mod termination;
#[cfg(test)]
mod tls;
mod torc_specs;
#[cfg(test)]
mod unreachable_server;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod why;
#[cfg(test)]
mod workflow_commands;
#[cfg(test)]
mod workflow_contents;
