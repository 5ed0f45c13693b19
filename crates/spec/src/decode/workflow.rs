//! The top of a spec, and what its parts have in common: lists of names, environments, constants.
//!
//! Jobs, files and user data are decoded as they stream by, for there may be a million. The few other parts hold sizes
//! and durations, in which constants may stand that are defined further down: they wait until the whole file is read.

use super::fields::{Found, OpenMap};
use super::recording::Recording;
use super::tables::{Part, StdioField, WorkflowField};
use super::{Decoded, Decoder, NamesRead, OpenList, Spanned, Subject};
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Kind, NodeId, Stop};
use crate::expand::{Constants, Sinks};
use crate::index::NameIndex;
use crate::model::{List, Named, Spec, Variable};
use crate::source::Span;
use crate::template;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::fmt;
use windlass_types::work::{RESERVED_PREFIX, Stdio, is_reserved_name, is_set_by_worker};

/// The spec as far as it is decoded.
pub(super) struct Building<'s, E> {
    pub(super) decoder: Decoder<'s, E>,
    pub(super) spec: Spec<'s>,
    pub(super) names: NamesRead,
    /// Where `stdio` of the workflow stands, which has a second place elsewhere.
    pub(super) stdio_span: Option<Span>,
    /// Lists and maps that came once and may come again through an alias.
    known_lists: FxHashMap<NodeId, List>,
    known_envs: FxHashMap<NodeId, List>,
    pub(super) requirement_names: NameIndex,
    variable_names: NameIndex,
    waiting: Vec<(Part, Recording<'s>)>,
}

pub(super) fn decode<'s>(source: &'s str, events: impl Events<'s>) -> Decoded<'s> {
    let mut building = Building {
        decoder: Decoder::new(events),
        spec: Spec::new(source),
        names: NamesRead::ALL,
        stdio_span: None,
        known_lists: FxHashMap::default(),
        known_envs: FxHashMap::default(),
        requirement_names: NameIndex::default(),
        variable_names: NameIndex::default(),
        waiting: Vec::new(),
    };
    let is_read = building.document().is_ok();
    let waiting = std::mem::take(&mut building.waiting);
    building.learn_constants(is_read);
    let mut building = building.over(Recording::default());
    let are_parts_read = building.parts(waiting).is_ok();
    let names = (is_read && are_parts_read).then_some(building.names);
    let Decoder { sink, warnings, .. } = building.decoder;
    Decoded { spec: building.spec, sink, warnings, names }
}

