//! The store over HTTP behaves like the local store.

use crate::test_server::Fixture;
use reqwest::blocking::{Body, Client};
use std::io::Read;
use windlass_store::model::{EventSeverity, InMemoryJobSource, JobFilter, NewEvent, NewJob, NewWorkflow};
use windlass_store::rpc::{RpcStore, RpcTransport, StoreCall};
use windlass_store::{Store, StoreError, StoreLocation};
use windlass_types::settings::WorkflowSettings;
use windlass_types::{JobDefinition, SystemClock, Timestamp, WorkflowId};

/// The simplest transport to a server.
struct TestTransport {
    client: Client,
    url: String,
    token: String,
}

impl TestTransport {
    fn post(&self, path: &str, kind: &str, body: Body) -> Vec<u8> {
        let request = self.client.post(format!("{}/api/v1{path}", self.url)).bearer_auth(&self.token);
        let answer = request.header("content-type", kind).body(body).send();
        answer.and_then(reqwest::blocking::Response::bytes).unwrap().to_vec()
    }
}

impl RpcTransport for TestTransport {
    fn location(&self) -> StoreLocation {
        StoreLocation::Server(self.url.clone())
    }

    fn call(&self, request: &StoreCall, _now: Timestamp) -> Result<Vec<u8>, StoreError> {
        Ok(self.post("/store", "application/json", serde_json::to_vec(request).unwrap().into()))
    }

    fn send_new_workflow(&self, lines: Box<dyn Read + Send>, _now: Timestamp) -> Result<Vec<u8>, StoreError> {
        Ok(self.post("/store/create", "application/x-ndjson", Body::new(lines)))
    }
}

fn remote(fixture: &Fixture) -> RpcStore<TestTransport> {
    let (client, url, token) =
        (fixture.client.clone(), fixture.server.url.clone(), fixture.server.token.clone());
    RpcStore::new(TestTransport { client, url, token })
}

fn create(store: &dyn Store, jobs: u32) -> WorkflowId {
    let names: Vec<String> = (0..jobs).map(|index| format!("job_{index}")).collect();
    let jobs = names.iter().map(|name| NewJob::from(JobDefinition::new(&**name, "true")));
    let new = NewWorkflow { name: "sim", user: "another user", ..NewWorkflow::default() };
    store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), SystemClock.now()).unwrap()
}

#[test]
fn a_submitted_workflow_is_shared_with_the_groups_of_its_spec() {
    let fixture = Fixture::new();
    let remote = remote(&fixture);
    let settings = WorkflowSettings { access_groups: vec!["lab".to_owned()], ..WorkflowSettings::default() };
    let new = NewWorkflow { name: "sim", user: "me", settings: Some(&settings), ..NewWorkflow::default() };
    let jobs = || [NewJob::from(JobDefinition::new("a", "true"))].into_iter();
    let refused =
        remote.create_workflow(&new, &mut InMemoryJobSource::new(jobs()), SystemClock.now()).unwrap_err();
    assert!(refused.to_string().contains("there is no access group `lab`"), "{refused}");
    assert!(fixture.store.workflows().unwrap().is_empty(), "nothing is created");
    let made =
        fixture.post("/api/v1/access_groups").json(&serde_json::json!({"name": "lab"})).send().unwrap();
    assert_eq!(made.status(), 200);
    let id = remote.create_workflow(&new, &mut InMemoryJobSource::new(jobs()), SystemClock.now()).unwrap();
    let shared = fixture.store.groups_sharing(id).unwrap();
    assert_eq!(shared.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["lab"]);
}

#[test]
fn workflow_is_created_read_and_changed_remotely() {
    let fixture = Fixture::new();
    let remote = remote(&fixture);
    let id = create(&remote, 3000);
    let row = remote.workflow(id).unwrap().unwrap();
    assert_eq!((row.name.as_str(), row.user.as_str()), ("sim", "owner"), "the creator is the owner");
    assert_eq!(remote.jobs(id, &JobFilter::default()).unwrap().len(), 3000);
    assert_eq!(fixture.store.jobs(id, &JobFilter::default()).unwrap().len(), 3000);
    assert!(matches!(remote.load_jobs(WorkflowId(77)), Err(StoreError::NoSuchWorkflow(WorkflowId(77)))));
}

#[test]
fn incomplete_upload_creates_no_workflow() {
    let fixture = Fixture::new();
    let cut = "{\"workflow\": {\"name\": \"half\"}}\n";
    let answer =
        fixture.post("/api/v1/store/create").header("content-type", "application/x-ndjson").body(cut);
    let answer = answer.send().unwrap();
    assert!(answer.status().is_client_error(), "{}", answer.status());
    assert!(fixture.store.workflows().unwrap().is_empty());
}

#[test]
fn unlisted_store_calls_are_rejected() {
    let fixture = Fixture::new();
    for method in ["submit", "add_worker", "begin_run", "drop_everything"] {
        let body = serde_json::json!({"method": method, "args": {}});
        let answer = fixture.post("/api/v1/store").json(&body).send().unwrap();
        assert_eq!(answer.status(), 422, "{method}");
    }
}

#[test]
fn changes_record_their_user() {
    let fixture = Fixture::new();
    let remote = remote(&fixture);
    let id = create(&remote, 1);
    let noted = NewEvent {
        workflow: Some(id),
        job: None,
        severity: EventSeverity::Info,
        category: "note".to_owned(),
        message: "looked at it".to_owned(),
        data: None,
    };
    remote.add_event(&noted, SystemClock.now()).unwrap();
    let events = fixture.store.events(Some(id), &windlass_store::model::EventFilter::default()).unwrap();
    assert!(events.iter().all(|event| event.actor == "owner"), "{events:?}");
}
