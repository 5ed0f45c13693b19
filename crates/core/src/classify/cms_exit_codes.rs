//! Failure classes of CMS exit codes, for the payload on a worker and for the POST script of its node.
//!
//! Codes up to 255 may come from any program and are left to the classification rules. Codes above 255 are
//! specific to CMS and arrive in reports.

use super::{FailureClassifier, FailureEvidence};
use windlass_types::FailureClass;

const DATA: &[i32] = &[8016, 8021, 8022, 8027, 8028, 8034, 71101];
const MEMORY: &[i32] = &[8004, 8030, 8031, 50660, 50661];
const TIMEOUT: &[i32] = &[8032, 50663, 50664, 71304, 71306, 71307];
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
    8018, 8019, 8023, 8024, 8025, 8026, 8029, 8501, 11001, 11002, 50110, 50111, 50113, 50662, 60302, 60322,
    60323, 60401, 60450, 60451, 70452, 80453, 99305,
];
/// General exceptions: the message decides, if a rule matches it.
const GENERAL_EXCEPTION_CODES: &[i32] = &[8001, 8002];

/// Codes caused by what all nodes of a run share: configuration, sandbox, program. Other nodes would fail in
/// the same way.
const RUN_WIDE_CODES: &[i32] = &[7000, 7001, 7002, 11001, 11002, 50110, 50111, 50113];

/// The largest exit code of a process.
pub const MAX_PROCESS_EXIT_CODE: i32 = 255;

/// Returns the class of a CMS code, using the message of the job report. `None` for codes of processes, which
/// are left to the classification rules.
pub fn classify_exit_code(code: i32, said: &str) -> Option<FailureClass> {
    if code <= MAX_PROCESS_EXIT_CODE {
        return None;
    }
    if GENERAL_EXCEPTION_CODES.contains(&code) {
        let found = FailureClassifier::standard().classify(&FailureEvidence::from_exit(1, said)).class;
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

/// Whether all other nodes of the run would fail too.
pub fn is_run_wide(code: i32) -> bool {
    RUN_WIDE_CODES.contains(&code)
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
        assert!(all.iter().all(|code| *code > MAX_PROCESS_EXIT_CODE));
        assert!(GENERAL_EXCEPTION_CODES.iter().all(|code| all.contains(code)));
        assert!(RUN_WIDE_CODES.iter().all(|code| PERMANENT.contains(code)));
    }

    /// Differences from the list of all codes, with reasons; details in `docs/design/018`.
    const OTHERWISE: &[(&[i32], FailureClass, FailureClass, &str)] = &[
        (
            &[8021, 8028],
            FailureClass::Infrastructure,
            FailureClass::Data,
            "required by the specification (E 2.4); an unreadable file must be known to be excluded",
        ),
        (
            &[8027],
            FailureClass::Permanent,
            FailureClass::Data,
            "a file in another format is excluded; other files may work",
        ),
        (
            &[8004, 8030, 8031, 50660, 50661],
            FailureClass::Permanent,
            FailureClass::Memory,
            "more memory helps, up to the ceiling; then it is permanent",
        ),
        (
            &[8032, 50663, 50664, 71304, 71306, 71307],
            FailureClass::Permanent,
            FailureClass::Timeout,
            "more time helps, up to the maximum; then it is permanent",
        ),
    ];

    #[test]
    fn classes_match_the_list_except_documented_ones() {
        let list = include_str!("../../tests/data/cms-exit-codes.tsv");
        let mut codes = BTreeSet::new();
        for line in list.lines().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            let code: i32 = fields[0].parse().unwrap();
            if code <= MAX_PROCESS_EXIT_CODE {
                continue;
            }
            codes.insert(code);
            let listed: FailureClass = fields[2].parse().unwrap();
            let other = OTHERWISE.iter().find(|(codes, ..)| codes.contains(&code));
            let expected = other.map_or(listed, |(_, of_list, ours, why)| {
                assert_eq!(*of_list, listed, "{code}: {why}");
                *ours
            });
            assert_eq!(classify_exit_code(code, ""), Some(expected), "{code} {}", fields[1]);
        }
        let lists = [DATA, MEMORY, TIMEOUT, TRANSIENT, INFRASTRUCTURE, PERMANENT];
        let ours: BTreeSet<i32> = lists.into_iter().flatten().copied().collect();
        assert_eq!(ours, codes, "each has a class, and none is unknown");
    }

    #[test]
    fn general_exception_is_classified_by_its_text() {
        assert_eq!(
            classify_exit_code(8001, "No \"CastorDbRecord\" record found"),
            Some(FailureClass::Permanent)
        );
        let site = "Valid site-local-config not found";
        assert_eq!(classify_exit_code(8001, site), Some(FailureClass::Infrastructure));
        assert_eq!(
            classify_exit_code(8021, site),
            Some(FailureClass::Data),
            "this code is sufficient by itself"
        );
        assert_eq!(classify_exit_code(1, site), None);
        assert_eq!(classify_exit_code(123_456, ""), Some(FailureClass::Unknown));
    }
}
