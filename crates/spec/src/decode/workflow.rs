//! Decodes the top level of a spec and what its parts share: lists of names, environments, constants.
//!
//! Jobs, files and user data are decoded while streaming, because there may be a million. The few other parts
//! contain sizes and durations that may use constants defined further down, so they are decoded after the whole
//! file is read.

use super::fields::{FieldEntry, MapDecoder};
use super::recording::EventRecording;
use super::tables::{DeferredSection, StdioField, WorkflowField};
use super::{DecodedSpec, NameCompleteness, OpenList, SpannedText, SpecDecoder, ValueSubject};
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, DocumentNodeId, StopReading};
use crate::expand::{DiagnosticSinks, WorkflowConstants};
use crate::model::{EnvVariable, ListRange, NamedText, WorkflowSpec};
use crate::name_index::NameIndex;
use crate::source::SourceSpan;
use crate::template;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::fmt;
use windlass_types::settings::NO_RO_CRATE;
use windlass_types::worker_messages::{
    RESERVED_PREFIX, StdioSettings, is_reserved_variable, is_set_by_worker,
};

/// The spec as decoded so far.
pub(super) struct SpecBuilder<'s, E> {
    pub(super) decoder: SpecDecoder<'s, E>,
    pub(super) spec: WorkflowSpec<'s>,
    pub(super) names: NameCompleteness,
    /// The location of `stdio` of the workflow, which may also be set in `execution_config`.
    pub(super) stdio_span: Option<SourceSpan>,
    /// Lists and maps that may be repeated through an alias.
    lists_by_node: FxHashMap<DocumentNodeId, ListRange>,
    envs_by_node: FxHashMap<DocumentNodeId, ListRange>,
    pub(super) requirement_names: NameIndex,
    variable_names: NameIndex,
    deferred_sections: Vec<(DeferredSection, EventRecording<'s>)>,
}

pub(super) fn build_spec<'s>(source: &'s str, events: impl DocumentEventStream<'s>) -> DecodedSpec<'s> {
    let mut building = SpecBuilder {
        decoder: SpecDecoder::new(events),
        spec: WorkflowSpec::new(source),
        names: NameCompleteness::ALL,
        stdio_span: None,
        lists_by_node: FxHashMap::default(),
        envs_by_node: FxHashMap::default(),
        requirement_names: NameIndex::default(),
        variable_names: NameIndex::default(),
        deferred_sections: Vec::new(),
    };
    let is_read = building.decode_document().is_ok();
    let waiting = std::mem::take(&mut building.deferred_sections);
    building.set_constants(is_read);
    let mut building = building.with_events(EventRecording::default());
    let are_parts_read = building.decode_deferred_sections(waiting).is_ok();
    let names = (is_read && are_parts_read).then_some(building.names);
    let SpecDecoder { sink, warnings, .. } = building.decoder;
    DecodedSpec { spec: building.spec, sink, warnings, names }
}

