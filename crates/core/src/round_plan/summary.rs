//! Summary of a plan.

use super::plan_tables::RoundPlan;
use serde::Serialize;
use std::collections::BTreeMap;
use windlass_types::requests::{NodeRole, SplittingAlgo};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanSummary {
    pub request: String,
    pub algorithm: SplittingAlgo,
    pub work_units: u64,
    /// All roles together.
    pub nodes: u64,
    pub nodes_by_role: BTreeMap<&'static str, u64>,
    pub edges: u64,
    /// As the requests API counts: one for each processing node.
    pub api_edges: u64,
    pub files: u64,
    /// If split by lumis.
    pub lumis: Option<u64>,
    /// Events read or generated.
    pub events: u64,
    pub output_events: u64,
    pub output_kb: u64,
    /// Blocks of each output dataset.
    pub blocks: u64,
    pub cores: u32,
    pub memory_mb: u64,
    pub is_memory_capped: bool,
    pub events_per_node: Option<ValueSpread>,
    pub time_sec_per_node: Option<ValueSpread>,
    pub nodes_per_unit: Option<ValueSpread>,
    /// Sum over all jobs.
    pub core_hours: f64,
    pub sites: Vec<SiteShare>,
    /// Files without selected events.
    pub files_left_out: u64,
    /// Files for later rounds.
    pub files_later: u64,
    /// Events generated in later rounds.
    pub events_later: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ValueSpread {
    pub least: u64,
    pub median: u64,
    pub most: u64,
}

/// The share of work that a site can run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteShare {
    pub site: String,
    /// Work units that may run there.
    pub work_units: u64,
    /// Those that can run nowhere else.
    pub only_here: u64,
}

impl RoundPlan {
    pub fn summary(&self) -> PlanSummary {
        let (units, processing) = (self.units.len() as u64, self.nodes.len() as u64);
        let roles = [
            (NodeRole::Landing, units),
            (NodeRole::Processing, processing),
            (NodeRole::Merge, units),
            (NodeRole::Cleanup, units),
        ];
        let time: u64 = self.nodes.iter().map(|node| node.time_sec).sum();
        PlanSummary {
            request: self.request.clone(),
            algorithm: self.algorithm,
            work_units: units,
            nodes: processing + 3 * units,
            nodes_by_role: roles.map(|(role, count)| (role.name(), count)).into(),
            edges: 2 * processing + units,
            api_edges: processing,
            files: self.files.len() as u64,
            lumis: self.count_lumis(),
            events: self.nodes.iter().map(|node| node.events).sum(),
            output_events: self.nodes.iter().map(|node| node.output_events).sum(),
            output_kb: self.units.iter().map(|unit| unit.output_kb).sum(),
            blocks: self.blocks.len() as u64,
            cores: self.resources.cores,
            memory_mb: self.resources.memory_mb,
            is_memory_capped: self.resources.is_memory_capped,
            events_per_node: ValueSpread::from_values(self.nodes.iter().map(|node| node.events)),
            time_sec_per_node: ValueSpread::from_values(self.nodes.iter().map(|node| node.time_sec)),
            nodes_per_unit: ValueSpread::from_values(
                self.units.iter().map(|unit| u64::from(unit.to - unit.from)),
            ),
            core_hours: time as f64 * f64::from(self.resources.cores) / 3600.0,
            sites: self.site_shares(),
            files_left_out: self.left_out.nothing_to_do.len() as u64,
            files_later: self.left_out.later,
            events_later: self.events_left,
        }
    }

    /// A lumi in several files is in one node and counts once.
    fn count_lumis(&self) -> Option<u64> {
        if !matches!(self.algorithm, SplittingAlgo::LumiBased | SplittingAlgo::EventAwareLumiBased) {
            return None;
        }
        if self.events_per_lumi.is_some() {
            let made = self.nodes().filter_map(|node| node.generated());
            return Some(made.map(|made| u64::from(made.last_lumi - made.first_lumi) + 1).sum());
        }
        let mut total = 0;
        let mut seen = Vec::new();
        for node in self.nodes() {
            seen.clear();
            seen.extend(node.inputs().filter_map(|input| input.lumi_ranges()).flatten().copied());
            seen.sort_unstable_by_key(|range| (range.run, range.first));
            let mut covered = None;
            for range in &seen {
                let from = match covered {
                    Some((run, last)) if run == range.run && last >= range.first => u64::from(last) + 1,
                    _ => u64::from(range.first),
                };
                total += (u64::from(range.last) + 1).saturating_sub(from);
                let last = covered.filter(|&(run, _)| run == range.run).map_or(0, |(_, last)| last);
                covered = Some((range.run, range.last.max(last)));
            }
        }
        Some(total)
    }

    fn site_shares(&self) -> Vec<SiteShare> {
        let mut by_set = vec![0u64; self.site_sets.len()];
        for unit in &self.units {
            by_set[unit.sites as usize] += 1;
        }
        let share = |(index, site): (usize, &String)| {
            let mut share = SiteShare { site: site.clone(), work_units: 0, only_here: 0 };
            for (set, units) in self.site_sets.iter().zip(&by_set) {
                if set.contains(&(index as u32)) {
                    share.work_units += units;
                    share.only_here += if set.len() == 1 { *units } else { 0 };
                }
            }
            share
        };
        self.sites.iter().enumerate().map(share).collect()
    }
}

impl ValueSpread {
    fn from_values(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let (&least, &most) = (values.first()?, values.last()?);
        Some(Self { least, median: values[(values.len() - 1) / 2], most })
    }
}
