//! Failures on demand: which of them is due, and how one is written on a command line.

use windlass_types::payload::{Fault, FaultKind};
use windlass_types::{Bytes, signal_number};

/// The first whose conditions all hold.
pub(super) fn due(faults: &[Fault], node: u32, site: &str, attempt: u32) -> Option<FaultKind> {
    let is_due = |fault: &&Fault| {
        fault.node.is_none_or(|wanted| wanted == node)
            && fault.site.as_deref().is_none_or(|wanted| wanted == site)
            && fault.until_attempt.is_none_or(|last| attempt <= last)
    };
    faults.iter().find(is_due).map(|fault| fault.kind)
}

/// `exit:8021`, `signal:SEGV`, `memory:500m`, `hang`, `bad-input`, `no-output`, `no-events`.
pub fn parse_fault(text: &str) -> Result<FaultKind, String> {
    let (word, value) = text.split_once(':').unwrap_or((text, ""));
    let kind = match word {
        "exit" => value.parse().ok().filter(|code| *code > 0).map(FaultKind::Exit),
        "signal" => signal_number(value).or_else(|| value.parse().ok()).map(FaultKind::Signal),
        "memory" => value.parse().ok().map(|Bytes(bytes)| FaultKind::Memory(bytes >> 20)),
        "hang" => Some(FaultKind::Hang),
        "bad-input" => Some(FaultKind::BadInput),
        "no-output" => Some(FaultKind::NoOutput),
        "no-events" => Some(FaultKind::NoEvents),
        _ => None,
    };
    kind.ok_or_else(|| {
        format!(
            "`{text}` is no way to fail; known: exit:CODE, signal:NAME, memory:SIZE, hang, bad-input, no-output, no-events"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_due_where_all_its_conditions_hold() {
        let fault = |kind, node, site: Option<&str>, until_attempt| Fault {
            kind,
            node,
            site: site.map(str::to_owned),
            until_attempt,
        };
        let faults = [
            fault(FaultKind::Exit(1), Some(3), Some("T1"), Some(2)),
            fault(FaultKind::Hang, None, Some("T2"), None),
        ];
        assert_eq!(due(&faults, 3, "T1", 2), Some(FaultKind::Exit(1)));
        assert_eq!(due(&faults, 3, "T1", 3), None);
        assert_eq!(due(&faults, 4, "T1", 1), None);
        assert_eq!(due(&faults, 3, "T2", 9), Some(FaultKind::Hang));
    }

    #[test]
    fn faults_are_read_from_words() {
        assert_eq!(parse_fault("exit:8021"), Ok(FaultKind::Exit(8021)));
        assert_eq!(parse_fault("signal:SIGSEGV"), Ok(FaultKind::Signal(11)));
        assert_eq!(parse_fault("signal:9"), Ok(FaultKind::Signal(9)));
        assert_eq!(parse_fault("memory:500m"), Ok(FaultKind::Memory(500)));
        assert_eq!(parse_fault("no-events"), Ok(FaultKind::NoEvents));
        for wrong in ["", "exit", "exit:0", "exit:x", "signal:FOO", "crash"] {
            assert!(parse_fault(wrong).unwrap_err().contains("bad-input"), "{wrong}");
        }
    }
}
