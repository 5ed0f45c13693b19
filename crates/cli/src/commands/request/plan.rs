//! `windlass request plan`: shows the plan of a request without running it.

use super::programs::describe_programs;
use super::{documents, suggest_request};
use crate::args::request::RequestPlanArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::adaptive::decide_round_size;
use windlass_core::requests::rounds::amount_until_next_step;
use windlass_core::round_plan::{
    PlanInput, PlanProblem, PlanSettings, PlanSummary, PlanUnit, RoundPlan, RoundStart, ValueSpread,
    plan_round,
};
use windlass_render::GraphDrawing;
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::{Request, SiteStatus, WorkUnitName};
use windlass_types::{Bytes, format_duration};

/// Maximum number of work units shown without --all.
const MAX_UNITS_SHOWN: usize = 20;
/// Number of files per page.
const PAGE_SIZE: u64 = 10_000;

pub(super) fn run(ctx: &CliContext, args: &RequestPlanArgs) -> Result<CliExit, CliError> {
    let requests = open_request_service(ctx)?;
    let (request, refusals) = load_request(ctx, requests.as_ref(), &args.request)?;
    for refusal in refusals {
        ctx.ui.print_warning(&format!("{} would be refused at submission: {refusal}", request.request_name));
    }
    let files = load_files(requests.as_ref(), &request)?;
    let sites = choose_sites(requests.as_ref(), &args.sites, &request, &files)?;
    let start = request.generation.map_or_else(RoundStart::default, |generation| RoundStart {
        first_event: generation.first_event,
        first_lumi: generation.first_lumi,
        first_block: 0,
    });
    let settings = PlanSettings::default();
    let size = decide_round_size(&settings.adaptive, request.adaptive, None);
    let input = PlanInput {
        request: &request,
        files: &files,
        attempted: &BTreeSet::new(),
        remaining: &BTreeMap::new(),
        sites: &sites,
        settings: &settings,
        start,
        events_wanted: None,
        memory_mb: None,
        time_per_event: None,
        metrics: None,
        max_units: size.map(|size| size.units),
        max_jobs: size.and_then(|size| size.jobs),
        until_step: size.and_then(|_| amount_until_next_step(&request, 0, files.len() as u64)),
    };
    let plan = plan_round(&input).map_err(|faults| plan_error(&request, &faults))?;
    if ctx.ui.wants_json() {
        let steps = windlass_requests::payload_steps(&request).unwrap_or_default();
        ctx.ui.print_json(&json!({"summary": plan.summary(), "steps": steps, "plan": plan}))?;
    } else if args.draw {
        ctx.ui.print_lines(&render_drawing(&plan, ctx.ui.stdout_width().unwrap_or(100)))?;
    } else {
        ctx.ui.print_table(&render_table(&plan, if args.all { usize::MAX } else { MAX_UNITS_SHOWN }))?;
        ctx.ui.print_line("")?;
        ctx.ui.print_lines(&render_totals(&plan.summary(), args.all))?;
        let is_hidden = request.payload_config.contains_key("hidden");
        if is_hidden || windlass_requests::payload_steps(&request).is_ok() {
            let programs = describe_programs(&request);
            ctx.ui.print_lines(&programs.iter().map(|one| format!("runs {one}")).collect::<Vec<_>>())?;
        }
    }
    Ok(CliExit::Success)
}

/// A document can be planned without a database.
pub(super) fn open_request_service(ctx: &CliContext) -> Result<Option<RequestService>, CliError> {
    if ctx.server()?.is_none() && !ctx.database_exists() {
        return Ok(None);
    }
    ctx.request_service_read().map(Some)
}

/// Loads a file with a document, if there is one of that name, and why a submission would reject it; else a
/// request that was submitted.
fn load_request(
    ctx: &CliContext,
    requests: Option<&RequestService>,
    word: &str,
) -> Result<(Request, Vec<String>), CliError> {
    let path = PathBuf::from(word);
    if word == "-" || ctx.cwd.join(&path).is_file() {
        let mut wanted = documents::load_documents_to_plan(ctx, path)?;
        return match (wanted.pop(), wanted.is_empty()) {
            (Some(one), true) => {
                let mut refusals: Vec<String> = one.payload_faults.iter().map(ToString::to_string).collect();
                refusals.extend(documents::find_refusals(requests, &one.request)?);
                Ok((one.request, refusals))
            }
            _ => Err(CliError::user(format!(
                "{word} contains several requests; only one can be planned at a time"
            ))),
        };
    }
    let Some(requests) = requests else {
        return Err(CliError::user(format!("there is no file `{word}`, and no database with requests")));
    };
    suggest_request(requests, word, requests.get_request(word)).map(|shown| (shown.request, Vec::new()))
}

