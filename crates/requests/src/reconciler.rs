//! The passes over all requests that are under way.

use crate::lifecycle::{PassReport, Rounds};
use crate::mailbox::Heard;

/// Owns the states of all requests.
#[derive(Debug)]
pub struct Reconciler;

impl Rounds for Reconciler {
    fn pass(&mut self, _heard: &Heard) -> PassReport {
        PassReport::default()
    }
}
