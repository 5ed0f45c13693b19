//! `windlass catalog`: datasets, the files they consist of, and where those are.

mod scan;

use crate::args::catalog::{
    AddArgs, CatalogArgs, CatalogVerb, ForgetArgs, ImportDatasetArgs, ListDatasetsArgs, ShowDatasetArgs,
};
use crate::context::Context;
use crate::desk::Desk;
use crate::error::{CliError, Exit};
use crate::ui::gauge::Gauge;
use crate::ui::listing::{Datum, Field, Listing, Record};
use crate::ui::table::Column;
use crate::ui::text;
use scan::{Counting, Found};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::AtomicU64;
use windlass_api::requests::Import;
use windlass_core::catalog::{check_dataset, faults, tell};
use windlass_types::Bytes;
use windlass_types::catalog::{CatalogBlock, CatalogFile, DatasetSummary};

/// So many files go over at a time.
const BATCH: usize = 1000;
/// And not more lumis than this.
const BATCH_LUMIS: usize = 100_000;

const DATASETS: &[Field<DatasetSummary>] = &[
    Field::new("name", |d: &DatasetSummary| (&d.name).into()).column(Column::elastic("DATASET")),
    Field::new("owner", |d: &DatasetSummary| d.owner.clone().into()),
    Field::new("files", |d: &DatasetSummary| d.files.into()).column(Column::number("FILES")),
    Field::new("events", |d: &DatasetSummary| d.events.into()).column(Column::number("EVENTS")),
    Field::new("lumis", |d: &DatasetSummary| d.lumis.into()).column(Column::number("LUMIS")),
    Field::new("size_bytes", |d: &DatasetSummary| Bytes(d.size).into()).column(Column::number("SIZE")),
    Field::new("invalid_files", |d: &DatasetSummary| d.invalid_files.into())
        .column(Column::number("INVALID")),
    Field::new("blocks", |d: &DatasetSummary| d.blocks.into()).column(Column::number("BLOCKS")),
];

const SITES: &[Field<DatasetSummary>] =
    &[Field::new("sites", |d: &DatasetSummary| Datum::Json(json!(d.sites)))];

const FILES: &[Field<CatalogFile>] = &[
    Field::new("lfn", |f: &CatalogFile| (&f.lfn).into()).column(Column::elastic("LFN")),
    Field::new("events", |f: &CatalogFile| f.events.into()).column(Column::number("EVENTS")),
    Field::new("lumis", |f: &CatalogFile| (f.lumis.len() as u64).into()).column(Column::number("LUMIS")),
    Field::new("size_bytes", |f: &CatalogFile| Bytes(f.size).into()).column(Column::number("SIZE")),
    Field::new("adler32", |f: &CatalogFile| f.checksums.get("adler32").cloned().into())
        .column(Column::text("ADLER32")),
    Field::new("sites", |f: &CatalogFile| f.replicas.keys().cloned().collect::<Vec<_>>().join(",").into())
        .column(Column::text("SITES")),
];

const BLOCKS: &[Field<CatalogBlock>] = &[
    Field::new("name", |b: &CatalogBlock| (&b.name).into()).column(Column::elastic("BLOCK")),
    Field::new("files", |b: &CatalogBlock| b.files.into()).column(Column::number("FILES")),
    Field::new("is_open", |b: &CatalogBlock| b.is_open.into()).column(Column::text("OPEN")),
    Field::new("created_at", |b: &CatalogBlock| b.created_at.into()).column(Column::text("SINCE")),
    Field::new("closed_at", |b: &CatalogBlock| b.closed_at.into()).column(Column::text("CLOSED")),
];

pub(crate) fn run(ctx: &Context, args: &CatalogArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, None),
        Some(CatalogVerb::List(ListDatasetsArgs { pattern })) => list(ctx, pattern.as_deref()),
        Some(CatalogVerb::Add(args)) => add(ctx, args),
        Some(CatalogVerb::Show(args)) => show(ctx, args),
        Some(CatalogVerb::Import(args)) => import(ctx, args),
        Some(CatalogVerb::Forget(args)) => forget(ctx, args),
    }
}

fn list(ctx: &Context, pattern: Option<&str>) -> Result<Exit, CliError> {
    let datasets = ctx.desk_to_read()?.datasets(pattern)?.items;
    if datasets.is_empty() {
        ctx.ui.note(match pattern {
            Some(_) => "no dataset is called like this",
            None => "there are no datasets; `windlass catalog add DIR as DATASET` makes one",
        });
    }
    ctx.ui.print_list(&Listing::new(DATASETS), datasets)?;
    Ok(Exit::Success)
}