fn load_files(requests: Option<&RequestService>, request: &Request) -> Result<Vec<CatalogFile>, CliError> {
    let Some(dataset) = &request.input_dataset else { return Ok(Vec::new()) };
    let add = format!("`windlass catalog add DIR as {dataset}` creates it");
    let Some(requests) = requests else {
        return Err(
            CliError::user(format!("there is no dataset `{dataset}`: there is no database")).with_hint(add)
        );
    };
    let mut files = Vec::new();
    loop {
        let page = requests.dataset_files(dataset, true, files.len() as u64, PAGE_SIZE);
        let page = page.map_err(|error| if error.hint.is_none() { error.with_hint(&add) } else { error })?;
        if page.items.is_empty() {
            return Ok(files);
        }
        files.extend(page.items);
    }
}

/// The given sites; otherwise the enabled sites of the database; otherwise this machine as a site.
fn choose_sites(
    requests: Option<&RequestService>,
    given_sites: &[String],
    request: &Request,
    files: &[CatalogFile],
) -> Result<BTreeMap<String, Option<u64>>, CliError> {
    if !given_sites.is_empty() {
        return given_sites.iter().map(|word| parse_site_slots(word)).collect();
    }
    let known = match requests {
        Some(requests) => requests.list_sites()?.items,
        None => Vec::new(),
    };
    let may = |site: &windlass_api::requests::SiteResponse| {
        let banned = site
            .bans
            .iter()
            .any(|ban| ban.request_name.as_ref().is_none_or(|name| *name == request.request_name));
        site.status == SiteStatus::Enabled && !banned
    };
    if !known.is_empty() {
        return Ok(known.into_iter().filter(may).map(|site| (site.name, site.total_slots)).collect());
    }
    // No site is known yet: use the locations of the files, or this machine.
    let mut sites: BTreeMap<_, _> =
        files.iter().flat_map(|file| file.replicas.keys()).map(|site| (site.clone(), None)).collect();
    if sites.is_empty() {
        sites.extend(request.site_whitelist.iter().map(|site| (site.clone(), None)));
    }
    if sites.is_empty() {
        sites.insert("local".to_owned(), None);
    }
    Ok(sites)
}

/// `T2_A` or `T2_A=500`
fn parse_site_slots(word: &str) -> Result<(String, Option<u64>), CliError> {
    let (name, slots) = word.split_once('=').map_or((word, None), |(name, slots)| (name, Some(slots)));
    windlass_types::payload::check_name(name)
        .map_err(|error| CliError::user(format!("--site {word}: {error}")))?;
    let slots = slots.map(|text| {
        text.parse().map_err(|_| CliError::user(format!("--site {word}: `{text}` is not a number of slots")))
    });
    Ok((name.to_owned(), slots.transpose()?))
}

fn plan_error(request: &Request, faults: &[PlanProblem]) -> CliError {
    let fault_lines: Vec<String> = faults.iter().map(|fault| format!("  {fault}")).collect();
    CliError::user(format!("{} cannot be planned:\n{}", request.request_name, fault_lines.join("\n")))
}

fn render_table(plan: &RoundPlan, shown: usize) -> TextTable {
    let mut table = TextTable::new(vec![
        TableColumn::text("UNIT"),
        TableColumn::number("NODES"),
        TableColumn::number("EVENTS"),
        TableColumn::number("OUTPUT"),
        TableColumn::number("BLOCK"),
        TableColumn::number("TIME"),
        TableColumn::flexible("SITES"),
    ]);
    let blocks: Vec<_> = plan.blocks().collect();
    for unit in plan.units().take(shown) {
        let block = blocks.iter().find(|block| (block.first_unit..=block.last_unit).contains(&unit.number()));
        table.add_row(vec![
            TableCell::new(unit.name().to_string()),
            TableCell::new(unit.total_nodes().to_string()),
            TableCell::new(unit.events().to_string()),
            TableCell::new(Bytes(unit.output_kb() << 10).to_string()),
            TableCell::optional(block.map(|block| block.index)),
            TableCell::new(longest_node(&unit)),
            TableCell::new(unit.sites().collect::<Vec<_>>().join(",")),
        ]);
    }
    table
}

