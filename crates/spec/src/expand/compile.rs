//! Finds out what each `{name}` of a text stands for, once; what stands for nothing is reported with its place.

use super::{Bindings, Constants, Sinks};
use crate::diagnostic::Diagnostic;
use crate::model::Named;
use crate::params::ParameterValue;
use crate::source::Span;
use crate::suggest::Suggester;
use crate::template::{self, Format, Hole, Template, TemplateBuilder};
use crate::text::{Text, Texts};
use std::ops::Range;

/// Where a text is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'t, 's> {
    span: Span,
    /// Set if parts of the text can be found in the source.
    text: Option<(&'t Texts<'s>, Text)>,
}

impl<'t, 's> Place<'t, 's> {
    pub(crate) fn of(texts: &'t Texts<'s>, named: Named) -> Self {
        Self { span: named.span, text: Some((texts, named.text)) }
    }

    /// For a text whose own place is not known: that of what it belongs to.
    pub(crate) const fn near(span: Span) -> Self {
        Self { span, text: None }
    }

    /// The place of a part of the text.
    pub(crate) fn part(&self, part: Range<usize>) -> Span {
        self.text.and_then(|(texts, text)| texts.place(text, part)).unwrap_or(self.span)
    }

    /// The place of a text that is itself part of this one.
    fn within(self, part: Range<usize>) -> Self {
        Self::near(self.part(part))
    }
}

/// What a `${…}` in a command means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceTo {
    /// `${files.…}`: becomes the path.
    File,
    /// `${user_data.…}`: becomes the id.
    UserData,
}

