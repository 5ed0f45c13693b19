//! `windlass request import`: imports requests from ReqMgr2, from documents or by name.

use super::{documents, print_submitted};
use crate::args::request::RequestImportArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::ui::text;
use serde_json::{Value, json};
use std::path::PathBuf;
use windlass_api::requests::SubmitResponse;
use windlass_requests::Reqmgr2Client;
use windlass_server::ApiError;
use windlass_types::requests::PriorityStep;

pub(super) fn run(ctx: &CliContext, args: &RequestImportArgs) -> Result<CliExit, CliError> {
    let steps = documents::parse_steps(&args.steps)?;
    // Request names contain neither slashes nor dots.
    let is_file = |what: &&String| *what == "-" || what.contains(['/', '.']) || ctx.cwd.join(what).exists();
    let (files, names): (Vec<&String>, Vec<&String>) = args.what.iter().partition(is_file);
    let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    let reqmgr2 = args.reqmgr2.to_settings(|path| ctx.cwd.join(path))?;
    if let (None, None, Some(name)) = (&reqmgr2, ctx.server()?, names.first()) {
        return Err(CliError::user(format!("no ReqMgr2 is configured, so `{name}` cannot be fetched"))
            .with_hint("use --reqmgr2 URL or set reqmgr2.url; or give files with documents"));
    }
    let fetched = reqmgr2.as_ref().map(|reqmgr2| fetch_documents(reqmgr2, &names)).transpose()?;
    // Fetched documents are validated like files: all of them before the first is submitted.
    let wanted = documents::load_documents(ctx, &files, fetched.as_deref().unwrap_or_default(), &steps)?;
    let mut wanted: Vec<Value> = wanted.into_iter().map(|one| one.document).collect();
    if fetched.is_none() {
        wanted.extend(names.into_iter().map(|name| document_by_name(name, &steps)));
    }
    let requests = ctx.request_service()?;
    let (mut submitted, mut failed) = (Vec::new(), Vec::new());
    for one in &wanted {
        match requests.submit(one) {
            Ok(done) => submitted.push(done),
            Err(error) => failed.push(error),
        }
    }
    print_imported(ctx, &requests, &submitted, failed)
}

fn fetch_documents(reqmgr2: &Reqmgr2Client, names: &[&String]) -> Result<Vec<(String, Value)>, CliError> {
    let fetch = |name: &&String| {
        let document = reqmgr2.fetch_request(name).map_err(ApiError::from)?;
        Ok(((*name).clone(), document))
    };
    names.iter().map(fetch).collect()
}

fn document_by_name(name: &str, steps: &[PriorityStep]) -> Value {
    let mut document = json!({"request_name": name, "source": "reqmgr2"});
    if !steps.is_empty() {
        document["production_steps"] = json!(steps);
    }
    document
}

/// Submitted requests stay submitted even if others fail; the first error determines the exit code.
fn print_imported(
    ctx: &CliContext,
    requests: &RequestService,
    submitted: &[SubmitResponse],
    mut failed: Vec<CliError>,
) -> Result<CliExit, CliError> {
    if ctx.ui.wants_json() && (failed.is_empty() || !submitted.is_empty()) {
        ctx.ui.print_json(&submitted)?;
    }
    print_submitted(ctx, requests, submitted);
    if failed.is_empty() {
        return Ok(CliExit::Success);
    }
    let first = failed.remove(0);
    if failed.is_empty() && submitted.is_empty() {
        return Err(first);
    }
    for other in &failed {
        ctx.ui.print_warning(&other.message);
    }
    let all = submitted.len() + failed.len() + 1;
    let message = format!(
        "{}; {} of {} submitted",
        first.message,
        submitted.len(),
        text::render_count(all as u64, "request")
    );
    Err(CliError { message, ..first })
}
