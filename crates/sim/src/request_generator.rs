//! Generates requests: with input or generated events, with all four splittings, with more or less accurate
//! hints; and the datasets that they read.

use crate::seeded_random::SeededRandom;
use crate::setup::failure_rates;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass_core::requests::document;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::Request;

/// The true properties of a request, unknown to the server.
#[derive(Clone, Debug)]
pub(crate) struct RequestGroundTruth {
    /// Memory that its jobs use, per core.
    pub(crate) memory_per_core: f64,
    /// Actual time divided by the hint.
    pub(crate) time_factor: f64,
    /// Actual filter efficiency divided by the stated one.
    pub(crate) filter_factor: f64,
    /// Whether every job fails until an operator fixes the request.
    pub(crate) is_broken: bool,
    /// Whether its runs go to HTCondor.
    pub(crate) is_condor: bool,
}

/// The flaw of an input file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileDefect {
    /// No copy is readable. `shy`: the first attempt does not report it.
    Corrupt { shy: bool },
    /// The copy at this site is bad.
    BadCopy { site: String },
    /// Jobs that read it crash without a reason. An operator identifies it after some time.
    Poison,
}

#[derive(Debug)]
pub(crate) struct GeneratedRequest {
    pub(crate) request: Request,
    pub(crate) truth: RequestGroundTruth,
    pub(crate) files: Vec<CatalogFile>,
    pub(crate) defects: BTreeMap<String, FileDefect>,
}

/// Generates the request with this number.
pub(crate) fn generate_request(number: u32, seed: u64, sites: &[String]) -> GeneratedRequest {
    let mut random = SeededRandom::for_part(seed, &format!("wish {number}"));
    let name = format!("sim_{number:04}_v1");
    let mut document = common_fields(&name, &mut random, sites);
    let mut files = Vec::new();
    let mut defects = BTreeMap::new();
    if random.chance(0.35) {
        set_generation(&mut document, &mut random);
    } else {
        let events_of_file = set_input(&mut document, number, &mut random);
        files = generate_files(number, events_of_file, &mut random, sites);
        defects = generate_defects(&files, &mut random);
    }
    let context =
        document::DocumentContext { requestor: "operator", name_suffix: "1", max_memory_per_core_mb: 3000 };
    let request = document::parse_request(&document, &context)
        .unwrap_or_else(|faults| panic!("invalid request: {faults:?} {document}"));
    let mut of_filter = SeededRandom::for_part(seed, &format!("filter {number}"));
    let truth = RequestGroundTruth {
        filter_factor: *of_filter.pick_one(&[1.0, 1.0, 0.4]),
        memory_per_core: random.fraction_between(600.0, 2300.0),
        time_factor: random.fraction_between(0.5, 2.0),
        is_broken: random.chance(failure_rates::BROKEN_REQUESTS),
        is_condor: random.chance(0.5),
    };
    GeneratedRequest { request, truth, files, defects }
}

fn common_fields(name: &str, random: &mut SeededRandom, sites: &[String]) -> Value {
    let outputs = if random.chance(0.2) { vec!["AOD", "MINIAOD"] } else { vec!["AOD"] };
    let outputs: Vec<String> = outputs.iter().map(|tier| format!("/Sim/{name}-v1/{tier}")).collect();
    let cores = *random.pick_one(&[1u64, 1, 1, 4]);
    let mut document = json!({
        "request_name": name,
        "requestor": *random.pick_one(&["ana", "ben", "cleo", "dora"]),
        "output_datasets": outputs,
        "memory_mb": 2000 * cores,
        "multicore": cores,
        "priority": 1000 * random.number_within(1, 5),
        "urgent": random.chance(0.03),
        "processing_version": 1,
    });
    if random.chance(0.15) && document["urgent"] != json!(true) {
        document["production_steps"] =
            json!([{ "fraction": 0.4, "priority": 800 }, { "fraction": 0.7, "priority": 300 }]);
    }
    if random.chance(0.2) {
        let count = (sites.len() / 3).max(4);
        document["site_whitelist"] = json!(random.pick_some(sites, count));
    }
    if random.chance(0.1) {
        let wanted = document["site_whitelist"].as_array().cloned().unwrap_or_default();
        let others: Vec<&String> = sites.iter().filter(|site| !wanted.contains(&json!(site))).collect();
        document["site_blacklist"] = json!(random.pick_some(&others, 1));
    }
    document
}

/// Generates splitting parameters that give a work unit a few jobs, and a block a few units.
fn set_sizes(document: &mut Value, events_per_job: u64, random: &mut SeededRandom) {
    let (jobs, units) = (random.number_within(3, 6), random.number_within(2, 6));
    let hours = random.fraction_between(0.5, 4.0);
    document["time_per_event_sec"] = json!(hours * 3600.0 / events_per_job as f64);
    document["size_per_event_kb"] = json!(10.0);
    document["splitting_params"]["target_merged_size_kb"] = json!(10 * events_per_job * jobs);
    document["splitting_params"]["target_block_size_kb"] = json!(10 * events_per_job * jobs * units);
}

