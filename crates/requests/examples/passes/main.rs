//! Measures the cost of passes over many requests: `cargo xtask bench requests` runs it once per database.
//!
//! `passes BOOKS DIRECTORY REQUESTS NODES FILES` fills the new database BOOKS with a dataset of FILES files and
//! with REQUESTS requests of NODES jobs each, plans and submits them for real, and prints the measurements as one
//! line of JSON. A server can then use the database: all requests are active.

mod fixture;
mod manual_backend;

use fixture::{PassFixture, PassResult, timed};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_store::{DatasetEditor, StoreDatabase, StoreLocation};
use windlass_types::SystemClock;
use windlass_types::catalog::{CatalogFile, FileLumi};

const DATASET: &str = "/Bench/Era-RAW-v1/RAW";
const LUMIS_PER_FILE: u32 = 10;
/// The number of work units per request that end before the pass with news.
const UNITS_OF_NEWS: usize = 3;
const IDLE_PASSES: usize = 5;

fn main() -> PassResult<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [database, directory, numbers @ ..] = words.as_slice() else {
        return Err("passes BOOKS DIRECTORY REQUESTS NODES FILES".into());
    };
    let numbers: Vec<u32> = numbers.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [requests, nodes, files] = numbers[..] else { return Err("three numbers are needed".into()) };

    let database = create(database)?;
    let dataset: Vec<CatalogFile> = (0..files).map(file).collect();
    let (add_files, added) = timed(|| {
        database.add_dataset_files(
            DATASET,
            &dataset,
            DatasetEditor::with_full_access("bench"),
            SystemClock.now(),
        )
    });
    let (read_files, read) = timed(|| database.dataset_files(DATASET, true));
    if (added?.added, read?.len()) != (u64::from(files), files as usize) {
        return Err("the catalog has lost files".into());
    }

    let mut fixture = PassFixture::open(database, directory.as_ref())?;
    let large = fixture.take_up_one(nodes.saturating_mul(10))?;
    let take_up = fixture.take_up(requests, nodes)?;
    let idle = (0..IDLE_PASSES).map(|_| fixture.pass()).collect::<PassResult<Vec<f64>>>()?;
    let (open_requests, open) = timed(|| fixture.database.open_requests());
    let open: Vec<String> = open?.into_iter().map(|(name, _)| name).collect();
    let (views, read) = timed(|| fixture.database.load_request_views(&open));
    let open = read?.len();
    fixture.work(UNITS_OF_NEWS * open)?;
    let with_news = fixture.pass()?;
    let longest_after = fixture.settle()?;
    fixture.work(UNITS_OF_NEWS * open)?;
    let first_after_restart = fixture.start_anew()?;
    let line = serde_json::json!({
        "add_files": add_files,
        "read_files": read_files,
        "plan_large": large.planned,
        "submit_large": large.submitted,
        "take_up": take_up,
        "open_requests": open_requests,
        "views": views,
        "idle_pass": median(idle),
        "news_pass": with_news,
        "longest_pass": longest_after,
        "first_pass": first_after_restart,
        "units_of_news": UNITS_OF_NEWS,
        "open": open,
    });
    fixture.close();
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

fn create(location: &str) -> PassResult<Arc<dyn StoreDatabase>> {
    if StoreLocation::is_postgres(location) {
        return Ok(windlass_store::open_store(location, OpenMode::ReadWrite)?);
    }
    Ok(Arc::new(SqliteStore::create(location)?.store))
}

fn file(number: u32) -> CatalogFile {
    let first = number % 50 * LUMIS_PER_FILE + 1;
    let lumi = |lumi| FileLumi { run: 350_000 + number / 50, lumi, events: Some(50) };
    let lfn = format!("/store/data/Era/Bench/RAW/v1/000/{:05}/{number:08}.root", number / 1000);
    CatalogFile {
        size: 2_000_000_000,
        events: u64::from(LUMIS_PER_FILE) * 50,
        lumis: (first..first + LUMIS_PER_FILE).map(lumi).collect(),
        replicas: BTreeMap::from([(fixture::SITE.to_owned(), format!("/data{lfn}"))]),
        lfn,
        ..CatalogFile::default()
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
