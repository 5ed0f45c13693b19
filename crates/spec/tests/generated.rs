//! Checks that the checked-in files generated from the field tables are up to date.

use std::path::PathBuf;

/// Environment variable that makes the test write the files instead of comparing them.
const UPDATE: &str = "WINDLASS_UPDATE_GENERATED";

#[track_caller]
fn check(file: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(file);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "{file} is out of date; regenerate it with: {UPDATE}=1 cargo test -p windlass-spec --test generated"
    );
}

#[test]
fn generated_schema_is_up_to_date() {
    let text = serde_json::to_string_pretty(&windlass_spec::build_json_schema()).unwrap();
    check("windlass.schema.json", &(text + "\n"));
}

#[test]
fn generated_reference_is_up_to_date() {
    check("spec.md", &windlass_spec::render_reference());
}
