//! `windlass catalog`: datasets, their files, and the locations of those.

mod file_scan;

use crate::args::catalog::{
    CatalogAddArgs, CatalogArgs, CatalogForgetArgs, CatalogSubcommand, ImportDatasetArgs, ListDatasetsArgs,
    ShowDatasetArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::ui::listing::{FieldValue, ListField, ListFields, RecordView};
use crate::ui::progress_bar::ProgressBar;
use crate::ui::table::TableColumn;
use crate::ui::text;
use file_scan::{EventCounting, ScannedFile};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::AtomicU64;
use windlass_api::requests::ImportFiles;
use windlass_core::catalog_checks::{check_catalog_files, check_dataset_name, join_problems};
use windlass_store::AddedFiles;
use windlass_types::Bytes;
use windlass_types::catalog::{CatalogBlock, CatalogFile, DatasetSummary};

/// Maximum number of files per request.
const MAX_BATCH_FILES: usize = 1000;
/// Maximum number of lumis per request.
const MAX_BATCH_LUMIS: usize = 100_000;

const DATASET_FIELDS: &[ListField<DatasetSummary>] = &[
    ListField::new("name", |d: &DatasetSummary| (&d.name).into()).column(TableColumn::flexible("DATASET")),
    ListField::new("owner", |d: &DatasetSummary| d.owner.clone().into()),
    ListField::new("files", |d: &DatasetSummary| d.files.into()).column(TableColumn::number("FILES")),
    ListField::new("events", |d: &DatasetSummary| d.events.into()).column(TableColumn::number("EVENTS")),
    ListField::new("lumis", |d: &DatasetSummary| d.lumis.into()).column(TableColumn::number("LUMIS")),
    ListField::new("size_bytes", |d: &DatasetSummary| Bytes(d.size).into())
        .column(TableColumn::number("SIZE")),
    ListField::new("invalid_files", |d: &DatasetSummary| d.invalid_files.into())
        .column(TableColumn::number("INVALID")),
    ListField::new("blocks", |d: &DatasetSummary| d.blocks.into()).column(TableColumn::number("BLOCKS")),
];

const SITE_FIELDS: &[ListField<DatasetSummary>] =
    &[ListField::new("sites", |d: &DatasetSummary| FieldValue::Json(json!(d.sites)))];

const FILE_FIELDS: &[ListField<CatalogFile>] = &[
    ListField::new("lfn", |f: &CatalogFile| (&f.lfn).into()).column(TableColumn::flexible("LFN")),
    ListField::new("events", |f: &CatalogFile| f.events.into()).column(TableColumn::number("EVENTS")),
    ListField::new("lumis", |f: &CatalogFile| (f.lumis.len() as u64).into())
        .column(TableColumn::number("LUMIS")),
    ListField::new("size_bytes", |f: &CatalogFile| Bytes(f.size).into()).column(TableColumn::number("SIZE")),
    ListField::new("adler32", |f: &CatalogFile| f.checksums.get("adler32").cloned().into())
        .column(TableColumn::text("ADLER32")),
    ListField::new("sites", |f: &CatalogFile| {
        f.replicas.keys().cloned().collect::<Vec<_>>().join(",").into()
    })
    .column(TableColumn::text("SITES")),
];

const BLOCK_FIELDS: &[ListField<CatalogBlock>] = &[
    ListField::new("name", |b: &CatalogBlock| (&b.name).into()).column(TableColumn::flexible("BLOCK")),
    ListField::new("files", |b: &CatalogBlock| b.files.into()).column(TableColumn::number("FILES")),
    ListField::new("is_open", |b: &CatalogBlock| b.is_open.into()).column(TableColumn::text("OPEN")),
    ListField::new("created_at", |b: &CatalogBlock| b.created_at.into()).column(TableColumn::text("SINCE")),
    ListField::new("closed_at", |b: &CatalogBlock| b.closed_at.into()).column(TableColumn::text("CLOSED")),
];

pub(crate) fn run(ctx: &CliContext, args: &CatalogArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None => list_datasets(ctx, None),
        Some(CatalogSubcommand::List(ListDatasetsArgs { pattern })) => list_datasets(ctx, pattern.as_deref()),
        Some(CatalogSubcommand::Add(args)) => add_files(ctx, args),
        Some(CatalogSubcommand::Show(args)) => show_dataset(ctx, args),
        Some(CatalogSubcommand::Import(args)) => import_dataset(ctx, args),
        Some(CatalogSubcommand::Forget(args)) => forget_dataset(ctx, args),
    }
}

fn list_datasets(ctx: &CliContext, pattern: Option<&str>) -> Result<CliExit, CliError> {
    let datasets = ctx.request_service_read()?.list_datasets(pattern)?.items;
    if datasets.is_empty() {
        ctx.ui.print_note(match pattern {
            Some(_) => "no dataset matches",
            None => "there are no datasets; `windlass catalog add DIR as DATASET` creates one",
        });
    }
    ctx.ui.print_list(&ListFields::new(DATASET_FIELDS), datasets)?;
    Ok(CliExit::Success)
}

