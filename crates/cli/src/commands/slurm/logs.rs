//! `windlass slurm logs`: finds known problems in the output of allocations, with explanations and remedies.

use super::usage;
use crate::args::OutputFormat;
use crate::args::WorkflowRef;
use crate::args::slurm_reports::SlurmLogsArgs;
use crate::commands::analyze;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs;
use crate::log_scan;
use crate::object_selection;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::style::{TextPainter, TextTone};
use crate::ui::table::TableColumn;
use crate::ui::text;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::log_excerpt::LogSeverity;
use windlass_core::slurm::log_meanings::{LogLineMeaning, explain_line};
use windlass_slurm::render::batch;
use windlass_store::Store;
use windlass_store::model::{ResultFilter, WorkflowRow};
use windlass_types::slurm::Allocation;

/// Maximum number of jobs named per allocation.
const MAX_FAILED_JOBS: usize = 3;

/// The allocation that wrote a file.
struct LogAllocation {
    allocation: Allocation,
    /// Jobs that did not complete in it.
    failed_jobs: Vec<String>,
}

struct SlurmLogFinding {
    allocation: Option<Arc<LogAllocation>>,
    path: String,
    line: u64,
    sign: LogLineMeaning,
    text: String,
}

const FIELDS: &[ListField<SlurmLogFinding>] = &[
    ListField::new("allocation_id", |f: &SlurmLogFinding| {
        f.allocation.as_ref().map(|home| home.allocation.id.0).into()
    })
    .column(TableColumn::number("ID")),
    ListField::new("slurm_job_id", |f: &SlurmLogFinding| {
        f.allocation.as_ref().and_then(|home| home.allocation.job_id).into()
    }),
    ListField::new("allocation_end", |f: &SlurmLogFinding| {
        f.allocation.as_ref().map(|home| render_end(&home.allocation)).into()
    }),
    ListField::new("failed_jobs", |f: &SlurmLogFinding| {
        serde_json::Value::from(
            f.allocation.as_ref().map(|home| home.failed_jobs.clone()).unwrap_or_default(),
        )
        .into()
    }),
    ListField::new("path", |f: &SlurmLogFinding| (&f.path).into()).column(TableColumn::path("PATH")),
    ListField::new("line", |f: &SlurmLogFinding| f.line.into()).column(TableColumn::number("LINE")),
    ListField::new("sign", |f: &SlurmLogFinding| f.sign.name.into()),
    ListField::new("weight", |f: &SlurmLogFinding| analyze::weight_value(f.sign.weight))
        .column(TableColumn::text("WEIGHT")),
    ListField::new("text", |f: &SlurmLogFinding| (&f.text).into()).column(TableColumn::flexible("TEXT")),
    ListField::new("means", |f: &SlurmLogFinding| f.sign.means.into()).column(TableColumn::flexible("MEANS")),
    ListField::new("remedy", |f: &SlurmLogFinding| f.sign.remedy.into())
        .column(TableColumn::flexible("REMEDY")),
];

pub(crate) fn run(ctx: &CliContext, args: &SlurmLogsArgs) -> Result<CliExit, CliError> {
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    let mut search = SlurmLogSearch { ctx, findings: Vec::new(), searched: 0 };
    match parse_target(ctx, args)? {
        SlurmLogTarget::Workflow(workflow) => {
            let store = ctx.open_read()?;
            let workflow = object_selection::find_workflow(&*store, &workflow)?;
            search.search_workflow(&*store, &workflow)?;
        }
        SlurmLogTarget::Files(paths) => {
            for path in paths {
                for file in log_scan::files_below(&ctx.cwd.join(path))? {
                    search.search_file(&file, None)?;
                }
            }
        }
    }
    let SlurmLogSearch { mut findings, searched, .. } = search;
    if args.errors_only {
        findings.retain(|finding| finding.sign.weight > LogSeverity::Hint);
    }
    let findings = listing.sort_and_limit(findings, &args.page)?;
    if findings.is_empty() {
        ctx.ui.print_note(&format!("no known problems in {}", text::render_count(searched, "file")));
    }
    if matches!(ctx.ui.format(), OutputFormat::Json | OutputFormat::Csv) {
        ctx.ui.print_list(&listing, findings)?;
    } else {
        ctx.ui.print_lines(&render_findings(&findings, ctx.ui.stdout_painter()))?;
    }
    Ok(CliExit::Success)
}

enum SlurmLogTarget {
    Workflow(WorkflowRef),
    Files(Vec<PathBuf>),
}

