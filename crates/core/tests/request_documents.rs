//! Documents of requests: real ones are accepted, invalid ones rejected with the field and the reason
//!

use serde_json::{Value, json};
use windlass_core::requests::document::{DocumentContext, DocumentProblem, parse_request};
use windlass_types::requests::{CleanupPolicy, Request, SplittingAlgo};

const CONTEXT: DocumentContext<'_> =
    DocumentContext { requestor: "ana", name_suffix: "261116_010000_1", max_memory_per_core_mb: 3000 };

fn good() -> Value {
    json!({
        "request_name": "ana_test_v1",
        "input_dataset": "/Mu/Run1-v1/RAW",
        "output_datasets": ["/Mu/Run1-again-v1/AOD"],
        "splitting_algo": "FileBased",
    })
}

fn generating() -> Value {
    json!({
        "request_name": "ana_gen_v1",
        "generation": {"events": 1000},
        "output_datasets": ["/Gun/Run1-v1/GEN-SIM"],
    })
}

/// A valid chain of two steps.
fn chain() -> Value {
    json!({
        "RequestName": "chain", "RequestType": "StepChain", "StepChain": 2, "OutputDatasets": "/Gun/A-B-v1/AODSIM",
        "Step1": {"StepName": "gen", "RequestNumEvents": 100, "SplittingAlgo": "EventBased", "KeepOutput": false},
        "Step2": {"StepName": "reco", "InputStep": "gen"},
    })
}

/// Sets the value at a path; `null` removes it.
fn with(mut document: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = &mut document;
    for part in parent.split('.').filter(|part| !part.is_empty()) {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        };
    }
    if value.is_null() {
        at.as_object_mut().expect("an object").remove(key);
    } else {
        at[key] = value;
    }
    document
}

fn faults(document: &Value) -> Vec<DocumentProblem> {
    parse_request(document, &CONTEXT).expect_err(&document.to_string())
}

