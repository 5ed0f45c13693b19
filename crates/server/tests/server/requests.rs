//! Requests, sites and datasets over REST: the shapes of the specification, and permissions.

use crate::access::{self, token};
use crate::test_server::{Fixture, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use windlass_auth::UserRole;
use windlass_store::model::EventFilter;
use windlass_types::requests::{FileRemainder, RequestFileRow, RequestFileState};

/// A request that does not run: the reconciler waits for an input that does not exist.
pub(crate) fn document(name: &str) -> Value {
    json!({
        "request_name": name, "input_dataset": "/Muons/Run3-v1/RAW",
        "output_datasets": [format!("/Muons/Run3-{name}-v1/RECO")],
        "splitting_algo": "FileBased", "acquisition_era": "Run3", "processing_string": "Reco",
        "payload_config": {"simulation": {}},
    })
}

pub(crate) fn send(fixture: &Fixture, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let answer = fixture.request(method, path).json(body).send().unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().unwrap())
}

pub(crate) fn post(fixture: &Fixture, path: &str, body: &Value) -> (u16, Value) {
    send(fixture, Method::POST, path, body)
}

pub(crate) fn get(fixture: &Fixture, path: &str) -> (u16, Value) {
    let answer = fixture.get(path).send().unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().unwrap())
}

#[test]
fn resubmission_is_idempotent_and_name_conflicts_fail() {
    let fixture = Fixture::new();
    let steps = json!([{"fraction": 0.1, "priority": 80_000}, {"fraction": 0.5, "priority": 50_000}]);
    let mut wanted = document("r_v1");
    wanted["production_steps"] = steps.clone();
    let (status, answer) = post(&fixture, "/api/v1/requests", &wanted);
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["request_name"], "r_v1");
    assert_eq!(answer["status"], "submitted");
    assert_eq!(answer["production_steps"], steps);
    assert_eq!(answer["workflow"]["status"], "new");
    assert!(answer["workflow"]["id"].is_string(), "{answer}");
    let (status, again) = post(&fixture, "/api/v1/requests", &wanted);
    assert_eq!((status, &again["request_name"]), (200, &json!("r_v1")), "{again}");
    assert_eq!(again["workflow"]["id"], answer["workflow"]["id"]);
    wanted["memory_mb"] = json!(1999);
    let (status, refused) = post(&fixture, "/api/v1/requests", &wanted);
    assert_eq!((status, &refused["code"]), (409, &json!("name_taken")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("memory_mb"), "{refused}");
}

#[test]
fn invalid_request_lists_fields_and_stores_nothing() {
    let fixture = Fixture::new();
    let with = |field: &str, value: Value| {
        let mut wrong = document("bad");
        wrong[field] = value;
        wrong
    };
    let table = [
        (json!([]), ""),
        (json!("text"), ""),
        (with("request_name", json!("../etc")), "request_name"),
        (with("request_name", json!("a b")), "request_name"),
        (with("input_dataset", json!("Muons")), "input_dataset"),
        (with("output_datasets", json!([])), "output_datasets"),
        (with("output_datasets", json!(["/A/B"])), "output_datasets"),
        (with("splitting_algo", json!("FileBasd")), "splitting_algo"),
        (with("memory_mb", json!(-1)), "memory_mb"),
        (with("memory_mb", json!(1_000_000)), "memory_mb"),
        (with("time_per_event_sec", json!(0)), "time_per_event_sec"),
        (with("multicore", json!(0)), "multicore"),
        (with("site_whitelist", json!(["T1 A"])), "site_whitelist"),
        (with("production_steps", json!([{"fraction": 2, "priority": 1}])), "production_steps"),
        (with("unheard_of", json!(1)), "unheard_of"),
        (with("payload_config", json!({})), "payload_config.steps"),
        (with("payload_config", json!({"steps": [{"name": "RECO"}]})), "payload_config.steps"),
        (with("payload_config", json!({"ConfigCacheID": "4711", "Step1": {}})), "PayloadConfig.steps"),
        (with("payload_config", json!({"simulation": {"sped": 2}})), "payload_config.simulation"),
        (
            with("payload_config", json!({"simulation": {}, "outputs": {"/A/B-v1/C": "X"}, "merge": 1})),
            "payload_config.merge",
        ),
        (with("payload_config", json!({"simulation": {}, "RequestStatus": "aborted"})), "RequestStatus"),
        (with("payload_config", json!({"simulation": {}, "wms_backend": "wmcore"})), "wms_backend"),
    ];
    for (body, field) in table {
        let (status, answer) = post(&fixture, "/api/v1/requests", &body);
        assert_eq!(status, 422, "{body}: {answer}");
        let errors = answer["errors"].as_array().unwrap();
        assert!(
            errors.iter().any(|error| error["field"].as_str().unwrap().starts_with(field)),
            "{body}: {answer}"
        );
        assert!(errors.iter().all(|error| !error["reason"].as_str().unwrap().is_empty()), "{answer}");
    }
    assert_eq!(get(&fixture, "/api/v1/requests").1["total"], 0);
}

