//! The parts of a spec that are decoded after the whole file is read: requirements, handlers, schedulers,
//! actions, settings.

use super::ValueSubject;
use super::field_tables::FieldTable;
use super::fields::FieldEntry;
use super::recording::EventRecording;
use super::tables::{
    ACTION, ActionField, DYNAMIC_JOBS, DeferredSection, EXECUTION_CONFIG, FAILURE_HANDLER, REQUIREMENTS,
    RESOURCE_MONITOR, RequirementsField, SLURM_SCHEDULER, TRIAGE,
};
use super::workflow::SpecBuilder;
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventStream, StopReading};
use crate::model::{ActionSpec, ListRange, RequirementsSpec};
use crate::source::SourceSpan;
use serde::de::DeserializeOwned;
use windlass_types::Resources;
use windlass_types::settings::{
    ActionTrigger, ActionType, ExecutionConfig, NO_STAGGERED_START, WorkflowAction,
};

impl<'s> SpecBuilder<'s, EventRecording<'s>> {
    pub(super) fn decode_deferred_sections(
        &mut self,
        waiting: Vec<(DeferredSection, EventRecording<'s>)>,
    ) -> Result<(), StopReading> {
        let mut srun_mpi = None;
        for (part, recording) in waiting {
            self.decoder.events = recording;
            let event = self.decoder.next_event()?;
            match part {
                DeferredSection::Requirements => self.decode_all_requirements(&event)?,
                DeferredSection::FailureHandlers => self.decode_failure_handlers(&event)?,
                DeferredSection::RetryBudget => {
                    let subject = ValueSubject::Field("retry_budget");
                    self.spec.settings.retry_budget = self.decoder.read_retry_budget(event, subject)?;
                }
                DeferredSection::SlurmSchedulers => self.decode_schedulers(&event)?,
                DeferredSection::Actions => self.decode_actions(&event)?,
                DeferredSection::ExecutionConfig => srun_mpi = self.decode_execution_config(&event)?,
                DeferredSection::ResourceMonitor => {
                    self.spec.settings.resource_monitor =
                        self.decode_section(&event, "resource_monitor", &RESOURCE_MONITOR)?;
                }
                DeferredSection::Triage => {
                    self.spec.settings.triage = self.decode_section(&event, "triage", &TRIAGE)?;
                }
                DeferredSection::DynamicJobs => {
                    self.spec.settings.dynamic_jobs =
                        self.decode_section(&event, "dynamic_jobs", &DYNAMIC_JOBS)?;
                }
            }
        }
        if let Some(span) = srun_mpi {
            self.check_srun_mpi(span);
        }
        Ok(())
    }
}

