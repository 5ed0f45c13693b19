//! Finds names by their text without storing the text twice.
//!
//! Fx hashing is fast but not hardened against chosen collisions, which is acceptable for the user's own files.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// Numbers of names; the caller stores the names.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    table: HashTable<u32>,
}

impl NameIndex {
    pub(crate) fn with_capacity(names: usize) -> Self {
        Self { table: HashTable::with_capacity(names) }
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
    }

    /// Adds `name` under `number`, or returns the number that it already has.
    pub(crate) fn insert<'n>(
        &mut self,
        name: &str,
        number: u32,
        name_of: impl Fn(u32) -> &'n str,
    ) -> Option<u32> {
        let same = |known: &u32| name_of(*known) == name;
        match self.table.entry(hash_name(name), same, |known| hash_name(name_of(*known))) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(place) => {
                place.insert(number);
                None
            }
        }
    }

    pub(crate) fn find<'n>(&self, name: &str, name_of: impl Fn(u32) -> &'n str) -> Option<u32> {
        self.table.find(hash_name(name), |known| name_of(*known) == name).copied()
    }
}

fn hash_name(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}
