//! One situation per case: headline, evidence, and suggested command.

use super::*;
use crate::dependency_edges::DependencyEdgesBuilder;
use JobStatus as S;
use windlass_types::Capacity;
use windlass_types::slurm::{Allocation, AllocationState, SlurmJobState};

const GIB: u64 = 1 << 30;

/// A workflow in which `prepare` comes before `solve_1` and `solve_2`, both before `plot`.
struct Fixture {
    statuses: [S; 4],
    outcomes: [Option<AttemptSummary>; 4],
    is_driven: bool,
    is_canceled: bool,
    is_served: bool,
    workers: Vec<WorkerAvailability>,
    labels: Vec<String>,
    sites: Vec<String>,
    limit: Option<LimitUsage<'static>>,
    units: Option<WorkUnitLimitUsage>,
    asked: Option<Resources>,
    worker: Option<WorkerId>,
    started_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    usual: Option<Duration>,
    logs: Vec<(&'static str, &'static str)>,
    allocations: Option<(Vec<Allocation>, bool)>,
}

const NAMES: [&str; 4] = ["prepare", "solve_1", "solve_2", "plot"];
const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

impl Fixture {
    fn new(statuses: [S; 4]) -> Self {
        let capacity = Capacity { cpus: 4, memory: Bytes(8 * GIB), gpus: 0, nodes: 1, max_jobs: None };
        Self {
            statuses,
            outcomes: [const { None }; 4],
            is_driven: true,
            is_canceled: false,
            is_served: false,
            workers: vec![WorkerAvailability::from_capacity(capacity)],
            labels: Vec::new(),
            sites: Vec::new(),
            limit: None,
            units: None,
            asked: None,
            worker: None,
            started_at: None,
            not_before: None,
            usual: None,
            logs: Vec::new(),
            allocations: None,
        }
    }

    fn why(&self, job: usize) -> JobExplanation {
        let mut builder = DependencyEdgesBuilder::default();
        builder.add_dependencies(1, &[0]);
        builder.add_dependencies(2, &[0]);
        builder.add_dependencies(3, &[1, 2]);
        let edges = builder.finish();
        let logs: Vec<JobLogTail<'_>> =
            self.logs.iter().map(|&(name, text)| JobLogTail { name, text, skipped_lines: 100 }).collect();
        let id = |job: u32| JobId(i64::from(job) + 11);
        explain_job(&JobSituation {
            now: NOW,
            id: id(job as u32),
            job: job as u32,
            asked: self.asked,
            worker: self.worker,
            started_at: self.started_at,
            not_before: self.not_before,
            outcome: self.outcomes[job].as_ref(),
            labels: &self.labels,
            sites: &self.sites,
            limit: self.limit,
            unit_limit: self.units,
            start_problem: None,
            allocations: self.allocations.as_ref().map(|(allocations, is_to_be_asked)| JobAllocations {
                allocations,
                has_pending_action: *is_to_be_asked,
            }),
            typical_runtime: self.usual,
            logs: &logs,
            workflow: WorkflowSituation {
                id: WorkflowId(7),
                is_canceled: self.is_canceled,
                has_scheduler: self.is_driven,
                has_server: self.is_served,
                workers: &self.workers,
            },
            graph: JobGraphView {
                count: 4,
                edges: &edges,
                id: &id,
                name: &|job| NAMES[job as usize].to_owned(),
                status: &|job| self.statuses[job as usize],
                outcome: &|job| self.outcomes[job as usize].clone(),
            },
        })
        .unwrap()
    }
}

fn failure(code: i32) -> AttemptSummary {
    AttemptSummary {
        attempt: Attempt(2),
        status: S::Failed,
        return_code: code,
        signal: None,
        out_of_memory: false,
        reason: None,
        ended_at: NOW,
        wall: Duration::from_mins(55),
        peak_memory: Some(Bytes(3 * GIB)),
    }
}

fn texts(explanation: &JobExplanation) -> Vec<String> {
    explanation.evidence.iter().map(ToString::to_string).collect()
}

fn commands(explanation: &JobExplanation) -> Vec<&str> {
    explanation.next.iter().map(|next| next.command.as_str()).collect()
}

fn names(links: &[ChainLink]) -> Vec<&str> {
    links.iter().map(|link| link.name.as_str()).collect()
}

#[test]
fn silence_of_the_worker_is_explained() {
    // A worker that fell silent at once has not reported the start.
    for status in [S::Running, S::Pending] {
        worker_silence_is_explained(status);
    }
}

