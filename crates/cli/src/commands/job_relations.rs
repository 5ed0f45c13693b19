//! Relations of jobs: dependencies, and the files and user data that jobs read and write. Also looks up objects
//! of a workflow by name or id.

use crate::args::WorkflowRef;
use crate::args::jobs::{DependenciesSubcommand, NamedObjectArgs};
use crate::args::workflows::ListInWorkflowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{ListField, ListFields, PAGE_SIZE};
use crate::ui::table::TableColumn;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_store::Store;
use windlass_store::model::{
    DataFilter, FailureHandlerRow, JobRelations, RequirementsRow, SlurmSchedulerRow, UserDataRow,
    WorkflowFileRow, WorkflowRow,
};
use windlass_types::{JobId, WorkflowId};

pub(crate) fn run(ctx: &CliContext, verb: &DependenciesSubcommand) -> Result<CliExit, CliError> {
    match verb {
        DependenciesSubcommand::Job(args) => list_job_dependencies(ctx, args),
        DependenciesSubcommand::File(args) => list_job_files(ctx, args),
        DependenciesSubcommand::UserData(args) => list_job_user_data(ctx, args),
    }
}

/// A job and one of its dependencies.
struct JobDependencyRow {
    job: JobId,
    job_name: String,
    waits_for: JobId,
    waits_for_name: String,
}

const DEPENDENCY_FIELDS: &[ListField<JobDependencyRow>] = &[
    ListField::new("job_id", |w: &JobDependencyRow| w.job.0.into()).column(TableColumn::number("JOB")),
    ListField::new("job_name", |w: &JobDependencyRow| (&w.job_name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("depends_on_job_id", |w: &JobDependencyRow| w.waits_for.0.into())
        .column(TableColumn::number("WAITS FOR")),
    ListField::new("depends_on_job_name", |w: &JobDependencyRow| (&w.waits_for_name).into())
        .column(TableColumn::flexible("NAME")),
];

/// A thousand jobs that depend on a thousand others are a million pairs, so pairs are produced page by page.
fn list_job_dependencies(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let table = store.load_jobs(workflow.id)?;
    let listing = ListFields::new(DEPENDENCY_FIELDS).without_fields(&args.page.exclude)?;
    let at = |number: u32| table.ids[number as usize];
    let named = |pairs: Vec<(u32, u32)>| -> Result<Vec<JobDependencyRow>, CliError> {
        let ids: Vec<JobId> = pairs.iter().flat_map(|(job, on)| [at(*job), at(*on)]).collect();
        let names = store.job_names(&ids)?;
        let pair = |(ids, names): (&[JobId], &[String])| JobDependencyRow {
            job: ids[0],
            job_name: names[0].clone(),
            waits_for: ids[1],
            waits_for_name: names[1].clone(),
        };
        Ok(ids.chunks(2).zip(names.chunks(2)).map(pair).collect())
    };
    let printed = if args.page.is_rearranged() {
        let rows = named(dependency_pairs(&table.edges).collect())?;
        ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)?
    } else {
        let at_most = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let rest = dependency_pairs(&table.edges).skip(at_most(args.page.offset));
        let mut rest = rest.take(args.page.limit.map_or(usize::MAX, at_most));
        ctx.ui.print_pages(&listing, || named(rest.by_ref().take(PAGE_SIZE as usize).collect()))?
    };
    note_if_empty(ctx, printed, &workflow, "no job of", "has dependencies");
    Ok(CliExit::Success)
}

/// `(job, dependency)` by number, dependency groups included.
pub(crate) fn dependency_pairs(edges: &DependencyEdges) -> impl Iterator<Item = (u32, u32)> {
    let gated = |(job, group): &(u32, u32)| {
        let job = *job;
        edges.groups[*group as usize].iter().map(move |on| (job, *on))
    };
    edges.direct.iter().copied().chain(edges.waits.iter().flat_map(gated))
}

/// A job that reads or writes an object.
struct JobUseRow {
    job: JobId,
    job_name: String,
    is_output: bool,
    object_id: i64,
    object_name: String,
}

macro_rules! uses {
    ($id:literal, $name:literal, $heading:literal) => {
        &[
            ListField::new("job_id", |u: &JobUseRow| u.job.0.into()).column(TableColumn::number("JOB")),
            ListField::new("job_name", |u: &JobUseRow| (&u.job_name).into())
                .column(TableColumn::flexible("NAME")),
            ListField::new("direction", |u: &JobUseRow| if u.is_output { "output" } else { "input" }.into())
                .column(TableColumn::text("DIRECTION")),
            ListField::new($id, |u: &JobUseRow| u.object_id.into()).column(TableColumn::number($heading)),
            ListField::new($name, |u: &JobUseRow| (&u.object_name).into())
                .column(TableColumn::flexible("NAME")),
        ]
    };
}

const FILE_USE_FIELDS: &[ListField<JobUseRow>] = uses!("file_id", "file_name", "FILE");
const DATA_USE_FIELDS: &[ListField<JobUseRow>] = uses!("user_data_id", "user_data_name", "USER DATA");

fn list_job_files(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let files = store.files(workflow.id, &DataFilter::default())?;
    let names = files.into_iter().map(|file| (file.id.0, file.name)).collect();
    let uses = store.job_files(workflow.id)?.into_iter();
    let uses =
        uses.map(|r| (r.job_id, JobObjectAccess { is_output: r.is_output, object: r.file_id.0 })).collect();
    let rows = add_names(&*store, uses, &names)?;
    print_uses(ctx, &workflow, args, FILE_USE_FIELDS, rows)
}

fn list_job_user_data(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let pieces = store.user_data(workflow.id, &DataFilter::default())?;
    let names = pieces.into_iter().map(|piece| (piece.id.0, piece.name)).collect();
    let uses = store.job_user_data(workflow.id)?.into_iter();
    let uses = uses
        .map(|r| (r.job_id, JobObjectAccess { is_output: r.is_output, object: r.user_data_id.0 }))
        .collect();
    let rows = add_names(&*store, uses, &names)?;
    print_uses(ctx, &workflow, args, DATA_USE_FIELDS, rows)
}

fn add_names(
    store: &dyn Store,
    uses: Vec<(JobId, JobObjectAccess<i64>)>,
    names: &HashMap<i64, String>,
) -> Result<Vec<JobUseRow>, CliError> {
    let jobs: Vec<JobId> = uses.iter().map(|(job, _)| *job).collect();
    let named = uses.into_iter().zip(store.job_names(&jobs)?);
    let rows = named.map(|((job, JobObjectAccess { is_output, object: thing }), job_name)| JobUseRow {
        job,
        job_name,
        is_output,
        object_id: thing,
        object_name: names.get(&thing).cloned().unwrap_or_default(),
    });
    Ok(rows.collect())
}

fn print_uses(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    args: &ListInWorkflowArgs,
    fields: &'static [ListField<JobUseRow>],
    rows: Vec<JobUseRow>,
) -> Result<CliExit, CliError> {
    let listing = ListFields::new(fields).without_fields(&args.page.exclude)?;
    let printed = ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)?;
    note_if_empty(ctx, printed, workflow, "no job of", "reads or writes any");
    Ok(CliExit::Success)
}

