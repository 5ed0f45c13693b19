//! Fields that require or exclude each other.

use super::fields::MapDecoder;
use super::object::DecodedObject;
use super::tables::{ACTION, FAILURE_RULE, RESOURCE_MONITOR};
use super::{SpecDecoder, ValueSubject, type_mismatch_error};
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventStream, StopReading};
use crate::model::ActionSpec;
use crate::source::SourceSpan;
use windlass_types::settings::ActionType;

/// Fields of `execution_config` for one mode.
const DIRECT_MODE_FIELDS: [&str; 4] =
    ["limit_resources", "termination_signal", "sigterm_lead_seconds", "oom_exit_code"];
const SLURM_MODE_FIELDS: [&str; 2] = ["srun_termination_signal", "enable_cpu_bind"];

/// Fields of an action for some triggers, or for one type.
const JOB_TRIGGER_FIELDS: [&str; 2] = ["jobs", "job_name_regexes"];
const RUN_COMMANDS_FIELDS: [&str; 1] = ["commands"];
const SCHEDULE_NODES_FIELDS: [&str; 5] =
    ["scheduler", "scheduler_type", "num_allocations", "start_one_worker_per_node", "max_parallel_jobs"];

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    /// Labels select existing workers, a scheduler starts its own workers.
    pub(super) fn report_labels_with_scheduler(&mut self, labels: SourceSpan, scheduler: SourceSpan) {
        let (first, second) = (labels.min(scheduler), labels.max(scheduler));
        self.sink.push(
            SpecDiagnostic::new("exclusive-fields", "a job has either `labels` or a `scheduler`, not both")
                .with_span(second)
                .with_label(first, "the other one")
                .with_help("remove one of them"),
        );
    }

    /// Requirements are named entries, and jobs refer to the names.
    pub(super) fn report_inline_requirements(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<(), StopReading> {
        self.sink.push(
            type_mismatch_error(subject, "a string", "a map", event.span).with_help(
                "move the map to `resource_requirements` of the workflow, and write its `name` here",
            ),
        );
        self.skip_value(event)
    }

    /// Warns about a field that other tools use and this version does not.
    pub(super) fn warn_no_effect(&mut self, field: &str, why: &str, span: SourceSpan) {
        let message = format!("`{field}` has no effect: {why}");
        self.warnings.push(
            SpecDiagnostic::new("useless-field", message).with_span(span).with_help("its value is kept"),
        );
    }

    pub(super) fn report_duplicate_stdio(&mut self, first: SourceSpan, second: SourceSpan) {
        self.sink.push(
            SpecDiagnostic::new(
                "exclusive-fields",
                "`stdio` is set both for the workflow and in `execution_config`",
            )
            .with_span(second)
            .with_label(first, "the other one")
            .with_help("keep the one of the workflow"),
        );
    }

    /// A field of another mode never has an effect.
    pub(super) fn check_mode_fields(&mut self, config: &DecodedObject) {
        let mode = config.text("mode");
        if mode.is_none() && config.key_span("mode").is_some() {
            // The intended mode is not known.
            return;
        }
        let (mode, refused, other) = match mode.unwrap_or("direct") {
            "direct" => ("direct", &SLURM_MODE_FIELDS[..], "slurm"),
            "slurm" => ("slurm", &DIRECT_MODE_FIELDS[..], "direct"),
            _ => return,
        };
        // Slurm always enforces limits, so `true` is correct.
        let is_so_anyway = |field: &str| field == "limit_resources" && config.is_true(field);
        for field in refused.iter().filter(|field| !is_so_anyway(field)) {
            if let Some(span) = config.key_span(field) {
                let message = format!("`{field}` is for mode `{other}`, but the mode is `{mode}`");
                self.sink.push(
                    SpecDiagnostic::new("wrong-mode", message)
                        .with_span(span)
                        .with_help(format!("remove it, or set `mode: {other}` or `mode: auto`")),
                );
            }
        }
    }

    pub(super) fn check_action(&mut self, spec: &ActionSpec, map: &MapDecoder) {
        let action = &spec.action;
        let place = |field| map.key_span(&ACTION, field).unwrap_or(spec.span);
        let names_jobs = !spec.jobs.is_empty() || !spec.job_name_regexes.is_empty();
        if action.trigger_type.is_about_jobs() && !names_jobs {
            self.report_incomplete(
                "this trigger waits for jobs, but none are listed",
                place("trigger_type"),
                "list them in `jobs` or `job_name_regexes`",
            );
        }
        match action.action_type {
            ActionType::RunCommands if action.commands.is_empty() => self.report_incomplete(
                "`run_commands` has no commands",
                place("action_type"),
                "list them in `commands`",
            ),
            ActionType::ScheduleNodes if spec.scheduler.is_none() && !is_local_scheduler(spec) => self
                .report_incomplete(
                    "`schedule_nodes` has no scheduler",
                    place("action_type"),
                    "set `scheduler` to one of `slurm_schedulers`",
                ),
            ActionType::RunCommands | ActionType::ScheduleNodes => {}
        }
        self.warn_unused_action_fields(spec, map);
    }

    /// Fields of an action that have no effect.
    fn warn_unused_action_fields(&mut self, spec: &ActionSpec, map: &MapDecoder) {
        let of_jobs: &[&str] =
            if spec.action.trigger_type.is_about_jobs() { &[] } else { &JOB_TRIGGER_FIELDS };
        let of_type: &[&str] = match spec.action.action_type {
            ActionType::RunCommands => &SCHEDULE_NODES_FIELDS,
            ActionType::ScheduleNodes => &RUN_COMMANDS_FIELDS,
        };
        let fields = of_jobs
            .iter()
            .map(|field| (*field, "trigger"))
            .chain(of_type.iter().map(|field| (*field, "type")));
        for (field, other) in fields {
            if let Some(span) = map.key_span(&ACTION, field) {
                let message = format!("`{field}` has no effect: it belongs to another {other} of action");
                self.warnings.push(SpecDiagnostic::new("useless-field", message).with_span(span));
            }
        }
        let is_for_slurm = spec.action.action_type == ActionType::ScheduleNodes && !is_local_scheduler(spec);
        if is_for_slurm && spec.action.trigger_type.is_about_workers() {
            let message =
                "`schedule_nodes` has no effect with this trigger: workers do not request allocations";
            self.warnings.push(
                SpecDiagnostic::new("useless-field", message)
                    .with_span(map.key_span(&ACTION, "trigger_type").unwrap_or(spec.span))
                    .with_help("use `on_workflow_start`, `on_jobs_ready` or `on_jobs_complete`"),
            );
        }
    }

    /// Nested maps, which are decoded by their tables.
    pub(super) fn check_object(&mut self, object: &DecodedObject) {
        if object.has_table(&FAILURE_RULE)
            && let Some(rule) = object.deserialize_values()
        {
            self.check_failure_rule(&rule, object);
        }
        if let Some(span) = object.key_span("metrics").filter(|_| object.has_table(&RESOURCE_MONITOR)) {
            let message = "`metrics` has no effect: CPU and memory are always measured";
            self.warnings.push(SpecDiagnostic::new("useless-field", message).with_span(span));
        }
    }

    fn report_incomplete(&mut self, message: &str, span: SourceSpan, help: &str) {
        self.sink.push(SpecDiagnostic::new("incomplete-action", message).with_span(span).with_help(help));
    }
}

fn is_local_scheduler(spec: &ActionSpec) -> bool {
    spec.action.scheduler_type.as_deref() == Some("local")
}