fn request(document: &Value) -> Request {
    parse_request(document, &CONTEXT).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

#[test]
fn missing_fields_have_defaults() {
    let request = request(&good());
    assert_eq!((request.memory_mb, request.multicore, request.priority), (2048, 1, 100_000));
    assert_eq!((request.time_per_event_sec, request.size_per_event_kb), (1.0, 1.5));
    assert_eq!((request.processing_version, request.urgent), (1, false));
    assert_eq!(
        (request.requestor.as_str(), request.cleanup_policy),
        ("ana", CleanupPolicy::KeepUntilReplaced)
    );
    let generation = self::request(&generating());
    assert_eq!(generation.splitting_algo, SplittingAlgo::EventBased);
    assert_eq!(generation.generation.unwrap().events_per_lumi, 100);
}

#[test]
fn parsed_document_round_trips() {
    for document in [good(), generating()] {
        let once = request(&document);
        let again = request(&serde_json::to_value(&once).unwrap());
        assert_eq!(once, again);
    }
}

/// Document, field, part of the reason or of the remedy.
#[test]
fn invalid_documents_are_rejected_with_field_and_reason() {
    let step = |fraction: Value, priority: Value| json!({"fraction": fraction, "priority": priority});
    let table: Vec<(Value, &str, &str)> = vec![
        (json!([1, 2]), "", "a list"),
        (json!("x"), "", "the text `x`"),
        (with(good(), "request_name", json!(null)), "request_name", "missing"),
        (with(good(), "request_name", json!("../../etc/passwd")), "request_name", "contains '/'"),
        (with(good(), "request_name", json!("a b")), "request_name", "contains ' '"),
        (with(good(), "request_name", json!("a$(reboot)")), "request_name", "contains '$'"),
        (with(good(), "request_name", json!("-rf")), "request_name", "begins with a special character"),
        (with(good(), "request_name", json!("a..b")), "request_name", "`..`"),
        (with(good(), "request_name", json!("x".repeat(300))), "request_name", "longer than 200"),
        (with(good(), "request_name", json!("")), "request_name", "empty"),
        (with(good(), "request_name", json!(7)), "request_name", "a text"),
        (with(good(), "priorty", json!(1)), "priorty", "did you mean `priority`"),
        (
            with(good(), "splitting_params", json!({"file_per_job": 1})),
            "splitting_params.file_per_job",
            "files_per_job",
        ),
        (with(good(), "status", json!("active")), "status", "not a field"),
        (with(good(), "superseded_by_request", json!("x")), "superseded_by_request", "the system only"),
        (with(good(), "input_dataset", json!(null)), "input_dataset", "missing"),
        (with(good(), "input_dataset", json!("/Mu/RAW")), "input_dataset", "not a dataset name"),
        (with(good(), "input_dataset", json!("/Mu/../RAW")), "input_dataset", "not a dataset name"),
        (with(good(), "input_dataset", json!("/Mu/R v1/RAW")), "input_dataset", "not a dataset name"),
        (with(good(), "input_dataset", json!("/Mu/R-v1/raw")), "input_dataset", "tier of capitals"),
        (with(good(), "secondary_input_dataset", json!("pileup")), "secondary_input_dataset", "dataset"),
        (with(good(), "output_datasets", json!([])), "output_datasets", "missing"),
        (with(good(), "output_datasets", json!(["/A/B/C", "/A/B/C"])), "output_datasets", "twice"),
        (
            with(good(), "output_datasets", json!(["/Mu/Run1-v1/RAW"])),
            "output_datasets",
            "which is the input",
        ),
        (with(good(), "output_datasets", json!(["/A/B/C", 4])), "output_datasets", "a list of texts"),
        (with(good(), "generation", json!({"events": 5})), "input_dataset", "exclude each other"),
        (with(generating(), "generation", json!({})), "generation.events", "missing"),
        (with(generating(), "generation.events", json!(0)), "generation.events", "more than 0"),
        (with(generating(), "generation.events", json!(-5)), "generation.events", "not negative"),
        (with(generating(), "generation.events", json!(1.5)), "generation.events", "whole number"),
        (with(generating(), "generation.events", json!(u64::MAX)), "generation.events", "event numbers"),
        (
            with(generating(), "generation.events", json!(1_000_000_000_000_u64)),
            "generation.events",
            "lumi sections",
        ),
        (
            with(generating(), "generation.filter_efficiency", json!(0)),
            "generation.filter_efficiency",
            "at most 1",
        ),
        (
            with(generating(), "generation.filter_efficiency", json!(1.01)),
            "generation.filter_efficiency",
            "at most 1",
        ),
        (with(generating(), "splitting_algo", json!("LumiBased")), "splitting_algo", "generation has none"),
        (
            with(generating(), "splitting_params", json!({"run_whitelist": [1]})),
            "splitting_params.run_whitelist",
            "selects input",
        ),
        (with(good(), "splitting_algo", json!(null)), "splitting_algo", "one of FileBased"),
        (with(good(), "splitting_algo", json!("FilesBased")), "splitting_algo", "did you mean `FileBased`"),
        (
            with(good(), "splitting_params", json!({"files_per_job": 0})),
            "splitting_params.files_per_job",
            "more than 0",
        ),
        (
            with(good(), "splitting_params", json!({"lumi_mask": {"x": []}})),
            "splitting_params.lumi_mask.x",
            "not a run number",
        ),
        (
            with(good(), "splitting_params", json!({"lumi_mask": {"1": [[5, 2]]}})),
            "splitting_params.lumi_mask.1",
            "first ≤ last",
        ),
        (
            with(good(), "splitting_params", json!({"run_whitelist": [1, 2], "run_blacklist": [2]})),
            "splitting_params.run_blacklist",
            "run 2",
        ),
        (
            with(good(), "splitting_params", json!({"run_whitelist": [1], "lumi_mask": {"2": [[1, 1]]}})),
            "splitting_params.lumi_mask",
            "no input would be left",
        ),
        (with(good(), "memory_mb", json!(0)), "memory_mb", "more than 0"),
        (with(good(), "memory_mb", json!(3001)), "memory_mb", "more than the 3000 MB"),
        (with(good(), "memory_mb", json!("2 GB")), "memory_mb", "whole number"),
        (with(good(), "multicore", json!(0)), "multicore", "1 to 1024"),
        (with(good(), "multicore", json!(5_000_000_000_u64)), "multicore", "below 2^32"),
        (with(good(), "time_per_event_sec", json!(0.0)), "time_per_event_sec", "more than 0"),
        (with(good(), "time_per_event_sec", json!(-1)), "time_per_event_sec", "more than 0"),
        (with(good(), "size_per_event_kb", json!("NaN")), "size_per_event_kb", "finite number"),
        (with(good(), "site_whitelist", json!(["T2_X", "T2;rm"])), "site_whitelist", "contains ';'"),
        (with(good(), "site_blacklist", json!(["\"||true"])), "site_blacklist", "a site name"),
        (
            with(with(good(), "site_whitelist", json!(["T1", "T2"])), "site_blacklist", json!("T2")),
            "site_blacklist",
            "names T2",
        ),
        (with(good(), "cmssw_version", json!("CMSSW_1\n2")), "cmssw_version", "version"),
        (with(good(), "scram_arch", json!(["el9", "`id`"])), "scram_arch", "contains '`'"),
        (with(good(), "global_tag", json!("tag'")), "global_tag", "global tag"),
        (with(good(), "requestor_dn", json!("/CN=\"x")), "requestor_dn", "distinguished name"),
        (with(good(), "acquisition_era", json!("a/b")), "acquisition_era", "label"),
        (with(good(), "campaign", json!("Campaign-OVERRIDE-ME")), "campaign", "placeholder"),
        (with(good(), "processing_version", json!(-1)), "processing_version", "whole number"),
        (with(good(), "priority", json!(-1)), "priority", "0 to 1000000000"),
        (with(good(), "priority", json!(1e30)), "priority", "64 bits"),
        (with(good(), "urgent", json!("yes")), "urgent", "true or false"),
        (with(good(), "cleanup_policy", json!("immediate_clean")), "cleanup_policy", "immediate_cleanup"),
        (
            with(good(), "previous_version_request", json!("ana_test_v1")),
            "previous_version_request",
            "itself",
        ),
        (with(good(), "payload_config", json!([])), "payload_config", "an object"),
        //
        (with(good(), "production_steps", json!({"fraction": 0.5})), "production_steps", "a list"),
        (
            with(good(), "production_steps", json!([step(json!(0), json!(5))])),
            "production_steps.0.fraction",
            "between",
        ),
        (
            with(good(), "production_steps", json!([step(json!(1.0), json!(5))])),
            "production_steps.0.fraction",
            "between",
        ),
        (
            with(good(), "production_steps", json!([{"fraction": 0.5}])),
            "production_steps.0.priority",
            "missing",
        ),
        (
            with(good(), "production_steps", json!([step(json!(0.5), json!(9)), step(json!(0.5), json!(8))])),
            "production_steps.1.fraction",
            "more than that of the step before",
        ),
        (
            with(good(), "production_steps", json!([step(json!(0.1), json!(9)), step(json!(0.5), json!(9))])),
            "production_steps.1.priority",
            "less than the priority before",
        ),
        (
            with(good(), "production_steps", json!([step(json!(0.1), json!(100_000))])),
            "production_steps.0.priority",
            "less than the priority before",
        ),
        //
        (
            with(
                with(good(), "urgent", json!(true)),
                "production_steps",
                json!([step(json!(0.1), json!(5))]),
            ),
            "production_steps",
            "exclude each other",
        ),
        // ReqMgr2
        (json!({"result": []}), "result", "empty"),
        (json!({"result": [{"a": {}, "b": {}}]}), "result", "not 2"),
        (json!({"assignRequest": {"SiteWhitelist": "T2"}}), "createRequest", "not a request"),
        (with(chain(), "RequestType", json!("Resubmission")), "RequestType", "one of ReReco"),
        (with(chain(), "RequestType", json!("TaskChains")), "RequestType", "did you mean `TaskChain`"),
        (json!({"RequestName": "plain", "OutputDatasets": ["/A/B-v1/C"]}), "InputDataset", "missing"),
        (with(chain(), "StepChain", json!(null)), "StepChain", "missing"),
        (with(chain(), "StepChain", json!(3)), "Step3", "`StepChain` is 3"),
        (with(chain(), "StepChain", json!(1)), "Step2", "is beyond"),
        (with(chain(), "StepChain", json!(0)), "StepChain", "1 to 100"),
        (with(chain(), "Step2.InputStep", json!("sim")), "Step2.InputStep", "does not come before"),
        (with(chain(), "Step2.InputStep", json!(null)), "Step2.InputStep", "missing"),
        (with(chain(), "Step2.StepName", json!("gen")), "Step2", "of another one"),
        (with(chain(), "Step2.InputDataset", json!("/A/B/C")), "Step2.InputDataset", "middle of the chain"),
        (
            with(chain(), "Step1.SplittingAlgo", json!("Harvest")),
            "Step1.SplittingAlgo",
            "splitting algorithm",
        ),
        (with(chain(), "Step1.InputDataset", json!("/A/B/C")), "Step1.InputDataset", "exclude each other"),
        (with(chain(), "Step1.RequestNumEvents", json!(null)), "InputDataset", "missing"),
        (with(chain(), "Step2.Memory", json!(90_000)), "Step2.Memory", "more than the 3000 MB"),
        (with(chain(), "OutputDatasets", json!(null)), "OutputDatasets", "TIER"),
        (with(chain(), "SiteWhitelist", json!(5)), "SiteWhitelist", "a list of texts"),
        (with(chain(), "RequestName", json!(null)), "RequestName", "missing"),
        (with(chain(), "RequestPriority", json!("high")), "RequestPriority", "64 bits"),
    ];
    assert!(table.len() >= 40);
    let mut wrong = Vec::new();
    for (document, field, part) in table {
        let told = parse_request(&document, &CONTEXT).err().unwrap_or_default();
        // It has no other problems.
        let is_told =
            matches!(&told[..], [fault] if fault.field == field && fault.to_string().contains(part));
        if !is_told {
            wrong.push(format!("{document}\n  wanted `{field}`: {part}\n  got {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_document_faults_are_reported_together() {
    let document = json!({
        "request_name": "a b", "memory_mb": 0, "multicore": "x", "splitting_algo": "Lumi", "urgnt": true,
        "output_datasets": ["nonsense"], "generation": {"events": 0},
    });
    let fields: Vec<String> = faults(&document).into_iter().map(|fault| fault.field).collect();
    for field in [
        "request_name",
        "memory_mb",
        "multicore",
        "splitting_algo",
        "urgnt",
        "output_datasets",
        "generation.events",
    ] {
        assert!(fields.iter().any(|known| known == field), "{field} in {fields:?}");
    }
}

/// A TaskChain whose third task reads the first one's output is not a linear chain of steps.
#[test]
fn branching_chain_is_rejected() {
    let document = json!({
        "RequestName": "t", "RequestType": "TaskChain", "TaskChain": 3, "OutputDatasets": ["/A/B-v1/AODSIM"],
        "Task1": {"TaskName": "gen", "RequestNumEvents": 5}, "Task2": {"TaskName": "a", "InputTask": "gen"},
        "Task3": {"TaskName": "b", "InputTask": "gen"},
    });
    let faults = faults(&document);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert_eq!(
        faults[0].to_string(),
        "`Task3.InputTask` branches: it reads gen, not a before it; only linear chains are supported: submit one request for each \
         branch"
    );
}

fn sample(name: &str) -> Value {
    let path = format!("{}/tests/data/reqmgr/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("a sample")).expect("JSON")
}

/// Replaces every placeholder by a real value, as a user would.
fn filled(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains("OVERRIDE-ME") => json!(text.replace("-OVERRIDE-ME", "Test")),
        Value::Array(list) => list.into_iter().map(filled).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, filled(value))).collect(),
        other => other,
    }
}

#[test]
fn placeholders_are_reported_with_their_place() {
    let table: [(&str, &[&str]); 3] = [
        (
            "rereco",
            &[
                "createRequest.RequestString",
                "createRequest.Campaign",
                "assignRequest.SiteWhitelist",
                "assignRequest.ProcessingString",
                "createRequest.OutputDatasets",
            ],
        ),
        ("stepchain", &["assignRequest.AcquisitionEra.HIG_RunIISummer20UL16MiniAODAPVv2_02457_0"]),
        ("taskchain", &["assignRequest.ProcessingString.Reco_2021noPU", "createRequest.RequestString"]),
    ];
    for (name, expected) in table {
        let fields: Vec<String> = faults(&sample(name)).into_iter().map(|fault| fault.field).collect();
        for field in expected {
            assert!(fields.iter().any(|known| known == field), "{name}: {field} in {fields:?}");
        }
    }
}

#[test]
fn real_rereco_is_parsed() {
    let document = filled(sample("rereco"));
    let told = faults(&document);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].to_string().contains("/MuonEG/Run2022C-ProcessingStringTest-v19/TIER"), "{}", told[0]);
    let outputs = json!(["/MuonEG/Run2022C-ProcessingStringTest-v19/AOD"]);
    let request = request(&with(document, "createRequest.OutputDatasets", outputs));
    assert_eq!(request.request_name, "ana_RequestStringTest_261116_010000_1");
    assert_eq!(request.input_dataset.as_deref(), Some("/MuonEG/Run2022C-v1/RAW"));
    assert_eq!((request.memory_mb, request.multicore, request.priority), (10_000, 4, 600_000));
    assert_eq!(request.splitting_algo, SplittingAlgo::EventAwareLumiBased);
    let mask = request.splitting_params.lumi_mask.unwrap();
    assert!(mask.contains(356_164, 40) && !mask.contains(356_164, 16));
    assert_eq!(request.processing_version, 19, "assignment values override creation values");
    assert_eq!(request.scram_arch, ["el8_amd64_gcc10"]);
    assert_eq!(request.payload_config["ConfigCacheID"], json!("3852d43544da0301ed0e04da715182b5"));
    assert_eq!(request.payload_config["RequestType"], json!("ReReco"));
}

#[test]
fn real_reqmgr_answer_is_parsed() {
    let request = request(&sample("answer"));
    assert_eq!(request.request_name, "wms2_wms2rereco1794724478_261115_063438_9519");
    assert_eq!(request.requestor, "wms2");
    assert_eq!(request.splitting_params.run_whitelist, [396_000, 396_001]);
    assert_eq!(request.splitting_params.lumi_mask, None, "an empty lumi list selects everything");
    assert_eq!(request.splitting_params.events_per_job, Some(4320));
    assert_eq!(request.output_datasets, ["/WMS2Prim/Run2026A-wms2-v1/GEN-SIM"]);
    assert!(!request.payload_config.contains_key("GlobalTagConnect"), "null means absent");
}

#[test]
fn real_stepchain_is_parsed() {
    let mut document = filled(sample("stepchain"));
    document = with(document, "createRequest.Step6.DataTier", json!("MINIAODSIM"));
    let request = request(&document);
    let generation = request.generation.unwrap();
    assert_eq!((generation.events, generation.events_per_lumi), (20_000, 500));
    assert_eq!((request.input_dataset.as_deref(), request.splitting_algo), (None, SplittingAlgo::EventBased));
    assert_eq!((request.memory_mb, request.multicore), (4000, 4));
    assert!((request.time_per_event_sec - 89.4).abs() < 1e-9, "that of the chain, not of each step");
    let secondary = request.secondary_input_dataset.unwrap();
    assert!(secondary.ends_with("/PREMIX"), "{secondary}");
    let primary = "VBF_HHTo2G2Tau_CV_1_C2V_1_C3_0_TuneCP5_13TeV-powheg-pythia8";
    let processed = "AcquisitionEraTest-ProcessingStringTest-v19";
    assert_eq!(
        request.output_datasets,
        [format!("/{primary}/{processed}/AODSIM"), format!("/{primary}/{processed}/MINIAODSIM")],
        "of the steps that keep their output; the tier from the next step's input, or as given"
    );
    assert_eq!(request.payload_config["Step3"]["KeepOutput"], json!(false), "steps do not change");
}

#[test]
fn real_taskchain_is_one_chain() {
    let outputs = json!("/RelValPsi2SToJPsiPiPi/X-Y-v19/GEN-SIM-RECO");
    let request = request(&with(filled(sample("taskchain")), "createRequest.OutputDatasets", outputs));
    let generation = request.generation.unwrap();
    assert_eq!((generation.events, generation.first_event, generation.first_lumi), (10_000, 10_001, 101));
    assert_eq!((request.memory_mb, request.multicore), (8000, 8), "the maximum of its tasks");
    assert!((request.time_per_event_sec - 260.0).abs() < 1e-9, "the sum of its tasks");
    assert_eq!(request.acquisition_era.as_deref(), Some("AcquisitionEraTest"));
}

/// Any document is read or rejected; reading never panics.
mod any {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            Just(json!("/A/B-v1/C")),
        ];
        leaf.prop_recursive(2, 12, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map("[0-9A-Za-z]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn random_values_in_any_field_do_not_panic(which in 0..4_usize, at in any::<prop::sample::Index>(), value in value()) {
            let document = [good(), generating(), chain(), sample("taskchain")][which].clone();
            let keys: Vec<String> = document.as_object().unwrap().keys().cloned().collect();
            let mut changed = document.clone();
            changed[at.get(&keys)] = value;
            if let Err(faults) = parse_request(&changed, &CONTEXT) {
                prop_assert!(!faults.is_empty());
            }
        }
    }
}
