//! Names that are the same when they are derived again: the leftovers of a crashed planning are replaced by the
//! next one, and an opened block is opened again as itself.

use uuid::{Builder, Uuid};

/// The first run of a round.
pub(crate) fn run_uuid(process: &str, round: u32) -> String {
    derive_uuid(process, &format!("round {round}"))
}

/// A block of a dataset, by its number within the process.
pub(crate) fn block_uuid(process: &str, dataset: &str, index: u32) -> String {
    derive_uuid(process, &format!("block {index} {dataset}"))
}

/// The name of a block in catalogs.
pub(crate) fn catalog_block_name(dataset: &str, uuid: &str) -> String {
    format!("{dataset}#{uuid}")
}

/// The random seed of a unit: different for every unit.
pub(crate) fn random_seed(run: &str, unit: u32) -> u64 {
    hash_fnv1a(&[run.as_bytes(), &unit.to_le_bytes()], FNV_OFFSET) as u64
}

/// A custom UUID (version 8).
fn derive_uuid(process: &str, what: &str) -> String {
    // A process without a UUID as its name was made by a test; its bytes are sufficient.
    let own = Uuid::parse_str(process).unwrap_or_default();
    let mixed = hash_fnv1a(&[own.as_bytes(), process.as_bytes(), what.as_bytes()], FNV_OFFSET);
    Builder::from_custom_bytes(mixed.to_be_bytes()).into_uuid().to_string()
}

const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// FNV-1a, 128 bits: it only has to give different names to different things, not to be secure.
fn hash_fnv1a(parts: &[&[u8]], start: u128) -> u128 {
    let bytes = parts.iter().flat_map(|part| part.iter().copied().chain([0xff]));
    bytes.fold(start, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn derived_uuids_are_reproducible_and_unique() {
        let process = Uuid::new_v4().to_string();
        assert_eq!(run_uuid(&process, 3), run_uuid(&process, 3));
        let mut names = BTreeSet::new();
        for n in 0..1000 {
            assert!(names.insert(run_uuid(&process, n)));
            assert!(names.insert(block_uuid(&process, "/A/B/C", n)));
            assert!(names.insert(block_uuid(&process, "/A/B/D", n)));
            assert!(names.insert(run_uuid(&Uuid::new_v4().to_string(), n)));
        }
        assert!(names.iter().all(|name| Uuid::parse_str(name).is_ok_and(|uuid| uuid.get_version_num() == 8)));
        let seeds: BTreeSet<u64> = (0..1000).map(|unit| random_seed(&process, unit)).collect();
        assert_eq!(seeds.len(), 1000);
    }
}
