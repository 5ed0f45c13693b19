//! Groups of an outline: similar jobs, their stages, and the links between groups.

use super::{
    LinkShape, OutlineGranularity, OutlineGroup, OutlineLink, OutlineRequest, OutlineStage, cpu_hours,
};
use crate::topological_order::TopologicalOrder;
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Duration;
use windlass_types::{Bytes, Resources};

/// From this number of consecutive similar levels they are shown as one stage: a chain of a million jobs is one
/// line.
const LEVELS_TO_FOLD: usize = 3;

/// The stages, groups and links of an outline, and the group of each job.
pub(super) struct GroupedOutline {
    pub(super) stages: Vec<OutlineStage>,
    pub(super) groups: Vec<OutlineGroup>,
    pub(super) links: Vec<OutlineLink>,
    pub(super) group_of: Vec<u32>,
    pub(super) dependencies: u64,
}

impl GroupedOutline {
    pub(super) fn new(request: &OutlineRequest<'_>, order: &TopologicalOrder, critical: &[u32]) -> Self {
        let families = JobFamilies::new(request);
        let levels = group_levels(request, order, &families);
        let mut lines = Self {
            stages: Vec::new(),
            groups: Vec::new(),
            links: Vec::new(),
            group_of: vec![0; request.jobs as usize],
            dependencies: 0,
        };
        for alike in fold_levels(&levels, request.grain) {
            lines.add_stage(request, &families, &levels[alike.clone()], alike.start);
        }
        lines.count_links(request);
        lines.mark_critical(critical);
        lines
    }

    /// Adds a stage of similar `levels`.
    fn add_stage(
        &mut self,
        request: &OutlineRequest<'_>,
        families: &JobFamilies,
        levels: &[FamilyLevel],
        first: usize,
    ) {
        let stage = self.stages.len() as u32;
        let base = self.groups.len() as u32;
        let kinds = levels[0].len();
        for position in 0..kinds {
            let family = levels[0][position].family;
            let members = || levels.iter().flat_map(move |level| level[position].jobs.iter().copied());
            let group = self.groups.len() as u32;
            members().for_each(|job| self.group_of[job as usize] = group);
            self.groups.push(describe_group(request, families.label(family), stage, members()));
        }
        self.stages.push(OutlineStage {
            first: first as u32 + 1,
            last: (first + levels.len()) as u32,
            jobs: self.groups[base as usize..].iter().map(|group| group.jobs).sum(),
            groups: (base..self.groups.len() as u32).collect(),
        });
    }

    /// Counts links between groups; a dependency group costs its members, its waiters and the groups among
    /// them.
    fn count_links(&mut self, request: &OutlineRequest<'_>) {
        let (edges, group_of) = (request.edges, &self.group_of);
        let mut pairs: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        for &(job, on) in &edges.direct {
            *pairs.entry((group_of[on as usize], group_of[job as usize])).or_default() += 1;
        }
        let mut waiters: Vec<FxHashMap<u32, u64>> = vec![FxHashMap::default(); edges.groups.len()];
        for &(job, group) in &edges.waits {
            *waiters[group as usize].entry(group_of[job as usize]).or_default() += 1;
        }
        for (members, waiters) in edges.groups.iter().zip(&waiters) {
            let mut sources: FxHashMap<u32, u64> = FxHashMap::default();
            for &member in members {
                *sources.entry(group_of[member as usize]).or_default() += 1;
            }
            for (&from, sources) in &sources {
                for (&to, waiters) in waiters {
                    *pairs.entry((from, to)).or_default() += sources * waiters;
                }
            }
        }
        self.dependencies = pairs.values().sum();
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_unstable();
        for ((from, to), pairs) in pairs {
            if from == to {
                self.groups[from as usize].is_chain = true;
            } else {
                let shape = self.link_shape(from, to, pairs);
                self.links.push(OutlineLink { from, to, pairs, shape, is_critical: false });
            }
        }
    }

    /// Marks the groups and links of the critical path.
    fn mark_critical(&mut self, critical: &[u32]) {
        let groups: Vec<u32> = critical.iter().map(|&job| self.group_of[job as usize]).collect();
        let along: FxHashSet<(u32, u32)> = groups.windows(2).map(|pair| (pair[0], pair[1])).collect();
        for link in &mut self.links {
            link.is_critical = along.contains(&(link.from, link.to));
        }
        for group in groups {
            self.groups[group as usize].is_critical = true;
        }
    }

    fn link_shape(&self, from: u32, to: u32, pairs: u64) -> LinkShape {
        let (before, after) =
            (u64::from(self.groups[from as usize].jobs), u64::from(self.groups[to as usize].jobs));
        match pairs {
            _ if pairs == before * after => LinkShape::All,
            _ if pairs == before && pairs == after => LinkShape::OneToOne,
            _ => LinkShape::Some,
        }
    }
}

/// The jobs of one family in one level.
struct FamilyJobs {
    family: u32,
    jobs: Vec<u32>,
}

type FamilyLevel = Vec<FamilyJobs>;

