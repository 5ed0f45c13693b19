//! Time series of the resource usage of jobs and their machine, in one compact file per worker, written by the
//! worker.
//!
//! A file is one line of JSON ([`SeriesHeader`]) followed by blocks, appended one at a time. Blocks are
//! independent: a block that is truncated by a crash, or was never written, loses its own samples only.
//!
//! ```text
//! block    length of the payload (u32 LE), checksum of the payload (u32 LE), payload
//! payload  time of the block in ms since 1970, then entries; all numbers are varints (LEB128)
//! entry    subject, ms since the previous entry (zigzag), [job id, attempt], tenths of a percent of a CPU, KiB
//!            subject = 0      the machine
//!            subject = 1      a job that is new in this block: its id and attempt follow
//!            subject = 2 + n  the n-th job of this block
//!          the last two as zigzag difference to the previous entry of the subject in this block, initially to 0
//! ```

use crate::digest::checksum_bytes;
use crate::{Attempt, Bytes, JobId, RunId, Timestamp, WorkflowId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The directory of the series within the output directory.
pub const SERIES_DIR: &str = "resource_utilization";

const SERIES_EXTENSION: &str = ".wlm";

/// Returns the file name for one worker. In containers several workers may have the same pid: `earlier` counts
/// the previous ones.
pub fn series_file_name(workflow: WorkflowId, run: RunId, host: &str, pid: u32, earlier: u32) -> String {
    let again = if earlier == 0 { String::new() } else { format!("_{}", earlier + 1) };
    format!("{}{host}_r{run}_p{pid}{again}{SERIES_EXTENSION}", file_name_prefix(workflow))
}

/// Whether a file of this name holds series of the workflow, from any worker.
pub fn is_series_file_of(workflow: WorkflowId, name: &str) -> bool {
    name.starts_with(&file_name_prefix(workflow)) && name.ends_with(SERIES_EXTENSION)
}

fn file_name_prefix(workflow: WorkflowId) -> String {
    format!("resource_metrics_wf{workflow}_h")
}

/// Describes the worker and machine of a file of series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesHeader {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub host: String,
    pub pid: u32,
    pub started_at: Timestamp,
    /// CPUs of the machine; `memory` below is its memory.
    pub cpus: u32,
    pub memory: Bytes,
}

impl SeriesHeader {
    /// Encodes the header as the first line of a file.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// A sample of CPU and memory usage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesSample {
    /// Stored with a precision of 1 ms.
    pub at: Timestamp,
    /// 100 is one busy core. Stored with a precision of 0.1.
    pub cpu_percent: f64,
    /// Stored in KiB.
    pub memory: Bytes,
}

/// The subject of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesSubject {
    Node,
    Job(JobId, Attempt),
}

/// Samples that are collected to be written as one block.
#[derive(Clone, Debug, Default)]
pub struct SampleBlock {
    payload: Vec<u8>,
    last_ms: i64,
    /// By subject: its number and its last values (tenths of a percent, KiB).
    known_subjects: BTreeMap<SeriesSubject, (u64, UsageLevel)>,
    jobs: u64,
}

/// CPU in tenths of a percent, memory in KiB.
type UsageLevel = (i64, i64);

const NODE_CODE: u64 = 0;
const NEW_JOB_CODE: u64 = 1;
const FIRST_JOB_CODE: u64 = 2;

impl SampleBlock {
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Payload size so far, without length and checksum.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    pub fn add(&mut self, subject: SeriesSubject, point: &SeriesSample) {
        let ms = point.at.0.div_euclid(1000);
        if self.payload.is_empty() {
            write_varint(&mut self.payload, zigzag(ms));
            self.last_ms = ms;
        }
        let (number, before) = match (self.known_subjects.get(&subject), subject) {
            (Some(&(number, before)), _) => (number, before),
            (None, SeriesSubject::Node) => (NODE_CODE, UsageLevel::default()),
            (None, SeriesSubject::Job(..)) => (NEW_JOB_CODE, UsageLevel::default()),
        };
        write_varint(&mut self.payload, number);
        write_varint(&mut self.payload, zigzag(ms - self.last_ms));
        self.last_ms = ms;
        let number = match (number, subject) {
            (NEW_JOB_CODE, SeriesSubject::Job(job, attempt)) => {
                write_varint(&mut self.payload, zigzag(job.0));
                write_varint(&mut self.payload, attempt.0.into());
                self.jobs += 1;
                FIRST_JOB_CODE + self.jobs - 1
            }
            _ => number,
        };
        let level = ((point.cpu_percent * 10.0).round() as i64, (point.memory.0 / 1024) as i64);
        write_varint(&mut self.payload, zigzag(level.0.wrapping_sub(before.0)));
        write_varint(&mut self.payload, zigzag(level.1.wrapping_sub(before.1)));
        self.known_subjects.insert(subject, (number, level));
    }

