//! The plan as a value: compact tables that refer to each other by index, since a large plan has a hundred
//! thousand jobs of ten files each; and views for reading it.

use super::file_selection::SelectedFile;
use super::input::{PlanInput, RetriesByRole, RoundStart};
use super::parameters::PlanParameters;
use super::site_sets::{SiteSetId, SiteSets};
use super::split::PlanDraft;
use super::work_units::{PlannedUnit, group_into_blocks};
use crate::adaptive::{RoundEstimate, ThreadProbeJobs};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_types::payload::StepProfile;
use windlass_types::requests::{SplittingAlgo, WorkUnitName};

/// A plan. Read it through [`RoundPlan::units`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundPlan {
    pub request: String,
    pub algorithm: SplittingAlgo,
    pub resources: PlanResources,
    /// The estimate that it was planned with, for the record.
    pub asked: RoundEstimate,
    /// The step profile for the payload; belongs to the resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<StepProfile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ThreadProbeJobs>,
    pub retries: RetriesByRole,
    /// Maximum number of concurrent jobs, by category.
    pub throttles: BTreeMap<String, u64>,
    pub output_datasets: Vec<String>,
    /// For generation; `None` if there is input.
    pub events_per_lumi: Option<u64>,
    /// Allowed sites.
    pub sites: Vec<String>,
    /// Input files, in reading order.
    pub files: Vec<PlanFile>,
    pub left_out: PlanRemainder,
    /// Events to be generated in later rounds.
    pub events_left: u64,
    /// First numbers of the next round: beyond everything in this plan.
    pub next: RoundStart,
    pub(super) site_sets: Vec<Vec<u32>>,
    pub(super) slices: Vec<FileSlice>,
    pub(super) ranges: Vec<LumiRange>,
    pub(super) nodes: Vec<PlanJobRow>,
    pub(super) units: Vec<PlanUnitRow>,
    /// Blocks of one dataset: all datasets have the same.
    pub(super) blocks: Vec<PlanBlockRow>,
}

/// Resource request of every processing job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanResources {
    pub cores: u32,
    pub memory_mb: u64,
    /// Whether more memory would be needed than may be requested: run fewer instances side by side.
    pub is_memory_capped: bool,
    pub time_per_event_sec: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFile {
    pub lfn: String,
    pub size: u64,
    pub events: u64,
    /// From the catalog, so that jobs detect a modified file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adler32: Option<Box<str>>,
    /// At allowed sites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<FileReplica>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReplica {
    /// Index into the sites of the plan.
    pub site: u32,
    pub path: Box<str>,
}

/// What this plan does not cover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRemainder {
    /// LFNs of files without selected events: masked out, or empty. Nothing more is done about them.
    pub nothing_to_do: Vec<String>,
    /// Files for later rounds.
    pub later: u64,
    /// Those that failed before.
    #[serde(default)]
    pub later_attempted: u64,
}

/// Part of a file that one job reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSlice {
    pub file: u32,
    pub part: SlicePart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlicePart {
    Whole,
    /// By position in the file, from 1, inclusive.
    Events {
        first: u64,
        last: u64,
    },
    /// Indices into the ranges of the plan.
    Lumis {
        from: u32,
        to: u32,
    },
}

/// Inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LumiRange {
    pub run: u32,
    pub first: u32,
    pub last: u32,
}

/// Inclusive. Each lumi has `events_per_lumi` events, from the first event on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratedRange {
    pub first_event: u64,
    pub last_event: u64,
    pub first_lumi: u32,
    pub last_lumi: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanJobWork {
    /// Indices into the slices of the plan.
    Read {
        from: u32,
        to: u32,
    },
    Generate(GeneratedRange),
}

/// A processing job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanJobRow {
    pub(super) work: PlanJobWork,
    pub(super) events: u64,
    pub(super) output_events: u64,
    pub(super) sites: SiteSetId,
    pub(super) time_sec: u64,
    pub(super) disk_kb: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanUnitRow {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) sites: SiteSetId,
    pub(super) output_kb: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanBlockRow {
    pub(super) first_unit: u32,
    pub(super) last_unit: u32,
    pub(super) output_kb: u64,
}

/// Work units `first_unit..=last_unit`, as one block of one dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlanBlock<'a> {
    pub dataset: &'a str,
    /// Continues the numbers of earlier rounds.
    pub index: u32,
    pub first_unit: u32,
    pub last_unit: u32,
    pub output_kb: u64,
}

