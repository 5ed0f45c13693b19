//! The sites and limits of jobs.

use super::NameResolver;
use super::entry_details::PerJobNumber;
use super::job_groups::{PerJobText, UnknownName};
use super::relations::UNKNOWN_NUMBER;
use crate::diagnostic::SpecDiagnostic;
use crate::model::{ListRange, NamedText};
use std::collections::BTreeSet;
use windlass_types::check_site_name;

impl NameResolver<'_, '_> {
    /// Returns the number of the limit of the jobs of an entry.
    pub(super) fn resolve_limit(&mut self, entry: u32, named: Option<NamedText>) -> PerJobNumber {
        let Some(named) = named else { return PerJobNumber::None };
        let limits = &self.spec.limits;
        let text = self.compile_job_named(named, entry);
        self.find_per_job(entry, &text, |this, name, values| {
            // There are few limits, and each spelling is resolved once.
            let found = (0..).zip(limits).find(|(_, limit)| limit.name == name).map(|(number, _)| number);
            this.used_limits.extend(found);
            if found.is_none() && this.name_completeness.all_limits {
                let known = limits.iter().map(|limit| limit.name.as_str());
                let unknown = UnknownName { what: "limit", code: "unknown-limit", values };
                this.report_unknown_name(&unknown, name, named.span, known);
            }
            found.unwrap_or(UNKNOWN_NUMBER)
        })
    }

    /// Returns the sites of the jobs of an entry. Names that no worker can have are reported, each once.
    pub(super) fn resolve_sites(&mut self, entry: u32, list: ListRange) -> Vec<PerJobText> {
        let spec = self.spec;
        let mut sites = Vec::new();
        for named in &spec.names[list.range()] {
            let text = self.compile_job_named(*named, entry);
            for name in self.distinct_texts(entry, &text) {
                if let Err(error) = check_site_name(&name) {
                    self.sinks
                        .errors
                        .push(SpecDiagnostic::new("bad-site", error.to_string()).with_span(named.span));
                }
            }
            sites.push(text);
        }
        sites
    }

    /// Returns the distinct values of a text for the jobs of an entry.
    fn distinct_texts(&self, entry: u32, text: &PerJobText) -> BTreeSet<String> {
        let count = match text {
            PerJobText::Same(_) => 1,
            PerJobText::ByJob(_) => self.expanded.jobs.range(entry).len() as u32,
        };
        let bindings = self.expanded.jobs.bindings(entry);
        (0..count).map(|index| text.text_for_job(bindings, index)).collect()
    }

    /// Warns about limits that no job uses.
    pub(super) fn warn_unused_limits(&mut self) {
        if !self.name_completeness.all_jobs {
            return;
        }
        for (number, limit) in (0..).zip(&self.spec.limits) {
            if !self.used_limits.contains(&number) {
                let message = format!("limit `{}` has no effect: no job uses it", limit.name);
                let help = format!("set `limit: {}` in the jobs that it applies to", limit.name);
                self.sinks
                    .warnings
                    .push(SpecDiagnostic::new("unused-limit", message).with_span(limit.span).with_help(help));
            }
        }
    }
}