fn worker_silence_is_explained(status: S) {
    let mut fixture = Fixture::new([status, S::Blocked, S::Blocked, S::Blocked]);
    let capacity = fixture.workers[0].capacity;
    let worker = |id, silence| WorkerAvailability {
        name: format!("worker {id} on n1"),
        worker: Some(WorkerId(id)),
        silence: Some(Duration::from_millis(silence)),
        ..WorkerAvailability::from_capacity(capacity)
    };
    fixture.workers = vec![worker(3, 25_400), worker(4, 300)];
    let says = |fixture: &Fixture| {
        texts(&fixture.why(0)).iter().any(|text| text.contains("worker 3 on n1 has not reported for 25s"))
    };
    fixture.worker = Some(WorkerId(3));
    assert!(says(&fixture), "{:?}", texts(&fixture.why(0)));
    fixture.worker = Some(WorkerId(4));
    assert!(!says(&fixture), "the other worker has it");
}

#[test]
fn running_job_is_compared_with_request_and_peers() {
    let mut fixture = Fixture::new([S::Running, S::Blocked, S::Blocked, S::Blocked]);
    fixture.started_at = Some(Timestamp(NOW.0 - 3_000_000_000));
    fixture.asked = Some(Resources { runtime: Some(Duration::from_hours(1)), ..Resources::DEFAULT });
    fixture.usual = Some(Duration::from_mins(10));
    let explanation = fixture.why(0);
    assert!(
        explanation.headline.starts_with("running for 50m, since 2023-11-14T21:23:20"),
        "{}",
        explanation.headline
    );
    assert_eq!(
        texts(&explanation),
        ["requested 1h; 10m left", "similar jobs usually take 10m: this one is unusually slow"]
    );
    assert_eq!(commands(&explanation), ["windlass logs 11 --follow"]);
    fixture.is_driven = false;
    assert!(fixture.why(0).headline.contains("no process runs this workflow"));
}

#[test]
fn ready_job_without_scheduler() {
    let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
    fixture.is_driven = false;
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready, but no process runs the workflow");
    assert_eq!(commands(&explanation), ["windlass resume 7"]);
    fixture.labels = vec!["gpu".into(), "big".into()];
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready; it runs only on a machine with the label gpu, big");
    assert_eq!(commands(&explanation), ["windlass resume 7 --label gpu --label big"]);
    fixture.sites = vec!["north".into()];
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready, but it runs only at north");
    assert_eq!(
        commands(&explanation),
        ["windlass serve", "windlass worker --site north --label gpu --label big"]
    );
}

#[test]
fn oversized_ready_job_is_explained() {
    let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
    fixture.asked = Some(Resources { cpus: 64, memory: Bytes(100 * GIB), ..Resources::DEFAULT });
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready, but it requests more than any worker has");
    assert_eq!(
        texts(&explanation),
        ["requests 100 GiB of memory, a worker has 8 GiB", "requests 64 cpus, a worker has 4"]
    );
    fixture.is_driven = false;
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready, but it requests more than any worker has");
    let helps = commands(&explanation);
    assert_eq!(helps, ["windlass failures revisions 7", "windlass jobs update 11 --memory SIZE --cpus N"]);
    assert!(helps.iter().all(|command| !command.contains("resume")), "another run would not help");
    fixture.is_driven = true;
    fixture.asked = Some(Resources { cpus: 4, ..Resources::DEFAULT });
    assert!(fixture.why(0).headline.starts_with("ready; waiting for resources"));
    fixture.is_canceled = true;
    assert!(fixture.why(0).headline.contains("canceled"));
}

#[test]
fn blocked_job_names_its_root_blocker() {
    for (status, said) in [
        (S::Running, "blocked by prepare (11), which is running"),
        (S::Ready, "blocked by prepare (11), which has not started yet"),
        (S::PendingFailed, "blocked by prepare (11), which failed and waits for a decision"),
    ] {
        let explanation = Fixture::new([status, S::Blocked, S::Blocked, S::Blocked]).why(3);
        assert_eq!(explanation.headline, said);
        let chain = explanation.chain.unwrap();
        assert_eq!(names(&chain.links), ["solve_1", "prepare"], "the path through the dependency group");
        assert_eq!((names(&chain.roots), chain.waiting), (vec!["prepare"], 3));
        assert_eq!(explanation.next.last().unwrap().command, "windlass why 11");
    }
    let several = Fixture::new([S::Completed, S::Running, S::Ready, S::Blocked]).why(3);
    assert_eq!(several.headline, "blocked by solve_1 (12), which is running and 1 other job");
    let disabled = Fixture::new([S::Completed, S::Disabled, S::Running, S::Blocked]).why(3);
    assert_eq!(names(&disabled.chain.unwrap().roots), ["solve_2"], "disabled jobs block no others");
}