    /// Returns the bytes to append to the file and empties the block.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        let payload = std::mem::take(self).payload;
        let mut bytes = Vec::with_capacity(payload.len() + FRAME_BYTES);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum_bytes(&payload).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }
}

/// Length and checksum.
const FRAME_BYTES: usize = 8;

/// The contents of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceRecording {
    pub head: SeriesHeader,
    /// Samples in the order in which they were recorded.
    pub series: BTreeMap<SeriesSubject, Vec<SeriesSample>>,
    /// Whether unreadable data at the end or in between was skipped.
    pub is_damaged: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("not a time series file: {0}")]
pub struct NotASeriesFile(String);

impl ResourceRecording {
    /// Decodes a file, which may still be being written.
    pub fn read(bytes: &[u8]) -> Result<Self, NotASeriesFile> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| NotASeriesFile("the first line is incomplete".to_owned()))?;
        let head = serde_json::from_slice(&bytes[..end]).map_err(|e| NotASeriesFile(e.to_string()))?;
        let mut recording = Self { head, series: BTreeMap::new(), is_damaged: false };
        let mut rest = &bytes[end + 1..];
        while !rest.is_empty() {
            let Some((payload, sum, after)) = split_block(rest) else {
                recording.is_damaged = true;
                break;
            };
            rest = after;
            let whole = checksum_bytes(payload) == sum;
            if !whole || recording.decode_block(payload).is_none() {
                recording.is_damaged = true;
            }
        }
        Ok(recording)
    }

    /// Returns `None` if the payload ends in the middle of an entry; earlier entries are kept.
    fn decode_block(&mut self, payload: &[u8]) -> Option<()> {
        let mut reader = VarintReader(payload);
        let mut ms = unzigzag(reader.read_varint()?);
        let mut jobs: Vec<SeriesSubject> = Vec::new();
        let mut levels: BTreeMap<SeriesSubject, UsageLevel> = BTreeMap::new();
        while !reader.0.is_empty() {
            let number = reader.read_varint()?;
            ms = ms.checked_add(unzigzag(reader.read_varint()?))?;
            let subject = match number {
                NODE_CODE => SeriesSubject::Node,
                NEW_JOB_CODE => {
                    let job = JobId(unzigzag(reader.read_varint()?));
                    let subject =
                        SeriesSubject::Job(job, Attempt(u32::try_from(reader.read_varint()?).ok()?));
                    jobs.push(subject);
                    subject
                }
                known => *jobs.get((known - FIRST_JOB_CODE) as usize)?,
            };
            let level = levels.entry(subject).or_default();
            level.0 = level.0.wrapping_add(unzigzag(reader.read_varint()?));
            level.1 = level.1.wrapping_add(unzigzag(reader.read_varint()?));
            let point = SeriesSample {
                at: Timestamp(ms.checked_mul(1000)?),
                cpu_percent: level.0 as f64 / 10.0,
                memory: Bytes(u64::try_from(level.1).ok()?.checked_mul(1024)?),
            };
            self.series.entry(subject).or_default().push(point);
        }
        Some(())
    }
}

/// Returns `(payload, its checksum, the remaining bytes)` if the block is complete.
fn split_block(bytes: &[u8]) -> Option<(&[u8], u32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (payload, after) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((payload, u32::from_le_bytes(*sum), after))
}

struct VarintReader<'a>(&'a [u8]);

impl VarintReader<'_> {
    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

