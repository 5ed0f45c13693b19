//! Secrets in environments: hidden from callers without the permission in every response.

use crate::access::token;
use crate::test_server::Fixture;
use serde_json::Value;
use windlass_auth::UserRole;
use windlass_store::model::{
    AllocationFilter, DataFilter, DecisionFilter, EventFilter, ExportOptions, FailureFilter,
    InMemoryJobSource, JobFilter, NewJob, NewWorkflow, ResultFilter, RevisionFilter,
};
use windlass_store::rpc::StoreCall;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    AllocationId, Attempt, FileId, JobDefinition, JobGroup, JobId, RunId, SystemClock, Timestamp, UserDataId,
    WorkflowId,
};

/// Each is the value of a variable with a secret name: of the workflow, of a job group, of a job.
const SECRETS: [&str; 3] = ["hunter2", "kindly-hidden", "topsecret"];

fn variable(name: &str, value: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.to_owned()), ("HARMLESS".to_owned(), "shown".to_owned())]
}

fn with_secrets(fixture: &Fixture, user: &str) -> WorkflowId {
    let [of_workflow, of_kind, of_job] = SECRETS;
    let (env, kind_env, job_env) = (
        variable("DB_PASSWORD", of_workflow),
        variable("API_TOKEN", of_kind),
        variable("SIGNING_KEY", of_job),
    );
    let new = NewWorkflow {
        name: "w",
        user,
        submission_dir: "/",
        output_dir: "/out",
        spec_digest: Some("digest"),
        env: &env,
        job_groups: &[JobGroup { name: "k".into(), env: kind_env, ..JobGroup::default() }],
        ..NewWorkflow::default()
    };
    let job = NewJob {
        job_group: Some(0),
        ..NewJob::from(JobDefinition { env: job_env, ..JobDefinition::new("j", "true") })
    };
    fixture.store.create_workflow(&new, &mut InMemoryJobSource::new([job]), SystemClock.now()).unwrap()
}

/// All store queries that change nothing.
pub(crate) fn questions(id: WorkflowId, job: JobId) -> Vec<StoreCall> {
    let workflow = id;
    let options = ExportOptions { results: true, events: true };
    let caller = AttemptKey { workflow, run: RunId(1), job, attempt: Attempt(1) };
    vec![
        StoreCall::Workflows {},
        StoreCall::Workflow { id },
        StoreCall::FindByDigest { digest: "digest".into(), submission_dir: "/".into() },
        StoreCall::LoadJobs { workflow },
        StoreCall::Commands { jobs: vec![job] },
        StoreCall::HeldJobs { workflow },
        StoreCall::Jobs { workflow, filter: JobFilter::default() },
        StoreCall::FindJob { id: job },
        StoreCall::Results { workflow, filter: ResultFilter::default() },
        StoreCall::Failures { workflow, filter: FailureFilter::default() },
        StoreCall::FailureGroups { workflow },
        StoreCall::Decisions { workflow, filter: DecisionFilter::default() },
        StoreCall::Revisions { workflow, filter: RevisionFilter::default() },
        StoreCall::JobNames { jobs: vec![job] },
        StoreCall::JobRelations { job },
        StoreCall::Units { workflow, after_seq: 0 },
        StoreCall::UnitCounts { workflow },
        StoreCall::Requirements { workflow },
        StoreCall::Kinds { workflow },
        StoreCall::Handlers { workflow },
        StoreCall::Schedulers { workflow },
        StoreCall::Actions { workflow },
        StoreCall::Files { workflow, filter: DataFilter::default() },
        StoreCall::File { id: FileId(1) },
        StoreCall::JobFiles { workflow },
        StoreCall::UserData { workflow, filter: DataFilter::default() },
        StoreCall::UserDataPiece { id: UserDataId(1) },
        StoreCall::JobUserData { workflow },
        StoreCall::Events { workflow: Some(id), filter: EventFilter::default() },
        StoreCall::Spawners { workflow },
        StoreCall::LeftBehind { callers: vec![caller] },
        StoreCall::LastRecords { workflow },
        StoreCall::CancelRequested { workflow },
        StoreCall::ActiveWorkers { workflow: Some(id) },
        StoreCall::Export { id, options },
        StoreCall::Allocations {
            filter: AllocationFilter { workflow: Some(id), ..AllocationFilter::default() },
        },
        StoreCall::Allocation { id: AllocationId(1) },
        StoreCall::ScheduleSeen { workflow },
        StoreCall::SlurmCalls { since: Timestamp(0) },
    ]
}