fn show(ctx: &Context, args: &ShowDatasetArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let dataset = desk.dataset(&args.dataset).map_err(|error| suggest(&desk, &args.dataset, error))?;
    if args.blocks {
        let blocks = desk.dataset_blocks(&args.dataset)?.items;
        if blocks.is_empty() {
            ctx.ui.note("it has no blocks: they come with the outputs of requests");
        }
        ctx.ui.print_list(&Listing::new(BLOCKS), blocks)?;
    } else if args.files {
        files(ctx, &desk, args)?;
    } else {
        ctx.ui.print_record(&Listing::new(DATASETS).with(SITES), dataset)?;
    }
    Ok(Exit::Success)
}

/// A name that was perhaps meant.
fn suggest(desk: &Desk, name: &str, error: CliError) -> CliError {
    let Ok(known) = desk.datasets(None) else { return error };
    let near = windlass_spec::nearest(name, known.items.iter().map(|dataset| dataset.name.as_str()));
    match near {
        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
        None => error.with_hint("`windlass catalog` lists those that there are"),
    }
}

/// As JSON, what `import` reads.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exported {
    dataset: String,
    files: Vec<CatalogFile>,
}

fn files(ctx: &Context, desk: &Desk, args: &ShowDatasetArgs) -> Result<(), CliError> {
    let mut offset = 0;
    let mut page = || {
        let page = desk.dataset_files(&args.dataset, !args.invalid, offset, BATCH as u64)?;
        offset += page.items.len() as u64;
        Ok::<_, CliError>(page.items)
    };
    if !ctx.ui.json_wanted() {
        return ctx.ui.print_pages(&Listing::new(FILES), page).map(drop);
    }
    let mut files = Vec::new();
    loop {
        let more = page()?;
        if more.is_empty() {
            return ctx.ui.print_json(&Exported { dataset: args.dataset.clone(), files });
        }
        files.extend(more);
    }
}

/// `PATH… as DATASET`, or `--dataset`.
fn split_words(args: &AddArgs) -> Result<(&[String], String), CliError> {
    let usage = "windlass catalog add DIR as /PRIMARY/PROCESSED/TIER";
    let (paths, dataset) = match (&args.dataset, args.words.as_slice()) {
        (Some(dataset), paths) => (paths, dataset.clone()),
        (None, [paths @ .., word, dataset]) if word == "as" => (paths, dataset.clone()),
        (None, _) => return Err(CliError::user("into which dataset?").with_hint(usage)),
    };
    if paths.is_empty() {
        return Err(CliError::user("which files?").with_hint(usage));
    }
    check_dataset(&dataset).map_err(CliError::user)?;
    Ok((paths, dataset))
}

fn add(ctx: &Context, args: &AddArgs) -> Result<Exit, CliError> {
    let (paths, dataset) = split_words(args)?;
    let found = scan::find(&ctx.cwd, paths)?;
    if found.is_empty() {
        return Err(CliError::user("there are no files there").with_hint("hidden files are left out"));
    }
    let counting = args.events.map_or(Counting::From(args.events_from), Counting::Given);
    let usual = format!("/store/local{dataset}");
    let prefix = args.lfn_prefix.as_deref().unwrap_or(&usual).trim_end_matches('/');
    let describe = |file: &Found| CatalogFile {
        lfn: format!("{prefix}/{}", file.relative),
        replicas: args
            .sites
            .iter()
            .map(|site| (site.clone(), file.path.to_string_lossy().into_owned()))
            .collect(),
        ..CatalogFile::default()
    };
    let files = read(ctx, &found, counting, describe)?;
    let wrong = faults(&dataset, &files);
    if !wrong.is_empty() {
        return Err(CliError::user(tell(&wrong)).with_hint("nothing was added"));
    }
    if args.dry_run {
        ctx.ui.print_list(&Listing::new(FILES), files)?;
        return Ok(Exit::Success);
    }
    let desk = ctx.desk()?;
    let added = bring_in(ctx, &desk, &dataset, files)?;
    tell_added(ctx, &desk, &dataset, added)
}

fn read(
    ctx: &Context,
    found: &[Found],
    counting: Counting,
    describe: impl Fn(&Found) -> CatalogFile + Sync,
) -> Result<Vec<CatalogFile>, CliError> {
    let read_bytes = AtomicU64::new(0);
    let total: u64 = found.iter().map(|file| file.size).sum();
    let what = format!("reading {}", text::count(found.len() as u64, "file"));
    let gauge = Gauge::new(&ctx.ui, what, total);
    let read = gauge.while_counting(&read_bytes, || scan::read(found, counting, describe, &read_bytes));
    read.map_err(|faults| CliError::user(tell(&faults)).with_hint("nothing was added"))
}

