//! Core-hours of allocations: requested, granted, and used.

use super::schedule_generation::parse_cpus_option;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::slurm::{Allocation, AllocationRequest};
use windlass_types::{AllocationId, Timestamp};

/// How the time of an attempt counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptTimeUse {
    /// It completed, or still runs.
    Useful,
    /// It failed by itself.
    Failed,
    /// It was ended with its allocation or its worker.
    Lost,
}

/// An attempt in an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptCoreUse {
    pub allocation: AllocationId,
    /// Cores requested by the job, on all its nodes.
    pub cores: u32,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    /// `None`: not measured.
    pub wall: Option<Duration>,
    pub cpu_time: Duration,
    pub outcome: AttemptTimeUse,
}

/// The number of cores of a worker in an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationWorkerCores {
    pub allocation: AllocationId,
    pub name: String,
    pub cores: u32,
}

/// In core-hours, except for `cores` and percentages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CoreHourUsage {
    /// `None`: unknown from the request and the workers.
    pub cores: Option<u32>,
    /// Requested: its cores for its whole walltime.
    #[serde(rename = "asked_core_hours")]
    pub asked: f64,
    /// Granted: from its start to its end, or until now.
    #[serde(rename = "given_core_hours")]
    pub given: f64,
    /// Requested by jobs while they ran.
    #[serde(rename = "used_core_hours")]
    pub claimed: f64,
    /// CPU time used by jobs.
    #[serde(rename = "cpu_core_hours")]
    pub cpu: f64,
    /// Part of `claimed`: by failed attempts.
    #[serde(rename = "failed_core_hours")]
    pub failed: f64,
    /// Part of `claimed`: by attempts that were ended with the allocation.
    #[serde(rename = "lost_core_hours")]
    pub lost: f64,
    /// Granted but not claimed.
    #[serde(rename = "idle_core_hours")]
    pub idle: f64,
    /// Claimed share of the granted core-hours; `None` if nothing was granted.
    #[serde(rename = "utilisation_percent")]
    pub utilisation: Option<f64>,
}

/// For a workflow, or for some of its allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreHourReport {
    pub allocations: BTreeMap<AllocationId, CoreHourUsage>,
    pub total: CoreHourUsage,
}

/// Combines allocations with their workers and attempts, in one pass over each list.
pub fn report_core_hours(
    allocations: &[Allocation],
    hosts: &[AllocationWorkerCores],
    spells: &[AttemptCoreUse],
    now: Timestamp,
) -> CoreHourReport {
    let cores = cores_by_allocation(allocations, hosts);
    let mut found: BTreeMap<AllocationId, (Option<Timestamp>, CoreHourUsage)> = allocations
        .iter()
        .map(|one| (one.id, (one.ended_at, granted_usage(one, cores.get(&one.id).copied(), now))))
        .collect();
    for spell in spells {
        if let Some((ended_at, usage)) = found.get_mut(&spell.allocation) {
            add_attempt(usage, spell, *ended_at);
        }
    }
    let mut report = CoreHourReport::default();
    for (id, (_, mut usage)) in found {
        compute_idle(&mut usage);
        add_usage(&mut report.total, &usage);
        report.allocations.insert(id, usage);
    }
    report.total.utilisation = percent_of(report.total.claimed, report.total.given);
    report
}

/// Returns the cores of each allocation: as reported by its workers, or else as requested.
fn cores_by_allocation(
    allocations: &[Allocation],
    hosts: &[AllocationWorkerCores],
) -> BTreeMap<AllocationId, u32> {
    let mut by_host: BTreeMap<(AllocationId, &str), u32> = BTreeMap::new();
    for host in hosts {
        // A worker that registers again is not counted twice.
        let known = by_host.entry((host.allocation, &host.name)).or_default();
        *known = (*known).max(host.cores);
    }
    let mut cores: BTreeMap<AllocationId, u32> = BTreeMap::new();
    for ((allocation, _), number) in by_host {
        let sum = cores.entry(allocation).or_default();
        *sum = sum.saturating_add(number);
    }
    for one in allocations {
        let asked = asked_cores(&one.request);
        // A node whose worker never registered was charged too.
        match (cores.get_mut(&one.id), asked) {
            (Some(found), Some(asked)) => *found = (*found).max(asked),
            (None, Some(asked)) => drop(cores.insert(one.id, asked)),
            (_, None) => {}
        }
    }
    cores
}