fn write_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Zigzag encoding: small numbers of either sign become small unsigned numbers.
const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> SeriesHeader {
        SeriesHeader {
            workflow_id: WorkflowId(7),
            run_id: RunId(2),
            host: "node1".into(),
            pid: 99,
            started_at: Timestamp(1_700_000_000_000_000),
            cpus: 4,
            memory: Bytes(1 << 34),
        }
    }

    fn point(ms: i64, cpu_percent: f64, kib: u64) -> SeriesSample {
        SeriesSample { at: Timestamp(ms * 1000), cpu_percent, memory: Bytes(kib * 1024) }
    }

    const A: SeriesSubject = SeriesSubject::Job(JobId(41), Attempt(1));
    const B: SeriesSubject = SeriesSubject::Job(JobId(i64::MAX), Attempt(u32::MAX));

    /// Returns two encoded blocks and their samples.
    fn sample() -> ([Vec<(SeriesSubject, SeriesSample)>; 2], Vec<u8>) {
        let blocks = [
            vec![
                (A, point(5000, 99.9, 1000)),
                (SeriesSubject::Node, point(5000, 180.0, 8_000_000)),
                (A, point(15_000, 0.0, 500)),
                (B, point(14_000, 3200.1, u64::from(u32::MAX))),
            ],
            vec![
                (B, point(-25_000, 1.5, 0)),
                (A, point(26_000, 50.0, 1)),
                (B, point(i64::MAX >> 12, 0.0, 9)),
            ],
        ];
        let mut file = head().encode().unwrap();
        for entries in &blocks {
            let mut block = SampleBlock::default();
            for (subject, point) in entries {
                block.add(*subject, point);
            }
            assert!(!block.is_empty() && block.len() < 12 * entries.len() + 24, "{} bytes", block.len());
            file.extend(block.take_bytes());
            assert!(block.is_empty());
        }
        (blocks, file)
    }

    fn by_subject(entries: &[(SeriesSubject, SeriesSample)]) -> BTreeMap<SeriesSubject, Vec<SeriesSample>> {
        let mut series: BTreeMap<SeriesSubject, Vec<SeriesSample>> = BTreeMap::new();
        for (subject, point) in entries {
            series.entry(*subject).or_default().push(*point);
        }
        series
    }

    #[test]
    fn recording_round_trips() {
        let (blocks, file) = sample();
        let recording = ResourceRecording::read(&file).unwrap();
        assert_eq!(recording.head, head());
        assert_eq!(recording.series, by_subject(&blocks.concat()));
        assert!(!recording.is_damaged);
    }

    #[test]
    fn truncated_end_loses_only_its_block() {
        let (blocks, file) = sample();
        let head_end = head().encode().unwrap().len();
        for cut in head_end..file.len() {
            let recording = ResourceRecording::read(&file[..cut]).unwrap();
            let first = recording.series == by_subject(&blocks[0]);
            assert!(first || recording.series.is_empty(), "cut at {cut}");
        }
        for cut in 0..head_end {
            assert!(ResourceRecording::read(&file[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn damaged_block_is_skipped() {
        let (blocks, mut file) = sample();
        let at = head().encode().unwrap().len() + FRAME_BYTES + 3;
        file[at] ^= 0x10;
        let recording = ResourceRecording::read(&file).unwrap();
        assert!(recording.is_damaged);
        assert_eq!(recording.series, by_subject(&blocks[1]));
    }

    #[test]
    fn garbage_with_valid_checksum_does_not_panic() {
        let mut random = 1u64;
        for length in 0..400usize {
            let payload: Vec<u8> = std::iter::repeat_with(|| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 56) as u8
            })
            .take(length)
            .collect();
            let mut file = head().encode().unwrap();
            file.extend((payload.len() as u32).to_le_bytes());
            file.extend(checksum_bytes(&payload).to_le_bytes());
            file.extend(&payload);
            let read = ResourceRecording::read(&file).unwrap();
            assert!(read.series.values().map(Vec::len).sum::<usize>() <= length);
        }
    }

    #[test]
    fn series_file_names_identify_their_workflow() {
        let name = |earlier| series_file_name(WorkflowId(7), RunId(2), "node1", 99, earlier);
        assert_eq!(name(0), "resource_metrics_wf7_hnode1_r2_p99.wlm");
        assert_eq!(name(1), "resource_metrics_wf7_hnode1_r2_p99_2.wlm");
        for name in [name(0), name(1)] {
            assert!(is_series_file_of(WorkflowId(7), &name) && !is_series_file_of(WorkflowId(71), &name));
        }
    }
}
