//! `windlass db` with the real binary: backups, checks, and migration to PostgreSQL.

use crate::common::{Sandbox, documented_keys};
use crate::postgres_server::database;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

fn with_database() -> Sandbox {
    let sandbox = Sandbox::new();
    let spec =
        "name: two\njobs:\n  - {name: a, command: echo a}\n  - {name: b, command: echo b, depends_on: [a]}\n";
    sandbox.write("two.yaml", spec);
    sandbox.windlass(&["run", "two.yaml"]).exits(0);
    sandbox
}

#[test]
fn database_is_backed_up_and_checked() {
    let sandbox = with_database();
    sandbox.windlass(&["db", "migrate"]).exits(0).prints("already");
    sandbox.windlass(&["db", "check"]).exits(0).prints("no problems found");
    sandbox.windlass(&["db", "backup", "kept.db"]).exits(0).prints("kept.db (");
    sandbox.windlass(&["--db", "named.db", "create", "two.yaml"]).exits(0);
    for file in ["kept.db", "named.db"] {
        let mode = std::fs::metadata(sandbox.path(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    sandbox.windlass(&["db", "backup", "kept.db"]).exits(4).says("already exists");
    sandbox.windlass(&["--db", "kept.db", "status"]).exits(0).prints("2 of 2 jobs completed");
    let checked = sandbox.json(&["--db", "kept.db", "db", "check"]);
    assert_eq!(documented_keys(&checked), BTreeSet::from(["checks", "problems"]));
}

#[test]
fn database_is_copied_to_postgresql() {
    let sandbox = with_database();
    let target = database();
    let url = target.url();
    sandbox.windlass(&["db", "copy", "elsewhere.db"]).exits(2).says("must be a PostgreSQL database");
    let copied = sandbox.json(&["db", "copy", &url]);
    assert_eq!(documented_keys(&copied), BTreeSet::from(["rows", "tables"]));
    sandbox.windlass(&["db", "copy", &url]).exits(4).says("not empty");
    sandbox.windlass(&["--db", &url, "db", "check"]).exits(0).prints("no problems found");
    sandbox.windlass(&["--db", &url, "db", "migrate"]).exits(0).prints("already");
    sandbox.windlass(&["--db", &url, "status"]).exits(0).prints("2 of 2 jobs completed");
    sandbox.windlass(&["--db", &url, "db", "backup", "b.db"]).exits(2).says("pg_dump");
    // Work continues in the new database.
    sandbox.write("more.yaml", "name: more\njobs:\n  - {name: c, command: echo c}\n");
    sandbox.windlass(&["--db", &url, "run", "more.yaml"]).exits(0);
    sandbox.windlass(&["--db", &url, "jobs", "2"]).exits(0).prints("completed");
    assert!(target.sql("SELECT name FROM workflow ORDER BY id").contains("more"));
}

#[test]
fn missing_postgresql_create_permission_is_explained() {
    let (sandbox, target) = (Sandbox::new(), database());
    let name = target.sql("SELECT current_database()");
    let role = format!("poor_{name}");
    target.sql(&format!("CREATE ROLE {role} LOGIN"));
    let url = target.url();
    let url = format!("postgres://{role}@{}", url.split_once('@').unwrap().1);
    sandbox
        .windlass(&["db", "migrate", "--db", &url])
        .exits(5)
        .says("permission denied")
        .says("GRANT CREATE");
    target.sql(&format!("DROP ROLE {role}"));
}
