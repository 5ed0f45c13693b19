//! Commands of the steps of requests: copy their inputs, and optionally fail before.

use crate::test_server::House;
use serde_json::json;

/// The last command of all steps.
const COPY: &str = "cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT";

pub(crate) fn submit(house: &House, name: &str, input: &str, files: u64, trouble: &str) {
    let command = format!("{trouble}; {COPY}");
    house.submit_over(name, input, files, &json!({"name": "RECO", "command": command}));
}

/// A command that only the nodes that read this file run.
pub(crate) fn reading(file: &str, trouble: &str) -> String {
    format!("case \"$(cat $WINDLASS_INPUTS)\" in */{file}.txt*) {trouble} ;; esac")
}

pub(crate) fn path(house: &House, file: &str) -> String {
    house.work.path().join(file).display().to_string()
}

pub(crate) fn until(house: &House, file: &str) -> String {
    format!("until [ -e {} ]; do sleep 0.1; done", path(house, file))
}

/// A command that runs only while there is no such file.
pub(crate) fn unless(house: &House, file: &str, what: &str) -> String {
    format!("[ -e {} ] || {{ {what}; }}", path(house, file))
}