fn note_if_empty(ctx: &CliContext, printed: u64, workflow: &WorkflowRow, before: &str, after: &str) {
    if printed == 0 {
        ctx.ui.print_note(&format!("{before} workflow {} ({}) {after}", workflow.id, workflow.name));
    }
}

/// A job that reads or writes a file or user data.
pub(crate) struct JobObjectAccess<T> {
    pub(crate) is_output: bool,
    pub(crate) object: T,
}

/// Objects that must exist at the start: some job reads them and no job writes them.
pub(crate) fn required_inputs<T: Copy + Ord + Hash>(
    relations: impl Iterator<Item = JobObjectAccess<T>>,
) -> BTreeSet<T> {
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    for relation in relations {
        let set = if relation.is_output { &mut written } else { &mut read };
        set.insert(relation.object);
    }
    &read - &written
}

/// The relations of one job, by id.
#[derive(Default)]
pub(crate) struct JobRelationIds {
    pub(crate) waits_for: Vec<i64>,
    pub(crate) input_files: Vec<i64>,
    pub(crate) output_files: Vec<i64>,
    pub(crate) input_user_data: Vec<i64>,
    pub(crate) output_user_data: Vec<i64>,
}

impl From<JobRelations> for JobRelationIds {
    fn from(of: JobRelations) -> Self {
        Self {
            waits_for: of.waits_for.iter().map(|id| id.0).collect(),
            input_files: of.input_files.iter().map(|id| id.0).collect(),
            output_files: of.output_files.iter().map(|id| id.0).collect(),
            input_user_data: of.input_user_data.iter().map(|id| id.0).collect(),
            output_user_data: of.output_user_data.iter().map(|id| id.0).collect(),
        }
    }
}

