//! The shape of a workflow spec: which fields there are, and what may stand in each.

use super::fields::{Field, Fields, OpenMap};
use super::{Decoded, Decoder, NamesRead, OpenList, Subject};
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Kind, NodeId, Stop};
use crate::index::NameIndex;
use crate::model::{JobSpec, List, Named, RequirementsSpec, RequirementsUse, Spec};
use crate::source::Span;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::time::Duration;
use windlass_types::work::{RESERVED_PREFIXES, Stdio, StdioMode, is_reserved_name};
use windlass_types::{Bytes, Resources, parse_duration};

#[derive(Clone, Copy)]
enum WorkflowField {
    Name,
    User,
    Description,
    Env,
    Stdio,
    Requirements,
    Jobs,
}

const WORKFLOW: Fields<WorkflowField> = Fields {
    what: "workflow",
    known: &[
        Field::required("name", WorkflowField::Name),
        Field::optional("user", WorkflowField::User),
        Field::optional("description", WorkflowField::Description),
        Field::optional("env", WorkflowField::Env),
        Field::optional("stdio", WorkflowField::Stdio),
        Field::optional("resource_requirements", WorkflowField::Requirements),
        Field::required("jobs", WorkflowField::Jobs),
    ],
};

#[derive(Clone, Copy)]
enum JobField {
    Name,
    Command,
    DependsOn,
    Env,
    Requirements,
    Priority,
    CancelOnBlockingJobFailure,
}

const JOB: Fields<JobField> = Fields {
    what: "job",
    known: &[
        Field::required("name", JobField::Name),
        Field::required("command", JobField::Command),
        Field::optional("depends_on", JobField::DependsOn),
        Field::optional("env", JobField::Env),
        Field::optional("resource_requirements", JobField::Requirements),
        Field::optional("priority", JobField::Priority),
        Field::optional("cancel_on_blocking_job_failure", JobField::CancelOnBlockingJobFailure),
    ],
};

#[derive(Clone, Copy)]
enum RequirementsField {
    Name,
    Cpus,
    Memory,
    Gpus,
    Nodes,
    Runtime,
}

const REQUIREMENTS: Fields<RequirementsField> = Fields {
    what: "resource requirement",
    known: &[
        Field::required("name", RequirementsField::Name),
        Field::required("num_cpus", RequirementsField::Cpus),
        Field::required("memory", RequirementsField::Memory),
        Field::optional("num_gpus", RequirementsField::Gpus),
        Field::optional("num_nodes", RequirementsField::Nodes),
        Field::optional("runtime", RequirementsField::Runtime),
    ],
};

#[derive(Clone, Copy)]
enum StdioField {
    Mode,
    DeleteOnSuccess,
}

const STDIO: Fields<StdioField> = Fields {
    what: "stdio",
    known: &[
        Field::optional("mode", StdioField::Mode),
        Field::optional("delete_on_success", StdioField::DeleteOnSuccess),
    ],
};

const STDIO_MODES: [(&str, StdioMode); 5] = [
    ("separate", StdioMode::Separate),
    ("combined", StdioMode::Combined),
    ("none", StdioMode::None),
    ("no_stdout", StdioMode::NoStdout),
    ("no_stderr", StdioMode::NoStderr),
];

/// Far above any machine, far below what sums of them could overflow.
const MOST: u32 = 1_000_000;

/// The spec as far as it is decoded.
struct Building<'s, E> {
    decoder: Decoder<'s, E>,
    spec: Spec<'s>,
    names: NamesRead,
    /// Lists and maps that came once and may come again through an alias.
    known_lists: FxHashMap<NodeId, List>,
    known_envs: FxHashMap<NodeId, List>,
    requirement_names: NameIndex,
    variable_names: NameIndex,
}

