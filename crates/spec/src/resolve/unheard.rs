//! Whether rules of failure handlers look for words that nobody keeps.

use super::Resolver;
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use rustc_hash::FxHashSet;
use windlass_types::settings::FailureRule;
use windlass_types::work::{Stdio, StdioMode};

impl Resolver<'_, '_> {
    /// Warns of rules that match what a job says on standard error where that is not kept: they never match.
    pub(super) fn unheard(&mut self) {
        let listens = |rule: &FailureRule| !rule.stderr.is_empty();
        if !self.done.texts.failure_handlers.iter().any(|handler| handler.rules.iter().any(listens)) {
            return;
        }
        let mut told = FxHashSet::default();
        for (entry, job) in (0..).zip(&self.spec.jobs) {
            for index in 0..self.distinct(entry) {
                let Some(kind) = self.asked(entry, job, index).1 else { continue };
                let stdio = kind.stdio.unwrap_or(self.spec.stdio);
                let handler = kind.failure_handler.filter(|_| !keeps_errors(stdio));
                if let Some(handler) = handler.filter(|handler| told.insert(*handler)) {
                    self.unheard_of(handler, job.name.span);
                }
            }
        }
    }

    fn unheard_of(&mut self, handler: u32, job: Span) {
        let Some((handler, place)) = self.spec.failure_handlers.get(handler as usize) else { return };
        let deaf = (1..).zip(&handler.rules).find(|(_, rule)| !rule.stderr.is_empty());
        let Some((number, _)) = deaf else { return };
        let message = format!(
            "rule {number} of `{}` never matches: it looks for words on standard error, which is not kept",
            handler.name
        );
        self.sinks.warnings.push(
            Diagnostic::new("unheard-words", message)
                .at(*place)
                .label(job, "of this job")
                .help("keep it: `stdio: {mode: separate}`, `combined` or `no_stdout`"),
        );
    }
}

const fn keeps_errors(stdio: Stdio) -> bool {
    !matches!(stdio.mode, StdioMode::None | StdioMode::NoStderr)
}
