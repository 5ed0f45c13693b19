//! Requests that are submitted by name only: the server fetches them from a ReqMgr2.

use crate::reqmgr2_stub::{Reqmgr2Stub, StubResponse};
use crate::requests::{get, post};
use crate::test_server::Fixture;
use serde_json::{Value, json};
use std::time::Duration;
use windlass_requests::Reqmgr2Client;

fn document(name: &str) -> Value {
    json!({
        "RequestName": name, "RequestType": "ReReco", "Requestor": "ada", "InputDataset": "/Muons/Run3-v1/RAW",
        "OutputDatasets": [format!("/Muons/Run3-{name}-v1/RECO")], "AcquisitionEra": "Run3", "ProcessingString": "Reco",
        "Memory": 2000, "Multicore": 1, "RequestPriority": 90_000, "RequestStatus": "assigned",
        "PayloadConfig": {"simulation": {}},
    })
}

fn fixture(stub: &Reqmgr2Stub) -> Fixture {
    let reqmgr2 = Reqmgr2Client { timeout: Duration::from_secs(1), ..Reqmgr2Client::from_url(&stub.url) };
    Fixture::with(|options| options.requests.reqmgr2 = Some(reqmgr2))
}

fn request_body(name: &str) -> Value {
    json!({"request_name": name, "source": "reqmgr2"})
}

#[test]
fn request_is_imported_once_by_name() {
    let stub = Reqmgr2Stub::start();
    stub.has("user_r_1", &document("user_r_1"));
    let fixture = fixture(&stub);
    let steps = json!([{"fraction": 0.1, "priority": 80_000}]);
    let mut wanted = request_body("user_r_1");
    wanted["production_steps"] = steps.clone();
    let (status, answer) = post(&fixture, "/api/v1/requests", &wanted);
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["request_name"], "user_r_1");
    assert_eq!(answer["status"], "submitted");
    assert_eq!(answer["production_steps"], steps);
    assert_eq!(answer["workflow"]["status"], "new");
    let shown = get(&fixture, "/api/v1/requests/user_r_1").1;
    assert_eq!((&shown["requestor"], &shown["priority"]), (&json!("ada"), &json!(90_000)), "{shown}");
    // The status in ReqMgr2 does not make it another request; other fields do.
    let mut later = document("user_r_1");
    later["RequestStatus"] = json!("acquired");
    stub.has("user_r_1", &later);
    let (status, again) = post(&fixture, "/api/v1/requests", &wanted);
    assert_eq!((status, &again["workflow"]["id"]), (200, &answer["workflow"]["id"]), "{again}");
    later["Memory"] = json!(1900);
    stub.has("user_r_1", &later);
    let (status, refused) = post(&fixture, "/api/v1/requests", &wanted);
    assert_eq!((status, &refused["code"]), (409, &json!("name_taken")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("memory_mb"), "{refused}");
}

#[test]
fn failed_import_is_reported_and_stores_nothing() {
    let stub = Reqmgr2Stub::start();
    let mut wrong = document("wrong");
    wrong["Memory"] = json!("much");
    stub.has("wrong", &wrong);
    let mut bare = document("bare");
    bare.as_object_mut().unwrap().remove("PayloadConfig");
    bare["ConfigCacheID"] = json!("4711");
    let mut over = document("over");
    over["RequestStatus"] = json!("aborted");
    stub.has("bare", &bare).has("over", &over);
    let fixture = fixture(&stub);
    let refused = |name: &str| {
        let (status, answer) = post(&fixture, "/api/v1/requests", &request_body(name));
        (status, answer["code"].as_str().unwrap().to_owned(), answer)
    };
    let (status, code, _) = refused("unknown");
    assert_eq!((status, code.as_str()), (404, "not_in_reqmgr2"));
    let (status, _, answer) = refused("wrong");
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("Memory")), "{answer}");
    let (status, _, answer) = refused("bare");
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("PayloadConfig.steps")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("names CMSSW (ConfigCacheID)"), "{answer}");
    let (status, _, answer) = refused("over");
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("RequestStatus")), "{answer}");
    let asked = stub.heard().len();
    let (status, _, answer) = refused("a&status=new");
    assert_eq!(stub.heard().len(), asked, "invalid name");
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("request_name")), "{answer}");
    stub.says_first([StubResponse(403, "", String::new())]);
    let (status, code, answer) = refused("wrong");
    assert_eq!((status, code.as_str()), (502, "reqmgr2_denied"));
    assert!(answer["hint"].as_str().unwrap().contains("--reqmgr2-cert"), "{answer}");
    let busy = || StubResponse(503, "retry-after: 60\r\n", String::new());
    stub.says_first([busy(), busy()]);
    let (status, code, _) = refused("wrong");
    assert_eq!((status, code.as_str()), (503, "reqmgr2_unavailable"));
    assert_eq!(get(&fixture, "/api/v1/requests").1["total"], 0);
}
