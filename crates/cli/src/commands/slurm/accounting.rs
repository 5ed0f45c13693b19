//! `windlass slurm sacct` and `stats`: what Slurm accounting measured for the allocations of a workflow and the
//! jobs in them.

use crate::args::slurm_reports::{SacctArgs, SlurmStatsArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{ListField, ListFields, PAGE_SIZE};
use crate::ui::table::TableColumn;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_api::slurm::SlurmAccountingEntry;
use windlass_api::torc::SlurmStatsModel;
use windlass_slurm::parse::sacct_usage::parse_attempt;
use windlass_slurm::slurm_client::{SlurmClient, SlurmUnavailable};
use windlass_slurm::workflow_accounting::{self, AccountingError};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{Bytes, JobId};

/// The type of these records; Torc stores them under the same one.
const STATS_KIND: &str = "slurm_stats";

const FIELDS: &[ListField<SlurmAccountingEntry>] = &[
    ListField::new("allocation_id", |row: &SlurmAccountingEntry| row.allocation_id.into())
        .column(TableColumn::number("ID")),
    ListField::new("slurm_job_id", |row: &SlurmAccountingEntry| row.slurm_job_id.into()),
    ListField::new("step", |row: &SlurmAccountingEntry| row.step.clone().into()),
    ListField::table_only(TableColumn::text("SLURM"), |row: &SlurmAccountingEntry| {
        let id = row.slurm_job_id;
        row.step.as_ref().map_or_else(|| id.to_string(), |step| format!("{id}.{step}")).into()
    }),
    ListField::new("job_id", |row: &SlurmAccountingEntry| row.job_id.into()),
    ListField::new("job_name", |row: &SlurmAccountingEntry| row.job_name.clone().into())
        .column(TableColumn::flexible("JOB")),
    ListField::new("state", |row: &SlurmAccountingEntry| (&row.state).into())
        .column(TableColumn::flexible("STATE")),
    ListField::new("exit_code", |row: &SlurmAccountingEntry| row.exit_code.clone().into())
        .column(TableColumn::text("EXIT")),
    ListField::new("started_at", |row: &SlurmAccountingEntry| row.started_at.clone().into()),
    ListField::new("ended_at", |row: &SlurmAccountingEntry| row.ended_at.clone().into()),
    ListField::new("elapsed_seconds", |row: &SlurmAccountingEntry| {
        seconds_to_duration(row.elapsed_seconds).into()
    })
    .column(TableColumn::number("ELAPSED")),
    ListField::new("cpus", |row: &SlurmAccountingEntry| row.cpus.into()).column(TableColumn::number("CPUS")),
    ListField::new("total_cpu_seconds", |row: &SlurmAccountingEntry| {
        seconds_to_duration(row.total_cpu_seconds).into()
    })
    .column(TableColumn::number("CPU TIME")),
    ListField::new("ave_cpu_seconds", |row: &SlurmAccountingEntry| {
        seconds_to_duration(row.ave_cpu_seconds).into()
    }),
    ListField::new("max_rss_bytes", |row: &SlurmAccountingEntry| row.max_rss_bytes.map(Bytes).into())
        .column(TableColumn::number("MAX RSS")),
    ListField::new("ave_rss_bytes", |row: &SlurmAccountingEntry| row.ave_rss_bytes.map(Bytes).into()),
    ListField::new("max_vm_size_bytes", |row: &SlurmAccountingEntry| row.max_vm_size_bytes.map(Bytes).into()),
    ListField::new("max_disk_read_bytes", |row: &SlurmAccountingEntry| {
        row.max_disk_read_bytes.map(Bytes).into()
    }),
    ListField::new("max_disk_write_bytes", |row: &SlurmAccountingEntry| {
        row.max_disk_write_bytes.map(Bytes).into()
    }),
    ListField::new("node_list", |row: &SlurmAccountingEntry| row.node_list.clone().into())
        .column(TableColumn::flexible("NODES")),
    ListField::new("name", |row: &SlurmAccountingEntry| (&row.name).into()),
];

fn seconds_to_duration(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

pub(crate) fn show_sacct(ctx: &CliContext, args: &SacctArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    let rows = query_accounting(ctx, &*store, &workflow)?;
    if args.save_json {
        let directory = ctx.cwd.join(&args.output_dir);
        let path = directory.join(format!("sacct_wf{}.json", workflow.id));
        let failed = |e: std::io::Error| CliError::io(format!("cannot write {}: {e}", path.display()));
        std::fs::create_dir_all(&directory).map_err(failed)?;
        let text = serde_json::to_string_pretty(&rows).map_err(|e| CliError::internal(e.to_string()))?;
        std::fs::write(&path, text + "\n").map_err(failed)?;
        ctx.ui.print_note(&format!("wrote {}", path.display()));
    }
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)? == 0 {
        ctx.ui.print_note(&format!(
            "Slurm accounting has no records for workflow {} ({}); they may be some seconds late",
            workflow.id, workflow.name
        ));
    }
    Ok(CliExit::Success)
}

/// Accounting records of all allocations of the workflow. If a server polls Slurm, it is asked, so that all
/// queries share one budget; otherwise Slurm is queried from here.
fn query_accounting(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Vec<SlurmAccountingEntry>, CliError> {
    if let Some(client) = ctx.server()?
        && client.slurm_status()?.reconciler.is_some()
    {
        return Ok(client.slurm_accounting(workflow.id)?);
    }
    workflow_accounting::load_workflow_accounting(&SlurmClient::unlimited(), store, workflow.id).map_err(
        |why| {
            let hint = why.render_hint();
            let error = match why {
                AccountingError::Store(error) => return error.into(),
                AccountingError::Unknown(SlurmUnavailable::NotStarted { .. }) | AccountingError::Disabled => {
                    CliError::user(why.to_string())
                }
                AccountingError::Refused(_) | AccountingError::Unknown(_) => CliError::io(why.to_string()),
            };
            match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        },
    )
}

struct SlurmStatsRow {
    name: Option<String>,
    stats: SlurmStatsModel,
}

const STATS_FIELDS: &[ListField<SlurmStatsRow>] = &[
    ListField::new("job_id", |row: &SlurmStatsRow| row.stats.job_id.into()).column(TableColumn::number("ID")),
    ListField::new("job_name", |row: &SlurmStatsRow| row.name.clone().into())
        .column(TableColumn::flexible("JOB")),
    ListField::new("run_id", |row: &SlurmStatsRow| row.stats.run_id.into())
        .column(TableColumn::number("RUN")),
    ListField::new("attempt_id", |row: &SlurmStatsRow| row.stats.attempt_id.into())
        .column(TableColumn::number("ATTEMPT")),
    ListField::new("slurm_job_id", |row: &SlurmStatsRow| row.stats.slurm_job_id.clone().into())
        .column(TableColumn::text("SLURM")),
    ListField::new("max_rss_bytes", |row: &SlurmStatsRow| bytes_from_signed(row.stats.max_rss_bytes).into())
        .column(TableColumn::number("MAX RSS")),
    ListField::new("max_vm_size_bytes", |row: &SlurmStatsRow| {
        bytes_from_signed(row.stats.max_vm_size_bytes).into()
    }),
    ListField::new("max_disk_read_bytes", |row: &SlurmStatsRow| {
        bytes_from_signed(row.stats.max_disk_read_bytes).into()
    })
    .column(TableColumn::number("READ")),
    ListField::new("max_disk_write_bytes", |row: &SlurmStatsRow| {
        bytes_from_signed(row.stats.max_disk_write_bytes).into()
    })
    .column(TableColumn::number("WRITTEN")),
    ListField::new("ave_cpu_seconds", |row: &SlurmStatsRow| row.stats.ave_cpu_seconds.into())
        .column(TableColumn::number("CPU S")),
    ListField::new("node_list", |row: &SlurmStatsRow| row.stats.node_list.clone().into())
        .column(TableColumn::text("NODES")),
];

fn bytes_from_signed(bytes: Option<i64>) -> Option<Bytes> {
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes)
}

pub(crate) fn show_stats(ctx: &CliContext, args: &SlurmStatsArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let listing = ListFields::new(STATS_FIELDS).without_fields(&args.page.exclude)?;
    let mut kept = load_saved_stats(ctx, &*store, &workflow)?;
    match query_accounting(ctx, &*store, &workflow) {
        Ok(accounts) => kept.extend(save_new_stats(ctx, &*store, &workflow, &kept, &accounts)?),
        // Stored records are shown anyway.
        Err(why) if !kept.is_empty() => ctx.ui.print_warning(&format!("cannot query new records: {why}")),
        Err(why) => return Err(why),
    }
    let names =
        workflow_accounting::load_job_names(&*store, workflow.id, kept.iter().map(|one| JobId(one.job_id)))?;
    let stat = |of: SlurmStatsModel| SlurmStatsRow { name: names.get(&JobId(of.job_id)).cloned(), stats: of };
    let rows = kept.into_iter().map(stat).collect();
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)? == 0 {
        ctx.ui.print_note(&format!(
            "no job of workflow {} ({}) ran as a Slurm step; `execution_config: {{mode: slurm}}` runs jobs as steps, and \
             `windlass jobs results` shows the measurements of the workers",
            workflow.id, workflow.name
        ));
    }
    Ok(CliExit::Success)
}

