//! The parts of a spec that wait until the whole file is read: requirements, handlers, schedulers, actions, settings.

use super::Subject;
use super::fields::Found;
use super::recording::Recording;
use super::shape::Map;
use super::tables::{
    ACTION, ActionField, DYNAMIC_JOBS, EXECUTION_CONFIG, FAILURE_HANDLER, Part, REQUIREMENTS,
    RESOURCE_MONITOR, RequirementsField, SLURM_SCHEDULER, TRIAGE,
};
use super::workflow::Building;
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Stop};
use crate::model::{ActionSpec, List, RequirementsSpec};
use crate::source::Span;
use serde::de::DeserializeOwned;
use windlass_types::Resources;
use windlass_types::settings::{Action, ActionType, ExecutionConfig, Trigger};

impl<'s> Building<'s, Recording<'s>> {
    pub(super) fn parts(&mut self, waiting: Vec<(Part, Recording<'s>)>) -> Result<(), Stop> {
        let mut srun_mpi = None;
        for (part, recording) in waiting {
            self.decoder.events = recording;
            let event = self.decoder.next()?;
            match part {
                Part::Requirements => self.all_requirements(&event)?,
                Part::FailureHandlers => self.failure_handlers(&event)?,
                Part::RetryBudget => {
                    let subject = Subject::Field("retry_budget");
                    self.spec.settings.retry_budget = self.decoder.retry_budget(event, subject)?;
                }
                Part::SlurmSchedulers => self.schedulers(&event)?,
                Part::Actions => self.actions(&event)?,
                Part::ExecutionConfig => srun_mpi = self.execution_config(&event)?,
                Part::ResourceMonitor => {
                    self.spec.settings.resource_monitor =
                        self.section(&event, "resource_monitor", &RESOURCE_MONITOR)?;
                }
                Part::Triage => self.spec.settings.triage = self.section(&event, "triage", &TRIAGE)?,
                Part::DynamicJobs => {
                    self.spec.settings.dynamic_jobs = self.section(&event, "dynamic_jobs", &DYNAMIC_JOBS)?;
                }
            }
        }
        if let Some(span) = srun_mpi {
            self.check_srun_mpi(span);
        }
        Ok(())
    }
}

