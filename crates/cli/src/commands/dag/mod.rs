//! `windlass request dag`: runs of requests, and DAGs in directories.

mod directory;
mod fields;

pub(crate) use directory::resubmit_hint;

use crate::args::dag::{
    DagArgs, DagListArgs, DagLogsArgs, DagNodesArgs, DagReasonArgs, DagRemoveArgs, DagSubcommand as Verb,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::{DagOperation, RequestService};
use crate::ui::listing::ListFields;
use directory::DagDirectory;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use windlass_api::requests::{DagLogs, RequestDag};
use windlass_client::{DagListOptions, DagNodeListOptions};
use windlass_insight::log_tail::skip_to_last_lines;
use windlass_server::requests::dags::DagLogSelector;

pub(crate) fn run(ctx: &CliContext, args: &DagArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None => list_dags(ctx, &args.list),
        Some(Verb::List(args)) => list_dags(ctx, args),
        Some(Verb::Show(args)) => match DagTarget::resolve(ctx, &args.dag)? {
            DagTarget::Directory(directory) => directory.show_dag(ctx),
            DagTarget::Run(requests, id) => show_dag(ctx, &requests, &id),
        },
        Some(Verb::Nodes(args)) => list_nodes(ctx, args),
        Some(Verb::Logs(args)) => show_logs(ctx, args),
        Some(Verb::Hold(args)) => perform_operation(ctx, args, DagOperation::Hold),
        Some(Verb::Release(args)) => perform_operation(ctx, args, DagOperation::Release),
        Some(Verb::Remove(args)) => remove_dag(ctx, args),
        Some(Verb::Rescue(args)) => perform_operation(ctx, args, DagOperation::Rescue),
    }
}

/// The object of a command.
enum DagTarget {
    /// A DAG without a database.
    Directory(DagDirectory),
    /// A run of a request, by its id.
    Run(RequestService, String),
}

impl DagTarget {
    fn resolve(ctx: &CliContext, reference: &str) -> Result<Self, CliError> {
        if let Some(directory) = DagDirectory::open(&ctx.cwd.join(reference)) {
            return Ok(Self::Directory(directory));
        }
        let requests = ctx.request_service_read()?;
        let id = resolve_dag_id(&requests, reference)?;
        Ok(Self::Run(requests, id))
    }
}

/// The given id, or the id of the newest run of a request.
fn resolve_dag_id(requests: &RequestService, reference: &str) -> Result<String, CliError> {
    let groups: Vec<usize> = reference.split('-').map(str::len).collect();
    if groups == [8, 4, 4, 4, 12] && reference.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()) {
        return Ok(reference.to_owned());
    }
    let status = super::request::suggest_request(requests, reference, requests.request_status(reference))?;
    let dag = status.dag.ok_or_else(|| {
        CliError::refused(format!("request {reference} has no run yet"))
            .with_hint(format!("`windlass request show {reference}` shows what it is waiting for"))
    })?;
    Ok(dag.id)
}

fn list_dags(ctx: &CliContext, args: &DagListArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let workflow = match &args.request {
        None => None,
        Some(name) => {
            Some(super::request::suggest_request(&requests, name, requests.request_status(name))?.workflow_id)
        }
    };
    if workflow == Some(None) {
        ctx.ui.print_note("the request has no runs yet");
        ctx.ui.print_list(&ListFields::new(fields::DAG_LIST_FIELDS), Vec::new())?;
        return Ok(CliExit::Success);
    }
    let query = DagListOptions {
        status: args.status.clone(),
        workflow: workflow.flatten(),
        offset: args.offset,
        limit: Some(args.limit),
    };
    let found = requests.list_dags(&query)?.items;
    if found.is_empty() {
        ctx.ui.print_note("no runs match");
    }
    let shown = found.len() as u64;
    ctx.ui.print_list(&ListFields::new(fields::DAG_LIST_FIELDS), found)?;
    if shown == args.limit {
        ctx.ui.print_note("there may be more; use --limit and --offset");
    }
    Ok(CliExit::Success)
}

fn show_dag(ctx: &CliContext, requests: &RequestService, id: &str) -> Result<CliExit, CliError> {
    let dag = requests.get_dag(id)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&dag)?;
        return Ok(CliExit::Success);
    }
    let (history, held) = (dag.history.clone(), dag.held.clone());
    let hint = next_step_hint(&dag);
    ctx.ui.print_record(&ListFields::new(fields::DAG_DETAIL_FIELDS), dag)?;
    print_held_reasons(ctx, &held)?;
    if !history.is_empty() {
        ctx.ui.print_line("")?;
        ctx.ui.print_list(&ListFields::new(fields::HISTORY_FIELDS), history)?;
    }
    if let Some(hint) = hint {
        ctx.ui.print_note(&hint);
    }
    Ok(CliExit::Success)
}

