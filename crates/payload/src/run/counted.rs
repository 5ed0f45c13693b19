//! How many events a file has, and who says so.

use crate::codes;
use crate::events;
use crate::failure::Failure;
use crate::report::JobReport;
use std::path::Path;
use windlass_types::LumiMask;
use windlass_types::payload::EventsFrom;

#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) events: u64,
    pub(super) from: EventsFrom,
    pub(super) lumis: LumiMask,
}

impl Counted {
    /// The report says it, or the events of an event file are counted. Of any other file the number of events is not known:
    /// `expected` is then an estimate for the step that reads it, and must not be registered.
    pub(super) fn of(path: &Path, report: Option<&JobReport>, expected: u64) -> Result<Self, Failure> {
        let missing = |error: &std::io::Error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Failure::new(codes::NO_OUTPUT, format!("it ended well and left no output {}", name_of(path)))
            } else {
                Failure::io(codes::NO_OUTPUT, "read its output", path, error)
            }
        };
        let contents = events::contents_of(path).map_err(|error| missing(&error))?;
        let told = report.and_then(|report| report.output(path));
        if let (Some(events), Some(contents)) = (told.and_then(|told| told.events), &contents)
            && events != contents.events
        {
            let said =
                format!("{} has {} events, and the job report says {events}", name_of(path), contents.events);
            return Err(Failure::new(codes::NO_OUTPUT, said));
        }
        Ok(match (told.and_then(|told| Some((told.events?, told))), contents) {
            (Some((events, told)), contents) => Self {
                events,
                from: EventsFrom::Report,
                lumis: if told.lumis.is_empty() {
                    contents.unwrap_or_default().lumis
                } else {
                    told.lumis.clone()
                },
            },
            (None, Some(contents)) => {
                Self { events: contents.events, from: EventsFrom::File, lumis: contents.lumis }
            }
            (None, None) => Self { events: expected, from: EventsFrom::Expected, lumis: LumiMask::default() },
        })
    }

    /// Of two files that become one. It is known no better than the part of which less is known.
    #[must_use]
    pub(super) fn and(mut self, other: &Self) -> Self {
        for (run, ranges) in &other.lumis {
            for range in ranges {
                self.lumis.insert_range(*run, *range);
            }
        }
        let from = match (self.from, other.from) {
            (EventsFrom::Expected, _) | (_, EventsFrom::Expected) => EventsFrom::Expected,
            (EventsFrom::File, EventsFrom::File) => EventsFrom::File,
            _ => EventsFrom::Report,
        };
        Self { events: self.events + other.events, from, lumis: self.lumis }
    }
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
