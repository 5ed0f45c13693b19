//! Outlines of small workflows by example, and of random ones compared with a simple model.

use super::*;
use crate::dependency_edges::DependencyEdgesBuilder;
use proptest::prelude::*;

struct Case {
    names: Vec<String>,
    kinds: Vec<Option<u32>>,
    minutes: Vec<u64>,
    edges: DependencyEdges,
    reused: Vec<u32>,
}

impl Case {
    fn new(names: &[&str], minutes: &[u64], depends: &[(u32, &[u32])]) -> Self {
        let mut builder = DependencyEdgesBuilder::default();
        for (job, on) in depends {
            builder.add_dependencies(*job, on);
        }
        Self {
            names: names.iter().map(ToString::to_string).collect(),
            kinds: vec![None; names.len()],
            minutes: minutes.to_vec(),
            edges: builder.finish(),
            reused: Vec::new(),
        }
    }

    fn facts(&self, job: u32) -> OutlineJob<'_> {
        let runtime = Some(Duration::from_mins(self.minutes[job as usize]));
        OutlineJob {
            name: &self.names[job as usize],
            entry: self.kinds[job as usize],
            resources: Resources { cpus: 2, runtime, ..Resources::DEFAULT },
            priority: 0,
            measured_runtime: None,
            is_reused: self.reused.contains(&job),
        }
    }

    fn outline(&self, grain: OutlineGranularity, cpus: Option<u32>) -> WorkflowOutline {
        let capacity = cpus.map(|cpus| Capacity {
            cpus,
            memory: windlass_types::Bytes(1 << 40),
            gpus: 0,
            nodes: 1,
            max_jobs: None,
        });
        let jobs = self.names.len() as u32;
        let facts = |job| self.facts(job);
        let request = OutlineRequest {
            jobs,
            edges: &self.edges,
            entries: &["solve_{nu}"],
            facts: &facts,
            grain,
            capacity,
        };
        outline_workflow(&request).unwrap()
    }
}

fn labels(outline: &WorkflowOutline) -> Vec<Vec<String>> {
    let group = |&group: &u32| {
        let group = &outline.groups[group as usize];
        format!("{} × {}", group.label, group.jobs)
    };
    outline.stages.iter().map(|stage| stage.groups.iter().map(group).collect()).collect()
}

fn sweep() -> Case {
    let names = ["prepare", "solve_1", "solve_2", "solve_3", "plot"];
    let mut case =
        Case::new(&names, &[10, 60, 30, 60, 5], &[(1, &[0]), (2, &[0]), (3, &[0]), (4, &[1, 2, 3])]);
    (1..4).for_each(|job| case.kinds[job] = Some(0));
    case
}

#[test]
fn reused_jobs_are_omitted_from_the_outline() {
    let mut case = sweep();
    case.reused = vec![0, 1, 2];
    case.minutes[..3].fill(0);
    let outline = case.outline(OutlineGranularity::Entries, Some(1));
    assert_eq!((outline.width, outline.width_cpus), (1, 2), "only solve_3 and plot run, one after another");
    let estimate = outline.estimate.unwrap();
    assert_eq!(estimate.never, 2, "two CPUs are not available; reused jobs need none");
}

#[test]
fn parameter_sweep_is_three_lines() {
    let outline = sweep().outline(OutlineGranularity::Entries, None);
    assert_eq!(labels(&outline), [["prepare × 1"], ["solve_{nu} × 3"], ["plot × 1"]]);
    assert_eq!((outline.jobs, outline.dependencies, outline.width, outline.width_cpus), (5, 6, 3, 6));
    let shapes: Vec<_> =
        outline.links.iter().map(|link| (link.from, link.to, link.pairs, link.shape)).collect();
    assert_eq!(shapes, [(0, 1, 3, LinkShape::All), (1, 2, 3, LinkShape::All)]);
}

#[test]
fn critical_path_is_the_longest_by_time() {
    let outline = sweep().outline(OutlineGranularity::Entries, None);
    let names: Vec<_> = outline.critical_path.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["prepare", "solve_1", "plot"]);
    assert_eq!(outline.critical_time, Duration::from_mins(75));
    assert!(outline.groups.iter().all(|group| group.is_critical));
    assert!((outline.cpu_hours - 2.0 * 165.0 / 60.0).abs() < 1e-9);
}

#[test]
fn estimate_limits_concurrent_jobs() {
    for (cpus, minutes) in [(8, 75), (4, 10 + 90 + 5), (2, 165)] {
        let estimate = sweep().outline(OutlineGranularity::Entries, Some(cpus)).estimate.unwrap();
        assert_eq!((estimate.makespan, estimate.never), (Duration::from_mins(minutes), 0), "{cpus} cpus");
    }
    let hopeless = sweep().outline(OutlineGranularity::Entries, Some(1)).estimate.unwrap();
    assert_eq!((hopeless.makespan, hopeless.never), (Duration::ZERO, 5));
}

#[test]
fn outline_can_list_every_job() {
    let outline = sweep().outline(OutlineGranularity::Jobs, None);
    assert_eq!(outline.stages[1].groups.len(), 3);
    assert_eq!(outline.groups[2].label, "solve_2");
    assert!(!outline.groups[2].is_critical, "the short one is not on the critical path");
    let critical: Vec<_> =
        outline.links.iter().filter(|link| link.is_critical).map(|l| (l.from, l.to)).collect();
    assert_eq!(critical, [(0, 1), (1, 4)]);
}

