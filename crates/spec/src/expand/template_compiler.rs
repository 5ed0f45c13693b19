//! Resolves each `{name}` of a text once; undefined names are reported with their location.

use super::{DiagnosticSinks, ParameterBindings, WorkflowConstants};
use crate::diagnostic::SpecDiagnostic;
use crate::model::NamedText;
use crate::parameters::ParameterValue;
use crate::source::SourceSpan;
use crate::suggest::NameSuggester;
use crate::template::{self, PlaceholderFormat, TemplateBuilder, TemplatePlaceholder, TextTemplate};
use crate::text_store::{TextRef, TextStore};
use std::ops::Range;

/// The location of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPosition<'t, 's> {
    span: SourceSpan,
    /// Set if parts of the text can be located in the source.
    text: Option<(&'t TextStore<'s>, TextRef)>,
}

impl<'t, 's> TextPosition<'t, 's> {
    pub(crate) fn from_named(texts: &'t TextStore<'s>, named: NamedText) -> Self {
        Self { span: named.span, text: Some((texts, named.text)) }
    }

    /// For a text without a location: uses that of its parent.
    pub(crate) const fn from_span(span: SourceSpan) -> Self {
        Self { span, text: None }
    }

    /// Returns the location of a part of the text.
    pub(crate) fn part_span(&self, part: Range<usize>) -> SourceSpan {
        self.text.and_then(|(texts, text)| texts.find_span(text, part)).unwrap_or(self.span)
    }

    /// Returns the location of a text that is part of this one.
    fn sub_position(self, part: Range<usize>) -> Self {
        Self::from_span(self.part_span(part))
    }
}

/// The type of a `${…}` reference in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceKind {
    /// `${files.…}`: replaced by the path.
    File,
    /// `${user_data.…}`: replaced by the id.
    UserData,
}

/// A reference such as `${files.input.NAME}`.
#[derive(Clone, Debug)]
pub(crate) struct CommandReference {
    pub(crate) kind: ReferenceKind,
    pub(crate) is_output: bool,
    /// `None`: as in `text`.
    pub(crate) name: Option<TextTemplate>,
    pub(crate) text: String,
    pub(crate) span: SourceSpan,
}

/// Compiles the texts of one entry.
#[derive(Debug)]
pub(crate) struct TemplateCompiler<'a> {
    constants: &'a WorkflowConstants,
    bindings: Option<&'a ParameterBindings>,
    sinks: &'a mut DiagnosticSinks,
}

impl<'a> TemplateCompiler<'a> {
    pub(crate) fn new(
        constants: &'a WorkflowConstants,
        bindings: Option<&'a ParameterBindings>,
        sinks: &'a mut DiagnosticSinks,
    ) -> Self {
        Self { constants, bindings, sinks }
    }

    /// Returns `None` if the text has no placeholders.
    pub(crate) fn compile(&mut self, text: &str, place: TextPosition<'_, '_>) -> Option<TextTemplate> {
        if !text.contains('{') {
            return None;
        }
        let mut builder = TemplateBuilder::default();
        self.compile_placeholders(text, place, &mut builder);
        let template = builder.finish();
        (template.as_constant() != Some(text)).then_some(template)
    }

    /// Like [`Self::compile`] for a command, which may also contain references such as
    /// `${files.input.NAME}`.
    pub(crate) fn compile_command(
        &mut self,
        text: &str,
        place: TextPosition<'_, '_>,
    ) -> (Option<TextTemplate>, Vec<CommandReference>) {
        if !["${files.", "${user_data."].iter().any(|start| text.contains(start)) {
            return (self.compile(text, place), Vec::new());
        }
        let mut builder = TemplateBuilder::default();
        let mut parts = Vec::new();
        let mut from = 0;
        while let Some((whole, inside)) = find_reference(text, from) {
            self.compile_placeholders_in(text, from..whole.start, place, &mut builder);
            match self.compile_reference(text, inside.clone(), place) {
                Some(part) => {
                    builder.push_reference(parts.len() as u32);
                    parts.push(part);
                }
                None => builder.push_text(&text[whole.clone()]),
            }
            from = whole.end;
        }
        self.compile_placeholders_in(text, from..text.len(), place, &mut builder);
        (Some(builder.finish()), parts)
    }

    fn compile_reference(
        &mut self,
        text: &str,
        inside: Range<usize>,
        place: TextPosition<'_, '_>,
    ) -> Option<CommandReference> {
        let span = place.part_span(inside.clone());
        let mut words = text[inside.clone()].splitn(3, '.');
        let (what, direction, name) = (words.next()?, words.next(), words.next());
        let to = if what == "files" { ReferenceKind::File } else { ReferenceKind::UserData };
        let is_output = match direction {
            Some("input") => Some(false),
            Some("output") => Some(true),
            _ => None,
        };
        let (Some(is_output), Some(name)) = (is_output, name.filter(|name| !name.is_empty())) else {
            let message = format!("`${{{}}}` is not a valid reference", &text[inside]);
            let help = format!("write `${{{what}.input.NAME}}` or `${{{what}.output.NAME}}`");
            self.sinks
                .errors
                .push(SpecDiagnostic::new("bad-reference", message).with_span(span).with_help(help));
            return None;
        };
        let start = inside.end - name.len();
        let template = self.compile(name, place.sub_position(start..inside.end));
        Some(CommandReference {
            kind: to,
            is_output,
            name: template,
            text: name.to_owned(),
            span: place.part_span(start..inside.end),
        })
    }

