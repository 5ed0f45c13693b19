//! Detects references to the name of another entry with parameters that only that entry has.

use super::{EntryKind, NameResolver, RelationKind};
use crate::diagnostic::SpecDiagnostic;
use crate::expand::TextPosition;
use crate::model::NamedText;
use crate::source::SourceSpan;
use crate::template;
use rustc_hash::FxHashMap;

impl NameResolver<'_, '_> {
    /// Reports `depends_on: ["solve_{i}"]` in an entry without the parameter `i`, if another entry has this name:
    /// all of its instances are meant. Returns `false` if this is not the case.
    pub(super) fn report_name_of_other_entry(
        &mut self,
        way: RelationKind,
        sort: EntryKind,
        user: u32,
        name: NamedText,
    ) -> bool {
        let spec = self.spec;
        let text = spec.texts.get(name.text);
        let ours = self.expanded.jobs.bindings(user);
        let is_unknown = |name: &str| {
            ours.is_none_or(|ours| ours.find_parameter(name).is_none())
                && self.expanded.constants.get(name).is_none()
        };
        let unknown = template::find_placeholders(text)
            .find(|placeholder| !placeholder.after_dollar && is_unknown(placeholder.name));
        let Some(placeholder) = unknown else { return false };
        let Some(other) = self.find_entry_by_template(sort, text) else { return false };
        if self
            .entry_series(sort)
            .bindings(other)
            .is_none_or(|theirs| theirs.find_parameter(placeholder.name).is_none())
        {
            return false;
        }
        let (parameter, what) = (placeholder.name, sort.singular());
        let message =
            format!("`{{{parameter}}}` is not defined here: it is a parameter of the {what} `{text}` only");
        let all =
            format!("to use all of them, write `{}: ['{}']`", way.regex_field(), template_pattern(text));
        let is_shared = spec
            .shared_parameters
            .parameters
            .iter()
            .any(|shared| spec.texts.get(shared.name.text) == parameter);
        let each = if is_shared {
            format!("`use_parameters: [{parameter}]` creates one job for each of them")
        } else {
            "the same `parameters` here create one job for each of them".to_owned()
        };
        let place = TextPosition::from_named(&spec.texts, name).part_span(placeholder.range);
        self.sinks.errors.push(
            SpecDiagnostic::new("undefined-name", message)
                .with_span(place)
                .with_label(self.entry_span(sort, other), format!("`{parameter}` belongs to this entry"))
                .with_help(format!("{all}; {each}")),
        );
        true
    }

    /// Returns the entry whose name is written like this.
    fn find_entry_by_template(&mut self, sort: EntryKind, text: &str) -> Option<u32> {
        let spec = self.spec;
        let written = self.entries_by_template[sort as usize].get_or_insert_with(|| {
            let names: Vec<NamedText> = match sort {
                EntryKind::Jobs => spec.jobs.iter().map(|job| job.name).collect(),
                EntryKind::Files => spec.files.iter().map(|file| file.name).collect(),
                EntryKind::UserData => spec.user_data.iter().map(|data| data.name).collect(),
            };
            let names = (0..).zip(names).map(|(entry, name)| (spec.texts.get(name.text), entry));
            names.filter(|(name, _)| name.contains('{')).collect::<FxHashMap<&str, u32>>()
        });
        written.get(text).copied()
    }

    fn entry_span(&self, sort: EntryKind, entry: u32) -> SourceSpan {
        let entry = entry as usize;
        match sort {
            EntryKind::Jobs => self.spec.jobs[entry].name.span,
            EntryKind::Files => self.spec.files[entry].name.span,
            EntryKind::UserData => self.spec.user_data[entry].name.span,
        }
    }
}

/// Returns a regular expression for all names of a template: `^solve_` for `solve_{i}`.
fn template_pattern(text: &str) -> String {
    let mut pattern = "^".to_owned();
    let mut from = 0;
    for placeholder in template::find_placeholders(text) {
        pattern.push_str(&regex::escape(&text[from..placeholder.range.start]));
        from = placeholder.range.end;
        if from < text.len() || pattern.len() == 1 {
            pattern.push_str(".+");
        }
    }
    if from < text.len() {
        pattern.push_str(&regex::escape(&text[from..]));
        pattern.push('$');
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_pattern_matches_expanded_names() {
        for (text, expected) in
            [("solve_{i}", "^solve_"), ("a.{i}_{j:02d}", r"^a\..+_"), ("{i}_end", "^.+_end$"), ("{i}", "^.+")]
        {
            assert_eq!(template_pattern(text), expected, "{text}");
        }
    }
}
