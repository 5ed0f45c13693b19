//! What decisions have done outside. Each may be done twice; its outcome is news for the next decision.

mod input;
mod invalidation;
mod outputs;
mod settle;

use crate::backend::{Order, Paper, Retries, Stop, Submission};
use crate::catalog::{CatalogError, Fault};
use crate::learnt;
use crate::manifests::{self, Common, WriteError};
use crate::names;
use crate::outline::Outline;
use crate::world::World;
use input::Input;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::adaptive::{self, RoundRecord};
use windlass_core::plan::{self, Cause, PlanBlock, PlanFault, PlanInput, Start, plan};
use windlass_core::requests::book::{
    Backend, BlockRow, Extent, FileCounts, Overrides, Process, RequestRow, RunRow,
};
use windlass_core::requests::lifecycle::{Effect, News, Place, Planned, Trouble};
use windlass_core::requests::{View, rounds};
use windlass_store::model::RunFilter;
use windlass_types::Clock;
use windlass_types::payload::check_name;
use windlass_types::requests::{Request, RunStatus};

/// Those with the same one are done one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EffectKey {
    pub(crate) request: String,
    pub(crate) about: About,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum About {
    Plan,
    Run,
    Block(String),
    /// Of nobody in particular: telling people.
    Alerts,
}

impl EffectKey {
    pub(crate) fn of(request: &str, effect: &Effect) -> Self {
        let about = match effect {
            Effect::Import | Effect::Plan { .. } | Effect::Manifest => About::Plan,
            Effect::Submit { .. }
            | Effect::Resume { .. }
            | Effect::Stop { .. }
            | Effect::Settle { .. }
            | Effect::Pause { .. }
            | Effect::Unpause { .. }
            | Effect::Avoid { .. }
            | Effect::Prioritize { .. } => About::Run,
            Effect::Step(step) => About::Block(step.block.clone()),
        };
        Self { request: request.to_owned(), about }
    }
}

/// The rows that an effect needs, as they were when it was decided.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) name: String,
    /// What people have changed about how it is carried out.
    pub(crate) overrides: Overrides,
    pub(crate) priority: i64,
    pub(crate) process: Option<Process>,
    pub(crate) run: Option<RunRow>,
    /// Of a step.
    pub(crate) block: Option<BlockRow>,
}

impl Rows {
    pub(crate) fn of(view: &View, effect: &Effect) -> Self {
        let block = match effect {
            Effect::Step(step) => view.block(&step.block).cloned(),
            _ => None,
        };
        Self {
            name: view.row.request.request_name.clone(),
            overrides: view.row.overrides.clone(),
            priority: view.row.request.priority,
            process: view.process.clone(),
            run: view.run.clone(),
            block,
        }
    }
}

/// What came of an effect.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) tag: String,
    pub(crate) news: Vec<News>,
    /// It is not done again before so long, even if it is still due.
    pub(crate) pause: Duration,
}

/// Nothing is done again at once, whatever happens: that would be a circle without an end.
const SHORT: Duration = Duration::from_millis(50);
/// What was told to stop is given time to do so, and told again then.
const STOP_AGAIN: Duration = Duration::from_secs(30);