/// Cores according to the request; `None` if it leaves them to the cluster.
fn asked_cores(request: &AllocationRequest) -> Option<u32> {
    let option = request.options.get("cpus-per-task").and_then(|value| value.parse().ok());
    let cpus = request.extra.as_deref().and_then(parse_cpus_option).or(option);
    if cpus.is_none() && request.ntasks_per_node.is_none() {
        return None;
    }
    let tasks = request.ntasks_per_node.unwrap_or(1).max(1);
    Some(request.nodes.max(1).saturating_mul(tasks).saturating_mul(cpus.unwrap_or(1).max(1)))
}

/// Returns what it requested and was granted.
fn granted_usage(allocation: &Allocation, cores: Option<u32>, now: Timestamp) -> CoreHourUsage {
    let known = cores.unwrap_or(0);
    let ran = allocation.started_at.map(|started| allocation.ended_at.unwrap_or(now).since(started));
    CoreHourUsage {
        cores,
        asked: core_hours(known, allocation.request.walltime),
        given: core_hours(known, ran.unwrap_or_default()),
        ..CoreHourUsage::default()
    }
}

fn add_attempt(usage: &mut CoreHourUsage, spell: &AttemptCoreUse, allocation_ended: Option<Timestamp>) {
    // The end was noticed with a delay.
    let end = allocation_ended.map_or(spell.ended_at, |ended| ended.min(spell.ended_at));
    let seen = spell.started_at.map(|started| end.since(started));
    let claimed = core_hours(spell.cores, spell.wall.or(seen).unwrap_or_default());
    usage.claimed += claimed;
    usage.cpu += spell.cpu_time.as_secs_f64() / 3600.0;
    match spell.outcome {
        AttemptTimeUse::Useful => {}
        AttemptTimeUse::Failed => usage.failed += claimed,
        AttemptTimeUse::Lost => usage.lost += claimed,
    }
}

fn compute_idle(usage: &mut CoreHourUsage) {
    usage.idle = (usage.given - usage.claimed).max(0.0);
    usage.utilisation = percent_of(usage.claimed, usage.given);
}

fn add_usage(total: &mut CoreHourUsage, one: &CoreHourUsage) {
    total.cores = match (total.cores, one.cores) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    total.asked += one.asked;
    total.given += one.given;
    total.claimed += one.claimed;
    total.cpu += one.cpu;
    total.failed += one.failed;
    total.lost += one.lost;
    total.idle += one.idle;
}

/// In percent. Jobs without a limit on cores may claim more than there are.
fn percent_of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole * 100.0).min(100.0))
}

fn core_hours(cores: u32, time: Duration) -> f64 {
    f64::from(cores) * time.as_secs_f64() / 3600.0
}

impl CoreHourReport {
    /// One line; `None` if no allocation ever ran.
    pub fn summary_line(&self) -> Option<String> {
        let ran = self.allocations.values().filter(|usage| usage.given > 0.0).count();
        let percent = self.total.utilisation?;
        let word = if ran == 1 { "allocation" } else { "allocations" };
        let hours = format_hours(self.total.given);
        Some(format!("utilisation {percent:.0} % of {hours} core-hours in {ran} {word}"))
    }
}