impl<'s, E: Events<'s>> Building<'s, E> {
    fn all_requirements(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.list(event, Subject::Field("resource_requirements"))?.is_none() {
            self.names.all_requirements = false;
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            match self.requirements(&item)? {
                Some(requirements) => self.spec.requirements.push(requirements),
                None => self.names.all_requirements = false,
            }
        }
        Ok(())
    }

    /// `None`: it has no name.
    fn requirements(&mut self, event: &Event<'s>) -> Result<Option<RequirementsSpec>, Stop> {
        let subject = Subject::Thing(REQUIREMENTS.what);
        let Some(mut map) = self.decoder.map(event, subject)? else { return Ok(None) };
        let mut name = None;
        let mut resources = Resources::DEFAULT;
        let decoder = &mut self.decoder;
        while let Some(Found { is, field, subject, value }) = decoder.next_field(&mut map)? {
            match is {
                RequirementsField::Name => name = decoder.name(value, subject)?,
                RequirementsField::Cpus => {
                    resources.cpus = decoder.whole(value, subject, field)?.unwrap_or(1);
                }
                RequirementsField::Memory => {
                    resources.memory = decoder.size(value, subject)?.unwrap_or(resources.memory);
                }
                RequirementsField::Gpus => {
                    resources.gpus = decoder.whole(value, subject, field)?.unwrap_or(0);
                }
                RequirementsField::Nodes => {
                    resources.nodes = decoder.whole(value, subject, field)?.unwrap_or(1);
                }
                RequirementsField::Runtime => resources.runtime = decoder.duration(value, subject)?,
            }
        }
        Ok(name.map(|(name, span)| RequirementsSpec { name: name.into_owned(), resources, span }))
    }

    fn failure_handlers(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        match self.named_list(event, "failure_handlers", &FAILURE_HANDLER)? {
            Some(handlers) => {
                self.decoder.look_over_handlers(&handlers);
                self.spec.failure_handlers = handlers;
            }
            None => self.names.all_failure_handlers = false,
        }
        Ok(())
    }

    fn schedulers(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        match self.named_list(event, "slurm_schedulers", &SLURM_SCHEDULER)? {
            Some(schedulers) => self.spec.schedulers = schedulers,
            None => self.names.all_schedulers = false,
        }
        Ok(())
    }

    /// A list of things with a name, each with the place of its name. `None`: not all of them could be read.
    fn named_list<T: DeserializeOwned>(
        &mut self,
        event: &Event<'s>,
        field: &'static str,
        table: &'static Map,
    ) -> Result<Option<Vec<(T, Span)>>, Stop> {
        if self.decoder.list(event, Subject::Field(field))?.is_none() {
            return Ok(None);
        }
        let (mut things, mut is_whole) = (Vec::new(), true);
        while let Some(item) = self.decoder.next_item()? {
            let object = self.decoder.object(&item, Subject::Thing(table.what), table)?;
            let span = object.as_ref().and_then(|object| object.name_span);
            let thing = object.and_then(|object| self.decoder.typed(object));
            match thing.zip(span) {
                Some(thing) => things.push(thing),
                None => is_whole = false,
            }
        }
        Ok(is_whole.then_some(things))
    }

    fn section<T: DeserializeOwned>(
        &mut self,
        event: &Event<'s>,
        field: &'static str,
        table: &'static Map,
    ) -> Result<Option<T>, Stop> {
        let object = self.decoder.object(event, Subject::Field(field), table)?;
        if let Some(object) = &object {
            self.decoder.check_object(object);
        }
        Ok(object.and_then(|object| self.decoder.typed(object)))
    }

    /// Returns the place of `srun_mpi`, which is good only together with an action.
    fn execution_config(&mut self, event: &Event<'s>) -> Result<Option<Span>, Stop> {
        let subject = Subject::Field("execution_config");
        let Some(object) = self.decoder.object(event, subject, &EXECUTION_CONFIG)? else { return Ok(None) };
        self.decoder.check_mode(&object);
        let srun_mpi = object.place_of("srun_mpi");
        let stdio = object.place_of("stdio");
        let staggered = object.place_of("staggered_start");
        let config: Option<ExecutionConfig> = self.decoder.typed(object);
        let is_staggered = config.as_ref().is_some_and(|config| config.staggered_start == Some(true));
        if let Some(span) = staggered.filter(|_| is_staggered) {
            self.decoder.has_no_effect("staggered_start", "workers start as soon as they can", span);
        }
        if let Some(second) = stdio {
            match self.stdio_span {
                Some(first) => self.decoder.two_stdios(first, second),
                None => self.spec.stdio = config.as_ref().and_then(|config| config.stdio).unwrap_or_default(),
            }
        }
        self.spec.settings.execution_config = config;
        Ok(srun_mpi)
    }

    fn actions(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        if self.decoder.list(event, Subject::Field("actions"))?.is_none() {
            return Ok(());
        }
        while let Some(item) = self.decoder.next_item()? {
            let action = self.action(&item)?;
            self.spec.actions.extend(action);
        }
        Ok(())
    }

    fn action(&mut self, event: &Event<'s>) -> Result<Option<ActionSpec>, Stop> {
        let Some(mut map) = self.decoder.map(event, Subject::Thing(ACTION.what))? else { return Ok(None) };
        let (mut trigger, mut kind) = (None::<Trigger>, None::<ActionType>);
        let mut spec = ActionSpec {
            action: Action {
                trigger_type: Trigger::OnWorkflowStart,
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
            jobs: List::default(),
            job_name_regexes: List::default(),
            scheduler: None,
            commands: List::default(),
        };
        let problems = self.decoder.sink.pushes();
        while let Some(Found { is, field, subject, value }) = self.decoder.next_field(&mut map)? {
            let action = &mut spec.action;
            match is {
                ActionField::Trigger => trigger = self.decoder.choice(value, subject, field.is.choices())?,
                ActionField::Type => kind = self.decoder.choice(value, subject, field.is.choices())?,
                ActionField::Jobs => spec.jobs = self.name_list(&value, field.name)?,
                ActionField::JobNameRegexes => spec.job_name_regexes = self.name_list(&value, field.name)?,
                ActionField::Commands => spec.commands = self.name_list(&value, field.name)?,
                ActionField::Scheduler => spec.scheduler = self.text(value, subject)?,
                ActionField::SchedulerType => {
                    let kind = self.decoder.word(value, subject, field.is.choices())?;
                    action.scheduler_type = kind.map(str::to_owned);
                }
                ActionField::NumAllocations => {
                    action.num_allocations = self.decoder.whole(value, subject, field)?;
                }
                ActionField::OneWorkerPerNode => {
                    action.start_one_worker_per_node =
                        self.decoder.boolean(value, subject)?.unwrap_or_default();
                }
                ActionField::MaxParallelJobs => {
                    action.max_parallel_jobs = self.decoder.whole(value, subject, field)?;
                }
                ActionField::Persistent => {
                    action.persistent = self.decoder.boolean(value, subject)?.unwrap_or_default();
                }
            }
        }
        spec.span = map.span;
        spec.action.commands = self.strings(spec.commands);
        spec.action.scheduler = spec.scheduler.map(|name| self.spec.texts.get(name.text).to_owned());
        let Some((trigger_type, action_type)) = trigger.zip(kind) else { return Ok(None) };
        spec.action = Action { trigger_type, action_type, ..spec.action };
        // What could not be read may be just what would be missed.
        if self.decoder.sink.pushes() == problems {
            self.decoder.check_action(&spec, &map);
        }
        Ok(Some(spec))
    }

    /// It starts workers with srun, which only happens where one is wanted on each node.
    fn check_srun_mpi(&mut self, span: Span) {
        if !self.spec.actions.iter().any(|spec| spec.action.start_one_worker_per_node) {
            self.decoder.sink.push(
                Diagnostic::new("useless-field", "no action starts workers that `srun_mpi` could be for")
                    .at(span)
                    .help("give a `schedule_nodes` action `start_one_worker_per_node: true`, or remove it"),
            );
        }
    }
}