fn set_generation(document: &mut Value, random: &mut SeededRandom) {
    let events_per_job = random.number_within(2, 20) * 100;
    document["generation"] = json!({
        "events": events_per_job * random.number_within(8, 90),
        "first_event": 1,
        "events_per_lumi": 100,
        "filter_efficiency": *random.pick_one(&[1.0, 1.0, 0.5, 0.25]),
    });
    document["splitting_algo"] = json!("EventBased");
    document["splitting_params"] = json!({ "events_per_job": events_per_job });
    set_sizes(document, events_per_job, random);
}

/// Returns how many events a file has, more or less.
fn set_input(document: &mut Value, number: u32, random: &mut SeededRandom) -> u64 {
    let events_of_file = random.number_within(2, 20) * 50;
    let (algorithm, params, events_per_job) = match random.number_below(4) {
        0 => ("FileBased", json!({ "files_per_job": 2 }), 2 * events_of_file),
        1 => ("EventBased", json!({ "events_per_job": events_of_file * 2 / 3 }), events_of_file * 2 / 3),
        2 => ("LumiBased", json!({ "lumis_per_job": 5 }), events_of_file),
        _ => ("EventAwareLumiBased", json!({ "events_per_job": events_of_file }), events_of_file),
    };
    document["input_dataset"] = json!(format!("/Sim/Input{number}-v1/RAW"));
    document["splitting_algo"] = json!(algorithm);
    document["splitting_params"] = params;
    // Otherwise some files would be at no allowed site.
    document["trust_sitelists"] = json!(random.chance(0.3) || document.get("site_whitelist").is_some());
    set_sizes(document, events_per_job, random);
    events_of_file
}

/// Generates files of a few lumis each, in groups with the same sites.
fn generate_files(
    number: u32,
    events_of_file: u64,
    random: &mut SeededRandom,
    sites: &[String],
) -> Vec<CatalogFile> {
    const LUMIS: u64 = 5;
    let mut files = Vec::new();
    for group in 0..random.number_within(2, 8) {
        let kept = random.number_within(3, 6) as usize;
        let places = random.pick_some(sites, kept);
        for _ in 0..random.number_within(4, 12) {
            let index = files.len() as u32;
            let lfn = format!("/store/sim/{number}/{group}/{index}.root");
            let each = (events_of_file / LUMIS).max(1);
            let lumis: Vec<FileLumi> = (0..LUMIS as u32)
                .map(|lumi| FileLumi {
                    run: 1 + group as u32,
                    lumi: index * LUMIS as u32 + lumi + 1,
                    events: Some(random.number_within(each.div_ceil(2), each * 3 / 2) as u32),
                })
                .collect();
            let events = lumis.iter().filter_map(|lumi| lumi.events).map(u64::from).sum();
            files.push(CatalogFile {
                size: events * 10_000,
                events,
                replicas: places.iter().map(|site| (site.clone(), format!("/data{lfn}"))).collect(),
                lfn,
                lumis,
                ..CatalogFile::default()
            });
        }
    }
    files
}

fn generate_defects(files: &[CatalogFile], random: &mut SeededRandom) -> BTreeMap<String, FileDefect> {
    let mut defects = BTreeMap::new();
    for file in files {
        if random.chance(failure_rates::CORRUPT_FILES) {
            defects.insert(file.lfn.clone(), FileDefect::Corrupt { shy: random.chance(0.3) });
        } else if random.chance(failure_rates::BAD_COPIES) {
            let places: Vec<&String> = file.replicas.keys().collect();
            defects
                .insert(file.lfn.clone(), FileDefect::BadCopy { site: (*random.pick_one(&places)).clone() });
        } else if random.chance(failure_rates::POISON) {
            defects.insert(file.lfn.clone(), FileDefect::Poison);
        }
    }
    defects
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn generator_makes_all_kinds_of_requests() {
        let sites: Vec<String> = (0..20).map(|n| format!("T2_{n}")).collect();
        let commands: Vec<GeneratedRequest> =
            (0..200).map(|number| generate_request(number, 5, &sites)).collect();
        let ways: BTreeSet<_> = commands.iter().map(|scenario| scenario.request.splitting_algo).collect();
        assert_eq!(ways.len(), 4);
        assert!(commands.iter().any(|scenario| scenario.request.generation.is_some()));
        assert!(commands.iter().any(|scenario| !scenario.request.production_steps.is_empty()));
        assert!(commands.iter().any(|scenario| scenario.truth.is_broken));
        let defects = || commands.iter().flat_map(|scenario| scenario.defects.values());
        assert!(defects().any(|defect| matches!(defect, FileDefect::Corrupt { shy: true })));
        assert!(defects().any(|defect| matches!(defect, FileDefect::BadCopy { .. })));
        assert!(defects().any(|defect| *defect == FileDefect::Poison));
    }
}
