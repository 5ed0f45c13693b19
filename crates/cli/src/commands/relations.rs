//! What hangs on jobs: who waits for whom, who reads and writes what. And how one thing of a workflow is named.

use crate::args::WorkflowRef;
use crate::args::jobs::{DependenciesVerb, NamedArgs};
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing, PAGE};
use crate::ui::table::Column;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use windlass_core::edges::Edges;
use windlass_store::Store;
use windlass_store::model::{
    DataFilter, FileRow, HandlerRow, JobRelations, RequirementsRow, SchedulerRow, UserDataRow, WorkflowRow,
};
use windlass_types::{JobId, WorkflowId};

pub(crate) fn run(ctx: &Context, verb: &DependenciesVerb) -> Result<Exit, CliError> {
    match verb {
        DependenciesVerb::Job(args) => job_job(ctx, args),
        DependenciesVerb::File(args) => job_file(ctx, args),
        DependenciesVerb::UserData(args) => job_user_data(ctx, args),
    }
}

/// A job that waits for another.
struct Wait {
    job: JobId,
    job_name: String,
    waits_for: JobId,
    waits_for_name: String,
}

const WAITS: &[Field<Wait>] = &[
    Field::new("job_id", |w: &Wait| w.job.0.into()).column(Column::number("JOB")),
    Field::new("job_name", |w: &Wait| (&w.job_name).into()).column(Column::elastic("NAME")),
    Field::new("depends_on_job_id", |w: &Wait| w.waits_for.0.into()).column(Column::number("WAITS FOR")),
    Field::new("depends_on_job_name", |w: &Wait| (&w.waits_for_name).into()).column(Column::elastic("NAME")),
];

/// A thousand jobs that wait for a thousand others are a million pairs: they are made page by page.
fn job_job(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let table = store.load_jobs(workflow.id)?;
    let listing = Listing::new(WAITS).without(&args.page.exclude)?;
    let at = |number: u32| table.ids[number as usize];
    let named = |pairs: Vec<(u32, u32)>| -> Result<Vec<Wait>, CliError> {
        let ids: Vec<JobId> = pairs.iter().flat_map(|(job, on)| [at(*job), at(*on)]).collect();
        let names = store.job_names(&ids)?;
        let pair = |(ids, names): (&[JobId], &[String])| Wait {
            job: ids[0],
            job_name: names[0].clone(),
            waits_for: ids[1],
            waits_for_name: names[1].clone(),
        };
        Ok(ids.chunks(2).zip(names.chunks(2)).map(pair).collect())
    };
    let printed = if args.page.is_rearranged() {
        let rows = named(pairs(&table.edges).collect())?;
        ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)?
    } else {
        let at_most = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let rest = pairs(&table.edges).skip(at_most(args.page.offset));
        let mut rest = rest.take(args.page.limit.map_or(usize::MAX, at_most));
        ctx.ui.print_pages(&listing, || named(rest.by_ref().take(PAGE as usize).collect()))?
    };
    say_if_none(ctx, printed, &workflow, "no job of", "waits for another");
    Ok(Exit::Success)
}

/// `(job, the one it waits for)` by number, those behind gates included.
pub(crate) fn pairs(edges: &Edges) -> impl Iterator<Item = (u32, u32)> {
    let gated = |(job, gate): &(u32, u32)| {
        let job = *job;
        edges.gates[*gate as usize].iter().map(move |on| (job, *on))
    };
    edges.direct.iter().copied().chain(edges.waits.iter().flat_map(gated))
}

/// A job that reads or writes something.
struct Use {
    job: JobId,
    job_name: String,
    is_output: bool,
    thing: i64,
    thing_name: String,
}

macro_rules! uses {
    ($id:literal, $name:literal, $heading:literal) => {
        &[
            Field::new("job_id", |u: &Use| u.job.0.into()).column(Column::number("JOB")),
            Field::new("job_name", |u: &Use| (&u.job_name).into()).column(Column::elastic("NAME")),
            Field::new("direction", |u: &Use| if u.is_output { "output" } else { "input" }.into())
                .column(Column::text("DIRECTION")),
            Field::new($id, |u: &Use| u.thing.into()).column(Column::number($heading)),
            Field::new($name, |u: &Use| (&u.thing_name).into()).column(Column::elastic("NAME")),
        ]
    };
}

