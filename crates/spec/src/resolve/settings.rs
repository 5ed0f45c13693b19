//! Fills the variables into the texts of the workflow, and resolves the jobs of its actions.

use super::files_and_data::{StringPositions, for_each_string};
use super::{EntryKind, NO_LIST, NameResolver, duplicate_name_error};
use crate::diagnostic::SpecDiagnostic;
use crate::expand::{TextPosition, render_template};
use crate::model::{ActionSpec, NamedText};
use crate::source::SourceSpan;
use crate::template::TextTemplate;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowAction, WorkflowSettings};

/// The settings of the workflow outside its jobs, files and user data, with variables filled in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResolvedWorkflowSettings {
    pub(crate) name: String,
    pub(crate) user: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) settings: WorkflowSettings,
    pub(crate) failure_handlers: Vec<FailureHandler>,
    pub(crate) schedulers: Vec<SlurmScheduler>,
}

/// An action and the numbers of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAction {
    pub action: WorkflowAction,
    /// Sorted, without duplicates.
    pub jobs: Vec<u32>,
}

impl NameResolver<'_, '_> {
    pub(super) fn resolve_workflow_texts(&mut self) {
        let spec = self.spec;
        let env = spec.variables[spec.env.range()].iter();
        self.resolved.texts = ResolvedWorkflowSettings {
            name: self.fill_named(spec.name),
            user: spec.user.map(|user| self.fill_named(user)),
            description: spec.description.map(|description| self.fill_named(description)),
            env: env
                .map(|variable| (spec.texts.get(variable.name).to_owned(), self.fill_named(variable.value)))
                .collect(),
            settings: self.resolve_settings(),
            failure_handlers: self.resolve_failure_handlers(),
            schedulers: self.resolve_schedulers(),
        };
    }

    /// Returns a text with the variables of the workflow filled in.
    fn fill_text(&mut self, text: &str, place: TextPosition<'_, '_>) -> String {
        let Some(template) = self.compile_text(text, place, None) else { return text.to_owned() };
        let mut filled = String::new();
        render_template(&template, None, 0, &mut filled);
        filled
    }

    fn fill_named(&mut self, named: NamedText) -> String {
        let texts = &self.spec.texts;
        self.fill_text(texts.get(named.text), TextPosition::from_named(texts, named))
    }

    fn fill_in_place(&mut self, text: &mut String, span: SourceSpan) {
        if text.contains('{') {
            *text = self.fill_text(text, TextPosition::from_span(span));
        }
    }

    fn resolve_settings(&mut self) -> WorkflowSettings {
        let spec = self.spec;
        let mut settings = spec.settings.clone();
        settings.project = spec.project.map(|project| self.fill_named(project));
        let groups = spec.names[spec.access_groups.range()].iter();
        settings.access_groups = groups.map(|group| self.fill_named(*group)).collect();
        settings.limits = spec.limits.iter().map(|limit| (limit.name.clone(), limit.max_running)).collect();
        let places = StringPositions::new(&spec.texts, &spec.settings_strings, SourceSpan::default());
        for value in settings.metadata.values_mut().chain(settings.slurm_defaults.values_mut()) {
            for_each_string(value, &mut |text| {
                if text.contains('{') {
                    *text = self.fill_text(text, places.find_position(text));
                }
            });
        }
        settings
    }

    fn resolve_failure_handlers(&mut self) -> Vec<FailureHandler> {
        let defined = &self.spec.failure_handlers;
        let name_of = |number: u32| defined[number as usize].0.name.as_str();
        let mut handlers = Vec::new();
        for (number, (handler, span)) in (0..).zip(defined) {
            if let Some(first) = self.handler_index.insert(&handler.name, number, name_of) {
                let first = defined[first as usize].1;
                self.sinks.errors.push(duplicate_name_error("failure handler", &handler.name, *span, first));
            }
            let mut handler = handler.clone();
            let scripts = handler.rules.iter_mut().filter_map(|rule| rule.recovery_script.as_mut());
            scripts.for_each(|script| self.fill_in_place(script, *span));
            handlers.push(handler);
        }
        handlers
    }

    fn resolve_schedulers(&mut self) -> Vec<SlurmScheduler> {
        let defined = &self.spec.schedulers;
        let name_of = |number: u32| defined[number as usize].0.name.as_str();
        let mut schedulers = Vec::new();
        for (number, (scheduler, span)) in (0..).zip(defined) {
            if let Some(first) = self.scheduler_index.insert(&scheduler.name, number, name_of) {
                let first = defined[first as usize].1;
                self.sinks.errors.push(duplicate_name_error("scheduler", &scheduler.name, *span, first));
            }
            let mut scheduler = scheduler.clone();
            let SlurmScheduler { account, gres, mem, partition, qos, tmp, walltime, extra, .. } =
                &mut scheduler;
            let optional = [gres, mem, partition, qos, tmp, extra].into_iter().flatten();
            optional.chain([account, walltime]).for_each(|text| self.fill_in_place(text, *span));
            schedulers.push(scheduler);
        }
        schedulers
    }

    pub(super) fn resolve_actions(&mut self) {
        let spec = self.spec;
        for action in &spec.actions {
            let jobs = self.resolve_action_jobs(action);
            let mut resolved = action.action.clone();
            if let Some(scheduler) = action.scheduler {
                resolved.scheduler = Some(self.resolve_action_scheduler(scheduler));
            }
            let commands = spec.names[action.commands.range()].iter();
            resolved.commands = commands.map(|command| self.fill_named(*command)).collect();
            self.resolved.actions.push(ResolvedAction { action: resolved, jobs });
        }
    }

    fn resolve_action_scheduler(&mut self, named: NamedText) -> String {
        let name = self.fill_named(named);
        self.find_scheduler(&name, named.span, "");
        name
    }

    fn resolve_action_jobs(&mut self, action: &ActionSpec) -> Vec<u32> {
        let spec = self.spec;
        let mut jobs = Vec::new();
        for name in &spec.names[action.jobs.range()] {
            let text = self.fill_named(*name);
            jobs.extend(self.find_number(EntryKind::Jobs, &text, name.span, None));
        }
        for pattern in &spec.names[action.job_name_regexes.range()] {
            let template = self.compile_named(*pattern, None);
            let text =
                template.as_ref().and_then(TextTemplate::as_constant).unwrap_or(spec.texts.get(pattern.text));
            let list = self.find_matching_list(EntryKind::Jobs, text, pattern.span, None).unwrap_or(NO_LIST);
            if list != NO_LIST {
                jobs.extend_from_slice(self.resolved.relations.shared(list));
            }
        }
        jobs.sort_unstable();
        jobs.dedup();
        let names_some = !action.jobs.is_empty() || !action.job_name_regexes.is_empty();
        if action.action.trigger_type.is_about_jobs() && !names_some {
            let message = "this action waits for jobs, but none are listed";
            let help = "add `jobs` or `job_name_regexes`";
            self.sinks
                .errors
                .push(SpecDiagnostic::new("no-jobs", message).with_span(action.span).with_help(help));
        }
        jobs
    }
}