#[test]
fn requests_never_share_output_datasets() {
    let fixture = Fixture::new();
    assert_eq!(post(&fixture, "/api/v1/requests", &document("r")).0, 201);
    let mut other = document("other");
    other["output_datasets"] = document("r")["output_datasets"].clone();
    let (status, refused) = post(&fixture, "/api/v1/requests", &other);
    assert_eq!((status, &refused["code"]), (409, &json!("output_taken")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("request `r` writes it"), "{refused}");
    assert!(refused["hint"].is_string(), "{refused}");
    assert_eq!(get(&fixture, "/api/v1/requests").1["total"], 1, "nothing was stored");
    let import = json!({"dataset": "/Muons/Run3-other-v1/RECO", "files": []});
    assert_eq!(post(&fixture, "/api/v1/catalog/import", &import).0, 200);
    let (status, refused) = post(&fixture, "/api/v1/requests", &document("other"));
    assert_eq!((status, &refused["code"]), (409, &json!("output_taken")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("already in the catalog"), "{refused}");
}

#[test]
fn datasets_of_others_cannot_be_changed() {
    let fixture = Fixture::new();
    let as_user = |user: &str, role| token(&fixture, user, role, "admin");
    let (ana, bob, otto) =
        (as_user("ana", UserRole::User), as_user("bob", UserRole::User), as_user("otto", UserRole::Operator));
    let import = |token: &str, dataset: &str, path: &str| {
        let file = json!({"lfn": "/store/a", "size": 10, "events": 5, "replicas": {"T2_A": path}});
        let body = json!({"dataset": dataset, "files": [file]});
        access::status(&fixture, token, "POST", "/api/v1/catalog/import", Some(&body))
    };
    assert_eq!(import(&ana, "/A/B-v1/RAW", "/data/a"), 200);
    let before = get(&fixture, "/api/v1/catalog/files?dataset=/A/B-v1/RAW").1;
    assert_eq!(import(&bob, "/A/B-v1/RAW", "/of/bob"), 403);
    let forget = "/api/v1/catalog/dataset?name=/A/B-v1/RAW";
    assert_eq!(access::status(&fixture, &bob, "DELETE", forget, None), 403);
    assert_eq!(get(&fixture, "/api/v1/catalog/files?dataset=/A/B-v1/RAW").1, before);
    assert_eq!(get(&fixture, forget).1["owner"], "ana");
    // The output of a request belongs to its requestor before it exists.
    let mut wanted = document("of_ana");
    wanted["requestor"] = json!("ana");
    assert_eq!(access::status(&fixture, &ana, "POST", "/api/v1/requests", Some(&wanted)), 201);
    assert_eq!(import(&bob, "/Muons/Run3-of_ana-v1/RECO", "/of/bob"), 403);
    assert_eq!(import(&otto, "/A/B-v1/RAW", "/moved/a"), 200);
    assert_eq!(access::status(&fixture, &otto, "DELETE", forget, None), 200);
    let filter = EventFilter { category: Some("catalog".to_owned()), ..EventFilter::default() };
    let events = fixture.store.events(None, &filter).unwrap();
    let by: Vec<&str> = events.iter().map(|event| event.actor.as_str()).collect();
    assert_eq!(by, ["ana", "otto", "otto"], "{events:?}");
}

#[test]
fn import_needs_a_configured_reqmgr2() {
    let fixture = Fixture::new();
    let wanted = json!({"request_name": "user_Run2024A_v1", "source": "reqmgr2"});
    let (status, answer) = post(&fixture, "/api/v1/requests", &wanted);
    assert_eq!((status, &answer["code"]), (501, &json!("no_reqmgr2")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("no ReqMgr2 is configured"), "{answer}");
}

#[test]
fn requests_are_filtered_and_listed() {
    let fixture = Fixture::new();
    for (name, priority, campaign) in [("a", 10, "one"), ("b", 30, "two"), ("c", 20, "one")] {
        let mut wanted = document(name);
        wanted["priority"] = json!(priority);
        wanted["campaign"] = json!(campaign);
        assert_eq!(post(&fixture, "/api/v1/requests", &wanted).0, 201);
    }
    let names = |query: &str| -> Vec<String> {
        let (status, answer) = get(&fixture, &format!("/api/v1/requests?{query}"));
        assert_eq!(status, 200, "{answer}");
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item["request_name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(""), ["a", "b", "c"]);
    assert_eq!(names("campaign=one"), ["a", "c"]);
    assert_eq!(names("sort_by=priority&reverse_sort=true"), ["b", "c", "a"]);
    assert_eq!(names("limit=1&offset=1"), ["b"]);
    assert_eq!(names("priority_min=20&name=*"), ["b", "c"]);
    assert_eq!(names("status=completed,failed"), [""; 0]);
    assert_eq!(get(&fixture, "/api/v1/requests?status=nonsense").0, 422);
    assert_eq!(get(&fixture, "/api/v1/requests?sort_by=nonsense").0, 422);
}

#[test]
fn outdated_request_change_is_rejected() {
    let fixture = Fixture::new();
    post(&fixture, "/api/v1/requests", &document("r"));
    let (_, shown) = get(&fixture, "/api/v1/requests/r");
    assert_eq!(shown["priority"], 100_000);
    assert_eq!(shown["status_transitions"][0]["to"], "submitted", "{shown}");
    let stale = json!({"priority": 5, "version": 0});
    let (status, answer) = send(&fixture, Method::PATCH, "/api/v1/requests/r", &stale);
    assert_eq!((status, &answer["code"]), (412, &json!("outdated")), "{answer}");
    let header = fixture.request(Method::PATCH, "/api/v1/requests/r").header("if-match", "\"0\"");
    assert_eq!(header.json(&json!({"priority": 5})).send().unwrap().status(), 412);
    let (status, answer) = send(&fixture, Method::PATCH, "/api/v1/requests/r", &json!({"priority": 5}));
    assert_eq!((status, &answer["priority"]), (200, &json!(5)), "{answer}");
    let wrong = json!({"urgent": true, "production_steps": [{"fraction": 0.5, "priority": 1}]});
    let (status, answer) = send(&fixture, Method::PATCH, "/api/v1/requests/r", &wrong);
    assert_eq!((status, &answer["errors"][0]["field"]), (422, &json!("production_steps")), "{answer}");
    let (status, _) = send(&fixture, Method::PATCH, "/api/v1/requests/r", &json!({"nonsense": 1}));
    assert_eq!(status, 422);
    let (status, answer) =
        send(&fixture, Method::PATCH, "/api/v1/requests/r", &json!({"status": "completed"}));
    assert_eq!((status, &answer["code"]), (409, &json!("transition")), "{answer}");
    assert_eq!(send(&fixture, Method::PATCH, "/api/v1/requests/none", &json!({"priority": 5})).0, 404);
}

#[test]
fn version_and_workflow_json_match_the_specification() {
    let fixture = Fixture::new();
    post(&fixture, "/api/v1/requests", &document("r"));
    let (_, versions) = get(&fixture, "/api/v1/requests/r/versions");
    assert_eq!(versions["current"]["request_name"], "r");
    assert_eq!(versions["current"]["cleanup_policy"], "keep_until_replaced");
    assert_eq!(versions["versions"], json!([]));
    let (status, progress) = get(&fixture, "/api/v1/requests/r/status");
    assert_eq!(status, 200, "{progress}");
    for field in [
        "workflow_id",
        "request_name",
        "status",
        "step_metrics",
        "dag",
        "blocks",
        "progress_percent",
        "estimated_completion",
    ] {
        assert!(progress.get(field).is_some(), "{field}: {progress}");
    }
    let unknown = "550e8400-e29b-41d4-a716-446655440000";
    assert_eq!(get(&fixture, &format!("/api/v1/workflows/{unknown}")).0, 404);
    assert_eq!(get(&fixture, &format!("/api/v1/workflows/{unknown}/status")).0, 404);
    assert_eq!(get(&fixture, "/api/v1/workflows/nonsense").0, 422);
    assert_eq!(get(&fixture, "/api/v1/workflows/77").0, 404);
    assert_eq!(get(&fixture, "/api/v1/dags").1["items"], json!([]));
    assert_eq!(get(&fixture, &format!("/api/v1/dags/{unknown}/nodes")).0, 404);
    assert_eq!(get(&fixture, &format!("/api/v1/dags/{unknown}/history")).0, 404);
    for verb in ["hold", "release", "remove", "rescue"] {
        let path = format!("/api/v1/dags/{unknown}/{verb}");
        assert_eq!(send(&fixture, Method::POST, &path, &json!({"reason": "none"})).0, 404, "{verb}");
    }
    assert_eq!(get(&fixture, "/api/v1/lifecycle/status").1["running"], true);
}

#[test]
fn sites_drain_and_are_banned() {
    let fixture = Fixture::new();
    assert_eq!(get(&fixture, "/api/v1/sites/T2_A").0, 404);
    let made = json!({"total_slots": 500, "storage_path": "/data/a"});
    let (status, site) = send(&fixture, Method::PATCH, "/api/v1/sites/T2_A", &made);
    assert_eq!(
        (status, &site["status"], &site["total_slots"]),
        (200, &json!("enabled"), &json!(500)),
        "{site}"
    );
    assert_eq!(send(&fixture, Method::PATCH, "/api/v1/sites/T2_A", &json!({"storage_path": "data"})).0, 422);
    assert_eq!(send(&fixture, Method::PATCH, "/api/v1/sites/a%20b", &json!({})).0, 422);
    assert_eq!(post(&fixture, "/api/v1/sites/T2_A/drain", &json!({})).1["status"], "draining");
    assert_eq!(post(&fixture, "/api/v1/sites/T2_A/enable", &json!({})).1["status"], "enabled");
    let ban = json!({"seconds": 3600, "reason": "loses files"});
    let (status, refused) = post(&fixture, "/api/v1/sites/T2_A/ban", &ban);
    assert_eq!((status, &refused["code"]), (409, &json!("last_site")), "{refused}");
    send(&fixture, Method::PATCH, "/api/v1/sites/T2_B", &json!({"status": "disabled"}));
    assert_eq!(post(&fixture, "/api/v1/sites/T2_A/ban", &ban).0, 409, "no other site is left");
    send(&fixture, Method::PATCH, "/api/v1/sites/T2_B", &json!({"status": "enabled"}));
    let (status, site) = post(&fixture, "/api/v1/sites/T2_A/ban", &ban);
    assert_eq!(post(&fixture, "/api/v1/sites/T2_B/ban", &ban).1["code"], "last_site");
    assert_eq!((status, &site["bans"][0]["reason"]), (200, &json!("loses files")), "{site}");
    assert_eq!(post(&fixture, "/api/v1/sites/T2_A/ban", &json!({"seconds": 0})).0, 422);
    assert_eq!(
        post(&fixture, "/api/v1/sites/T2_A/ban", &json!({"seconds": 9, "request_name": "none"})).0,
        404
    );
    let (_, lifted) = send(&fixture, Method::DELETE, "/api/v1/sites/T2_A/ban", &json!({}));
    assert_eq!(lifted["removed"], 1, "{lifted}");
    assert_eq!(get(&fixture, "/api/v1/sites").1["items"][0]["bans"], json!([]));
}

#[test]
fn admission_is_shown_and_changed() {
    let fixture = Fixture::new();
    let (_, queue) = get(&fixture, "/api/v1/admission/queue");
    assert_eq!(queue["max_active_dags"], 300);
    assert_eq!(
        (&queue["active_dags"], &queue["queued_workflows"], &queue["next_in_queue"]),
        (&json!(0), &json!(0), &Value::Null)
    );
    let (status, config) =
        send(&fixture, Method::PATCH, "/api/v1/admission/config", &json!({"max_active_dags": 7}));
    assert_eq!((status, &config["max_active_dags"]), (200, &json!(7)));
    assert_eq!(get(&fixture, "/api/v1/admission/queue").1["max_active_dags"], 7);
    assert_eq!(
        send(&fixture, Method::PATCH, "/api/v1/admission/config", &json!({"max_active_dags": -1})).0,
        422
    );
}

#[test]
fn dataset_import_is_atomic() {
    let fixture = Fixture::new();
    let file = |lfn: &str| {
        json!({"lfn": lfn, "size": 10, "events": 5, "lumis": [{"run": 1, "lumi": 1, "events": 5}],
               "replicas": {"T2_A": "/data/x"}})
    };
    let import = json!({"dataset": "/A/B-v1/RAW", "files": [file("/store/a"), file("/store/b")]});
    let (status, answer) = post(&fixture, "/api/v1/catalog/import", &import);
    assert_eq!(
        (status, &answer["added"], &answer["dataset"]["events"]),
        (200, &json!(2), &json!(10)),
        "{answer}"
    );
    assert_eq!(post(&fixture, "/api/v1/catalog/import", &import).1["added"], 0);
    let wrong = json!({"dataset": "/A/C-v1/RAW", "files": [file("/store/c"), file("relative")]});
    let (status, answer) = post(&fixture, "/api/v1/catalog/import", &wrong);
    assert_eq!(status, 422, "{answer}");
    let (_, all) = get(&fixture, "/api/v1/catalog/datasets?name=/A/*");
    assert_eq!(all["items"].as_array().unwrap().len(), 1, "{all}");
    let (_, files) = get(&fixture, "/api/v1/catalog/files?dataset=/A/B-v1/RAW&limit=1&offset=1");
    assert_eq!((&files["total"], &files["items"][0]["lfn"]), (&json!(2), &json!("/store/b")));
    assert_eq!(get(&fixture, "/api/v1/catalog/files?dataset=/none").0, 404);
    assert_eq!(get(&fixture, "/api/v1/catalog/dataset?name=/A/B-v1/RAW").1["sites"], json!({"T2_A": 2}));
    assert_eq!(send(&fixture, Method::DELETE, "/api/v1/catalog/dataset?name=/A/B-v1/RAW", &json!({})).0, 200);
    assert_eq!(get(&fixture, "/api/v1/catalog/dataset?name=/A/B-v1/RAW").0, 404);
}

#[test]
fn input_files_are_listed_by_status() {
    let fixture = Fixture::new();
    let file = |n: u32| json!({"lfn": format!("/store/{n}"), "size": 10, "events": 9, "lumis": [], "replicas": {"T2_A": "/data"}});
    let files: Vec<Value> = (0..5).map(file).collect();
    let import = json!({"dataset": "/Muons/Run3-v1/RAW", "files": files});
    assert_eq!(post(&fixture, "/api/v1/catalog/import", &import).0, 200);
    // There is no site, so it waits, and the test creates its rounds.
    post(&fixture, "/api/v1/requests", &document("r"));
    eventually("the reconciler has processed it", || fixture.store.process("r").unwrap().is_some());
    let process = fixture.store.process("r").unwrap().unwrap().uuid;
    let row = |n: u32, state, left, reason: Option<&str>| RequestFileRow {
        lfn: format!("/store/{n}"),
        state,
        round: 0,
        left,
        reason: reason.map(str::to_owned),
    };
    let part = Some(FileRemainder::Events(vec![(4, 9)]));
    let rows = [
        row(0, RequestFileState::Processed, None, None),
        row(1, RequestFileState::Attempted, part.clone(), None),
        row(2, RequestFileState::Excluded, part, Some("by ada")),
        row(3, RequestFileState::Excluded, None, Some("by ada")),
    ];
    fixture.store.put_file_rows(&process, &rows).unwrap();

    let (status, all) = get(&fixture, "/api/v1/requests/r/files");
    assert_eq!((status, &all["total"], &all["fresh"]), (200, &json!(4), &json!(1)), "{all}");
    assert_eq!(all["counts"], json!({"attempted": 1, "processed": 1, "excluded": 2}));
    let (_, page) = get(&fixture, "/api/v1/requests/r/files?state=attempted,excluded&offset=1&limit=1");
    let shown = &page["items"][0];
    assert_eq!((&page["total"], &shown["lfn"]), (&json!(3), &json!("/store/2")), "{page}");
    assert_eq!((&shown["left"], &shown["reason"]), (&json!({"events": [[4, 9]]}), &json!("by ada")));
    let exclusions =
        json!({"files": 2, "partly_processed": 1, "reasons": [{"reason": "by ada", "files": 2}]});
    assert_eq!(page["exclusions"], exclusions);
    assert_eq!(get(&fixture, "/api/v1/requests/r/files?state=lost").0, 422);
    assert_eq!(get(&fixture, "/api/v1/requests/none/files").0, 404);
}

/// Every operation whose body has no required field accepts a request without one, as documented.
#[test]
fn optional_body_may_be_omitted() {
    let fixture = Fixture::new();
    let openapi = serde_json::to_value(windlass_server::build_openapi()).unwrap();
    let schemas = &openapi["components"]["schemas"];
    let resolve = |schema: &Value| match schema["$ref"].as_str() {
        Some(path) => schemas[path.rsplit('/').next().unwrap()].clone(),
        None => schema.clone(),
    };
    let mut seen = 0;
    for (path, item) in openapi["paths"].as_object().unwrap() {
        let body = &item["post"]["requestBody"];
        let schema = &body["content"]["application/json"]["schema"];
        let optional =
            schema["oneOf"].as_array().is_some_and(|any| any.iter().any(|one| one["type"] == "null"));
        let resolved = resolve(schema);
        let has_none = resolved["properties"].is_object() && resolved["required"].is_null();
        // The contract of Torc requires a body for a claim of an action.
        if (!optional && !has_none) || path.contains("/actions/") {
            continue;
        }
        assert!(body["required"] != true, "{path} requires a body in the document");
        let path = path.replace("{id}", "7").replace("{action_id}", "7").replace("{name}", "nothing");
        let status = fixture.post(&path).send().unwrap().status().as_u16();
        assert!(matches!(status, 404 | 409), "{path}: {status}");
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
    post(&fixture, "/api/v1/requests", &document("r"));
    assert_eq!(fixture.post("/api/v1/requests/r/stop").send().unwrap().status(), 200);
    send(&fixture, Method::PATCH, "/api/v1/sites/T2_A", &json!({"total_slots": 4}));
    assert_eq!(fixture.post("/api/v1/sites/T2_A/drain").send().unwrap().status(), 200);
    assert_eq!(get(&fixture, "/api/v1/sites/T2_A").1["status"], "draining");
}

#[test]
fn monitoring_routes_exist_below_the_prefix() {
    let fixture = Fixture::new();
    assert_eq!(get(&fixture, "/api/v1/health"), get(&fixture, "/health"));
    let page = fixture.get("/api/v1/metrics").send().unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.text().unwrap().contains("admission_queue_depth"));
    post(&fixture, "/api/v1/requests", &document("r"));
    send(&fixture, Method::PATCH, "/api/v1/sites/T2_A", &json!({"total_slots": 4}));
    let (status, shown) = get(&fixture, "/api/v1/status");
    assert_eq!(status, 200, "{shown}");
    assert_eq!((&shown["active_dags"], &shown["sites"]), (&json!(0), &json!({"enabled": 1})), "{shown}");
    let requests: u64 = shown["requests"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(requests, 1, "{shown}");
}

/// Workflows of requests and of the engine are different objects, each with its own list.
#[test]
fn request_workflows_have_their_own_paths() {
    let fixture = Fixture::new();
    assert_eq!(get(&fixture, "/api/v1/request-workflows").1, json!({"items": [], "offset": 0, "total": 0}));
    let mut generated = document("made");
    generated.as_object_mut().unwrap().remove("input_dataset");
    generated["splitting_algo"] = json!("EventBased");
    generated["generation"] = json!({"events": 10, "events_per_lumi": 10});
    assert_eq!(post(&fixture, "/api/v1/requests", &generated).0, 201);
    eventually("it has a workflow", || {
        get(&fixture, "/api/v1/request-workflows").1["items"].as_array().unwrap().len() == 1
    });
    let line = get(&fixture, "/api/v1/request-workflows?request_name=ma*").1["items"][0].clone();
    assert_eq!(line["request_name"], "made", "{line}");
    let id = line["id"].as_str().unwrap().to_owned();
    assert_eq!(line["id"], get(&fixture, "/api/v1/requests/made").1["workflow"]["id"]);
    let (status, shown) = get(&fixture, &format!("/api/v1/request-workflows/{id}"));
    assert_eq!((status, &shown["id"], &shown["blocks"]), (200, &json!(id), &json!([])), "{shown}");
    assert_eq!(shown, get(&fixture, &format!("/api/v1/workflows/{id}")).1, "the older path returns the same");
    let (status, told) = get(&fixture, &format!("/api/v1/request-workflows/{id}/status"));
    assert_eq!((status, &told["request_name"]), (200, &json!("made")), "{told}");
    assert_eq!(get(&fixture, "/api/v1/request-workflows/nothing").0, 404);
    assert_eq!(get(&fixture, "/api/v1/workflows").1["items"], json!([]), "none of the engine");
}

#[test]
fn unsupported_site_thresholds_are_rejected() {
    let fixture = Fixture::new();
    let (status, refused) =
        send(&fixture, Method::PATCH, "/api/v1/sites/T2_A", &json!({"thresholds": {"Processing": 5}}));
    assert_eq!(status, 422, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("thresholds"), "{refused}");
    assert_eq!(get(&fixture, "/api/v1/sites/T2_A").0, 404, "and nothing is stored");
}
