//! Resource samples of a run, read from the files of all workers.

use crate::error::CliError;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use windlass_render::usage_plot::{PlotLimits, PlotSeries};
use windlass_store::model::WorkflowRow;
use windlass_types::resource_series::{self, ResourceRecording, SeriesSample, SeriesSubject};
use windlass_types::{Attempt, JobId, RunId, Timestamp};

#[derive(Default)]
pub(crate) struct RunSamples {
    /// The host's samples. Those of consecutive workers are concatenated.
    pub(crate) node: Vec<SeriesSample>,
    pub(crate) limits: PlotLimits,
    pub(crate) jobs: BTreeMap<(JobId, Attempt), Vec<SeriesSample>>,
}

impl RunSamples {
    /// Time of the first sample.
    pub(crate) fn first_sample_time(&self) -> Option<Timestamp> {
        self.jobs.values().chain([&self.node]).filter_map(|points| points.first()).map(|point| point.at).min()
    }

    fn add(&mut self, recording: ResourceRecording) {
        let head = &recording.head;
        self.limits = PlotLimits { cpus: Some(head.cpus.into()), memory: Some(head.memory.0 as f64) };
        for (subject, points) in recording.series {
            match subject {
                SeriesSubject::Node => self.node.extend(points),
                SeriesSubject::Job(job, attempt) => {
                    self.jobs.entry((job, attempt)).or_default().extend(points);
                }
            }
        }
    }
}

/// Samples are kept only on request; otherwise the folder does not exist.
pub(crate) fn load_samples(row: &WorkflowRow, run: RunId) -> Result<RunSamples, CliError> {
    let folder = Path::new(&row.output_dir).join(resource_series::SERIES_DIR);
    let mut samples = RunSamples::default();
    let entries = match std::fs::read_dir(&folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(samples),
        entries => entries.map_err(|e| read_error(&folder, &e))?,
    };
    for entry in entries {
        let path = entry.map_err(|e| read_error(&folder, &e))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !resource_series::is_series_file_of(row.id, name) {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|e| read_error(&path, &e))?;
        // A file that a worker has just created is still empty.
        if let Ok(recording) = ResourceRecording::read(&bytes)
            && recording.head.run_id == run
        {
            samples.add(recording);
        }
    }
    samples.node.sort_by_key(|point| point.at);
    Ok(samples)
}

fn read_error(path: &Path, error: &io::Error) -> CliError {
    CliError::io(format!("cannot read {}: {error}", path.display()))
}

/// As lines over seconds since `origin`.
pub(crate) fn to_series(points: &[SeriesSample], origin: Timestamp) -> PlotSeries {
    let at = |point: &SeriesSample| point.at.since(origin).as_secs_f64();
    PlotSeries {
        cpu_percent: points.iter().map(|point| (at(point), point.cpu_percent)).collect(),
        memory: points.iter().map(|point| (at(point), point.memory.0 as f64)).collect(),
    }
}
