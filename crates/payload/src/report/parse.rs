//! Reads job reports. Treats everything as text that might be cut, wrong or hostile: it never fails, it stops.

use super::{FrameworkError, JobReport, ReportedFileName, ReportedInput, ReportedOutput};
use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;
use std::borrow::Cow;

/// The content of a text, as far as it can be parsed.
pub fn parse_report(text: &str) -> JobReport {
    let mut reader = Reader::from_str(text);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    config.allow_dangling_amp = true;
    let mut state = ReportParser::default();
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => state.open_element(&tag),
            Ok(Event::Empty(tag)) => {
                state.open_element(&tag);
                state.close_element();
            }
            Ok(Event::End(tag)) => {
                if state.open_elements.last().is_some_and(|open| open == tag.name().as_ref()) {
                    state.close_element();
                }
            }
            Ok(Event::Text(text)) => state.add_text(&text),
            Ok(Event::CData(text)) => state.add_text(&text),
            Ok(Event::GeneralRef(entity)) => state.add_entity(&entity),
            Ok(Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_)) => {}
            Ok(Event::Eof) | Err(_) => break,
        }
    }
    state.report
}

#[derive(Default)]
struct ReportParser {
    report: JobReport,
    open_elements: Vec<String>,
    /// Text of the innermost element, where it matters.
    text: String,
    run: u64,
    summary: String,
}

impl ReportParser {
    fn open_element(&mut self, tag: &BytesStart<'_>) {
        let name = tag.name().as_ref().to_owned();
        self.text.clear();
        match name.as_str() {
            "InputFile" => self.report.inputs.push(ReportedInput::default()),
            "File" => self.report.outputs.push(ReportedOutput::default()),
            "FrameworkError" => self.report.errors.push(FrameworkError {
                status: attribute(tag, "ExitStatus").trim().parse().unwrap_or(0),
                kind: attribute(tag, "Type"),
                text: String::new(),
            }),
            "SkippedFile" => self.report.skipped.push(file_name(tag)),
            "FallbackAttempt" => self.report.fallbacks.push(file_name(tag)),
            "Run" => self.run = attribute(tag, "ID").trim().parse().unwrap_or(0),
            "LumiSection" => self.add_lumi(&attribute(tag, "ID")),
            "PerformanceSummary" => self.summary = attribute(tag, "Metric"),
            "Metric" => self.add_metric(tag),
            _ => {}
        }
        self.open_elements.push(name);
    }

    fn close_element(&mut self) {
        let Some(name) = self.open_elements.pop() else { return };
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match name.as_str() {
            "FrameworkJobReport" => self.report.is_complete = true,
            "FrameworkError" => {
                if let Some(error) = self.report.errors.last_mut() {
                    text.clone_into(&mut error.text);
                }
            }
            _ if self.is_within("InputFile") => self.input_field(&name, text),
            _ if self.is_within("File") => self.output_field(&name, text),
            _ => {}
        }
    }

    fn input_field(&mut self, name: &str, text: &str) {
        let Some(input) = self.report.inputs.last_mut() else { return };
        match name {
            "LFN" => text.clone_into(&mut input.name.lfn),
            "PFN" => text.clone_into(&mut input.name.pfn),
            "InputType" => text.clone_into(&mut input.kind),
            "EventsRead" => input.events_read = text.parse().unwrap_or(0),
            _ => {}
        }
    }

    fn output_field(&mut self, name: &str, text: &str) {
        let of_input = self.is_within("Input");
        let Some(output) = self.report.outputs.last_mut() else { return };
        match name {
            "LFN" if of_input => output.inputs.push(text.to_owned()),
            "PFN" if of_input => {}
            "LFN" => text.clone_into(&mut output.name.lfn),
            "PFN" => text.clone_into(&mut output.name.pfn),
            "ModuleLabel" => text.clone_into(&mut output.module),
            "OutputModuleClass" => text.clone_into(&mut output.module_class),
            "GUID" => text.clone_into(&mut output.guid),
            "TotalEvents" => output.events = text.parse().ok(),
            _ => {}
        }
    }

