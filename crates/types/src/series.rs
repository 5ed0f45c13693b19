//! Time series of what jobs and their machine use, in one compact file per worker: written by the worker, read by
//! whoever draws them.
//!
//! A file is one line of JSON ([`Head`]) and then blocks, appended one at a time. A block stands for itself, so one that
//! was torn by a crash, or never written, costs its own samples and no others.
//!
//! ```text
//! block    length of the payload (u32 LE), checksum of the payload (u32 LE), payload
//! payload  time of the block in ms since 1970, then entries; all numbers are varints (LEB128)
//! entry    who, ms since the entry before (zigzag), [job id, attempt], tenths of a percent of a CPU, KiB
//!            who = 0      the machine
//!            who = 1      a job that is new in this block: its id and attempt follow
//!            who = 2 + n  the n-th job of this block
//!          the last two as zigzag difference to the same one's entry before in this block, at first to 0
//! ```

use crate::digest::checksum;
use crate::{Attempt, Bytes, JobId, RunId, Timestamp, WorkflowId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The directory in the output directory that series are in.
pub const FOLDER: &str = "resource_utilization";

const EXTENSION: &str = ".wlm";

/// The name of the file of one worker. In a container every worker may have the same pid: `earlier` says how many had it.
pub fn file_name(workflow: WorkflowId, run: RunId, host: &str, pid: u32, earlier: u32) -> String {
    let again = if earlier == 0 { String::new() } else { format!("_{}", earlier + 1) };
    format!("{}{host}_r{run}_p{pid}{again}{EXTENSION}", beginning(workflow))
}

/// Whether a file of this name holds series of the workflow, of whichever worker.
pub fn is_file_of(workflow: WorkflowId, name: &str) -> bool {
    name.starts_with(&beginning(workflow)) && name.ends_with(EXTENSION)
}

fn beginning(workflow: WorkflowId) -> String {
    format!("resource_metrics_wf{workflow}_h")
}

/// Whose series these are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub host: String,
    pub pid: u32,
    pub started_at: Timestamp,
    /// What the machine has.
    pub cpus: u32,
    pub memory: Bytes,
}

impl Head {
    /// The beginning of a file.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// What was in use at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the millisecond.
    pub at: Timestamp,
    /// 100 is one core busy. To the tenth.
    pub cpu_percent: f64,
    /// To the KiB.
    pub memory: Bytes,
}

/// Whose use it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Node,
    Job(JobId, Attempt),
}

/// Collects points until they are written as one block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    payload: Vec<u8>,
    last_ms: i64,
    /// By subject: its number, and its last (tenths of a percent, KiB).
    known: BTreeMap<Subject, (u64, Level)>,
    jobs: u64,
}

/// CPU in tenths of a percent, memory in KiB.
type Level = (i64, i64);

const NODE: u64 = 0;
const NEW_JOB: u64 = 1;
const FIRST_JOB: u64 = 2;

impl Block {
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Bytes until now, without those around them.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    pub fn add(&mut self, subject: Subject, point: &Point) {
        let ms = point.at.0.div_euclid(1000);
        if self.payload.is_empty() {
            put(&mut self.payload, zigzag(ms));
            self.last_ms = ms;
        }
        let (number, before) = match (self.known.get(&subject), subject) {
            (Some(&(number, before)), _) => (number, before),
            (None, Subject::Node) => (NODE, Level::default()),
            (None, Subject::Job(..)) => (NEW_JOB, Level::default()),
        };
        put(&mut self.payload, number);
        put(&mut self.payload, zigzag(ms - self.last_ms));
        self.last_ms = ms;
        let number = match (number, subject) {
            (NEW_JOB, Subject::Job(job, attempt)) => {
                put(&mut self.payload, zigzag(job.0));
                put(&mut self.payload, attempt.0.into());
                self.jobs += 1;
                FIRST_JOB + self.jobs - 1
            }
            _ => number,
        };
        let level = ((point.cpu_percent * 10.0).round() as i64, (point.memory.0 / 1024) as i64);
        put(&mut self.payload, zigzag(level.0.wrapping_sub(before.0)));
        put(&mut self.payload, zigzag(level.1.wrapping_sub(before.1)));
        self.known.insert(subject, (number, level));
    }

    /// The bytes to append to the file; the block is empty afterwards.
    pub fn take(&mut self) -> Vec<u8> {
        let payload = std::mem::take(self).payload;
        let mut bytes = Vec::with_capacity(payload.len() + FRAME);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(&payload).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }
}

/// Length and checksum.
const FRAME: usize = 8;

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub head: Head,
    /// Points in the order in which they were noted.
    pub series: BTreeMap<Subject, Vec<Point>>,
    /// Something at the end, or in between, could not be read and was left out.
    pub is_damaged: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("this is no file of time series: {0}")]
pub struct NoSeries(String);