pub(super) fn decode<'s>(source: &'s str, events: impl Events<'s>) -> Decoded<'s> {
    let mut building = Building {
        decoder: Decoder::new(events),
        spec: Spec::new(source),
        names: NamesRead::ALL,
        known_lists: FxHashMap::default(),
        known_envs: FxHashMap::default(),
        requirement_names: NameIndex::default(),
        variable_names: NameIndex::default(),
    };
    let names = building.document().is_ok().then_some(building.names);
    Decoded { spec: building.spec, sink: building.decoder.sink, names }
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
        while let Some((field, value)) = self.decoder.next_field(&mut map, &WORKFLOW)? {
            match field {
                WorkflowField::Name => {
                    if let Some(name) = self.name(value, Subject::Field("name"))? {
                        self.spec.name = name.text;
                    }
                }
                WorkflowField::User => {
                    self.spec.user = self.name(value, Subject::Field("user"))?.map(|name| name.text);
                }
                WorkflowField::Description => {
                    let description = self.decoder.string(value, Subject::Field("description"))?;
                    self.spec.description = description.map(|(text, span)| self.spec.texts.keep(&text, span));
                }
                WorkflowField::Env => self.spec.env = self.env(&value)?,
                WorkflowField::Stdio => self.stdio(&value)?,
                WorkflowField::Requirements => self.all_requirements(&value)?,
                WorkflowField::Jobs => self.jobs(&value)?,
            }
        }
        Ok(())
    }

    fn jobs(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.list(event, Subject::Field("jobs"))?.is_none() {
            self.names.all_jobs = false;
            return Ok(());
        }
        let mut is_empty = true;
        while let Some(item) = self.decoder.next_item()? {
            is_empty = false;
            self.job(&item)?;
        }
        if is_empty {
            self.decoder.sink.push(Diagnostic::new("no-jobs", "the workflow has no jobs").at(event.span));
        }
        Ok(())
    }

    fn job(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        let Some(mut map) = self.decoder.map(event, Subject::Thing("a job"))? else {
            self.names.all_jobs = false;
            return Ok(());
        };
        let mut name = None;
        let mut job = JobSpec {
            name: Named::default(),
            command: Named::default(),
            depends_on: List::default(),
            env: List::default(),
            requirements: None,
            priority: 0,
            cancel_on_blocking_job_failure: true,
            input_files: List::default(),
            output_files: List::default(),
            more: None,
        };
        while let Some((field, value)) = self.decoder.next_field(&mut map, &JOB)? {
            match field {
                JobField::Name => name = self.name(value, Subject::Field("name"))?,
                JobField::Command => {
                    if let Some((text, span)) = self.decoder.non_empty(value, Subject::Field("command"))? {
                        job.command = Named { text: self.spec.texts.keep(&text, span), span };
                    }
                }
                JobField::DependsOn => job.depends_on = self.depends_on(&value)?,
                JobField::Env => job.env = self.env(&value)?,
                JobField::Requirements => {
                    let name = self.decoder.non_empty(value, Subject::Field("resource_requirements"))?;
                    job.requirements = name.map(|(text, span)| self.requirements_use(&text, span));
                }
                JobField::Priority => {
                    let most = i32::MAX.unsigned_abs();
                    let priority = self.decoder.integer(value, Subject::Field("priority"), 0..=most)?;
                    job.priority = priority.map_or(0, u32::cast_signed);
                }
                JobField::CancelOnBlockingJobFailure => {
                    let subject = Subject::Field("cancel_on_blocking_job_failure");
                    job.cancel_on_blocking_job_failure =
                        self.decoder.boolean(value, subject)?.unwrap_or(true);
                }
            }
        }
        // A job that lacks something else stays, so that others that name it are not reported too.
        match name {
            Some(name) => self.spec.jobs.push(JobSpec { name, ..job }),
            None => self.names.all_jobs = false,
        }
        Ok(())
    }

    fn name(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Named>, Stop> {
        let name = self.decoder.non_empty(event, subject)?;
        // Where a name is only used it need not be told again what is wrong with it.
        let is_given_here = !matches!(subject, Subject::ItemOf(_));
        if let Some((text, span)) = &name
            && is_given_here
            && text.contains(char::is_control)
        {
            self.decoder.sink.push(
                Diagnostic::new("control-character", format!("{subject} contains a control character"))
                    .at(*span)
                    .help("it would garble every list that shows it; use printable characters only"),
            );
        }
        Ok(name.map(|(text, span)| Named { text: self.spec.texts.keep(&text, span), span }))
    }

    fn depends_on(&mut self, event: &Event<'s>) -> Result<List, Stop> {
        let Some(OpenList { id }) = self.decoder.list(event, Subject::Field("depends_on"))? else {
            return Ok(List::default());
        };
        if let Some(known) = id.and_then(|id| self.known_lists.get(&id)) {
            self.decoder.skip(event)?;
            return Ok(*known);
        }
        let start = self.spec.names.len() as u32;
        while let Some(item) = self.decoder.next_item()? {
            if let Some(name) = self.name(item, Subject::ItemOf("depends_on"))? {
                self.spec.names.push(name);
            }
        }
        let list = List { start, end: self.spec.names.len() as u32 };
        if let Some(id) = id {
            self.known_lists.insert(id, list);
        }
        Ok(list)
    }

    fn requirements_use(&mut self, name: &str, span: Span) -> RequirementsUse {
        let names = &mut self.spec.requirement_names;
        let new = names.len() as u32;
        let known = self.requirement_names.insert(name, new, |known| &names[known as usize]);
        if known.is_none() {
            names.push(name.into());
        }
        RequirementsUse { name: known.unwrap_or(new), span }
    }

    fn env(&mut self, event: &Event<'s>) -> Result<List, Stop> {
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
        let variables = &mut self.spec.variables;
        let new = variables.len() as u32;
        let known = self.variable_names.insert(name, new, |known| &variables[known as usize].0);
        if known.is_some() {
            if !merged {
                let message = format!("variable `{name}` is given twice");
                self.decoder.sink.push(Diagnostic::new("duplicate-field", message).at(span));
            }
            return self.decoder.skip(&value);
        }
        if !is_variable_name(name) {
            self.decoder.sink.push(
                Diagnostic::new(
                    "variable-name",
                    format!("`{name}` cannot be the name of an environment variable"),
                )
                .at(span)
                .help("use letters, digits and `_`, and begin with no digit"),
            );
        }
        if is_reserved_name(name) {
            let [ours, torcs] = RESERVED_PREFIXES;
            self.decoder.sink.push(
                Diagnostic::new("reserved-name", format!("variable `{name}` is set by Windlass itself"))
                    .at(span)
                    .help(format!("choose a name that does not begin with `{ours}` or `{torcs}`")),
            );
        }
        let text = self.decoder.string(value, Subject::Variable(name))?.map(|(text, _)| text);
        // Kept also when its value is bad: the index above already counts on it.
        self.spec.variables.push((name.to_owned(), text.map_or_else(String::new, Cow::into_owned)));
        Ok(())
    }

    fn all_requirements(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.list(event, Subject::Field("resource_requirements"))?.is_none() {
            self.names.all_requirements = false;
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            self.requirements(&item)?;
        }
        Ok(())
    }

    fn requirements(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        let Some(mut map) = self.decoder.map(event, Subject::Thing("a resource requirement"))? else {
            self.names.all_requirements = false;
            return Ok(());
        };
        let mut name = None;
        let mut resources = Resources::DEFAULT;
        let decoder = &mut self.decoder;
        while let Some((field, value)) = decoder.next_field(&mut map, &REQUIREMENTS)? {
            match field {
                RequirementsField::Name => name = decoder.non_empty(value, Subject::Field("name"))?,
                RequirementsField::Cpus => {
                    resources.cpus =
                        decoder.integer(value, Subject::Field("num_cpus"), 1..=MOST)?.unwrap_or(1);
                }
                RequirementsField::Memory => {
                    if let Some(memory) = decoder.memory(value)? {
                        resources.memory = memory;
                    }
                }
                RequirementsField::Gpus => {
                    resources.gpus =
                        decoder.integer(value, Subject::Field("num_gpus"), 0..=MOST)?.unwrap_or(0);
                }
                RequirementsField::Nodes => {
                    resources.nodes =
                        decoder.integer(value, Subject::Field("num_nodes"), 1..=MOST)?.unwrap_or(1);
                }
                RequirementsField::Runtime => resources.runtime = decoder.runtime(value)?,
            }
        }
        match name {
            Some((name, span)) => {
                self.spec.requirements.push(RequirementsSpec { name: name.into_owned(), resources, span });
            }
            None => self.names.all_requirements = false,
        }
        Ok(())
    }

    fn stdio(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        let Some(mut map) = self.decoder.map(event, Subject::Field("stdio"))? else { return Ok(()) };
        let mut stdio = Stdio::default();
        while let Some((field, value)) = self.decoder.next_field(&mut map, &STDIO)? {
            match field {
                StdioField::Mode => stdio.mode = self.decoder.stdio_mode(value)?.unwrap_or_default(),
                StdioField::DeleteOnSuccess => {
                    let delete = self.decoder.boolean(value, Subject::Field("delete_on_success"))?;
                    stdio.delete_on_success = delete.unwrap_or_default();
                }
            }
        }
        self.spec.stdio = stdio;
        Ok(())
    }
}

