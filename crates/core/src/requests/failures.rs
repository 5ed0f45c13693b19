//! What is known of the failed attempts of a run, summed up.

use serde::{Deserialize, Serialize};

/// Bounded however many attempts fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// How far the news of failed attempts have been read.
    pub read: i64,
}