impl Recording {
    /// Reads a file, which somebody may still be writing to.
    pub fn read(bytes: &[u8]) -> Result<Self, NoSeries> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| NoSeries("its first line has no end".to_owned()))?;
        let head = serde_json::from_slice(&bytes[..end]).map_err(|e| NoSeries(e.to_string()))?;
        let mut recording = Self { head, series: BTreeMap::new(), is_damaged: false };
        let mut rest = &bytes[end + 1..];
        while !rest.is_empty() {
            let Some((payload, sum, after)) = split_block(rest) else {
                recording.is_damaged = true;
                break;
            };
            rest = after;
            let whole = checksum(payload) == sum;
            if !whole || recording.take_in(payload).is_none() {
                recording.is_damaged = true;
            }
        }
        Ok(recording)
    }

    /// `None` if it ends in the middle of an entry; what came before is kept.
    fn take_in(&mut self, payload: &[u8]) -> Option<()> {
        let mut reader = Reader(payload);
        let mut ms = unzigzag(reader.number()?);
        let mut jobs: Vec<Subject> = Vec::new();
        let mut levels: BTreeMap<Subject, Level> = BTreeMap::new();
        while !reader.0.is_empty() {
            let number = reader.number()?;
            ms = ms.checked_add(unzigzag(reader.number()?))?;
            let subject = match number {
                NODE => Subject::Node,
                NEW_JOB => {
                    let job = JobId(unzigzag(reader.number()?));
                    let subject = Subject::Job(job, Attempt(u32::try_from(reader.number()?).ok()?));
                    jobs.push(subject);
                    subject
                }
                known => *jobs.get((known - FIRST_JOB) as usize)?,
            };
            let level = levels.entry(subject).or_default();
            level.0 = level.0.wrapping_add(unzigzag(reader.number()?));
            level.1 = level.1.wrapping_add(unzigzag(reader.number()?));
            let point = Point {
                at: Timestamp(ms.checked_mul(1000)?),
                cpu_percent: level.0 as f64 / 10.0,
                memory: Bytes(u64::try_from(level.1).ok()?.checked_mul(1024)?),
            };
            self.series.entry(subject).or_default().push(point);
        }
        Some(())
    }
}

/// `(payload, its checksum, what follows)`, if the block is all there.
fn split_block(bytes: &[u8]) -> Option<(&[u8], u32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (payload, after) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((payload, u32::from_le_bytes(*sum), after))
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
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

fn put(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Small numbers of either sign become small numbers.
const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            workflow_id: WorkflowId(7),
            run_id: RunId(2),
            host: "node1".into(),
            pid: 99,
            started_at: Timestamp(1_700_000_000_000_000),
            cpus: 4,
            memory: Bytes(1 << 34),
        }
    }

    fn point(ms: i64, cpu_percent: f64, kib: u64) -> Point {
        Point { at: Timestamp(ms * 1000), cpu_percent, memory: Bytes(kib * 1024) }
    }

    const A: Subject = Subject::Job(JobId(41), Attempt(1));
    const B: Subject = Subject::Job(JobId(i64::MAX), Attempt(u32::MAX));

    /// Two blocks, with what they hold.
    fn sample() -> ([Vec<(Subject, Point)>; 2], Vec<u8>) {
        let blocks = [
            vec![
                (A, point(5000, 99.9, 1000)),
                (Subject::Node, point(5000, 180.0, 8_000_000)),
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
            let mut block = Block::default();
            for (subject, point) in entries {
                block.add(*subject, point);
            }
            assert!(!block.is_empty() && block.len() < 12 * entries.len() + 24, "{} bytes", block.len());
            file.extend(block.take());
            assert!(block.is_empty());
        }
        (blocks, file)
    }

    fn by_subject(entries: &[(Subject, Point)]) -> BTreeMap<Subject, Vec<Point>> {
        let mut series: BTreeMap<Subject, Vec<Point>> = BTreeMap::new();
        for (subject, point) in entries {
            series.entry(*subject).or_default().push(*point);
        }
        series
    }

    #[test]
    fn what_was_written_is_read() {
        let (blocks, file) = sample();
        let recording = Recording::read(&file).unwrap();
        assert_eq!(recording.head, head());
        assert_eq!(recording.series, by_subject(&blocks.concat()));
        assert!(!recording.is_damaged);
    }

    #[test]
    fn a_torn_end_costs_its_own_block_and_no_other() {
        let (blocks, file) = sample();
        let head_end = head().encode().unwrap().len();
        for cut in head_end..file.len() {
            let recording = Recording::read(&file[..cut]).unwrap();
            let first = recording.series == by_subject(&blocks[0]);
            assert!(first || recording.series.is_empty(), "cut at {cut}");
        }
        for cut in 0..head_end {
            assert!(Recording::read(&file[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_block_that_was_changed_is_left_out_and_the_next_one_read() {
        let (blocks, mut file) = sample();
        let at = head().encode().unwrap().len() + FRAME + 3;
        file[at] ^= 0x10;
        let recording = Recording::read(&file).unwrap();
        assert!(recording.is_damaged);
        assert_eq!(recording.series, by_subject(&blocks[1]));
    }

    #[test]
    fn nonsense_that_has_the_right_checksum_ends_and_does_not_panic() {
        let mut dice = 1u64;
        for length in 0..400usize {
            let payload: Vec<u8> = std::iter::repeat_with(|| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (dice >> 56) as u8
            })
            .take(length)
            .collect();
            let mut file = head().encode().unwrap();
            file.extend((payload.len() as u32).to_le_bytes());
            file.extend(checksum(&payload).to_le_bytes());
            file.extend(&payload);
            let read = Recording::read(&file).unwrap();
            assert!(read.series.values().map(Vec::len).sum::<usize>() <= length);
        }
    }

    #[test]
    fn names_say_whose_they_are() {
        let name = |earlier| file_name(WorkflowId(7), RunId(2), "node1", 99, earlier);
        assert_eq!(name(0), "resource_metrics_wf7_hnode1_r2_p99.wlm");
        assert_eq!(name(1), "resource_metrics_wf7_hnode1_r2_p99_2.wlm");
        for name in [name(0), name(1)] {
            assert!(is_file_of(WorkflowId(7), &name) && !is_file_of(WorkflowId(71), &name));
        }
    }
}
