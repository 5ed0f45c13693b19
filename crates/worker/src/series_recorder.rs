//! Keeps samples as time series in a file, where the workflow requests it (format:
//! [`windlass_types::resource_series`]).
//!
//! Used only on the supervisor's thread, which takes all samples, so that jobs are not delayed.

use crate::options::{ResourceSeriesOptions, WorkerOptions};
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_process::machine::{self, MachineUsage};
use windlass_types::resource_series::{self, SampleBlock, SeriesHeader, SeriesSample, SeriesSubject};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{Bytes, SystemClock};

/// A block of this size is written before its time.
const FLUSH_SIZE: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct SeriesRecorder {
    options: ResourceSeriesOptions,
    sample_interval: Duration,
    clock: SystemClock,
    file: File,
    /// The length of the complete blocks in the file.
    whole_length: u64,
    block: SampleBlock,
    flush_at: Instant,
    /// When to sample the machine next.
    next_node_sample: Option<Instant>,
    /// The time and the machine's usage at the last sample.
    last_node_sample: Option<(Instant, MachineUsage)>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write time series in {}: {source}", directory.display())]
pub struct RecorderError {
    directory: PathBuf,
    source: io::Error,
}

impl SeriesRecorder {
    /// `None` if no series are kept.
    pub(crate) fn open(options: &WorkerOptions, clock: SystemClock) -> Result<Option<Self>, RecorderError> {
        let Some(wanted) = options.series.filter(|wanted| wanted.jobs || wanted.node) else {
            return Ok(None);
        };
        let head = SeriesHeader {
            workflow_id: wanted.workflow,
            run_id: wanted.run,
            host: machine::hostname(),
            pid: std::process::id(),
            started_at: clock.now(),
            cpus: options.capacity.cpus,
            memory: options.capacity.memory,
        };
        let directory = options.output_dir.join(resource_series::SERIES_DIR);
        let created = create_series_file(&directory, &head);
        let (file, length) = created.map_err(|source| RecorderError { directory, source })?;
        let now = Instant::now();
        Ok(Some(Self {
            options: wanted,
            sample_interval: options.sample_interval,
            clock,
            file,
            whole_length: length,
            block: SampleBlock::default(),
            flush_at: now + wanted.flush_interval,
            next_node_sample: wanted.node.then_some(now),
            last_node_sample: None,
        }))
    }

    /// Adds a sample of a job.
    pub(crate) fn record_job_sample(&mut self, key: &AttemptKey, cpu_percent: f64, memory: Bytes) {
        if self.options.jobs {
            let point = SeriesSample { at: self.clock.now(), cpu_percent, memory };
            self.block.add(SeriesSubject::Job(key.job, key.attempt), &point);
        }
    }

    /// Samples the machine and writes, if due; returns the time of the next call.
    pub(crate) fn flush_if_due(&mut self, now: Instant) -> Option<Instant> {
        if self.next_node_sample.is_some_and(|at| at <= now) {
            self.sample_node(now);
            self.next_node_sample = Some(now + self.sample_interval);
        }
        if self.flush_at <= now || self.block.len() >= FLUSH_SIZE {
            self.flush();
            self.flush_at = now + self.options.flush_interval;
        }
        let flush = (!self.block.is_empty()).then_some(self.flush_at);
        [flush, self.next_node_sample].into_iter().flatten().min()
    }

    /// The first sample is only the baseline.
    fn sample_node(&mut self, now: Instant) {
        let Some(used) = MachineUsage::measure() else { return };
        if let Some((before, earlier)) = self.last_node_sample {
            let elapsed = now.saturating_duration_since(before).as_secs_f64();
            let cpu_percent =
                100.0 * used.busy_time.saturating_sub(earlier.busy_time).as_secs_f64() / elapsed.max(1e-3);
            self.block.add(
                SeriesSubject::Node,
                &SeriesSample { at: self.clock.now(), cpu_percent, memory: used.memory },
            );
        }
        self.last_node_sample = Some((now, used));
    }

    /// Appends the current block. If that fails (a full disk), the series has a gap and jobs are unaffected; a
    /// partial block is truncated, or later blocks could not be read.
    pub(crate) fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let bytes = self.block.take_bytes();
        match self.file.write_all(&bytes) {
            Ok(()) => self.whole_length += bytes.len() as u64,
            Err(_) => self.truncate_partial_block(),
        }
    }

    fn truncate_partial_block(&mut self) {
        // If this fails too, the checksum of the next block shows it.
        self.file.set_len(self.whole_length).ok();
        self.file.seek(io::SeekFrom::Start(self.whole_length)).ok();
    }
}

/// Creates a file with its header; returns the header's length.
fn create_series_file(directory: &Path, head: &SeriesHeader) -> io::Result<(File, u64)> {
    fs::create_dir_all(directory)?;
    let name = |earlier| {
        resource_series::series_file_name(head.workflow_id, head.run_id, &head.host, head.pid, earlier)
    };
    let open = |earlier| File::create_new(directory.join(name(earlier)));
    let taken = |opened: &io::Result<File>| {
        opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    };
    let mut opened = (0..u32::MAX).map(open).skip_while(taken);
    let mut file = opened.next().unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
    let line = head.encode()?;
    file.write_all(&line)?;
    Ok((file, line.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::{RunId, Timestamp, WorkflowId};

    #[test]
    fn a_worker_with_a_reused_pid_does_not_overwrite_series() {
        let directory = tempfile::tempdir().unwrap();
        let head = |at| SeriesHeader {
            workflow_id: WorkflowId(1),
            run_id: RunId(1),
            host: "here".into(),
            pid: 7,
            started_at: Timestamp(at),
            cpus: 1,
            memory: Bytes(1),
        };
        for at in [1_000, 2_000, 3_000] {
            create_series_file(directory.path(), &head(at)).unwrap();
        }
        for (earlier, at) in [(0, 1_000), (1, 2_000), (2, 3_000)] {
            let name = resource_series::series_file_name(WorkflowId(1), RunId(1), "here", 7, earlier);
            let bytes = fs::read(directory.path().join(name)).unwrap();
            assert_eq!(resource_series::ResourceRecording::read(&bytes).unwrap().head, head(at));
        }
    }
}