/// A `${files.input.NAME}` or the like.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) to: ReferenceTo,
    pub(crate) is_output: bool,
    /// `None`: as in `text`.
    pub(crate) name: Option<Template>,
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// Compiles the texts of one entry.
#[derive(Debug)]
pub(crate) struct Compiler<'a> {
    constants: &'a Constants,
    bindings: Option<&'a Bindings>,
    sinks: &'a mut Sinks,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(
        constants: &'a Constants,
        bindings: Option<&'a Bindings>,
        sinks: &'a mut Sinks,
    ) -> Self {
        Self { constants, bindings, sinks }
    }

    /// `None`: there is nothing to fill in, the text is as it stands.
    pub(crate) fn compile(&mut self, text: &str, place: Place<'_, '_>) -> Option<Template> {
        if !text.contains('{') {
            return None;
        }
        let mut builder = TemplateBuilder::default();
        self.holes(text, place, &mut builder);
        let template = builder.finish();
        (template.constant() != Some(text)).then_some(template)
    }

    /// As [`Compiler::compile`] for a command, whose `${files.input.NAME}` and the like are found too.
    pub(crate) fn compile_command(
        &mut self,
        text: &str,
        place: Place<'_, '_>,
    ) -> (Option<Template>, Vec<Part>) {
        if !["${files.", "${user_data."].iter().any(|start| text.contains(start)) {
            return (self.compile(text, place), Vec::new());
        }
        let mut builder = TemplateBuilder::default();
        let mut parts = Vec::new();
        let mut from = 0;
        while let Some((whole, inside)) = next_reference(text, from) {
            self.holes_between(text, from..whole.start, place, &mut builder);
            match self.reference(text, inside.clone(), place) {
                Some(part) => {
                    builder.reference(parts.len() as u32);
                    parts.push(part);
                }
                None => builder.text(&text[whole.clone()]),
            }
            from = whole.end;
        }
        self.holes_between(text, from..text.len(), place, &mut builder);
        (Some(builder.finish()), parts)
    }

    fn reference(&mut self, text: &str, inside: Range<usize>, place: Place<'_, '_>) -> Option<Part> {
        let span = place.part(inside.clone());
        let mut words = text[inside.clone()].splitn(3, '.');
        let (what, direction, name) = (words.next()?, words.next(), words.next());
        let to = if what == "files" { ReferenceTo::File } else { ReferenceTo::UserData };
        let is_output = match direction {
            Some("input") => Some(false),
            Some("output") => Some(true),
            _ => None,
        };
        let (Some(is_output), Some(name)) = (is_output, name.filter(|name| !name.is_empty())) else {
            let message = format!("`${{{}}}` names nothing that can be put here", &text[inside]);
            let help = format!("write `${{{what}.input.NAME}}` or `${{{what}.output.NAME}}`");
            self.sinks.errors.push(Diagnostic::new("bad-reference", message).at(span).help(help));
            return None;
        };
        let start = inside.end - name.len();
        let template = self.compile(name, place.within(start..inside.end));
        Some(Part {
            to,
            is_output,
            name: template,
            text: name.to_owned(),
            span: place.part(start..inside.end),
        })
    }

    fn holes(&mut self, text: &str, place: Place<'_, '_>, builder: &mut TemplateBuilder) {
        self.holes_between(text, 0..text.len(), place, builder);
    }

    fn holes_between(
        &mut self,
        text: &str,
        range: Range<usize>,
        place: Place<'_, '_>,
        builder: &mut TemplateBuilder,
    ) {
        let part = &text[range.clone()];
        let mut from = 0;
        for hole in template::holes(part) {
            let after_dollar =
                hole.after_dollar || hole.range.start == 0 && text[..range.start].ends_with('$');
            if after_dollar {
                continue;
            }
            let span = || place.part(range.start + hole.range.start..range.start + hole.range.end);
            let parameter = self.bindings.and_then(|bindings| bindings.find(hole.name));
            let constant = self.constants.get(hole.name);
            if parameter.is_none() && constant.is_none() {
                if self.bindings.is_none() && !self.constants.make_a_slip_likely(hole.name) {
                    continue;
                }
                if let Some(doubled) = hole.escape(part) {
                    builder.text(&part[from..doubled.start]);
                    builder.text(&part[hole.range]);
                    from = doubled.end;
                    continue;
                }
                if hole.is_unmistakable() && self.constants.is_complete() {
                    self.undefined(&hole, span());
                }
                continue;
            }
            builder.text(&part[from..hole.range.start]);
            from = hole.range.end;
            let format = self.format(&hole, span);
            match (parameter, constant) {
                (Some(parameter), _) => builder.value(parameter, format),
                (None, value) => {
                    let mut filled = String::new();
                    format.put(ParameterValue::Text(value.unwrap_or_default()), &mut filled);
                    if !self.constants.spend(filled.len()) {
                        return self.too_long(span());
                    }
                    builder.text(&filled);
                }
            }
        }
        builder.text(&part[from..]);
    }

    fn format(&mut self, hole: &Hole<'_>, span: impl Fn() -> Span) -> Format {
        let Some(text) = hole.format else { return Format::Plain };
        Format::parse(text).unwrap_or_else(|| {
            let message = format!(
                "`:{text}` is no format that is known; the value of `{}` is put in plainly",
                hole.name
            );
            let help =
                "known are `:03d` (zeros in front), `:.4f` (digits after the point) and `:q` (for a shell)";
            self.sinks.warnings.push(Diagnostic::new("unknown-format", message).at(span()).help(help));
            Format::Plain
        })
    }

    fn too_long(&mut self, span: Span) {
        let message = "the texts of this spec become far too long when its variables are put in";
        self.sinks.errors.push(Diagnostic::new("too-many", message).at(span));
    }

    fn undefined(&mut self, hole: &Hole<'_>, span: Span) {
        let name = hole.name;
        let message =
            format!("`{{{name}}}` stands for nothing: no parameter here and no variable has that name");
        let diagnostic = Diagnostic::new("undefined-name", message).at(span);
        let parameters = self.bindings.into_iter().flat_map(Bindings::names);
        let known = parameters.chain(self.constants.names());
        let nearest =
            if self.sinks.errors.is_full() { None } else { Suggester::default().nearest(name, known) };
        self.sinks.errors.push(match nearest {
            Some(near) => diagnostic.help(format!("did you mean `{{{near}}}`?")),
            None => diagnostic.help(format!("for the text `{{{name}}}` itself write `{{{{{name}}}}}`")),
        });
    }
}

/// A reference is not longer than this; one that is never closed is not looked for through all the rest of the text.
const LONGEST_REFERENCE: usize = 1000;

/// The next `${files.…}` or `${user_data.…}` at or after `from`: the whole of it, and what is inside the braces.
fn next_reference(text: &str, from: usize) -> Option<(Range<usize>, Range<usize>)> {
    let mut from = from;
    loop {
        let start = from + text[from..].find("${")?;
        let inside = start + 2;
        from = inside;
        if !["files.", "user_data."].iter().any(|word| text[inside..].starts_with(word)) {
            continue;
        }
        let mut depth = 1;
        let close = text[inside..].bytes().take(LONGEST_REFERENCE).position(|byte| {
            depth += i32::from(byte == b'{') - i32::from(byte == b'}');
            depth == 0
        });
        if let Some(length) = close {
            return Some((start..inside + length + 1, inside..inside + length));
        }
    }
}

/// Appends what one of those that an entry made has in place of `template`. References are left out.
pub(crate) fn render(template: &Template, bindings: Option<&Bindings>, index: u32, out: &mut String) {
    let value = |parameter| bindings.map_or(ParameterValue::Text(""), |all| all.value(parameter, index));
    template.render(out, value, |_, _| {});
}
