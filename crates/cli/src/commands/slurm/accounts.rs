//! `windlass slurm sacct` and `stats`: what Slurm's accounting measured of a workflow's allocations and of the jobs in them.

use super::usage;
use crate::args::slurm_reports::{SacctArgs, StatsArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use windlass_api::torc::SlurmStatsModel;
use windlass_slurm::calls::{Outcome, Slurm, SlurmOptions, Unknown};
use windlass_slurm::read::accounts::Account;
use windlass_store::Store;
use windlass_store::model::{JobFilter, WorkflowRow};
use windlass_types::{Bytes, JobId};

/// As records of this kind Torc keeps it, too.
const KIND: &str = "slurm_stats";

struct Row {
    allocation: Option<i64>,
    job: Option<String>,
    account: Account,
}

const FIELDS: &[Field<Row>] = &[
    Field::new("allocation_id", |row: &Row| row.allocation.into()).column(Column::number("ID")),
    Field::new("slurm_job_id", |row: &Row| row.account.slurm_job_id.into()),
    Field::new("step", |row: &Row| row.account.step.clone().into()),
    Field::shown(Column::text("SLURM"), |row: &Row| {
        let id = row.account.slurm_job_id;
        row.account.step.as_ref().map_or_else(|| id.to_string(), |step| format!("{id}.{step}")).into()
    }),
    Field::new("job_name", |row: &Row| row.job.clone().into()).column(Column::elastic("JOB")),
    Field::new("state", |row: &Row| (&row.account.state).into()).column(Column::text("STATE")),
    Field::new("exit_code", |row: &Row| row.account.exit_code.clone().into()).column(Column::text("EXIT")),
    Field::new("started_at", |row: &Row| row.account.started_at.into()),
    Field::new("ended_at", |row: &Row| row.account.ended_at.into()),
    Field::new("elapsed_seconds", |row: &Row| row.account.elapsed.into()).column(Column::number("ELAPSED")),
    Field::new("cpus", |row: &Row| row.account.cpus.into()).column(Column::number("CPUS")),
    Field::new("total_cpu_seconds", |row: &Row| row.account.total_cpu.into())
        .column(Column::number("CPU TIME")),
    Field::new("ave_cpu_seconds", |row: &Row| row.account.average_cpu.into()),
    Field::new("max_rss_bytes", |row: &Row| row.account.max_rss.into()).column(Column::number("MAX RSS")),
    Field::new("ave_rss_bytes", |row: &Row| row.account.average_rss.into()),
    Field::new("max_vm_size_bytes", |row: &Row| row.account.max_vm.into()),
    Field::new("max_disk_read_bytes", |row: &Row| row.account.max_disk_read.into()),
    Field::new("max_disk_write_bytes", |row: &Row| row.account.max_disk_write.into()),
    Field::new("node_list", |row: &Row| row.account.nodes.clone().into()).column(Column::text("NODES")),
    Field::new("name", |row: &Row| (&row.account.name).into()),
];

pub(crate) fn sacct(ctx: &Context, args: &SacctArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let rows = rows(&*store, &workflow, ask(&*store, &workflow)?)?;
    if args.save_json {
        let directory = ctx.cwd.join(&args.output_dir);
        let path = directory.join(format!("sacct_wf{}.json", workflow.id));
        let failed = |e: std::io::Error| CliError::io(format!("cannot write {}: {e}", path.display()));
        std::fs::create_dir_all(&directory).map_err(failed)?;
        let accounts: Vec<&Account> = rows.iter().map(|row| &row.account).collect();
        let text = serde_json::to_string_pretty(&accounts).map_err(|e| CliError::internal(e.to_string()))?;
        std::fs::write(&path, text + "\n").map_err(failed)?;
        ctx.ui.note(&format!("wrote {}", path.display()));
    }
    if ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)? == 0 {
        ctx.ui.note(&format!(
            "Slurm's accounting has nothing about workflow {} ({}); it may be some seconds late",
            workflow.id, workflow.name
        ));
    }
    Ok(Exit::Success)
}

/// What accounting has of all allocations of the workflow that Slurm has seen.
fn ask(store: &dyn Store, workflow: &WorkflowRow) -> Result<Vec<Account>, CliError> {
    let ids: Vec<u64> = usage::of(store, workflow)?.iter().filter_map(|one| one.job_id).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    match Slurm::new(SlurmOptions::default()).accounts(&ids) {
        Outcome::Answered(Some(rows)) => Ok(rows),
        Outcome::Answered(None) => {
            Err(CliError::user("this cluster keeps no accounts: accounting is disabled")
                .with_hint("`windlass slurm usage` shows what Windlass itself knows"))
        }
        Outcome::Refused(said) => Err(CliError::user(format!("sacct failed: {}", said.trim()))),
        Outcome::Unknown(why @ Unknown::NotStarted { .. }) => Err(CliError::user(why.to_string())
            .with_hint("run this on a login node; `windlass slurm usage` works everywhere")),
        Outcome::Unknown(why) => Err(CliError::io(why.to_string())),
    }
}

fn rows(store: &dyn Store, workflow: &WorkflowRow, accounts: Vec<Account>) -> Result<Vec<Row>, CliError> {
    let allocations: BTreeMap<u64, i64> =
        usage::of(store, workflow)?.iter().filter_map(|one| Some((one.job_id?, one.id.0))).collect();
    let names = names(store, workflow, accounts.iter().filter_map(Account::attempt).map(|key| key.job))?;
    let row = |account: Account| Row {
        allocation: allocations.get(&account.slurm_job_id).copied(),
        job: account.attempt().and_then(|key| names.get(&key.job).cloned()),
        account,
    };
    Ok(accounts.into_iter().map(row).collect())
}

