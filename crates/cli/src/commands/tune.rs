//! `windlass tune`: better requirements, learned from what was used, as a patch to the spec file.

use crate::args::resources::TuneArgs;
use crate::context::Context;
use crate::deliver;
use crate::error::{CliError, Exit, Kind};
use crate::plan::{self, SpecFile};
use crate::ui::diff;
use crate::ui::text;
use crate::{select, spec_files};
use serde::Serialize;
use std::borrow::Cow;
use windlass_core::sizing::{Amount, Change, Sizing};
use windlass_insight::classes::{self, Class, Which};
use windlass_spec::patch::{Edit, NewValue, PatchError, set_values};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::WorkflowId;

const NOTHING_CHANGED: &str = "nothing was changed; --apply writes it into the file";

pub(crate) fn run(ctx: &Context, args: &TuneArgs) -> Result<Exit, CliError> {
    let named = spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?;
    let file = SpecFile::read(&ctx.cwd, &named)?;
    let Some(path) = file.path() else {
        return Err(CliError::user("a spec from stdin cannot be changed").with_hint("name the file"));
    };
    let store = ctx.open_read()?;
    let row = teacher(ctx, &*store, &file, args)?;
    let sizings = judge(&*store, &row, &file, args)?;
    if sizings.is_empty() {
        return Err(nothing_learned(&*store, &row, &file));
    }
    let tuned = Tuned::new(&file, &sizings)?;
    if args.apply && !tuned.changes.is_empty() {
        deliver::replace(path, &tuned.text)?;
    }
    tuned.show(ctx, &file, &row, args.apply)?;
    Ok(Exit::Success)
}

/// The workflow to learn from.
fn teacher(
    ctx: &Context,
    store: &dyn Store,
    file: &SpecFile,
    args: &TuneArgs,
) -> Result<WorkflowRow, CliError> {
    if let Some(workflow) = &args.workflow {
        return select::workflow(store, workflow);
    }
    plan::newest_of(store, file, &ctx.cwd)?.ok_or_else(|| {
        CliError::user(format!("{} made no workflow here that could be learned from", file.name()))
            .with_hint("run it first, or name a workflow with --workflow")
    })
}

/// No job that asks for something ran there: all of it may have been reused from a workflow that could teach.
fn nothing_learned(store: &dyn Store, row: &WorkflowRow, file: &SpecFile) -> CliError {
    let message = format!(
        "workflow {} ({}) ran no job that asks for what {} names in `resource_requirements`",
        row.id,
        text::one_line(&row.name),
        file.name()
    );
    let records = store.last_records(row.id).unwrap_or_default();
    let teachers = records.iter().map(|record| record.work.done_by.workflow).filter(|id| *id != row.id);
    let hint = match teachers.max() {
        Some(id) => format!("what it reused was done by workflow {id}: --workflow {id} learns from that"),
        None => "run it first, or name a workflow with --workflow".to_owned(),
    };
    CliError::user(message).with_hint(hint)
}

/// Per set of requirements, as the file has it now.
fn judge(
    store: &dyn Store,
    row: &WorkflowRow,
    file: &SpecFile,
    args: &TuneArgs,
) -> Result<Vec<Sizing>, CliError> {
    let spec = file.load()?;
    let which = Which { run: None, failed: true, jobs: &[] };
    let classes = classes::by_requirements(classes::load(store, row, &which)?);
    let written = |class: Class| {
        let set = spec.requirements().iter().find(|set| set.name == class.name)?;
        Some(Class { asked: set.resources, ..class })
    };
    let classes = classes.into_iter().filter_map(written).collect();
    Ok(classes::judge(classes, &args.sizing.into()).into_iter().map(|(_, sizing)| sizing).collect())
}

/// What changes in the file.
struct Tuned {
    changes: Vec<TunedChange>,
    /// Why something that could be smaller stays as it is.
    kept: Vec<String>,
    text: String,
}

#[derive(Serialize)]
struct TunedChange {
    resource_requirements: String,
    field: &'static str,
    old: Option<String>,
    new: String,
    evidence: String,
}

impl Tuned {
    fn new(file: &SpecFile, sizings: &[Sizing]) -> Result<Self, CliError> {
        let changes =
            || sizings.iter().flat_map(|sizing| sizing.changes.iter().map(move |one| (sizing, one)));
        let edits: Vec<Edit<'_>> = changes().map(|(sizing, change)| edit(&sizing.name, change)).collect();
        let text = set_values(file.source(), &edits)?;
        let kept = sizings.iter().filter_map(|sizing| Some(format!("{}: {}", sizing.name, sizing.kept?)));
        Ok(Self {
            changes: changes().map(|(sizing, change)| TunedChange::new(&sizing.name, change)).collect(),
            kept: kept.collect(),
            text,
        })
    }

    fn show(&self, ctx: &Context, file: &SpecFile, row: &WorkflowRow, applied: bool) -> Result<(), CliError> {
        let before = String::from_utf8_lossy(file.source().text);
        let diff = diff::unified(file.name(), &before, &self.text);
        if ctx.ui.json_wanted() {
            return ctx.ui.print_json(&TuneView {
                spec: file.name(),
                workflow_id: row.id,
                applied: applied && !self.changes.is_empty(),
                changes: &self.changes,
                diff: diff.join("\n"),
            });
        }
        self.kept.iter().for_each(|line| ctx.ui.note(line));
        if self.changes.is_empty() {
            ctx.ui.note(&format!(
                "{} asks for about what workflow {} ({}) used; nothing needs to change",
                file.name(),
                row.id,
                text::one_line(&row.name)
            ));
            return Ok(());
        }
        // `patch` skips what stands before a diff.
        ctx.ui.print_lines(&self.changes.iter().map(TunedChange::line).collect::<Vec<_>>())?;
        ctx.ui.print_lines(&diff)?;
        let done = if applied { format!("changed {}", file.name()) } else { NOTHING_CHANGED.to_owned() };
        ctx.ui.note(&done);
        Ok(())
    }
}

/// For programs.
#[derive(Serialize)]
struct TuneView<'a> {
    spec: &'a str,
    workflow_id: WorkflowId,
    applied: bool,
    changes: &'a [TunedChange],
    diff: String,
}

impl TunedChange {
    fn new(requirements: &str, change: &Change) -> Self {
        Self {
            resource_requirements: requirements.to_owned(),
            field: change.to.resource().field(),
            old: change.from.map(Amount::as_written),
            new: change.to.as_written(),
            evidence: change.evidence.clone(),
        }
    }

    fn line(&self) -> String {
        let Self { resource_requirements, field, old, new, evidence } = self;
        let old = old.as_deref().unwrap_or("nothing");
        format!("# {resource_requirements}: {field} {old} → {new} ({evidence})")
    }
}

fn edit<'a>(requirements: &'a str, change: &Change) -> Edit<'a> {
    let value = match change.to {
        Amount::Cpus(cpus) => NewValue::Integer(cpus.into()),
        Amount::Memory(_) | Amount::Runtime(_) => NewValue::Text(Cow::Owned(change.to.as_written())),
    };
    Edit { list: "resource_requirements", name: requirements, field: change.to.resource().field(), value }
}

impl From<PatchError> for CliError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Unreadable(diagnostics) => diagnostics.into(),
            PatchError::ByHand { .. } => Self::new(Kind::Spec, error.to_string()),
        }
    }
}
