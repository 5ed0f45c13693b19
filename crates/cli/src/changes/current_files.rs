//! The present state of declared files. Each file is inspected once, so that decisions and stored records
//! agree.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use windlass_store::model::WorkflowRow;
use windlass_types::worker_messages::{AttemptFiles, FileSnapshot};
use windlass_worker::FileInspector;

pub(super) struct CurrentFiles {
    files: FileInspector,
    with_contents: bool,
    states: RefCell<HashMap<String, Option<FileSnapshot>>>,
    /// All declared paths.
    paths: OnceCell<BTreeSet<String>>,
}

impl CurrentFiles {
    pub(super) fn new(row: &WorkflowRow, with_contents: bool) -> Self {
        let files = FileInspector::new(PathBuf::from(&row.submission_dir), windlass_types::SystemClock);
        Self { files, with_contents, states: RefCell::default(), paths: OnceCell::new() }
    }

    pub(super) fn state(&self, path: &str) -> Option<FileSnapshot> {
        if let Some(known) = self.states.borrow().get(path) {
            return known.clone();
        }
        let state = self.files.inspect_files(&[path.to_owned()], self.with_contents).pop().flatten();
        self.states.borrow_mut().insert(path.to_owned(), state.clone());
        state
    }

    /// The files of a job; `None` if the job has none.
    pub(super) fn files_seen(
        &self,
        inputs: &[Cow<'_, str>],
        outputs: &[Cow<'_, str>],
    ) -> Option<AttemptFiles> {
        let states = |paths: &[Cow<'_, str>]| paths.iter().map(|path| self.state(path)).collect();
        let has_files = !inputs.is_empty() || !outputs.is_empty();
        has_files.then(|| AttemptFiles { inputs: states(inputs), outputs: states(outputs) })
    }

    /// Whether a declared file lies in this directory. `declared` is called once.
    pub(super) fn is_shared_directory(
        &self,
        directory: &str,
        declared: impl FnOnce() -> BTreeSet<String>,
    ) -> bool {
        let start = format!("{}/", directory.trim_end_matches('/'));
        let first = self.paths.get_or_init(declared).range(start.clone()..).find(|path| **path != start);
        first.is_some_and(|path| path.starts_with(&start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_with_other_declared_files_is_shared() {
        let present = CurrentFiles {
            files: FileInspector::new(PathBuf::new(), windlass_types::SystemClock),
            with_contents: false,
            states: RefCell::default(),
            paths: OnceCell::new(),
        };
        let declared = || ["out", "out.txt", "run/", "run/a", "solo/"].map(str::to_owned).into();
        let shared = ["out", "run", "run/", "run/a", "solo/", "solo"]
            .map(|path| present.is_shared_directory(path, declared));
        assert_eq!(shared, [false, true, true, false, false, false]);
    }
}
