//! Plans by example, and plans of random requests against a simple model.

mod cases;
mod faults;
mod generation;
mod model;
mod properties;
mod recovery;

use super::*;
use crate::adaptive::RequestMeasurements;
use std::collections::{BTreeMap, BTreeSet};
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::{
    CleanupPolicy, FileRemainder, GenerationParams, Request, SplittingAlgo, SplittingParams,
};

/// Input of a plan, to be modified.
#[derive(Clone, Debug)]
pub(super) struct Fixture {
    pub(super) request: Request,
    pub(super) files: Vec<CatalogFile>,
    pub(super) attempted: BTreeSet<String>,
    pub(super) left: BTreeMap<String, FileRemainder>,
    pub(super) sites: BTreeMap<String, Option<u64>>,
    pub(super) settings: PlanSettings,
    pub(super) start: RoundStart,
    pub(super) events_wanted: Option<u64>,
    pub(super) memory_mb: Option<u64>,
    pub(super) time_per_event: Option<f64>,
    pub(super) metrics: Option<RequestMeasurements>,
    pub(super) max_units: Option<u32>,
    pub(super) max_jobs: Option<u64>,
    pub(super) until_step: Option<u64>,
}

impl Fixture {
    pub(super) fn new(algo: SplittingAlgo, files: Vec<CatalogFile>) -> Self {
        Self {
            request: request(algo),
            files,
            attempted: BTreeSet::new(),
            left: BTreeMap::new(),
            sites: ["A", "B", "C"].map(|site| (site.to_owned(), None)).into(),
            settings: PlanSettings::default(),
            start: RoundStart::default(),
            events_wanted: None,
            memory_mb: None,
            time_per_event: None,
            metrics: None,
            max_units: None,
            max_jobs: None,
            until_step: None,
        }
    }

    pub(super) fn generating(generation: GenerationParams, events_per_job: u64) -> Self {
        let mut fixture = Self::new(SplittingAlgo::EventBased, Vec::new());
        fixture.request.input_dataset = None;
        fixture.request.generation = Some(generation);
        fixture.params().events_per_job = Some(events_per_job);
        fixture
    }

    pub(super) fn params(&mut self) -> &mut SplittingParams {
        &mut self.request.splitting_params
    }

    pub(super) fn try_plan(&self) -> Result<RoundPlan, Vec<PlanProblem>> {
        plan_round(&PlanInput {
            request: &self.request,
            files: &self.files,
            attempted: &self.attempted,
            remaining: &self.left,
            sites: &self.sites,
            settings: &self.settings,
            start: self.start,
            events_wanted: self.events_wanted,
            memory_mb: self.memory_mb,
            time_per_event: self.time_per_event,
            metrics: self.metrics.as_ref(),
            max_units: self.max_units,
            max_jobs: self.max_jobs,
            until_step: self.until_step,
        })
    }

    pub(super) fn plan(&self) -> RoundPlan {
        self.try_plan().unwrap()
    }
}

fn request(splitting_algo: SplittingAlgo) -> Request {
    Request {
        request_name: "r".into(),
        requestor: "ada".into(),
        requestor_dn: None,
        group: None,
        input_dataset: Some("/Min/Bias/RAW".into()),
        secondary_input_dataset: None,
        output_datasets: vec!["/Min/Bias/RECO".into(), "/Min/Bias/AOD".into()],
        generation: None,
        cmssw_version: None,
        scram_arch: Vec::new(),
        global_tag: None,
        memory_mb: 2000,
        time_per_event_sec: 1.0,
        size_per_event_kb: 1.0,
        multicore: 1,
        site_whitelist: Vec::new(),
        site_blacklist: Vec::new(),
        adaptive: true,
        trust_sitelists: false,
        splitting_algo,
        splitting_params: SplittingParams::default(),
        campaign: None,
        processing_string: None,
        acquisition_era: None,
        processing_version: 1,
        priority: 100_000,
        urgent: false,
        production_steps: Vec::new(),
        payload_config: serde_json::Map::new(),
        previous_version_request: None,
        superseded_by_request: None,
        cleanup_policy: CleanupPolicy::KeepUntilReplaced,
    }
}

/// Lumis as (run, lumi, events).
pub(super) fn file(lfn: &str, sites: &[&str], lumis: &[(u32, u32, u32)]) -> CatalogFile {
    let events = lumis.iter().map(|(.., events)| u64::from(*events)).sum();
    let lumi = |&(run, lumi, events)| FileLumi { run, lumi, events: Some(events) };
    CatalogFile {
        lfn: lfn.to_owned(),
        size: 1024 * events,
        events,
        lumis: lumis.iter().map(lumi).collect(),
        replicas: sites.iter().map(|site| ((*site).to_owned(), format!("/{site}{lfn}"))).collect(),
        ..CatalogFile::default()
    }
}

/// A file with a known number of events only.
pub(super) fn plain(lfn: &str, sites: &[&str], events: u64) -> CatalogFile {
    CatalogFile { size: 1024 * events, events, ..file(lfn, sites, &[]) }
}

/// The jobs of a plan as text: `a[1-5] b | b[6-9] @A,B`, one line per node, an empty line after each unit.
pub(super) fn sketch(plan: &RoundPlan) -> String {
    let mut lines = Vec::new();
    for unit in plan.units() {
        lines.extend(unit.nodes().map(|node| {
            let inputs: Vec<String> = node.inputs().map(|input| sketch_input(&input)).collect();
            let made = node.generated().map(|made| {
                let GeneratedRange { first_event, last_event, first_lumi, last_lumi } = made;
                format!("{first_event}-{last_event} lumis {first_lumi}-{last_lumi}")
            });
            let sites: Vec<&str> = node.sites().collect();
            format!("{}{} @{}", inputs.join(" "), made.unwrap_or_default(), sites.join(","))
        }));
        lines.push(format!("= {} @{}", unit.name(), unit.sites().collect::<Vec<_>>().join(",")));
    }
    lines.join("\n")
}

fn sketch_input(input: &PlanJobInput<'_>) -> String {
    let lfn = &input.file().lfn;
    if let Some((first, last)) = input.event_window() {
        return format!("{lfn}[{first}-{last}]");
    }
    match input.lumi_ranges() {
        None => lfn.clone(),
        Some(ranges) => {
            let ranges: Vec<String> =
                ranges.iter().map(|r| format!("{}:{}-{}", r.run, r.first, r.last)).collect();
            format!("{lfn}{{{}}}", ranges.join(" "))
        }
    }
}
