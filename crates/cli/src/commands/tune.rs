//! `windlass resources tune`: requirements corrected from measurements, as a patch for the spec file.

use crate::args::resources::TuneArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind, CliExit};
use crate::output_files;
use crate::spec_file::{self, SpecFile};
use crate::ui::diff;
use crate::ui::text;
use crate::{object_selection, spec_discovery};
use serde::Serialize;
use std::borrow::Cow;
use windlass_core::sizing::{GroupSizing, ResourceAmount, ResourceChange};
use windlass_insight::job_groups::{self, JobGroupFilter, JobGroupUsage};
use windlass_spec::patch::{NewFieldValue, SpecEdit, SpecPatchError, set_values};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::WorkflowId;

const NOT_APPLIED_NOTE: &str = "nothing changed; use --apply to write the file";

pub(crate) fn run(ctx: &CliContext, args: &TuneArgs) -> Result<CliExit, CliError> {
    let named = spec_discovery::resolve_spec_path(args.spec.as_ref(), &ctx.cwd)?;
    let file = SpecFile::read(&ctx.cwd, &named)?;
    let Some(path) = file.path() else {
        return Err(CliError::user("a spec from stdin cannot be changed").with_hint("give the spec file"));
    };
    let store = ctx.open_read()?;
    let row = reference_workflow(ctx, &*store, &file, args)?;
    let sizings = compute_sizings(&*store, &row, &file, args)?;
    if sizings.is_empty() {
        return Err(no_measurements_error(&*store, &row, &file));
    }
    let tuned = TunedSpec::new(&file, &sizings)?;
    if args.apply && !tuned.changes.is_empty() {
        output_files::replace_file(path, &tuned.text)?;
    }
    tuned.print_changes(ctx, &file, &row, args.apply)?;
    Ok(CliExit::Success)
}

/// The workflow with the measurements.
fn reference_workflow(
    ctx: &CliContext,
    store: &dyn Store,
    file: &SpecFile,
    args: &TuneArgs,
) -> Result<WorkflowRow, CliError> {
    if let Some(workflow) = &args.workflow {
        return object_selection::find_workflow(store, workflow);
    }
    spec_file::newest_workflow_of(store, file, &ctx.cwd)?.ok_or_else(|| {
        CliError::user(format!("{} has created no workflow with measurements", file.name()))
            .with_hint("run it first, or select a workflow with --workflow")
    })
}

/// No job with requirements ran in this workflow; its results may all be reused from another workflow that has
/// measurements.
fn no_measurements_error(store: &dyn Store, row: &WorkflowRow, file: &SpecFile) -> CliError {
    let message = format!(
        "workflow {} ({}) ran no job that uses the `resource_requirements` of {}",
        row.id,
        text::one_line(&row.name),
        file.name()
    );
    let records = store.completion_records(row.id).unwrap_or_default();
    let source_workflows =
        records.iter().map(|record| record.work.done_by.workflow).filter(|id| *id != row.id);
    let hint = match source_workflows.max() {
        Some(id) => format!("its results were reused from workflow {id}: use --workflow {id}"),
        None => "run it first, or select a workflow with --workflow".to_owned(),
    };
    CliError::user(message).with_hint(hint)
}

/// Per requirements set, with the present values of the file.
fn compute_sizings(
    store: &dyn Store,
    row: &WorkflowRow,
    file: &SpecFile,
    args: &TuneArgs,
) -> Result<Vec<GroupSizing>, CliError> {
    let spec = file.load()?;
    let which = JobGroupFilter { run: None, include_failed: true, jobs: &[] };
    let classes = job_groups::merge_by_requirements(job_groups::load_job_groups(store, row, &which)?);
    let written = |class: JobGroupUsage| {
        let set = spec.requirements().iter().find(|set| set.name == class.name)?;
        Some(JobGroupUsage { requested: set.resources, ..class })
    };
    let classes = classes.into_iter().filter_map(written).collect();
    Ok(job_groups::size_groups(classes, &args.sizing.into()).into_iter().map(|(_, sizing)| sizing).collect())
}

