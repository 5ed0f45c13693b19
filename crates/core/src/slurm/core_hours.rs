//! What became of the core-hours of allocations: how many were asked for and given, and how many of them were of use.

use super::schedule_generation::parse_cpus_option;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::slurm::{Allocation, AllocationRequest};
use windlass_types::{AllocationId, Timestamp};

/// What came of the time of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptUse {
    /// It completed, or still runs.
    Useful,
    /// It failed, for whatever reason of its own.
    Failed,
    /// It was ended with its allocation, or its worker was.
    Lost,
}

/// An attempt in an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationAttempt {
    pub allocation: AllocationId,
    /// That the job asked for, on all its nodes.
    pub cores: u32,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    /// `None`: nobody was there to measure it.
    pub wall: Option<Duration>,
    pub cpu_time: Duration,
    pub outcome: AttemptUse,
}

/// A worker in an allocation, and the cores that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationHost {
    pub allocation: AllocationId,
    pub name: String,
    pub cores: u32,
}

/// Core-hours, but for `cores` and what is in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CoreHourUsage {
    /// `None`: neither the request nor a worker says.
    pub cores: Option<u32>,
    /// All that it could have had: its cores for all of its walltime.
    #[serde(rename = "asked_core_hours")]
    pub asked: f64,
    /// From its start to its end, or until now.
    #[serde(rename = "given_core_hours")]
    pub given: f64,
    /// That jobs held, by what they asked for.
    #[serde(rename = "used_core_hours")]
    pub claimed: f64,
    /// Time of processors that jobs used.
    #[serde(rename = "cpu_core_hours")]
    pub cpu: f64,
    /// Of what was claimed: by attempts that failed.
    #[serde(rename = "failed_core_hours")]
    pub failed: f64,
    /// Of what was claimed: by attempts that were ended with the allocation.
    #[serde(rename = "lost_core_hours")]
    pub lost: f64,
    /// That nobody claimed.
    #[serde(rename = "idle_core_hours")]
    pub idle: f64,
    /// The part of what was given that was claimed; `None` where nothing was given.
    #[serde(rename = "utilisation_percent")]
    pub utilisation: Option<f64>,
}

/// Of a workflow, or of some of its allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreHourReport {
    pub allocations: BTreeMap<AllocationId, CoreHourUsage>,
    pub total: CoreHourUsage,
}

/// Each allocation with what its workers and attempts say, in one pass over each list.
pub fn report_core_hours(
    allocations: &[Allocation],
    hosts: &[AllocationHost],
    spells: &[AllocationAttempt],
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

/// What one has of its cores, by what its workers found; where none came, by what was asked for.
fn cores_by_allocation(allocations: &[Allocation], hosts: &[AllocationHost]) -> BTreeMap<AllocationId, u32> {
    let mut by_host: BTreeMap<(AllocationId, &str), u32> = BTreeMap::new();
    for host in hosts {
        // A worker that came again is not one more.
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
        // A node whose worker never came was paid for, too.
        match (cores.get_mut(&one.id), asked) {
            (Some(found), Some(asked)) => *found = (*found).max(asked),
            (None, Some(asked)) => drop(cores.insert(one.id, asked)),
            (_, None) => {}
        }
    }
    cores
}

/// By the words of the request; `None` where it leaves it to the cluster.
fn asked_cores(request: &AllocationRequest) -> Option<u32> {
    let option = request.options.get("cpus-per-task").and_then(|value| value.parse().ok());
    let cpus = request.extra.as_deref().and_then(parse_cpus_option).or(option);
    if cpus.is_none() && request.ntasks_per_node.is_none() {
        return None;
    }
    let tasks = request.ntasks_per_node.unwrap_or(1).max(1);
    Some(request.nodes.max(1).saturating_mul(tasks).saturating_mul(cpus.unwrap_or(1).max(1)))
}

/// What it asked for and was given.
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

fn add_attempt(usage: &mut CoreHourUsage, spell: &AllocationAttempt, allocation_ended: Option<Timestamp>) {
    // It was noticed later than it was over.
    let end = allocation_ended.map_or(spell.ended_at, |ended| ended.min(spell.ended_at));
    let seen = spell.started_at.map(|started| end.since(started));
    let claimed = core_hours(spell.cores, spell.wall.or(seen).unwrap_or_default());
    usage.claimed += claimed;
    usage.cpu += spell.cpu_time.as_secs_f64() / 3600.0;
    match spell.outcome {
        AttemptUse::Useful => {}
        AttemptUse::Failed => usage.failed += claimed,
        AttemptUse::Lost => usage.lost += claimed,
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

/// In percent. Jobs whose cores nobody counts may claim more than there is.
fn percent_of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole * 100.0).min(100.0))
}

fn core_hours(cores: u32, time: Duration) -> f64 {
    f64::from(cores) * time.as_secs_f64() / 3600.0
}

impl CoreHourReport {
    /// One line; `None` where no allocation ever ran.
    pub fn summary_line(&self) -> Option<String> {
        let ran = self.allocations.values().filter(|usage| usage.given > 0.0).count();
        let percent = self.total.utilisation?;
        let word = if ran == 1 { "allocation" } else { "allocations" };
        let hours = format_hours(self.total.given);
        Some(format!("utilisation {percent:.0} % of {hours} core-hours in {ran} {word}"))
    }
}

/// Few hours with more digits, so that short ones are not nothing.
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

    fn spell(allocation: i64, cores: u32, wall_hours: u64, fruit: AttemptUse) -> AllocationAttempt {
        let wall = Duration::from_hours(wall_hours);
        AllocationAttempt {
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
    fn every_core_hour_is_somewhere() {
        let allocations = [allocation(1, Some(1), Some(3)), allocation(2, None, None)];
        let spells = [
            spell(1, 2, 1, AttemptUse::Useful),
            spell(1, 1, 1, AttemptUse::Failed),
            spell(1, 1, 2, AttemptUse::Lost),
            spell(9, 4, 4, AttemptUse::Useful),
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
    fn one_that_runs_counts_until_now() {
        let report = report_core_hours(&[allocation(1, Some(1), None)], &[], &[], Timestamp(2 * HOUR));
        assert_eq!((report.total.given, report.total.idle), (4.0, 4.0));
        assert_eq!(report.total.utilisation, Some(0.0));
    }

    #[test]
    fn what_nobody_measured_ends_with_its_allocation() {
        let orphan = AllocationAttempt {
            wall: None,
            ended_at: Timestamp(8 * HOUR),
            ..spell(1, 4, 1, AttemptUse::Lost)
        };
        let report =
            report_core_hours(&[allocation(1, Some(1), Some(3))], &[], &[orphan], Timestamp(9 * HOUR));
        assert_eq!((report.total.lost, report.total.idle), (8.0, 0.0));
    }

    #[test]
    fn workers_know_their_cores_best_unless_some_never_came() {
        let host =
            |name: &str, cores| AllocationHost { allocation: AllocationId(1), name: name.into(), cores };
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
    fn jobs_that_count_no_cores_use_no_more_than_all() {
        let spells = [spell(1, 9, 2, AttemptUse::Useful)];
        let report = report_core_hours(&[allocation(1, Some(1), Some(3))], &[], &spells, Timestamp(9 * HOUR));
        assert_eq!((report.total.utilisation, report.total.idle), (Some(100.0), 0.0));
    }

    #[test]
    fn short_ones_are_not_nothing() {
        for (hours, written) in
            [(12.44, "12.4"), (0.96, "1.0"), (0.5, "0.50"), (0.004, "0.004"), (0.0, "0.0")]
        {
            assert_eq!(format_hours(hours), written);
        }
    }
}
