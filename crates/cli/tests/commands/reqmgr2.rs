//! Requests imported by name from a ReqMgr2, with and without a server.

use crate::common::{Sandbox, eventually};
use crate::reqmgr2_stub::{Reqmgr2Stub, StubResponse};
use crate::requests::events;
use crate::serve::StoppedOnDrop;
use serde_json::{Value, json};

fn document(name: &str) -> Value {
    json!({
        "RequestName": name, "RequestType": "ReReco", "Requestor": "ada", "InputDataset": "/Muons/Run3-v1/RAW",
        "OutputDatasets": [format!("/Muons/{name}-v1/RECO")], "AcquisitionEra": "Run3", "ProcessingString": "Reco",
        "Memory": 2000, "Multicore": 1, "RequestStatus": "assigned", "PayloadConfig": {"simulation": {}},
    })
}

#[test]
fn local_reqmgr2_import_is_all_or_none() {
    let (sandbox, stub) = (Sandbox::new(), Reqmgr2Stub::start());
    let mut wrong = document("wrong");
    wrong["Memory"] = json!("much");
    stub.has("one", &document("one")).has("two", &document("two")).has("wrong", &wrong);
    let from = ["--reqmgr2", &stub.url, "--reqmgr2-timeout", "1s"];
    let import = |names: &[&str]| sandbox.windlass(&[&["request", "import"], names, &from].concat());
    import(&["one", "none"]).exits(2).says("has no request of that name: `none`");
    import(&["one", "wrong"]).exits(2).says("wrong of ReqMgr2").says("Memory");
    let asked = stub.heard().len();
    import(&["one&status=new"]).exits(2).says("it contains '&'");
    assert_eq!(stub.heard().len(), asked, "that is no name to ask for");
    stub.says_first([StubResponse(403, "x-error-detail: no role\r\n", String::new())]);
    import(&["one"]).exits(5).says("denies access: 403: no role").says("--reqmgr2-cert");
    let words =
        ["request", "import", "one", "--reqmgr2", "http://127.0.0.1:1/reqmgr2", "--reqmgr2-timeout", "1s"];
    sandbox.windlass(&words).exits(5).says("cannot reach ReqMgr2").says("nothing was imported");
    assert!(!sandbox.path(".windlass").exists(), "nothing was stored");
    sandbox.windlass(&["request", "import", "one"]).exits(2).says("no ReqMgr2 is configured");

    import(&["one", "two", "--step", "0.5:7"]).exits(0).says("one is submitted").says("two is submitted");
    let shown = sandbox.json(&["request", "show", "two"]);
    assert_eq!((&shown["requestor"], &shown["production_steps"][0]["priority"]), (&json!("ada"), &json!(7)));
    import(&["one", "--step", "0.5:7"]).exits(0);
    let mut other = document("one");
    other["Memory"] = json!(1900);
    stub.has("one", &other);
    import(&["one", "--step", "0.5:7"]).exits(4).says("differs in memory_mb");
}

#[test]
fn server_imports_reqmgr2_request_by_name_and_plans_it() {
    let (sandbox, stub) = (Sandbox::new(), Reqmgr2Stub::start());
    events(&sandbox, 2);
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW", "--site", "here"]).exits(0);
    stub.has("one", &document("one"));
    let wrong = ["serve", "--check", "--reqmgr2", &stub.url, "--reqmgr2-cert", "gone.pem"];
    sandbox.windlass(&wrong).exits(5).says("gone.pem: cannot be read");
    sandbox
        .windlass(&["serve", "--check", "--reqmgr2-cert", "x.pem"])
        .exits(2)
        .says("is given without --reqmgr2");
    let options = ["--listen", "127.0.0.1:0", "--reqmgr2", &stub.url, "--reqmgr2-timeout", "1s"];
    let _served = StoppedOnDrop::start(&sandbox, &options);
    sandbox.windlass(&["site", "set", "here", "--slots", "4"]).exits(0);
    // Each request is submitted separately: an error keeps the earlier ones.
    sandbox
        .windlass(&["request", "import", "none", "one"])
        .exits(2)
        .says("one is submitted")
        .says("has no request of that name: `none`; 1 of 2 requests submitted");
    eventually("it is planned", || sandbox.json(&["request", "show", "one"])["status"] == "active");
}
