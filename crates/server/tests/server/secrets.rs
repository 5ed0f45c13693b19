//! Secrets in environments, on every way by which a workflow can be read: only those see them who may.

use crate::access::token;
use crate::bench::Bench;
use serde_json::Value;
use windlass_auth::Role;
use windlass_store::model::{
    AllocationFilter, DataFilter, DecisionFilter, EventFilter, ExportOptions, FailureFilter, JobFilter,
    Listed, NewJob, NewKind, NewWorkflow, ResultFilter, RevisionFilter,
};
use windlass_store::wire::Request;
use windlass_types::work::AttemptKey;
use windlass_types::{AllocationId, Attempt, Clock, FileId, JobId, RunId, Timestamp, UserDataId, WorkflowId};

/// Each is the value of a variable whose name says that it is secret: of the workflow, of a kind, of a job.
const SECRETS: [&str; 3] = ["hunter2", "kindly-hidden", "topsecret"];

fn variable(name: &str, value: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.to_owned()), ("HARMLESS".to_owned(), "shown".to_owned())]
}

fn with_secrets(bench: &Bench, user: &str) -> WorkflowId {
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
        kinds: &[NewKind { name: "k", env: &kind_env, ..NewKind::default() }],
        ..NewWorkflow::default()
    };
    let job = NewJob { name: "j", command: "true", kind: Some(0), env: &job_env, ..NewJob::default() };
    bench.store.create_workflow(&new, &mut Listed::new([job]), Clock.now()).unwrap()
}

/// Everything that can be asked of the books without changing them.
pub(crate) fn questions(id: WorkflowId, job: JobId) -> Vec<Request> {
    let workflow = id;
    let options = ExportOptions { results: true, events: true };
    let caller = AttemptKey { workflow, run: RunId(1), job, attempt: Attempt(1) };
    vec![
        Request::Workflows {},
        Request::Workflow { id },
        Request::FindByDigest { digest: "digest".into(), submission_dir: "/".into() },
        Request::LoadJobs { workflow },
        Request::Commands { jobs: vec![job] },
        Request::HeldJobs { workflow },
        Request::Jobs { workflow, filter: JobFilter::default() },
        Request::FindJob { id: job },
        Request::Results { workflow, filter: ResultFilter::default() },
        Request::Failures { workflow, filter: FailureFilter::default() },
        Request::FailureGroups { workflow },
        Request::Decisions { workflow, filter: DecisionFilter::default() },
        Request::Revisions { workflow, filter: RevisionFilter::default() },
        Request::JobNames { jobs: vec![job] },
        Request::JobRelations { job },
        Request::Units { workflow, after_seq: 0 },
        Request::UnitCounts { workflow },
        Request::Requirements { workflow },
        Request::Kinds { workflow },
        Request::Handlers { workflow },
        Request::Schedulers { workflow },
        Request::Actions { workflow },
        Request::Files { workflow, filter: DataFilter::default() },
        Request::File { id: FileId(1) },
        Request::JobFiles { workflow },
        Request::UserData { workflow, filter: DataFilter::default() },
        Request::UserDataPiece { id: UserDataId(1) },
        Request::JobUserData { workflow },
        Request::Events { workflow: Some(id), filter: EventFilter::default() },
        Request::Spawners { workflow },
        Request::LeftBehind { callers: vec![caller] },
        Request::LastRecords { workflow },
        Request::CancelRequested { workflow },
        Request::ActiveWorkers { workflow: Some(id) },
        Request::Export { id, options },
        Request::Allocations {
            filter: AllocationFilter { workflow: Some(id), ..AllocationFilter::default() },
        },
        Request::Allocation { id: AllocationId(1) },
        Request::ScheduleSeen { workflow },
        Request::SlurmCalls { since: Timestamp(0) },
    ]
}

/// What changes something, and answers with nothing that was there before.
const CHANGES: &[&str] = &[
    "begin_next_run",
    "carry_out",
    "request_cancel",
    "add_event",
    "spawn",
    "update_workflow",
    "archive",
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
    "import",
    "add_scheduler",
    "update_scheduler",
    "delete_scheduler",
    "add_allocations",
    "discard_allocations",
    "apply_schedule",
];

fn ask(bench: &Bench, token: &str, question: &Request) -> (u16, String) {
    let url = format!("{}/api/v1/books", bench.server.url);
    let answer = bench.client.post(url).bearer_auth(token).json(question).send().unwrap();
    (answer.status().as_u16(), answer.text().unwrap())
}

/// What the answers to all questions, and the same things by REST, say together.
fn everything(bench: &Bench, token: &str, workflow: WorkflowId, job: JobId) -> String {
    let mut heard = String::new();
    for question in questions(workflow, job) {
        let (status, text) = ask(bench, token, &question);
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
        let request = bench.client.get(format!("{}/api/v1/{path}", bench.server.url)).bearer_auth(token);
        heard += &request.send().unwrap().text().unwrap();
    }
    heard
}

#[test]
fn they_are_told_to_whoever_made_the_workflow_and_to_nobody_else() {
    let bench = Bench::new();
    let workflow = with_secrets(&bench, "zoe");
    let job = bench.store.jobs(workflow, &JobFilter::default()).unwrap()[0].id;
    let group = bench.store.add_group("team", None, Clock.now()).unwrap();
    bench.store.share(workflow, group, Clock.now()).unwrap();
    for role in Role::ALL {
        let user = format!("{role}-member");
        bench.store.add_member(group, &user, "member", Clock.now()).unwrap();
        let heard = everything(&bench, &token(&bench, &user, role, "admin"), workflow, job);
        for secret in SECRETS {
            assert!(!heard.contains(secret), "{role}: {heard}");
        }
        assert!(heard.contains("********") && heard.contains("shown"), "{role}: {heard}");
        let stranger = token(&bench, &format!("{role}-stranger"), role, "admin");
        let heard = everything(&bench, &stranger, workflow, job);
        assert!(!SECRETS.iter().any(|secret| heard.contains(secret)), "{role}: {heard}");
    }
    let own = everything(&bench, &token(&bench, "zoe", Role::User, "write"), workflow, job);
    assert!(SECRETS.iter().all(|secret| own.contains(secret)), "{own}");
    for (role, scope) in [(Role::User, "read"), (Role::User, "worker"), (Role::Viewer, "write")] {
        let less = everything(&bench, &token(&bench, "zoe", role, scope), workflow, job);
        assert!(!SECRETS.iter().any(|secret| less.contains(secret)), "{role} {scope}: {less}");
    }
}

#[test]
fn every_question_was_asked() {
    let asked = questions(WorkflowId(1), JobId(1));
    let asked: Vec<&str> = asked.iter().map(Request::method).chain(CHANGES.iter().copied()).collect();
    let forgotten: Vec<_> = Request::METHODS.iter().filter(|method| !asked.contains(method)).collect();
    assert!(forgotten.is_empty(), "add these to `questions` or `CHANGES`: {forgotten:?}");
}

#[test]
fn an_export_without_secrets_is_an_export_all_the_same() {
    let bench = Bench::new();
    let workflow = with_secrets(&bench, "zoe");
    let otto = token(&bench, "otto", Role::Operator, "admin");
    let (status, text) =
        ask(&bench, &otto, &Request::Export { id: workflow, options: ExportOptions::default() });
    assert_eq!(status, 200);
    let export: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(export["ok"]["workflow"]["env"]["DB_PASSWORD"], "********");
    assert_eq!(export["ok"]["workflow"]["env"]["HARMLESS"], "shown");
    assert_eq!(export["ok"]["jobs"][0]["env"]["SIGNING_KEY"], "********");
}
