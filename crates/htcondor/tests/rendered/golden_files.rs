//! Golden files in `tests/golden/`. With `WINDLASS_UPDATE_GENERATED=1` they are rewritten.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const UPDATE: &str = "WINDLASS_UPDATE_GENERATED";

/// All files below a directory, by their relative paths.
pub(crate) fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(directory).unwrap().to_owned());
            }
        }
    }
    found
}

pub(crate) fn compare(rendered: &Path, golden: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    if std::env::var_os(UPDATE).is_some() {
        if golden.is_dir() {
            fs::remove_dir_all(&golden).unwrap();
        }
        for name in files(rendered) {
            let place = golden.join(&name);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(rendered.join(&name), place).unwrap();
        }
    }
    assert_eq!(files(rendered), files(&golden));
    for name in files(rendered) {
        let read = |directory: &Path| fs::read_to_string(directory.join(&name)).unwrap();
        assert_eq!(read(rendered), read(&golden), "{}; {UPDATE}=1 rewrites it", name.display());
    }
}