impl RoundPlan {
    pub fn units(&self) -> impl ExactSizeIterator<Item = PlanUnit<'_>> {
        (0..self.units.len() as u32).map(|number| PlanUnit { plan: self, number })
    }

    pub fn unit(&self, number: u32) -> Option<PlanUnit<'_>> {
        ((number as usize) < self.units.len()).then_some(PlanUnit { plan: self, number })
    }

    /// Returns all processing jobs, unit by unit.
    pub fn nodes(&self) -> impl Iterator<Item = PlanJob<'_>> {
        self.units().flat_map(|unit| unit.nodes())
    }

    /// Returns blocks, dataset by dataset.
    pub fn blocks(&self) -> impl Iterator<Item = PlanBlock<'_>> {
        let first = self.next.first_block - self.blocks.len() as u32;
        self.output_datasets.iter().flat_map(move |dataset| {
            self.blocks.iter().zip(first..).map(move |(block, index)| PlanBlock {
                dataset,
                index,
                first_unit: block.first_unit,
                last_unit: block.last_unit,
                output_kb: block.output_kb,
            })
        })
    }

    fn site_names(&self, set: SiteSetId) -> impl Iterator<Item = &str> {
        self.site_sets[set as usize].iter().map(|&site| self.sites[site as usize].as_str())
    }
}

/// A work unit: landing, its processing nodes, merge, cleanup.
#[derive(Clone, Copy, Debug)]
pub struct PlanUnit<'a> {
    plan: &'a RoundPlan,
    number: u32,
}

impl<'a> PlanUnit<'a> {
    fn row(&self) -> &'a PlanUnitRow {
        &self.plan.units[self.number as usize]
    }

    /// Number within the plan, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn name(&self) -> WorkUnitName {
        WorkUnitName(self.number)
    }

    /// Number of processing jobs.
    pub fn len(&self) -> u32 {
        let row = self.row();
        row.to - row.from
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Includes landing, merge and cleanup.
    pub fn total_nodes(&self) -> u64 {
        u64::from(self.len()) + 3
    }

    /// From landing to each node, from each to merge, from merge to cleanup.
    pub fn edges(&self) -> u64 {
        2 * u64::from(self.len()) + 1
    }

    pub fn nodes(&self) -> impl ExactSizeIterator<Item = PlanJob<'a>> + use<'a> {
        let (plan, row) = (self.plan, self.row());
        (row.from..row.to).map(move |node| PlanJob { plan, node, index: node - row.from })
    }

    /// Returns the sites that can run all of it; never empty.
    pub fn sites(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.plan.site_names(self.row().sites)
    }

    pub fn events(&self) -> u64 {
        self.nodes().map(|node| node.events()).sum()
    }

    /// Expected size of all datasets together.
    pub fn output_kb(&self) -> u64 {
        self.row().output_kb
    }
}

/// A processing job.
#[derive(Clone, Copy, Debug)]
pub struct PlanJob<'a> {
    plan: &'a RoundPlan,
    node: u32,
    index: u32,
}

impl<'a> PlanJob<'a> {
    fn row(&self) -> &'a PlanJobRow {
        &self.plan.nodes[self.node as usize]
    }

    /// Index within its unit, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Events that it reads or generates.
    pub fn events(&self) -> u64 {
        self.row().events
    }

    /// Expected events after the filter.
    pub fn output_events(&self) -> u64 {
        self.row().output_events
    }

    pub fn time_sec(&self) -> u64 {
        self.row().time_sec
    }

    /// Its probe settings, if it is one of the last jobs of the first unit.
    pub fn probe(&self) -> Option<ThreadProbeJobs> {
        let probes = self.plan.probes?;
        let first = self.plan.units.first()?;
        (first.to.saturating_sub(probes.jobs)..first.to).contains(&self.node).then_some(probes)
    }

    pub fn memory_mb(&self) -> u64 {
        self.probe().map_or(self.plan.resources.memory_mb, |probes| probes.memory_mb)
    }

    pub fn disk_kb(&self) -> u64 {
        self.row().disk_kb
    }

    /// Returns allowed sites that have all its input; never empty. Includes those of its unit.
    pub fn sites(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.plan.site_names(self.row().sites)
    }

    pub fn generated(&self) -> Option<GeneratedRange> {
        match self.row().work {
            PlanJobWork::Generate(generated) => Some(generated),
            PlanJobWork::Read { .. } => None,
        }
    }

    /// Returns its input. A file may occur several times with consecutive windows of events.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = PlanJobInput<'a>> + use<'a> {
        let plan = self.plan;
        let slices = match self.row().work {
            PlanJobWork::Read { from, to } => &plan.slices[from as usize..to as usize],
            PlanJobWork::Generate(_) => &[],
        };
        slices.iter().map(move |&slice| PlanJobInput { plan, slice })
    }
}

/// Part of a file that a job reads.
#[derive(Clone, Copy, Debug)]
pub struct PlanJobInput<'a> {
    plan: &'a RoundPlan,
    slice: FileSlice,
}

