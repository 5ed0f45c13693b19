//! Parsers of the files of DAGMan and HTCondor, which may be truncated.
//!
//! | module | what it reads |
//! |---|---|
//! | [`events`] | event logs: the life of each job, as the schedd and DAGMan record it |
//! | [`jobstate`] | job state logs: what DAGMan did with its nodes, line by line |
//! | [`node_status`] | node status files: the states of all nodes of a DAG, rewritten now and then |
//! | [`metrics`] | metrics that DAGMan writes when it ends |
//! | [`rescue_file`] | rescue files: nodes that a DAG need not run again |
//! | [`dagman_out`] | DAGMan's log for people; the only place with the reason why a DAG was rejected |
//! | [`class_ads`] | the output of `condor_q -json` and `condor_history -json` |
//!
//! All files are read while other processes write them, and may have been cut off by a full disk or a crash. So
//! the same rules hold everywhere: input is bytes, invalid parts are skipped, nothing panics, and *incomplete
//! records are ignored*: a line without its end, an event without its dots. A truncated file may yield less than
//! the whole one, and never more.

pub mod class_ads;
pub mod dagman_out;
pub mod events;
pub mod jobstate;
pub mod metrics;
pub mod node_status;
pub mod rescue_file;

#[cfg(test)]
mod fuzz;

/// The complete lines, without their ends.
fn complete_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = memchr::memrchr(b'\n', bytes).unwrap_or(0);
    let lines = bytes[..end].split(|byte| *byte == b'\n');
    // An empty input splits into one empty line.
    lines.take(if end == 0 { 0 } else { usize::MAX })
}

/// Parses a number that consists of digits only: `parse` also accepts a sign.
fn parse_digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}