#[test]
fn canceled_job_names_the_failure() {
    let mut fixture = Fixture::new([S::Failed, S::Canceled, S::Canceled, S::Canceled]);
    fixture.outcomes[0] = Some(failure(3));
    let explanation = fixture.why(3);
    assert_eq!(explanation.headline, "canceled because prepare (11) failed with exit code 3");
    assert_eq!(names(&explanation.chain.as_ref().unwrap().links), ["solve_1", "prepare"]);
    assert_eq!(commands(&explanation), ["windlass why 11", "windlass resume 7 --retry-failed"]);
    let by_hand = Fixture::new([S::Completed, S::Canceled, S::Completed, S::Blocked]).why(1);
    assert_eq!((by_hand.headline.as_str(), by_hand.chain), ("canceled by a user", None));
}

#[test]
fn failed_job_quotes_the_relevant_lines() {
    let mut fixture = Fixture::new([S::Failed, S::Canceled, S::Canceled, S::Canceled]);
    fixture.outcomes[0] = Some(failure(127));
    fixture.asked = Some(Resources {
        memory: Bytes(4 * GIB),
        runtime: Some(Duration::from_hours(1)),
        ..Resources::DEFAULT
    });
    fixture.logs = vec![("stdout", "fine\n"), ("stderr", "starting\nsh: 1: solvr: not found\n")];
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "failed with exit code 127: the program was not found");
    assert_eq!(
        texts(&explanation),
        [
            "attempt 2 ended at 2023-11-14T22:13:20.000Z after 55m",
            "used 3 GiB of the requested 4 GiB of memory",
            "took 92 % of the requested 1h",
            "stderr:102: sh: 1: solvr: not found",
        ]
    );
    assert_eq!(commands(&explanation), ["windlass logs 11", "windlass resume 7 --retry-failed"]);
}

#[test]
fn last_lines_are_quoted_without_an_error_line() {
    let mut fixture = Fixture::new([S::Failed, S::Canceled, S::Canceled, S::Canceled]);
    fixture.outcomes[0] = Some(failure(1));
    assert_eq!(texts(&fixture.why(0)).last().unwrap(), "it printed nothing");
    fixture.logs = vec![("stderr", "one\ntwo\n\n")];
    assert_eq!(texts(&fixture.why(0)).last().unwrap(), "stderr:102: two");
}

#[test]
fn memory_and_time_limits_suggest_resource_changes() {
    let mut fixture = Fixture::new([S::Failed, S::Canceled, S::Canceled, S::Canceled]);
    fixture.asked = Some(Resources { memory: Bytes(2 * GIB), ..Resources::DEFAULT });
    fixture.outcomes[0] = Some(AttemptSummary { out_of_memory: true, ..failure(137) });
    let explanation = fixture.why(0);
    assert!(
        explanation.headline.contains("out of memory: used more than the requested 2 GiB"),
        "{}",
        explanation.headline
    );
    assert_eq!(commands(&explanation)[0], "windlass resources correct 7 --dry-run");
    fixture.is_driven = false;
    assert_eq!(commands(&fixture.why(0))[0], "windlass recover 7");
    fixture.statuses[0] = S::Terminated;
    fixture.outcomes[0] = Some(AttemptSummary { status: S::Terminated, ..failure(152) });
    assert_eq!(fixture.why(0).headline, "ended because its time limit was reached");
    assert_eq!(commands(&fixture.why(0))[0], "windlass recover 7");
}

#[test]
fn every_status_has_a_headline() {
    for status in S::ALL {
        for (is_driven, has_outcome) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut fixture = Fixture::new([S::Completed, status, S::Completed, S::Blocked]);
            fixture.is_driven = is_driven;
            fixture.outcomes[1] = has_outcome.then(|| failure(1));
            let explanation = fixture.why(1);
            assert!(!explanation.headline.is_empty(), "{status}");
            assert_eq!(explanation.status, status);
        }
    }
}

