//! `windlass slurm logs`: what the output of allocations says about trouble, in plain words and with what to do about it.

use super::usage;
use crate::args::Format;
use crate::args::WorkflowRef;
use crate::args::slurm_reports::SlurmLogsArgs;
use crate::commands::analyze;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::log_signs;
use crate::select;
use crate::ui::listing::{Field, Listing};
use crate::ui::style::{Paint, Tone};
use crate::ui::table::Column;
use crate::ui::text;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::slurm::signs::{Explained, explain};
use windlass_core::telltale::Weight;
use windlass_slurm::render::batch;
use windlass_store::Store;
use windlass_store::model::{ResultFilter, WorkflowRow};
use windlass_types::slurm::Allocation;

/// So many jobs are named for each allocation.
const MOST_JOBS: usize = 3;

/// What is known of the allocation that wrote a file.
struct Home {
    allocation: Allocation,
    /// Jobs that did not complete there.
    failed: Vec<String>,
}

struct Finding {
    home: Option<Arc<Home>>,
    path: String,
    line: u64,
    sign: Explained,
    text: String,
}

const FIELDS: &[Field<Finding>] = &[
    Field::new("allocation_id", |f: &Finding| f.home.as_ref().map(|home| home.allocation.id.0).into())
        .column(Column::number("ID")),
    Field::new("slurm_job_id", |f: &Finding| f.home.as_ref().and_then(|home| home.allocation.job_id).into()),
    Field::new("allocation_end", |f: &Finding| f.home.as_ref().map(|home| ended(&home.allocation)).into()),
    Field::new("failed_jobs", |f: &Finding| {
        serde_json::Value::from(f.home.as_ref().map(|home| home.failed.clone()).unwrap_or_default()).into()
    }),
    Field::new("path", |f: &Finding| (&f.path).into()).column(Column::path("PATH")),
    Field::new("line", |f: &Finding| f.line.into()).column(Column::number("LINE")),
    Field::new("sign", |f: &Finding| f.sign.name.into()),
    Field::new("weight", |f: &Finding| analyze::weight(f.sign.weight)).column(Column::text("WEIGHT")),
    Field::new("text", |f: &Finding| (&f.text).into()).column(Column::elastic("TEXT")),
    Field::new("means", |f: &Finding| f.sign.means.into()).column(Column::elastic("MEANS")),
    Field::new("remedy", |f: &Finding| f.sign.remedy.into()).column(Column::elastic("REMEDY")),
];

pub(crate) fn run(ctx: &Context, args: &SlurmLogsArgs) -> Result<Exit, CliError> {
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let mut search = Search { ctx, findings: Vec::new(), searched: 0 };
    match wanted(ctx, args)? {
        Wanted::Workflow(workflow) => {
            let store = ctx.open_read()?;
            let workflow = select::workflow(&*store, &workflow)?;
            search.workflow(&*store, &workflow)?;
        }
        Wanted::Files(paths) => {
            for path in paths {
                for file in log_signs::files_below(&ctx.cwd.join(path))? {
                    search.file(&file, None)?;
                }
            }
        }
    }
    let Search { mut findings, searched, .. } = search;
    if args.errors_only {
        findings.retain(|finding| finding.sign.weight > Weight::Hint);
    }
    let findings = listing.arrange(findings, &args.page)?;
    if findings.is_empty() {
        ctx.ui.note(&format!("no known sign of trouble in {}", text::count(searched, "file")));
    }
    if matches!(ctx.ui.format(), Format::Json | Format::Csv) {
        ctx.ui.print_list(&listing, findings)?;
    } else {
        ctx.ui.print_lines(&render(&findings, ctx.ui.paint_out()))?;
    }
    Ok(Exit::Success)
}

enum Wanted {
    Workflow(WorkflowRef),
    Files(Vec<PathBuf>),
}

fn wanted(ctx: &Context, args: &SlurmLogsArgs) -> Result<Wanted, CliError> {
    Ok(match (args.what.as_slice(), &args.workflow) {
        // As Torc has it: a directory, and the workflow whose files are meant.
        (_, Some(workflow)) => Wanted::Workflow(workflow.clone()),
        ([], None) => Wanted::Workflow(WorkflowRef::Last),
        ([one], None) => match select::meant_workflow(&ctx.cwd, one) {
            Some(workflow) => Wanted::Workflow(workflow),
            None => Wanted::Files(args.what.clone()),
        },
        (several, None) => {
            if let Some(word) = several.iter().find(|word| select::meant_workflow(&ctx.cwd, word).is_some()) {
                let message = format!("{} is no file or directory", word.display());
                return Err(CliError::user(message).with_hint("name one workflow, or files and directories"));
            }
            Wanted::Files(args.what.clone())
        }
    })
}

