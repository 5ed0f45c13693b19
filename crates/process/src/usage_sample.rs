//! The usage of a tree of processes, sampled from outside.

use crate::procfs;
use rustix::process::Pid;
use std::time::{Duration, Instant};
use windlass_types::Bytes;
use windlass_types::worker_messages::AttemptUsage;

/// One sample of a process tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSample {
    /// CPU time of all running processes, and of all children that they waited for.
    pub cpu: Duration,
    /// Sum over the processes; pages they share count several times.
    pub rss: Bytes,
}

impl UsageSample {
    pub fn measure(members: &[Pid]) -> Self {
        let stats = members.iter().filter_map(|pid| procfs::read_stat(*pid));
        stats.fold(Self::default(), |sum, stat| Self {
            cpu: sum.cpu + stat.cpu,
            rss: Bytes(sum.rss.0 + stat.rss.0),
        })
    }
}

/// The memory of a tree with shared pages divided among their users: ten times the cost of
/// [`UsageSample::measure`], so only for decisions. `None` if the system does not report it for one of them
/// that still runs.
pub fn measure_proportional_memory(members: &[Pid]) -> Option<Bytes> {
    let mut sum = 0;
    for pid in members {
        match procfs::read_file(&format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())) {
            Some(text) => sum += parse_kib_field(&text, "Pss:")?.0,
            None if procfs::is_running(*pid) => return None,
            None => {}
        }
    }
    Some(Bytes(sum))
}

/// The peak memory of this process.
pub fn own_peak_rss() -> Option<Bytes> {
    parse_kib_field(&procfs::read_file("/proc/self/status")?, "VmHWM:")
}

/// The peak memory of a running process since it executed its program.
pub fn peak_rss(pid: Pid) -> Option<Bytes> {
    parse_kib_field(&procfs::read_file(&format!("/proc/{}/status", pid.as_raw_nonzero()))?, "VmHWM:")
}

/// Returns the peak of a child, if it is above that of the process that started it: `exec` folds the latter
/// into the former, so a lower value says nothing about the child.
pub fn peak_if_trusted(max_rss: Bytes, spawner_peak: Bytes) -> Option<Bytes> {
    (max_rss > spawner_peak).then_some(max_rss)
}

fn parse_kib_field(text: &[u8], name: &str) -> Option<Bytes> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}

/// The summary of the samples of one job.
#[derive(Clone, Debug)]
pub struct UsageSummary {
    last_sample: (Instant, Duration),
    started: Instant,
    count: u64,
    /// Bytes times microseconds.
    memory_sum: u128,
    memory_peak: Bytes,
    cpu_peak: Option<f64>,
}

impl UsageSummary {
    /// A job that starts now.
    pub const fn new(started: Instant) -> Self {
        Self {
            last_sample: (started, Duration::ZERO),
            started,
            count: 0,
            memory_sum: 0,
            memory_peak: Bytes(0),
            cpu_peak: None,
        }
    }

    /// Adds a sample. Returns the CPU usage since the last one, if time has passed: 100 is one busy core.
    pub fn add_sample(&mut self, at: Instant, cpu: Duration, memory: Bytes) -> Option<f64> {
        let (last_at, last_cpu) = self.last_sample;
        let elapsed = at.saturating_duration_since(last_at);
        // A process that ended without being waited for takes its CPU time with it, so the sum can decrease.
        let used = cpu.saturating_sub(last_cpu);
        let percent = (!elapsed.is_zero()).then(|| 100.0 * used.as_secs_f64() / elapsed.as_secs_f64());
        if let Some(percent) = percent {
            self.cpu_peak = Some(self.cpu_peak.map_or(percent, |peak| peak.max(percent)));
            self.last_sample = (at, cpu);
        }
        self.count += 1;
        self.memory_sum += u128::from(memory.0) * elapsed.as_micros();
        self.memory_peak = self.memory_peak.max(memory);
        percent
    }

    /// The summary, with the final values from the system: a peak, if one can be trusted, and the CPU time.
    pub fn summarize_usage(&self, end: &FinalUsage) -> AttemptUsage {
        let sampled_time = (self.last_sample.0 - self.started).as_micros();
        // A single sample early in a job is no peak; it counts only in addition to the value of the system.
        let enough = if end.peak_rss.is_some() { 1 } else { MIN_PEAK_SAMPLES };
        let sampled = (self.count >= enough).then_some(self.memory_peak);
        let measurable = end.wall >= MIN_CPU_INTERVAL;
        let average = 100.0 * end.cpu_time.as_secs_f64() / end.wall.as_secs_f64();
        AttemptUsage {
            peak_memory: sampled.max(end.peak_rss),
            avg_memory: (sampled_time > 0).then(|| Bytes((self.memory_sum / sampled_time) as u64)),
            cpu_time: end.cpu_time,
            peak_cpu_percent: self.cpu_peak.map(|peak| if measurable { peak.max(average) } else { peak }),
            avg_cpu_percent: measurable.then_some(average),
        }
    }
}

/// Without a value of the system, a peak requires at least this number of samples.
const MIN_PEAK_SAMPLES: u64 = 2;
/// A shorter interval gives only noise of the clock tick.
const MIN_CPU_INTERVAL: Duration = Duration::from_millis(100);

/// The values known when a job has ended.
#[derive(Clone, Copy, Debug)]
pub struct FinalUsage {
    pub wall: Duration,
    pub cpu_time: Duration,
    pub peak_rss: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn samples_give_peaks_and_averages() {
        let start = Instant::now();
        let mut series = UsageSummary::new(start);
        assert_eq!(series.add_sample(start + SECOND, SECOND / 2, Bytes(100)), Some(50.0));
        assert_eq!(series.add_sample(start + 2 * SECOND, 2 * SECOND, Bytes(300)), Some(150.0));
        assert_eq!(series.add_sample(start + 3 * SECOND, SECOND, Bytes(200)), Some(0.0));
        let end = FinalUsage { wall: 4 * SECOND, cpu_time: 2 * SECOND, peak_rss: Some(Bytes(250)) };
        let usage = series.summarize_usage(&end);
        assert_eq!((usage.peak_memory, usage.avg_memory), (Some(Bytes(300)), Some(Bytes(200))));
        assert_eq!((usage.peak_cpu_percent, usage.avg_cpu_percent), (Some(150.0), Some(50.0)));
    }

    #[test]
    fn without_samples_only_certain_values_are_reported() {
        let end = FinalUsage { wall: SECOND / 1000, cpu_time: SECOND / 2000, peak_rss: None };
        let usage = UsageSummary::new(Instant::now()).summarize_usage(&end);
        assert_eq!(usage, AttemptUsage { cpu_time: SECOND / 2000, ..AttemptUsage::default() });
    }

    #[test]
    fn peak_not_above_the_spawner_is_unknown() {
        assert_eq!(peak_if_trusted(Bytes(10), Bytes(10)), None);
        assert_eq!(peak_if_trusted(Bytes(11), Bytes(10)), Some(Bytes(11)));
    }

    #[test]
    fn memory_of_this_process_is_measured() {
        let own = [rustix::process::getpid()];
        let sample = UsageSample::measure(&own);
        assert!(sample.rss > Bytes(0));
        assert!(measure_proportional_memory(&own).unwrap() <= own_peak_rss().unwrap());
        assert!(own_peak_rss().unwrap() >= Bytes(4096));
    }
}