/// The changes to the file.
struct TunedSpec {
    changes: Vec<TunedRequirement>,
    /// Why a value that could be smaller is not changed.
    kept_reasons: Vec<String>,
    text: String,
}

#[derive(Serialize)]
struct TunedRequirement {
    resource_requirements: String,
    field: &'static str,
    old: Option<String>,
    new: String,
    evidence: String,
}

impl TunedSpec {
    fn new(file: &SpecFile, sizings: &[GroupSizing]) -> Result<Self, CliError> {
        let changes =
            || sizings.iter().flat_map(|sizing| sizing.changes.iter().map(move |one| (sizing, one)));
        let edits: Vec<SpecEdit<'_>> =
            changes().map(|(sizing, change)| requirements_edit(&sizing.name, change)).collect();
        let text = set_values(file.source(), &edits)?;
        let kept = sizings.iter().filter_map(|sizing| Some(format!("{}: {}", sizing.name, sizing.kept?)));
        Ok(Self {
            changes: changes().map(|(sizing, change)| TunedRequirement::new(&sizing.name, change)).collect(),
            kept_reasons: kept.collect(),
            text,
        })
    }

    fn print_changes(
        &self,
        ctx: &CliContext,
        file: &SpecFile,
        row: &WorkflowRow,
        applied: bool,
    ) -> Result<(), CliError> {
        let before = String::from_utf8_lossy(file.source().text);
        let diff = diff::unified_diff(file.name(), &before, &self.text);
        if ctx.ui.wants_json() {
            return ctx.ui.print_json(&TuneView {
                spec: file.name(),
                workflow_id: row.id,
                applied: applied && !self.changes.is_empty(),
                changes: &self.changes,
                diff: diff.join("\n"),
            });
        }
        self.kept_reasons.iter().for_each(|line| ctx.ui.print_note(line));
        if self.changes.is_empty() {
            ctx.ui.print_note(&format!(
                "{} requests about what workflow {} ({}) used; no changes needed",
                file.name(),
                row.id,
                text::one_line(&row.name)
            ));
            return Ok(());
        }
        // `patch` ignores text before a diff.
        ctx.ui.print_lines(&self.changes.iter().map(TunedRequirement::render_line).collect::<Vec<_>>())?;
        ctx.ui.print_lines(&diff)?;
        let done = if applied { format!("changed {}", file.name()) } else { NOT_APPLIED_NOTE.to_owned() };
        ctx.ui.print_note(&done);
        Ok(())
    }
}

/// JSON output.
#[derive(Serialize)]
struct TuneView<'a> {
    spec: &'a str,
    workflow_id: WorkflowId,
    applied: bool,
    changes: &'a [TunedRequirement],
    diff: String,
}

impl TunedRequirement {
    fn new(requirements: &str, change: &ResourceChange) -> Self {
        Self {
            resource_requirements: requirements.to_owned(),
            field: change.to.resource().field(),
            old: change.from.map(ResourceAmount::to_spec_text),
            new: change.to.to_spec_text(),
            evidence: change.evidence.clone(),
        }
    }

    fn render_line(&self) -> String {
        let Self { resource_requirements, field, old, new, evidence } = self;
        let old = old.as_deref().unwrap_or("nothing");
        format!("# {resource_requirements}: {field} {old} → {new} ({evidence})")
    }
}

fn requirements_edit<'a>(requirements: &'a str, change: &ResourceChange) -> SpecEdit<'a> {
    let value = match change.to {
        ResourceAmount::Cpus(cpus) => NewFieldValue::Integer(cpus.into()),
        ResourceAmount::Memory(_) | ResourceAmount::Runtime(_) => {
            NewFieldValue::Text(Cow::Owned(change.to.to_spec_text()))
        }
    };
    SpecEdit { list: "resource_requirements", name: requirements, field: change.to.resource().field(), value }
}

impl From<SpecPatchError> for CliError {
    fn from(error: SpecPatchError) -> Self {
        match error {
            SpecPatchError::Unreadable(diagnostics) => diagnostics.into(),
            SpecPatchError::ManualEditNeeded { .. } => Self::new(CliErrorKind::Spec, error.to_string()),
        }
    }
}