/// The relations of the jobs of a workflow.
#[derive(Default)]
pub(crate) struct WorkflowRelations {
    by_job: HashMap<JobId, JobRelationIds>,
}

impl WorkflowRelations {
    pub(crate) fn load(store: &dyn Store, workflow: &WorkflowRow) -> Result<Self, CliError> {
        let mut relations = Self::default();
        let table = store.load_jobs(workflow.id)?;
        for (job, on) in dependency_pairs(&table.edges) {
            relations.job_entry(table.ids[job as usize]).waits_for.push(table.ids[on as usize].0);
        }
        for row in store.job_files(workflow.id)? {
            let uses = relations.job_entry(row.job_id);
            let list = if row.is_output { &mut uses.output_files } else { &mut uses.input_files };
            list.push(row.file_id.0);
        }
        for row in store.job_user_data(workflow.id)? {
            let uses = relations.job_entry(row.job_id);
            let list = if row.is_output { &mut uses.output_user_data } else { &mut uses.input_user_data };
            list.push(row.user_data_id.0);
        }
        Ok(relations)
    }

    fn job_entry(&mut self, job: JobId) -> &mut JobRelationIds {
        self.by_job.entry(job).or_default()
    }

    /// The dependents of this job.
    pub(crate) fn dependents(&self, job: JobId) -> impl Iterator<Item = JobId> {
        self.by_job.iter().filter(move |(_, uses)| uses.waits_for.contains(&job.0)).map(|(id, _)| *id)
    }

    /// Takes the relations of a job; each job is shown once.
    pub(crate) fn take_job(&mut self, job: JobId) -> JobRelationIds {
        self.by_job.remove(&job).unwrap_or_default()
    }
}

/// An object with a name that is unique in its workflow.
pub(crate) trait NamedObject {
    const WHAT: &'static str;
    fn name(&self) -> &str;
}

macro_rules! named {
    ($($row:ty, $what:literal, |$r:ident| $name:expr;)*) => {$(
        impl NamedObject for $row {
            const WHAT: &'static str = $what;
            fn name(&self) -> &str {
                let $r = self;
                $name
            }
        }
    )*};
}

named! {
    WorkflowFileRow, "file", |row| &row.name;
    UserDataRow, "user data", |row| &row.name;
    RequirementsRow, "resource requirements", |row| &row.name;
    FailureHandlerRow, "failure handler", |row| &row.handler.name;
    SlurmSchedulerRow, "scheduler", |row| &row.scheduler.name;
}

/// Finds one object: by id in any workflow, or by name in the given workflow. `in_workflow` returns all objects
/// of a workflow.
pub(crate) fn find_named<T: NamedObject>(
    store: &dyn Store,
    args: &NamedObjectArgs,
    by_id: impl Fn(i64) -> Result<Option<(WorkflowId, T)>, CliError>,
    in_workflow: impl Fn(WorkflowId) -> Result<Vec<T>, CliError>,
) -> Result<(WorkflowRow, T), CliError> {
    let found = args.name.parse().ok().map(by_id).transpose()?.flatten();
    if let Some((workflow, thing)) = found {
        return Ok((object_selection::find_workflow(store, &WorkflowRef::Id(workflow))?, thing));
    }
    let workflow = object_selection::find_workflow(store, &args.workflow)?;
    let mut all = in_workflow(workflow.id)?;
    if let Some(at) = all.iter().position(|thing| thing.name() == args.name) {
        return Ok((workflow, all.swap_remove(at)));
    }
    let hint = match windlass_spec::nearest_name(&args.name, all.iter().map(NamedObject::name)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "use --workflow to select another workflow".to_owned(),
    };
    let message = format!("workflow {} ({}) has no {} `{}`", workflow.id, workflow.name, T::WHAT, args.name);
    Err(CliError::user(message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_pairs_include_dependency_groups() {
        let edges =
            DependencyEdges { direct: vec![(1, 0)], groups: vec![vec![0, 1]], waits: vec![(2, 0), (3, 0)] };
        assert_eq!(dependency_pairs(&edges).collect::<Vec<_>>(), [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]);
    }

    #[test]
    fn job_outputs_are_not_required_inputs() {
        let relation = |is_output, thing| JobObjectAccess { is_output, object: thing };
        let relations = [relation(false, 1), relation(true, 2), relation(false, 2), relation(true, 3)];
        assert_eq!(required_inputs(relations.into_iter()), BTreeSet::from([1]));
    }
}
