//! Commands of the steps of requests: copy their inputs, and optionally fail before.

use crate::test_server::TestServer;
use serde_json::json;

/// The last command of all steps.
const COPY: &str = "cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT";

pub(crate) fn submit(test_server: &TestServer, name: &str, input: &str, files: u64, trouble: &str) {
    let command = format!("{trouble}; {COPY}");
    test_server.submit_over(name, input, files, &json!({"name": "RECO", "command": command}));
}

/// A command that only the nodes that read this file run.
pub(crate) fn reading(file: &str, trouble: &str) -> String {
    format!("case \"$(cat $WINDLASS_INPUTS)\" in */{file}.txt*) {trouble} ;; esac")
}

pub(crate) fn path(test_server: &TestServer, file: &str) -> String {
    test_server.work.path().join(file).display().to_string()
}

pub(crate) fn until(test_server: &TestServer, file: &str) -> String {
    format!("until [ -e {} ]; do sleep 0.1; done", path(test_server, file))
}

/// A command that runs only while there is no such file.
pub(crate) fn unless(test_server: &TestServer, file: &str, what: &str) -> String {
    format!("[ -e {} ] || {{ {what}; }}", path(test_server, file))
}