fn parse_target(ctx: &CliContext, args: &SlurmLogsArgs) -> Result<SlurmLogTarget, CliError> {
    Ok(match (args.what.as_slice(), &args.workflow) {
        // Torc's form: a directory, and the workflow whose files are wanted.
        (_, Some(workflow)) => SlurmLogTarget::Workflow(workflow.clone()),
        ([], None) => SlurmLogTarget::Workflow(WorkflowRef::Last),
        ([one], None) => match object_selection::workflow_ref_from_word(&ctx.cwd, one) {
            Some(workflow) => SlurmLogTarget::Workflow(workflow),
            None => SlurmLogTarget::Files(args.what.clone()),
        },
        (several, None) => {
            if let Some(word) =
                several.iter().find(|word| object_selection::workflow_ref_from_word(&ctx.cwd, word).is_some())
            {
                let message = format!("no such file or directory: {}", word.display());
                return Err(CliError::user(message).with_hint("give one workflow, or files and directories"));
            }
            SlurmLogTarget::Files(args.what.clone())
        }
    })
}

struct SlurmLogSearch<'a> {
    ctx: &'a CliContext,
    findings: Vec<SlurmLogFinding>,
    searched: u64,
}

impl SlurmLogSearch<'_> {
    /// The output files of its allocations.
    fn search_workflow(&mut self, store: &dyn Store, workflow: &WorkflowRow) -> Result<(), CliError> {
        for allocation in usage::list_own_allocations(store, workflow)? {
            let stem = Path::new(&workflow.output_dir).join(batch::file_stem(&allocation));
            let before = self.findings.len();
            for end in ["o", "e"] {
                self.search_file(&stem.with_extension(end), None)?;
            }
            if self.findings.len() > before {
                let failed = load_failed_jobs(self.ctx, store, workflow, &allocation)?;
                let home = Arc::new(LogAllocation { allocation, failed_jobs: failed });
                self.findings[before..]
                    .iter_mut()
                    .for_each(|finding| finding.allocation = Some(Arc::clone(&home)));
            }
        }
        Ok(())
    }

    /// A missing file yields no lines.
    fn search_file(&mut self, path: &Path, home: Option<&Arc<LogAllocation>>) -> Result<(), CliError> {
        let unreadable = |e: &io::Error| CliError::io(format!("cannot read {}: {e}", path.display()));
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|e| unreadable(&e))?,
        };
        self.searched += 1;
        let weigh_line = |line: &str| explain_line(line).map(|sign| (sign.weight, sign));
        let found = log_scan::find_signs(file, weigh_line).map_err(|e| unreadable(&e))?;
        self.findings.extend(found.into_iter().map(|(line, sign, text)| SlurmLogFinding {
            allocation: home.cloned(),
            path: job_logs::short_path(path, &self.ctx.cwd),
            line,
            sign,
            text,
        }));
        Ok(())
    }
}

/// Jobs that ran on workers of the allocation and did not complete there.
fn load_failed_jobs(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
    allocation: &Allocation,
) -> Result<Vec<String>, CliError> {
    let mut names = BTreeSet::new();
    for (worker, _) in usage::list_allocation_workers(ctx, store, std::slice::from_ref(allocation))? {
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

fn render_end(allocation: &Allocation) -> String {
    let end = allocation.end.map(|end| end.name().to_owned());
    end.unwrap_or_else(|| allocation.state.name().to_owned())
}

/// Grouped by allocation and file, with the explanation below each line.
fn render_findings(findings: &[SlurmLogFinding], paint: TextPainter) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last: Option<(Option<i64>, &str)> = None;
    for finding in findings {
        let home = finding.allocation.as_deref();
        let place = (home.map(|home| home.allocation.id.0), finding.path.as_str());
        if last.is_none_or(|last| last.0 != place.0)
            && let Some(home) = home
        {
            lines.push(paint.apply(TextTone::Bold, &allocation_title(&home.allocation)));
            lines.extend(failed_line(&home.failed_jobs));
        }
        if last != Some(place) {
            lines.push(format!("  {}", text::one_line(&finding.path)));
        }
        last = Some(place);
        let tone = match finding.sign.weight {
            LogSeverity::Cause => TextTone::Bad,
            LogSeverity::Error => TextTone::Warn,
            LogSeverity::Hint => TextTone::Dim,
        };
        let shown = text::truncate_middle(&text::one_line(&finding.text), 200);
        lines.push(format!("    {}: {}", finding.line, paint.apply(tone, &shown)));
        lines.push(format!("      {}", finding.sign.means));
        lines.extend(finding.sign.remedy.map(|remedy| format!("      do: {remedy}")));
    }
    lines
}

fn allocation_title(allocation: &Allocation) -> String {
    let job = allocation.job_id.map(|id| format!(" (Slurm job {id})")).unwrap_or_default();
    format!("allocation {}{job}: {}", allocation.id, render_end(allocation))
}

fn failed_line(failed: &[String]) -> Option<String> {
    let named: Vec<String> = failed.iter().take(MAX_FAILED_JOBS).map(|name| text::one_line(name)).collect();
    let more = failed.len().saturating_sub(MAX_FAILED_JOBS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!failed.is_empty()).then(|| format!("  did not complete there: {}{more}", named.join(", ")))
}
