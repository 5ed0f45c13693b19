//! Checks whether rules of failure handlers match texts on a standard error that is not kept.

use super::NameResolver;
use crate::diagnostic::SpecDiagnostic;
use crate::source::SourceSpan;
use rustc_hash::FxHashSet;
use windlass_types::settings::FailureRule;
use windlass_types::worker_messages::{StdioMode, StdioSettings};

impl NameResolver<'_, '_> {
    /// Warns about rules that match texts on standard error where it is not kept: they never match.
    pub(super) fn warn_uncaptured_stderr(&mut self) {
        let listens = |rule: &FailureRule| !rule.stderr.is_empty();
        if !self.resolved.texts.failure_handlers.iter().any(|handler| handler.rules.iter().any(listens)) {
            return;
        }
        let mut told = FxHashSet::default();
        for (entry, job) in (0..).zip(&self.spec.jobs) {
            for index in 0..self.distinct_job_count(entry) {
                let Some(group) = self.requirements_and_group(entry, job, index).1 else { continue };
                let settings = &group.settings;
                let stdio = settings.stdio.unwrap_or(self.spec.stdio);
                let handler = settings.failure_handler.filter(|_| !captures_stderr(stdio));
                if let Some(handler) = handler.filter(|handler| told.insert(*handler)) {
                    self.warn_uncaptured_stderr_of(handler, job.name.span);
                }
            }
        }
    }

    fn warn_uncaptured_stderr_of(&mut self, handler: u32, job: SourceSpan) {
        let Some((handler, place)) = self.spec.failure_handlers.get(handler as usize) else { return };
        let stderr_rule = (1..).zip(&handler.rules).find(|(_, rule)| !rule.stderr.is_empty());
        let Some((number, _)) = stderr_rule else { return };
        let message = format!(
            "rule {number} of `{}` never matches: it looks for text on standard error, which is not kept",
            handler.name
        );
        self.sinks.warnings.push(
            SpecDiagnostic::new("unheard-words", message)
                .with_span(*place)
                .with_label(job, "of this job")
                .with_help("keep it: `stdio: {mode: separate}`, `combined` or `no_stdout`"),
        );
    }
}

const fn captures_stderr(stdio: StdioSettings) -> bool {
    !matches!(stdio.mode, StdioMode::None | StdioMode::NoStderr)
}