/// Does it, and says what came of it.
pub(crate) fn perform(world: &World, effect: &Effect, rows: &Rows) -> Done {
    let retry_after = world.options.decisions.retry_after;
    let done = |news, pause| Done { tag: effect.tag(), news, pause };
    let or_trouble = |outcome: Result<News, Trouble>, trouble: &dyn Fn(Trouble) -> News| match outcome {
        Ok(news) => done(vec![news], SHORT),
        Err(why) => done(vec![trouble(why)], retry_after),
    };
    match effect {
        Effect::Import => {
            or_trouble(import(world, rows).map(|made| News::Imported(Box::new(made))), &News::ImportFailed)
        }
        Effect::Plan { round } => {
            let planned = plan_round(world, rows, *round).map(|planned| {
                planned.map_or(News::NothingToPlan, |planned| News::Planned(Box::new(planned)))
            });
            or_trouble(planned, &News::PlanFailed)
        }
        Effect::Submit { run } | Effect::Resume { run } => {
            or_trouble(hand_over(world, rows, run), &|trouble| News::SubmitFailed {
                run: run.clone(),
                trouble,
            })
        }
        Effect::Stop { run, reason } => match try_stop(world, rows, run, reason) {
            Ok(news) => done(news, STOP_AGAIN),
            Err(trouble) => {
                tracing::warn!(request = rows.name, run, reason = trouble.reason, "cannot stop a run yet");
                done(vec![News::StopFailed { run: run.clone(), trouble }], retry_after)
            }
        },
        Effect::Pause { run } => match restrain(world, rows, run, Restraint::Pause) {
            // Whoever forgot it is told again.
            Ok(()) => done(Vec::new(), STOP_AGAIN),
            Err(trouble) => put_off(done(Vec::new(), retry_after), rows, &trouble),
        },
        Effect::Unpause { run } => match restrain(world, rows, run, Restraint::None) {
            Ok(()) => done(vec![News::Unpaused { run: run.clone() }], SHORT),
            Err(trouble) => put_off(done(Vec::new(), retry_after), rows, &trouble),
        },
        Effect::Avoid { run } => match restrain(world, rows, run, Restraint::Sites) {
            Ok(()) => done(Vec::new(), SHORT),
            Err(trouble) => put_off(done(Vec::new(), retry_after), rows, &trouble),
        },
        Effect::Prioritize { run, priority } => match prioritize(world, rows, run) {
            Ok(()) => done(vec![News::Prioritized { run: run.clone(), priority: *priority }], SHORT),
            Err(trouble) => put_off(done(Vec::new(), retry_after), rows, &trouble),
        },
        Effect::Settle { round, run } => {
            let settled = settle::perform(world, rows, *round);
            let settled = settled.map(|files| News::Settled { round: *round, run: run.clone(), files });
            or_trouble(settled, &|trouble| News::SettleFailed { round: *round, trouble })
        }
        Effect::Manifest => {
            let written = invalidation::perform(world, rows);
            let written = written.map(|path| News::ManifestWritten { path: path.display().to_string() });
            or_trouble(written, &|trouble| News::ManifestFailed { reason: trouble.reason })
        }
        Effect::Step(step) => done(vec![outputs::perform(world, step, rows)], SHORT),
    }
}

fn passing(error: impl std::fmt::Display) -> Trouble {
    Trouble { reason: error.to_string(), again: true }
}

fn lasting(error: impl std::fmt::Display) -> Trouble {
    Trouble { reason: error.to_string(), again: false }
}

fn of_store(error: &windlass_store::Error) -> Trouble {
    Trouble { reason: format!("the database could not be used: {error}"), again: true }
}

fn of_catalog(error: CatalogError) -> Trouble {
    Trouble { again: error.fault == Fault::Later, reason: error.detail }
}

/// The request as it was wished for, with all that is in it.
fn row(world: &World, name: &str) -> Result<RequestRow, Trouble> {
    let row = world.books.request(name).map_err(|error| of_store(&error))?;
    row.ok_or_else(|| lasting("the request is gone"))
}

/// What can be known at once is: that its input exists, and that what it runs can be understood.
fn import(world: &World, rows: &Rows) -> Result<Process, Trouble> {
    let row = row(world, &rows.name)?;
    let (request, created_at) = (row.request, row.created_at);
    check_name(&request.request_name).map_err(lasting)?;
    if let Some(dataset) = &request.input_dataset
        && !world.catalog.has(dataset).map_err(of_catalog)?
    {
        return Err(lasting(format!("input_dataset: the catalog knows no dataset {dataset}")));
    }
    Common::new(&request, "0", &std::collections::BTreeMap::new()).map_err(lasting)?;
    let now = Clock.now();
    Ok(Process {
        uuid: windlass_core::requests::names::process(&request.request_name, created_at),
        request_name: request.request_name.clone(),
        round: 0,
        next_first_event: request.generation.map_or(1, |generation| generation.first_event),
        next_first_lumi: request.generation.map_or(1, |generation| generation.first_lumi),
        next_block: 0,
        more_input: false,
        excluded: 0,
        settled: 0,
        files: FileCounts::default(),
        extent: Extent::default(),
        events_produced: 0,
        events_of_round: 0,
        empty_rounds: 0,
        category_throttles: world.options.plan.throttles.clone(),
        step_metrics: None,
        created_at: now,
        updated_at: now,
    })
}

