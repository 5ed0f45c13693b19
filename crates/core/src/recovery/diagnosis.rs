//! Diagnosis of a failed job.

use super::{FailedJob, LastAttempt, RecoveryDiagnosis};
use crate::sizing::CPU_PERCENT_NOISE;
use windlass_types::worker_messages::return_code;
use windlass_types::{FailureClass, JobStatus, Resources, format_duration, signal_name};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A job that is killed from outside after this share of its time most likely ran out of time.
const NEAR_LIMIT_SHARE: f64 = 0.9;

/// Returns the diagnosis and its evidence.
pub(super) fn diagnose_job(case: &FailedJob) -> (RecoveryDiagnosis, String) {
    let Some(last) = &case.last else {
        return match case.status {
            JobStatus::Canceled => (RecoveryDiagnosis::Canceled, "it never ran".to_owned()),
            _ => (RecoveryDiagnosis::Unknown, "there is no record of an attempt".to_owned()),
        };
    };
    let found = match () {
        () if last.observation.return_code == return_code::ORPHANED => RecoveryDiagnosis::WorkerLost,
        () if case.status == JobStatus::Canceled => RecoveryDiagnosis::Canceled,
        () if last.out_of_memory || last.class == Some(FailureClass::Memory) => {
            RecoveryDiagnosis::OutOfMemory
        }
        () if ran_out_of_time(case, last) => RecoveryDiagnosis::Timeout,
        () if last.effective_signal() == Some(SIGKILL) && !was_near_time_limit(case, last) => {
            RecoveryDiagnosis::OutOfMemory
        }
        () if is_termination_signal(last.effective_signal()) && was_near_time_limit(case, last) => {
            RecoveryDiagnosis::Timeout
        }
        () if last.has_other_explanation() => RecoveryDiagnosis::Unknown,
        () => diagnose_excess(case.asked.as_ref(), last),
    };
    (found, describe_evidence(found, case.asked.as_ref(), last))
}

impl LastAttempt {
    /// Returns the signal that ended it. A shell reports a signal of its command as 128 + n.
    fn effective_signal(&self) -> Option<i32> {
        let told = || Some(self.observation.return_code - 128).filter(|signal| (1..=31).contains(signal));
        self.signal.or_else(told)
    }

    /// Whether its output shows another cause, which more resources would not remove.
    fn has_other_explanation(&self) -> bool {
        use FailureClass::{Data, Permanent, Timeout, Transient};
        matches!(self.class, Some(Permanent | Data | Transient | Timeout))
    }
}

/// Whether the time limit of the job was reached. The class alone does not show it: commands have their own
/// timeouts.
fn ran_out_of_time(case: &FailedJob, last: &LastAttempt) -> bool {
    let is_ours = last.observation.status == JobStatus::Terminated || was_near_time_limit(case, last);
    last.observation.return_code == return_code::TIMEOUT
        || (last.class == Some(FailureClass::Timeout) && is_ours)
}

const fn is_termination_signal(signal: Option<i32>) -> bool {
    matches!(signal, Some(SIGKILL | SIGTERM))
}

fn was_near_time_limit(case: &FailedJob, last: &LastAttempt) -> bool {
    let runtime = case.asked.and_then(|asked| asked.runtime);
    runtime.is_some_and(|runtime| last.observation.wall >= runtime.mul_f64(NEAR_LIMIT_SHARE))
}

/// Finds a resource that exceeded the request without being ended for it.
fn diagnose_excess(asked: Option<&Resources>, last: &LastAttempt) -> RecoveryDiagnosis {
    let Some(asked) = asked else { return RecoveryDiagnosis::Unknown };
    let seen = &last.observation;
    let cores = f64::from(asked.cpus) * 100.0 + CPU_PERCENT_NOISE;
    match () {
        () if seen.peak_memory.is_some_and(|peak| peak > asked.memory) => RecoveryDiagnosis::OutOfMemory,
        () if asked.runtime.is_some_and(|runtime| seen.wall > runtime) => RecoveryDiagnosis::Timeout,
        () if seen.peak_cpu_percent.is_some_and(|percent| percent > cores) => RecoveryDiagnosis::CpuOveruse,
        () => RecoveryDiagnosis::Unknown,
    }
}

fn describe_evidence(found: RecoveryDiagnosis, asked: Option<&Resources>, last: &LastAttempt) -> String {
    let seen = &last.observation;
    match found {
        RecoveryDiagnosis::OutOfMemory => {
            let of = asked.map(|asked| format!(" of {}", asked.memory)).unwrap_or_default();
            let used = seen.peak_memory.map(|peak| format!("used {peak}{of}"));
            let proven = last.out_of_memory || last.class == Some(FailureClass::Memory);
            let how =
                (!proven && last.effective_signal() == Some(SIGKILL)).then(|| "killed by SIGKILL".to_owned());
            let told = [how, used].into_iter().flatten().collect::<Vec<_>>();
            if told.is_empty() { format!("ended because of its memory{of}") } else { told.join(", ") }
        }
        RecoveryDiagnosis::Timeout => {
            let of =
                asked.and_then(|asked| asked.runtime).map(|time| format!(" of {}", format_duration(time)));
            format!("ran {}{}", format_duration(seen.wall), of.unwrap_or_default())
        }
        RecoveryDiagnosis::CpuOveruse => {
            let used = seen.peak_cpu_percent.unwrap_or_default() / 100.0;
            format!("used {used:.1} of {} CPUs", asked.map_or(0, |asked| asked.cpus))
        }
        RecoveryDiagnosis::WorkerLost => format!("its worker was lost ({})", seen.return_code),
        RecoveryDiagnosis::Canceled => format!("it was stopped after {}", format_duration(seen.wall)),
        RecoveryDiagnosis::Unknown => describe_unexplained(last),
    }
}

/// `exit code 1, permanent`.
fn describe_unexplained(last: &LastAttempt) -> String {
    let code = last.observation.return_code;
    let how = match last.signal.and_then(signal_name) {
        Some(signal) => format!("killed by {signal}"),
        None => format!("exit code {code}"),
    };
    match last.class.filter(|class| *class != FailureClass::Unknown) {
        Some(class) => format!("{how}, {class}"),
        None => how,
    }
}
