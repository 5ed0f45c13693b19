//! A migration from one database format to the next.

/// One migration. Its text never changes after a release; its checksum is stored in the database to detect
/// changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemaMigration {
    pub(crate) version: u32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The format that this version writes.
pub(crate) fn latest_version(migrations: &[SchemaMigration]) -> u32 {
    migrations.last().map_or(0, |migration| migration.version)
}

/// FNV-1a, 64 bits: sufficient to detect an edit.
pub(crate) fn checksum(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
