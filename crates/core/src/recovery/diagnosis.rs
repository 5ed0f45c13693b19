//! Why one job ended as it did.

use super::{Case, Diagnosis, LastAttempt};
use crate::sizing::CPU_PERCENT_OF_NOISE;
use windlass_types::work::return_code;
use windlass_types::{FailureClass, JobStatus, Resources, format_duration, signal_name};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A job that is ended from outside after so much of its time was most likely ended for it.
const NEARLY_ALL: f64 = 0.9;

/// With what it rests on.
pub(super) fn diagnose(case: &Case) -> (Diagnosis, String) {
    let Some(last) = &case.last else {
        return match case.status {
            JobStatus::Canceled => (Diagnosis::Canceled, "it never ran".to_owned()),
            _ => (Diagnosis::Unknown, "no attempt of it is known".to_owned()),
        };
    };
    let found = match () {
        () if last.seen.return_code == return_code::ORPHANED => Diagnosis::WorkerLost,
        () if case.status == JobStatus::Canceled => Diagnosis::Canceled,
        () if last.out_of_memory || last.class == Some(FailureClass::Memory) => Diagnosis::OutOfMemory,
        () if ran_out_of_time(case, last) => Diagnosis::Timeout,
        () if last.signal() == Some(SIGKILL) && !was_near_its_time(case, last) => Diagnosis::OutOfMemory,
        () if is_stopping(last.signal()) && was_near_its_time(case, last) => Diagnosis::Timeout,
        () if last.is_explained_otherwise() => Diagnosis::Unknown,
        () => by_excess(case.asked.as_ref(), last),
    };
    (found, evidence(found, case.asked.as_ref(), last))
}

impl LastAttempt {
    /// The signal that ended it. A shell tells of the one that ended its command by 128 + n.
    fn signal(&self) -> Option<i32> {
        let told = || Some(self.seen.return_code - 128).filter(|signal| (1..=31).contains(signal));
        self.signal.or_else(told)
    }

    /// What it said names another cause, which more of something would not remove.
    fn is_explained_otherwise(&self) -> bool {
        use FailureClass::{Data, Permanent, Timeout, Transient};
        matches!(self.class, Some(Permanent | Data | Transient | Timeout))
    }
}

/// The class alone does not say whose time it was: commands have limits of their own.
fn ran_out_of_time(case: &Case, last: &LastAttempt) -> bool {
    let is_ours = last.seen.status == JobStatus::Terminated || was_near_its_time(case, last);
    last.seen.return_code == return_code::TIMEOUT || (last.class == Some(FailureClass::Timeout) && is_ours)
}

const fn is_stopping(signal: Option<i32>) -> bool {
    matches!(signal, Some(SIGKILL | SIGTERM))
}

fn was_near_its_time(case: &Case, last: &LastAttempt) -> bool {
    let runtime = case.asked.and_then(|asked| asked.runtime);
    runtime.is_some_and(|runtime| last.seen.wall >= runtime.mul_f64(NEARLY_ALL))
}

/// It went over what it asked for, where nobody ended it for that.
fn by_excess(asked: Option<&Resources>, last: &LastAttempt) -> Diagnosis {
    let Some(asked) = asked else { return Diagnosis::Unknown };
    let seen = &last.seen;
    let cores = f64::from(asked.cpus) * 100.0 + CPU_PERCENT_OF_NOISE;
    match () {
        () if seen.peak_memory.is_some_and(|peak| peak > asked.memory) => Diagnosis::OutOfMemory,
        () if asked.runtime.is_some_and(|runtime| seen.wall > runtime) => Diagnosis::Timeout,
        () if seen.peak_cpu_percent.is_some_and(|percent| percent > cores) => Diagnosis::CpuOveruse,
        () => Diagnosis::Unknown,
    }
}

fn evidence(found: Diagnosis, asked: Option<&Resources>, last: &LastAttempt) -> String {
    let seen = &last.seen;
    match found {
        Diagnosis::OutOfMemory => {
            let of = asked.map(|asked| format!(" of {}", asked.memory)).unwrap_or_default();
            let used = seen.peak_memory.map(|peak| format!("used {peak}{of}"));
            let proven = last.out_of_memory || last.class == Some(FailureClass::Memory);
            let how = (!proven && last.signal() == Some(SIGKILL)).then(|| "killed by SIGKILL".to_owned());
            let told = [how, used].into_iter().flatten().collect::<Vec<_>>();
            if told.is_empty() { format!("ended for its memory{of}") } else { told.join(", ") }
        }
        Diagnosis::Timeout => {
            let of =
                asked.and_then(|asked| asked.runtime).map(|time| format!(" of {}", format_duration(time)));
            format!("ran {}{}", format_duration(seen.wall), of.unwrap_or_default())
        }
        Diagnosis::CpuOveruse => {
            let used = seen.peak_cpu_percent.unwrap_or_default() / 100.0;
            format!("used {used:.1} of {} CPUs", asked.map_or(0, |asked| asked.cpus))
        }
        Diagnosis::WorkerLost => format!("its worker was gone ({})", seen.return_code),
        Diagnosis::Canceled => format!("it was stopped after {}", format_duration(seen.wall)),
        Diagnosis::Unknown => unexplained(last),
    }
}

/// `exit code 1, permanent`.
fn unexplained(last: &LastAttempt) -> String {
    let code = last.seen.return_code;
    let how = match last.signal.and_then(signal_name) {
        Some(signal) => format!("killed by {signal}"),
        None => format!("exit code {code}"),
    };
    match last.class.filter(|class| *class != FailureClass::Unknown) {
        Some(class) => format!("{how}, {class}"),
        None => how,
    }
}