    fn add_lumi(&mut self, id: &str) {
        let Ok(lumi) = id.trim().parse() else { return };
        let lumis = if self.is_within("InputFile") {
            self.report.inputs.last_mut().map(|input| &mut input.lumis)
        } else {
            self.report
                .outputs
                .last_mut()
                .filter(|_| self.open_elements.iter().any(|name| name == "File"))
                .map(|o| &mut o.lumis)
        };
        if let Some(lumis) = lumis {
            lumis.insert(self.run, lumi);
        }
    }

    fn add_metric(&mut self, tag: &BytesStart<'_>) {
        // Programs write `-nan` and `inf` for unknown values.
        let value = attribute(tag, "Value").trim().parse().ok().filter(|value: &f64| value.is_finite());
        if let Some(value) = value {
            let summary = self.report.performance.entry(self.summary.clone()).or_default();
            summary.insert(attribute(tag, "Name"), value);
        }
    }

    fn add_text(&mut self, text: &str) {
        if self.is_wanted() {
            self.text.push_str(text);
        }
    }

    fn add_entity(&mut self, entity: &BytesRef<'_>) {
        if !self.is_wanted() {
            return;
        }
        if let Ok(Some(character)) = entity.resolve_char_ref() {
            self.text.push(character);
        } else if let Some(known) = quick_xml::escape::resolve_predefined_entity(entity) {
            self.text.push_str(known);
        }
    }

    /// Branches are most of a report and are not used.
    fn is_wanted(&self) -> bool {
        self.open_elements.last().is_some_and(|name| name != "Branch" && name != "Branches")
    }

    fn is_within(&self, name: &str) -> bool {
        self.open_elements.iter().any(|open| open == name)
    }
}

fn file_name(tag: &BytesStart<'_>) -> ReportedFileName {
    ReportedFileName { lfn: attribute(tag, "Lfn"), pfn: attribute(tag, "Pfn") }
}

/// Empty if it is missing or invalid.
fn attribute(tag: &BytesStart<'_>, name: &str) -> String {
    let mut attributes = tag.attributes();
    let found = attributes.with_checks(false).flatten().find(|attribute| attribute.key.as_ref() == name);
    let value = found
        .and_then(|attribute| attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(Cow::into_owned));
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_parser_handles_entities_cdata_and_invalid_numbers() {
        let report = parse_report(concat!(
            "<FrameworkJobReport><InputFile><LFN>/a&amp;b&#33;</LFN><EventsRead>7</EventsRead>",
            "<Runs><Run ID='3'><LumiSection ID='1'/><LumiSection ID='2'/></Run></Runs></InputFile>",
            "<FrameworkError ExitStatus='8001' Type='x &lt; y'><![CDATA[ a < b ]]></FrameworkError>",
            "<SkippedFile Pfn='file:/x' Lfn='/store/x'/>",
            "<PerformanceReport><PerformanceSummary Metric='Timing'><Metric Name='AvgEventTime' Value='-nan'/>",
            "<Metric Name='TotalJobTime' Value='1.5e+02'/></PerformanceSummary></PerformanceReport></FrameworkJobReport>"
        ));
        assert_eq!(report.inputs[0].name.lfn, "/a&b!");
        assert_eq!(report.inputs[0].lumis.0[&3], [(1, 2)]);
        assert_eq!(report.errors[0].text, "a < b");
        assert_eq!(report.errors[0].kind, "x < y");
        assert_eq!(report.skipped[0].lfn, "/store/x");
        assert_eq!(report.metric("Timing", "TotalJobTime"), Some(150.0));
        assert_eq!(report.metric("Timing", "AvgEventTime"), None);
        assert!(report.is_complete);
    }

    #[test]
    fn truncated_report_is_parsed_up_to_its_end() {
        let report = parse_report(
            "<FrameworkJobReport><File><PFN>out.root</PFN><TotalEvents>12</TotalEvents><Runs><Run ID=\"1",
        );
        assert!(!report.is_complete);
        assert_eq!(report.outputs[0].events, Some(12));
        assert_eq!(parse_report(""), JobReport::default());
        assert_eq!(parse_report("not XML at all < & >"), JobReport::default());
    }
}
