//! `windlass demo requests`: a small campaign on four simulated sites. One request fails at first, and one is
//! queued again behind the others when a part of it is completed; at the end the outputs are read and every
//! event is counted.

use super::run::{SimulatedSites, with_local_service};
use super::watch;
use crate::context::{self, CliContext};
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windlass_api::requests::ImportFiles;
use windlass_store::sqlite::SqliteStore;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::RequestStatus;

const DEMO_SITES: [&str; 4] = ["T1_Alps", "T2_Baltic", "T2_Coast", "T3_Desert"];
const INPUT_DATASET: &str = "/Pretend/Demo-v1/RAW";
const INPUT_FILES: u64 = 16;
const EVENTS_PER_FILE: u64 = 50;
const EVENTS_PER_LUMI: u64 = 10;

/// A request, and what it demonstrates.
struct DemoRequest {
    name: &'static str,
    description: &'static str,
    document: Value,
    /// The expected number of events in its outputs; `None`: depends on a filter.
    events: Option<u64>,
}

fn demo_requests() -> Vec<DemoRequest> {
    let step = |faults: Value| json!([{"name": "RECO", "simulation": {"speed": 20_000.0, "faults": faults}}]);
    let reading = |name: &str, algorithm: &str, params: Value, steps: Value| {
        json!({
            "request_name": name, "campaign": "Demo", "input_dataset": INPUT_DATASET,
            "output_datasets": [format!("/Pretend/{name}-v1/RECO")], "splitting_algo": algorithm,
            "splitting_params": params, "memory_mb": 200, "size_per_event_kb": 0.05,
            "payload_config": {"steps": steps},
        })
    };
    let all = INPUT_FILES * EVENTS_PER_FILE;
    let mut stepped = reading(
        "patient",
        "FileBased",
        json!({"files_per_job": 1, "target_merged_size_kb": 1}),
        step(json!([])),
    );
    stepped["production_steps"] = json!([{"fraction": 0.25, "priority": 50_000}]);
    let mut masked = reading(
        "masked",
        "LumiBased",
        json!({"lumis_per_job": 5, "target_merged_size_kb": 5}),
        step(json!([])),
    );
    masked["splitting_params"]["lumi_mask"] = json!({"1": [[1, 20]]});
    vec![
        DemoRequest {
            name: "byfile",
            description: "two files per job",
            document: reading(
                "byfile",
                "FileBased",
                json!({"files_per_job": 2, "target_merged_size_kb": 10}),
                step(json!([])),
            ),
            events: Some(all),
        },
        DemoRequest {
            name: "byevent",
            description: "jobs of 75 events, across file boundaries",
            document: reading(
                "byevent",
                "EventBased",
                json!({"events_per_job": 75, "target_merged_size_kb": 10}),
                step(json!([])),
            ),
            events: Some(all),
        },
        DemoRequest {
            name: "masked",
            description: "only 20 of its luminosity sections",
            document: masked,
            events: Some(20 * EVENTS_PER_LUMI),
        },
        DemoRequest {
            name: "shaky",
            description: "the first job of each unit fails once, and is retried",
            document: reading(
                "shaky",
                "FileBased",
                json!({"files_per_job": 4, "target_merged_size_kb": 20}),
                step(json!([{"kind": {"signal": 9}, "node": 0, "until_attempt": 1}])),
            ),
            events: Some(all),
        },
        DemoRequest {
            name: "patient",
            description: "a quarter first; the rest is queued again, behind the others",
            document: stepped,
            events: Some(all),
        },
        DemoRequest {
            name: "made",
            description: "400 generated events, of which a filter keeps about half",
            document: json!({
                "request_name": "made", "campaign": "Demo", "output_datasets": ["/Pretend/made-v1/GEN"],
                "splitting_algo": "EventBased",
                "splitting_params": {"events_per_job": 50, "target_merged_size_kb": 5}, "memory_mb": 200,
                "size_per_event_kb": 0.05,
                "generation": {"events": 200, "events_per_lumi": 25, "filter_efficiency": 0.5},
                "payload_config": {"steps": [{"name": "GEN", "simulation": {"speed": 20_000.0}}]},
            }),
            events: None,
        },
    ]
}

pub(crate) fn run_demo(ctx: &CliContext, dir: &Path) -> Result<CliExit, CliError> {
    let path = context::make_folder(dir)?.join(context::DATABASE_FILE);
    let database = Arc::new(SqliteStore::open_or_create(&path)?.store);
    let input = create_input(dir)?;
    let acts = demo_requests();
    ctx.ui.print_note(&introduction_text(&acts));
    let sites = DEMO_SITES.map(str::to_owned).to_vec();
    let cool_off = Some(Duration::from_millis(200));
    let simulated_sites = SimulatedSites { cool_off, ..SimulatedSites::new(sites, Some(2), Some(2)) };
    with_local_service(ctx, &path, database, &simulated_sites, |request_service, stop| {
        request_service.import_dataset(&ImportFiles { dataset: INPUT_DATASET.to_owned(), files: input })?;
        for act in &acts {
            request_service.submit(&act.document)?;
        }
        let names: Vec<String> = acts.iter().map(|act| act.name.to_owned()).collect();
        let (_, is_over) = watch::observe_until_settled(ctx, request_service, &names, None, Some(stop))?;
        if !is_over {
            return Ok(CliExit::Interrupted);
        }
        check_outputs(ctx, request_service, &acts, dir)
    })
}

fn introduction_text(acts: &[DemoRequest]) -> String {
    let mut text = format!(
        "{INPUT_FILES} files of {EVENTS_PER_FILE} events each, at four sites that this machine simulates,\n\
         and {} requests that read them or generate events:\n",
        acts.len()
    );
    for act in acts {
        write!(text, "\n  {:<9}{}", act.name, act.description).unwrap_or_default();
    }
    text.push('\n');
    text
}

