//! Sample attempts for tests of tallies.

use super::{FailedAttemptReport, RoleCounts};
use std::collections::BTreeMap;
use windlass_types::requests::NodeRole;
use windlass_types::{FailureClass, Timestamp};

/// A failed attempt of a separate node in a separate unit.
pub(crate) fn attempt(seq: i64, site: &str, class: FailureClass) -> FailedAttemptReport {
    FailedAttemptReport {
        seq,
        unit: seq as u32,
        node: "proc_000000".to_owned(),
        role: NodeRole::Processing,
        attempt: 1,
        site: Some(site.to_owned()),
        class,
        code: 1,
        signature: "abc".to_owned(),
        message: "no luck".to_owned(),
        is_final: true,
        bad_files: Vec::new(),
        log_tail: "said this last".to_owned(),
        memory_mb: None,
        at: Timestamp(seq),
    }
}

/// Processing attempts at each site.
pub(crate) fn ended(totals: &[(&str, u64)]) -> BTreeMap<String, RoleCounts> {
    let of = |ended| RoleCounts::for_role(NodeRole::Processing, ended);
    totals.iter().map(|(site, ended)| ((*site).to_owned(), of(*ended))).collect()
}
