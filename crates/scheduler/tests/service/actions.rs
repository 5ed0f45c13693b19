//! Actions: which worker runs them, once or once per worker, and what happens to them when workers or the
//! server die.

use crate::kit::{Fixture, LEASE, Worker, after, ask, code, ended, plain};
use std::time::Duration;
use windlass_store::model::{ActionRow, NewAllocationAction, NewWorker, WorkerKind};
use windlass_types::settings::{ActionTrigger, WorkflowAction};
use windlass_types::worker_protocol::{ActionCommand, ActionReport, ExchangeReply};
use windlass_types::{Attempt, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

const NOW: Timestamp = Timestamp(1_000_000);

/// Adds an action; its commands are empty, since only the assignment matters.
fn add(fixture: &Fixture, workflow: WorkflowId, trigger: ActionTrigger, persistent: bool) -> i64 {
    let action: WorkflowAction = serde_json::from_value(serde_json::json!({
        "trigger_type": trigger.name(), "action_type": "run_commands", "commands": ["true"], "persistent": persistent,
    }))
    .unwrap();
    let jobs = fixture.store.load_jobs(workflow).unwrap().ids;
    let jobs = if trigger.is_about_jobs() { jobs } else { Vec::new() };
    fixture
        .store
        .add_action(workflow, &NewAllocationAction { action, jobs, is_recovery: false }, NOW)
        .unwrap()
}

fn row(fixture: &Fixture, workflow: WorkflowId, id: i64) -> ActionRow {
    fixture.service.check_time();
    fixture.store.actions(workflow).unwrap().into_iter().find(|row| row.id == id).unwrap()
}

/// (attempt, worker, return code) of all its executions; a running one has no code, an interrupted one -1.
fn runs(fixture: &Fixture, workflow: WorkflowId, id: i64) -> Vec<(u32, Option<WorkerId>, Option<i32>)> {
    let code = |run: &windlass_store::model::ActionRunRow| run.return_code.or(run.ended_at.map(|_| -1));
    row(fixture, workflow, id).runs.iter().map(|run| (run.attempt.0, run.worker_id, code(run))).collect()
}

fn start(fixture: &Fixture, workflow: WorkflowId) {
    ask(|reply| fixture.service.start_workflow(workflow, "me", reply)).unwrap();
}

fn report(order: &ActionCommand, return_code: i32) -> ActionReport {
    ActionReport {
        workflow: order.workflow,
        run: order.run,
        action: order.action,
        attempt: order.attempt,
        started_at: NOW,
        ended_at: NOW,
        return_code,
        message: (return_code != 0).then(|| "it broke".to_owned()),
    }
}

/// Reports these results, and takes the reply.
fn tell(fixture: &Fixture, worker: &mut Worker, orders: &[ActionCommand], return_code: i32) -> ExchangeReply {
    let mut exchange = worker.next(Vec::new(), Duration::ZERO);
    exchange.actions = orders.iter().map(|order| report(order, return_code)).collect();
    worker.send(fixture, exchange).unwrap()
}

fn triggers(answer: &ExchangeReply) -> Vec<&str> {
    answer.actions.iter().map(|order| order.trigger.as_str()).collect()
}

/// Runs all actions, completes all jobs, and returns the order of assignments, until there are no more.
fn work_off(fixture: &Fixture, worker: &mut Worker) -> Vec<String> {
    let mut heard = Vec::new();
    let mut orders: Vec<ActionCommand> = Vec::new();
    loop {
        let ends = worker.held.iter().map(|assignment| ended(assignment.key, 0)).collect();
        let mut exchange = worker.next(ends, Duration::ZERO);
        exchange.actions = orders.iter().map(|order| report(order, 0)).collect();
        let answer = worker.send(fixture, exchange).unwrap();
        heard.extend(answer.actions.iter().map(|order| order.trigger.clone()));
        heard.extend(answer.assignments.iter().map(|_| "job".to_owned()));
        orders = answer.actions;
        if orders.is_empty() && worker.held.is_empty() {
            return heard;
        }
    }
}

const ALL: [ActionTrigger; 6] = [
    ActionTrigger::OnWorkerComplete,
    ActionTrigger::OnWorkflowComplete,
    ActionTrigger::OnJobsComplete,
    ActionTrigger::OnJobsReady,
    ActionTrigger::OnWorkerStart,
    ActionTrigger::OnWorkflowStart,
];

#[test]
fn actions_run_in_order_and_the_end_waits_for_the_last() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain(), after(&[0])]).id;
    let ids = ALL.map(|trigger| add(&fixture, workflow, trigger, false));
    start(&fixture, workflow);
    let mut worker = Worker::new(&fixture, 1);
    let heard = work_off(&fixture, &mut worker);
    let expected = [
        "on_workflow_start",
        "on_worker_start",
        "job",
        "job",
        "on_jobs_ready",
        "on_jobs_complete",
        "on_workflow_complete",
        "on_worker_complete",
    ];
    let mut sorted = heard.clone();
    // Actions that wait for jobs come together with jobs.
    sorted.sort_by_key(|word| expected.iter().position(|known| known == word));
    assert_eq!(sorted, expected);
    let place = |word: &str| heard.iter().position(|heard| heard == word).unwrap();
    assert!(place("on_worker_start") < place("job"), "{heard:?}");
    assert_eq!(heard[heard.len() - 2..], expected[6..], "{heard:?}");
    assert!(fixture.row(workflow).ended_at.is_some());
    for id in ids {
        assert_eq!(runs(&fixture, workflow, id), [(1, Some(worker.id), Some(0))]);
    }
}