impl<'s, E: Events<'s>> Building<'s, E> {
    fn document(&mut self) -> Result<(), Stop> {
        let root = self.decoder.next()?;
        let is_empty = match &root.kind {
            Kind::End => true,
            Kind::Scalar(scalar) => scalar.is_null(),
            _ => false,
        };
        if is_empty {
            self.decoder.sink.push(
                Diagnostic::new("empty-file", "the file is empty")
                    .help("a workflow needs at least `name` and `jobs`"),
            );
            return Err(Stop);
        }
        self.workflow(&root)?;
        // Whatever follows (a second document) reports itself.
        self.decoder.next().map(|_| ())
    }

    fn workflow(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if !matches!(event.kind, Kind::MapStart(_)) {
            let diagnostic = Diagnostic::new("wrong-type", "a workflow must be a map").at(event.span);
            self.decoder.sink.push(diagnostic.help("begin with `name:` and `jobs:`"));
            return Err(Stop);
        }
        let mut map = OpenMap::new(event.span, None);
        while let Some(found) = self.decoder.next_field(&mut map)? {
            self.field(found)?;
        }
        Ok(())
    }

    fn field(&mut self, found: Found<'s, WorkflowField>) -> Result<(), Stop> {
        let Found { is, field, subject, value } = found;
        let (decoder, settings) = (&mut self.decoder, &mut self.spec.settings);
        match is {
            // There is one version so far, and any other was refused.
            WorkflowField::Version => drop(decoder.integer(value, subject, field.is.range())?),
            WorkflowField::Name => {
                if let Some(name) = self.name(value, subject)? {
                    self.spec.name = name;
                }
            }
            WorkflowField::User => self.spec.user = self.name(value, subject)?,
            WorkflowField::Description => {
                let description = decoder.string(value, subject)?;
                self.spec.description = description.map(|text| self.keep(text));
            }
            WorkflowField::Project => {
                self.spec.project = self.name(value, subject)?;
            }
            WorkflowField::Metadata => {
                settings.metadata = decoder.json_map(value, subject)?.into_iter().flatten().collect();
                self.keep_settings_strings();
            }
            WorkflowField::Variables => self.constants(&value)?,
            WorkflowField::Parameters => match self.parameters(&value, subject)? {
                Some(parameters) => self.spec.shared.parameters = parameters,
                None => self.names.all_parameters = false,
            },
            WorkflowField::ParametersFile => {
                self.spec.shared.parameters_file = self.text(value, subject)?;
            }
            WorkflowField::Env => self.spec.env = self.env(&value)?,
            WorkflowField::Stdio => {
                self.stdio_span = Some(value.span);
                self.spec.stdio = decoder.stdio(&value, subject)?.unwrap_or_default();
            }
            WorkflowField::SlurmDefaults => {
                settings.slurm_defaults = decoder.slurm_options(&value, subject)?.into_iter().collect();
                self.keep_settings_strings();
            }
            WorkflowField::UsePendingFailed => {
                settings.use_pending_failed = decoder.boolean(value, subject)?.unwrap_or_default();
            }
            WorkflowField::EnableRoCrate => {
                let span = value.span;
                settings.enable_ro_crate = decoder.boolean(value, subject)?.unwrap_or_default();
                if settings.enable_ro_crate {
                    decoder.has_no_effect("enable_ro_crate", "this version writes no RO-Crate", span);
                }
            }
            WorkflowField::ChangeDetection => {
                settings.change_detection = decoder.choice(value, subject, field.is.choices())?;
            }
            WorkflowField::AccessGroups => {
                self.spec.access_groups = self.name_list(&value, field.name)?;
            }
            WorkflowField::ExpirationBuffer => {
                settings.compute_node_expiration_buffer_seconds = decoder.whole(value, subject, field)?;
            }
            WorkflowField::WaitForNewJobs => {
                settings.compute_node_wait_for_new_jobs_seconds = decoder.whole(value, subject, field)?;
            }
            WorkflowField::IgnoreCompletion => {
                settings.compute_node_ignore_workflow_completion = decoder.boolean(value, subject)?;
            }
            WorkflowField::WaitForDatabase => {
                settings.compute_node_wait_for_healthy_database_minutes =
                    decoder.whole(value, subject, field)?;
            }
            WorkflowField::Jobs => self.jobs(&value)?,
            WorkflowField::Files => self.files(&value)?,
            WorkflowField::UserData => self.all_user_data(&value)?,
            WorkflowField::Limits => self.limits(&value, field)?,
            WorkflowField::Part(part) => {
                let (recording, is_read) = decoder.record(value);
                self.waiting.push((part, recording));
                is_read?;
            }
        }
        Ok(())
    }

    /// A name that is given here.
    pub(super) fn name(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Named>, Stop> {
        let name = self.decoder.name(event, subject)?;
        Ok(name.map(|name| self.keep(name)))
    }

    fn keep(&mut self, (text, span): Spanned<'s>) -> Named {
        Named { text: self.spec.texts.keep(&text, span), span }
    }

    /// The strings with braces of the free values that were read since this was last asked.
    pub(super) fn braced_strings(&mut self) -> List {
        let start = self.spec.names.len() as u32;
        for string in std::mem::take(&mut self.decoder.braced) {
            let string = self.keep(string);
            self.spec.names.push(string);
        }
        List { start, end: self.spec.names.len() as u32 }
    }

    fn keep_settings_strings(&mut self) {
        for string in std::mem::take(&mut self.decoder.braced) {
            let string = self.keep(string);
            self.spec.settings_strings.push(string);
        }
    }

    /// A text with something in it, or a name that is used here: it need not be told again what is wrong with it.
    pub(super) fn text(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Named>, Stop> {
        let text = self.decoder.non_empty(event, subject)?;
        Ok(text.map(|text| self.keep(text)))
    }

    /// A list of names or of other texts.
    pub(super) fn name_list(&mut self, event: &Event<'s>, field: &'static str) -> Result<List, Stop> {
        let Some(OpenList { id }) = self.decoder.list(event, Subject::Field(field))? else {
            return Ok(List::default());
        };
        if let Some(known) = id.and_then(|id| self.known_lists.get(&id)) {
            self.decoder.skip(event)?;
            return Ok(*known);
        }
        let start = self.spec.names.len() as u32;
        while let Some(item) = self.decoder.next_item()? {
            let name = self.text(item, Subject::ItemOf(field))?;
            self.spec.names.extend(name);
        }
        let list = List { start, end: self.spec.names.len() as u32 };
        if let Some(id) = id {
            self.known_lists.insert(id, list);
        }
        Ok(list)
    }

    /// The texts of a list.
    pub(super) fn strings(&self, list: List) -> Vec<String> {
        self.spec.names[list.range()].iter().map(|name| self.spec.texts.get(name.text).to_owned()).collect()
    }

    pub(super) fn env(&mut self, event: &Event<'s>) -> Result<List, Stop> {
        let Some(OpenMap { id, .. }) = self.decoder.map(event, Subject::Field("env"))? else {
            return Ok(List::default());
        };
        if let Some(known) = id.and_then(|id| self.known_envs.get(&id)) {
            self.decoder.skip(event)?;
            return Ok(*known);
        }
        let start = self.spec.variables.len() as u32;
        self.variable_names.clear();
        loop {
            let key = self.decoder.next()?;
            let Kind::Key { text, merged } = key.kind else { break };
            let value = self.decoder.next()?;
            self.variable(&text, key.span, merged, value)?;
        }
        let list = List { start, end: self.spec.variables.len() as u32 };
        if let Some(id) = id {
            self.known_envs.insert(id, list);
        }
        Ok(list)
    }

    fn variable(&mut self, name: &str, span: Span, merged: bool, value: Event<'s>) -> Result<(), Stop> {
        let (texts, variables) = (&self.spec.texts, &self.spec.variables);
        let name_of = |known: u32| texts.get(variables[known as usize].name);
        let known = self.variable_names.insert(name, variables.len() as u32, name_of);
        if known.is_some() {
            if !merged {
                self.decoder.given_twice(Subject::Variable(name), span);
            }
            return self.decoder.skip(&value);
        }
        if !template::is_name(name) {
            self.decoder.sink.push(
                Diagnostic::new(
                    "variable-name",
                    format!("`{name}` cannot be the name of an environment variable"),
                )
                .at(span)
                .help(IDENTIFIER_HELP),
            );
        }
        if is_reserved_name(name) {
            self.decoder.sink.push(
                Diagnostic::new("reserved-name", format!("variable `{name}` is set by Windlass itself"))
                    .at(span)
                    .help(format!("choose a name that does not begin with `{RESERVED_PREFIX}`")),
            );
        } else if is_set_by_worker(name) {
            let message = format!("variable `{name}` is set by Windlass itself; this value is not used");
            self.decoder.warnings.push(Diagnostic::new("useless-field", message).at(span));
        }
        let value = self.decoder.string(value, Subject::Variable(name))?;
        // Kept also when its value is bad: the index above already counts on it.
        let value = value.map_or_else(Named::default, |value| self.keep(value));
        self.spec.variables.push(Variable { name: self.spec.texts.keep(name, span), value });
        Ok(())
    }

    /// The `variables` of the workflow.
    fn constants(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.map(event, Subject::Field("variables"))?.is_none() {
            self.names.all_variables = false;
            return Ok(());
        }
        let mut known = FxHashSet::default();
        while let Some((text, span, value)) = self.decoder.next_name(&mut known, "variable")? {
            let name = Named { text: self.spec.texts.keep(&text, span), span };
            match self.decoder.string(value, Subject::Variable(&text))? {
                Some((value, span)) => {
                    let value = Named { text: self.spec.texts.keep(&value, span), span };
                    self.spec.constants.push((name, value));
                }
                None => self.names.all_variables = false,
            }
        }
        Ok(())
    }

    /// What is wrong with the constants themselves is told when everything else is expanded.
    fn learn_constants(&mut self, is_read: bool) {
        let are_known = is_read && self.names.all_variables;
        self.decoder.constants = Constants::new(&self.spec, are_known, &mut Sinks::default());
    }

    /// Goes on with other events.
    fn over<F>(self, events: F) -> Building<'s, F> {
        Building {
            decoder: self.decoder.over(events),
            spec: self.spec,
            names: self.names,
            stdio_span: self.stdio_span,
            known_lists: self.known_lists,
            known_envs: self.known_envs,
            requirement_names: self.requirement_names,
            variable_names: self.variable_names,
            waiting: self.waiting,
        }
    }
}

