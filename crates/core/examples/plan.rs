//! Measures time and memory of planning a large dataset: `cargo xtask bench plan` runs it once per line of its
//! table.
//!
//! `plan ALGORITHM FILES LUMIS blocks|scattered` prints one line of JSON. Files are in random order; the last
//! lumi of a file is split between two files; run lookups use a list. With `blocks`, a hundred adjacent files are
//! at the same three of forty sites; with `scattered`, each file has its own sites.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, Write as _};
use std::time::Instant;
use windlass_core::round_plan::{PlanInput, PlanSettings, RoundStart, plan_round};
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::{Request, SplittingAlgo};

const SITES: u64 = 40;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [algorithm, files, lumis, spread] = words.as_slice() else {
        return Err(Error::other("plan ALGORITHM FILES LUMIS blocks|scattered"));
    };
    let algorithm: SplittingAlgo = algorithm.parse().map_err(Error::other)?;
    let files: u32 = files.parse().map_err(Error::other)?;
    let lumis: u32 = lumis.parse().map_err(Error::other)?;
    let files = dataset(files, lumis / files.max(1), spread == "scattered");

    let request = request(algorithm)?;
    let sites: BTreeMap<String, Option<u64>> = (0..SITES).map(|site| (site_name(site), Some(1000))).collect();
    let input = PlanInput {
        request: &request,
        files: &files,
        attempted: &BTreeSet::new(),
        remaining: &BTreeMap::new(),
        sites: &sites,
        settings: &PlanSettings::default(),
        start: RoundStart::default(),
        events_wanted: None,
        memory_mb: None,
        time_per_event: None,
        metrics: None,
        max_units: None,
        max_jobs: None,
        until_step: None,
    };
    let before = resident("VmRSS:")?;
    let start = Instant::now();
    let plan = plan_round(&input).map_err(|faults| Error::other(faults[0].clone()))?;
    let seconds = start.elapsed().as_secs_f64();
    let peak = resident("VmHWM:")?;
    let summary = plan.summary();
    let line = serde_json::json!({
        "seconds": seconds,
        "dataset_mb": before / 1024,
        "peak_mb": peak / 1024,
        "nodes": summary.nodes_by_role["Processing"],
        "units": summary.work_units,
        "blocks": summary.blocks,
        "events": summary.events,
    });
    writeln!(std::io::stdout(), "{line}")
}

fn dataset(files: u32, lumis_per_file: u32, is_scattered: bool) -> Vec<CatalogFile> {
    // A step coprime to the number of files shuffles them deterministically.
    let step = (7919..10_000).find(|step| gcd(*step, u64::from(files)) == 1).unwrap_or(1);
    let mixed = (0..u64::from(files)).map(|n| (n * step % u64::from(files.max(1))) as u32);
    mixed.map(|number| one_file(number, lumis_per_file, is_scattered)).collect()
}

fn one_file(number: u32, lumis_per_file: u32, is_scattered: bool) -> CatalogFile {
    let lfn = format!("/store/data/Run2026A/Bench/RAW/v1/000/{:05}/{number:08}.root", number / 1000);
    let run = 350_000 + number / 50;
    let first = number % 50 * lumis_per_file + 1;
    let lumi = |lumi: u32| FileLumi { run, lumi, events: Some(40 + lumi % 20) };
    let mut lumis: Vec<FileLumi> = (first..first + lumis_per_file).map(lumi).collect();
    // The first lumi of the next file of the run starts in this one.
    if number % 50 != 49 {
        lumis.push(lumi(first + lumis_per_file));
    }
    let group = u64::from(if is_scattered { number } else { number / 100 });
    // Every file is at the first site, so that lumis in two files can be read there.
    let places = [0, 1 + group * 7 % (SITES - 1), 1 + group * 11 % (SITES - 1)];
    CatalogFile {
        size: 2_000_000_000,
        events: lumis.iter().filter_map(|lumi| lumi.events).map(u64::from).sum(),
        replicas: places.iter().map(|&site| (site_name(site), format!("/data{lfn}"))).collect(),
        lumis,
        lfn,
        ..CatalogFile::default()
    }
}

fn request(algorithm: SplittingAlgo) -> std::io::Result<Request> {
    let wanted: Vec<u32> = (350_000..360_000).collect();
    serde_json::from_value(serde_json::json!({
        "request_name": "bench", "requestor": "bench", "input_dataset": "/Bench/Run2026A/RAW",
        "output_datasets": ["/Bench/Run2026A/AOD", "/Bench/Run2026A/MINIAOD"],
        "memory_mb": 2000, "time_per_event_sec": 10.0, "size_per_event_kb": 500.0, "multicore": 8,
        "splitting_algo": algorithm.name(), "processing_version": 1, "priority": 1,
        "cleanup_policy": "keep_until_replaced",
        "splitting_params": {"files_per_job": 2, "events_per_job": 400, "lumis_per_job": 8, "run_whitelist": wanted},
    }))
    .map_err(Error::other)
}

fn site_name(site: u64) -> String {
    format!("T2_XX_Site{site:02}")
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A memory field of this process in KB.
fn resident(line: &str) -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value =
        status.lines().find_map(|text| text.strip_prefix(line)?.split_whitespace().next()?.parse().ok());
    value.ok_or_else(|| Error::other(format!("no {line} in /proc/self/status")))
}