#[test]
fn jobs_wait_for_start_actions_and_each_action_has_one_worker() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain(), plain()]).id;
    let (first, each) = (
        add(&fixture, workflow, ActionTrigger::OnWorkflowStart, false),
        add(&fixture, workflow, ActionTrigger::OnWorkerStart, true),
    );
    start(&fixture, workflow);
    let (mut one, mut two) = (Worker::new(&fixture, 1), Worker::new(&fixture, 1));
    let begun = one.say(&fixture, Vec::new()).unwrap();
    assert_eq!((triggers(&begun), begun.assignments.len()), (vec!["on_workflow_start"], 0));
    let idle = two.say(&fixture, Vec::new()).unwrap();
    assert!(idle.actions.is_empty() && idle.assignments.is_empty(), "{idle:?}");
    // A failed action counts as executed: the workflow continues.
    let own = tell(&fixture, &mut one, &begun.actions, 3);
    assert_eq!((triggers(&own), own.assignments.len()), (vec!["on_worker_start"], 0));
    let others = two.say(&fixture, Vec::new()).unwrap();
    assert_eq!((triggers(&others), others.assignments.len()), (vec!["on_worker_start"], 0));
    assert_eq!(tell(&fixture, &mut one, &own.actions, 0).assignments.len(), 1);
    assert_eq!(tell(&fixture, &mut two, &others.actions, 0).assignments.len(), 1);
    work_off(&fixture, &mut one);
    work_off(&fixture, &mut two);
    assert_eq!(runs(&fixture, workflow, first), [(1, Some(one.id), Some(3))]);
    assert_eq!(runs(&fixture, workflow, each), [(1, Some(one.id), Some(0)), (2, Some(two.id), Some(0))]);
    assert_eq!(fixture.statuses(workflow), [JobStatus::Completed; 2]);
}