const FILE_USES: &[Field<Use>] = uses!("file_id", "file_name", "FILE");
const DATA_USES: &[Field<Use>] = uses!("user_data_id", "user_data_name", "USER DATA");

fn job_file(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let files = store.files(workflow.id, &DataFilter::default())?;
    let names = files.into_iter().map(|file| (file.id.0, file.name)).collect();
    let uses = store.job_files(workflow.id)?.into_iter();
    let uses = uses.map(|r| (r.job_id, Relation { is_output: r.is_output, thing: r.file_id.0 })).collect();
    let rows = with_names(&*store, uses, &names)?;
    print_uses(ctx, &workflow, args, FILE_USES, rows)
}

fn job_user_data(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let pieces = store.user_data(workflow.id, &DataFilter::default())?;
    let names = pieces.into_iter().map(|piece| (piece.id.0, piece.name)).collect();
    let uses = store.job_user_data(workflow.id)?.into_iter();
    let uses =
        uses.map(|r| (r.job_id, Relation { is_output: r.is_output, thing: r.user_data_id.0 })).collect();
    let rows = with_names(&*store, uses, &names)?;
    print_uses(ctx, &workflow, args, DATA_USES, rows)
}

fn with_names(
    store: &dyn Store,
    uses: Vec<(JobId, Relation<i64>)>,
    names: &HashMap<i64, String>,
) -> Result<Vec<Use>, CliError> {
    let jobs: Vec<JobId> = uses.iter().map(|(job, _)| *job).collect();
    let named = uses.into_iter().zip(store.job_names(&jobs)?);
    let rows = named.map(|((job, Relation { is_output, thing }), job_name)| Use {
        job,
        job_name,
        is_output,
        thing,
        thing_name: names.get(&thing).cloned().unwrap_or_default(),
    });
    Ok(rows.collect())
}

fn print_uses(
    ctx: &Context,
    workflow: &WorkflowRow,
    args: &ListOfWorkflowArgs,
    fields: &'static [Field<Use>],
    rows: Vec<Use>,
) -> Result<Exit, CliError> {
    let listing = Listing::new(fields).without(&args.page.exclude)?;
    let printed = ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)?;
    say_if_none(ctx, printed, workflow, "no job of", "reads or writes any");
    Ok(Exit::Success)
}

fn say_if_none(ctx: &Context, printed: u64, workflow: &WorkflowRow, before: &str, after: &str) {
    if printed == 0 {
        ctx.ui.note(&format!("{before} workflow {} ({}) {after}", workflow.id, workflow.name));
    }
}

/// A job reads or writes a thing.
pub(crate) struct Relation<T> {
    pub(crate) is_output: bool,
    pub(crate) thing: T,
}

/// What must be there from the start: somebody reads it and nobody writes it.
pub(crate) fn read_and_never_written<T: Copy + Ord + Hash>(
    relations: impl Iterator<Item = Relation<T>>,
) -> BTreeSet<T> {
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    for relation in relations {
        let set = if relation.is_output { &mut written } else { &mut read };
        set.insert(relation.thing);
    }
    &read - &written
}

/// What hangs on one job, by id.
#[derive(Default)]
pub(crate) struct Uses {
    pub(crate) waits_for: Vec<i64>,
    pub(crate) input_files: Vec<i64>,
    pub(crate) output_files: Vec<i64>,
    pub(crate) input_user_data: Vec<i64>,
    pub(crate) output_user_data: Vec<i64>,
}

