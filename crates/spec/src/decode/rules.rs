//! Fields that need or exclude each other.

use super::fields::OpenMap;
use super::object::Object;
use super::tables::{ACTION, FAILURE_RULE, RESOURCE_MONITOR};
use super::{Decoder, Subject, not};
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Stop};
use crate::model::ActionSpec;
use crate::source::Span;
use windlass_types::settings::ActionType;

/// Fields of `execution_config` that are for one mode.
const DIRECT_ONLY: [&str; 4] =
    ["limit_resources", "termination_signal", "sigterm_lead_seconds", "oom_exit_code"];
const SLURM_ONLY: [&str; 2] = ["srun_termination_signal", "enable_cpu_bind"];

/// Fields of an action that are for some triggers, or for one type.
const OF_JOB_TRIGGERS: [&str; 2] = ["jobs", "job_name_regexes"];
const OF_RUN_COMMANDS: [&str; 1] = ["commands"];
const OF_SCHEDULE_NODES: [&str; 5] =
    ["scheduler", "scheduler_type", "num_allocations", "start_one_worker_per_node", "max_parallel_jobs"];

impl<'s, E: Events<'s>> Decoder<'s, E> {
    /// Labels choose among workers that are there, a scheduler makes workers of its own.
    pub(super) fn labels_and_scheduler(&mut self, labels: Span, scheduler: Span) {
        let (first, second) = (labels.min(scheduler), labels.max(scheduler));
        self.sink.push(
            Diagnostic::new("exclusive-fields", "a job has either `labels` or a `scheduler`, not both")
                .at(second)
                .label(first, "the other one")
                .help("remove one of them"),
        );
    }

    /// Requirements have names, and jobs use the names.
    pub(super) fn requirements_in_place(
        &mut self,
        event: &Event<'s>,
        subject: Subject<'_>,
    ) -> Result<(), Stop> {
        self.sink.push(
            not(subject, "a string", "a map", event.span)
                .help("put the map into `resource_requirements` of the workflow, and its `name` here"),
        );
        self.skip(event)
    }

    /// A field that others act on, and this version does not.
    pub(super) fn has_no_effect(&mut self, field: &str, why: &str, span: Span) {
        let message = format!("`{field}` has no effect: {why}");
        self.warnings.push(Diagnostic::new("useless-field", message).at(span).help("it is kept as it is"));
    }

    pub(super) fn two_stdios(&mut self, first: Span, second: Span) {
        self.sink.push(
            Diagnostic::new(
                "exclusive-fields",
                "`stdio` is given for the workflow and in `execution_config`",
            )
            .at(second)
            .label(first, "the other one")
            .help("keep the one of the workflow"),
        );
    }

    /// A field of another mode would never have an effect.
    pub(super) fn check_mode(&mut self, config: &Object) {
        let mode = config.text("mode");
        if mode.is_none() && config.place_of("mode").is_some() {
            // What it should have been is not known.
            return;
        }
        let (mode, refused, other) = match mode.unwrap_or("direct") {
            "direct" => ("direct", &SLURM_ONLY[..], "slurm"),
            "slurm" => ("slurm", &DIRECT_ONLY[..], "direct"),
            _ => return,
        };
        // Slurm always holds jobs to their limits, so to say so is right.
        let is_so_anyway = |field: &str| field == "limit_resources" && config.is_true(field);
        for field in refused.iter().filter(|field| !is_so_anyway(field)) {
            if let Some(span) = config.place_of(field) {
                let message = format!("`{field}` is for mode `{other}`, and the mode is `{mode}`");
                self.sink.push(
                    Diagnostic::new("wrong-mode", message)
                        .at(span)
                        .help(format!("remove it, or say `mode: {other}` or `mode: auto`")),
                );
            }
        }
    }

    pub(super) fn check_action(&mut self, spec: &ActionSpec, map: &OpenMap) {
        let action = &spec.action;
        let place = |field| map.place_of(&ACTION, field).unwrap_or(spec.span);
        let names_jobs = !spec.jobs.is_empty() || !spec.job_name_regexes.is_empty();
        if action.trigger_type.is_about_jobs() && !names_jobs {
            self.incomplete(
                "this trigger waits for jobs, and none are named",
                place("trigger_type"),
                "name them in `jobs`, or by `job_name_regexes`",
            );
        }
        match action.action_type {
            ActionType::RunCommands if action.commands.is_empty() => self.incomplete(
                "`run_commands` has no commands",
                place("action_type"),
                "list them in `commands`",
            ),
            ActionType::ScheduleNodes if spec.scheduler.is_none() && !is_local(spec) => self.incomplete(
                "`schedule_nodes` has no scheduler",
                place("action_type"),
                "name one of `slurm_schedulers` in `scheduler`",
            ),
            ActionType::RunCommands | ActionType::ScheduleNodes => {}
        }
        self.look_over_action(spec, map);
    }

    /// Fields of an action that nobody will look at.
    fn look_over_action(&mut self, spec: &ActionSpec, map: &OpenMap) {
        let of_jobs: &[&str] = if spec.action.trigger_type.is_about_jobs() { &[] } else { &OF_JOB_TRIGGERS };
        let of_type: &[&str] = match spec.action.action_type {
            ActionType::RunCommands => &OF_SCHEDULE_NODES,
            ActionType::ScheduleNodes => &OF_RUN_COMMANDS,
        };
        let fields = of_jobs
            .iter()
            .map(|field| (*field, "trigger"))
            .chain(of_type.iter().map(|field| (*field, "type")));
        for (field, other) in fields {
            if let Some(span) = map.place_of(&ACTION, field) {
                let message = format!("`{field}` has no effect: it belongs to another {other} of action");
                self.warnings.push(Diagnostic::new("useless-field", message).at(span));
            }
        }
        let is_for_slurm = spec.action.action_type == ActionType::ScheduleNodes && !is_local(spec);
        if is_for_slurm && spec.action.trigger_type.is_about_workers() {
            let message = "`schedule_nodes` has no effect with this trigger: who asks Slurm is no worker";
            self.warnings.push(
                Diagnostic::new("useless-field", message)
                    .at(map.place_of(&ACTION, "trigger_type").unwrap_or(spec.span))
                    .help("ask for allocations `on_workflow_start`, or when jobs are ready or complete"),
            );
        }
    }

    /// What stands within another map, and is decoded by its table.
    pub(super) fn check_object(&mut self, object: &Object) {
        if object.is(&FAILURE_RULE)
            && let Some(rule) = object.read()
        {
            self.check_failure_rule(&rule, object);
        }
        if let Some(span) = object.place_of("metrics").filter(|_| object.is(&RESOURCE_MONITOR)) {
            let message = "`metrics` has no effect: CPU and memory are always measured";
            self.warnings.push(Diagnostic::new("useless-field", message).at(span));
        }
    }

    fn incomplete(&mut self, message: &str, span: Span, help: &str) {
        self.sink.push(Diagnostic::new("incomplete-action", message).at(span).help(help));
    }
}

fn is_local(spec: &ActionSpec) -> bool {
    spec.action.scheduler_type.as_deref() == Some("local")
}
