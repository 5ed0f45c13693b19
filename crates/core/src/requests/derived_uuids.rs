//! Deterministic names, so that every process derives the same ones.

use windlass_types::Timestamp;

/// Returns the UUID of the workflow of a request (version 8). Known before the workflow exists; a request that
/// is created again under an old name has another one.
pub fn process_uuid(request: &str, created_at: Timestamp) -> String {
    let bytes = request.bytes().chain([0]).chain(created_at.0.to_be_bytes());
    let hash = bytes.fold(FNV_OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME));
    let version = (hash & !(0xf << 76)) | (8 << 76);
    let variant = (version & !(0b11 << 62)) | (0b10 << 62);
    let hex = format!("{variant:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// FNV-1a, 128 bits: not for secrets, only for distinct names.
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn derived_uuids_are_reproducible_and_unique() {
        assert_eq!(process_uuid("r", Timestamp(7)), process_uuid("r", Timestamp(7)));
        let mut seen = BTreeSet::new();
        for n in 0..1000 {
            assert!(seen.insert(process_uuid(&format!("r{n}"), Timestamp(7))));
            assert!(seen.insert(process_uuid("r", Timestamp(1000 + n))));
        }
        for uuid in seen {
            let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{uuid}");
            assert!(uuid[14..].starts_with('8') && "89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }
}
