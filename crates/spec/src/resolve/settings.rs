//! The workflow's own texts with its variables filled in, and what its actions wait for.

use super::things::{StringPlaces, for_each_string};
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
        let env = spec.variables[spec.env.range()].iter();
        self.done.texts = WorkflowTexts {
            name: self.filled_in(spec.name),
            user: spec.user.map(|user| self.filled_in(user)),
            description: spec.description.map(|description| self.filled_in(description)),
            env: env
                .map(|variable| (spec.texts.get(variable.name).to_owned(), self.filled_in(variable.value)))
                .collect(),
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

    fn filled_in(&mut self, named: Named) -> String {
        let texts = &self.spec.texts;
        self.filled(texts.get(named.text), Place::of(texts, named))
    }

    fn fill(&mut self, text: &mut String, span: Span) {
        if text.contains('{') {
            *text = self.filled(text, Place::near(span));
        }
    }

    fn settings(&mut self) -> Settings {
        let spec = self.spec;
        let mut settings = spec.settings.clone();
        settings.project = spec.project.map(|project| self.filled_in(project));
        let groups = spec.names[spec.access_groups.range()].iter();
        settings.access_groups = groups.map(|group| self.filled_in(*group)).collect();
        settings.limits = spec.limits.iter().map(|limit| (limit.name.clone(), limit.most)).collect();
        let places = StringPlaces::new(&spec.texts, &spec.settings_strings, Span::default());
        for value in settings.metadata.values_mut().chain(settings.slurm_defaults.values_mut()) {
            for_each_string(value, &mut |text| {
                if text.contains('{') {
                    *text = self.filled(text, places.of(text));
                }
            });
        }
        settings
    }

    fn failure_handlers(&mut self) -> Vec<FailureHandler> {
        let defined = &self.spec.failure_handlers;
        let name_of = |number: u32| defined[number as usize].0.name.as_str();
        let mut handlers = Vec::new();
        for (number, (handler, span)) in (0..).zip(defined) {
            if let Some(first) = self.handler_index.insert(&handler.name, number, name_of) {
                let first = defined[first as usize].1;
                self.sinks.errors.push(duplicate("failure handler", &handler.name, *span, first));
            }
            let mut handler = handler.clone();
            let scripts = handler.rules.iter_mut().filter_map(|rule| rule.recovery_script.as_mut());
            scripts.for_each(|script| self.fill(script, *span));
            handlers.push(handler);
        }
        handlers
    }

    fn schedulers(&mut self) -> Vec<SlurmScheduler> {
        let defined = &self.spec.schedulers;
        let name_of = |number: u32| defined[number as usize].0.name.as_str();
        let mut schedulers = Vec::new();
        for (number, (scheduler, span)) in (0..).zip(defined) {
            if let Some(first) = self.scheduler_index.insert(&scheduler.name, number, name_of) {
                let first = defined[first as usize].1;
                self.sinks.errors.push(duplicate("scheduler", &scheduler.name, *span, first));
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
            resolved.commands = commands.map(|command| self.filled_in(*command)).collect();
            self.done.actions.push(ResolvedAction { action: resolved, jobs });
        }
    }

    fn action_scheduler(&mut self, named: Named) -> String {
        let name = self.filled_in(named);
        self.find_scheduler(&name, named.span, "");
        name
    }

    fn action_jobs(&mut self, action: &ActionSpec) -> Vec<u32> {
        let spec = self.spec;
        let mut jobs = Vec::new();
        for name in &spec.names[action.jobs.range()] {
            let text = self.filled_in(*name);
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
