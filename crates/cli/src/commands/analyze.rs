//! `windlass logs analyze`: lines in the logs of failed attempts that usually say why.

use super::results;
use crate::args::logs::AnalyzeArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::log_signs;
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use crate::ui::text;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use windlass_core::telltale::{Sign, Weight, sign_of};
use windlass_store::Store;
use windlass_store::model::{ResultFilter, ResultRow, WorkflowRow};

/// A line that says something.
struct Finding {
    /// `None` in a file that was named by its path.
    result: Option<ResultRow>,
    path: String,
    line: u64,
    sign: Sign,
    text: String,
}

const FIELDS: &[Field<Finding>] = &[
    Field::new("job_id", |f: &Finding| f.result.as_ref().map(|row| row.key.job_id.0).into()),
    Field::new("job_name", |f: &Finding| f.result.as_ref().map(|row| &row.job_name).into())
        .column(Column::elastic("JOB")),
    Field::new("run_id", |f: &Finding| f.result.as_ref().map(|row| row.key.run_id.0).into()),
    Field::new("attempt_id", |f: &Finding| f.result.as_ref().map(|row| row.key.attempt_id.0).into()),
    Field::new("path", |f: &Finding| (&f.path).into()),
    Field::new("line", |f: &Finding| f.line.into()),
    Field::shown(Column::text("PLACE"), |f: &Finding| format!("{}:{}", f.path, f.line).into()),
    Field::new("weight", |f: &Finding| weight(f.sign.weight)).column(Column::text("WEIGHT")),
    Field::new("text", |f: &Finding| (&f.text).into()).column(Column::elastic("TEXT")),
    Field::new("means", |f: &Finding| f.sign.means.into()).column(Column::elastic("MEANS")),
];

pub(super) const fn weight(weight: Weight) -> Datum {
    match weight {
        Weight::Cause => Datum::Word("cause", Some(Tone::Bad)),
        Weight::Error => Datum::Word("error", Some(Tone::Warn)),
        Weight::Hint => Datum::Word("hint", None),
    }
}

pub(crate) fn run(ctx: &Context, args: &AnalyzeArgs) -> Result<Exit, CliError> {
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let (findings, searched) = if args.paths.is_empty() {
        let store = ctx.open_read()?;
        let workflow = select::workflow(&*store, &args.workflow)?;
        in_workflow(&*store, &workflow, &ctx.cwd)?
    } else {
        in_files(&args.paths, &ctx.cwd)?
    };
    if ctx.ui.print_list(&listing, listing.arrange(findings, &args.page)?)? == 0 {
        let files = text::count(searched, "file");
        ctx.ui.note(&format!("no known sign of trouble in {files}"));
    }
    Ok(Exit::Success)
}

/// In the logs of attempts that did not complete; also how many files there were.
fn in_workflow(
    store: &dyn Store,
    workflow: &WorkflowRow,
    cwd: &Path,
) -> Result<(Vec<Finding>, u64), CliError> {
    let failed = ResultFilter { failed_only: true, ..ResultFilter::default() };
    let mut pages = results::Pages::new(store, workflow, failed, 0, None);
    let (mut findings, mut searched) = (Vec::new(), 0);
    loop {
        let page = pages.next()?;
        if page.is_empty() {
            return Ok((findings, searched));
        }
        for result in page {
            for (_, path) in job_logs::written(workflow, result.key.into()) {
                searched += u64::from(search(&path, cwd, Some(&result), &mut findings)?);
            }
        }
    }
}

fn in_files(paths: &[PathBuf], cwd: &Path) -> Result<(Vec<Finding>, u64), CliError> {
    let (mut findings, mut searched) = (Vec::new(), 0);
    for path in paths {
        for file in log_signs::files_below(&cwd.join(path))? {
            searched += u64::from(search(&file, cwd, None, &mut findings)?);
        }
    }
    Ok((findings, searched))
}

/// Whether there was such a file: an attempt that printed nothing leaves none.
fn search(
    path: &Path,
    cwd: &Path,
    result: Option<&ResultRow>,
    findings: &mut Vec<Finding>,
) -> Result<bool, CliError> {
    let failed = |e: &io::Error| CliError::io(format!("cannot read {}: {e}", path.display()));
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(|e| failed(&e))?,
    };
    let weighed = |line: &str| sign_of(line).map(|sign| (sign.weight, sign));
    let found = log_signs::signs_of(file, weighed).map_err(|e| failed(&e))?;
    findings.extend(found.into_iter().map(|(line, sign, text)| Finding {
        result: result.cloned(),
        path: job_logs::short(path, cwd),
        line,
        sign,
        text,
    }));
    Ok(true)
}
