//! Keeps samples as time series in a file, where the workflow asks for that ([`windlass_types::series`] has the format).
//!
//! Lives on the supervisor's thread, which takes all samples: no lock, and nothing of it in the way of a job.

use crate::options::{SeriesOptions, WorkerOptions};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use windlass_proc::machine::{self, MachineUse};
use windlass_types::series::{self, Block, Head, Point, Subject};
use windlass_types::work::AttemptKey;
use windlass_types::{Bytes, Clock};

/// A block so large is written before its time.
const LARGE: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Recorder {
    options: SeriesOptions,
    sample_interval: Duration,
    clock: Clock,
    file: File,
    /// Up to here the file is whole.
    length: u64,
    block: Block,
    flush_at: Instant,
    /// When to look at the machine.
    node_at: Option<Instant>,
    /// When that was last done, and what it had used by then.
    node: Option<(Instant, MachineUse)>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write time series to {path}: {source}", path = path.display())]
pub struct CannotRecord {
    path: PathBuf,
    source: io::Error,
}

impl Recorder {
    /// `None` if nothing is to be kept.
    pub(crate) fn open(options: &WorkerOptions, clock: Clock) -> Result<Option<Self>, CannotRecord> {
        let Some(wanted) = options.series.filter(|wanted| wanted.jobs || wanted.node) else {
            return Ok(None);
        };
        let directory = options.output_dir.join(series::FOLDER);
        let (host, pid) = (machine::hostname(), std::process::id());
        let path = directory.join(series::file_name(wanted.workflow, wanted.run, &host, pid));
        let head = Head {
            workflow_id: wanted.workflow,
            run_id: wanted.run,
            host,
            pid,
            started_at: clock.now(),
            cpus: options.capacity.cpus,
            memory: options.capacity.memory,
        };
        let create = || {
            fs::create_dir_all(&directory)?;
            let head = head.encode()?;
            let mut file = File::create(&path)?;
            file.write_all(&head)?;
            Ok((file, head.len() as u64))
        };
        let (file, length) = create().map_err(|source| CannotRecord { path: path.clone(), source })?;
        let now = Instant::now();
        Ok(Some(Self {
            options: wanted,
            sample_interval: options.sample_interval,
            clock,
            file,
            length,
            block: Block::default(),
            flush_at: now + wanted.flush_interval,
            node_at: wanted.node.then_some(now),
            node: None,
        }))
    }

    /// A sample of a job.
    pub(crate) fn job(&mut self, key: &AttemptKey, cpu_percent: f64, memory: Bytes) {
        if self.options.jobs {
            let point = Point { at: self.clock.now(), cpu_percent, memory };
            self.block.add(Subject::Job(key.job, key.attempt), &point);
        }
    }

    /// Looks at the machine and writes, if it is time; returns when to come again.
    pub(crate) fn attend(&mut self, now: Instant) -> Option<Instant> {
        if self.node_at.is_some_and(|at| at <= now) {
            self.look_at_node(now);
            self.node_at = Some(now + self.sample_interval);
        }
        if self.flush_at <= now || self.block.len() >= LARGE {
            self.flush();
            self.flush_at = now + self.options.flush_interval;
        }
        let flush = (!self.block.is_empty()).then_some(self.flush_at);
        [flush, self.node_at].into_iter().flatten().min()
    }

    /// The first look only says from where to count.
    fn look_at_node(&mut self, now: Instant) {
        let Some(used) = MachineUse::now() else { return };
        if let Some((before, earlier)) = self.node {
            let elapsed = now.saturating_duration_since(before).as_secs_f64();
            let cpu_percent =
                100.0 * used.busy.saturating_sub(earlier.busy).as_secs_f64() / elapsed.max(1e-3);
            self.block.add(Subject::Node, &Point { at: self.clock.now(), cpu_percent, memory: used.memory });
        }
        self.node = Some((now, used));
    }

    /// Appends what there is. What cannot be written (a full disk) is a gap in the series and harms no job; half a block
    /// is taken back, or what follows it could not be read.
    pub(crate) fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let bytes = self.block.take();
        match self.file.write_all(&bytes) {
            Ok(()) => self.length += bytes.len() as u64,
            Err(_) => self.take_back(),
        }
    }

    fn take_back(&mut self) {
        use std::io::Seek as _;
        // If this fails too, the checksum of the next block tells.
        self.file.set_len(self.length).ok();
        self.file.seek(io::SeekFrom::Start(self.length)).ok();
    }
}
