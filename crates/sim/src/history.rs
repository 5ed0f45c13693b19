//! The history of each request, for debugging.

use std::collections::{BTreeMap, VecDeque};
use windlass_types::Timestamp;

/// Number of lines kept per request, except for the one with a complete history.
const MAX_KEPT_LINES: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct RequestHistories {
    /// The request with a complete history.
    complete_request: Option<String>,
    lines: BTreeMap<String, VecDeque<String>>,
    /// Digest of all lines: equal histories have equal digests.
    digest: u64,
}

impl RequestHistories {
    pub(crate) fn new(complete_request: Option<String>) -> Self {
        Self { complete_request, ..Self::default() }
    }

    pub(crate) fn record(&mut self, at: Timestamp, request: &str, what: &str) {
        let line = format!("{at}  {what}");
        for byte in request.bytes().chain(line.bytes()) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let lines = match self.lines.get_mut(request) {
            Some(lines) => lines,
            None => self.lines.entry(request.to_owned()).or_default(),
        };
        if lines.len() >= MAX_KEPT_LINES && self.complete_request.as_deref() != Some(request) {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Records a detail, only for the request with a complete history.
    pub(crate) fn record_detail(&mut self, at: Timestamp, request: &str, what: impl FnOnce() -> String) {
        if self.complete_request.as_deref() == Some(request) {
            let line = format!("{at}    {}", what());
            self.lines.entry(request.to_owned()).or_default().push_back(line);
        }
    }

    pub(crate) fn history_of(&self, request: &str) -> Vec<String> {
        self.lines.get(request).map(|lines| lines.iter().cloned().collect()).unwrap_or_default()
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keeps_last_lines_and_all_of_one_request() {
        let mut stories = RequestHistories::new(Some("b".into()));
        for n in 0..100 {
            for request in ["a", "b"] {
                stories.record(Timestamp(n), request, &format!("line {n}"));
            }
            stories.record_detail(Timestamp(n), "b", || "more".to_owned());
            stories.record_detail(Timestamp(n), "a", || "never".to_owned());
        }
        assert_eq!((stories.history_of("a").len(), stories.history_of("b").len()), (MAX_KEPT_LINES, 200));
        assert!(stories.history_of("a")[0].contains("line 40"));
    }
}
