//! Exit codes: what those of CMS mean, and how they leave a process that has only eight bits for them.
//!
//! A code up to 255 is passed on as it is. One above becomes the code that `sysexits.h` has for its class, so that also
//! somebody who sees nothing but the process knows what sort of failure it was.

use windlass_types::FailureClass;

pub use windlass_core::classify::cms_exit_codes::classify_exit_code;

/// A file was read with errors.
pub const FILE_READ: i32 = 8021;
/// A file could not be opened, neither here nor elsewhere.
pub const FILE_OPEN: i32 = 8028;
/// No memory was left.
pub const BAD_ALLOC: i32 = 8004;
/// Some other exception.
pub const EXCEPTION: i32 = 8001;
/// An output was not written.
pub const NO_OUTPUT: i32 = 60302;
/// An output has no events.
pub const NO_EVENTS: i32 = 60450;
/// An output could not be brought to the storage.
pub const STAGE_OUT: i32 = 60311;
/// The storage is not there, full, or may not be written to.
pub const STORAGE: i32 = 60321;
/// The manifest or what it names is wrong.
pub const CONFIGURATION: i32 = 7002;
/// What a merge reads is not what the reports of the nodes say.
pub const MERGE_INPUT: i32 = 71101;

/// What the process ends with for a code.
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
        // None of sysexits is about memory; the last line of stderr is.
        (_, Some(FailureClass::Memory | FailureClass::Unknown) | None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::classify::{FailureClassifier, FailureEvidence};

    /// A process that only its code is known of is taken for the same class as by its report.
    #[test]
    fn the_process_code_alone_leads_to_the_class() {
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
