//! The variables of a workflow: constants that `{name}` refers to everywhere. They may use each other.

use super::{DiagnosticSinks, TextPosition};
use crate::diagnostic::SpecDiagnostic;
use crate::model::{NamedText, WorkflowSpec};
use crate::template::{self, PlaceholderFormat};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;

/// Maximum total size of the values of all variables after expansion, in bytes. Without a limit, thirty variables
/// that each contain the previous one twice would exhaust the memory.
const MAX_VALUE_BYTES: usize = 1 << 26;
/// Maximum number of bytes that variables may add to the texts of a spec.
const MAX_TEXT_BYTES: usize = 1 << 29;

#[derive(Clone, Debug, Default)]
pub(crate) struct WorkflowConstants {
    /// With all inner names resolved, and the location of each definition.
    values: FxHashMap<Box<str>, (String, NamedText)>,
    /// If `false`, an unknown name may be one that could not be read.
    is_complete: bool,
    /// The names of all parameters of the spec.
    parameters: FxHashSet<Box<str>>,
    /// Bytes added to texts.
    bytes_used: Cell<usize>,
}

impl WorkflowConstants {
    pub(crate) fn new(spec: &WorkflowSpec<'_>, is_complete: bool, sinks: &mut DiagnosticSinks) -> Self {
        let mut written = FxHashMap::default();
        for (name, value) in &spec.constants {
            let text = spec.texts.get(name.text);
            if !template::is_valid_name(text) {
                sinks.errors.push(invalid_name_error("variable", text, *name));
            }
            // The decoder reports duplicate names.
            written.entry(text).or_insert((*name, *value));
        }
        let mut filling = ConstantResolver {
            spec,
            written: &written,
            constants: Self { is_complete, parameters: parameter_names(spec), ..Self::default() },
            path: Vec::new(),
            length: 0,
            sinks,
        };
        for (name, _) in &spec.constants {
            filling.resolve_constant(spec.texts.get(name.text));
        }
        filling.constants
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(value, _)| value.as_str())
    }

    /// Whether an undefined `{name}` is a mistake: there are variables, or it is a parameter of another entry.
    /// Otherwise braces belong to the shell.
    pub(crate) fn is_likely_mistake(&self, name: &str) -> bool {
        !self.values.is_empty() || !self.is_complete || self.parameters.contains(name)
    }

    /// Counts bytes added to a text; returns `false` if the limit is exceeded.
    pub(crate) fn charge_bytes(&self, bytes: usize) -> bool {
        self.bytes_used.set(self.bytes_used.get().saturating_add(bytes));
        self.bytes_used.get() <= MAX_TEXT_BYTES
    }

    /// Whether the workflow has variables.
    pub(crate) fn has_any(&self) -> bool {
        !self.values.is_empty()
    }

    /// Whether any entry has a parameter with this name.
    pub(crate) fn is_parameter(&self, name: &str) -> bool {
        self.parameters.contains(name)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The location of the definition.
    pub(crate) fn definition(&self, name: &str) -> Option<NamedText> {
        self.values.get(name).map(|(_, named)| *named)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(AsRef::as_ref)
    }
}

fn parameter_names(spec: &WorkflowSpec<'_>) -> FxHashSet<Box<str>> {
    let entries = spec.jobs.iter().filter_map(|job| Some(&job.rare.as_ref()?.sweep));
    let entries = entries.chain(spec.files.iter().map(|file| &file.sweep));
    let entries = entries.chain(spec.user_data.iter().map(|data| &data.sweep));
    let all = entries.flat_map(|sweep| &sweep.parameters).chain(&spec.shared_parameters.parameters);
    let mut names = FxHashSet::default();
    for parameter in all {
        let name = spec.texts.get(parameter.name.text);
        if !names.contains(name) {
            names.insert(name.into());
        }
    }
    names
}

pub(super) fn invalid_name_error(what: &str, text: &str, name: NamedText) -> SpecDiagnostic {
    SpecDiagnostic::new("parameter-name", format!("`{text}` cannot be the name of a {what}"))
        .with_span(name.span)
        .with_help("use letters, digits and `_`, and do not begin with a digit")
}

struct ConstantResolver<'a, 's> {
    spec: &'a WorkflowSpec<'s>,
    written: &'a FxHashMap<&'a str, (NamedText, NamedText)>,
    constants: WorkflowConstants,
    /// The variables being resolved, each used by the previous one.
    path: Vec<&'a str>,
    /// The total size of all values so far, in bytes.
    length: usize,
    sinks: &'a mut DiagnosticSinks,
}

impl<'a> ConstantResolver<'a, '_> {
    /// Deeper nesting is a cycle or an attack.
    const MAX_DEPTH: usize = 50;

    fn resolve_constant(&mut self, name: &'a str) {
        if self.constants.values.contains_key(name) {
            return;
        }
        let Some(&(place, value)) = self.written.get(name) else { return };
        self.path.push(name);
        let text = self.spec.texts.get(value.text);
        let mut filled = String::new();
        let mut from = 0;
        for placeholder in template::find_placeholders(text) {
            if placeholder.after_dollar {
                continue;
            }
            let span = TextPosition::from_named(&self.spec.texts, value).part_span(placeholder.range.clone());
            let Some((&inner, _)) = self.written.get_key_value(placeholder.name) else {
                if let Some(doubled) = placeholder.escape_range(text) {
                    filled.push_str(&text[from..doubled.start]);
                    filled.push_str(&text[placeholder.range]);
                    from = doubled.end;
                    continue;
                }
                if placeholder.is_unmistakable() && self.constants.is_complete {
                    let message = format!("`{{{}}}` is not a variable of the workflow", placeholder.name);
                    let diagnostic = SpecDiagnostic::new("undefined-name", message).with_span(span);
                    self.sinks
                        .errors
                        .push(diagnostic.with_help("a variable may use other variables, but not parameters"));
                }
                continue;
            };
            if self.path.contains(&inner) || self.path.len() > Self::MAX_DEPTH {
                let cycle = self.path.iter().skip_while(|known| **known != inner).chain([&inner]);
                let cycle: Vec<&str> = cycle.copied().collect();
                let message = format!("variables use each other in a cycle: {}", cycle.join(" → "));
                self.sinks.errors.push(SpecDiagnostic::new("variable-cycle", message).with_span(span));
                continue;
            }
            self.resolve_constant(inner);
            filled.push_str(&text[from..placeholder.range.start]);
            let format = placeholder.format.and_then(PlaceholderFormat::parse).unwrap_or_default();
            let value = self.constants.get(inner).unwrap_or_default();
            if self.length + filled.len() + value.len() > MAX_VALUE_BYTES {
                self.report_too_long(span);
                break;
            }
            format.write_value(crate::parameters::ParameterValue::Text(value), &mut filled);
            from = placeholder.range.end;
        }
        filled.push_str(&text[from..]);
        self.path.pop();
        self.length += filled.len();
        self.constants.values.insert(name.into(), (filled, place));
    }

    fn report_too_long(&mut self, span: crate::source::SourceSpan) {
        let message = "the values of the variables are too long after expansion";
        self.sinks.errors.push(SpecDiagnostic::new("too-many", message).with_span(span));
    }
}