#[test]
fn out_of_memory_is_not_explained_as_kill() {
    let mut fixture = Fixture::new([S::Failed, S::Canceled, S::Canceled, S::Canceled]);
    fixture.logs = vec![("job.e", "Killed\n")];
    let meaning = |fixture: &Fixture| {
        let evidence = fixture.why(0).evidence;
        evidence.into_iter().find_map(|one| match one {
            ExplanationEvidence::LogLine { text, means, .. } => Some((text, means)),
            ExplanationEvidence::Fact { .. } => None,
        })
    };
    let killed = AttemptSummary { signal: Some(9), ..failure(137) };
    fixture.outcomes[0] = Some(killed.clone());
    assert_eq!(meaning(&fixture), Some(("Killed".to_owned(), log_excerpt::KILLED_MEANING)));
    fixture.outcomes[0] = Some(AttemptSummary { out_of_memory: true, ..killed });
    assert_eq!(meaning(&fixture), Some(("Killed".to_owned(), "last line of the log")));
}

#[test]
fn ready_job_lists_why_workers_do_not_match() {
    let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
    fixture.is_served = true;
    fixture.asked = Some(Resources { runtime: Some(Duration::from_hours(1)), ..Resources::DEFAULT });
    assert_eq!(fixture.why(0).headline, "ready; waiting for resources that other jobs hold");

    let able = fixture.workers[0].clone();
    let facts = |fixture: &Fixture| texts(&fixture.why(0));
    fixture.workers =
        vec![WorkerAvailability { name: "worker 3".into(), labels: vec!["gpu".into()], ..able.clone() }];
    assert_eq!(facts(&fixture), ["worker 3 accepts only jobs with labels, of gpu"]);
    fixture.labels = vec!["gpu".into(), "big".into()];
    assert_eq!(facts(&fixture), ["worker 3 does not have the label big"]);
    assert_eq!(commands(&fixture.why(0))[0], "windlass worker --label gpu --label big");
    fixture.labels.clear();
    fixture.workers = vec![WorkerAvailability { is_draining: true, ..able.clone() }];
    assert!(facts(&fixture)[0].starts_with("a worker accepts no more jobs"));
    fixture.workers = vec![WorkerAvailability { time_left: Some(Duration::from_mins(10)), ..able }];
    assert_eq!(facts(&fixture), ["a worker stays for only 10m, and the job requests 1h"]);
    fixture.workers.clear();
    assert_eq!(fixture.why(0).headline, "ready, but no worker is connected");
}

#[test]
fn ready_job_names_sites_without_workers() {
    let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
    fixture.is_served = true;
    fixture.sites = vec!["north".into(), "south".into()];
    let at = |name: &str, site: Option<&str>| WorkerAvailability {
        name: name.into(),
        site: site.map(str::to_owned),
        ..Fixture::new([S::Ready; 4]).workers[0].clone()
    };
    fixture.workers = vec![at("worker 3", Some("local")), at("worker 4", None)];
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready, but no worker is at north or south");
    assert_eq!(texts(&explanation), ["worker 3 is at local", "worker 4 is at no site"]);
    assert_eq!(commands(&explanation), ["windlass worker --site north", "windlass worker list"]);
    fixture.labels = vec!["gpu".into()];
    fixture.workers.push(at("worker 5", Some("south")));
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready, but no connected worker accepts it");
    assert_eq!(texts(&explanation)[2], "worker 5 does not have the label gpu");
    assert_eq!(commands(&explanation)[0], "windlass worker --site north --label gpu");
    fixture.labels.clear();
    assert!(fixture.why(0).headline.starts_with("ready; waiting for resources"));
    fixture.workers.clear();
    assert_eq!(texts(&fixture.why(0))[0], "runs only at north or south");
}

#[test]
fn ready_job_at_its_job_limit_is_explained() {
    let mut fixture = Fixture::new([S::Completed, S::Running, S::Ready, S::Blocked]);
    let limit = LimitUsage { name: "licences", max_claimed: 2, claimed: 1 };
    fixture.limit = Some(limit);
    assert!(fixture.why(2).headline.starts_with("ready; waiting for resources"));
    fixture.limit = Some(LimitUsage { claimed: 2, ..limit });
    let explanation = fixture.why(2);
    assert_eq!(explanation.headline, "ready; waiting for the limit `licences`, which is used up");
    assert_eq!(texts(&explanation), ["2 jobs with this limit are running or claimed, the maximum is 2"]);
    // A free slot under the limit would not help a job that no worker can hold.
    fixture.asked = Some(Resources { cpus: 64, ..Resources::DEFAULT });
    assert!(fixture.why(2).headline.contains("more than any worker"));
}