/// Writes the input files; each is at two of the sites.
fn create_input(dir: &Path) -> Result<Vec<CatalogFile>, CliError> {
    let wrong = |error: std::io::Error| CliError::io(format!("cannot write the input of the demo: {error}"));
    let data = dir.join("data");
    fs::create_dir_all(&data).map_err(wrong)?;
    let lumis_per_file = EVENTS_PER_FILE / EVENTS_PER_LUMI;
    let mut files = Vec::new();
    for file in 0..INPUT_FILES {
        let event = |n: u64| {
            let lumi = file * lumis_per_file + n / EVENTS_PER_LUMI + 1;
            format!("1 {lumi} {}\n", file * EVENTS_PER_FILE + n + 1)
        };
        let bytes: String = (0..EVENTS_PER_FILE).map(event).collect();
        let path = data.join(format!("raw{file:02}.txt"));
        fs::write(&path, &bytes).map_err(wrong)?;
        let lumi = |n: u64| FileLumi {
            run: 1,
            lumi: (file * lumis_per_file + n + 1) as u32,
            events: Some(EVENTS_PER_LUMI as u32),
        };
        let at = [DEMO_SITES[file as usize % 4], DEMO_SITES[(file as usize + 1) % 4]];
        files.push(CatalogFile {
            lfn: format!("/store/local{INPUT_DATASET}/raw{file:02}.txt"),
            size: bytes.len() as u64,
            events: EVENTS_PER_FILE,
            lumis: (0..lumis_per_file).map(lumi).collect(),
            replicas: at.map(|site| (site.to_owned(), path.to_string_lossy().into_owned())).into(),
            ..CatalogFile::default()
        });
    }
    Ok(files)
}

/// The result, read from the database and from the files themselves.
fn check_outputs(
    ctx: &CliContext,
    request_service: &RequestService,
    acts: &[DemoRequest],
    dir: &Path,
) -> Result<CliExit, CliError> {
    let mut table = TextTable::new(vec![
        TableColumn::text("REQUEST"),
        TableColumn::text("STATUS"),
        TableColumn::number("UNITS"),
        TableColumn::number("EVENTS"),
        TableColumn::text("VERIFIED"),
        TableColumn::flexible("STATUSES"),
    ]);
    let mut went_well = true;
    for act in acts {
        let shown = request_service.get_request(act.name)?;
        let seen = count_events(request_service, &shown.request.output_datasets)?;
        let each_once = seen.values().all(|times| *times == 1);
        let as_expected = act.events.is_none_or(|events| events == seen.len() as u64);
        went_well &= shown.status == RequestStatus::Completed && each_once && as_expected;
        let units = request_service.request_status(act.name)?.dag.map(|dag| dag.work_units_completed);
        let way: Vec<&str> = shown.status_transitions.iter().map(|line| line.to.name()).collect();
        table.add_row(vec![
            TableCell::new(act.name),
            TableCell::new(shown.status.name()),
            TableCell::optional(units),
            TableCell::new(seen.len().to_string()),
            TableCell::new(if each_once { "yes" } else { "no" }),
            TableCell::new(way.join(" ")),
        ]);
    }
    ctx.ui.print_table(&table)?;
    if !went_well {
        return Err(CliError::internal("the demo did not end as expected")
            .with_hint(format!("inspect {}", dir.display())));
    }
    ctx.ui.print_note(&conclusion_text(acts.len() as u64, dir));
    Ok(CliExit::Success)
}

/// How often each event occurs in the files of these datasets.
fn count_events(
    request_service: &RequestService,
    datasets: &[String],
) -> Result<BTreeMap<String, u64>, CliError> {
    let mut seen = BTreeMap::new();
    for dataset in datasets {
        for file in request_service.dataset_files(dataset, true, 0, 10_000)?.items {
            let path = file.replicas.values().next().cloned().unwrap_or_default();
            let text = fs::read_to_string(&path)
                .map_err(|error| CliError::io(format!("cannot read {path}: {error}")))?;
            for line in text.lines() {
                let number: Vec<&str> = line.split(' ').take(3).collect();
                *seen.entry(number.join(" ")).or_default() += 1;
            }
        }
    }
    Ok(seen)
}

fn conclusion_text(requests: u64, dir: &Path) -> String {
    format!(
        "\n{}, each planned into work units; a unit chose its site when its landing job ran, and\n\
         its jobs ran only there. Outputs were merged, registered in the catalog, protected\n\
         and archived, block by block. The demo checked the outputs: every event occurs once.\n\
         \n\
         Try next:\n  cd {}\n\
         \u{20} windlass request list             their states\n\
         \u{20} windlass request show patient     its history: a quarter, then queued again\n\
         \u{20} windlass request plan byevent     its plan\n\
         \u{20} windlass catalog                  its datasets\n\
         \u{20} windlass request errors shaky     its failures and retries",
        text::render_count(requests, "request"),
        dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_text_fits_terminal_width() {
        for told in
            [introduction_text(&demo_requests()), conclusion_text(6, Path::new("/tmp/windlass-demo-1"))]
        {
            for line in told.lines() {
                assert!(text::display_width(line) <= 100, "{line}");
            }
        }
    }

    #[test]
    fn demo_documents_parse_as_requests() {
        for act in demo_requests() {
            let read = windlass_server::requests::submit::parse_request(
                &act.document,
                "me",
                windlass_core::adaptive::MemoryWindow::default(),
                windlass_types::Timestamp(0),
            );
            assert_eq!(read.unwrap().request_name, act.name);
        }
    }
}
