//! Real job reports: what is read from them, and that corruption does no harm.

use proptest::prelude::*;
use windlass_payload::report::{JobReport, parse_report};

const FAILED: &str = include_str!("../data/CMSSWFailReport.xml");
const MERGED: &str = include_str!("../data/CMSSWMergeReport.xml");
const PROCESSED: &str = include_str!("../data/CMSSWProcessingReport.xml");
const MEASURED: &str = include_str!("../data/PerformanceReport.xml");
const ALL: [&str; 4] = [FAILED, MERGED, PROCESSED, MEASURED];

#[test]
fn report_of_failed_job_is_parsed() {
    let report = parse_report(FAILED);
    assert!(report.is_complete);
    let error = report.last_error().unwrap();
    assert_eq!((error.status, error.kind.as_str()), (8001, "CMSException"));
    assert!(error.text.starts_with("cms::Exception caught in cmsRun"), "{}", error.text);
    assert!(error.text.contains("No \"CastorDbRecord\" record found"), "{}", error.text);
    assert_eq!(report.events_read(), 1);
    assert_eq!(report.outputs.len(), 2);
    assert!(report.outputs.iter().all(|output| output.events == Some(0) && output.inputs.len() == 1));
}

#[test]
fn report_of_processing_job_is_parsed() {
    let report = parse_report(PROCESSED);
    assert_eq!(report.last_error(), None);
    assert_eq!(report.events_read(), 2);
    assert_eq!(report.inputs[0].lumis.0[&122_023], [(215, 215)]);
    assert_eq!(report.outputs[0].name.pfn, "outputRECORECO.root");
    assert_eq!(report.outputs[0].lumis.0[&122_023], [(215, 215)]);
    let by_path = report.find_output("/scratch/step1/outputRECORECO.root".as_ref()).unwrap();
    assert_eq!(by_path.module, "outputRECORECO");
}

#[test]
fn report_with_measurements_is_parsed() {
    let report = parse_report(MEASURED);
    assert_eq!(report.metric("ApplicationMemory", "PeakValueRss"), Some(492.293));
    assert_eq!(report.metric("ApplicationMemory", "PeakValueVsize"), Some(643.281));
    assert!(report.metric("Timing", "TotalJobTime").is_some_and(|seconds| seconds > 0.0));
    assert_eq!(report.outputs[0].events, Some(10));
}

#[test]
fn truncated_report_keeps_content_before_cut() {
    let report = parse_report(&PROCESSED[..PROCESSED.find("<TotalEvents>").unwrap()]);
    assert!(!report.is_complete);
    assert_eq!(report.events_read(), 2);
    assert_eq!(report.outputs[0].events, None);
    assert!(parse_report(MERGED).inputs.len() > 1);
}

/// The content of a truncated file is a prefix of the content of the whole one.
#[test]
fn truncated_report_is_prefix_of_whole_report() {
    for sample in ALL {
        let whole = parse_report(sample);
        let ends = (0..sample.len()).step_by(97).filter(|end| sample.is_char_boundary(*end));
        for end in ends {
            let JobReport { inputs, outputs, errors, is_complete: complete, .. } =
                parse_report(&sample[..end]);
            assert!(!complete, "cut at {end}");
            assert!(inputs.len() <= whole.inputs.len() && outputs.len() <= whole.outputs.len());
            assert!(errors.len() <= whole.errors.len());
            let closed = inputs.len().saturating_sub(1);
            assert_eq!(inputs[..closed], whole.inputs[..closed]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_report_is_parsed_without_panic(
        sample in 0..ALL.len(),
        end in 0.0..1.0f64,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..20),
    ) {
        let bytes = ALL[sample].as_bytes();
        let mut bytes = bytes[..(end * bytes.len() as f64) as usize].to_vec();
        if !bytes.is_empty() {
            for (place, change) in flips {
                let place = place.index(bytes.len());
                bytes[place] ^= change;
            }
        }
        let report = parse_report(&String::from_utf8_lossy(&bytes));
        // A flipped byte may turn text into a tag, but cannot create many files.
        prop_assert!(report.inputs.len() + report.outputs.len() <= bytes.len() / "<File>".len());
    }
}
