//! Checks whether rules of failure handlers can increase the resources of the jobs that use them.

use super::NameResolver;
use crate::diagnostic::SpecDiagnostic;
use crate::source::SourceSpan;
use rustc_hash::FxHashSet;
use windlass_types::settings::FailureRule;
use windlass_types::{Resources, format_duration};

impl NameResolver<'_, '_> {
    /// Warns about rules without effect because the job requests the maximum from the start.
    pub(super) fn warn_growth_limits(&mut self) {
        let limits = |rule: &FailureRule| {
            rule.max_memory.is_some() || rule.max_runtime.is_some() || rule.max_cpus.is_some()
        };
        if !self.resolved.texts.failure_handlers.iter().any(|handler| handler.rules.iter().any(limits)) {
            return;
        }
        let mut looked_at = FxHashSet::default();
        for (entry, job) in (0..).zip(&self.spec.jobs) {
            for index in 0..self.distinct_job_count(entry) {
                let (requirements, group) = self.requirements_and_group(entry, job, index);
                let both = requirements.zip(group.and_then(|group| group.settings.failure_handler));
                if let Some((requirements, handler)) = both.filter(|both| looked_at.insert(*both)) {
                    self.warn_growth_limits_of(requirements, handler, job.name.span);
                }
            }
        }
    }

    fn warn_growth_limits_of(&mut self, requirements: u32, handler: u32, job: SourceSpan) {
        let Some(requirements) = self.spec.requirements.get(requirements as usize) else { return };
        let Some((handler, place)) = self.spec.failure_handlers.get(handler as usize) else { return };
        for (number, rule) in (1..).zip(&handler.rules) {
            let Some((field, most, asked)) = find_useless_limit(rule, &requirements.resources) else {
                continue;
            };
            let message = format!(
                "rule {number} of `{}` cannot increase the request: its `{field}` is {most}, and `{}` already requests {asked}",
                handler.name, requirements.name
            );
            self.sinks.warnings.push(
                SpecDiagnostic::new("no-room", message)
                    .with_span(*place)
                    .with_label(requirements.span, "requests it")
                    .with_label(job, "used together here")
                    .with_help(format!("raise `{field}`, or use another handler for these jobs")),
            );
        }
    }
}

/// Returns the field of a limit without room to grow, the limit, and the requested amount.
fn find_useless_limit(rule: &FailureRule, asked: &Resources) -> Option<(&'static str, String, String)> {
    if let Some(most) = rule.max_memory.filter(|most| rule.memory.is_some() && *most <= asked.memory) {
        return Some(("max_memory", most.to_string(), asked.memory.to_string()));
    }
    if let (Some(most), Some(runtime), Some(_)) = (rule.max_runtime, asked.runtime, rule.runtime)
        && most <= runtime
    {
        return Some(("max_runtime", format_duration(most), format_duration(runtime)));
    }
    let most = rule.max_cpus.filter(|most| rule.cpus.is_some() && *most <= asked.cpus)?;
    Some(("max_cpus", most.to_string(), asked.cpus.to_string()))
}