#[test]
fn no_action_runs_twice_with_two_workers_and_a_restart() {
    let mut fixture = Fixture::new();
    let workflow = fixture.create(&[plain(), plain()]).id;
    let (first, each) = (
        add(&fixture, workflow, ActionTrigger::OnWorkflowStart, false),
        add(&fixture, workflow, ActionTrigger::OnWorkerStart, true),
    );
    let last = add(&fixture, workflow, ActionTrigger::OnWorkerComplete, true);
    start(&fixture, workflow);
    let (mut one, mut two) = (Worker::new(&fixture, 1), Worker::new(&fixture, 1));
    let begun = one.say(&fixture, Vec::new()).unwrap().actions;
    fixture.restart();
    // It still runs it, and reports that; the other has nothing and gets nothing.
    assert_eq!(one.come_back_at(&fixture, &[], &[(first, Attempt(1))]), []);
    two.come_back(&fixture, &[]);
    assert_eq!(triggers(&two.say(&fixture, Vec::new()).unwrap()), Vec::<&str>::new());
    let next = tell(&fixture, &mut one, &begun, 0);
    assert_eq!(triggers(&next), ["on_worker_start"]);
    // The reply got lost together with the server: the worker has never received it, and gets the same one
    // again.
    fixture.restart();
    assert_eq!(one.come_back_at(&fixture, &[], &[]), []);
    two.come_back(&fixture, &[]);
    assert_eq!(one.say(&fixture, Vec::new()).unwrap().actions, next.actions);
    let (mut ones, mut twos) =
        (tell(&fixture, &mut one, &next.actions, 0), two.say(&fixture, Vec::new()).unwrap());
    assert_eq!((ones.assignments.len(), triggers(&twos)), (1, vec!["on_worker_start"]));
    twos = tell(&fixture, &mut two, &twos.actions, 0);
    assert_eq!(twos.assignments.len(), 1);
    let (keys, others) = (one.keys(), two.keys());
    fixture.restart();
    one.come_back(&fixture, &keys);
    two.come_back(&fixture, &others);
    ones = one.say(&fixture, vec![ended(keys[0], 0)]).unwrap();
    assert!(ones.actions.is_empty(), "the other one is not executed: {ones:?}");
    assert_eq!(work_off(&fixture, &mut two), ["on_worker_complete"]);
    assert!(fixture.row(workflow).ended_at.is_none(), "each has its own action");
    assert_eq!(work_off(&fixture, &mut one), ["on_worker_complete"]);
    assert!(fixture.row(workflow).ended_at.is_some());
    assert_eq!(runs(&fixture, workflow, first), [(1, Some(one.id), Some(0))]);
    assert_eq!(runs(&fixture, workflow, each), [(1, Some(one.id), Some(0)), (2, Some(two.id), Some(0))]);
    let mut ends = runs(&fixture, workflow, last);
    ends.sort_by_key(|run| run.1);
    assert_eq!(
        ends.iter().map(|run| (run.1, run.2)).collect::<Vec<_>>(),
        [(Some(one.id), Some(0)), (Some(two.id), Some(0))]
    );
}

#[test]
fn an_action_of_a_lost_worker_is_interrupted_and_runs_again_on_request() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain()]).id;
    let first = add(&fixture, workflow, ActionTrigger::OnWorkflowStart, false);
    let each = add(&fixture, workflow, ActionTrigger::OnWorkerStart, true);
    start(&fixture, workflow);
    let mut one = Worker::new(&fixture, 1);
    let begun = one.say(&fixture, Vec::new()).unwrap().actions;
    fixture.pass(LEASE / 2);
    let mut two = Worker::new(&fixture, 1);
    two.say(&fixture, Vec::new()).unwrap();
    fixture.pass(LEASE / 2 + Duration::from_secs(5));
    assert_eq!(runs(&fixture, workflow, first), [(1, Some(one.id), Some(-1))]);
    assert!(row(&fixture, workflow, first).runs[0].message.as_ref().unwrap().contains("interrupted"));
    let own = two.say(&fixture, Vec::new()).unwrap().actions;
    assert_eq!(tell(&fixture, &mut two, &own, 0).assignments.len(), 1, "the workflow continues");
    // It was only cut off: its action was interrupted, and the result is stale.
    assert_eq!(one.come_back_at(&fixture, &[], &[(first, Attempt(1))]), [(first, Attempt(1))]);
    tell(&fixture, &mut one, &begun, 0);
    assert_eq!(runs(&fixture, workflow, first), [(1, Some(WorkerId(1)), Some(-1))]);
    assert_eq!(work_off(&fixture, &mut two), Vec::<String>::new());
    assert!(fixture.row(workflow).ended_at.is_some());
    ask(|reply| fixture.service.retry_action(workflow, first, "me", reply)).unwrap();
    assert!(fixture.row(workflow).ended_at.is_none(), "there is an action again");
    // A new worker gets it, after the actions at its start.
    let mut three = Worker::new(&fixture, 1);
    assert_eq!(work_off(&fixture, &mut three), ["on_workflow_start", "on_worker_start"]);
    assert_eq!(runs(&fixture, workflow, first)[1], (2, Some(three.id), Some(0)));
    assert_eq!(runs(&fixture, workflow, each).len(), 2);
    assert!(fixture.row(workflow).ended_at.is_some());
    let again = ask(|reply| fixture.service.retry_action(workflow, 4711, "me", reply)).unwrap_err();
    assert_eq!(code(&again), "not_found");
}