impl<'a> PlanJobInput<'a> {
    pub fn file(&self) -> &'a PlanFile {
        &self.plan.files[self.slice.file as usize]
    }

    /// Index into the files of the plan.
    pub fn file_index(&self) -> u32 {
        self.slice.file
    }

    /// Site → path.
    pub fn replicas(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let plan = self.plan;
        self.file()
            .replicas
            .iter()
            .map(move |replica| (plan.sites[replica.site as usize].as_str(), &*replica.path))
    }

    /// `None`: all events.
    pub fn event_window(&self) -> Option<(u64, u64)> {
        match self.slice.part {
            SlicePart::Events { first, last } => Some((first, last)),
            SlicePart::Whole | SlicePart::Lumis { .. } => None,
        }
    }

    /// `None`: all lumis. Ascending.
    pub fn lumi_ranges(&self) -> Option<&'a [LumiRange]> {
        match self.slice.part {
            SlicePart::Lumis { from, to } => Some(&self.plan.ranges[from as usize..to as usize]),
            SlicePart::Whole | SlicePart::Events { .. } => None,
        }
    }
}

pub(super) fn assemble_plan(
    input: &PlanInput<'_>,
    terms: &PlanParameters,
    draft: PlanDraft,
    units: Vec<PlannedUnit>,
    sets: &SiteSets,
    files: &[SelectedFile<'_>],
) -> RoundPlan {
    let request = input.request;
    let sizing = terms.estimates;
    let mut used = UsedSiteSets { sets, new_ids: FxHashMap::default(), kept: Vec::new() };
    let nodes: Vec<PlanJobRow> = draft
        .jobs
        .iter()
        .map(|job| PlanJobRow {
            work: job.work,
            events: job.events,
            output_events: sizing.output_events(job.events),
            sites: used.new_id(job.sites),
            time_sec: sizing.time_sec(job.events),
            disk_kb: sizing.disk_kb(job.input_bytes, job.events),
        })
        .collect();
    let blocks: Vec<PlanBlockRow> = group_into_blocks(&units, request.output_datasets.len(), terms)
        .into_iter()
        .map(|(units, bytes)| PlanBlockRow {
            first_unit: units.start,
            last_unit: units.end - 1,
            output_kb: bytes.div_ceil(1024),
        })
        .collect();
    let next = next_start(input.start, &nodes, blocks.len() as u32);
    let units: Vec<PlanUnitRow> = units
        .into_iter()
        .map(|unit| PlanUnitRow {
            from: unit.jobs.start,
            to: unit.jobs.end,
            sites: used.new_id(unit.sites),
            output_kb: unit.output_bytes.div_ceil(1024),
        })
        .collect();
    RoundPlan {
        request: request.request_name.clone(),
        algorithm: request.splitting_algo,
        resources: PlanResources {
            cores: sizing.cores,
            memory_mb: sizing.memory_mb,
            is_memory_capped: sizing.is_memory_capped,
            time_per_event_sec: sizing.time_per_event,
        },
        asked: RoundEstimate::new(&terms.tuning, units.len() as u32, nodes.iter().map(|node| node.events)),
        profile: terms.tuning.profile.clone(),
        probes: None,
        retries: input.settings.retries,
        throttles: input.settings.throttles.clone(),
        output_datasets: request.output_datasets.clone(),
        events_per_lumi: request.generation.map(|generation| generation.events_per_lumi),
        sites: terms.sites.clone(),
        files: files.iter().map(|chosen| plan_file(chosen, terms)).collect(),
        left_out: PlanRemainder::default(),
        events_left: 0,
        next,
        site_sets: used.kept,
        slices: draft.slices,
        ranges: draft.ranges,
        nodes,
        units,
        blocks,
    }
}

fn plan_file(chosen: &SelectedFile<'_>, terms: &PlanParameters) -> PlanFile {
    let file = chosen.file;
    let allowed = |(site, path): (&String, &String)| {
        let site = terms.sites.binary_search(site).ok()? as u32;
        Some(FileReplica { site, path: path.as_str().into() })
    };
    PlanFile {
        lfn: file.lfn.clone(),
        size: file.size,
        events: file.events,
        adler32: file.checksums.get("adler32").map(|sum| sum.as_str().into()),
        replicas: file.replicas.iter().filter_map(allowed).collect(),
    }
}

/// Computed from the planned jobs alone, so that numbers cannot overlap or be lost.
fn next_start(start: RoundStart, nodes: &[PlanJobRow], blocks: u32) -> RoundStart {
    let generated = nodes.iter().filter_map(|node| match node.work {
        PlanJobWork::Generate(generated) => Some(generated),
        PlanJobWork::Read { .. } => None,
    });
    let begin = RoundStart { first_block: start.first_block + blocks, ..start };
    generated.fold(begin, |next, made| RoundStart {
        first_event: next.first_event.max(made.last_event + 1),
        first_lumi: next.first_lumi.max(made.last_lumi + 1),
        ..next
    })
}

/// The site sets that the plan refers to.
struct UsedSiteSets<'a> {
    sets: &'a SiteSets,
    new_ids: FxHashMap<SiteSetId, SiteSetId>,
    kept: Vec<Vec<u32>>,
}

impl UsedSiteSets<'_> {
    fn new_id(&mut self, set: SiteSetId) -> SiteSetId {
        *self.new_ids.entry(set).or_insert_with(|| {
            self.kept.push(self.sets.all()[set as usize].clone());
            self.kept.len() as SiteSetId - 1
        })
    }
}
