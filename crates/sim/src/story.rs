//! What happened to each request, for whoever has to find out why something went wrong.

use std::collections::{BTreeMap, VecDeque};
use windlass_types::Timestamp;

/// So many lines are kept of each request, unless its whole story is asked for.
const KEPT: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct Stories {
    /// Of this one everything is kept.
    whole: Option<String>,
    lines: BTreeMap<String, VecDeque<String>>,
    /// Of everything that was ever told: two histories that are the same have the same one.
    digest: u64,
}

impl Stories {
    pub(crate) fn new(whole: Option<String>) -> Self {
        Self { whole, ..Self::default() }
    }

    pub(crate) fn tell(&mut self, at: Timestamp, request: &str, what: &str) {
        let line = format!("{at}  {what}");
        for byte in request.bytes().chain(line.bytes()) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let lines = match self.lines.get_mut(request) {
            Some(lines) => lines,
            None => self.lines.entry(request.to_owned()).or_default(),
        };
        if lines.len() >= KEPT && self.whole.as_deref() != Some(request) {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Small things, told only where everything is.
    pub(crate) fn whisper(&mut self, at: Timestamp, request: &str, what: impl FnOnce() -> String) {
        if self.whole.as_deref() == Some(request) {
            let line = format!("{at}    {}", what());
            self.lines.entry(request.to_owned()).or_default().push_back(line);
        }
    }

    pub(crate) fn of(&self, request: &str) -> Vec<String> {
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
    fn the_last_lines_are_kept_and_all_of_one() {
        let mut stories = Stories::new(Some("b".into()));
        for n in 0..100 {
            for request in ["a", "b"] {
                stories.tell(Timestamp(n), request, &format!("line {n}"));
            }
            stories.whisper(Timestamp(n), "b", || "more".to_owned());
            stories.whisper(Timestamp(n), "a", || "never".to_owned());
        }
        assert_eq!((stories.of("a").len(), stories.of("b").len()), (KEPT, 200));
        assert!(stories.of("a")[0].contains("line 40"));
    }
}
