//! `windlass slurm sacct` and `stats`: what Slurm's accounting measured of a workflow's allocations and of the jobs in them.

use crate::args::slurm_reports::{SacctArgs, StatsArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing, PAGE};
use crate::ui::table::Column;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_api::slurm::SlurmAccount;
use windlass_api::torc::SlurmStatsModel;
use windlass_slurm::accounts::{self, NoAccounts};
use windlass_slurm::calls::{Slurm, Unknown};
use windlass_slurm::read::accounts::attempt;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{Bytes, JobId};

/// As records of this kind Torc keeps it, too.
const KIND: &str = "slurm_stats";

const FIELDS: &[Field<SlurmAccount>] = &[
    Field::new("allocation_id", |row: &SlurmAccount| row.allocation_id.into()).column(Column::number("ID")),
    Field::new("slurm_job_id", |row: &SlurmAccount| row.slurm_job_id.into()),
    Field::new("step", |row: &SlurmAccount| row.step.clone().into()),
    Field::shown(Column::text("SLURM"), |row: &SlurmAccount| {
        let id = row.slurm_job_id;
        row.step.as_ref().map_or_else(|| id.to_string(), |step| format!("{id}.{step}")).into()
    }),
    Field::new("job_id", |row: &SlurmAccount| row.job_id.into()),
    Field::new("job_name", |row: &SlurmAccount| row.job_name.clone().into()).column(Column::elastic("JOB")),
    Field::new("state", |row: &SlurmAccount| (&row.state).into()).column(Column::elastic("STATE")),
    Field::new("exit_code", |row: &SlurmAccount| row.exit_code.clone().into()).column(Column::text("EXIT")),
    Field::new("started_at", |row: &SlurmAccount| row.started_at.clone().into()),
    Field::new("ended_at", |row: &SlurmAccount| row.ended_at.clone().into()),
    Field::new("elapsed_seconds", |row: &SlurmAccount| span(row.elapsed_seconds).into())
        .column(Column::number("ELAPSED")),
    Field::new("cpus", |row: &SlurmAccount| row.cpus.into()).column(Column::number("CPUS")),
    Field::new("total_cpu_seconds", |row: &SlurmAccount| span(row.total_cpu_seconds).into())
        .column(Column::number("CPU TIME")),
    Field::new("ave_cpu_seconds", |row: &SlurmAccount| span(row.ave_cpu_seconds).into()),
    Field::new("max_rss_bytes", |row: &SlurmAccount| row.max_rss_bytes.map(Bytes).into())
        .column(Column::number("MAX RSS")),
    Field::new("ave_rss_bytes", |row: &SlurmAccount| row.ave_rss_bytes.map(Bytes).into()),
    Field::new("max_vm_size_bytes", |row: &SlurmAccount| row.max_vm_size_bytes.map(Bytes).into()),
    Field::new("max_disk_read_bytes", |row: &SlurmAccount| row.max_disk_read_bytes.map(Bytes).into()),
    Field::new("max_disk_write_bytes", |row: &SlurmAccount| row.max_disk_write_bytes.map(Bytes).into()),
    Field::new("node_list", |row: &SlurmAccount| row.node_list.clone().into())
        .column(Column::elastic("NODES")),
    Field::new("name", |row: &SlurmAccount| (&row.name).into()),
];