/// Plans a round and writes its directory. `None`: there is nothing left to do.
fn plan_round(world: &World, rows: &Rows, round: u32) -> Result<Option<Planned>, Trouble> {
    let row = row(world, &rows.name)?;
    let request = row.request;
    check_name(&request.request_name).map_err(lasting)?;
    let process = rows.process.as_ref().ok_or_else(|| lasting("the request has no process"))?;
    let places = world.places(&request.request_name).map_err(|error| of_store(&error))?;
    let input = Input::of(world, &request, &row.overrides, process, round)?;
    if input.is_under_way() && input.remaining.files.is_empty() {
        return Ok(None);
    }
    let wanted = request.generation.map(|all| all.events.saturating_sub(process.events_produced));
    if wanted == Some(0) {
        return Ok(None);
    }
    let mut experience = learnt::before(process, rows.run.as_ref(), round);
    let done = if wanted.is_some() { process.events_produced } else { input.counts.processed };
    let left = input.remaining.files.len() as u64;
    let size = adaptive::round_size(&world.options.plan.adaptive, request.adaptive, Some(&experience));
    let plan = match plan(&PlanInput {
        request: &request,
        files: &input.remaining.files,
        attempted: &input.remaining.attempted,
        left: &input.remaining.left,
        sites: &places.usable,
        settings: &world.options.plan,
        start: Start {
            first_event: process.next_first_event,
            first_lumi: process.next_first_lumi,
            first_block: process.next_block,
        },
        events_wanted: wanted,
        memory_mb: row.overrides.memory_mb,
        time_per_event: row.overrides.time_per_event_sec,
        metrics: Some(&experience),
        max_units: size.map(|size| size.units),
        max_jobs: size.and_then(|size| size.jobs),
        until_step: size.and_then(|_| rounds::until_next_step(&request, done, left)),
    }) {
        Ok(plan) => plan,
        Err(faults) if input.is_under_way() && is_over(&faults) => return Ok(None),
        Err(faults) => return Err(Trouble::of_plan(&faults)),
    };
    if plan.units().len() == 0 {
        return Ok(None);
    }
    let uuid = names::run(&process.uuid, round);
    let common = Common::new(&request, &uuid, &places.storage).map_err(lasting)?;
    let directory = directory(world, &request.request_name, &uuid)?;
    let outline = manifests::write(&directory, &plan, &common).map_err(of_write)?;
    let backend = world.backends.place(|| active_runs(world))?;
    let place = Place {
        uuid,
        submit_dir: directory.to_string_lossy().into_owned(),
        backend,
        totals: outline.totals(),
    };
    let name_block = |block: &PlanBlock<'_>| names::block(&process.uuid, block.dataset, block.index);
    let mut planned = Planned::new(process, round, &plan, place, name_block, Clock.now());
    planned.process.files = input.counts;
    planned.process.excluded = row.overrides.excluded_files.len() as u64;
    planned.process.extent = rounds::extent(&request, &planned.process, &plan);
    experience.record(RoundRecord { round, asked: plan.asked, measured: None });
    planned.process.step_metrics = Some(serde_json::to_value(experience).map_err(lasting)?);
    write_for_backend(world, rows, &request, &planned.run, &outline)?;
    manifests::seal(&directory, &outline).map_err(of_write)?;
    Ok(Some(planned))
}

fn active_runs(world: &World) -> Result<Vec<RunRow>, Trouble> {
    let status = vec![RunStatus::Ready, RunStatus::Submitted, RunStatus::Running, RunStatus::Halted];
    let filter = RunFilter { status, ..RunFilter::default() };
    world.books.request_runs(&filter).map_err(|error| of_store(&error))
}

/// What else its backend wants in the directory of a run. The engine takes its jobs when they are submitted.
fn write_for_backend(
    world: &World,
    rows: &Rows,
    request: &Request,
    run: &RunRow,
    outline: &Outline,
) -> Result<(), Trouble> {
    match run.backend {
        Backend::Engine { .. } => Ok(()),
        Backend::Htcondor { .. } => {
            let paper = Paper {
                directory: Path::new(&run.submit_dir),
                run: &run.uuid,
                workflow: &run.process,
                submission: &submission(world, rows, run),
                banned: &world.closed(&request.request_name).map_err(|error| of_store(&error))?,
            };
            world.backends.condor.write(&paper, outline)
        }
    }
}

fn of_write(error: WriteError) -> Trouble {
    match error {
        WriteError::Io { .. } => passing(error),
        WriteError::Faulty { .. } => lasting(error),
    }
}

