//! Decodes jobs, files and user data, of which there may be a million.

use super::ValueSubject;
use super::field_tables::SpecField;
use super::fields::FieldEntry;
use super::tables::{FILE, FileField, JOB, JobField, RareJobField, SweepField, USER_DATA, UserDataField};
use super::workflow::SpecBuilder;
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, StopReading};
use crate::model::{
    FileSpec, JobSpec, ListRange, NamedText, ParameterMode, ParameterSweep, RareJobFields, RequirementsRef,
    SweepParameter, UserDataSpec, WrittenParameterValues,
};
use crate::source::SourceSpan;
use rustc_hash::FxHashSet;

impl<'s, E: DocumentEventStream<'s>> SpecBuilder<'s, E> {
    pub(super) fn decode_jobs(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        if self.decoder.open_list(event, ValueSubject::Field("jobs"))?.is_none() {
            self.names.all_jobs = false;
            return Ok(());
        }
        let mut is_empty = true;
        while let Some(item) = self.decoder.next_item()? {
            is_empty = false;
            // A job with other errors is kept, so that references to it are not reported too.
            match self.decode_job(&item)? {
                Some(job) => self.spec.jobs.push(job),
                None => self.names.all_jobs = false,
            }
        }
        if is_empty {
            self.decoder
                .sink
                .push(SpecDiagnostic::new("no-jobs", "the workflow has no jobs").with_span(event.span));
        }
        Ok(())
    }

    pub(super) fn decode_files(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        if self.decoder.open_list(event, ValueSubject::Field("files"))?.is_none() {
            self.names.all_files = false;
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            match self.decode_file(&item)? {
                Some(file) => self.spec.files.push(file),
                None => self.names.all_files = false,
            }
        }
        Ok(())
    }

    pub(super) fn decode_all_user_data(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        if self.decoder.open_list(event, ValueSubject::Field("user_data"))?.is_none() {
            self.names.all_user_data = false;
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            match self.decode_user_data(&item)? {
                Some(user_data) => self.spec.user_data.push(user_data),
                None => self.names.all_user_data = false,
            }
        }
        Ok(())
    }

    /// Returns `None` if it has no name.
    fn decode_job(&mut self, event: &DocumentEvent<'s>) -> Result<Option<JobSpec>, StopReading> {
        let Some(mut map) = self.decoder.open_map(event, ValueSubject::Object(JOB.noun))? else {
            return Ok(None);
        };
        let mut name = None;
        let mut job = JobSpec {
            name: NamedText::default(),
            command: NamedText::default(),
            depends_on: ListRange::default(),
            env: ListRange::default(),
            requirements: None,
            priority: 0,
            cancel_on_blocking_job_failure: true,
            input_files: ListRange::default(),
            output_files: ListRange::default(),
            rare: None,
        };
        while let Some(FieldEntry { id: is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            match is {
                JobField::Name => name = self.read_name(value, subject)?,
                JobField::Command => {
                    if let Some(command) = self.read_text(value, subject)? {
                        job.command = command;
                    }
                }
                JobField::DependsOn => job.depends_on = self.read_name_list(&value, field.name)?,
                JobField::InputFiles => job.input_files = self.read_name_list(&value, field.name)?,
                JobField::OutputFiles => job.output_files = self.read_name_list(&value, field.name)?,
                JobField::Env => job.env = self.decode_env(&value)?,
                JobField::Requirements if matches!(value.kind, DocumentEventKind::MapStart(_)) => {
                    self.decoder.report_inline_requirements(&value, subject)?;
                }
                JobField::Requirements => {
                    let name = self.decoder.read_non_empty(value, subject)?;
                    job.requirements = name.map(|(text, span)| self.intern_requirements_ref(&text, span));
                }
                JobField::Priority => {
                    job.priority = self.decoder.read_integer_as(value, subject, field)?.unwrap_or_default();
                }
                JobField::CancelOnBlockingJobFailure => {
                    job.cancel_on_blocking_job_failure =
                        self.decoder.read_boolean(value, subject)?.unwrap_or(true);
                }
                JobField::Rare(is) => {
                    let more = job.rare.get_or_insert_default();
                    self.decode_rare_field(more, FieldEntry { id: is, field, subject, value })?;
                }
            }
        }
        if let Some(labels) = map.key_span(&JOB, "labels")
            && let Some(scheduler) = map.key_span(&JOB, "scheduler")
        {
            self.decoder.report_labels_with_scheduler(labels, scheduler);
        }
        Ok(name.map(|name| JobSpec { name, ..job }))
    }

    /// Rarely used fields.
    fn decode_rare_field(
        &mut self,
        more: &mut RareJobFields,
        found: FieldEntry<'s, RareJobField>,
    ) -> Result<(), StopReading> {
        let FieldEntry { id: is, field, subject, value } = found;
        match is {
            RareJobField::InvocationScript => more.invocation_script = self.read_text(value, subject)?,
            RareJobField::Option(text) => *text(&mut more.options) = self.read_text(value, subject)?,
            RareJobField::SupportsTermination => {
                let span = value.span;
                more.supports_termination = self.decoder.read_boolean(value, subject)?;
                if more.supports_termination == Some(false) {
                    let why = "every job receives a termination signal before it is killed";
                    self.decoder.warn_no_effect("supports_termination: false", why, span);
                }
            }
            RareJobField::FailureHandler => more.failure_handler = self.read_text(value, subject)?,
            RareJobField::Scheduler => more.scheduler = self.read_text(value, subject)?,
            RareJobField::Stdio => more.stdio = self.decoder.decode_stdio(&value, subject)?,
            RareJobField::Sweep(part) => {
                self.decode_sweep_field(&mut more.sweep, part, field, subject, value)?;
            }
            RareJobField::Labels => more.labels = self.read_name_list(&value, field.name)?,
            RareJobField::Sites => more.sites = self.read_name_list(&value, field.name)?,
            RareJobField::Limit => more.limit = self.read_text(value, subject)?,
            RareJobField::DependsOnRegexes => {
                more.depends_on_regexes = self.read_name_list(&value, field.name)?;
            }
            RareJobField::InputFileRegexes => {
                more.input_file_regexes = self.read_name_list(&value, field.name)?;
            }
            RareJobField::OutputFileRegexes => {
                more.output_file_regexes = self.read_name_list(&value, field.name)?;
            }
            RareJobField::InputUserData => more.input_user_data = self.read_name_list(&value, field.name)?,
            RareJobField::InputUserDataRegexes => {
                more.input_user_data_regexes = self.read_name_list(&value, field.name)?;
            }
            RareJobField::OutputUserData => {
                more.output_user_data = self.read_name_list(&value, field.name)?;
            }
            RareJobField::OutputUserDataRegexes => {
                more.output_user_data_regexes = self.read_name_list(&value, field.name)?;
            }
        }
        Ok(())
    }

    fn intern_requirements_ref(&mut self, name: &str, span: SourceSpan) -> RequirementsRef {
        let names = &mut self.spec.requirement_names;
        let new = names.len() as u32;
        let known = self.requirement_names.insert(name, new, |known| &names[known as usize]);
        if known.is_none() {
            names.push(name.into());
        }
        RequirementsRef { name: known.unwrap_or(new), span }
    }

    /// Returns `None` if it has no name.
    fn decode_file(&mut self, event: &DocumentEvent<'s>) -> Result<Option<FileSpec>, StopReading> {
        let Some(mut map) = self.decoder.open_map(event, ValueSubject::Object(FILE.noun))? else {
            return Ok(None);
        };
        let mut name = None;
        let (path, sweep) = (NamedText::default(), ParameterSweep::default());
        let mut file = FileSpec { name: NamedText::default(), path, identifier: None, st_mtime: None, sweep };
        while let Some(FieldEntry { id: is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            match is {
                FileField::Name => name = self.read_name(value, subject)?,
                FileField::Path => file.path = self.read_text(value, subject)?.unwrap_or_default(),
                FileField::Identifier => file.identifier = self.read_text(value, subject)?,
                FileField::Mtime => {
                    file.st_mtime =
                        self.decoder.read_number(value, subject, field.field_type.number_range())?;
                }
                FileField::Sweep(part) => {
                    self.decode_sweep_field(&mut file.sweep, part, field, subject, value)?;
                }
            }
        }
        Ok(name.map(|name| FileSpec { name, ..file }))
    }

    /// Returns `None` if it has no name.
    fn decode_user_data(&mut self, event: &DocumentEvent<'s>) -> Result<Option<UserDataSpec>, StopReading> {
        let Some(mut map) = self.decoder.open_map(event, ValueSubject::Object(USER_DATA.noun))? else {
            return Ok(None);
        };
        let mut name = None;
        let mut entry = UserDataSpec {
            name: NamedText::default(),
            data: None,
            data_span: SourceSpan::default(),
            strings: ListRange::default(),
            is_ephemeral: false,
            sweep: ParameterSweep::default(),
        };
        while let Some(FieldEntry { id: is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            match is {
                UserDataField::Name => name = self.read_name(value, subject)?,
                UserDataField::Data => {
                    entry.data_span = value.span;
                    entry.data = self.decoder.decode_json(value)?;
                    entry.strings = self.take_braced_strings();
                }
                UserDataField::IsEphemeral => {
                    entry.is_ephemeral = self.decoder.read_boolean(value, subject)?.unwrap_or_default();
                }
                UserDataField::Sweep(part) => {
                    self.decode_sweep_field(&mut entry.sweep, part, field, subject, value)?;
                }
            }
        }
        Ok(name.map(|name| UserDataSpec { name, ..entry }))
    }

    fn decode_sweep_field(
        &mut self,
        sweep: &mut ParameterSweep,
        part: SweepField,
        field: &'static SpecField,
        subject: ValueSubject<'_>,
        value: DocumentEvent<'s>,
    ) -> Result<(), StopReading> {
        let span = value.span;
        let problems = self.decoder.sink.pushes();
        match part {
            SweepField::Parameters => {
                sweep.parameters = self.decode_parameters(&value, subject)?.unwrap_or_default();
            }
            SweepField::Mode => {
                let mode =
                    self.decoder.read_choice::<ParameterMode>(value, subject, field.field_type.choices())?;
                sweep.mode = mode.map(|mode| (mode, span));
            }
            SweepField::UseParameters => sweep.use_parameters = self.read_name_list(&value, field.name)?,
            SweepField::ParametersFile => sweep.parameters_file = self.read_text(value, subject)?,
            SweepField::UseParametersFile => {
                sweep.use_parameters_file =
                    self.decoder.read_boolean(value, subject)?.map(|uses| (uses, span));
            }
        }
        sweep.is_broken |= self.decoder.sink.pushes() > problems;
        Ok(())
    }

    /// Returns `None` if part of it could not be read.
    pub(super) fn decode_parameters(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<Vec<SweepParameter>>, StopReading> {
        if self.decoder.open_map(event, subject)?.is_none() {
            return Ok(None);
        }
        let mut parameters: Vec<SweepParameter> = Vec::new();
        let mut known = FxHashSet::default();
        let mut is_whole = true;
        while let Some((text, span, value)) = self.decoder.next_name(&mut known, "parameter")? {
            let name = NamedText { text: self.spec.texts.intern(&text, span), span };
            match self.decode_parameter_values(value, ValueSubject::Parameter(&text))? {
                Some(values) => parameters.push(SweepParameter { name, values }),
                None => is_whole = false,
            }
        }
        Ok(is_whole.then_some(parameters))
    }

    fn decode_parameter_values(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<WrittenParameterValues>, StopReading> {
        if !matches!(event.kind, DocumentEventKind::SeqStart(_)) {
            let value = self.decode_parameter_value(event, subject, "a value or a list")?;
            return Ok(value.map(|(text, plain)| WrittenParameterValues::Text { text, plain }));
        }
        let mut values = Vec::new();
        let mut is_whole = true;
        while let Some(item) = self.decoder.next_item()? {
            match self.decode_parameter_value(item, subject, "a list of plain values")? {
                Some(value) => values.push(value),
                None => is_whole = false,
            }
        }
        if is_whole && values.is_empty() {
            let diagnostic =
                SpecDiagnostic::new("empty", format!("{subject} has no values")).with_span(event.span);
            self.decoder
                .sink
                .push(diagnostic.with_help("an empty list produces no entries; remove it or add a value"));
            is_whole = false;
        }
        Ok(is_whole.then_some(WrittenParameterValues::List(values)))
    }

    /// A scalar and whether it is unquoted.
    fn decode_parameter_value(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        expected: &str,
    ) -> Result<Option<(NamedText, bool)>, StopReading> {
        let plain = matches!(&event.kind, DocumentEventKind::Scalar(scalar) if scalar.is_plain);
        let value = self.decoder.read_string_as(event, subject, expected)?;
        Ok(value.map(|(text, span)| (NamedText { text: self.spec.texts.intern(&text, span), span }, plain)))
    }
}