#[test]
fn names_differing_in_digits_are_grouped() {
    let case = Case::new(&["a_01", "a_02", "b7", "c"], &[1; 4], &[]);
    assert_eq!(labels(&case.outline(OutlineGranularity::Entries, None)), [["a_# × 2", "b7 × 1", "c × 1"]]);
}

#[test]
fn long_chain_is_one_stage() {
    let count = 1000u32;
    let names: Vec<String> = (0..count).map(|n| format!("step_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let before: Vec<[u32; 1]> = (0..count).map(|n| [n.saturating_sub(1)]).collect();
    let depends: Vec<(u32, &[u32])> = (1..count).map(|n| (n, &before[n as usize][..])).collect();
    let outline =
        Case::new(&names, &vec![1; count as usize], &depends).outline(OutlineGranularity::Entries, None);
    assert_eq!(labels(&outline), [["step_# × 1000"]]);
    assert_eq!((outline.stages[0].first, outline.stages[0].last), (1, count));
    assert!(outline.groups[0].is_chain);
    assert_eq!((outline.width, outline.links.len()), (1, 0));
}

#[test]
fn dependency_group_is_counted_without_expansion() {
    let first: Vec<u32> = (0..2000).collect();
    let mut builder = DependencyEdgesBuilder::default();
    (2000..4000).for_each(|job| builder.add_dependencies(job, &first));
    let mut case = Case::new(&[], &[], &[]);
    case.names = (0..4000).map(|n| if n < 2000 { format!("a{n}") } else { format!("b{n}") }).collect();
    case.kinds = vec![None; 4000];
    case.minutes = vec![1; 4000];
    case.edges = builder.finish();
    let outline = case.outline(OutlineGranularity::Entries, None);
    let link = OutlineLink { from: 0, to: 1, pairs: 4_000_000, shape: LinkShape::All, is_critical: true };
    assert_eq!(outline.links, [link]);
    assert_eq!(outline.dependencies, 4_000_000);
}

#[test]
fn empty_workflow_has_an_outline() {
    let outline = Case::new(&[], &[], &[]).outline(OutlineGranularity::Entries, Some(4));
    assert_eq!((outline.stages.len(), outline.critical_time), (0, Duration::ZERO));
}

proptest! {
    /// For any graph: every job is in one group, links go forward in stages, unlimited resources take as long
    /// as the critical path, and a machine for one job at a time takes the sum.
    #[test]
    fn random_outlines_are_consistent(
        minutes in proptest::collection::vec(1u64..50, 1..30),
        raw in proptest::collection::vec((0usize..30, proptest::collection::vec(0usize..30, 1..5)), 0..25),
        by_job in any::<bool>(),
    ) {
        let count = minutes.len();
        let names: Vec<String> = (0..count).map(|n| format!("{}{n}", ["x", "y", "z"][n % 3])).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Only to lower numbers, so that there is no cycle.
        let depends: Vec<(u32, Vec<u32>)> = raw
            .iter()
            .map(|(job, on)| (job % count, on))
            .filter(|(job, _)| *job > 0)
            .map(|(job, on)| (job as u32, on.iter().map(|on| (on % job) as u32).collect()))
            .collect();
        let borrowed: Vec<(u32, &[u32])> = depends.iter().map(|(job, on)| (*job, on.as_slice())).collect();
        let case = Case::new(&names, &minutes, &borrowed);
        let grain = if by_job { OutlineGranularity::Jobs } else { OutlineGranularity::Entries };
        let roomy = case.outline(grain, Some(1000));
        prop_assert_eq!(roomy.groups.iter().map(|group| group.jobs).sum::<u32>(), count as u32);
        prop_assert_eq!(roomy.stages.iter().map(|stage| stage.jobs).sum::<u32>(), count as u32);
        for link in &roomy.links {
            let stage = |group: u32| &roomy.stages[roomy.groups[group as usize].stage as usize];
            let (from, to) = (stage(link.from), stage(link.to));
            prop_assert!(from.last < to.first || (from == to && from.first < from.last), "only a folded stage has internal links");
        }
        for (number, group) in (0u32..).zip(&roomy.groups) {
            let members = roomy.group_of.iter().filter(|member| **member == number).count();
            prop_assert_eq!(members as u32, group.jobs);
            prop_assert_eq!(roomy.group_of[group.first_job as usize], number);
        }
        let mut pairs: Vec<(u32, u32)> =
            depends.iter().flat_map(|(job, on)| on.iter().map(|on| (*job, *on))).collect();
        pairs.sort_unstable();
        pairs.dedup();
        prop_assert!(roomy.dependencies >= pairs.len() as u64, "a pair may be in two lists");
        prop_assert_eq!(roomy.estimate.unwrap().makespan, roomy.critical_time);
        let path: Duration = roomy.critical_path.iter().map(|step| step.expected).sum();
        prop_assert_eq!(path, roomy.critical_time);
        let alone = case.outline(grain, Some(2)).estimate.unwrap().makespan;
        prop_assert_eq!(alone, Duration::from_mins(minutes.iter().sum()));
    }
}
