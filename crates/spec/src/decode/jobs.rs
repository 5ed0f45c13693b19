//! Jobs, files and user data: what there may be a million of.

use super::Subject;
use super::fields::Found;
use super::shape::Field;
use super::tables::{FILE, FileField, JOB, JobField, MoreField, SweepField, USER_DATA, UserDataField};
use super::workflow::Building;
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Kind, Stop};
use crate::model::{
    FileSpec, JobMore, JobSpec, List, Named, Parameter, ParameterMode, ParameterValues, RequirementsUse,
    Sweep, UserDataSpec,
};
use crate::source::Span;
use rustc_hash::FxHashSet;

impl<'s, E: Events<'s>> Building<'s, E> {
    pub(super) fn jobs(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.list(event, Subject::Field("jobs"))?.is_none() {
            self.names.all_jobs = false;
            return Ok(());
        }
        let mut is_empty = true;
        while let Some(item) = self.decoder.next_item()? {
            is_empty = false;
            // A job that lacks something else stays, so that others that name it are not reported too.
            match self.job(&item)? {
                Some(job) => self.spec.jobs.push(job),
                None => self.names.all_jobs = false,
            }
        }
        if is_empty {
            self.decoder.sink.push(Diagnostic::new("no-jobs", "the workflow has no jobs").at(event.span));
        }
        Ok(())
    }

    pub(super) fn files(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.list(event, Subject::Field("files"))?.is_none() {
            self.names.all_files = false;
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            match self.file(&item)? {
                Some(file) => self.spec.files.push(file),
                None => self.names.all_files = false,
            }
        }
        Ok(())
    }

    pub(super) fn all_user_data(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.list(event, Subject::Field("user_data"))?.is_none() {
            self.names.all_user_data = false;
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            match self.user_data(&item)? {
                Some(user_data) => self.spec.user_data.push(user_data),
                None => self.names.all_user_data = false,
            }
        }
        Ok(())
    }

    /// `None`: it has no name.
    fn job(&mut self, event: &Event<'s>) -> Result<Option<JobSpec>, Stop> {
        let Some(mut map) = self.decoder.map(event, Subject::Thing(JOB.what))? else { return Ok(None) };
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
        while let Some(Found { is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            match is {
                JobField::Name => name = self.name(value, subject)?,
                JobField::Command => {
                    if let Some(command) = self.text(value, subject)? {
                        job.command = command;
                    }
                }
                JobField::DependsOn => job.depends_on = self.name_list(&value, field.name)?,
                JobField::InputFiles => job.input_files = self.name_list(&value, field.name)?,
                JobField::OutputFiles => job.output_files = self.name_list(&value, field.name)?,
                JobField::Env => job.env = self.env(&value)?,
                JobField::Requirements if matches!(value.kind, Kind::MapStart(_)) => {
                    self.decoder.requirements_in_place(&value, subject)?;
                }
                JobField::Requirements => {
                    let name = self.decoder.non_empty(value, subject)?;
                    job.requirements = name.map(|(text, span)| self.requirements_use(&text, span));
                }
                JobField::Priority => {
                    job.priority = self.decoder.whole(value, subject, field)?.unwrap_or_default();
                }
                JobField::CancelOnBlockingJobFailure => {
                    job.cancel_on_blocking_job_failure =
                        self.decoder.boolean(value, subject)?.unwrap_or(true);
                }
                JobField::More(is) => {
                    let more = job.more.get_or_insert_default();
                    self.more(more, Found { is, field, subject, value })?;
                }
            }
        }
        if let Some(labels) = map.place_of(&JOB, "labels")
            && let Some(scheduler) = map.place_of(&JOB, "scheduler")
        {
            self.decoder.labels_and_scheduler(labels, scheduler);
        }
        Ok(name.map(|name| JobSpec { name, ..job }))
    }

    /// The fields that few jobs have.
    fn more(&mut self, more: &mut JobMore, found: Found<'s, MoreField>) -> Result<(), Stop> {
        let Found { is, field, subject, value } = found;
        match is {
            MoreField::InvocationScript => more.invocation_script = self.text(value, subject)?,
            MoreField::SupportsTermination => {
                let span = value.span;
                more.supports_termination = self.decoder.boolean(value, subject)?;
                if more.supports_termination == Some(false) {
                    let why = "every job is asked to end before it is killed";
                    self.decoder.has_no_effect("supports_termination: false", why, span);
                }
            }
            MoreField::FailureHandler => more.failure_handler = self.text(value, subject)?,
            MoreField::Scheduler => more.scheduler = self.text(value, subject)?,
            MoreField::Stdio => more.stdio = self.decoder.stdio(&value, subject)?,
            MoreField::Sweep(part) => self.sweep(&mut more.sweep, part, field, subject, value)?,
            MoreField::Labels => more.labels = self.name_list(&value, field.name)?,
            MoreField::Sites => more.sites = self.name_list(&value, field.name)?,
            MoreField::Limit => more.limit = self.text(value, subject)?,
            MoreField::DependsOnRegexes => more.depends_on_regexes = self.name_list(&value, field.name)?,
            MoreField::InputFileRegexes => more.input_file_regexes = self.name_list(&value, field.name)?,
            MoreField::OutputFileRegexes => more.output_file_regexes = self.name_list(&value, field.name)?,
            MoreField::InputUserData => more.input_user_data = self.name_list(&value, field.name)?,
            MoreField::InputUserDataRegexes => {
                more.input_user_data_regexes = self.name_list(&value, field.name)?;
            }
            MoreField::OutputUserData => more.output_user_data = self.name_list(&value, field.name)?,
            MoreField::OutputUserDataRegexes => {
                more.output_user_data_regexes = self.name_list(&value, field.name)?;
            }
        }
        Ok(())
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

    /// `None`: it has no name.
    fn file(&mut self, event: &Event<'s>) -> Result<Option<FileSpec>, Stop> {
        let Some(mut map) = self.decoder.map(event, Subject::Thing(FILE.what))? else { return Ok(None) };
        let mut name = None;
        let (path, sweep) = (Named::default(), Sweep::default());
        let mut file = FileSpec { name: Named::default(), path, identifier: None, st_mtime: None, sweep };
        while let Some(Found { is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            match is {
                FileField::Name => name = self.name(value, subject)?,
                FileField::Path => file.path = self.text(value, subject)?.unwrap_or_default(),
                FileField::Identifier => file.identifier = self.text(value, subject)?,
                FileField::Mtime => {
                    file.st_mtime = self.decoder.number(value, subject, field.is.bounds())?;
                }
                FileField::Sweep(part) => self.sweep(&mut file.sweep, part, field, subject, value)?,
            }
        }
        Ok(name.map(|name| FileSpec { name, ..file }))
    }

    /// `None`: it has no name.
    fn user_data(&mut self, event: &Event<'s>) -> Result<Option<UserDataSpec>, Stop> {
        let Some(mut map) = self.decoder.map(event, Subject::Thing(USER_DATA.what))? else { return Ok(None) };
        let mut name = None;
        let mut entry = UserDataSpec {
            name: Named::default(),
            data: None,
            data_span: Span::default(),
            strings: List::default(),
            is_ephemeral: false,
            sweep: Sweep::default(),
        };
        while let Some(Found { is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            match is {
                UserDataField::Name => name = self.name(value, subject)?,
                UserDataField::Data => {
                    entry.data_span = value.span;
                    entry.data = self.decoder.json(value)?;
                    entry.strings = self.braced_strings();
                }
                UserDataField::IsEphemeral => {
                    entry.is_ephemeral = self.decoder.boolean(value, subject)?.unwrap_or_default();
                }
                UserDataField::Sweep(part) => self.sweep(&mut entry.sweep, part, field, subject, value)?,
            }
        }
        Ok(name.map(|name| UserDataSpec { name, ..entry }))
    }

    fn sweep(
        &mut self,
        sweep: &mut Sweep,
        part: SweepField,
        field: &'static Field,
        subject: Subject<'_>,
        value: Event<'s>,
    ) -> Result<(), Stop> {
        let span = value.span;
        let problems = self.decoder.sink.pushes();
        match part {
            SweepField::Parameters => {
                sweep.parameters = self.parameters(&value, subject)?.unwrap_or_default();
            }
            SweepField::Mode => {
                let mode = self.decoder.choice::<ParameterMode>(value, subject, field.is.choices())?;
                sweep.mode = mode.map(|mode| (mode, span));
            }
            SweepField::UseParameters => sweep.use_parameters = self.name_list(&value, field.name)?,
            SweepField::ParametersFile => sweep.parameters_file = self.text(value, subject)?,
            SweepField::UseParametersFile => {
                sweep.use_parameters_file = self.decoder.boolean(value, subject)?.map(|uses| (uses, span));
            }
        }
        sweep.is_broken |= self.decoder.sink.pushes() > problems;
        Ok(())
    }

    /// `None`: not all of it could be read.
    pub(super) fn parameters(
        &mut self,
        event: &Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<Vec<Parameter>>, Stop> {
        if self.decoder.map(event, subject)?.is_none() {
            return Ok(None);
        }
        let mut parameters: Vec<Parameter> = Vec::new();
        let mut known = FxHashSet::default();
        let mut is_whole = true;
        while let Some((text, span, value)) = self.decoder.next_name(&mut known, "parameter")? {
            let name = Named { text: self.spec.texts.keep(&text, span), span };
            match self.parameter_values(value, Subject::Parameter(&text))? {
                Some(values) => parameters.push(Parameter { name, values }),
                None => is_whole = false,
            }
        }
        Ok(is_whole.then_some(parameters))
    }

    fn parameter_values(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<ParameterValues>, Stop> {
        if !matches!(event.kind, Kind::SeqStart(_)) {
            let value = self.parameter_value(event, subject, "a value or a list")?;
            return Ok(value.map(|(text, plain)| ParameterValues::Text { text, plain }));
        }
        let mut values = Vec::new();
        let mut is_whole = true;
        while let Some(item) = self.decoder.next_item()? {
            match self.parameter_value(item, subject, "a list of plain values")? {
                Some(value) => values.push(value),
                None => is_whole = false,
            }
        }
        if is_whole && values.is_empty() {
            let diagnostic = Diagnostic::new("empty", format!("{subject} has no values")).at(event.span);
            self.decoder
                .sink
                .push(diagnostic.help("it would make nothing at all; leave it out, or name a value"));
            is_whole = false;
        }
        Ok(is_whole.then_some(ParameterValues::List(values)))
    }

    /// A scalar, and whether it is written without quotes.
    fn parameter_value(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        expected: &str,
    ) -> Result<Option<(Named, bool)>, Stop> {
        let plain = matches!(&event.kind, Kind::Scalar(scalar) if scalar.plain);
        let value = self.decoder.string_as(event, subject, expected)?;
        Ok(value.map(|(text, span)| (Named { text: self.spec.texts.keep(&text, span), span }, plain)))
    }
}