impl<'s, E: Events<'s>> Decoder<'s, E> {
    pub(super) fn stdio(&mut self, event: &Event<'s>, subject: Subject<'_>) -> Result<Option<Stdio>, Stop> {
        let Some(mut map) = self.map(event, subject)? else { return Ok(None) };
        let mut stdio = Stdio::default();
        while let Some(Found { is, field, subject, value }) = self.next_field::<StdioField>(&mut map)? {
            match is {
                StdioField::Mode => {
                    stdio.mode = self.choice(value, subject, field.is.choices())?.unwrap_or_default();
                }
                StdioField::DeleteOnSuccess => {
                    stdio.delete_on_success = self.boolean(value, subject)?.unwrap_or_default();
                }
            }
        }
        Ok(Some(stdio))
    }

    /// What `{name}` can hold.
    /// The next new name in a map of parameters or variables, where it stands, and the event that begins its value.
    pub(super) fn next_name(
        &mut self,
        known: &mut FxHashSet<Cow<'s, str>>,
        what: &str,
    ) -> Result<Option<(Cow<'s, str>, Span, Event<'s>)>, Stop> {
        loop {
            let key = self.next()?;
            let Kind::Key { text, merged } = key.kind else { return Ok(None) };
            let value = self.next()?;
            if known.insert(text.clone()) {
                self.check_identifier(&text, what, key.span);
                return Ok(Some((text, key.span, value)));
            }
            if !merged {
                self.given_twice(format_args!("{what} `{text}`"), key.span);
            }
            self.skip(&value)?;
        }
    }

    fn check_identifier(&mut self, name: &str, what: &str, span: Span) {
        if !template::is_name(name) {
            let message = format!("`{name}` cannot be the name of a {what}");
            self.sink.push(Diagnostic::new("parameter-name", message).at(span).help(IDENTIFIER_HELP));
        }
    }

    fn given_twice(&mut self, subject: impl fmt::Display, span: Span) {
        self.sink.push(Diagnostic::new("duplicate-field", format!("{subject} is given twice")).at(span));
    }
}

const IDENTIFIER_HELP: &str = "use letters, digits and `_`, and begin with no digit";
