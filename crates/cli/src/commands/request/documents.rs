//! Documents of requests, read and checked as a whole before anything is done with them.

use crate::context::Context;
use crate::documents;
use crate::error::CliError;
use crate::plan::current_user;
use serde_json::Value;
use std::path::PathBuf;
use windlass_core::plan::PlanSettings;
use windlass_core::requests::document::{self, Context as Terms, Fault};
use windlass_spec::{Complaint, Document, Source};
use windlass_types::requests::{ProductionStep, Request};

/// A request as its document says it, and what is sent to a server.
pub(super) struct Wanted {
    pub(super) document: Value,
    pub(super) request: Request,
}

/// All of them, or everything that is wrong with the first file that is not right.
pub(super) fn load(
    ctx: &Context,
    files: &[PathBuf],
    steps: &[ProductionStep],
) -> Result<Vec<Wanted>, CliError> {
    let mut wanted = Vec::new();
    for file in files {
        let (name, bytes) = documents::read(ctx, file)?;
        wanted.extend(read(&name, &bytes, steps)?);
    }
    let mut names: Vec<&str> = wanted.iter().map(|one| one.request.request_name.as_str()).collect();
    names.sort_unstable();
    if let Some([name, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(CliError::user(format!("two requests are called `{name}`")));
    }
    Ok(wanted)
}

fn read(name: &str, bytes: &[u8], steps: &[ProductionStep]) -> Result<Vec<Wanted>, CliError> {
    let document = Document::read(Source::new(name, bytes))?;
    let several = document.value().as_array().map(Vec::as_slice);
    let values = several.unwrap_or(std::slice::from_ref(document.value()));
    let (mut wanted, mut complaints) = (Vec::new(), Vec::new());
    for (n, value) in values.iter().enumerate() {
        let value = with_steps(value, steps);
        let place = several.map(|_| format!("[{n}]")).unwrap_or_default();
        match check(&value) {
            Ok(request) => wanted.push(Wanted { document: value, request }),
            Err(faults) => complaints.extend(faults.into_iter().map(|fault| complaint(&place, fault))),
        }
    }
    if complaints.is_empty() { Ok(wanted) } else { Err(document.complain(complaints).into()) }
}

fn complaint(place: &str, fault: Fault) -> Complaint {
    let field = match (place, fault.field.as_str()) {
        (place, "") => place.to_owned(),
        ("", field) => field.to_owned(),
        (place, field) => format!("{place}.{field}"),
    };
    Complaint { field, message: fault.reason, help: fault.remedy }
}

/// Everything that is wrong with a document, as the server would say it too.
fn check(value: &Value) -> Result<Request, Vec<Fault>> {
    let user = current_user();
    let terms = Terms {
        requestor: &user,
        // The server gives the name where the document has none.
        name_suffix: "000000_000000_0000",
        max_memory_per_core_mb: PlanSettings::default().max_memory_per_core,
    };
    let is_own = value.get("request_name").is_some();
    let steps = value.get("production_steps").filter(|_| !is_own).cloned();
    let mut bare = value.clone();
    if let (Some(_), Some(map)) = (&steps, bare.as_object_mut()) {
        map.remove("production_steps");
    }
    let mut request = document::read(&bare, &terms)?;
    if let Some(steps) = steps {
        // The server tells what else is wrong with them.
        request.production_steps = serde_json::from_value(steps).map_err(|error| {
            let reason = format!("is a list of {{fraction, priority}}: {error}");
            vec![Fault { field: "production_steps".to_owned(), reason, remedy: None }]
        })?;
    }
    Ok(request)
}

/// Said on the command line, they stand for those of the document.
fn with_steps(value: &Value, steps: &[ProductionStep]) -> Value {
    let mut value = value.clone();
    if let (false, Some(map)) = (steps.is_empty(), value.as_object_mut()) {
        map.insert("production_steps".to_owned(), serde_json::json!(steps));
    }
    value
}

/// `0.1:80000`
pub(super) fn steps(words: &[String]) -> Result<Vec<ProductionStep>, CliError> {
    let parse = |word: &String| {
        let (fraction, priority) = word.split_once(':')?;
        Some(ProductionStep { fraction: fraction.parse().ok()?, priority: priority.parse().ok()? })
    };
    let step = |word: &String| {
        parse(word).ok_or_else(|| {
            CliError::user(format!("--step {word}: it is FRACTION:PRIORITY"))
                .with_hint("--step 0.1:80000: when a tenth is done, the rest goes on with priority 80000")
        })
    };
    words.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_a_fraction_and_a_priority() {
        assert_eq!(
            steps(&["0.1:80000".into()]).unwrap(),
            [ProductionStep { fraction: 0.1, priority: 80_000 }]
        );
        for wrong in ["0.1", "a:1", "0.1:b", ":"] {
            assert!(steps(&[wrong.into()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_faults_are_told_with_their_places() {
        let text = "request_name: r\nsplitting_algo: FileBasd\nmemory_mb: -3\nnonsense: 1\n";
        let Err(error) = read("r.yaml", text.as_bytes(), &[]) else { panic!("it was taken") };
        let reports = error.diagnostics.unwrap().reports();
        let lines: Vec<_> = reports.iter().filter_map(|report| report.line).collect();
        assert!(lines.contains(&2) && lines.contains(&3) && lines.contains(&4), "{reports:?}");
        assert!(
            reports.iter().any(|report| report.help.as_ref().is_some_and(|help| help.contains("FileBased")))
        );
    }

    #[test]
    fn a_list_of_requests_is_several() {
        let one = "request_name: NAME\n  input_dataset: /A/B-v1/RAW\n  output_datasets: [/A/C-v1/RECO]\n  splitting_algo: FileBased\n";
        let text = format!("- {}- {}", one.replace("NAME", "a"), one.replace("NAME", "b"));
        let wanted =
            read("r.yaml", text.as_bytes(), &[]).unwrap_or_else(|error| panic!("{:?}", error.diagnostics));
        assert_eq!(
            wanted.iter().map(|one| one.request.request_name.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
    }
}
