//! Exit codes: the meaning of the codes of CMS, and their mapping to the eight bits of a process.
//!
//! A code up to 255 is passed on unchanged. A larger one becomes the code that `sysexits.h` has for its class, so
//! that the class is known even where only the process status is visible.

use windlass_types::FailureClass;

pub use windlass_core::classify::cms_exit_codes::classify_exit_code;

/// A file was read with errors.
pub const FILE_READ: i32 = 8021;
/// A file could not be opened, neither here nor elsewhere.
pub const FILE_OPEN: i32 = 8028;
/// No memory was left.
pub const BAD_ALLOC: i32 = 8004;
/// Another exception.
pub const EXCEPTION: i32 = 8001;
/// An output was not written.
pub const NO_OUTPUT: i32 = 60302;
/// An output has no events.
pub const NO_EVENTS: i32 = 60450;
/// Stage-out of an output to the storage failed.
pub const STAGE_OUT: i32 = 60311;
/// The storage is missing, full, or not writable.
pub const STORAGE: i32 = 60321;
/// The manifest, or a file that it names, is invalid.
pub const CONFIGURATION: i32 = 7002;
/// The inputs of a merge differ from the reports of the nodes.
pub const MERGE_INPUT: i32 = 71101;

/// The exit status of the process for a code.
pub fn process_code(code: i32, class: Option<FailureClass>) -> u8 {
    if let Ok(code) = u8::try_from(code)
        && code != 0
    {
        return code;
    }
    match (code, class) {
        (FILE_OPEN, _) => 66,
        (STAGE_OUT | STORAGE, _) => 74,
        (_, Some(FailureClass::Data)) => 65,
        (_, Some(FailureClass::Permanent)) => 70,
        (_, Some(FailureClass::Infrastructure)) => 71,
        (_, Some(FailureClass::Transient)) => 75,
        (_, Some(FailureClass::Timeout)) => 124,
        // No code of sysexits means memory; the last line of stderr tells.
        (_, Some(FailureClass::Memory | FailureClass::Unknown) | None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::classify::{FailureClassifier, FailureEvidence};

    /// A process of which only the exit status is known gets the same class as by its report.
    #[test]
    fn failure_class_follows_from_process_exit_code() {
        for code in [8021, 8028, 60311, 60321, 7002, 10032, 9000, 50664, 60302, 71101] {
            let class = classify_exit_code(code, "");
            let evidence_code = i32::from(process_code(code, class));
            let found =
                FailureClassifier::standard().classify(&FailureEvidence::from_exit(evidence_code, ""));
            assert_eq!(Some(found.class), class, "{code} as {evidence_code}");
        }
        assert_eq!(process_code(3, None), 3);
        assert_eq!(process_code(0, None), 1, "never success");
        assert_eq!(process_code(8004, classify_exit_code(8004, "")), 1);
    }
}
