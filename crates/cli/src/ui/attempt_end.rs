//! The outcome of an attempt as text.

use windlass_store::model::ResultRow;
use windlass_types::JobStatus;
use windlass_types::worker_messages::return_code;

/// The facts about the end of an attempt that both the store and the engine provide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptEndSummary {
    pub(crate) status: JobStatus,
    pub(crate) return_code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) out_of_memory: bool,
}

impl From<&ResultRow> for AttemptEndSummary {
    fn from(row: &ResultRow) -> Self {
        let ResultRow { status, return_code, signal, out_of_memory, .. } = *row;
        Self { status, return_code, signal, out_of_memory }
    }
}

impl AttemptEndSummary {
    /// `exit code 3`, `killed by SIGSEGV (139)`, `out of memory (137)`, `time limit (152)`, `worker died (-128)`.
    pub(crate) fn describe(&self) -> String {
        let code = self.return_code;
        if self.out_of_memory {
            return format!("out of memory ({code})");
        }
        if self.status == JobStatus::Terminated && code == return_code::TIMEOUT {
            return format!("time limit ({code})");
        }
        if code == return_code::ORPHANED {
            return format!("worker died ({code})");
        }
        if let Some(signal) = self.signal {
            return format!("killed by {} ({code})", signal_name(signal));
        }
        match exit_code_hint(code) {
            Some(meaning) => format!("exit code {code} ({meaning})"),
            None => format!("exit code {code}"),
        }
    }
}

impl AttemptEndSummary {
    /// With the recorded reason, unless it repeats the meaning of the code.
    pub(crate) fn describe_with(&self, reason: Option<&str>) -> String {
        let Some(reason) = reason else { return self.describe() };
        let plain = !self.out_of_memory && self.status != JobStatus::Terminated;
        let short = match self.signal {
            Some(signal) if plain => format!("{} ({})", signal_name(signal), self.return_code),
            None if plain && self.return_code != return_code::ORPHANED => {
                format!("exit code {}", self.return_code)
            }
            _ => self.describe(),
        };
        format!("{short}: {reason}")
    }
}

/// Meanings of some codes by shell convention.
fn exit_code_hint(code: i32) -> Option<String> {
    match code {
        126 => Some("cannot be executed".to_owned()),
        127 => Some("command not found".to_owned()),
        // A shell that waited for a program killed by a signal exits with 128 + n.
        129..=159 => Some(format!("128 + {}", signal_name(code - 128))),
        _ => None,
    }
}

/// `SIGTERM`; signal numbers of Linux.
pub(crate) fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let index = usize::try_from(signal - 1).unwrap_or(usize::MAX);
    NAMES.get(index).map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_and_signals_have_descriptions() {
        let failed = |return_code, signal| AttemptEndSummary {
            status: JobStatus::Failed,
            return_code,
            signal,
            out_of_memory: false,
        };
        for (outcome, text) in [
            (failed(3, None), "exit code 3"),
            (failed(127, None), "exit code 127 (command not found)"),
            (failed(139, Some(11)), "killed by SIGSEGV (139)"),
            (failed(139, None), "exit code 139 (128 + SIGSEGV)"),
            (failed(162, Some(34)), "killed by signal 34 (162)"),
            (failed(-128, None), "worker died (-128)"),
            (AttemptEndSummary { out_of_memory: true, ..failed(137, Some(9)) }, "out of memory (137)"),
            (
                AttemptEndSummary { status: JobStatus::Terminated, ..failed(152, Some(15)) },
                "time limit (152)",
            ),
        ] {
            assert_eq!(outcome.describe(), text);
        }
        for (outcome, text) in [
            (failed(139, Some(11)), "SIGSEGV (139): why"),
            (failed(139, None), "exit code 139: why"),
            (failed(-128, None), "worker died (-128): why"),
            (AttemptEndSummary { out_of_memory: true, ..failed(137, Some(9)) }, "out of memory (137): why"),
        ] {
            assert_eq!(outcome.describe_with(Some("why")), text);
            assert_eq!(outcome.describe_with(None), outcome.describe());
        }
    }
}