#[test]
fn ready_job_at_the_work_unit_limit_is_explained() {
    let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
    fixture.units = Some(WorkUnitLimitUsage { max_active: 2, active_units: 1 });
    assert!(fixture.why(0).headline.starts_with("ready; waiting for resources"));
    fixture.units = Some(WorkUnitLimitUsage { max_active: 2, active_units: 2 });
    let explanation = fixture.why(0);
    assert!(
        explanation.headline.contains("the maximum number of units is active"),
        "{}",
        explanation.headline
    );
    assert_eq!(texts(&explanation), ["2 units are active, the maximum (`max_units`) is 2"]);
}

#[test]
fn delayed_retry_is_explained() {
    let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
    fixture.not_before = Some(Timestamp(NOW.0 + 90_000_000));
    fixture.outcomes[0] = Some(AttemptSummary { reason: Some("attempt 2 of 3 in 2m".into()), ..failure(75) });
    let explanation = fixture.why(0);
    assert_eq!(explanation.headline, "ready; it is retried in 1m 30s");
    assert_eq!(explanation.evidence, [ExplanationEvidence::Fact { text: "attempt 2 of 3 in 2m".into() }]);
    fixture.not_before = Some(NOW);
    assert!(fixture.why(0).headline.starts_with("ready; waiting for resources"));
}

fn allocation(
    id: i64,
    state: AllocationState,
    end: Option<SlurmJobState>,
    reason: Option<&str>,
) -> Allocation {
    serde_json::from_value(serde_json::json!({
        "id": id, "workflow": 7, "is_ours": true, "scheduler": null, "tag": "t", "request": {"scheduler": "s"},
        "state": state, "job_id": 4700 + id, "by": "ada", "created_at": NOW, "reason": reason, "end": end,
        "submitted_at": null, "started_at": null, "ends_at": null, "ended_at": null, "seen_at": null,
    }))
    .unwrap()
}

#[test]
fn job_waiting_for_an_allocation_is_explained() {
    use AllocationState as A;
    let pending = || allocation(11, A::Pending, None, Some("Priority"));
    let gone = || allocation(12, A::Ended, Some(SlurmJobState::Preempted), None);
    let refused = || allocation(13, A::Refused, None, Some("Invalid account"));
    let regenerate = "windlass slurm regenerate 7 --submit";
    let list = "windlass slurm allocations 7";
    for (allocations, asked, headline, facts, next) in [
        (
            vec![pending()],
            false,
            "ready; waiting: allocation 11 (Slurm job 4711) waits in Slurm's queue: Priority: others are before it in the queue",
            vec![],
            vec![list],
        ),
        (
            vec![gone(), pending(), pending()],
            false,
            "ready; waiting for one of 2 allocations",
            vec![
                "allocation 11 (Slurm job 4711) waits in Slurm's queue: Priority: others are before it in the queue";
                2
            ],
            vec![list],
        ),
        (
            vec![gone(), refused()],
            false,
            "ready, but no allocation is left: allocation 13 (Slurm job 4713) was refused by Slurm: Invalid account",
            vec![],
            vec![list, regenerate],
        ),
        (
            vec![gone()],
            false,
            "ready, but no allocation is requested",
            vec!["the last one: allocation 12 (Slurm job 4712) was preempted"],
            vec![regenerate],
        ),
        (vec![], false, "ready, but no allocation is requested", vec![], vec![regenerate]),
        (vec![], true, "ready; the action that requests its allocation is due", vec![], vec![list]),
    ] {
        let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
        (fixture.is_served, fixture.workers) = (true, Vec::new());
        fixture.allocations = Some((allocations, asked));
        let explanation = fixture.why(0);
        assert_eq!(explanation.headline, headline);
        assert_eq!(
            (texts(&explanation), commands(&explanation)),
            (facts.into_iter().map(str::to_owned).collect(), next)
        );
    }
    // A pending allocation is larger.
    let mut fixture = Fixture::new([S::Ready, S::Blocked, S::Blocked, S::Blocked]);
    fixture.is_served = true;
    fixture.asked = Some(Resources { memory: Bytes(64 * GIB), ..Resources::DEFAULT });
    fixture.allocations = Some((vec![pending()], false));
    assert!(fixture.why(0).headline.starts_with("ready; waiting: allocation 11"));
}

#[test]
fn job_lost_with_its_allocation_is_explained() {
    let mut fixture = Fixture::new([S::Failed, S::Canceled, S::Canceled, S::Canceled]);
    let reason = Some("orphaned: allocation 12 (Slurm job 4711) was preempted".to_owned());
    fixture.outcomes[0] = Some(AttemptSummary { reason, ..failure(-128) });
    assert_eq!(fixture.why(0).headline, "lost: allocation 12 (Slurm job 4711) was preempted");
}
