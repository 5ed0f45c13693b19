//! The samples that workers kept of a run, from all their files.

use crate::error::CliError;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use windlass_draw::usage::{Limits, Series};
use windlass_store::model::WorkflowRow;
use windlass_types::series::{self, Point, Recording, Subject};
use windlass_types::{Attempt, JobId, RunId, Timestamp};

#[derive(Default)]
pub(crate) struct Samples {
    /// Of the machine. Where several workers ran one after the other, one after the other.
    pub(crate) node: Vec<Point>,
    pub(crate) limits: Limits,
    pub(crate) jobs: BTreeMap<(JobId, Attempt), Vec<Point>>,
}

impl Samples {
    /// When the first was taken.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.jobs.values().chain([&self.node]).filter_map(|points| points.first()).map(|point| point.at).min()
    }

    fn add(&mut self, recording: Recording) {
        let head = &recording.head;
        self.limits = Limits { cpus: Some(head.cpus.into()), memory: Some(head.memory.0 as f64) };
        for (subject, points) in recording.series {
            match subject {
                Subject::Node => self.node.extend(points),
                Subject::Job(job, attempt) => self.jobs.entry((job, attempt)).or_default().extend(points),
            }
        }
    }
}

/// Nothing was kept unless somebody asked for it; then there is not even a folder.
pub(crate) fn read(row: &WorkflowRow, run: RunId) -> Result<Samples, CliError> {
    let folder = Path::new(&row.output_dir).join(series::FOLDER);
    let mut samples = Samples::default();
    let entries = match std::fs::read_dir(&folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(samples),
        entries => entries.map_err(|e| unreadable(&folder, &e))?,
    };
    for entry in entries {
        let path = entry.map_err(|e| unreadable(&folder, &e))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !series::is_file_of(row.id, name) {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|e| unreadable(&path, &e))?;
        // A file that a worker has only just begun says nothing yet.
        if let Ok(recording) = Recording::read(&bytes)
            && recording.head.run_id == run
        {
            samples.add(recording);
        }
    }
    samples.node.sort_by_key(|point| point.at);
    Ok(samples)
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::io(format!("cannot read {}: {error}", path.display()))
}

/// As lines over the seconds since `origin`.
pub(crate) fn series(points: &[Point], origin: Timestamp) -> Series {
    let at = |point: &Point| point.at.since(origin).as_secs_f64();
    Series {
        cpu_percent: points.iter().map(|point| (at(point), point.cpu_percent)).collect(),
        memory: points.iter().map(|point| (at(point), point.memory.0 as f64)).collect(),
    }
}
