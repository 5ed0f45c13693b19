//! The number of events of a file, and its source.

use crate::event_files;
use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::report::JobReport;
use std::path::Path;
use windlass_types::LumiMask;
use windlass_types::payload::EventCountSource;

#[derive(Clone, Debug)]
pub(super) struct EventCount {
    pub(super) events: u64,
    pub(super) source: EventCountSource,
    pub(super) lumis: LumiMask,
}

impl EventCount {
    /// From the job report, or by counting the events of an event file. For any other file the number of events
    /// is unknown: `expected` is then an estimate for the next step, and must not be registered.
    pub(super) fn from_file(
        path: &Path,
        report: Option<&JobReport>,
        expected: u64,
    ) -> Result<Self, PayloadFailure> {
        let missing = |error: &std::io::Error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                PayloadFailure::new(
                    exit_codes::NO_OUTPUT,
                    format!("it succeeded and left no output {}", file_name(path)),
                )
            } else {
                PayloadFailure::from_io(exit_codes::NO_OUTPUT, "read its output", path, error)
            }
        };
        let contents = event_files::read_contents(path).map_err(|error| missing(&error))?;
        let reported = report.and_then(|report| report.find_output(path));
        if let (Some(events), Some(contents)) = (reported.and_then(|reported| reported.events), &contents)
            && events != contents.events
        {
            let message = format!(
                "{} has {} events, and the job report says {events}",
                file_name(path),
                contents.events
            );
            return Err(PayloadFailure::new(exit_codes::NO_OUTPUT, message));
        }
        Ok(match (reported.and_then(|reported| Some((reported.events?, reported))), contents) {
            (Some((events, reported)), contents) => Self {
                events,
                source: EventCountSource::Report,
                lumis: if reported.lumis.is_empty() {
                    contents.unwrap_or_default().lumis
                } else {
                    reported.lumis.clone()
                },
            },
            (None, Some(contents)) => {
                Self { events: contents.events, source: EventCountSource::File, lumis: contents.lumis }
            }
            (None, None) => {
                Self { events: expected, source: EventCountSource::Expected, lumis: LumiMask::default() }
            }
        })
    }

    /// For two files that become one. The result is only as certain as the less certain part.
    #[must_use]
    pub(super) fn combine(mut self, other: &Self) -> Self {
        for (run, ranges) in &other.lumis {
            for range in ranges {
                self.lumis.insert_range(*run, *range);
            }
        }
        let from = match (self.source, other.source) {
            (EventCountSource::Expected, _) | (_, EventCountSource::Expected) => EventCountSource::Expected,
            (EventCountSource::File, EventCountSource::File) => EventCountSource::File,
            _ => EventCountSource::Report,
        };
        Self { events: self.events + other.events, source: from, lumis: self.lumis }
    }
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