/// Of its longest node.
fn longest_node(unit: &PlanUnit<'_>) -> String {
    let seconds = unit.nodes().map(|node| node.time_sec()).max().unwrap_or_default();
    format_duration(Duration::from_secs(seconds))
}

fn render_totals(summary: &PlanSummary, all: bool) -> Vec<String> {
    let units = usize::try_from(summary.work_units).unwrap_or(usize::MAX);
    let mut lines = Vec::new();
    if !all && units > MAX_UNITS_SHOWN {
        lines.push(format!("… and {} more; use --all to show them", units - MAX_UNITS_SHOWN));
    }
    let roles: Vec<String> = summary
        .nodes_by_role
        .iter()
        .map(|(role, count)| format!("{count} {}", role.to_lowercase()))
        .collect();
    lines.push(format!(
        "{}: {}, {} ({})",
        summary.request,
        text::render_count(summary.work_units, "work unit"),
        text::render_count(summary.nodes, "node"),
        roles.join(", ")
    ));
    let read = match summary.files {
        0 => "generated".to_owned(),
        files => format!("read from {}", text::render_count(files, "file")),
    };
    lines.push(format!(
        "{} {read}; about {} in {} of each output dataset",
        text::render_count(summary.events, "event"),
        Bytes(summary.output_kb << 10),
        text::render_count(summary.blocks, "block")
    ));
    let capped = if summary.is_memory_capped { " (the maximum)" } else { "" };
    let time =
        summary.time_sec_per_node.map(|time| format!(", {} each", render_spread(time))).unwrap_or_default();
    lines.push(format!(
        "each node: {}, {} MB{capped}{time}; {:.1} core hours in all",
        text::render_count(summary.cores.into(), "core"),
        summary.memory_mb,
        summary.core_hours
    ));
    let site = |share: &windlass_core::round_plan::SiteShare| {
        let only =
            if share.only_here > 0 { format!(", {} only there", share.only_here) } else { String::new() };
        format!("{} ({} units{only})", share.site, share.work_units)
    };
    lines.push(format!("sites: {}", summary.sites.iter().map(site).collect::<Vec<_>>().join(", ")));
    if summary.files_left_out > 0 {
        lines.push(format!("{} has no work left", text::render_count(summary.files_left_out, "file")));
    }
    if summary.files_later > 0 || summary.events_later > 0 {
        let left = match (summary.files_later, summary.events_later) {
            (0, events) => text::render_count(events, "event"),
            (files, _) => text::render_count(files, "file"),
        };
        lines.push(format!(
            "this is the first round, planned with the estimates of the request; later rounds ({left}) use measurements"
        ));
    }
    lines
}

fn render_spread(spread: ValueSpread) -> String {
    let time = |seconds| format_duration(Duration::from_secs(seconds));
    if spread.least == spread.most {
        return time(spread.most);
    }
    format!("{}–{}", time(spread.least), time(spread.most))
}

/// A box for each role, then the blocks.
fn render_drawing(plan: &RoundPlan, width: usize) -> Vec<String> {
    let picture = windlass_render::render_text(&GraphDrawing::from_plan(plan), width);
    let mut lines: Vec<String> = picture.lines().map(str::to_owned).collect();
    lines.push(String::new());
    for block in plan.blocks() {
        lines.push(format!(
            "{} block {}: {} … {} ({}, about {})",
            block.dataset,
            block.index,
            WorkUnitName(block.first_unit),
            WorkUnitName(block.last_unit),
            text::render_count((block.last_unit - block.first_unit + 1).into(), "unit"),
            Bytes(block.output_kb << 10)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_option_takes_slots() {
        assert_eq!(parse_site_slots("T2_A=500").unwrap(), ("T2_A".to_owned(), Some(500)));
        assert_eq!(parse_site_slots("T2_A").unwrap(), ("T2_A".to_owned(), None));
        for wrong in ["", "a b", "T2=x"] {
            assert!(parse_site_slots(wrong).is_err(), "{wrong}");
        }
    }
}
