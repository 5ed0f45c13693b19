//! Statements for the catalog of datasets, for both SQLite and PostgreSQL.

use crate::db::BulkTable;

pub(crate) const FILES: BulkTable = BulkTable {
    name: "dataset_file",
    columns: &[
        "id",
        "dataset_id",
        "block_id",
        "lfn",
        "size",
        "events",
        "is_valid",
        "lumi_count",
        "checksums",
        "parents",
        "lumis",
    ],
};
pub(crate) const REPLICAS: BulkTable =
    BulkTable { name: "replica", columns: &["dataset_id", "file_id", "site", "path"] };

super::statements! {
    DATASET = "SELECT id FROM dataset WHERE name = $1";
    INSERT_DATASET = "INSERT INTO dataset (name, created_at, owner) VALUES ($1, $2, $3) RETURNING id";
    DATASET_AND_OWNER = "SELECT id, owner FROM dataset WHERE name = $1";
    /// The owner of a dataset that a request writes: from the latest such request.
    OWNER_OF_OUTPUT = "
        SELECT r.requestor FROM request_output o CROSS JOIN request r
        WHERE o.dataset = $1 AND r.name = o.request ORDER BY r.created_at DESC, r.name DESC LIMIT 1";
    /// Conditions and [`GROUP_DATASETS`] are appended.
    SELECT_DATASETS = "
        SELECT d.id, d.name, COUNT(CASE WHEN f.is_valid = 1 THEN 1 END), CAST(SUM(f.events * f.is_valid) AS BIGINT),
            CAST(SUM(f.lumi_count * f.is_valid) AS BIGINT), CAST(SUM(f.size * f.is_valid) AS BIGINT),
            COUNT(CASE WHEN f.is_valid = 0 THEN 1 END),
            (SELECT COUNT(*) FROM dataset_block b WHERE b.dataset_id = d.id), d.owner
        FROM dataset d LEFT JOIN dataset_file f ON f.dataset_id = d.id WHERE ";
    SITES_OF_DATASET = "SELECT site, COUNT(*) FROM replica WHERE dataset_id = $1 GROUP BY site";

    BLOCK = "SELECT id, dataset_id, closed_at FROM dataset_block WHERE name = $1";
    INSERT_BLOCK = "INSERT INTO dataset_block (dataset_id, name, created_at) VALUES ($1, $2, $3)";
    CLOSE_BLOCK = "UPDATE dataset_block SET closed_at = COALESCE(closed_at, $1) WHERE name = $2";
    SELECT_BLOCKS = "
        SELECT b.name, d.name, b.created_at, b.closed_at, (SELECT COUNT(*) FROM dataset_file f WHERE
            f.block_id = b.id)
        FROM dataset_block b JOIN dataset d ON d.id = b.dataset_id WHERE ";

    LAST_FILE = "SELECT COALESCE(MAX(id), 0) FROM dataset_file";
    FILE_NAMED = "SELECT id, dataset_id, block_id FROM dataset_file WHERE lfn = $1";
    CONTENT_OF_FILE = "
        SELECT id, lfn, size, events, checksums, parents, lumis, is_valid, lumi_count FROM dataset_file
        WHERE lfn = $1";
    NAME_OF_DATASET = "SELECT name FROM dataset WHERE id = $1";
    UPDATE_FILE = "
        UPDATE dataset_file SET size = $1, events = $2, is_valid = $3, lumi_count = $4, checksums = $5, parents = $6,
            lumis = $7
        WHERE id = $8";
    PUT_REPLICA = "
        INSERT INTO replica (dataset_id, file_id, site, path) VALUES ($1, $2, $3, $4)
        ON CONFLICT (dataset_id, file_id, site) DO UPDATE SET path = excluded.path";
    REMOVE_REPLICA = "
        DELETE FROM replica WHERE dataset_id = $1 AND file_id = $2 AND site = $3";
    INVALIDATE_FILE = "UPDATE dataset_file SET is_valid = 0 WHERE id = $1 AND is_valid = 1";
    FILES_OF_DATASET = "
        SELECT id, lfn, size, events, checksums, parents, lumis, is_valid, lumi_count FROM dataset_file
        WHERE dataset_id = $1 ORDER BY id";
    REPLICAS_OF_DATASET = "
        SELECT file_id, site, path FROM replica WHERE dataset_id = $1 ORDER BY file_id, site";
    /// Valid files, or with 0 all files.
    COUNT_OF_FILES = "SELECT COUNT(*) FROM dataset_file WHERE dataset_id = $1 AND is_valid >= $2";
    PAGE_OF_FILES = "
        SELECT id, lfn, size, events, checksums, parents, lumis, is_valid, lumi_count FROM dataset_file
        WHERE dataset_id = $1 AND is_valid >= $2 ORDER BY id LIMIT $3 OFFSET $4";
    REPLICAS_OF_PAGE = "
        SELECT file_id, site, path FROM replica WHERE dataset_id = $1 AND file_id BETWEEN $2 AND $3
        ORDER BY file_id, site";
    FILES_OF_BLOCK = "
        SELECT id, lfn, size, events, checksums, parents, lumis, is_valid, lumi_count FROM dataset_file
        WHERE block_id = $1 ORDER BY id";
    REPLICAS_OF_BLOCK = "
        SELECT r.file_id, r.site, r.path FROM dataset_file f CROSS JOIN replica r
        WHERE f.block_id = $1 AND r.dataset_id = f.dataset_id AND r.file_id = f.id ORDER BY r.file_id, r.site";

    RULE_LIKE = "SELECT uuid FROM replication_rule WHERE name = $1 AND rse_expression = $2 AND copies = $3";
    INSERT_RULE = "
        INSERT INTO replication_rule (uuid, name, rse_expression, copies, lifetime, comment, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    DELETE_RULE = "DELETE FROM replication_rule WHERE uuid = $1";
    SELECT_RULES = "
        SELECT r.uuid, r.name, r.rse_expression, r.copies, r.lifetime, r.comment, r.created_at
        FROM replication_rule r WHERE ";
}

pub(crate) const GROUP_DATASETS: &str = " GROUP BY d.id, d.name, d.owner ORDER BY d.name";

/// Deletes a dataset with its parts, in an order without dangling references.
pub(crate) const DELETE_DATASET: &[&str] = &[
    "DELETE FROM replica WHERE dataset_id = $1",
    "DELETE FROM dataset_file WHERE dataset_id = $1",
    "DELETE FROM dataset_block WHERE dataset_id = $1",
    "DELETE FROM dataset WHERE id = $1",
];
