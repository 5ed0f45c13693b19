//! Where jobs may run, and how many of a sort at once.

use super::Resolver;
use super::detail::PerJob;
use super::kinds::{Text, Unknown};
use super::relations::UNKNOWN;
use crate::diagnostic::Diagnostic;
use crate::model::{List, Named};
use std::collections::BTreeSet;
use windlass_types::check_site_name;

impl Resolver<'_, '_> {
    /// The number of the limit that the jobs of an entry name.
    pub(super) fn limit(&mut self, entry: u32, named: Option<Named>) -> PerJob {
        let Some(named) = named else { return PerJob::None };
        let limits = &self.spec.limits;
        let text = self.named(named, entry);
        self.number_of(entry, &text, |this, name, values| {
            // There are few, and each spelling is looked up once.
            let found = (0..).zip(limits).find(|(_, limit)| limit.name == name).map(|(number, _)| number);
            this.used_limits.extend(found);
            if found.is_none() && this.read.all_limits {
                let known = limits.iter().map(|limit| limit.name.as_str());
                let unknown = Unknown { what: "limit", code: "unknown-limit", values };
                this.unknown(&unknown, name, named.span, known);
            }
            found.unwrap_or(UNKNOWN)
        })
    }

    /// The sites of the jobs of an entry. Names that no worker could have are reported, each once.
    pub(super) fn sites(&mut self, entry: u32, list: List) -> Vec<Text> {
        let spec = self.spec;
        let mut sites = Vec::new();
        for named in &spec.names[list.range()] {
            let text = self.named(*named, entry);
            for name in self.spellings(entry, &text) {
                if let Err(error) = check_site_name(&name) {
                    self.sinks.errors.push(Diagnostic::new("bad-site", error.to_string()).at(named.span));
                }
            }
            sites.push(text);
        }
        sites
    }

    /// What a text is for the jobs of an entry, each spelling once.
    fn spellings(&self, entry: u32, text: &Text) -> BTreeSet<String> {
        let count = match text {
            Text::Same(_) => 1,
            Text::ByJob(_) => self.expanded.jobs.range(entry).len() as u32,
        };
        let bindings = self.expanded.jobs.bindings(entry);
        (0..count).map(|index| text.of_job(bindings, index)).collect()
    }

    /// Warns of limits that nobody names: they limit nothing.
    pub(super) fn unused_limits(&mut self) {
        if !self.read.all_jobs {
            return;
        }
        for (number, limit) in (0..).zip(&self.spec.limits) {
            if !self.used_limits.contains(&number) {
                let message = format!("no job names the limit `{}`, so it limits nothing", limit.name);
                let help = format!("write `limit: {}` in the jobs that it is for", limit.name);
                self.sinks.warnings.push(Diagnostic::new("unused-limit", message).at(limit.span).help(help));
            }
        }
    }
}
