//! The workflow's own texts with its variables filled in, and what its actions wait for.

use super::things::for_each_string;
use super::{NONE, Resolver, Sort, duplicate};
use crate::diagnostic::Diagnostic;
use crate::expand::{Place, render};
use crate::model::{ActionSpec, Named};
use crate::source::Span;
use crate::template::Template;
use windlass_types::settings::{Action, FailureHandler, Settings, SlurmScheduler};

/// What the workflow says outside its jobs, files and user data, filled in.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkflowTexts {
    pub(crate) name: String,
    pub(crate) user: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) settings: Settings,
    pub(crate) failure_handlers: Vec<FailureHandler>,
    pub(crate) schedulers: Vec<SlurmScheduler>,
}

/// An action and the numbers of the jobs that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAction {
    pub action: Action,
    /// Sorted, each once.
    pub jobs: Vec<u32>,
}

impl Resolver<'_, '_> {
    pub(super) fn workflow_texts(&mut self) {
        let spec = self.spec;
        let text = |this: &mut Self, text: crate::text::Text| {
            let written = spec.texts.get(text);
            this.filled(written, Place::of(&spec.texts, Named { text, span: Span::default() }))
        };
        let whole = Place::near(Span::default());
        let env = spec.variables[spec.env.range()].iter();
        self.done.texts = WorkflowTexts {
            name: text(self, spec.name),
            user: spec.user.map(|user| text(self, user)),
            description: spec.description.map(|description| text(self, description)),
            env: env.map(|(name, value)| (name.clone(), self.filled(value, whole))).collect(),
            settings: self.settings(),
            failure_handlers: self.failure_handlers(),
            schedulers: self.schedulers(),
        };
    }

    /// A text with the variables of the workflow filled in.
    fn filled(&mut self, text: &str, place: Place<'_, '_>) -> String {
        let Some(template) = self.compile(text, place, None) else { return text.to_owned() };
        let mut filled = String::new();
        render(&template, None, 0, &mut filled);
        filled
    }

    fn fill(&mut self, text: &mut String, span: Span) {
        if text.contains('{') {
            *text = self.filled(text, Place::near(span));
        }
    }

    fn settings(&mut self) -> Settings {
        let mut settings = self.spec.settings.clone();
        let anywhere = Span::default();
        settings.project.iter_mut().for_each(|project| self.fill(project, anywhere));
        settings.access_groups.iter_mut().for_each(|group| self.fill(group, anywhere));
        for value in settings.metadata.values_mut().chain(settings.slurm_defaults.values_mut()) {
            for_each_string(value, &mut |text| self.fill(text, anywhere));
        }
        settings
    }

    fn failure_handlers(&mut self) -> Vec<FailureHandler> {
        let mut handlers = Vec::new();
        for (position, (handler, span)) in self.spec.failure_handlers.iter().enumerate() {
            let same = |(other, _): &&(FailureHandler, Span)| other.name == handler.name;
            if let Some((_, first)) = self.spec.failure_handlers[..position].iter().find(same) {
                self.sinks.errors.push(duplicate("failure handler", &handler.name, *span, *first));
            }
            let mut handler = handler.clone();
            let scripts = handler.rules.iter_mut().filter_map(|rule| rule.recovery_script.as_mut());
            scripts.for_each(|script| self.fill(script, *span));
            handlers.push(handler);
        }
        handlers
    }

    fn schedulers(&mut self) -> Vec<SlurmScheduler> {
        let mut schedulers = Vec::new();
        for (position, (scheduler, span)) in self.spec.schedulers.iter().enumerate() {
            let same = |(other, _): &&(SlurmScheduler, Span)| other.name == scheduler.name;
            if let Some((_, first)) = self.spec.schedulers[..position].iter().find(same) {
                self.sinks.errors.push(duplicate("scheduler", &scheduler.name, *span, *first));
            }
            let mut scheduler = scheduler.clone();
            let SlurmScheduler { account, gres, mem, partition, qos, tmp, walltime, extra, .. } =
                &mut scheduler;
            let optional = [gres, mem, partition, qos, tmp, extra].into_iter().flatten();
            optional.chain([account, walltime]).for_each(|text| self.fill(text, *span));
            schedulers.push(scheduler);
        }
        schedulers
    }

    pub(super) fn actions(&mut self) {
        let spec = self.spec;
        for action in &spec.actions {
            let jobs = self.action_jobs(action);
            let mut resolved = action.action.clone();
            if let Some(scheduler) = action.scheduler {
                resolved.scheduler = Some(self.action_scheduler(scheduler));
            }
            let commands = spec.names[action.commands.range()].iter();
            resolved.commands = commands
                .map(|command| self.filled(spec.texts.get(command.text), Place::of(&spec.texts, *command)))
                .collect();
            self.done.actions.push(ResolvedAction { action: resolved, jobs });
        }
    }

    fn action_scheduler(&mut self, named: Named) -> String {
        let spec = self.spec;
        let name = self.filled(spec.texts.get(named.text), Place::of(&spec.texts, named));
        let is_known = spec.schedulers.iter().any(|(scheduler, _)| scheduler.name == name);
        if !is_known && self.read.all_schedulers {
            let known = spec.schedulers.iter().map(|(scheduler, _)| scheduler.name.as_str());
            let nearest = self.suggester.nearest(&name, known);
            let message = format!("no scheduler is named `{name}`");
            self.sinks
                .errors
                .push(Diagnostic::new("unknown-scheduler", message).at(named.span).suggest(nearest));
        }
        name
    }

    fn action_jobs(&mut self, action: &ActionSpec) -> Vec<u32> {
        let spec = self.spec;
        let mut jobs = Vec::new();
        for name in &spec.names[action.jobs.range()] {
            let text = self.filled(spec.texts.get(name.text), Place::of(&spec.texts, *name));
            jobs.extend(self.find(Sort::Jobs, &text, name.span, None));
        }
        for pattern in &spec.names[action.job_name_regexes.range()] {
            let template = self.compile_named(*pattern, None);
            let text = template.as_ref().and_then(Template::constant).unwrap_or(spec.texts.get(pattern.text));
            let list = self.matching(Sort::Jobs, text, pattern.span, None).unwrap_or(NONE);
            if list != NONE {
                jobs.extend_from_slice(self.done.relations.shared(list));
            }
        }
        jobs.sort_unstable();
        jobs.dedup();
        let names_some = !action.jobs.is_empty() || !action.job_name_regexes.is_empty();
        if action.action.trigger_type.is_about_jobs() && !names_some {
            let message = "this action waits for jobs but names none";
            let help = "give it `jobs` or `job_name_regexes`";
            self.sinks.errors.push(Diagnostic::new("no-jobs", message).at(action.span).help(help));
        }
        jobs
    }
}
