//! Request documents, read and validated completely before anything is submitted.

use crate::context::CliContext;
use crate::document_input;
use crate::error::CliError;
use crate::local_requests::RequestService;
use crate::spec_file::current_user;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use windlass_core::requests::document::{self, DocumentContext, DocumentProblem};
use windlass_core::round_plan::PlanSettings;
use windlass_spec::{FieldProblem, LocatedDocument, SpecDiagnostics, SpecSource};
use windlass_types::requests::{PriorityStep, Request};

/// A request as in its document, and as sent to a server.
pub(super) struct RequestDocument {
    pub(super) document: Value,
    pub(super) request: Request,
    /// Why it cannot run, if such documents were asked for.
    pub(super) payload_faults: Vec<DocumentProblem>,
}

/// All requests, from files and fetched by name, or all problems of all of them.
pub(super) fn load_documents(
    ctx: &CliContext,
    files: &[PathBuf],
    fetched: &[(String, Value)],
    steps: &[PriorityStep],
) -> Result<Vec<RequestDocument>, CliError> {
    load_matching(ctx, files, fetched, steps, PayloadCheck::Refuse)
}

/// Loads a file for a plan: documents whose jobs cannot run are accepted, with the reason.
pub(super) fn load_documents_to_plan(
    ctx: &CliContext,
    file: PathBuf,
) -> Result<Vec<RequestDocument>, CliError> {
    load_matching(ctx, &[file], &[], &[], PayloadCheck::Report)
}

/// What happens to a document that does not say what its jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadCheck {
    Refuse,
    Report,
}

