//! Collects the facts about an attempt from files: the event log, reports, stderr, the report about the attempt
//! before.
//!
//! A script must come to a decision in any case. A file that is missing or invalid means that less is known; it
//! is not an error.

use super::attempt::{DagmanReturn, JobLogSummary, JobReportSummary, NodeAttempt};
use super::post_report::{CmsswPerformance, CmsswReport, PostReport, StepResult};
use super::{ScriptCall, files};
use crate::file_layout;
use crate::parsers::events::{self, JobEvents, JobUsage};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use windlass_payload::report::{self as job_report, JobReport};
use windlass_types::SystemClock;
use windlass_types::payload::{MergeOutput, ProcessingReport, StepMetrics};
use windlass_types::requests::NodeRole;
use windlass_types::worker_messages::ProcessExit;

/// The attribute with which machines advertise their site.
const SITE_ATTRIBUTE: &str = "GLIDEIN_CMSSite";

/// How far before the end of a job its log is read. The end matters most; the start of the job is found only if
/// it is not too far back, and its facts are also known from elsewhere: the end has the elapsed time, and the
/// unit its site.
const MAX_LOG_REACH: u64 = 128 * 1024;

/// Collects the facts about the attempt for which a POST script is called.
pub(super) fn gather_attempt(call: &ScriptCall, role: Option<NodeRole>) -> NodeAttempt {
    let directory = call.directory.as_path();
    let returned = DagmanReturn::from_number(call.returned);
    let report = read_report(directory, &call.node, role);
    let is_well = returned == DagmanReturn::Exit(ProcessExit::Code(0))
        && report.as_ref().is_none_or(|report| report.cmssw.exit_code == 0);
    let tail = if is_well {
        String::new()
    } else {
        files::read_tail(&stderr_path(directory, &call.node)).unwrap_or_default()
    };
    NodeAttempt {
        node: call.node.clone(),
        retry: call.retry,
        max_retries: call.max_retries,
        returned,
        job_id: call.job_id.clone(),
        job_log: summarize_job_log(call, role),
        missing_report: find_missing_report(directory, &call.node, role),
        report,
        stderr_tail: tail,
        previous_report: read_previous_report(directory, &call.node),
        now: SystemClock.now(),
        random: RandomState::new().hash_one(&call.job_id),
    }
}

/// The file with the stderr of a node.
fn stderr_path(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.err"))
}

