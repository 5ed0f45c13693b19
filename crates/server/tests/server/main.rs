//! Tests of a real server over real connections. One program for all tests, so that it is linked once.

#[cfg(test)]
mod access;
#[cfg(test)]
mod actions;
#[cfg(test)]
mod agents;
mod allocations;
#[cfg(test)]
mod cross_site;
#[cfg(test)]
mod disconnects;
#[cfg(test)]
mod event_streams;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod foreign_ids;
#[cfg(test)]
mod foreign_objects;
#[cfg(test)]
mod job_tokens;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod nodes;
#[cfg(test)]
#[path = "../../../store/tests/postgres_server/mod.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod postgres_server;
#[cfg(test)]
mod reference_docs;
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
mod response_format;
#[cfg(test)]
mod running_workflows;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod store_calls;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod torc_client;
#[cfg(test)]
mod worker_isolation;