/// So many ids are asked for at once.
const CHUNK: usize = 500;

fn names(
    store: &dyn Store,
    workflow: &WorkflowRow,
    jobs: impl Iterator<Item = JobId>,
) -> Result<BTreeMap<JobId, String>, CliError> {
    let wanted: Vec<JobId> = jobs.collect::<BTreeSet<_>>().into_iter().collect();
    let mut names = BTreeMap::new();
    for ids in wanted.chunks(CHUNK) {
        let filter = JobFilter { ids: ids.to_vec(), ..JobFilter::default() };
        names.extend(store.jobs(workflow.id, &filter)?.into_iter().map(|job| (job.id, job.name)));
    }
    Ok(names)
}

struct Stat {
    name: Option<String>,
    of: SlurmStatsModel,
}

const STATS: &[Field<Stat>] = &[
    Field::new("job_id", |row: &Stat| row.of.job_id.into()).column(Column::number("ID")),
    Field::new("job_name", |row: &Stat| row.name.clone().into()).column(Column::elastic("JOB")),
    Field::new("run_id", |row: &Stat| row.of.run_id.into()).column(Column::number("RUN")),
    Field::new("attempt_id", |row: &Stat| row.of.attempt_id.into()).column(Column::number("ATTEMPT")),
    Field::new("slurm_job_id", |row: &Stat| row.of.slurm_job_id.clone().into()).column(Column::text("SLURM")),
    Field::new("max_rss_bytes", |row: &Stat| size(row.of.max_rss_bytes).into())
        .column(Column::number("MAX RSS")),
    Field::new("max_vm_size_bytes", |row: &Stat| size(row.of.max_vm_size_bytes).into()),
    Field::new("max_disk_read_bytes", |row: &Stat| size(row.of.max_disk_read_bytes).into())
        .column(Column::number("READ")),
    Field::new("max_disk_write_bytes", |row: &Stat| size(row.of.max_disk_write_bytes).into())
        .column(Column::number("WRITTEN")),
    Field::new("ave_cpu_seconds", |row: &Stat| row.of.ave_cpu_seconds.into()).column(Column::number("CPU S")),
    Field::new("node_list", |row: &Stat| row.of.node_list.clone().into()).column(Column::text("NODES")),
];

fn size(bytes: Option<i64>) -> Option<Bytes> {
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes)
}

pub(crate) fn stats(ctx: &Context, args: &StatsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let listing = Listing::new(STATS).without(&args.page.exclude)?;
    let mut kept = kept(&*store, &workflow)?;
    match ask(&*store, &workflow) {
        Ok(accounts) => kept.extend(keep(ctx, &*store, &workflow, &kept, &accounts)?),
        // What was kept is shown all the same.
        Err(why) if !kept.is_empty() => ctx.ui.warn(&format!("what is new is not known: {why}")),
        Err(why) => return Err(why),
    }
    let names = names(&*store, &workflow, kept.iter().map(|one| JobId(one.job_id)))?;
    let stat = |of: SlurmStatsModel| Stat { name: names.get(&JobId(of.job_id)).cloned(), of };
    let rows = kept.into_iter().map(stat).collect();
    if ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)? == 0 {
        ctx.ui.note(&format!(
            "no job of workflow {} ({}) ran as a step of Slurm; `execution_config: {{mode: slurm}}` has them run so, and \
             `windlass results` shows what was measured here",
            workflow.id, workflow.name
        ));
    }
    Ok(Exit::Success)
}

fn kept(store: &dyn Store, workflow: &WorkflowRow) -> Result<Vec<SlurmStatsModel>, CliError> {
    let records = store.records(Some(workflow.id), KIND)?;
    // What a client wrote and nobody can read is left alone.
    Ok(records.into_iter().filter_map(|record| serde_json::from_value(record.data).ok()).collect())
}

/// Keeps what is not there yet of steps that are over.
fn keep(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
    kept: &[SlurmStatsModel],
    accounts: &[Account],
) -> Result<Vec<SlurmStatsModel>, CliError> {
    let mut known: BTreeSet<_> = kept.iter().map(|one| (one.job_id, one.run_id, one.attempt_id)).collect();
    let mut new = Vec::new();
    for account in accounts.iter().filter(|account| account.ended_at.is_some()) {
        let Some(model) = measured(account).filter(|model| model.workflow_id == workflow.id.0) else {
            continue;
        };
        if known.insert((model.job_id, model.run_id, model.attempt_id)) {
            let data: Value = serde_json::to_value(&model).map_err(|e| CliError::internal(e.to_string()))?;
            store.add_record(Some(workflow.id), KIND, None, &data, ctx.clock.now())?;
            new.push(model);
        }
    }
    Ok(new)
}

fn measured(account: &Account) -> Option<SlurmStatsModel> {
    let key = account.attempt()?;
    let bytes = |size: Option<Bytes>| size.and_then(|size| i64::try_from(size.0).ok());
    Some(SlurmStatsModel {
        id: None,
        workflow_id: key.workflow.0,
        job_id: key.job.0,
        run_id: key.run.0,
        attempt_id: i64::from(key.attempt.0),
        ave_cpu_seconds: account.average_cpu.map(|time| time.as_secs_f64()),
        max_disk_read_bytes: bytes(account.max_disk_read),
        max_disk_write_bytes: bytes(account.max_disk_write),
        max_rss_bytes: bytes(account.max_rss),
        max_vm_size_bytes: bytes(account.max_vm),
        node_list: account.nodes.clone(),
        slurm_job_id: Some(account.slurm_job_id.to_string()),
    })
}