pub(super) fn read_previous_report(directory: &Path, node: &str) -> Option<PostReport> {
    let text = fs::read(file_layout::post_report_path(directory, node)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The events of the job in the log of the DAG.
fn read_events(call: &ScriptCall) -> JobEvents {
    let Some(cluster) = parse_cluster(&call.job_id) else { return JobEvents::default() };
    let of = |dag: &str| call.directory.join(format!("{dag}{}", file_layout::NODES_LOG_SUFFIX));
    let logs = [of(file_layout::GROUP_DAG), of(file_layout::OUTER_DAG)];
    let log = logs.iter().find(|log| log.is_file());
    log.and_then(|log| events::read_job_events_within(log, cluster, MAX_LOG_REACH).ok()).unwrap_or_default()
}

/// Parses `32.0`; a job that was never submitted is `-1.-1`.
fn parse_cluster(job_id: &str) -> Option<u64> {
    job_id.split('.').next()?.parse().ok().filter(|cluster| *cluster > 0)
}

fn summarize_job_log(call: &ScriptCall, role: Option<NodeRole>) -> JobLogSummary {
    let events = read_events(call);
    let usage = events.usage();
    let cpu = usage.and_then(|usage| usage.cpu);
    let memory = usage.and_then(|usage| usage.memory().used).filter(|mb| mb.is_finite() && *mb >= 0.0);
    // A job that the schedd rejected, or that was removed while it waited, was at no site. A landing elects a
    // site, and the site of an earlier landing does not count.
    let has_run =
        matches!(DagmanReturn::from_number(call.returned), DagmanReturn::Exit(_)) || events.has_run();
    let elected = || {
        file_layout::read_elected_site(&call.directory).filter(|_| has_run && role != Some(NodeRole::Landing))
    };
    JobLogSummary {
        hold: events.last_hold().cloned(),
        removal: events.removal().map(str::to_owned),
        wall_sec: events.wall_seconds().or_else(|| usage.and_then(seconds_busy)),
        cpu_sec: cpu.map(|cpu| cpu.user_seconds.saturating_add(cpu.system_seconds)),
        memory_mb: memory.map(|mb| mb.ceil() as u64),
        site: events.attribute(SITE_ATTRIBUTE).map(str::to_owned).or_else(elected),
        schedd: host_name(),
    }
}

/// How long the job had its machine.
fn seconds_busy(usage: &JobUsage) -> Option<u64> {
    let measured = ["TimeExecute", "TimeSlotBusy"].iter().find_map(|name| usage.resources.get(*name)?.used);
    measured.filter(|seconds| seconds.is_finite() && *seconds >= 0.0).map(|seconds| seconds as u64)
}

/// Scripts run on the machine of the schedd that has their job.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The report file of a node of this role, if it writes one.
pub(super) fn report_path(directory: &Path, node: &str, role: Option<NodeRole>) -> Option<PathBuf> {
    match role {
        Some(NodeRole::Processing) => {
            file_layout::processing_index(node).map(|index| directory.join(format!("proc_{index}.json")))
        }
        Some(NodeRole::Merge) => Some(directory.join("merge_output.json")),
        _ => None,
    }
}

/// The required report of a node that is missing. A truncated one, as after a full disk, counts as missing.
fn find_missing_report(directory: &Path, node: &str, role: Option<NodeRole>) -> Option<String> {
    let path = report_path(directory, node, role)?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    match fs::read(&path) {
        Ok(text) if is_complete_report(&text, role) => None,
        Ok(_) => Some(format!("complete {name}")),
        Err(_) => Some(name),
    }
}

fn is_complete_report(report: &[u8], role: Option<NodeRole>) -> bool {
    match role {
        Some(NodeRole::Merge) => serde_json::from_slice::<MergeOutput>(report).is_ok(),
        _ => serde_json::from_slice::<ProcessingReport>(report).is_ok(),
    }
}

/// The report of Windlass's payload; otherwise that of a CMS program.
fn read_report(directory: &Path, node: &str, role: Option<NodeRole>) -> Option<JobReportSummary> {
    let path = match role {
        // Only a landing that found inputs missing leaves any.
        Some(NodeRole::Landing) => Some(directory.join(file_layout::LANDING_REPORT)),
        Some(NodeRole::Processing) => report_path(directory, node, role),
        _ => None,
    };
    if let Some(path) = path
        && let Ok(text) = fs::read(path)
        && let Ok(report) = serde_json::from_slice(&text)
    {
        return Some(from_payload_report(report));
    }
    let found = job_report::read_report(&file_layout::job_report_path(directory, node)).ok()??;
    Some(from_program_report(&found))
}

fn from_payload_report(report: ProcessingReport) -> JobReportSummary {
    let failure = report.failure.as_ref();
    let steps: BTreeMap<String, StepResult> =
        report.steps.iter().map(|step| (step.step.clone(), step_result(step.exit_code))).collect();
    JobReportSummary {
        cmssw: CmsswReport {
            exit_code: failure.map_or(0, |failure| failure.exit_code),
            steps,
            error_message: failure.map(|failure| failure.message.clone()),
            performance: summarize_performance(&report.steps),
            input_files: report.inputs,
            output_files: report.outputs.into_iter().map(|file| file.lfn).collect(),
        },
        bad_inputs: report.bad_inputs,
    }
}

const fn step_result(exit_code: i32) -> StepResult {
    StepResult { status: (exit_code != 0) as u8, exit_code }
}

/// Events read are those of the first step, events written those of the last; the time per event is that of all steps.
fn summarize_performance(steps: &[StepMetrics]) -> CmsswPerformance {
    let peak = steps.iter().map(|step| step.peak_rss_mb).fold(0.0, f64::max);
    let per_event: f64 = steps.iter().map(|step| step.time_per_event_sec).sum();
    CmsswPerformance {
        peak_rss_mb: (peak > 0.0).then_some(peak),
        avg_event_time_sec: (per_event > 0.0).then_some(per_event),
        events_read: steps.first().map_or(0, |step| step.events_read),
        events_written: steps.last().map_or(0, |step| step.events_written),
    }
}

fn from_program_report(report: &JobReport) -> JobReportSummary {
    let error = report.last_error();
    let exit_code = error.map_or(0, |error| error.status);
    let lfns: Vec<String> = report.inputs.iter().map(|input| input.name.lfn.clone()).collect();
    let names = report.inputs.iter().map(|input| (input.name.lfn.as_str(), input.name.pfn.as_str()));
    JobReportSummary {
        bad_inputs: report.bad_inputs(names),
        cmssw: CmsswReport {
            exit_code,
            steps: BTreeMap::from([("cmsRun1".to_owned(), step_result(exit_code))]),
            error_message: error.map(|error| error.text.trim().to_owned()),
            input_files: lfns,
            output_files: report.outputs.iter().map(|output| output.name.lfn.clone()).collect(),
            performance: CmsswPerformance {
                peak_rss_mb: report.metric("ApplicationMemory", "PeakValueRss"),
                avg_event_time_sec: report.metric("Timing", "AvgEventTime"),
                events_read: report.events_read(),
                events_written: report
                    .outputs
                    .iter()
                    .filter_map(|output| output.events)
                    .fold(0, u64::saturating_add),
            },
        },
    }
}
