//! Failures on demand: which one is due, and their syntax on a command line.

use windlass_types::payload::{SimulatedFailure, SimulatedFailureKind};
use windlass_types::{Bytes, signal_number};

/// The first one whose conditions all hold.
pub(super) fn find_due_fault(
    faults: &[SimulatedFailure],
    node: u32,
    site: &str,
    attempt: u32,
) -> Option<SimulatedFailureKind> {
    let is_due = |fault: &&SimulatedFailure| {
        fault.node.is_none_or(|wanted| wanted == node)
            && fault.site.as_deref().is_none_or(|wanted| wanted == site)
            && fault.until_attempt.is_none_or(|last| attempt <= last)
    };
    faults.iter().find(is_due).map(|fault| fault.kind)
}

/// `exit:8021`, `signal:SEGV`, `memory:500m`, `hang`, `bad-input`, `no-output`, `no-events`.
pub fn parse_fault(text: &str) -> Result<SimulatedFailureKind, String> {
    let (word, value) = text.split_once(':').unwrap_or((text, ""));
    let kind = match word {
        "exit" => value.parse().ok().filter(|code| *code > 0).map(SimulatedFailureKind::Exit),
        "signal" => signal_number(value).or_else(|| value.parse().ok()).map(SimulatedFailureKind::Signal),
        "memory" => value.parse().ok().map(|Bytes(bytes)| SimulatedFailureKind::Memory(bytes >> 20)),
        "hang" => Some(SimulatedFailureKind::Hang),
        "bad-input" => Some(SimulatedFailureKind::BadInput),
        "no-output" => Some(SimulatedFailureKind::NoOutput),
        "no-events" => Some(SimulatedFailureKind::NoEvents),
        _ => None,
    };
    kind.ok_or_else(|| {
        format!(
            "unknown failure `{text}`; known: exit:CODE, signal:NAME, memory:SIZE, hang, bad-input, no-output, no-events"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_due_if_all_conditions_hold() {
        let fault = |kind, node, site: Option<&str>, until_attempt| SimulatedFailure {
            kind,
            node,
            site: site.map(str::to_owned),
            until_attempt,
        };
        let faults = [
            fault(SimulatedFailureKind::Exit(1), Some(3), Some("T1"), Some(2)),
            fault(SimulatedFailureKind::Hang, None, Some("T2"), None),
        ];
        assert_eq!(find_due_fault(&faults, 3, "T1", 2), Some(SimulatedFailureKind::Exit(1)));
        assert_eq!(find_due_fault(&faults, 3, "T1", 3), None);
        assert_eq!(find_due_fault(&faults, 4, "T1", 1), None);
        assert_eq!(find_due_fault(&faults, 3, "T2", 9), Some(SimulatedFailureKind::Hang));
    }

    #[test]
    fn faults_are_parsed_from_text() {
        assert_eq!(parse_fault("exit:8021"), Ok(SimulatedFailureKind::Exit(8021)));
        assert_eq!(parse_fault("signal:SIGSEGV"), Ok(SimulatedFailureKind::Signal(11)));
        assert_eq!(parse_fault("signal:9"), Ok(SimulatedFailureKind::Signal(9)));
        assert_eq!(parse_fault("memory:500m"), Ok(SimulatedFailureKind::Memory(500)));
        assert_eq!(parse_fault("no-events"), Ok(SimulatedFailureKind::NoEvents));
        for wrong in ["", "exit", "exit:0", "exit:x", "signal:FOO", "crash"] {
            assert!(parse_fault(wrong).unwrap_err().contains("bad-input"), "{wrong}");
        }
    }
}