/// Values that only a workflow has.
impl<'s, E: Events<'s>> Decoder<'s, E> {
    fn memory(&mut self, event: Event<'s>) -> Result<Option<Bytes>, Stop> {
        let Some((text, span)) = self.string(event, Subject::Field("memory"))? else { return Ok(None) };
        Ok(match text.parse::<Bytes>() {
            Ok(Bytes(0)) => self.refuse_amount("`memory` must be more than nothing".to_owned(), span),
            Ok(bytes) => Some(bytes),
            Err(error) => self.refuse_amount(format!("`memory`: {error}"), span),
        })
    }

    fn runtime(&mut self, event: Event<'s>) -> Result<Option<Duration>, Stop> {
        let Some((text, span)) = self.string(event, Subject::Field("runtime"))? else { return Ok(None) };
        Ok(match parse_duration(&text) {
            Ok(Duration::ZERO) => self.refuse_amount("`runtime` must be more than nothing".to_owned(), span),
            Ok(duration) => Some(duration),
            Err(error) => self.refuse_amount(format!("`runtime`: {error}"), span),
        })
    }

    fn refuse_amount<T>(&mut self, message: String, span: Span) -> Option<T> {
        self.sink.push(Diagnostic::new("bad-amount", message).at(span));
        None
    }

    fn stdio_mode(&mut self, event: Event<'s>) -> Result<Option<StdioMode>, Stop> {
        let Some((text, span)) = self.string(event, Subject::Field("mode"))? else { return Ok(None) };
        if let Some((_, mode)) = STDIO_MODES.iter().find(|(name, _)| *name == text) {
            return Ok(Some(*mode));
        }
        let names = STDIO_MODES.map(|(name, _)| name);
        let diagnostic =
            Diagnostic::new("unknown-value", format!("unknown stdio mode {}", super::shown(&text))).at(span);
        let suggestion = self.suggester.nearest(&text, names);
        self.sink.push(match suggestion {
            Some(_) => diagnostic.suggest(suggestion),
            None => {
                diagnostic.help(format!("the modes are {}", names.map(|name| format!("`{name}`")).join(", ")))
            }
        });
        Ok(None)
    }
}

fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
