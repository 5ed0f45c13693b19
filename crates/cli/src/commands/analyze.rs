//! `windlass logs analyze`: finds lines in the logs of failed attempts that usually explain the failure.

use super::results;
use crate::args::logs::LogAnalyzeArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs;
use crate::log_scan;
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use crate::ui::text;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use windlass_core::log_excerpt::{LogPattern, LogSeverity, match_line};
use windlass_store::Store;
use windlass_store::model::{ResultFilter, ResultRow, WorkflowRow};

/// A matching line.
struct AttemptLogFinding {
    /// `None` in a file that was given by its path.
    result: Option<ResultRow>,
    path: String,
    line: u64,
    sign: LogPattern,
    text: String,
}

const FIELDS: &[ListField<AttemptLogFinding>] = &[
    ListField::new("job_id", |f: &AttemptLogFinding| f.result.as_ref().map(|row| row.key.job_id.0).into()),
    ListField::new("job_name", |f: &AttemptLogFinding| f.result.as_ref().map(|row| &row.job_name).into())
        .column(TableColumn::flexible("JOB")),
    ListField::new("run_id", |f: &AttemptLogFinding| f.result.as_ref().map(|row| row.key.run_id.0).into()),
    ListField::new("attempt_id", |f: &AttemptLogFinding| {
        f.result.as_ref().map(|row| row.key.attempt_id.0).into()
    }),
    ListField::new("path", |f: &AttemptLogFinding| (&f.path).into()),
    ListField::new("line", |f: &AttemptLogFinding| f.line.into()),
    ListField::table_only(TableColumn::text("PLACE"), |f: &AttemptLogFinding| {
        format!("{}:{}", f.path, f.line).into()
    }),
    ListField::new("weight", |f: &AttemptLogFinding| weight_value(f.sign.weight))
        .column(TableColumn::text("WEIGHT")),
    ListField::new("text", |f: &AttemptLogFinding| (&f.text).into()).column(TableColumn::flexible("TEXT")),
    ListField::new("means", |f: &AttemptLogFinding| f.sign.means.into())
        .column(TableColumn::flexible("MEANS")),
];

pub(super) const fn weight_value(weight: LogSeverity) -> FieldValue {
    match weight {
        LogSeverity::Cause => FieldValue::Word("cause", Some(TextTone::Bad)),
        LogSeverity::Error => FieldValue::Word("error", Some(TextTone::Warn)),
        LogSeverity::Hint => FieldValue::Word("hint", None),
    }
}

pub(crate) fn run(ctx: &CliContext, args: &LogAnalyzeArgs) -> Result<CliExit, CliError> {
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    let (findings, searched) = if args.paths.is_empty() {
        let store = ctx.open_read()?;
        let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
        search_workflow_logs(&*store, &workflow, &ctx.cwd)?
    } else {
        search_log_files(&args.paths, &ctx.cwd)?
    };
    if ctx.ui.print_list(&listing, listing.sort_and_limit(findings, &args.page)?)? == 0 {
        let files = text::render_count(searched, "file");
        ctx.ui.print_note(&format!("no known error patterns in {files}"));
    }
    Ok(CliExit::Success)
}

/// Scans the logs of attempts that did not complete; also returns the number of files.
fn search_workflow_logs(
    store: &dyn Store,
    workflow: &WorkflowRow,
    cwd: &Path,
) -> Result<(Vec<AttemptLogFinding>, u64), CliError> {
    let failed = ResultFilter { failed_only: true, ..ResultFilter::default() };
    let mut pages = results::ResultPages::new(store, workflow, failed, 0, None);
    let (mut findings, mut searched) = (Vec::new(), 0);
    loop {
        let page = pages.next_page()?;
        if page.is_empty() {
            return Ok((findings, searched));
        }
        for result in page {
            for (_, path) in job_logs::existing_logs(workflow, result.key.into()) {
                searched += u64::from(search_log(&path, cwd, Some(&result), &mut findings)?);
            }
        }
    }
}

fn search_log_files(paths: &[PathBuf], cwd: &Path) -> Result<(Vec<AttemptLogFinding>, u64), CliError> {
    let (mut findings, mut searched) = (Vec::new(), 0);
    for path in paths {
        for file in log_scan::files_below(&cwd.join(path))? {
            searched += u64::from(search_log(&file, cwd, None, &mut findings)?);
        }
    }
    Ok((findings, searched))
}

/// Returns whether the file exists: an attempt without output leaves none.
fn search_log(
    path: &Path,
    cwd: &Path,
    result: Option<&ResultRow>,
    findings: &mut Vec<AttemptLogFinding>,
) -> Result<bool, CliError> {
    let failed = |e: &io::Error| CliError::io(format!("cannot read {}: {e}", path.display()));
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(|e| failed(&e))?,
    };
    let weigh_line = |line: &str| match_line(line).map(|sign| (sign.weight, sign));
    let found = log_scan::find_signs(file, weigh_line).map_err(|e| failed(&e))?;
    findings.extend(found.into_iter().map(|(line, sign, text)| AttemptLogFinding {
        result: result.cloned(),
        path: job_logs::short_path(path, cwd),
        line,
        sign,
        text,
    }));
    Ok(true)
}