/// Store calls that change something and return no existing data.
const CHANGES: &[&str] = &[
    "begin_next_run",
    "apply_triage_command",
    "request_cancel",
    "add_event",
    "spawn_jobs",
    "update_workflow",
    "set_archived",
    "delete_workflow",
    "change_requirements",
    "change_priorities",
    "add_user_data",
    "set_user_data",
    "delete_user_data",
    "add_jobs",
    "update_job",
    "delete_jobs",
    "retry_action",
    "add_file",
    "update_file",
    "delete_file",
    "add_requirements",
    "update_requirements",
    "delete_requirements",
    "delete_result",
    "delete_event",
    "import_workflow",
    "add_scheduler",
    "update_scheduler",
    "delete_scheduler",
    "rearm_unstarted",
    "add_allocations",
    "discard_allocations",
    "apply_schedule",
];

fn ask(fixture: &Fixture, token: &str, question: &StoreCall) -> (u16, String) {
    let url = format!("{}/api/v1/store", fixture.server.url);
    let answer = fixture.client.post(url).bearer_auth(token).json(question).send().unwrap();
    (answer.status().as_u16(), answer.text().unwrap())
}

/// The responses to all queries, and to the same queries by REST, together.
fn everything(fixture: &Fixture, token: &str, workflow: WorkflowId, job: JobId) -> String {
    let mut heard = String::new();
    for question in questions(workflow, job) {
        let (status, text) = ask(fixture, token, &question);
        assert!([200, 404].contains(&status), "{}: {status} {text}", question.method());
        heard += &text;
    }
    for path in [
        format!("workflows/{workflow}"),
        "workflows".to_owned(),
        format!("jobs?workflow_id={workflow}"),
        format!("jobs/{job}"),
        format!("workflows/{workflow}/running_jobs"),
    ] {
        let request = fixture.client.get(format!("{}/api/v1/{path}", fixture.server.url)).bearer_auth(token);
        heard += &request.send().unwrap().text().unwrap();
    }
    heard
}

#[test]
fn secrets_are_shown_to_the_workflow_owner_only() {
    let fixture = Fixture::new();
    let workflow = with_secrets(&fixture, "zoe");
    let job = fixture.store.jobs(workflow, &JobFilter::default()).unwrap()[0].id;
    let group = fixture.store.add_group("team", None, SystemClock.now()).unwrap();
    fixture.store.share_workflow(workflow, group, SystemClock.now()).unwrap();
    for role in UserRole::ALL {
        let user = format!("{role}-member");
        fixture.store.add_member(group, &user, "member", SystemClock.now()).unwrap();
        let heard = everything(&fixture, &token(&fixture, &user, role, "admin"), workflow, job);
        for secret in SECRETS {
            assert!(!heard.contains(secret), "{role}: {heard}");
        }
        assert!(heard.contains("********") && heard.contains("shown"), "{role}: {heard}");
        let stranger = token(&fixture, &format!("{role}-stranger"), role, "admin");
        let heard = everything(&fixture, &stranger, workflow, job);
        assert!(!SECRETS.iter().any(|secret| heard.contains(secret)), "{role}: {heard}");
    }
    let own = everything(&fixture, &token(&fixture, "zoe", UserRole::User, "write"), workflow, job);
    assert!(SECRETS.iter().all(|secret| own.contains(secret)), "{own}");
    for (role, scope) in [(UserRole::User, "read"), (UserRole::User, "worker"), (UserRole::Viewer, "write")] {
        let less = everything(&fixture, &token(&fixture, "zoe", role, scope), workflow, job);
        assert!(!SECRETS.iter().any(|secret| less.contains(secret)), "{role} {scope}: {less}");
    }
}

#[test]
fn every_store_method_is_covered() {
    let asked = questions(WorkflowId(1), JobId(1));
    let asked: Vec<&str> = asked.iter().map(StoreCall::method).chain(CHANGES.iter().copied()).collect();
    let forgotten: Vec<_> = StoreCall::METHODS.iter().filter(|method| !asked.contains(method)).collect();
    assert!(forgotten.is_empty(), "add these to `questions` or `CHANGES`: {forgotten:?}");
}

#[test]
fn export_with_redacted_secrets_can_be_imported() {
    let fixture = Fixture::new();
    let workflow = with_secrets(&fixture, "zoe");
    let otto = token(&fixture, "otto", UserRole::Operator, "admin");
    let (status, text) =
        ask(&fixture, &otto, &StoreCall::Export { id: workflow, options: ExportOptions::default() });
    assert_eq!(status, 200);
    let export: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(export["ok"]["workflow"]["env"]["DB_PASSWORD"], "********");
    assert_eq!(export["ok"]["workflow"]["env"]["HARMLESS"], "shown");
    assert_eq!(export["ok"]["jobs"][0]["env"]["SIGNING_KEY"], "********");
}
