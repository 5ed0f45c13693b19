//! `windlass dag`: runs of requests, and DAGs in directories.

mod directory;
mod fields;

pub(crate) use directory::again;

use crate::args::dag::{DagArgs, DagVerb as Verb, ListArgs, LogsArgs, NodesArgs, ReasonArgs, RemoveArgs};
use crate::context::Context;
use crate::desk::{DagVerb, Desk};
use crate::error::{CliError, Exit};
use crate::ui::listing::Listing;
use directory::Directory;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use windlass_api::requests::{Dag, DagLogs};
use windlass_client::{DagQuery, NodeQuery};
use windlass_insight::tail::skip_to_last_lines;
use windlass_server::requests::dags::Which;

pub(crate) fn run(ctx: &Context, args: &DagArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, &args.list),
        Some(Verb::List(args)) => list(ctx, args),
        Some(Verb::Show(args)) => match Subject::of(ctx, &args.dag)? {
            Subject::Directory(directory) => directory.show(ctx),
            Subject::Run(desk, id) => show(ctx, &desk, &id),
        },
        Some(Verb::Nodes(args)) => nodes(ctx, args),
        Some(Verb::Logs(args)) => logs(ctx, args),
        Some(Verb::Hold(args)) => act(ctx, args, DagVerb::Hold),
        Some(Verb::Release(args)) => act(ctx, args, DagVerb::Release),
        Some(Verb::Remove(args)) => remove(ctx, args),
        Some(Verb::Rescue(args)) => act(ctx, args, DagVerb::Rescue),
    }
}

/// What a command is about.
enum Subject {
    /// A DAG that is in no books.
    Directory(Directory),
    /// A run of a request, by its id.
    Run(Desk, String),
}

impl Subject {
    fn of(ctx: &Context, said: &str) -> Result<Self, CliError> {
        if let Some(directory) = Directory::at(&ctx.cwd.join(said)) {
            return Ok(Self::Directory(directory));
        }
        let desk = ctx.desk_to_read()?;
        let id = id_of(&desk, said)?;
        Ok(Self::Run(desk, id))
    }
}

/// The id itself, or that of the newest run of a request.
fn id_of(desk: &Desk, said: &str) -> Result<String, CliError> {
    let groups: Vec<usize> = said.split('-').map(str::len).collect();
    if groups == [8, 4, 4, 4, 12] && said.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()) {
        return Ok(said.to_owned());
    }
    let status = super::request::known(desk, said, desk.status(said))?;
    let dag = status.dag.ok_or_else(|| {
        CliError::refused(format!("request {said} has no run yet"))
            .with_hint(format!("`windlass request show {said}` says what it waits for"))
    })?;
    Ok(dag.id)
}

fn list(ctx: &Context, args: &ListArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let workflow = match &args.request {
        None => None,
        Some(name) => Some(super::request::known(&desk, name, desk.status(name))?.workflow_id),
    };
    if workflow == Some(None) {
        ctx.ui.note("it has no runs yet");
        ctx.ui.print_list(&Listing::new(fields::DAGS), Vec::new())?;
        return Ok(Exit::Success);
    }
    let query = DagQuery {
        status: args.status.clone(),
        workflow: workflow.flatten(),
        offset: args.offset,
        limit: Some(args.limit),
    };
    let found = desk.dags(&query)?.items;
    if found.is_empty() {
        ctx.ui.note("there are no such runs");
    }
    let shown = found.len() as u64;
    ctx.ui.print_list(&Listing::new(fields::DAGS), found)?;
    if shown == args.limit {
        ctx.ui.note("there may be more; --limit and --offset show others");
    }
    Ok(Exit::Success)
}

fn show(ctx: &Context, desk: &Desk, id: &str) -> Result<Exit, CliError> {
    let dag = desk.dag(id)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&dag)?;
        return Ok(Exit::Success);
    }
    let (history, held) = (dag.history.clone(), dag.held.clone());
    let hint = hint(&dag);
    ctx.ui.print_record(&Listing::new(fields::WHOLE), dag)?;
    tell_held(ctx, &held)?;
    if !history.is_empty() {
        ctx.ui.print_line("")?;
        ctx.ui.print_list(&Listing::new(fields::HISTORY), history)?;
    }
    if let Some(hint) = hint {
        ctx.ui.note(&hint);
    }
    Ok(Exit::Success)
}