impl<'s, E: DocumentEventStream<'s>> SpecBuilder<'s, E> {
    fn decode_document(&mut self) -> Result<(), StopReading> {
        let root = self.decoder.next_event()?;
        let is_empty = match &root.kind {
            DocumentEventKind::End => true,
            DocumentEventKind::Scalar(scalar) => scalar.is_null(),
            _ => false,
        };
        if is_empty {
            self.decoder.sink.push(
                SpecDiagnostic::new("empty-file", "the file is empty")
                    .with_help("a workflow needs at least `name` and `jobs`"),
            );
            return Err(StopReading);
        }
        self.decode_workflow(&root)?;
        // Anything that follows (a second document) is reported by the parser.
        self.decoder.next_event().map(|_| ())
    }

    fn decode_workflow(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        if !matches!(event.kind, DocumentEventKind::MapStart(_)) {
            let diagnostic =
                SpecDiagnostic::new("wrong-type", "a workflow must be a map").with_span(event.span);
            self.decoder.sink.push(diagnostic.with_help("start with `name:` and `jobs:`"));
            return Err(StopReading);
        }
        let mut map = MapDecoder::new(event.span, None);
        while let Some(found) = self.decoder.next_field(&mut map)? {
            self.decode_field(found)?;
        }
        Ok(())
    }

    fn decode_field(&mut self, found: FieldEntry<'s, WorkflowField>) -> Result<(), StopReading> {
        let FieldEntry { id: is, field, subject, value } = found;
        let (decoder, settings) = (&mut self.decoder, &mut self.spec.settings);
        match is {
            // There is only one version so far; others are rejected.
            WorkflowField::Version => {
                decoder.read_integer(value, subject, field.field_type.integer_range())?;
            }
            WorkflowField::Name => {
                if let Some(name) = self.read_name(value, subject)? {
                    self.spec.name = name;
                }
            }
            WorkflowField::User => self.spec.user = self.read_name(value, subject)?,
            WorkflowField::Description => {
                let description = decoder.read_string(value, subject)?;
                self.spec.description = description.map(|text| self.intern_text(text));
            }
            WorkflowField::Project => {
                self.spec.project = self.read_name(value, subject)?;
            }
            WorkflowField::Metadata => {
                settings.metadata = decoder.decode_json_map(value, subject)?.into_iter().flatten().collect();
                self.store_settings_strings();
            }
            WorkflowField::Variables => self.decode_constants(&value)?,
            WorkflowField::Parameters => match self.decode_parameters(&value, subject)? {
                Some(parameters) => self.spec.shared_parameters.parameters = parameters,
                None => self.names.all_parameters = false,
            },
            WorkflowField::ParametersFile => {
                self.spec.shared_parameters.parameters_file = self.read_text(value, subject)?;
            }
            WorkflowField::Env => self.spec.env = self.decode_env(&value)?,
            WorkflowField::Stdio => {
                self.stdio_span = Some(value.span);
                self.spec.stdio = decoder.decode_stdio(&value, subject)?.unwrap_or_default();
            }
            WorkflowField::SlurmDefaults => {
                settings.slurm_defaults =
                    decoder.decode_slurm_options(&value, subject)?.into_iter().collect();
                self.store_settings_strings();
            }
            WorkflowField::UsePendingFailed => {
                settings.use_pending_failed = decoder.read_boolean(value, subject)?.unwrap_or_default();
            }
            WorkflowField::EnableRoCrate => {
                let span = value.span;
                settings.enable_ro_crate = decoder.read_boolean(value, subject)?.unwrap_or_default();
                if settings.enable_ro_crate {
                    decoder.warn_no_effect("enable_ro_crate", NO_RO_CRATE, span);
                }
            }
            WorkflowField::ChangeDetection => {
                settings.change_detection =
                    decoder.read_choice(value, subject, field.field_type.choices())?;
            }
            WorkflowField::AccessGroups => {
                self.spec.access_groups = self.read_name_list(&value, field.name)?;
            }
            WorkflowField::ExpirationBuffer => {
                settings.compute_node_expiration_buffer_seconds =
                    decoder.read_integer_as(value, subject, field)?;
            }
            WorkflowField::WaitForNewJobs => {
                settings.compute_node_wait_for_new_jobs_seconds =
                    decoder.read_integer_as(value, subject, field)?;
            }
            WorkflowField::IgnoreCompletion => {
                settings.compute_node_ignore_workflow_completion = decoder.read_boolean(value, subject)?;
            }
            WorkflowField::WaitForDatabase => {
                settings.compute_node_wait_for_healthy_database_minutes =
                    decoder.read_integer_as(value, subject, field)?;
            }
            WorkflowField::Jobs => self.decode_jobs(&value)?,
            WorkflowField::Files => self.decode_files(&value)?,
            WorkflowField::UserData => self.decode_all_user_data(&value)?,
            WorkflowField::Limits => self.decode_limits(&value, field)?,
            WorkflowField::Deferred(part) => {
                let (recording, is_read) = decoder.record_value(value);
                self.deferred_sections.push((part, recording));
                is_read?;
            }
        }
        Ok(())
    }

    /// Reads a name that is defined here.
    pub(super) fn read_name(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<NamedText>, StopReading> {
        let name = self.decoder.read_name(event, subject)?;
        Ok(name.map(|name| self.intern_text(name)))
    }

    fn intern_text(&mut self, (text, span): SpannedText<'s>) -> NamedText {
        NamedText { text: self.spec.texts.intern(&text, span), span }
    }

    /// Takes the strings with braces of the free values read since the last call.
    pub(super) fn take_braced_strings(&mut self) -> ListRange {
        let start = self.spec.names.len() as u32;
        for string in std::mem::take(&mut self.decoder.braced) {
            let string = self.intern_text(string);
            self.spec.names.push(string);
        }
        ListRange { start, end: self.spec.names.len() as u32 }
    }

    fn store_settings_strings(&mut self) {
        for string in std::mem::take(&mut self.decoder.braced) {
            let string = self.intern_text(string);
            self.spec.settings_strings.push(string);
        }
    }

    /// Reads a non-empty text, or a name that is used here; errors in names are reported at their definition.
    pub(super) fn read_text(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<NamedText>, StopReading> {
        let text = self.decoder.read_non_empty(event, subject)?;
        Ok(text.map(|text| self.intern_text(text)))
    }

    /// Reads a list of names or other texts.
    pub(super) fn read_name_list(
        &mut self,
        event: &DocumentEvent<'s>,
        field: &'static str,
    ) -> Result<ListRange, StopReading> {
        let Some(OpenList { id }) = self.decoder.open_list(event, ValueSubject::Field(field))? else {
            return Ok(ListRange::default());
        };
        if let Some(known) = id.and_then(|id| self.lists_by_node.get(&id)) {
            self.decoder.skip_value(event)?;
            return Ok(*known);
        }
        let start = self.spec.names.len() as u32;
        while let Some(item) = self.decoder.next_item()? {
            let name = self.read_text(item, ValueSubject::ItemOf(field))?;
            self.spec.names.extend(name);
        }
        let list = ListRange { start, end: self.spec.names.len() as u32 };
        if let Some(id) = id {
            self.lists_by_node.insert(id, list);
        }
        Ok(list)
    }

    /// Reads the texts of a list.
    pub(super) fn list_strings(&self, list: ListRange) -> Vec<String> {
        self.spec.names[list.range()].iter().map(|name| self.spec.texts.get(name.text).to_owned()).collect()
    }

    pub(super) fn decode_env(&mut self, event: &DocumentEvent<'s>) -> Result<ListRange, StopReading> {
        let Some(MapDecoder { id, .. }) = self.decoder.open_map(event, ValueSubject::Field("env"))? else {
            return Ok(ListRange::default());
        };
        if let Some(known) = id.and_then(|id| self.envs_by_node.get(&id)) {
            self.decoder.skip_value(event)?;
            return Ok(*known);
        }
        let start = self.spec.variables.len() as u32;
        self.variable_names.clear();
        loop {
            let key = self.decoder.next_event()?;
            let DocumentEventKind::Key { text, merged } = key.kind else { break };
            let value = self.decoder.next_event()?;
            self.decode_variable(&text, key.span, merged, value)?;
        }
        let list = ListRange { start, end: self.spec.variables.len() as u32 };
        if let Some(id) = id {
            self.envs_by_node.insert(id, list);
        }
        Ok(list)
    }

    fn decode_variable(
        &mut self,
        name: &str,
        span: SourceSpan,
        merged: bool,
        value: DocumentEvent<'s>,
    ) -> Result<(), StopReading> {
        let (texts, variables) = (&self.spec.texts, &self.spec.variables);
        let name_of = |known: u32| texts.get(variables[known as usize].name);
        let known = self.variable_names.insert(name, variables.len() as u32, name_of);
        if known.is_some() {
            if !merged {
                self.decoder.report_duplicate(ValueSubject::Variable(name), span);
            }
            return self.decoder.skip_value(&value);
        }
        if !template::is_valid_name(name) {
            self.decoder.sink.push(
                SpecDiagnostic::new(
                    "variable-name",
                    format!("`{name}` cannot be the name of an environment variable"),
                )
                .with_span(span)
                .with_help(IDENTIFIER_HELP),
            );
        }
        if is_reserved_variable(name) {
            self.decoder.sink.push(
                SpecDiagnostic::new("reserved-name", format!("variable `{name}` is set by Windlass"))
                    .with_span(span)
                    .with_help(format!("choose a name that does not begin with `{RESERVED_PREFIX}`")),
            );
        } else if is_set_by_worker(name) {
            let message = format!("variable `{name}` is set by Windlass; this value is ignored");
            self.decoder.warnings.push(SpecDiagnostic::new("useless-field", message).with_span(span));
        }
        let value = self.decoder.read_string(value, ValueSubject::Variable(name))?;
        // Kept even if its value is bad, because the index above already counts it.
        let value = value.map_or_else(NamedText::default, |value| self.intern_text(value));
        self.spec.variables.push(EnvVariable { name: self.spec.texts.intern(name, span), value });
        Ok(())
    }

    /// Decodes the `variables` of the workflow.
    fn decode_constants(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        if self.decoder.open_map(event, ValueSubject::Field("variables"))?.is_none() {
            self.names.all_variables = false;
            return Ok(());
        }
        let mut known = FxHashSet::default();
        while let Some((text, span, value)) = self.decoder.next_name(&mut known, "variable")? {
            let name = NamedText { text: self.spec.texts.intern(&text, span), span };
            match self.decoder.read_string(value, ValueSubject::Variable(&text))? {
                Some((value, span)) => {
                    let value = NamedText { text: self.spec.texts.intern(&value, span), span };
                    self.spec.constants.push((name, value));
                }
                None => self.names.all_variables = false,
            }
        }
        Ok(())
    }

    /// Sets the constants; errors in them are reported during expansion.
    fn set_constants(&mut self, is_read: bool) {
        let are_known = is_read && self.names.all_variables;
        self.decoder.constants =
            WorkflowConstants::new(&self.spec, are_known, &mut DiagnosticSinks::default());
    }

    /// Continues with other events.
    fn with_events<F>(self, events: F) -> SpecBuilder<'s, F> {
        SpecBuilder {
            decoder: self.decoder.with_events(events),
            spec: self.spec,
            names: self.names,
            stdio_span: self.stdio_span,
            lists_by_node: self.lists_by_node,
            envs_by_node: self.envs_by_node,
            requirement_names: self.requirement_names,
            variable_names: self.variable_names,
            deferred_sections: self.deferred_sections,
        }
    }
}

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    pub(super) fn decode_stdio(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<StdioSettings>, StopReading> {
        let Some(mut map) = self.open_map(event, subject)? else { return Ok(None) };
        let mut stdio = StdioSettings::default();
        while let Some(FieldEntry { id: is, field, subject, value }) =
            self.next_field::<StdioField>(&mut map)?
        {
            match is {
                StdioField::Mode => {
                    stdio.mode =
                        self.read_choice(value, subject, field.field_type.choices())?.unwrap_or_default();
                }
                StdioField::DeleteOnSuccess => {
                    stdio.delete_on_success = self.read_boolean(value, subject)?.unwrap_or_default();
                }
            }
        }
        Ok(Some(stdio))
    }

    /// Returns the next new name in a map of parameters or variables, its location, and the event that begins
    /// its value.
    pub(super) fn next_name(
        &mut self,
        known: &mut FxHashSet<Cow<'s, str>>,
        what: &str,
    ) -> Result<Option<(Cow<'s, str>, SourceSpan, DocumentEvent<'s>)>, StopReading> {
        loop {
            let key = self.next_event()?;
            let DocumentEventKind::Key { text, merged } = key.kind else { return Ok(None) };
            let value = self.next_event()?;
            if known.insert(text.clone()) {
                self.check_identifier(&text, what, key.span);
                return Ok(Some((text, key.span, value)));
            }
            if !merged {
                self.report_duplicate(format_args!("{what} `{text}`"), key.span);
            }
            self.skip_value(&value)?;
        }
    }

    fn check_identifier(&mut self, name: &str, what: &str, span: SourceSpan) {
        if !template::is_valid_name(name) {
            let message = format!("`{name}` cannot be the name of a {what}");
            self.sink.push(
                SpecDiagnostic::new("parameter-name", message).with_span(span).with_help(IDENTIFIER_HELP),
            );
        }
    }

    fn report_duplicate(&mut self, subject: impl fmt::Display, span: SourceSpan) {
        self.sink.push(
            SpecDiagnostic::new("duplicate-field", format!("{subject} is given twice")).with_span(span),
        );
    }
}

const IDENTIFIER_HELP: &str = "use letters, digits and `_`, and do not begin with a digit";
