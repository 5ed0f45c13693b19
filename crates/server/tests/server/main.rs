//! Tests of a real server over real connections. One program for all tests, so that it is linked once.

#[cfg(test)]
mod access;
#[cfg(test)]
mod actions;
#[cfg(test)]
mod agents;
mod allocations;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod cross_site;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod following;
#[cfg(test)]
mod foreign_ids;
#[cfg(test)]
mod hanging_up;
#[cfg(test)]
mod job_tokens;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod manners;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod parts;
#[cfg(test)]
#[path = "../../../store/tests/postgres_server/mod.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod postgres_server;
#[cfg(test)]
mod reach;
#[cfg(test)]
mod reqmgr2;
#[cfg(test)]
#[path = "../../../requests/tests/reqmgr2_stub/mod.rs"]
mod reqmgr2_stub;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod secured;
#[cfg(test)]
mod store_calls;
#[cfg(test)]
mod torc_client;
#[cfg(test)]
mod work;
