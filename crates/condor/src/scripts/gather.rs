//! What is known of an attempt, gathered from the files around it: the event log, reports, stderr, what was written after
//! the attempt before.
//!
//! A script must come to an end whatever it finds. A file that is not there or makes no sense is something less that is
//! known, and no error.

use super::attempt::{Ad, Attempt, Report, Returned};
use super::report::{Cmssw, Performance, PostReport, StepEnd};
use super::{Call, files};
use crate::layout;
use crate::read::events::{self, JobEvents, Usage};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use windlass_payload::report::{self as job_report, JobReport};
use windlass_types::Clock;
use windlass_types::payload::{MergeOutput, NodeReport, StepMetrics};
use windlass_types::requests::NodeRole;
use windlass_types::work::Exit;

/// What machines call the site where they are.
const SITE: &str = "GLIDEIN_CMSSite";

/// How far before the end of a job its log is read. Its end says the most; where it began is only to be found if that was
/// not too long ago, and what is told there is known otherwise: the end has the time that it took, and the unit its site.
const REACH: u64 = 128 * 1024;

/// All that is known of the attempt that a POST script is called for.
pub(super) fn attempt(call: &Call, role: Option<NodeRole>) -> Attempt {
    let directory = call.directory.as_path();
    let returned = Returned::of(call.returned);
    let report = report(directory, &call.node, role);
    let is_well = returned == Returned::Exit(Exit::Code(0))
        && report.as_ref().is_none_or(|report| report.cmssw.exit_code == 0);
    let tail =
        if is_well { String::new() } else { files::tail(&log(directory, &call.node)).unwrap_or_default() };
    Attempt {
        node: call.node.clone(),
        retry: call.retry,
        max_retries: call.max_retries,
        returned,
        job_id: call.job_id.clone(),
        ad: ad(call, role),
        missing: missing(directory, &call.node, role),
        report,
        tail,
        earlier: earlier(directory, &call.node),
        now: Clock.now(),
        dice: RandomState::new().hash_one(&call.job_id),
    }
}

/// What a node said to its stderr.
fn log(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.err"))
}