impl From<JobRelations> for Uses {
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

/// What hangs on the jobs of a workflow.
#[derive(Default)]
pub(crate) struct Relations {
    by_job: HashMap<JobId, Uses>,
}

impl Relations {
    pub(crate) fn load(store: &dyn Store, workflow: &WorkflowRow) -> Result<Self, CliError> {
        let mut relations = Self::default();
        let table = store.load_jobs(workflow.id)?;
        for (job, on) in pairs(&table.edges) {
            relations.entry(table.ids[job as usize]).waits_for.push(table.ids[on as usize].0);
        }
        for row in store.job_files(workflow.id)? {
            let uses = relations.entry(row.job_id);
            let list = if row.is_output { &mut uses.output_files } else { &mut uses.input_files };
            list.push(row.file_id.0);
        }
        for row in store.job_user_data(workflow.id)? {
            let uses = relations.entry(row.job_id);
            let list = if row.is_output { &mut uses.output_user_data } else { &mut uses.input_user_data };
            list.push(row.user_data_id.0);
        }
        Ok(relations)
    }

    fn entry(&mut self, job: JobId) -> &mut Uses {
        self.by_job.entry(job).or_default()
    }

    /// The jobs that wait for this one.
    pub(crate) fn waiting_for(&self, job: JobId) -> impl Iterator<Item = JobId> {
        self.by_job.iter().filter(move |(_, uses)| uses.waits_for.contains(&job.0)).map(|(id, _)| *id)
    }

    /// What hangs on the job; it is shown once.
    pub(crate) fn take(&mut self, job: JobId) -> Uses {
        self.by_job.remove(&job).unwrap_or_default()
    }
}

/// Something of a workflow that has a name in it.
pub(crate) trait Named {
    const WHAT: &'static str;
    fn name(&self) -> &str;
}

macro_rules! named {
    ($($row:ty, $what:literal, |$r:ident| $name:expr;)*) => {$(
        impl Named for $row {
            const WHAT: &'static str = $what;
            fn name(&self) -> &str {
                let $r = self;
                $name
            }
        }
    )*};
}

named! {
    FileRow, "file", |row| &row.name;
    UserDataRow, "user data", |row| &row.name;
    RequirementsRow, "resource requirements", |row| &row.name;
    HandlerRow, "failure handler", |row| &row.handler.name;
    SchedulerRow, "scheduler", |row| &row.scheduler.name;
}

/// One thing that was named: by its id, whichever workflow it belongs to, or by its name in the workflow named.
/// `in_workflow` gives all things of a workflow.
pub(crate) fn named<T: Named>(
    store: &dyn Store,
    args: &NamedArgs,
    by_id: impl Fn(i64) -> Result<Option<(WorkflowId, T)>, CliError>,
    in_workflow: impl Fn(WorkflowId) -> Result<Vec<T>, CliError>,
) -> Result<(WorkflowRow, T), CliError> {
    let found = args.name.parse().ok().map(by_id).transpose()?.flatten();
    if let Some((workflow, thing)) = found {
        return Ok((select::workflow(store, &WorkflowRef::Id(workflow))?, thing));
    }
    let workflow = select::workflow(store, &args.workflow)?;
    let mut all = in_workflow(workflow.id)?;
    if let Some(at) = all.iter().position(|thing| thing.name() == args.name) {
        return Ok((workflow, all.swap_remove(at)));
    }
    let hint = match windlass_spec::nearest(&args.name, all.iter().map(Named::name)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "--workflow names another workflow".to_owned(),
    };
    let said = format!("workflow {} ({}) has no {} `{}`", workflow.id, workflow.name, T::WHAT, args.name);
    Err(CliError::user(said).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_behind_gates_are_pairs_too() {
        let edges = Edges { direct: vec![(1, 0)], gates: vec![vec![0, 1]], waits: vec![(2, 0), (3, 0)] };
        assert_eq!(pairs(&edges).collect::<Vec<_>>(), [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]);
    }

    #[test]
    fn what_is_written_need_not_be_there() {
        let relation = |is_output, thing| Relation { is_output, thing };
        let relations = [relation(false, 1), relation(true, 2), relation(false, 2), relation(true, 3)];
        assert_eq!(read_and_never_written(relations.into_iter()), BTreeSet::from([1]));
    }
}