fn load_matching(
    ctx: &CliContext,
    files: &[PathBuf],
    fetched: &[(String, Value)],
    steps: &[PriorityStep],
    check: PayloadCheck,
) -> Result<Vec<RequestDocument>, CliError> {
    let (mut wanted, mut faulty) = (Vec::new(), Vec::new());
    let files =
        files.iter().map(|file| document_input::read_document(ctx, file)).collect::<Result<Vec<_>, _>>()?;
    let fetched =
        fetched.iter().map(|(name, document)| (format!("{name} of ReqMgr2"), format!("{document:#}").into()));
    // The server that accepts the request checks the memory limit per core.
    let max_memory_per_core =
        if ctx.server()?.is_some() { u64::MAX } else { PlanSettings::default().max_memory_per_core };
    for (name, bytes) in files.into_iter().chain(fetched) {
        match parse_documents(&name, &bytes, steps, max_memory_per_core, check) {
            Ok(some) => wanted.extend(some),
            Err(found) => faulty.push(found),
        }
    }
    if !faulty.is_empty() {
        return Err(faulty.into());
    }
    let mut names: Vec<&str> = wanted.iter().map(|one| one.request.request_name.as_str()).collect();
    names.sort_unstable();
    if let Some([name, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(CliError::user(format!("two requests are named `{name}`")));
    }
    Ok(wanted)
}

fn parse_documents(
    name: &str,
    bytes: &[u8],
    steps: &[PriorityStep],
    max_memory_per_core: u64,
    check: PayloadCheck,
) -> Result<Vec<RequestDocument>, SpecDiagnostics> {
    let document = LocatedDocument::parse(SpecSource::new(name, bytes))?;
    let (mut wanted, mut complaints) = (Vec::new(), Vec::new());
    for (place, value) in split_documents(document.value()) {
        let value = set_steps(value, steps);
        match check_document(&value, max_memory_per_core) {
            Ok((_, faults)) if check == PayloadCheck::Refuse && !faults.is_empty() => {
                complaints.extend(faults.into_iter().map(|fault| place.to_field_problem(fault)));
            }
            Ok((request, payload_faults)) => {
                wanted.push(RequestDocument { document: value, request, payload_faults });
            }
            Err(faults) => complaints.extend(faults.into_iter().map(|fault| place.to_field_problem(fault))),
        }
    }
    if complaints.is_empty() { Ok(wanted) } else { Err(document.report_problems(complaints)) }
}

/// The position of a request in its document.
#[derive(Clone, Copy)]
enum DocumentPosition {
    Whole,
    /// In a list.
    Item(usize),
    /// In a ReqMgr2 response with several requests.
    Response(usize),
}

/// The requests of a document: the document itself, the items of a list, or those of a ReqMgr2 response.
fn split_documents(document: &Value) -> Vec<(DocumentPosition, Value)> {
    let answer = document.get("result").and_then(Value::as_array);
    match (document, answer) {
        (Value::Array(list), _) => {
            list.iter().enumerate().map(|(n, one)| (DocumentPosition::Item(n), one.clone())).collect()
        }
        (_, Some(result)) if result.iter().any(|one| one.as_object().is_some_and(|one| !one.is_empty())) => {
            let entries = result.iter().enumerate().flat_map(|(n, one)| {
                one.as_object().into_iter().flatten().map(move |(name, one)| (n, name, one))
            });
            entries
                .map(|(n, name, one)| (DocumentPosition::Response(n), json!({"result": [{name: one}]})))
                .collect()
        }
        _ => vec![(DocumentPosition::Whole, document.clone())],
    }
}

impl DocumentPosition {
    fn to_field_problem(self, fault: DocumentProblem) -> FieldProblem {
        let field = match (self, fault.field.as_str()) {
            (Self::Whole, field) => field.to_owned(),
            (Self::Item(n), "") => format!("[{n}]"),
            (Self::Item(n), field) => format!("[{n}].{field}"),
            // Each was validated as if it were the only one.
            (Self::Response(n), field) => match field.strip_prefix("result.0.") {
                Some(rest) => format!("result.{n}.{rest}"),
                None => format!("result.{n}"),
            },
        };
        FieldProblem { field, message: fault.reason, help: fault.remedy }
    }
}

/// All problems of a document, as the server would report them.
///
/// Returns apart why the jobs of a request that is otherwise valid cannot run.
fn check_document(
    value: &Value,
    max_memory_per_core_mb: u64,
) -> Result<(Request, Vec<DocumentProblem>), Vec<DocumentProblem>> {
    let user = current_user();
    let context = DocumentContext {
        requestor: &user,
        // The server assigns the name if the document has none.
        name_suffix: "000000_000000_0000",
        max_memory_per_core_mb,
    };
    let is_own = value.get("request_name").is_some();
    let steps = value.get("production_steps").filter(|_| !is_own).cloned();
    let mut bare = value.clone();
    if let (Some(_), Some(map)) = (&steps, bare.as_object_mut()) {
        map.remove("production_steps");
    }
    let mut request = document::parse_request(&bare, &context)?;
    let faults = windlass_requests::payload_faults(&request);
    if let Some(steps) = steps {
        // The server reports other problems.
        request.production_steps = serde_json::from_value(steps).map_err(|error| {
            let reason = format!("is a list of {{fraction, priority}}: {error}");
            vec![DocumentProblem { field: "production_steps".to_owned(), reason, remedy: None }]
        })?;
    }
    Ok((request, faults))
}

/// Returns why a submission would reject a document that can be read, beyond [`RequestDocument::payload_faults`]:
/// the request is not for this system, or one of its output datasets is taken.
pub(super) fn find_refusals(
    service: Option<&RequestService>,
    request: &Request,
) -> Result<Vec<String>, CliError> {
    let mut refusals: Vec<String> =
        document::check_ownership(request).iter().map(ToString::to_string).collect();
    let Some(service) = service else { return Ok(refusals) };
    for (dataset, why) in service.find_output_conflicts(request)? {
        refusals.push(format!("output dataset {dataset} is taken: {why}"));
    }
    Ok(refusals)
}

/// Rejects documents that a submission would reject.
pub(super) fn check_submission(
    service: Option<&RequestService>,
    wanted: &[RequestDocument],
) -> Result<(), CliError> {
    let mut writers: BTreeMap<&str, &str> = BTreeMap::new();
    for RequestDocument { request, .. } in wanted {
        let name = request.request_name.as_str();
        let mut refusals = find_refusals(service, request)?;
        for dataset in &request.output_datasets {
            let writer = *writers.entry(dataset).or_insert(name);
            if writer != name {
                refusals.push(format!("output dataset {dataset} is taken: request `{writer}` writes it"));
            }
        }
        if !refusals.is_empty() {
            return Err(CliError::user(format!("{name}: {}", refusals.join("; "))));
        }
    }
    Ok(())
}

/// Steps given on the command line replace those of the document.
fn set_steps(mut value: Value, steps: &[PriorityStep]) -> Value {
    if let (false, Some(map)) = (steps.is_empty(), value.as_object_mut()) {
        map.insert("production_steps".to_owned(), json!(steps));
    }
    value
}

/// `0.1:80000`
pub(super) fn parse_steps(words: &[String]) -> Result<Vec<PriorityStep>, CliError> {
    let parse = |word: &String| {
        let (fraction, priority) = word.split_once(':')?;
        Some(PriorityStep { fraction: fraction.parse().ok()?, priority: priority.parse().ok()? })
    };
    let step = |word: &String| {
        parse(word).ok_or_else(|| {
            CliError::user(format!("--step {word}: expected FRACTION:PRIORITY"))
                .with_hint("--step 0.1:80000: when 10 % are completed, the rest gets priority 80000")
        })
    };
    words.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 3000;

    #[test]
    fn production_step_has_fraction_and_priority() {
        assert_eq!(
            parse_steps(&["0.1:80000".into()]).unwrap(),
            [PriorityStep { fraction: 0.1, priority: 80_000 }]
        );
        for wrong in ["0.1", "a:1", "0.1:b", ":"] {
            assert!(parse_steps(&[wrong.into()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn document_errors_list_all_lines() {
        let text = "request_name: r\nsplitting_algo: FileBasd\nmemory_mb: -3\nnonsense: 1\n";
        let Err(found) = parse_documents("r.yaml", text.as_bytes(), &[], MOST, PayloadCheck::Refuse) else {
            panic!("it was accepted")
        };
        let reports = found.reports();
        let lines: Vec<_> = reports.iter().filter_map(|report| report.line).collect();
        assert!(lines.contains(&2) && lines.contains(&3) && lines.contains(&4), "{reports:?}");
        assert!(
            reports.iter().any(|report| report.help.as_ref().is_some_and(|help| help.contains("FileBased")))
        );
    }

    #[test]
    fn document_list_yields_several_requests() {
        let one = "request_name: NAME\n  input_dataset: /A/B-v1/RAW\n  output_datasets: [/A/C-v1/RECO]\n  splitting_algo: FileBased\n  payload_config: {simulation: {}}\n";
        let text = format!("- {}- {}", one.replace("NAME", "a"), one.replace("NAME", "b"));
        let wanted = parse_documents("r.yaml", text.as_bytes(), &[], MOST, PayloadCheck::Refuse)
            .unwrap_or_else(|found| panic!("{found}"));
        assert_eq!(
            wanted.iter().map(|one| one.request.request_name.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
    }

    #[test]
    fn reqmgr_response_may_hold_several_requests() {
        let one = json!({"RequestType": "ReReco", "InputDataset": "/A/B-v1/RAW", "AcquisitionEra": "Era",
            "ProcessingString": "P", "OutputDatasets": ["/A/C-v1/RECO"], "Memory": 2000, "Multicore": 1,
            "PayloadConfig": {"simulation": {}}});
        let named = |name: &str| {
            let mut one = one.clone();
            one["RequestName"] = json!(name);
            one
        };
        let names = |text: &str| -> Vec<String> {
            let wanted = parse_documents("r.json", text.as_bytes(), &[], MOST, PayloadCheck::Refuse)
                .unwrap_or_else(|found| panic!("{found}"));
            wanted.into_iter().map(|one| one.request.request_name).collect()
        };
        let mut answer = json!({"result": [{"a": named("a"), "b": named("b")}, {"c": named("c")}]});
        assert_eq!(names(&answer.to_string()), ["a", "b", "c"]);
        answer["result"][1]["c"]["Memory"] = json!("much");
        let Err(found) =
            parse_documents("r.json", answer.to_string().as_bytes(), &[], MOST, PayloadCheck::Refuse)
        else {
            panic!("it was accepted")
        };
        assert!(found.to_string().contains("result.1.c.Memory"), "{found}");
    }
}