fn span(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

pub(crate) fn sacct(ctx: &Context, args: &SacctArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let rows = ask(ctx, &*store, &workflow)?;
    if args.save_json {
        let directory = ctx.cwd.join(&args.output_dir);
        let path = directory.join(format!("sacct_wf{}.json", workflow.id));
        let failed = |e: std::io::Error| CliError::io(format!("cannot write {}: {e}", path.display()));
        std::fs::create_dir_all(&directory).map_err(failed)?;
        let text = serde_json::to_string_pretty(&rows).map_err(|e| CliError::internal(e.to_string()))?;
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

/// What accounting has of all allocations of the workflow that Slurm has seen. A server that asks Slurm is asked, so that all
/// questions come from one budget; otherwise Slurm is asked from here.
fn ask(ctx: &Context, store: &dyn Store, workflow: &WorkflowRow) -> Result<Vec<SlurmAccount>, CliError> {
    if let Some(client) = ctx.server()?
        && client.slurm_status()?.steward.is_some()
    {
        return Ok(client.slurm_accounts(workflow.id)?);
    }
    accounts::of_workflow(&Slurm::by_hand(), store, workflow.id).map_err(|why| {
        let hint = why.hint();
        let error = match why {
            NoAccounts::Books(error) => return error.into(),
            NoAccounts::Unknown(Unknown::NotStarted { .. }) | NoAccounts::Disabled => {
                CliError::user(why.to_string())
            }
            NoAccounts::Refused(_) | NoAccounts::Unknown(_) => CliError::io(why.to_string()),
        };
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    })
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
    let mut kept = kept(ctx, &*store, &workflow)?;
    match ask(ctx, &*store, &workflow) {
        Ok(accounts) => kept.extend(keep(ctx, &*store, &workflow, &kept, &accounts)?),
        // What was kept is shown all the same.
        Err(why) if !kept.is_empty() => ctx.ui.warn(&format!("what is new is not known: {why}")),
        Err(why) => return Err(why),
    }
    let names = accounts::names(&*store, workflow.id, kept.iter().map(|one| JobId(one.job_id)))?;
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

/// Where clients of Torc keep it, too.
const STATS_PATH: &str = "/torc-service/v1/slurm_stats";

#[derive(Deserialize)]
struct StatsPage {
    items: Vec<SlurmStatsModel>,
    has_more: bool,
}

fn kept(ctx: &Context, store: &dyn Store, workflow: &WorkflowRow) -> Result<Vec<SlurmStatsModel>, CliError> {
    let Some(client) = ctx.server()? else {
        let records = store.records(Some(workflow.id), KIND)?;
        // What a client wrote and nobody can read is left alone.
        return Ok(records
            .into_iter()
            .filter_map(|record| serde_json::from_value(record.data).ok())
            .collect());
    };
    let mut all = Vec::new();
    loop {
        let path = format!("{STATS_PATH}?workflow_id={}&offset={}&limit={PAGE}", workflow.id, all.len());
        let page: StatsPage = client.get(&path)?;
        let is_last = !page.has_more || page.items.is_empty();
        all.extend(page.items);
        if is_last {
            return Ok(all);
        }
    }
}

/// Keeps what is not there yet of steps that are over.
fn keep(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
    kept: &[SlurmStatsModel],
    accounts: &[SlurmAccount],
) -> Result<Vec<SlurmStatsModel>, CliError> {
    let mut known: BTreeSet<_> = kept.iter().map(|one| (one.job_id, one.run_id, one.attempt_id)).collect();
    let mut new = Vec::new();
    for account in accounts.iter().filter(|account| account.ended_at.is_some()) {
        let Some(model) = measured(account).filter(|model| model.workflow_id == workflow.id.0) else {
            continue;
        };
        if known.insert((model.job_id, model.run_id, model.attempt_id)) {
            if let Some(client) = ctx.server()? {
                client.post::<Value>(STATS_PATH, &model)?;
            } else {
                let data = serde_json::to_value(&model).map_err(|e| CliError::internal(e.to_string()))?;
                store.add_record(Some(workflow.id), KIND, None, &data, ctx.clock.now())?;
            }
            new.push(model);
        }
    }
    Ok(new)
}

fn measured(account: &SlurmAccount) -> Option<SlurmStatsModel> {
    let key = attempt(account)?;
    let bytes = |size: Option<u64>| size.and_then(|size| i64::try_from(size).ok());
    Some(SlurmStatsModel {
        id: None,
        workflow_id: key.workflow.0,
        job_id: key.job.0,
        run_id: key.run.0,
        attempt_id: i64::from(key.attempt.0),
        ave_cpu_seconds: account.ave_cpu_seconds,
        max_disk_read_bytes: bytes(account.max_disk_read_bytes),
        max_disk_write_bytes: bytes(account.max_disk_write_bytes),
        max_rss_bytes: bytes(account.max_rss_bytes),
        max_vm_size_bytes: bytes(account.max_vm_size_bytes),
        node_list: account.node_list.clone(),
        slurm_job_id: Some(account.slurm_job_id.to_string()),
    })
}