/// There is nothing wrong but that nothing is left of the input.
fn is_over(faults: &[PlanFault]) -> bool {
    faults.iter().all(|fault| fault.cause == Cause::Nothing)
}

fn directory(world: &World, request: &str, run: &str) -> Result<PathBuf, Trouble> {
    // Jobs elsewhere are told this path.
    let root = std::path::absolute(&world.options.submit_root).map_err(passing)?;
    Ok(root.join(request).join(run))
}

/// Hands a run to its backend.
fn hand_over(world: &World, rows: &Rows, run: &str) -> Result<News, Trouble> {
    let order = order(world, rows, row_of(rows, run)?)?;
    let backend = world.backends.of(order.run).hand_over(&order)?;
    Ok(News::Submitted { run: run.to_owned(), backend, priority: Some(rows.priority) })
}

fn order<'r>(world: &World, rows: &Rows, run: &'r RunRow) -> Result<Order<'r>, Trouble> {
    let filter = RunFilter { process: Some(run.process.clone()), ..RunFilter::default() };
    let mut others = world.books.request_runs(&filter).map_err(|error| of_store(&error))?;
    others.retain(|other| other.uuid != run.uuid);
    let banned = world.closed_to(&rows.name, run).map_err(|error| of_store(&error))?;
    Ok(Order { run, submission: submission(world, rows, run), others, banned })
}

fn row_of<'r>(rows: &'r Rows, run: &str) -> Result<&'r RunRow, Trouble> {
    rows.run.as_ref().filter(|row| row.uuid == run).ok_or_else(|| lasting("its run is gone"))
}

fn submission(world: &World, rows: &Rows, run: &RunRow) -> Submission {
    let options = &world.options;
    let usual = options.plan.retries;
    let processing = rows.overrides.retry_count.unwrap_or(usual.processing);
    let retries = Retries { counts: plan::Retries { processing, ..usual }, cool_off: options.cool_off };
    let throttles = rows.process.as_ref().map(|process| process.category_throttles.clone());
    // All runs of a round have the directory of its first one, and are runs of one workflow.
    let digest = Path::new(&run.submit_dir).file_name().map(|name| name.to_string_lossy().into_owned());
    Submission {
        name: rows.name.clone(),
        user: options.user.clone(),
        digest: digest.unwrap_or_else(|| run.uuid.clone()),
        directory: run.submit_dir.clone(),
        throttles: throttles.unwrap_or_default(),
        retries,
        max_memory_per_core: options.plan.max_memory_per_core,
        memory_mb: rows.overrides.memory_mb,
        priority: rows.priority,
    }
}

/// Whatever of the run is at its backend is told to end. One that came there unnoticed is first told of.
fn try_stop(world: &World, rows: &Rows, run: &str, reason: &str) -> Result<Vec<News>, Trouble> {
    let order = order(world, rows, row_of(rows, run)?)?;
    let stopped = |there| News::Stopped { run: run.to_owned(), there };
    Ok(match world.backends.of(order.run).stop(&order, reason)? {
        Stop::Told(backend) => {
            vec![News::Submitted { run: run.to_owned(), backend, priority: None }, stopped(true)]
        }
        Stop::NotThere => vec![stopped(false)],
    })
}

/// What a run is kept from.
#[derive(Clone, Copy)]
enum Restraint {
    None,
    Pause,
    Sites,
}

fn restrain(world: &World, rows: &Rows, run: &str, restraint: Restraint) -> Result<(), Trouble> {
    let run = row_of(rows, run)?;
    let backend = world.backends.of(run);
    match restraint {
        Restraint::None => backend.pause(run, false),
        Restraint::Pause => backend.pause(run, true),
        Restraint::Sites => backend.avoid(&order(world, rows, run)?),
    }
}

/// The jobs of the run that are not over get the priority of the rows.
fn prioritize(world: &World, rows: &Rows, run: &str) -> Result<(), Trouble> {
    let run = row_of(rows, run)?;
    world.backends.of(run).prioritize(&order(world, rows, run)?)
}

/// It is tried again, and only whoever reads the log hears of it.
fn put_off(done: Done, rows: &Rows, trouble: &Trouble) -> Done {
    tracing::warn!(request = rows.name, effect = done.tag, reason = trouble.reason, "not done yet");
    done
}
