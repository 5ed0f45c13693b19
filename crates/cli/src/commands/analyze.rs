//! `windlass logs analyze`: lines in the logs of failed attempts that usually say why.

use super::results;
use crate::args::logs::AnalyzeArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use crate::ui::text;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use windlass_core::telltale::{Sign, Weight, sign_of};
use windlass_store::Store;
use windlass_store::model::{ResultFilter, ResultRow, WorkflowRow};

/// Of one file so many findings are shown: a loop that fails a million times fails for one reason.
const PER_FILE: usize = 20;
/// Longer lines are cut: they are data rather than words.
const LONGEST_LINE: u64 = 4096;

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

const fn weight(weight: Weight) -> Datum {
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
        for file in files_below(&cwd.join(path))? {
            searched += u64::from(search(&file, cwd, None, &mut findings)?);
        }
    }
    Ok((findings, searched))
}

/// The file itself, or all files in the directory and below, in order.
fn files_below(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |e: io::Error| CliError::user(format!("cannot read {}: {e}", path.display()));
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut inner: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(unreadable)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    inner.sort();
    // A link may lead back up.
    inner.retain(|path| !path.is_symlink());
    let lists: Vec<Vec<PathBuf>> = inner.iter().map(|path| files_below(path)).collect::<Result<_, _>>()?;
    Ok(lists.into_iter().flatten().collect())
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
    let found = signs_of(BufReader::new(file)).map_err(|e| failed(&e))?;
    findings.extend(found.into_iter().map(|(line, sign, text)| Finding {
        result: result.cloned(),
        path: job_logs::short(path, cwd),
        line,
        sign,
        text,
    }));
    Ok(true)
}

/// Lines from 1 with what they are a sign of, the heaviest if there are many. The same text again is the same sign.
fn signs_of(mut reader: impl BufRead) -> io::Result<Vec<(u64, Sign, String)>> {
    let mut found: Vec<(u64, Sign, String)> = Vec::new();
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        if bytes.len() as u64 == LONGEST_LINE && !bytes.ends_with(b"\n") {
            reader.skip_until(b'\n')?;
        }
        let line = String::from_utf8_lossy(&bytes);
        if let Some(sign) = sign_of(line.trim()) {
            keep(&mut found, number, sign, line.trim());
        }
    }
    found.sort_by_key(|(number, ..)| *number);
    Ok(found)
}

/// Makes room by letting go of the lightest, the earliest first: what comes last in a log mostly says most.
fn keep(found: &mut Vec<(u64, Sign, String)>, number: u64, sign: Sign, line: &str) {
    if found.iter().any(|(_, _, text)| text == line) {
        return;
    }
    found.push((number, sign, line.to_owned()));
    if found.len() > PER_FILE
        && let Some(lightest) = (0..found.len()).min_by_key(|i| (found[*i].1.weight, found[*i].0))
    {
        found.remove(lightest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<(u64, &'static str)> {
        signs_of(text).unwrap().into_iter().map(|(line, sign, _)| (line, sign.name)).collect()
    }

    #[test]
    fn lines_are_counted_also_after_a_very_long_one() {
        let mut text = b"fine\n".to_vec();
        text.extend(b"x".repeat(10_000));
        text.extend(b"\n\xffPermission denied\nfine\nSegmentation fault");
        assert_eq!(lines(&text), [(3, "permission"), (5, "segmentation-fault")]);
    }

    #[test]
    fn repetitions_count_once_and_the_heaviest_are_kept() {
        assert_eq!(lines(&b"No space left on device\n".repeat(1000)), [(1, "disk-full")]);
        let mut many = "x: command not found\n".to_owned();
        many.extend((0..1000).map(|i| format!("step {i} failed\n")));
        let found = lines(many.as_bytes());
        assert_eq!(found.len(), PER_FILE);
        assert_eq!(found[0], (1, "program-missing"));
        assert_eq!(found.last(), Some(&(1001, "failed")));
    }
}