#[test]
fn a_due_action_goes_to_a_waiting_worker() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain()]).id;
    let mut one = Worker::new(&fixture, 1);
    let first = add(&fixture, workflow, ActionTrigger::OnWorkflowStart, false);
    // It has asked, and hung up.
    let waits = one.next(Vec::new(), Duration::from_secs(10));
    drop(crate::kit::later(|reply| fixture.service.exchange(waits, crate::kit::me(), reply)));
    fixture.service.cancel_exchange(one.id, one.number, one.secret.clone());
    start(&fixture, workflow);
    let mut two = Worker::new(&fixture, 1);
    assert_eq!(triggers(&two.say(&fixture, Vec::new()).unwrap()), ["on_workflow_start"]);
    assert_eq!(runs(&fixture, workflow, first), [(1, Some(two.id), None)]);
}

#[test]
fn a_leaving_worker_runs_its_final_actions_first() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain(), plain()]).id;
    let last = add(&fixture, workflow, ActionTrigger::OnWorkerComplete, true);
    start(&fixture, workflow);
    let mut one = Worker::new(&fixture, 1);
    one.say(&fixture, Vec::new()).unwrap();
    let key = one.keys()[0];
    let mut leaving = one.next(vec![ended(key, 0)], Duration::ZERO);
    (leaving.draining, leaving.leaving) = (true, true);
    let answer = one.send(&fixture, leaving).unwrap();
    assert_eq!(triggers(&answer), ["on_worker_complete"]);
    let mut leaving = one.next(Vec::new(), Duration::ZERO);
    (leaving.draining, leaving.leaving) = (true, true);
    leaving.actions = vec![report(&answer.actions[0], 0)];
    assert!(one.send(&fixture, leaving).unwrap().actions.is_empty());
    fixture.service.check_time();
    assert!(!fixture.store.worker(one.id).unwrap().unwrap().is_active());
    assert_eq!(runs(&fixture, workflow, last), [(1, Some(one.id), Some(0))]);
}

#[test]
fn a_cancel_stops_running_actions_and_starts_none() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain()]).id;
    let first = add(&fixture, workflow, ActionTrigger::OnWorkflowStart, false);
    let last = add(&fixture, workflow, ActionTrigger::OnWorkflowComplete, false);
    start(&fixture, workflow);
    let mut worker = Worker::new(&fixture, 1);
    let begun = worker.say(&fixture, Vec::new()).unwrap().actions;
    ask(|reply| fixture.service.cancel_workflow(workflow, "me", reply)).unwrap();
    let answer = worker.say(&fixture, Vec::new()).unwrap();
    assert_eq!(answer.stops.len(), 1);
    assert!(fixture.row(workflow).ended_at.is_none(), "it still runs it");
    assert!(tell(&fixture, &mut worker, &begun, 143).actions.is_empty());
    assert!(fixture.row(workflow).is_canceled);
    assert_eq!(runs(&fixture, workflow, first), [(1, Some(worker.id), Some(143))]);
    assert_eq!(runs(&fixture, workflow, last), []);
    let refused = ask(|reply| fixture.service.retry_action(workflow, first, "me", reply)).unwrap_err();
    assert_eq!(code(&refused), "workflow_over");
}

