//! Resolves the templates of files and user data, and detects paths that two files share.

use super::{EntryKind, NameResolver};
use crate::diagnostic::SpecDiagnostic;
use crate::expand::{ParameterBindings, TextPosition, render_template};
use crate::model::{NamedText, UserDataSpec};
use crate::source::SourceSpan;
use crate::template::TextTemplate;
use crate::text_store::TextStore;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde_json::Value;
use std::hash::BuildHasher as _;

/// The templates of the files of an entry; `None`: as written.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileTemplates {
    pub(crate) path: Option<TextTemplate>,
    pub(crate) identifier: Option<TextTemplate>,
}

/// The strings with placeholders in the data of an entry, with their indexes among all strings of it.
pub(crate) type DataTemplates = Vec<(usize, TextTemplate)>;

impl NameResolver<'_, '_> {
    pub(super) fn resolve_files(&mut self) {
        let spec = self.spec;
        for (entry, file) in (0..).zip(&spec.files) {
            if self.expanded.files.range(entry).is_empty() {
                self.resolved.files.push(None);
                continue;
            }
            self.used_parameters = 0;
            let of = Some((EntryKind::Files, entry));
            let path = self.compile_named(file.path, of);
            let identifier = file.identifier.and_then(|identifier| self.compile_named(identifier, of));
            let is_plain = path.is_none() && identifier.is_none();
            self.resolved.files.push((!is_plain).then(|| Box::new(FileTemplates { path, identifier })));
            self.warn_unused_parameters(EntryKind::Files, entry, file.name);
        }
        self.report_shared_paths();
    }

    /// Writes the path of a file to `out`.
    fn write_path(&self, file: u32, out: &mut String) {
        out.clear();
        let member = self.expanded.files.locate(file);
        let detail = self.resolved.files[member.entry as usize].as_ref();
        match detail.and_then(|detail| detail.path.as_ref()) {
            Some(template) => {
                render_template(template, self.expanded.files.bindings(member.entry), member.index, out);
            }
            None => out.push_str(self.spec.texts.get(self.spec.files[member.entry as usize].path.text)),
        }
    }

    fn report_shared_paths(&mut self) {
        let files = &self.expanded.files;
        let mut seen: FxHashMap<u64, u32> = FxHashMap::default();
        let (mut path, mut other) = (String::new(), String::new());
        let mut clashed = None;
        for file in 0..files.len() as u32 {
            self.write_path(file, &mut path);
            let entry = files.locate(file).entry;
            let Some(first) = seen.insert(FxBuildHasher.hash_one(&path), file) else { continue };
            self.write_path(first, &mut other);
            if path != other || clashed == Some(entry) {
                continue;
            }
            // Report each entry once, even if many of its instances clash.
            clashed = Some(entry);
            let message = format!(
                "files `{}` and `{}` have the same path `{path}`",
                files.name(first),
                files.name(file)
            );
            let span = |file: u32| self.spec.files[files.locate(file).entry as usize].path.span;
            let help = "jobs that read one do not wait for jobs that write the other";
            let diagnostic = SpecDiagnostic::new("same-path", message).with_span(span(file)).with_help(help);
            self.sinks.warnings.push(diagnostic.with_label(span(first), "the same here"));
        }
    }

    pub(super) fn resolve_user_data(&mut self) {
        let spec = self.spec;
        for (entry, data) in (0..).zip(&spec.user_data) {
            if self.expanded.user_data.range(entry).is_empty() {
                self.resolved.user_data.push(None);
                continue;
            }
            self.used_parameters = 0;
            let templates =
                data.data.as_ref().map_or_else(Vec::new, |value| self.compile_data(entry, data, value));
            self.resolved.user_data.push((!templates.is_empty()).then(|| Box::new(templates)));
            self.warn_unused_parameters(
                EntryKind::UserData,
                entry,
                NamedText { span: data.name.span, ..data.name },
            );
        }
    }

    fn compile_data(&mut self, entry: u32, data: &UserDataSpec, value: &Value) -> DataTemplates {
        let mut templates = Vec::new();
        if data.strings.is_empty() {
            return templates;
        }
        let spec = self.spec;
        let places = StringPositions::new(&spec.texts, &spec.names[data.strings.range()], data.data_span);
        let mut strings = Vec::new();
        collect_strings(value, &mut strings);
        for (position, text) in strings.into_iter().enumerate() {
            let template =
                self.compile_text(text, places.find_position(text), Some((EntryKind::UserData, entry)));
            templates.extend(template.map(|template| (position, template)));
        }
        templates
    }
}

/// The locations of the strings of a free value. Equal strings share a location: an error in one is an error in
/// all.
pub(super) struct StringPositions<'t, 's> {
    texts: &'t TextStore<'s>,
    known: FxHashMap<&'t str, NamedText>,
    /// The location of the whole value.
    span: SourceSpan,
}

impl<'t, 's> StringPositions<'t, 's> {
    pub(super) fn new(texts: &'t TextStore<'s>, strings: &[NamedText], span: SourceSpan) -> Self {
        let known = strings.iter().map(|string| (texts.get(string.text), *string)).collect();
        Self { texts, known, span }
    }

    pub(super) fn find_position(&self, text: &str) -> TextPosition<'t, 's> {
        let place = self.known.get(text).map(|string| TextPosition::from_named(self.texts, *string));
        place.unwrap_or(TextPosition::from_span(self.span))
    }
}

/// Collects all strings in a value, in a fixed order; keys are not included.
pub(super) fn collect_strings<'v>(value: &'v Value, strings: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => strings.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_strings(item, strings)),
        Value::Object(fields) => fields.values().for_each(|field| collect_strings(field, strings)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the data with the values of one instance of its entry.
pub(crate) fn fill_data(
    value: &Value,
    detail: &DataTemplates,
    bindings: Option<&ParameterBindings>,
    index: u32,
) -> Value {
    let mut filled = value.clone();
    let mut templates = detail.iter().peekable();
    let mut position = 0;
    for_each_string(&mut filled, &mut |text| {
        if let Some((_, template)) = templates.next_if(|(wanted, _)| *wanted == position) {
            text.clear();
            render_template(template, bindings, index, text);
        }
        position += 1;
    });
    filled
}

/// In the order of [`collect_strings`].
pub(super) fn for_each_string(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_string(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| for_each_string(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
