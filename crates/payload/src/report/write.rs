//! Writes job reports in the form of real ones.

use super::{JobReport, ReportedFileName};
use quick_xml::escape::escape;
use std::fmt::{self, Write};
use windlass_types::LumiMask;

/// The report as XML.
pub fn render_report(report: &JobReport) -> String {
    let mut text = String::new();
    write_report(report, &mut text).expect("a String takes everything");
    text
}

fn write_report(report: &JobReport, out: &mut String) -> fmt::Result {
    out.write_str("<FrameworkJobReport>\n")?;
    for input in &report.inputs {
        out.write_str("\n<InputFile>\n<State  Value=\"closed\"/>\n")?;
        write_file_name(&input.name, out)?;
        write_element("InputType", &input.kind, out)?;
        write_element("EventsRead", &input.events_read, out)?;
        write_runs(&input.lumis, out)?;
        out.write_str("</InputFile>\n")?;
    }
    for file in &report.outputs {
        out.write_str("\n<File>\n<State  Value=\"closed\"/>\n")?;
        write_file_name(&file.name, out)?;
        write_element("ModuleLabel", &file.module, out)?;
        write_element("GUID", &file.guid, out)?;
        write_element("OutputModuleClass", &file.module_class, out)?;
        if let Some(events) = file.events {
            write_element("TotalEvents", &events, out)?;
        }
        write_runs(&file.lumis, out)?;
        out.write_str("<Inputs>\n")?;
        for lfn in &file.inputs {
            writeln!(out, "<Input>\n  <LFN>{}</LFN>\n</Input>", escape(lfn))?;
        }
        out.write_str("</Inputs>\n</File>\n")?;
    }
    write_tail(report, out)
}

fn write_tail(report: &JobReport, out: &mut String) -> fmt::Result {
    for (tag, files) in [("SkippedFile", &report.skipped), ("FallbackAttempt", &report.fallbacks)] {
        for ReportedFileName { lfn, pfn } in files {
            writeln!(out, "<{tag} Pfn=\"{}\" Lfn=\"{}\" />", escape(pfn), escape(lfn))?;
        }
    }
    for error in &report.errors {
        let (status, kind) = (error.status, escape(&error.kind));
        writeln!(
            out,
            "<FrameworkError ExitStatus=\"{status}\" Type=\"{kind}\" >\n{}\n</FrameworkError>",
            escape(&error.text)
        )?;
    }
    for (summary, metrics) in &report.performance {
        writeln!(out, "<PerformanceReport>\n  <PerformanceSummary Metric=\"{}\">", escape(summary))?;
        for (name, value) in metrics {
            writeln!(out, "    <Metric Name=\"{}\" Value=\"{value}\"/>", escape(name))?;
        }
        out.write_str("  </PerformanceSummary>\n</PerformanceReport>\n")?;
    }
    out.write_str("</FrameworkJobReport>\n")
}

fn write_file_name(name: &ReportedFileName, out: &mut String) -> fmt::Result {
    write_element("LFN", &name.lfn, out)?;
    write_element("PFN", &name.pfn, out)
}

fn write_element(tag: &str, value: &impl ToString, out: &mut String) -> fmt::Result {
    writeln!(out, "<{tag}>{}</{tag}>", escape(value.to_string()))
}

fn write_runs(lumis: &LumiMask, out: &mut String) -> fmt::Result {
    out.write_str("<Runs>\n")?;
    for (run, ranges) in lumis {
        writeln!(out, "<Run ID=\"{run}\">")?;
        for lumi in ranges.iter().flat_map(|&(first, last)| first..=last) {
            writeln!(out, "   <LumiSection ID=\"{lumi}\"/>")?;
        }
        out.write_str("</Run>\n")?;
    }
    out.write_str("</Runs>\n")
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse_report;
    use super::super::{FrameworkError, ReportedInput, ReportedOutput};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn written_text_parses_back_to_same_value() {
        let name = |lfn: &str| ReportedFileName { lfn: lfn.to_owned(), pfn: "a <&\"'> b".to_owned() };
        let lumis = LumiMask::from([(1, vec![(1, 3), (7, 7)]), (2, vec![(5, 5)])]);
        let report = JobReport {
            inputs: vec![ReportedInput {
                name: name("/store/a"),
                kind: "primaryFiles".to_owned(),
                events_read: u64::MAX,
                lumis: lumis.clone(),
            }],
            outputs: vec![ReportedOutput {
                name: name("/store/b"),
                module: "m".to_owned(),
                module_class: "PoolOutputModule".to_owned(),
                guid: "g".to_owned(),
                events: Some(0),
                lumis,
                inputs: vec!["/store/a".to_owned()],
            }],
            errors: vec![FrameworkError { status: 8021, kind: "t".to_owned(), text: "]]> & <".to_owned() }],
            skipped: vec![name("/store/c")],
            fallbacks: vec![name("/store/d")],
            performance: BTreeMap::from([("Timing".to_owned(), BTreeMap::from([("x".to_owned(), 0.25)]))]),
            is_complete: true,
        };
        assert_eq!(parse_report(&render_report(&report)), report);
    }
}