struct Search<'a> {
    ctx: &'a Context,
    findings: Vec<Finding>,
    searched: u64,
}

impl Search<'_> {
    /// The files that its allocations have written.
    fn workflow(&mut self, store: &dyn Store, workflow: &WorkflowRow) -> Result<(), CliError> {
        for allocation in usage::of(store, workflow)? {
            let stem = Path::new(&workflow.output_dir).join(batch::stem(&allocation));
            let before = self.findings.len();
            for end in ["o", "e"] {
                self.file(&stem.with_extension(end), None)?;
            }
            if self.findings.len() > before {
                let failed = failed(self.ctx, store, workflow, &allocation)?;
                let home = Arc::new(Home { allocation, failed });
                self.findings[before..].iter_mut().for_each(|finding| finding.home = Some(Arc::clone(&home)));
            }
        }
        Ok(())
    }

    /// One that is not there says nothing.
    fn file(&mut self, path: &Path, home: Option<&Arc<Home>>) -> Result<(), CliError> {
        let unreadable = |e: &io::Error| CliError::io(format!("cannot read {}: {e}", path.display()));
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|e| unreadable(&e))?,
        };
        self.searched += 1;
        let weighed = |line: &str| explain(line).map(|sign| (sign.weight, sign));
        let found = log_signs::signs_of(file, weighed).map_err(|e| unreadable(&e))?;
        self.findings.extend(found.into_iter().map(|(line, sign, text)| Finding {
            home: home.cloned(),
            path: job_logs::short(path, &self.ctx.cwd),
            line,
            sign,
            text,
        }));
        Ok(())
    }
}

/// Jobs that workers of the allocation had, and that did not complete there.
fn failed(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
    allocation: &Allocation,
) -> Result<Vec<String>, CliError> {
    let mut names = BTreeSet::new();
    for (worker, _) in usage::workers(ctx, store, std::slice::from_ref(allocation))? {
        let filter = ResultFilter {
            worker: Some(worker),
            all_runs: true,
            failed_only: true,
            limit: Some(100),
            ..ResultFilter::default()
        };
        names.extend(store.results(workflow.id, &filter)?.into_iter().map(|row| row.job_name));
    }
    Ok(names.into_iter().collect())
}

fn ended(allocation: &Allocation) -> String {
    let end = allocation.end.map(|end| end.name().to_owned());
    end.unwrap_or_else(|| allocation.state.name().to_owned())
}

/// Grouped by allocation and file; what a line means stands under it.
fn render(findings: &[Finding], paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last: Option<(Option<i64>, &str)> = None;
    for finding in findings {
        let home = finding.home.as_deref();
        let place = (home.map(|home| home.allocation.id.0), finding.path.as_str());
        if last.is_none_or(|last| last.0 != place.0)
            && let Some(home) = home
        {
            lines.push(paint.apply(Tone::Bold, &title(&home.allocation)));
            lines.extend(failed_line(&home.failed));
        }
        if last != Some(place) {
            lines.push(format!("  {}", text::one_line(&finding.path)));
        }
        last = Some(place);
        let tone = match finding.sign.weight {
            Weight::Cause => Tone::Bad,
            Weight::Error => Tone::Warn,
            Weight::Hint => Tone::Dim,
        };
        let shown = text::truncate_middle(&text::one_line(&finding.text), 200);
        lines.push(format!("    {}: {}", finding.line, paint.apply(tone, &shown)));
        lines.push(format!("      {}", finding.sign.means));
        lines.extend(finding.sign.remedy.map(|remedy| format!("      do: {remedy}")));
    }
    lines
}

fn title(allocation: &Allocation) -> String {
    let job = allocation.job_id.map(|id| format!(" (Slurm job {id})")).unwrap_or_default();
    format!("allocation {}{job}: {}", allocation.id, ended(allocation))
}

fn failed_line(failed: &[String]) -> Option<String> {
    let named: Vec<String> = failed.iter().take(MOST_JOBS).map(|name| text::one_line(name)).collect();
    let more = failed.len().saturating_sub(MOST_JOBS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!failed.is_empty()).then(|| format!("  did not complete there: {}{more}", named.join(", ")))
}
