//! Exit codes: what those of CMS mean, and how they leave a process that has only eight bits for them.
//!
//! A code up to 255 is passed on as it is. One above becomes the code that `sysexits.h` has for its class, so that also
//! somebody who sees nothing but the process knows what sort of failure it was.

use windlass_core::classify::{Classifier, Evidence};
use windlass_types::FailureClass;

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

const DATA: &[i32] = &[8016, 8021, 8022, 8027, 8028, 8034, 71101];
const MEMORY: &[i32] = &[8004, 8030, 8031, 50660, 50661];
const TIMEOUT: &[i32] = &[50663, 50664];
const TRANSIENT: &[i32] = &[
    8015, 9000, 50115, 50116, 50665, 50666, 50669, 70318, 71300, 71305, 80000, 80001, 99108, 99303, 99304,
    99400, 99401, 99996, 99997, 99998, 99999,
];
const INFRASTRUCTURE: &[i32] = &[
    8020, 8033, 10031, 10032, 10034, 10040, 10042, 10043, 11003, 11004, 11005, 50513, 60307, 60311, 60312,
    60313, 60315, 60317, 60318, 60319, 60320, 60321, 60324, 60403, 60404, 60405, 60407, 60408, 60409, 71102,
    71103, 71104, 71105, 71301, 71302, 71303, 90000, 99109,
];
const PERMANENT: &[i32] = &[
    7000, 7001, 7002, 8001, 8002, 8003, 8005, 8006, 8007, 8008, 8009, 8010, 8011, 8012, 8013, 8014, 8017,
    8018, 8019, 8023, 8024, 8025, 8026, 8029, 8032, 8501, 11001, 11002, 50110, 50111, 50113, 50662, 60302,
    60322, 60323, 60401, 60450, 60451, 70452, 71304, 71306, 71307, 80453, 99305,
];
/// Codes of "some exception": what it said decides, if a rule knows it.
const GENERAL: &[i32] = &[8001, 8002];

/// The largest code that a process can end with.
const PROCESS_MAX: i32 = 255;

/// Of what class a code of CMS is, with what the job report says about it. `None` for codes of processes, which are for
/// the rules of classification to judge.
pub fn class_of(code: i32, said: &str) -> Option<FailureClass> {
    if code <= PROCESS_MAX {
        return None;
    }
    if GENERAL.contains(&code) {
        let found = Classifier::standard().classify(&Evidence::of_exit(1, said)).class;
        return Some(if found == FailureClass::Unknown { FailureClass::Permanent } else { found });
    }
    let table = [
        (DATA, FailureClass::Data),
        (MEMORY, FailureClass::Memory),
        (TIMEOUT, FailureClass::Timeout),
        (TRANSIENT, FailureClass::Transient),
        (INFRASTRUCTURE, FailureClass::Infrastructure),
        (PERMANENT, FailureClass::Permanent),
    ];
    let known = table.into_iter().find(|(codes, _)| codes.contains(&code)).map(|(_, class)| class);
    Some(known.unwrap_or(FailureClass::Unknown))
}

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
    use std::collections::BTreeSet;

    #[test]
    fn every_code_is_in_one_class() {
        let lists = [DATA, MEMORY, TIMEOUT, TRANSIENT, INFRASTRUCTURE, PERMANENT];
        let all: BTreeSet<i32> = lists.into_iter().flatten().copied().collect();
        assert_eq!(all.len(), lists.iter().map(|list| list.len()).sum::<usize>());
        assert!(all.iter().all(|code| *code > PROCESS_MAX));
        assert!(GENERAL.iter().all(|code| all.contains(code)));
    }

    #[test]
    fn what_a_general_exception_says_decides() {
        assert_eq!(class_of(8001, "No \"CastorDbRecord\" record found"), Some(FailureClass::Permanent));
        let site = "Valid site-local-config not found";
        assert_eq!(class_of(8001, site), Some(FailureClass::Infrastructure));
        assert_eq!(class_of(8021, site), Some(FailureClass::Data), "this one says enough by itself");
        assert_eq!(class_of(1, site), None);
        assert_eq!(class_of(123_456, ""), Some(FailureClass::Unknown));
    }

    /// A process that only its code is known of is taken for the same class as by its report.
    #[test]
    fn the_process_code_alone_leads_to_the_class() {
        for code in [8021, 8028, 60311, 60321, 7002, 10032, 9000, 50664, 60302, 71101] {
            let class = class_of(code, "");
            let evidence_code = i32::from(process_code(code, class));
            let found = Classifier::standard().classify(&Evidence::of_exit(evidence_code, ""));
            assert_eq!(Some(found.class), class, "{code} as {evidence_code}");
        }
        assert_eq!(process_code(3, None), 3);
        assert_eq!(process_code(0, None), 1, "never success");
        assert_eq!(process_code(8004, class_of(8004, "")), 1);
    }
}