/// Small numbers get more digits, so that they are not shown as zero.
pub fn format_hours(hours: f64) -> String {
    match hours {
        hours if hours >= 0.95 || hours == 0.0 => format!("{hours:.1}"),
        hours if hours >= 0.0095 => format!("{hours:.2}"),
        hours => format!("{hours:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::WorkflowId;
    use windlass_types::slurm::AllocationState;

    const HOUR: i64 = 3_600_000_000;

    fn allocation(id: i64, started: Option<i64>, ended: Option<i64>) -> Allocation {
        Allocation {
            id: AllocationId(id),
            workflow: WorkflowId(1),
            is_ours: true,
            scheduler: None,
            tag: format!("wl-{id}"),
            request: AllocationRequest {
                nodes: 1,
                ntasks_per_node: Some(1),
                extra: Some("--cpus-per-task=4".into()),
                walltime: Duration::from_hours(4),
                ..AllocationRequest::default()
            },
            state: AllocationState::Ended,
            job_id: Some(1),
            restarts: 0,
            reason: None,
            nodes: None,
            action: None,
            by: "ada".into(),
            unwanted: None,
            created_at: Timestamp(0),
            submitted_at: None,
            submissions: 1,
            started_at: started.map(|hour| Timestamp(hour * HOUR)),
            ends_at: None,
            ended_at: ended.map(|hour| Timestamp(hour * HOUR)),
            end: None,
            exit_code: None,
            seen_at: None,
            missed: 0,
        }
    }

    fn spell(allocation: i64, cores: u32, wall_hours: u64, fruit: AttemptTimeUse) -> AttemptCoreUse {
        let wall = Duration::from_hours(wall_hours);
        AttemptCoreUse {
            allocation: AllocationId(allocation),
            cores,
            started_at: Some(Timestamp(HOUR)),
            ended_at: Timestamp(HOUR + wall_hours as i64 * HOUR),
            wall: Some(wall),
            cpu_time: wall / 2,
            outcome: fruit,
        }
    }

    #[test]
    fn core_hours_add_up() {
        let allocations = [allocation(1, Some(1), Some(3)), allocation(2, None, None)];
        let spells = [
            spell(1, 2, 1, AttemptTimeUse::Useful),
            spell(1, 1, 1, AttemptTimeUse::Failed),
            spell(1, 1, 2, AttemptTimeUse::Lost),
            spell(9, 4, 4, AttemptTimeUse::Useful),
        ];
        let report = report_core_hours(&allocations, &[], &spells, Timestamp(9 * HOUR));
        let one = report.allocations[&AllocationId(1)];
        assert_eq!((one.cores, one.asked, one.given), (Some(4), 16.0, 8.0));
        assert_eq!((one.claimed, one.cpu, one.failed, one.lost, one.idle), (5.0, 2.0, 1.0, 2.0, 3.0));
        assert_eq!(one.utilisation, Some(62.5));
        let waits = report.allocations[&AllocationId(2)];
        assert_eq!((waits.asked, waits.given, waits.utilisation), (16.0, 0.0, None));
        assert_eq!((report.total.asked, report.total.given), (32.0, 8.0));
        let words = "utilisation 62 % of 8.0 core-hours in 1 allocation";
        assert_eq!(report.summary_line().as_deref(), Some(words));
    }

    #[test]
    fn running_allocation_counts_until_now() {
        let report = report_core_hours(&[allocation(1, Some(1), None)], &[], &[], Timestamp(2 * HOUR));
        assert_eq!((report.total.given, report.total.idle), (4.0, 4.0));
        assert_eq!(report.total.utilisation, Some(0.0));
    }

    #[test]
    fn unmeasured_attempt_ends_with_its_allocation() {
        let orphan = AttemptCoreUse {
            wall: None,
            ended_at: Timestamp(8 * HOUR),
            ..spell(1, 4, 1, AttemptTimeUse::Lost)
        };
        let report =
            report_core_hours(&[allocation(1, Some(1), Some(3))], &[], &[orphan], Timestamp(9 * HOUR));
        assert_eq!((report.total.lost, report.total.idle), (8.0, 0.0));
    }

    #[test]
    fn cores_are_counted_from_workers_if_all_registered() {
        let host = |name: &str, cores| AllocationWorkerCores {
            allocation: AllocationId(1),
            name: name.into(),
            cores,
        };
        let mut bare = allocation(1, Some(1), Some(2));
        bare.request.extra = None;
        bare.request.ntasks_per_node = None;
        for (hosts, is_bare, cores) in [
            (vec![], true, None),
            (vec![host("n1", 8), host("n1", 8), host("n2", 4)], true, Some(12)),
            (vec![host("n1", 8)], false, Some(8)),
            (vec![host("n1", 2)], false, Some(4)),
        ] {
            let one = if is_bare { bare.clone() } else { allocation(1, Some(1), Some(2)) };
            let report = report_core_hours(&[one], &hosts, &[], Timestamp(9 * HOUR));
            assert_eq!(report.total.cores, cores, "{hosts:?}");
        }
    }

    #[test]
    fn jobs_without_cores_use_at_most_the_allocation() {
        let spells = [spell(1, 9, 2, AttemptTimeUse::Useful)];
        let report = report_core_hours(&[allocation(1, Some(1), Some(3))], &[], &spells, Timestamp(9 * HOUR));
        assert_eq!((report.total.utilisation, report.total.idle), (Some(100.0), 0.0));
    }

    #[test]
    fn short_hours_are_not_rounded_to_zero() {
        for (hours, written) in
            [(12.44, "12.4"), (0.96, "1.0"), (0.5, "0.50"), (0.004, "0.004"), (0.0, "0.0")]
        {
            assert_eq!(format_hours(hours), written);
        }
    }
}
