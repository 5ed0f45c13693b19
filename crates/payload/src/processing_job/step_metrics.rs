//! The usage of a step, all instances together.

use super::step_instances::StepInstance;
use crate::report::JobReport;
use crate::step_process::EndedProcess;
use std::collections::BTreeSet;
use std::path::PathBuf;
use windlass_types::Bytes;
use windlass_types::payload::StepMetrics;
use windlass_types::worker_messages::ProcessExit;

/// What the metrics of a step are computed from, besides its samples.
pub(super) struct StepUsageInput<'a> {
    /// In the order of the instances.
    pub(super) ended: &'a [EndedProcess],
    /// The process whose end is that of the step.
    pub(super) deciding_instance: usize,
    /// Events of the first output.
    pub(super) events_written: Option<u64>,
    /// The highest memory usage seen in the cgroup of the job.
    pub(super) cgroup_peak: Option<Bytes>,
}

const MB: f64 = 1024.0 * 1024.0;

/// CPU time is the sum, wall time that of the slowest, memory that of the largest.
pub(super) fn fill_metrics(metrics: &mut StepMetrics, instances: &[StepInstance], used: &StepUsageInput<'_>) {
    let ended = used.ended;
    metrics.wall_sec = ended.iter().map(|one| one.wall.as_secs_f64()).fold(0.0, f64::max);
    metrics.cpu_sec = ended.iter().map(|one| one.cpu.as_secs_f64()).sum();
    let budget = metrics.wall_sec * f64::from(metrics.threads) * f64::from(metrics.instances.max(1));
    metrics.cpu_efficiency = if budget > 0.0 { metrics.cpu_sec / budget } else { 0.0 };
    fill_memory(metrics, instances, used);
    let read = |instance: &StepInstance| {
        let report = instance.report.as_ref().filter(|report| !report.inputs.is_empty());
        report.map_or(instance.share.expected, JobReport::events_read)
    };
    metrics.events_read = instances.iter().map(read).sum();
    metrics.events_written = used.events_written.unwrap_or(0);
    metrics.time_per_event_sec =
        if metrics.events_read > 0 { metrics.wall_sec / metrics.events_read as f64 } else { 0.0 };
    // Instances may read parts of the same file.
    let inputs = instances.iter().flat_map(|instance| &instance.share.inputs).map(|input| &input.path);
    metrics.read_mb = sum_reported(instances, JobReport::read_mb).unwrap_or_else(|| total_size(inputs));
    let outputs = instances.iter().flat_map(|instance| &instance.files.outputs);
    metrics.write_mb = sum_reported(instances, JobReport::write_mb).unwrap_or_else(|| total_size(outputs));
    fill_exit(metrics, instances, used);
}

fn fill_memory(metrics: &mut StepMetrics, instances: &[StepInstance], used: &StepUsageInput<'_>) {
    let reported = |name: &str| {
        let of = |instance: &StepInstance| instance.report.as_ref()?.metric("ApplicationMemory", name);
        instances.iter().filter_map(of).reduce(f64::max)
    };
    let peak = used.ended.iter().map(|one| one.peak_rss.0).max().unwrap_or(0) as f64 / MB;
    metrics.peak_rss_mb = reported("PeakValueRss").map_or(peak, |reported| reported.max(peak));
    metrics.peak_vsize_mb = reported("PeakValueVsize");
    // The kernel knows the peak of each process, also between two samples of the group.
    metrics.cgroup_memory_mb = used.cgroup_peak.map(|peak| (peak.0 as f64 / MB).max(metrics.peak_rss_mb));
}

/// The sum over all job reports, if all have the value.
fn sum_reported(instances: &[StepInstance], value: fn(&JobReport) -> Option<f64>) -> Option<f64> {
    instances.iter().map(|instance| value(instance.report.as_ref()?)).sum()
}

fn total_size<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> f64 {
    let paths: BTreeSet<&PathBuf> = paths.collect();
    paths.into_iter().filter_map(|path| Some(path.metadata().ok()?.len() as f64 / MB)).sum()
}

fn fill_exit(metrics: &mut StepMetrics, instances: &[StepInstance], used: &StepUsageInput<'_>) {
    let Some(ended) = used.ended.get(used.deciding_instance) else { return };
    let report = instances.get(used.deciding_instance).and_then(|instance| instance.report.as_ref());
    let code = report.and_then(JobReport::last_error).map(|error| error.status);
    metrics.exit_code = code.unwrap_or(ended.exit.return_code());
    metrics.signal = match ended.exit {
        ProcessExit::Signal(signal) => Some(signal),
        ProcessExit::Code(_) => None,
    };
}