fn print_held_reasons(ctx: &CliContext, held: &[String]) -> Result<(), CliError> {
    if !held.is_empty() {
        ctx.ui.print_line("")?;
    }
    for one in held {
        ctx.ui.print_line(one)?;
    }
    Ok(())
}

/// The likely next command.
fn next_step_hint(dag: &RequestDag) -> Option<String> {
    use windlass_types::requests::RequestRunStatus;
    match dag.status {
        RequestRunStatus::Halted => Some(format!("`windlass request dag release {}` releases it", dag.id)),
        RequestRunStatus::Partial | RequestRunStatus::Failed => Some(format!(
            "`windlass request dag nodes {0} --status failed` lists the failed nodes; `windlass request dag rescue {0}` reruns them",
            dag.id
        )),
        _ => None,
    }
}

fn list_nodes(ctx: &CliContext, args: &DagNodesArgs) -> Result<CliExit, CliError> {
    let items = match DagTarget::resolve(ctx, &args.target.dag)? {
        DagTarget::Directory(directory) => directory.list_nodes(args)?,
        DagTarget::Run(requests, id) => {
            let query = DagNodeListOptions {
                status: args.status.clone(),
                unit: args.unit,
                offset: args.offset,
                limit: Some(args.limit),
            };
            requests.dag_nodes(&id, &query)?.items
        }
    };
    if items.is_empty() {
        ctx.ui.print_note("no nodes match, or none have started");
    }
    ctx.ui.print_list(&ListFields::new(fields::NODE_FIELDS), items)?;
    Ok(CliExit::Success)
}

fn show_logs(ctx: &CliContext, args: &DagLogsArgs) -> Result<CliExit, CliError> {
    let which = DagLogSelector { unit: args.unit, node: args.node.clone() };
    let found = match DagTarget::resolve(ctx, &args.target.dag)? {
        DagTarget::Directory(directory) => directory.list_logs(&which)?,
        DagTarget::Run(requests, id) => requests.dag_logs(&id, &which)?,
    };
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&found)?;
        return Ok(CliExit::Success);
    }
    // Jobs of the engine have other commands, as the message says.
    if which.node.is_some() && found.files.is_empty() && found.engine_workflow_id.is_none() {
        let hint = format!("`windlass request dag nodes {}` lists nodes", args.target.dag);
        return Err(CliError::user(found.message).with_hint(hint));
    }
    ctx.ui.print_note(&found.message);
    for place in log_paths(&found) {
        ctx.ui.print_line(place)?;
        if let Some(lines) = args.tail {
            print_tail(ctx, Path::new(place), lines)?;
        }
    }
    Ok(CliExit::Success)
}

fn log_paths(found: &DagLogs) -> Vec<&str> {
    if found.files.is_empty() {
        return vec![found.log_dir.as_deref().unwrap_or(&found.submit_dir)];
    }
    found.files.iter().map(String::as_str).collect()
}

fn print_tail(ctx: &CliContext, path: &Path, lines: usize) -> Result<(), CliError> {
    match read_last_lines(path, lines) {
        Ok(text) => {
            for line in text.lines() {
                ctx.ui.print_line(&format!("  {line}"))?;
            }
        }
        Err(error) => ctx.ui.print_note(&format!("cannot read {} on this host: {error}", path.display())),
    }
    Ok(())
}

fn read_last_lines(path: &Path, lines: usize) -> io::Result<String> {
    let mut file = File::open(path)?;
    skip_to_last_lines(&mut file, lines)?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

fn perform_operation(
    ctx: &CliContext,
    args: &DagReasonArgs,
    verb: DagOperation,
) -> Result<CliExit, CliError> {
    if let Some(directory) = DagDirectory::open(&ctx.cwd.join(&args.target.dag)) {
        return directory.perform_operation(ctx, verb, &args.reason);
    }
    let requests = ctx.request_service()?;
    let id = resolve_dag_id(&requests, &args.target.dag)?;
    let done = requests.act_on_dag(&id, verb, &args.reason)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&done)?;
    }
    ctx.ui.print_note(&format!("{}: {}", done.request_name, done.message));
    Ok(CliExit::Success)
}

fn remove_dag(ctx: &CliContext, args: &DagRemoveArgs) -> Result<CliExit, CliError> {
    let what = format!("remove the run {}", args.removal.target.dag);
    if args.confirm.dry_run {
        ctx.ui.print_note(&format!("would {what}"));
        return Ok(CliExit::Success);
    }
    ctx.ui.confirm(&what, args.confirm)?;
    perform_operation(ctx, &args.removal, DagOperation::Remove)
}