    fn compile_placeholders(
        &mut self,
        text: &str,
        place: TextPosition<'_, '_>,
        builder: &mut TemplateBuilder,
    ) {
        self.compile_placeholders_in(text, 0..text.len(), place, builder);
    }

    fn compile_placeholders_in(
        &mut self,
        text: &str,
        range: Range<usize>,
        place: TextPosition<'_, '_>,
        builder: &mut TemplateBuilder,
    ) {
        let part = &text[range.clone()];
        let mut from = 0;
        for placeholder in template::find_placeholders(part) {
            let after_dollar = placeholder.after_dollar
                || placeholder.range.start == 0 && text[..range.start].ends_with('$');
            if after_dollar {
                continue;
            }
            let span = || {
                place.part_span(range.start + placeholder.range.start..range.start + placeholder.range.end)
            };
            let parameter = self.bindings.and_then(|bindings| bindings.find_parameter(placeholder.name));
            let constant = self.constants.get(placeholder.name);
            if parameter.is_none() && constant.is_none() {
                if self.bindings.is_none() && !self.constants.is_likely_mistake(placeholder.name) {
                    continue;
                }
                if let Some(doubled) = placeholder.escape_range(part) {
                    builder.push_text(&part[from..doubled.start]);
                    builder.push_text(&part[placeholder.range]);
                    from = doubled.end;
                    continue;
                }
                if placeholder.is_unmistakable() && self.constants.is_complete() {
                    self.report_undefined_name(&placeholder, span());
                }
                continue;
            }
            builder.push_text(&part[from..placeholder.range.start]);
            from = placeholder.range.end;
            let format = self.parse_placeholder_format(&placeholder, span);
            match (parameter, constant) {
                (Some(parameter), _) => builder.push_value(parameter, format),
                (None, value) => {
                    let mut filled = String::new();
                    format.write_value(ParameterValue::Text(value.unwrap_or_default()), &mut filled);
                    if !self.constants.charge_bytes(filled.len()) {
                        return self.report_too_long(span());
                    }
                    builder.push_text(&filled);
                }
            }
        }
        builder.push_text(&part[from..]);
    }

    fn parse_placeholder_format(
        &mut self,
        placeholder: &TemplatePlaceholder<'_>,
        span: impl Fn() -> SourceSpan,
    ) -> PlaceholderFormat {
        let Some(text) = placeholder.format else { return PlaceholderFormat::Plain };
        PlaceholderFormat::parse(text).unwrap_or_else(|| {
            let message = format!(
                "unknown format `:{text}`; the value of `{}` is inserted without it",
                placeholder.name
            );
            let help = "formats are `:03d` (leading zeros), `:.4f` (decimal places) and `:q` (shell quoting)";
            self.sinks
                .warnings
                .push(SpecDiagnostic::new("unknown-format", message).with_span(span()).with_help(help));
            PlaceholderFormat::Plain
        })
    }

    fn report_too_long(&mut self, span: SourceSpan) {
        let message = "the texts of this spec are too long after its variables are inserted";
        self.sinks.errors.push(SpecDiagnostic::new("too-many", message).with_span(span));
    }

    /// Reports an error if the workflow has variables, as Torc does. Otherwise the text stays as it is, with a
    /// warning if the name looks like a typing error.
    fn report_undefined_name(&mut self, placeholder: &TemplatePlaceholder<'_>, span: SourceSpan) {
        let name = placeholder.name;
        let is_error = self.constants.has_any();
        let sink = if is_error { &mut self.sinks.errors } else { &mut self.sinks.warnings };
        let parameters = self.bindings.into_iter().flat_map(ParameterBindings::names);
        let known = parameters.chain(self.constants.names());
        let nearest = if sink.is_full() { None } else { NameSuggester::default().nearest_name(name, known) };
        if !is_error && nearest.is_none() && !self.constants.is_parameter(name) {
            return;
        }
        let outcome = if is_error { "" } else { "; it is kept as text" };
        let message = format!(
            "`{{{name}}}` is not defined: there is no parameter or variable of that name here{outcome}"
        );
        let diagnostic = SpecDiagnostic::new("undefined-name", message).with_span(span);
        sink.push(match nearest {
            Some(near) => diagnostic.with_help(format!("did you mean `{{{near}}}`?")),
            None => diagnostic.with_help(format!("to keep the text `{{{name}}}`, write `{{{{{name}}}}}`")),
        });
    }
}

/// Maximum length of a reference, so that an unclosed one is not searched for through the rest of the text.
const MAX_REFERENCE_LENGTH: usize = 1000;

/// Returns the next `${files.…}` or `${user_data.…}` at or after `from`: all of it, and the part inside the
/// braces.
fn find_reference(text: &str, from: usize) -> Option<(Range<usize>, Range<usize>)> {
    let mut from = from;
    loop {
        let start = from + text[from..].find("${")?;
        let inside = start + 2;
        from = inside;
        if !["files.", "user_data."].iter().any(|word| text[inside..].starts_with(word)) {
            continue;
        }
        let mut depth = 1;
        let close = text[inside..].bytes().take(MAX_REFERENCE_LENGTH).position(|byte| {
            depth += i32::from(byte == b'{') - i32::from(byte == b'}');
            depth == 0
        });
        if let Some(length) = close {
            return Some((start..inside + length + 1, inside..inside + length));
        }
    }
}

/// Appends `template` with the values of one instance of an entry. References are left out.
pub(crate) fn render_template(
    template: &TextTemplate,
    bindings: Option<&ParameterBindings>,
    index: u32,
    out: &mut String,
) {
    let value = |parameter| bindings.map_or(ParameterValue::Text(""), |all| all.value(parameter, index));
    template.render(out, value, |_, _| {});
}