/// In parts that a server takes. Each may be done twice.
fn bring_in(ctx: &Context, desk: &Desk, dataset: &str, files: Vec<CatalogFile>) -> Result<u64, CliError> {
    let total = files.len() as u64;
    let gauge = Gauge::new(&ctx.ui, format!("adding {}", text::count(total, "file")), total);
    let done = AtomicU64::new(0);
    gauge.while_counting(&done, || {
        let mut added = 0;
        let mut rest = files;
        while !rest.is_empty() {
            let take = batch(&rest);
            let later = rest.split_off(take);
            added += desk.import(&Import { dataset: dataset.to_owned(), files: rest })?.added;
            done.fetch_add(take as u64, std::sync::atomic::Ordering::Relaxed);
            rest = later;
        }
        Ok(added)
    })
}

/// How many of them go over together.
fn batch(files: &[CatalogFile]) -> usize {
    let mut lumis = 0;
    let fits = files.iter().take(BATCH).take_while(|file| {
        lumis += file.lumis.len();
        lumis <= BATCH_LUMIS
    });
    fits.count().max(1)
}

fn tell_added(ctx: &Context, desk: &Desk, dataset: &str, added: u64) -> Result<Exit, CliError> {
    let now = desk.dataset(dataset)?;
    if ctx.ui.json_wanted() {
        let listing: &[Field<DatasetSummary>] = DATASETS;
        let dataset = serde_json::to_value(Record::new(listing, &now)).unwrap_or_default();
        ctx.ui.print_json(&json!({"added": added, "dataset": dataset}))?;
        return Ok(Exit::Success);
    }
    let events = text::count(now.events, "event");
    ctx.ui.note(&format!(
        "{dataset}: {} new; {} with {events} in all, {}",
        text::count(added, "file"),
        text::count(now.files, "file"),
        Bytes(now.size)
    ));
    Ok(Exit::Success)
}

fn import(ctx: &Context, args: &ImportDatasetArgs) -> Result<Exit, CliError> {
    /// One of them, or several.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        One(Exported),
        Several(Vec<Exported>),
    }
    let (name, bytes) = crate::documents::read(ctx, &args.file)?;
    let wrong = |error: serde_json::Error| {
        CliError::user(format!("{name} is no catalog: {error}"))
            .with_hint("`windlass catalog import --help` shows what it looks like")
    };
    // Untagged, a mistake within would not be told: so each is tried by itself.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let given = match first {
        Some(b'[') => serde_json::from_slice(&bytes).map(Given::Several),
        _ => serde_json::from_slice(&bytes).map(Given::One),
    };
    let datasets = match given.map_err(wrong)? {
        Given::One(one) => vec![one],
        Given::Several(several) => several,
    };
    let found: Vec<String> = datasets.iter().flat_map(|one| faults(&one.dataset, &one.files)).collect();
    if !found.is_empty() {
        return Err(CliError::user(tell(&found)).with_hint("nothing was imported"));
    }
    let desk = ctx.desk()?;
    for Exported { dataset, files } in datasets {
        let added = bring_in(ctx, &desk, &dataset, files)?;
        tell_added(ctx, &desk, &dataset, added)?;
    }
    Ok(Exit::Success)
}

fn forget(ctx: &Context, args: &ForgetArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let known = desk.dataset(&args.dataset).map_err(|error| suggest(&desk, &args.dataset, error))?;
    let what = format!("forget {} and its {}", known.name, text::count(known.files, "file"));
    if args.confirm.dry_run {
        ctx.ui.note(&format!("would {what}; the files themselves stay"));
        return Ok(Exit::Success);
    }
    ctx.ui.confirm(&what, args.confirm)?;
    desk.forget_dataset(&args.dataset)?;
    ctx.ui.note(&format!("{} is forgotten; its files are where they were", args.dataset));
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::catalog::FileLumi;

    #[test]
    fn batches_are_small_in_files_and_lumis() {
        let file = |lumis: usize| CatalogFile {
            lumis: vec![FileLumi { run: 1, lumi: 1, events: None }; lumis],
            ..CatalogFile::default()
        };
        assert_eq!(batch(&vec![file(1); 2500]), 1000);
        assert_eq!(batch(&[file(60_000), file(60_000)]), 1);
        assert_eq!(batch(&[file(200_000), file(1)]), 1);
    }
}