#[test]
fn a_reset_workflow_runs_its_actions_again() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain(), plain()]).id;
    let ids =
        [ActionTrigger::OnWorkflowStart, ActionTrigger::OnJobsComplete, ActionTrigger::OnWorkflowComplete]
            .map(|trigger| add(&fixture, workflow, trigger, false));
    ask(|reply| fixture.service.initialize_workflow(workflow, false, false, "me", reply)).unwrap();
    let mut worker = Worker::new(&fixture, 1);
    let all = ["on_workflow_start", "job", "job", "on_jobs_complete", "on_workflow_complete"];
    assert_eq!(work_off(&fixture, &mut worker), all);
    // One job is reset: the actions at the start of the workflow do not run again.
    ask(|reply| fixture.service.reset_status(workflow, false, "me", reply)).unwrap();
    assert_eq!(work_off(&fixture, &mut worker), Vec::<String>::new(), "it is not initialized yet");
    let job = fixture.store.load_jobs(workflow).unwrap().ids[0];
    let which = windlass_scheduler::service::JobsToReset::Jobs(vec![job]);
    ask(|reply| fixture.service.reset_jobs(workflow, which, "me", reply)).unwrap();
    ask(|reply| fixture.service.initialize_workflow(workflow, true, false, "me", reply)).unwrap();
    assert_eq!(work_off(&fixture, &mut worker), ["job", "on_jobs_complete", "on_workflow_complete"]);
    // All jobs and all actions.
    ask(|reply| fixture.service.reset_status(workflow, false, "me", reply)).unwrap();
    let which = windlass_scheduler::service::JobsToReset::All;
    ask(|reply| fixture.service.reset_jobs(workflow, which, "me", reply)).unwrap();
    ask(|reply| fixture.service.initialize_workflow(workflow, false, false, "me", reply)).unwrap();
    assert_eq!(work_off(&fixture, &mut worker), all);
    assert_eq!(ids.map(|id| runs(&fixture, workflow, id).len()), [2, 3, 3]);
}

#[test]
fn clients_of_the_contract_claim_actions_themselves() {
    let fixture = Fixture::new();
    let workflow = fixture.create(&[plain()]).id;
    let ids = ALL.map(|trigger| add(&fixture, workflow, trigger, trigger == ActionTrigger::OnWorkerStart));
    let [_, complete, jobs_complete, jobs_ready, each, first] = ids;
    let pending = || -> Vec<i64> {
        let rows = ask(|reply| fixture.service.pending_actions(workflow, reply)).unwrap();
        rows.iter().map(|row| row.id).collect()
    };
    let claim = |id, node| ask(|reply| fixture.service.claim_action(workflow, id, node, reply)).unwrap();
    assert_eq!((pending(), claim(first, None)), (vec![], false), "nothing has started");
    ask(|reply| fixture.service.initialize_workflow(workflow, false, false, "me", reply)).unwrap();
    let node = |_| {
        let row = NewWorker { kind: WorkerKind::Torc, workflow: Some(workflow), ..NewWorker::default() };
        Some(fixture.store.add_worker(&row, NOW).unwrap())
    };
    let (one, two) = (node(1), node(2));
    assert_eq!(
        pending(),
        [ids[0], jobs_ready, each, first],
        "clients decide about worker actions themselves"
    );
    assert!(claim(first, one) && !claim(first, two) && !claim(complete, one));
    assert!(claim(each, one) && claim(each, two) && !claim(each, two), "once each");
    assert_eq!(pending(), [ids[0], jobs_ready, each]);
    let request = windlass_scheduler::service::ClaimRequest { limit: 1, ..Default::default() };
    let jobs = ask(|reply| fixture.service.claim_jobs(workflow, request, reply)).unwrap();
    ask(|reply| fixture.service.start_job(jobs[0], RunId(1), one.unwrap(), reply)).unwrap();
    let done = windlass_scheduler::service::JobCompletion {
        job: jobs[0],
        run: RunId(1),
        attempt: None,
        status: JobStatus::Completed,
        return_code: 0,
        exec_time: Duration::from_secs(1),
        completion_time: NOW,
        usage: windlass_types::worker_messages::AttemptUsage::default(),
        node: one,
    };
    ask(|reply| fixture.service.complete_jobs(workflow, vec![done], reply)).unwrap();
    // There are no remote workers to wait for.
    assert!(fixture.row(workflow).ended_at.is_some());
    assert_eq!(pending(), [ids[0], complete, jobs_complete, jobs_ready, each]);
    assert!(claim(complete, one) && !claim(complete, one) && claim(ids[0], one));
    let run = row(&fixture, workflow, complete).last_run().cloned().unwrap();
    assert_eq!((run.worker_id, run.cause.as_str()), (one, windlass_store::model::CLAIM_CAUSE));
}