fn show_dataset(ctx: &CliContext, args: &ShowDatasetArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let dataset = requests
        .get_dataset(&args.dataset)
        .map_err(|error| suggest_dataset(&requests, &args.dataset, error))?;
    if args.blocks {
        let blocks = requests.dataset_blocks(&args.dataset)?.items;
        if blocks.is_empty() {
            ctx.ui.print_note("it has no blocks: they are created with the outputs of requests");
        }
        ctx.ui.print_list(&ListFields::new(BLOCK_FIELDS), blocks)?;
    } else if args.files {
        print_files(ctx, &requests, args)?;
    } else {
        ctx.ui.print_record(&ListFields::new(DATASET_FIELDS).with_fields(SITE_FIELDS), dataset)?;
    }
    Ok(CliExit::Success)
}

/// A similar name that may have been meant.
fn suggest_dataset(requests: &RequestService, name: &str, error: CliError) -> CliError {
    let Ok(known) = requests.list_datasets(None) else { return error };
    let near = windlass_spec::nearest_name(name, known.items.iter().map(|dataset| dataset.name.as_str()));
    match near {
        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
        None => error.with_hint("`windlass catalog` lists the datasets"),
    }
}

/// JSON in the form that `import` reads.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportedDataset {
    dataset: String,
    files: Vec<CatalogFile>,
}

fn print_files(ctx: &CliContext, requests: &RequestService, args: &ShowDatasetArgs) -> Result<(), CliError> {
    let mut offset = 0;
    let mut page = || {
        let page = requests.dataset_files(&args.dataset, !args.invalid, offset, MAX_BATCH_FILES as u64)?;
        offset += page.items.len() as u64;
        Ok::<_, CliError>(page.items)
    };
    if !ctx.ui.wants_json() {
        return ctx.ui.print_pages(&ListFields::new(FILE_FIELDS), page).map(drop);
    }
    let mut files = Vec::new();
    loop {
        let more = page()?;
        if more.is_empty() {
            return ctx.ui.print_json(&ExportedDataset { dataset: args.dataset.clone(), files });
        }
        files.extend(more);
    }
}

/// `PATH… as DATASET`, or `--dataset`.
fn split_paths_and_dataset(args: &CatalogAddArgs) -> Result<(&[String], String), CliError> {
    let usage = "windlass catalog add DIR as /PRIMARY/PROCESSED/TIER";
    let (paths, dataset) = match (&args.dataset, args.words.as_slice()) {
        (Some(dataset), paths) => (paths, dataset.clone()),
        (None, [paths @ .., word, dataset]) if word == "as" => (paths, dataset.clone()),
        (None, _) => return Err(CliError::user("no dataset given").with_hint(usage)),
    };
    if paths.is_empty() {
        return Err(CliError::user("no files given").with_hint(usage));
    }
    check_dataset_name(&dataset).map_err(CliError::user)?;
    Ok((paths, dataset))
}

fn add_files(ctx: &CliContext, args: &CatalogAddArgs) -> Result<CliExit, CliError> {
    let (paths, dataset) = split_paths_and_dataset(args)?;
    let found = file_scan::find_files(&ctx.cwd, paths)?;
    if found.is_empty() {
        return Err(CliError::user("there are no files").with_hint("hidden files are ignored"));
    }
    let counting = args.events.map_or(EventCounting::From(args.events_from), EventCounting::Given);
    let usual = format!("/store/local{dataset}");
    let prefix = args.lfn_prefix.as_deref().unwrap_or(&usual).trim_end_matches('/');
    let describe = |file: &ScannedFile| CatalogFile {
        lfn: format!("{prefix}/{}", file.relative),
        replicas: args
            .sites
            .iter()
            .map(|site| (site.clone(), file.path.to_string_lossy().into_owned()))
            .collect(),
        ..CatalogFile::default()
    };
    let files = read_files(ctx, &found, counting, describe)?;
    let wrong = check_catalog_files(&dataset, &files);
    if !wrong.is_empty() {
        return Err(CliError::user(join_problems(&wrong)).with_hint("nothing was added"));
    }
    if args.dry_run {
        ctx.ui.print_list(&ListFields::new(FILE_FIELDS), files)?;
        return Ok(CliExit::Success);
    }
    let requests = ctx.request_service()?;
    let added = import_files(ctx, &requests, &dataset, files)?;
    print_added(ctx, &requests, &dataset, added)
}

fn read_files(
    ctx: &CliContext,
    found: &[ScannedFile],
    counting: EventCounting,
    describe: impl Fn(&ScannedFile) -> CatalogFile + Sync,
) -> Result<Vec<CatalogFile>, CliError> {
    let read_bytes = AtomicU64::new(0);
    let total: u64 = found.iter().map(|file| file.size).sum();
    let what = format!("reading {}", text::render_count(found.len() as u64, "file"));
    let gauge = ProgressBar::new(&ctx.ui, what, total);
    let read = gauge
        .run_while_counting(&read_bytes, || file_scan::read_files(found, counting, describe, &read_bytes));
    read.map_err(|faults| CliError::user(join_problems(&faults)).with_hint("nothing was added"))
}

