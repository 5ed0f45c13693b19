//! What is not to be done again at once: effects are due as long as the rows say so, also those that just had trouble and
//! those that were done and take time to have an effect. Lost in a crash without harm.

use std::collections::HashMap;
use windlass_types::Timestamp;

#[derive(Debug, Default)]
pub(super) struct EffectDelays {
    /// By request and effect.
    until: HashMap<(String, String), Timestamp>,
    /// By request: everything of it.
    all: HashMap<String, Timestamp>,
}

impl EffectDelays {
    pub(super) fn delay_effect(&mut self, request: &str, tag: &str, until: Timestamp) {
        self.until.insert((request.to_owned(), tag.to_owned()), until);
    }

    pub(super) fn delay_request(&mut self, request: &str, until: Timestamp) {
        self.all.insert(request.to_owned(), until);
    }

    pub(super) fn is_delayed(&self, request: &str, tag: &str, now: Timestamp) -> bool {
        let until = self.until.get(&(request.to_owned(), tag.to_owned()));
        until.into_iter().chain(self.all.get(request)).any(|until| *until > now)
    }

    /// When the first of them is over.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.until.values().chain(self.all.values()).copied().min()
    }

    pub(super) fn clear_before(&mut self, now: Timestamp) {
        self.until.retain(|_, until| *until > now);
        self.all.retain(|_, until| *until > now);
    }

    /// Something has changed that may have been in the way.
    pub(super) fn clear_all(&mut self) {
        self.until.clear();
        self.all.clear();
    }
}