impl<'s, E: DocumentEventStream<'s>> SpecBuilder<'s, E> {
    fn decode_all_requirements(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        if self.decoder.open_list(event, ValueSubject::Field("resource_requirements"))?.is_none() {
            self.names.all_requirements = false;
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            match self.decode_requirements(&item)? {
                Some(requirements) => self.spec.requirements.push(requirements),
                None => self.names.all_requirements = false,
            }
        }
        Ok(())
    }

    /// Returns `None` if it has no name.
    fn decode_requirements(
        &mut self,
        event: &DocumentEvent<'s>,
    ) -> Result<Option<RequirementsSpec>, StopReading> {
        let subject = ValueSubject::Object(REQUIREMENTS.noun);
        let Some(mut map) = self.decoder.open_map(event, subject)? else { return Ok(None) };
        let mut name = None;
        let mut resources = Resources::DEFAULT;
        let decoder = &mut self.decoder;
        while let Some(FieldEntry { id: is, field, subject, value }) = decoder.next_field(&mut map)? {
            match is {
                RequirementsField::Name => name = decoder.read_name(value, subject)?,
                RequirementsField::Cpus => {
                    resources.cpus = decoder.read_integer_as(value, subject, field)?.unwrap_or(1);
                }
                RequirementsField::Memory => {
                    resources.memory = decoder.read_size(value, subject)?.unwrap_or(resources.memory);
                }
                RequirementsField::Gpus => {
                    resources.gpus = decoder.read_integer_as(value, subject, field)?.unwrap_or(0);
                }
                RequirementsField::Nodes => {
                    resources.nodes = decoder.read_integer_as(value, subject, field)?.unwrap_or(1);
                }
                RequirementsField::Runtime => resources.runtime = decoder.read_duration(value, subject)?,
            }
        }
        Ok(name.map(|(name, span)| RequirementsSpec { name: name.into_owned(), resources, span }))
    }

    fn decode_failure_handlers(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        match self.decode_named_list(event, "failure_handlers", &FAILURE_HANDLER)? {
            Some(handlers) => {
                self.decoder.warn_about_handlers(&handlers);
                self.spec.failure_handlers = handlers;
            }
            None => self.names.all_failure_handlers = false,
        }
        Ok(())
    }

    fn decode_schedulers(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        match self.decode_named_list(event, "slurm_schedulers", &SLURM_SCHEDULER)? {
            Some(schedulers) => self.spec.schedulers = schedulers,
            None => self.names.all_schedulers = false,
        }
        Ok(())
    }

    /// Reads a list of named entries, each with the location of its name. `None` if any of them could not be
    /// read.
    fn decode_named_list<T: DeserializeOwned>(
        &mut self,
        event: &DocumentEvent<'s>,
        field: &'static str,
        table: &'static FieldTable,
    ) -> Result<Option<Vec<(T, SourceSpan)>>, StopReading> {
        if self.decoder.open_list(event, ValueSubject::Field(field))?.is_none() {
            return Ok(None);
        }
        let (mut things, mut is_whole) = (Vec::new(), true);
        while let Some(item) = self.decoder.next_item()? {
            let object = self.decoder.decode_object(&item, ValueSubject::Object(table.noun), table)?;
            let span = object.as_ref().and_then(|object| object.name_span);
            let thing = object.and_then(|object| self.decoder.decode_typed(object));
            match thing.zip(span) {
                Some(thing) => things.push(thing),
                None => is_whole = false,
            }
        }
        Ok(is_whole.then_some(things))
    }

    fn decode_section<T: DeserializeOwned>(
        &mut self,
        event: &DocumentEvent<'s>,
        field: &'static str,
        table: &'static FieldTable,
    ) -> Result<Option<T>, StopReading> {
        let object = self.decoder.decode_object(event, ValueSubject::Field(field), table)?;
        if let Some(object) = &object {
            self.decoder.check_object(object);
        }
        Ok(object.and_then(|object| self.decoder.decode_typed(object)))
    }

    /// Returns the location of `srun_mpi`, which is only valid together with an action.
    fn decode_execution_config(
        &mut self,
        event: &DocumentEvent<'s>,
    ) -> Result<Option<SourceSpan>, StopReading> {
        let subject = ValueSubject::Field("execution_config");
        let Some(object) = self.decoder.decode_object(event, subject, &EXECUTION_CONFIG)? else {
            return Ok(None);
        };
        self.decoder.check_mode_fields(&object);
        let srun_mpi = object.key_span("srun_mpi");
        let stdio = object.key_span("stdio");
        let staggered = object.key_span("staggered_start");
        let config: Option<ExecutionConfig> = self.decoder.decode_typed(object);
        let is_staggered = config.as_ref().is_some_and(|config| config.staggered_start == Some(true));
        if let Some(span) = staggered.filter(|_| is_staggered) {
            self.decoder.warn_no_effect("staggered_start", NO_STAGGERED_START, span);
        }
        if let Some(second) = stdio {
            match self.stdio_span {
                Some(first) => self.decoder.report_duplicate_stdio(first, second),
                None => self.spec.stdio = config.as_ref().and_then(|config| config.stdio).unwrap_or_default(),
            }
        }
        self.spec.settings.execution_config = config;
        Ok(srun_mpi)
    }

    fn decode_actions(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        if self.decoder.open_list(event, ValueSubject::Field("actions"))?.is_none() {
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            let action = self.decode_action(&item)?;
            self.spec.actions.extend(action);
        }
        Ok(())
    }

    fn decode_action(&mut self, event: &DocumentEvent<'s>) -> Result<Option<ActionSpec>, StopReading> {
        let Some(mut map) = self.decoder.open_map(event, ValueSubject::Object(ACTION.noun))? else {
            return Ok(None);
        };
        let (mut trigger, mut kind) = (None::<ActionTrigger>, None::<ActionType>);
        let mut spec = ActionSpec {
            action: WorkflowAction {
                trigger_type: ActionTrigger::OnWorkflowStart,
                action_type: ActionType::RunCommands,
                commands: Vec::new(),
                scheduler: None,
                scheduler_type: None,
                num_allocations: None,
                start_one_worker_per_node: false,
                max_parallel_jobs: None,
                persistent: false,
            },
            span: event.span,
            jobs: ListRange::default(),
            job_name_regexes: ListRange::default(),
            scheduler: None,
            commands: ListRange::default(),
        };
        let problems = self.decoder.sink.pushes();
        while let Some(FieldEntry { id: is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            let action = &mut spec.action;
            match is {
                ActionField::Trigger => {
                    trigger = self.decoder.read_choice(value, subject, field.field_type.choices())?;
                }
                ActionField::Type => {
                    kind = self.decoder.read_choice(value, subject, field.field_type.choices())?;
                }
                ActionField::Jobs => spec.jobs = self.read_name_list(&value, field.name)?,
                ActionField::JobNameRegexes => {
                    spec.job_name_regexes = self.read_name_list(&value, field.name)?;
                }
                ActionField::Commands => spec.commands = self.read_name_list(&value, field.name)?,
                ActionField::Scheduler => spec.scheduler = self.read_text(value, subject)?,
                ActionField::SchedulerType => {
                    let kind = self.decoder.read_keyword(value, subject, field.field_type.choices())?;
                    action.scheduler_type = kind.map(str::to_owned);
                }
                ActionField::NumAllocations => {
                    action.num_allocations = self.decoder.read_integer_as(value, subject, field)?;
                }
                ActionField::OneWorkerPerNode => {
                    action.start_one_worker_per_node =
                        self.decoder.read_boolean(value, subject)?.unwrap_or_default();
                }
                ActionField::MaxParallelJobs => {
                    action.max_parallel_jobs = self.decoder.read_integer_as(value, subject, field)?;
                }
                ActionField::Persistent => {
                    action.persistent = self.decoder.read_boolean(value, subject)?.unwrap_or_default();
                }
            }
        }
        spec.span = map.span;
        spec.action.commands = self.list_strings(spec.commands);
        spec.action.scheduler = spec.scheduler.map(|name| self.spec.texts.get(name.text).to_owned());
        let Some((trigger_type, action_type)) = trigger.zip(kind) else { return Ok(None) };
        spec.action = WorkflowAction { trigger_type, action_type, ..spec.action };
        // The unreadable part may be the one that would be reported as missing.
        if self.decoder.sink.pushes() == problems {
            self.decoder.check_action(&spec, &map);
        }
        Ok(Some(spec))
    }

    /// `srun_mpi` applies to workers started by srun, which happens only with one worker per node.
    fn check_srun_mpi(&mut self, span: SourceSpan) {
        if !self.spec.actions.iter().any(|spec| spec.action.start_one_worker_per_node) {
            self.decoder.sink.push(
                SpecDiagnostic::new("useless-field", "`srun_mpi` has no effect: no action starts one worker per node")
                    .with_span(span)
                    .with_help(
                        "set `start_one_worker_per_node: true` in a `schedule_nodes` action, or remove `srun_mpi`",
                    ),
            );
        }
    }
}