/// In batches that a server accepts. Adding a batch twice is harmless.
fn import_files(
    ctx: &CliContext,
    requests: &RequestService,
    dataset: &str,
    files: Vec<CatalogFile>,
) -> Result<AddedFiles, CliError> {
    let total = files.len() as u64;
    let gauge = ProgressBar::new(&ctx.ui, format!("adding {}", text::render_count(total, "file")), total);
    let done = AtomicU64::new(0);
    gauge.run_while_counting(&done, || {
        let mut sum = AddedFiles::default();
        let mut rest = files;
        while !rest.is_empty() {
            let take = batch_size(&rest);
            let later = rest.split_off(take);
            let batch = requests.import_dataset(&ImportFiles { dataset: dataset.to_owned(), files: rest })?;
            sum.added += batch.added;
            sum.changed += batch.changed;
            done.fetch_add(take as u64, std::sync::atomic::Ordering::Relaxed);
            rest = later;
        }
        Ok(sum)
    })
}

/// Number of files in the next batch.
fn batch_size(files: &[CatalogFile]) -> usize {
    let mut lumis = 0;
    let fits = files.iter().take(MAX_BATCH_FILES).take_while(|file| {
        lumis += file.lumis.len();
        lumis <= MAX_BATCH_LUMIS
    });
    fits.count().max(1)
}

fn print_added(
    ctx: &CliContext,
    requests: &RequestService,
    dataset: &str,
    AddedFiles { added, changed }: AddedFiles,
) -> Result<CliExit, CliError> {
    let now = requests.get_dataset(dataset)?;
    if ctx.ui.wants_json() {
        let listing: &[ListField<DatasetSummary>] = DATASET_FIELDS;
        let dataset = serde_json::to_value(RecordView::new(listing, &now)).unwrap_or_default();
        ctx.ui.print_json(&json!({"added": added, "changed": changed, "dataset": dataset}))?;
        return Ok(CliExit::Success);
    }
    let events = text::render_count(now.events, "event");
    let changed = if changed > 0 { format!(", {changed} changed") } else { String::new() };
    ctx.ui.print_note(&format!(
        "{dataset}: {} new{changed}; {} with {events} in all, {}",
        text::render_count(added, "file"),
        text::render_count(now.files, "file"),
        Bytes(now.size)
    ));
    Ok(CliExit::Success)
}

fn import_dataset(ctx: &CliContext, args: &ImportDatasetArgs) -> Result<CliExit, CliError> {
    /// One entry, or several.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum CatalogDocument {
        One(ExportedDataset),
        Several(Vec<ExportedDataset>),
    }
    let (name, bytes) = crate::document_input::read_document(ctx, &args.file)?;
    let wrong = |error: serde_json::Error| {
        CliError::user(format!("{name} is not a catalog: {error}"))
            .with_hint("`windlass catalog import --help` shows the format")
    };
    // An untagged enum would not report the error inside, so each form is tried separately.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let given = match first {
        Some(b'[') => serde_json::from_slice(&bytes).map(CatalogDocument::Several),
        _ => serde_json::from_slice(&bytes).map(CatalogDocument::One),
    };
    let datasets = match given.map_err(wrong)? {
        CatalogDocument::One(one) => vec![one],
        CatalogDocument::Several(several) => several,
    };
    let found: Vec<String> =
        datasets.iter().flat_map(|one| check_catalog_files(&one.dataset, &one.files)).collect();
    if !found.is_empty() {
        return Err(CliError::user(join_problems(&found)).with_hint("nothing was imported"));
    }
    let requests = ctx.request_service()?;
    for ExportedDataset { dataset, files } in datasets {
        let added = import_files(ctx, &requests, &dataset, files)?;
        print_added(ctx, &requests, &dataset, added)?;
    }
    Ok(CliExit::Success)
}

fn forget_dataset(ctx: &CliContext, args: &CatalogForgetArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service()?;
    let known = requests
        .get_dataset(&args.dataset)
        .map_err(|error| suggest_dataset(&requests, &args.dataset, error))?;
    let what =
        format!("remove {} and its {} from the catalog", known.name, text::render_count(known.files, "file"));
    if args.confirm.dry_run {
        ctx.ui.print_note(&format!("would {what}; the files themselves are kept"));
        return Ok(CliExit::Success);
    }
    ctx.ui.confirm(&what, args.confirm)?;
    requests.forget_dataset(&args.dataset)?;
    ctx.ui.print_note(&format!("{} is removed from the catalog; its files are kept", args.dataset));
    Ok(CliExit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::catalog::FileLumi;

    #[test]
    fn catalog_batches_limit_files_and_lumis() {
        let file = |lumis: usize| CatalogFile {
            lumis: vec![FileLumi { run: 1, lumi: 1, events: None }; lumis],
            ..CatalogFile::default()
        };
        assert_eq!(batch_size(&vec![file(1); 2500]), 1000);
        assert_eq!(batch_size(&[file(60_000), file(60_000)]), 1);
        assert_eq!(batch_size(&[file(200_000), file(1)]), 1);
    }
}
