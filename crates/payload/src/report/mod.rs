//! Framework job reports: the XML reports of CMS programs.
//!
//! [`parse`] reads as far as possible, because the report of a killed job breaks off anywhere. [`write`] writes
//! the reports of the simulation.

mod parse;
mod write;

pub use parse::parse_report;
pub use write::render_report;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use windlass_types::LumiMask;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobReport {
    pub inputs: Vec<ReportedInput>,
    pub outputs: Vec<ReportedOutput>,
    pub errors: Vec<FrameworkError>,
    pub skipped: Vec<ReportedFileName>,
    pub fallbacks: Vec<ReportedFileName>,
    /// Summary → metric → value, as far as values are numbers.
    pub performance: BTreeMap<String, BTreeMap<String, f64>>,
    /// False if it breaks off.
    pub is_complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedFileName {
    pub lfn: String,
    pub pfn: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedInput {
    pub name: ReportedFileName,
    /// `primaryFiles`, `secondaryFiles` or `mixingFiles`; empty counts as primary.
    pub kind: String,
    pub events_read: u64,
    pub lumis: LumiMask,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedOutput {
    pub name: ReportedFileName,
    pub module: String,
    pub module_class: String,
    pub guid: String,
    /// Missing if the report breaks off before.
    pub events: Option<u64>,
    pub lumis: LumiMask,
    /// LFNs.
    pub inputs: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameworkError {
    pub status: i32,
    pub kind: String,
    pub text: String,
}

/// Size limit: reports are small.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The report in a file. `None` if there is no file.
pub fn read_report(path: &Path) -> io::Result<Option<JobReport>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(parse_report(&String::from_utf8_lossy(&bytes))))
}

impl JobReport {
    /// A metric that is a valid number.
    pub fn metric(&self, summary: &str, name: &str) -> Option<f64> {
        self.performance.get(summary)?.get(name).copied().filter(|value| *value >= 0.0)
    }

    /// The last error: the ones before are its causes.
    pub fn last_error(&self) -> Option<&FrameworkError> {
        self.errors.iter().rfind(|error| error.status != 0)
    }

    pub fn events_read(&self) -> u64 {
        let primary = self.inputs.iter().filter(|input| matches!(input.kind.as_str(), "" | "primaryFiles"));
        primary.map(|input| input.events_read).fold(0, u64::saturating_add)
    }

    /// Seconds, of the job and its child processes.
    pub fn cpu_sec(&self) -> Option<f64> {
        let children = self.metric("Timing", "TotalJobChildrenCPU").unwrap_or(0.0);
        self.metric("Timing", "TotalJobCPU").map(|own| own + children)
    }

    pub fn read_mb(&self) -> Option<f64> {
        self.megabytes(&["Timing-file-read-totalMegabytes", "Timing-tstoragefile-read-totalMegabytes"])
    }

    pub fn write_mb(&self) -> Option<f64> {
        self.megabytes(&["Timing-file-write-totalMegabytes", "Timing-tstoragefile-write-totalMegabytes"])
    }

    fn megabytes(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| self.metric("StorageStatistics", name))
    }

    /// The entry of an output, by the last part of its path: programs use file names of their own.
    pub fn find_output(&self, path: &Path) -> Option<&ReportedOutput> {
        let name = path.file_name()?.to_str()?;
        let is_named = |text: &str| text.rsplit('/').next() == Some(name);
        self.outputs.iter().find(|output| is_named(&output.name.pfn) || is_named(&output.name.lfn))
    }

    /// LFNs of inputs that the report blames: those it skipped, and those that its error names.
    pub fn bad_inputs<'a>(&self, inputs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
        let text = self.last_error().map_or("", |error| &error.text);
        let is_blamed = |lfn: &str, path: &str| {
            let skipped = |file: &ReportedFileName| {
                (!lfn.is_empty() && file.lfn == lfn) || is_same_path(&file.pfn, path)
            };
            self.skipped.iter().any(skipped) || mentions(text, lfn) || mentions(text, path)
        };
        let blamed = inputs.into_iter().filter(|(lfn, path)| is_blamed(lfn, path));
        blamed.map(|(lfn, _)| lfn.to_owned()).collect()
    }
}

/// Whether a text contains a name, and not only a longer one that begins with it.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-/".contains(c);
    // A full stop ends a sentence, unless the name continues after it.
    let goes_on = |rest: &str| rest.strip_prefix('.').unwrap_or(rest).starts_with(is_part);
    !name.is_empty() && text.match_indices(name).any(|(at, _)| !goes_on(&text[at + name.len()..]))
}

fn is_same_path(pfn: &str, path: &str) -> bool {
    !path.is_empty() && (pfn == path || pfn.strip_prefix("file:") == Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_and_named_files_are_blamed() {
        let report = JobReport {
            skipped: vec![ReportedFileName { lfn: "/store/a".to_owned(), pfn: String::new() }],
            errors: vec![FrameworkError {
                status: 8021,
                kind: String::new(),
                text: "cannot read file:/data/store/b.root, at byte 7".to_owned(),
            }],
            ..JobReport::default()
        };
        let inputs = [
            ("/store/a", "/data/store/a"),
            ("/store/b", "/data/store/b"),
            ("/store/b.root", "/data/store/b.root"),
        ];
        assert_eq!(report.bad_inputs(inputs), ["/store/a", "/store/b.root"]);
    }
}
