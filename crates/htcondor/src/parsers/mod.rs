//! What DAGMan and HTCondor write, understood even when it is cut off.
//!
//! | module | what it reads |
//! |---|---|
//! | [`events`] | event logs: the life of each job, as the schedd and DAGMan write it down |
//! | [`jobstate`] | job state logs: what DAGMan did with its nodes, line by line |
//! | [`status`] | node status files: how all nodes of a DAG are, now and then written anew |
//! | [`metrics`] | what DAGMan leaves when it ends |
//! | [`rescue`] | rescue files: what a DAG need not do again |
//! | [`dagman_out`] | what DAGMan says for people; the only place that tells why a DAG was not accepted |
//! | [`ads`] | what `condor_q -json` and `condor_history -json` print |
//!
//! All of it is read while others write it, and may have been cut off by a full disk or a crash. So the same rules hold
//! everywhere: input is bytes, what cannot be understood is left out, nothing panics, and *what is not whole is not
//! there*: a line without its end, an event without its dots. A file that is half there may say less than the whole
//! one, and never more.

pub mod class_ads;
pub mod dagman_out;
pub mod events;
pub mod jobstate;
pub mod metrics;
pub mod node_status;
pub mod rescue_file;

#[cfg(test)]
mod fuzz;

/// The lines that have an end, without it.
fn complete_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = memchr::memrchr(b'\n', bytes).unwrap_or(0);
    let lines = bytes[..end].split(|byte| *byte == b'\n');
    // Nothing at all splits into one empty line.
    lines.take(if end == 0 { 0 } else { usize::MAX })
}

/// A number of nothing but digits: `parse` alone takes a sign too.
fn parse_digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}