/// Groups all jobs by the length of the longest chain before them.
fn group_levels(
    request: &OutlineRequest<'_>,
    order: &TopologicalOrder,
    families: &JobFamilies,
) -> Vec<FamilyLevel> {
    let depth = order.depths();
    let mut jobs: Vec<u32> = (0..request.jobs).collect();
    let place = |job: u32| (depth[job as usize], families.family_of[job as usize]);
    jobs.sort_by_key(|&job| place(job));
    let mut levels: Vec<FamilyLevel> = Vec::new();
    for alike in jobs.chunk_by(|&a, &b| place(a) == place(b)) {
        let (level, family) = place(alike[0]);
        if level as usize == levels.len() {
            levels.push(FamilyLevel::new());
        }
        levels[level as usize].push(FamilyJobs { family, jobs: alike.to_vec() });
    }
    levels
}

/// Returns ranges of levels that are shown as one stage.
fn fold_levels(levels: &[FamilyLevel], grain: OutlineGranularity) -> Vec<std::ops::Range<usize>> {
    let alike = |a: &FamilyLevel, b: &FamilyLevel| {
        let looks = |level: &FamilyLevel| {
            level.iter().map(|batch| (batch.family, batch.jobs.len())).collect::<Vec<_>>()
        };
        grain == OutlineGranularity::Entries && a.len() == b.len() && looks(a) == looks(b)
    };
    let mut ranges = Vec::new();
    let mut start = 0;
    for run in levels.chunk_by(alike) {
        let end = start + run.len();
        if run.len() >= LEVELS_TO_FOLD {
            ranges.push(start..end);
        } else {
            ranges.extend((start..end).map(|level| level..level + 1));
        }
        start = end;
    }
    ranges
}

/// Families of similar jobs.
struct JobFamilies {
    family_of: Vec<u32>,
    labels: Vec<String>,
}

impl JobFamilies {
    fn new(request: &OutlineRequest<'_>) -> Self {
        if request.grain == OutlineGranularity::Jobs {
            return Self { family_of: (0..request.jobs).collect(), labels: Vec::new() };
        }
        let mut families = Self { family_of: Vec::with_capacity(request.jobs as usize), labels: Vec::new() };
        let mut by_kind: FxHashMap<u32, u32> = FxHashMap::default();
        let mut by_pattern: FxHashMap<String, u32> = FxHashMap::default();
        let mut pattern = String::new();
        for job in 0..request.jobs {
            let facts = (request.facts)(job);
            let family = if let Some(kind) = facts.entry {
                let label = || request.entries.get(kind as usize).copied().unwrap_or(facts.name);
                *by_kind.entry(kind).or_insert_with(|| families.add(label()))
            } else {
                write_pattern(facts.name, &mut pattern);
                by_pattern.get(&pattern).copied().unwrap_or_else(|| {
                    let family = families.add(&pattern);
                    by_pattern.insert(pattern.clone(), family);
                    family
                })
            };
            families.family_of.push(family);
        }
        families
    }

    fn add(&mut self, label: &str) -> u32 {
        self.labels.push(label.to_owned());
        self.labels.len() as u32 - 1
    }

    fn label(&self, family: u32) -> Option<&str> {
        self.labels.get(family as usize).map(String::as_str)
    }
}

/// `work_017` becomes `work_#`.
fn write_pattern(name: &str, pattern: &mut String) {
    pattern.clear();
    for c in name.chars() {
        match c {
            '0'..='9' if pattern.ends_with('#') => {}
            '0'..='9' => pattern.push('#'),
            _ => pattern.push(c),
        }
    }
}

fn describe_group(
    request: &OutlineRequest<'_>,
    label: Option<&str>,
    stage: u32,
    members: impl Iterator<Item = u32>,
) -> OutlineGroup {
    const NOTHING: Resources = Resources { cpus: 0, memory: Bytes(0), gpus: 0, nodes: 0, runtime: None };
    let mut first = None;
    let (mut jobs, mut hours, mut longest, mut most) = (0, 0.0, Duration::ZERO, NOTHING);
    for job in members {
        let facts = (request.facts)(job);
        first = first.or(Some((job, facts.name)));
        jobs += 1;
        hours += cpu_hours(&facts);
        longest = longest.max(facts.expected_runtime());
        most = max_resources(&most, &facts.resources);
    }
    let (first_job, name) = first.unwrap_or_default();
    let label = label.filter(|_| jobs > 1).unwrap_or(name).to_owned();
    let (is_critical, is_chain) = (false, false);
    OutlineGroup {
        label,
        stage,
        jobs,
        first_job,
        resources: most,
        longest,
        cpu_hours: hours,
        is_critical,
        is_chain,
    }
}

fn max_resources(a: &Resources, b: &Resources) -> Resources {
    Resources {
        cpus: a.cpus.max(b.cpus),
        memory: a.memory.max(b.memory),
        gpus: a.gpus.max(b.gpus),
        nodes: a.nodes.max(b.nodes),
        runtime: a.runtime.max(b.runtime),
    }
}