fn tell_held(ctx: &Context, held: &[String]) -> Result<(), CliError> {
    if !held.is_empty() {
        ctx.ui.print_line("")?;
    }
    for one in held {
        ctx.ui.print_line(one)?;
    }
    Ok(())
}

/// What is likely to be wanted next.
fn hint(dag: &Dag) -> Option<String> {
    use windlass_types::requests::RunStatus;
    match dag.status {
        RunStatus::Halted => Some(format!("`windlass dag release {}` lets it go on", dag.id)),
        RunStatus::Partial | RunStatus::Failed => Some(format!(
            "`windlass dag nodes {0} --status failed` says what failed; `windlass dag rescue {0}` goes on",
            dag.id
        )),
        _ => None,
    }
}

fn nodes(ctx: &Context, args: &NodesArgs) -> Result<Exit, CliError> {
    let items = match Subject::of(ctx, &args.which.dag)? {
        Subject::Directory(directory) => directory.nodes(args)?,
        Subject::Run(desk, id) => {
            let query = NodeQuery {
                status: args.status.clone(),
                unit: args.unit,
                offset: args.offset,
                limit: Some(args.limit),
            };
            desk.dag_nodes(&id, &query)?.items
        }
    };
    if items.is_empty() {
        ctx.ui.note("there are no such nodes, or none that have begun");
    }
    ctx.ui.print_list(&Listing::new(fields::NODES), items)?;
    Ok(Exit::Success)
}

fn logs(ctx: &Context, args: &LogsArgs) -> Result<Exit, CliError> {
    let which = Which { unit: args.unit, node: args.node.clone() };
    let found = match Subject::of(ctx, &args.which.dag)? {
        Subject::Directory(directory) => directory.logs(&which)?,
        Subject::Run(desk, id) => desk.dag_logs(&id, &which)?,
    };
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&found)?;
        return Ok(Exit::Success);
    }
    // Jobs of the engine are asked about otherwise, as the message says.
    if which.node.is_some() && found.files.is_empty() && found.engine_workflow_id.is_none() {
        let hint = format!("`windlass dag nodes {}` lists nodes", args.which.dag);
        return Err(CliError::user(found.message).with_hint(hint));
    }
    ctx.ui.note(&found.message);
    for place in places(&found) {
        ctx.ui.print_line(place)?;
        if let Some(lines) = args.tail {
            print_end(ctx, Path::new(place), lines)?;
        }
    }
    Ok(Exit::Success)
}

fn places(found: &DagLogs) -> Vec<&str> {
    if found.files.is_empty() {
        return vec![found.log_dir.as_deref().unwrap_or(&found.submit_dir)];
    }
    found.files.iter().map(String::as_str).collect()
}

fn print_end(ctx: &Context, path: &Path, lines: usize) -> Result<(), CliError> {
    match last_lines(path, lines) {
        Ok(text) => {
            for line in text.lines() {
                ctx.ui.print_line(&format!("  {line}"))?;
            }
        }
        Err(error) => ctx.ui.note(&format!("{} cannot be read here: {error}", path.display())),
    }
    Ok(())
}

fn last_lines(path: &Path, lines: usize) -> io::Result<String> {
    let mut file = File::open(path)?;
    skip_to_last_lines(&mut file, lines)?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

fn act(ctx: &Context, args: &ReasonArgs, verb: DagVerb) -> Result<Exit, CliError> {
    if let Some(directory) = Directory::at(&ctx.cwd.join(&args.which.dag)) {
        return directory.act(ctx, verb, &args.reason);
    }
    let desk = ctx.desk()?;
    let id = id_of(&desk, &args.which.dag)?;
    let done = desk.act_on_dag(&id, verb, &args.reason)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&done)?;
    }
    ctx.ui.note(&format!("{}: {}", done.request_name, done.message));
    Ok(Exit::Success)
}

fn remove(ctx: &Context, args: &RemoveArgs) -> Result<Exit, CliError> {
    let what = format!("end the run {}", args.what.which.dag);
    if args.confirm.dry_run {
        ctx.ui.note(&format!("would {what}"));
        return Ok(Exit::Success);
    }
    ctx.ui.confirm(&what, args.confirm)?;
    act(ctx, &args.what, DagVerb::Remove)
}