pub(super) fn earlier(directory: &Path, node: &str) -> Option<PostReport> {
    let text = fs::read(layout::post_report(directory, node)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// What the log of the DAG says of the job.
fn events(call: &Call) -> JobEvents {
    let Some(cluster) = cluster(&call.job_id) else { return JobEvents::default() };
    let of = |dag: &str| call.directory.join(format!("{dag}{}", layout::NODES_LOG));
    let logs = [of(layout::GROUP_DAG), of(layout::OUTER_DAG)];
    let log = logs.iter().find(|log| log.is_file());
    log.and_then(|log| events::of_job_within(log, cluster, REACH).ok()).unwrap_or_default()
}

/// `32.0`; a job that was never submitted is `-1.-1`.
fn cluster(job_id: &str) -> Option<u64> {
    job_id.split('.').next()?.parse().ok().filter(|cluster| *cluster > 0)
}

fn ad(call: &Call, role: Option<NodeRole>) -> Ad {
    let events = events(call);
    let usage = events.usage();
    let cpu = usage.and_then(|usage| usage.cpu);
    let memory = usage.and_then(|usage| usage.memory().used).filter(|mb| mb.is_finite() && *mb >= 0.0);
    // What the schedd did not take, or what was removed while it waited, was at no site. And a landing elects, and is not
    // where an earlier one was.
    let has_run = matches!(Returned::of(call.returned), Returned::Exit(_)) || events.has_run();
    let elected = || elected(&call.directory).filter(|_| has_run && role != Some(NodeRole::Landing));
    Ad {
        hold: events.last_hold().cloned(),
        removal: events.removal().map(str::to_owned),
        wall_sec: events.wall_seconds().or_else(|| usage.and_then(seconds_busy)),
        cpu_sec: cpu.map(|cpu| cpu.user_seconds.saturating_add(cpu.system_seconds)),
        memory_mb: memory.map(|mb| mb.ceil() as u64),
        site: events.attribute(SITE).map(str::to_owned).or_else(elected),
        schedd: host(),
    }
}

/// For how long the job had its machine.
fn seconds_busy(usage: &Usage) -> Option<u64> {
    let told = ["TimeExecute", "TimeSlotBusy"].iter().find_map(|name| usage.resources.get(*name)?.used);
    told.filter(|seconds| seconds.is_finite() && *seconds >= 0.0).map(|seconds| seconds as u64)
}

/// The site of the unit, where the log does not say where the job was.
fn elected(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(layout::ELECTED)).ok()?;
    let (_, site) = text.split_once('"')?;
    site.split_once('"').map(|(site, _)| site.to_owned()).filter(|site| !site.is_empty())
}

/// Scripts run beside the schedd that their job is in.
fn host() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The file in which a node of this role reports, if it does.
pub(super) fn report_path(directory: &Path, node: &str, role: Option<NodeRole>) -> Option<PathBuf> {
    match role {
        Some(NodeRole::Processing) => {
            layout::processing_index(node).map(|index| directory.join(format!("proc_{index}.json")))
        }
        Some(NodeRole::Merge) => Some(directory.join("merge_output.json")),
        _ => None,
    }
}

/// The report that a node owes and did not bring. One that is cut off, as by a full disk, is none.
fn missing(directory: &Path, node: &str, role: Option<NodeRole>) -> Option<String> {
    let path = report_path(directory, node, role)?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    match fs::read(&path) {
        Ok(text) if is_whole(&text, role) => None,
        Ok(_) => Some(format!("{name} that is whole")),
        Err(_) => Some(name),
    }
}

fn is_whole(report: &[u8], role: Option<NodeRole>) -> bool {
    match role {
        Some(NodeRole::Merge) => serde_json::from_slice::<MergeOutput>(report).is_ok(),
        _ => serde_json::from_slice::<NodeReport>(report).is_ok(),
    }
}

/// That of our payload; else the one that a program of CMS left.
fn report(directory: &Path, node: &str, role: Option<NodeRole>) -> Option<Report> {
    let path = match role {
        // Only one that found inputs missing leaves any.
        Some(NodeRole::Landing) => Some(directory.join(layout::LANDING_REPORT)),
        Some(NodeRole::Processing) => report_path(directory, node, role),
        _ => None,
    };
    if let Some(path) = path
        && let Ok(text) = fs::read(path)
        && let Ok(report) = serde_json::from_slice(&text)
    {
        return Some(of_payload(report));
    }
    let found = job_report::read(&layout::job_report(directory, node)).ok()??;
    Some(of_program(&found))
}

fn of_payload(report: NodeReport) -> Report {
    let failure = report.failure.as_ref();
    let steps: BTreeMap<String, StepEnd> =
        report.steps.iter().map(|step| (step.step.clone(), step_end(step.exit_code))).collect();
    Report {
        cmssw: Cmssw {
            exit_code: failure.map_or(0, |failure| failure.exit_code),
            steps,
            error_message: failure.map(|failure| failure.message.clone()),
            performance: performance(&report.steps),
            input_files: report.inputs,
            output_files: report.outputs.into_iter().map(|file| file.lfn).collect(),
        },
        bad_inputs: report.bad_inputs,
    }
}

const fn step_end(exit_code: i32) -> StepEnd {
    StepEnd { status: (exit_code != 0) as u8, exit_code }
}

/// Read by the first step, written by the last; the time of an event is that of all steps.
fn performance(steps: &[StepMetrics]) -> Performance {
    let peak = steps.iter().map(|step| step.peak_rss_mb).fold(0.0, f64::max);
    let per_event: f64 = steps.iter().map(|step| step.time_per_event_sec).sum();
    Performance {
        peak_rss_mb: (peak > 0.0).then_some(peak),
        avg_event_time_sec: (per_event > 0.0).then_some(per_event),
        events_read: steps.first().map_or(0, |step| step.events_read),
        events_written: steps.last().map_or(0, |step| step.events_written),
    }
}

fn of_program(report: &JobReport) -> Report {
    let error = report.error();
    let exit_code = error.map_or(0, |error| error.status);
    let lfns: Vec<String> = report.inputs.iter().map(|input| input.name.lfn.clone()).collect();
    let names = report.inputs.iter().map(|input| (input.name.lfn.as_str(), input.name.pfn.as_str()));
    Report {
        bad_inputs: report.bad_inputs(names),
        cmssw: Cmssw {
            exit_code,
            steps: BTreeMap::from([("cmsRun1".to_owned(), step_end(exit_code))]),
            error_message: error.map(|error| error.text.trim().to_owned()),
            input_files: lfns,
            output_files: report.outputs.iter().map(|output| output.name.lfn.clone()).collect(),
            performance: Performance {
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