/// The key under which Torc clients store the statistics.
const STATS_PATH: &str = "/torc-service/v1/slurm_stats";

#[derive(Deserialize)]
struct SlurmStatsPage {
    items: Vec<SlurmStatsModel>,
    has_more: bool,
}

fn load_saved_stats(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Vec<SlurmStatsModel>, CliError> {
    let Some(client) = ctx.server()? else {
        let records = store.records(Some(workflow.id), STATS_KIND)?;
        // Records written by other clients in an unknown format are left alone.
        return Ok(records
            .into_iter()
            .filter_map(|record| serde_json::from_value(record.data).ok())
            .collect());
    };
    let mut all = Vec::new();
    loop {
        let path = format!("{STATS_PATH}?workflow_id={}&offset={}&limit={PAGE_SIZE}", workflow.id, all.len());
        let page: SlurmStatsPage = client.get(&path)?;
        let is_last = !page.has_more || page.items.is_empty();
        all.extend(page.items);
        if is_last {
            return Ok(all);
        }
    }
}

/// Stores new records of steps that have ended.
fn save_new_stats(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
    kept: &[SlurmStatsModel],
    accounts: &[SlurmAccountingEntry],
) -> Result<Vec<SlurmStatsModel>, CliError> {
    let mut known: BTreeSet<_> = kept.iter().map(|one| (one.job_id, one.run_id, one.attempt_id)).collect();
    let mut new = Vec::new();
    for account in accounts.iter().filter(|account| account.ended_at.is_some()) {
        let Some(model) = stats_from_account(account).filter(|model| model.workflow_id == workflow.id.0)
        else {
            continue;
        };
        if known.insert((model.job_id, model.run_id, model.attempt_id)) {
            if let Some(client) = ctx.server()? {
                client.post::<Value>(STATS_PATH, &model)?;
            } else {
                let data = serde_json::to_value(&model).map_err(|e| CliError::internal(e.to_string()))?;
                store.add_record(Some(workflow.id), STATS_KIND, None, &data, ctx.clock.now())?;
            }
            new.push(model);
        }
    }
    Ok(new)
}

fn stats_from_account(account: &SlurmAccountingEntry) -> Option<SlurmStatsModel> {
    let key = parse_attempt(account)?;
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
