//! Truncated, damaged or foreign input: parsers do not panic, and report nothing as done that the whole file
//! does not.

use super::*;
use crate::attempt_log::AttemptLogLine;
use crate::scripts::PostReport;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use windlass_types::LumiMask;
use windlass_types::payload::{MergeCounts, MergeOutput, MergedFile, ProcessingReport, StepMetrics};

struct Sample {
    name: String,
    bytes: Vec<u8>,
}

/// Files that a real DAGMan, a real schedd and the scripts wrote; and reports of payloads.
fn samples() -> Vec<Sample> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut samples: Vec<_> = files
        .filter(|file| file.file_type().unwrap().is_file())
        .map(|file| Sample {
            name: file.file_name().into_string().unwrap(),
            bytes: std::fs::read(file.path()).unwrap(),
        })
        .collect();
    samples.push(Sample { name: "proc_3.json".into(), bytes: serde_json::to_vec(&node_report()).unwrap() });
    samples.push(Sample { name: "merge_output.json".into(), bytes: serde_json::to_vec(&merged()).unwrap() });
    samples.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(samples.len() > 20);
    samples
}

fn node_report() -> ProcessingReport {
    let step = StepMetrics { step: "RECO".into(), events_read: 20, events_written: 20, ..Default::default() };
    ProcessingReport { inputs: vec!["/store/in".into()], steps: vec![step], ..ProcessingReport::default() }
}

fn merged() -> MergeOutput {
    let file = MergedFile {
        lfn: "/store/out".into(),
        size: 100,
        adler32: "00000001".into(),
        events: 20,
        lumis: LumiMask::default(),
        parents: vec!["/store/in".into()],
    };
    MergeOutput {
        site: "T2_DE_Beta".into(),
        datasets: BTreeMap::from([("/A/B/C".to_owned(), vec![file])]),
        counts: MergeCounts { nodes: 1, files: 1, ..MergeCounts::default() },
        ..MergeOutput::default()
    }
}

/// Everything that all readers report as done: a reader must report nothing from a file of another format.
fn done(bytes: &[u8]) -> Vec<String> {
    let mut done = Vec::new();
    for event in events::parse_events(bytes) {
        done.push(format!("event {event:?}"));
    }
    for line in jobstate::parse_lines(bytes) {
        done.push(format!("line {line:?}"));
    }
    if let Some(status) = node_status::parse_status_file(bytes) {
        done.push(format!("head {:?}", status.dag));
        done.extend(status.nodes.iter().map(|node| format!("node {node:?}")));
        done.extend(status.is_complete.then(|| "whole".to_owned()));
    }
    done.extend(metrics::parse_metrics(bytes).map(|metrics| format!("metrics {metrics:?}")));
    done.extend(rescue_file::parse_rescue_file(bytes).done.iter().map(|node| format!("rescued {node}")));
    done.extend(class_ads::parse_ads(bytes).iter().flatten().map(|ad| format!("ad {ad:?}")));
    done.extend(dagman_out::parse_last_run(bytes).exit_code.map(|exit| format!("exit {exit}")));
    done.extend(of_first_job(bytes));
    done.extend(of_scripts(bytes));
    done
}

/// The events of the first job in the log, read from its end and from pieces of it.
fn of_first_job(bytes: &[u8]) -> Vec<String> {
    let Some(first) = events::parse_events(bytes).into_iter().next() else { return Vec::new() };
    let found = events::find_job_events(bytes, first.cluster, u64::MAX);
    found.0.iter().map(|event| format!("of its job {event:?}")).collect()
}

/// Files that scripts write and read, and reports of payloads that they read.
fn of_scripts(bytes: &[u8]) -> Vec<String> {
    let attempt = |line: &[u8]| serde_json::from_slice::<AttemptLogLine>(line).ok();
    let attempts = complete_lines(bytes).filter_map(attempt).map(|line| format!("attempt {line:?}"));
    let post = serde_json::from_slice::<PostReport>(bytes).ok().map(|report| format!("post {report:?}"));
    let node =
        serde_json::from_slice::<ProcessingReport>(bytes).ok().map(|report| format!("report {report:?}"));
    let merged = serde_json::from_slice::<MergeOutput>(bytes).ok().map(|output| format!("merged {output:?}"));
    attempts.chain(post).chain(node).chain(merged).collect()
}

/// Otherwise the test would check nothing.
#[test]
fn every_parser_has_a_sample() {
    let told: Vec<String> = samples().iter().flat_map(|sample| done(&sample.bytes)).collect();
    for reader in [
        "event ",
        "line ",
        "node ",
        "metrics ",
        "rescued ",
        "ad ",
        "exit ",
        "of its job ",
        "attempt ",
        "post ",
        "report ",
        "merged ",
    ] {
        assert!(told.iter().any(|message| message.starts_with(reader)), "{reader}");
    }
}

#[test]
fn truncated_file_gives_no_additional_results() {
    for sample in samples() {
        let whole = done(&sample.bytes);
        assert!(!whole.is_empty() || sample.name == "workflow.dag.rescue.removed", "{}", sample.name);
        for cut in 0..sample.bytes.len() {
            let mut left = whole.iter();
            for part in done(&sample.bytes[..cut]) {
                assert!(left.any(|message| *message == part), "{} cut at {cut}: {part}", sample.name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_do_not_break_parsers(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        (from, to) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let mut samples = samples();
        let which = which.index(samples.len());
        let bytes = &mut samples[which].bytes;
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // A piece in the middle is lost, as after a full disk.
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        bytes.drain(from.min(to)..from.max(to));
        done(bytes);
    }

    #[test]
    fn arbitrary_bytes_do_not_break_parsers(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        done(&bytes);
    }

    /// Random bytes rarely look like any format, so these inputs are made of the words of the formats.
    #[test]
    fn arbitrary_format_words_do_not_break_parsers(words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..200)) {
        done(words.concat().as_bytes());
    }
}

const WORDS: [&str; 40] = [
    "\n",
    "\n...\n",
    " ",
    "\t",
    "[",
    "]\n",
    "[\n",
    "\"",
    "\\",
    ";",
    " = ",
    "/* ",
    "(",
    ")",
    "005 (",
    "023.000.000) ",
    "000 (1.2.3) ",
    "(1) Normal termination (return value ",
    "2026-11-15 06:19:01 ",
    "Partitionable Resources :",
    "Usage",
    "Request",
    "Allocated",
    " : ",
    "99999999999999999999",
    "-1",
    "é",
    "INTERNAL *** ",
    "DAGMAN_STARTED ",
    " ***",
    "DONE ",
    "#   ",
    "# Nodes that failed: ",
    "Type",
    "\"DagStatus\"",
    "NodesTotal",
    "DagStatus",
    "EXITING WITH STATUS ",
    "POST_SCRIPT_SUCCESS 1.0 - - 1",
    "Usr 9 99:99:99, Sys 0 00:00:00  -  Run Remote Usage",
];
