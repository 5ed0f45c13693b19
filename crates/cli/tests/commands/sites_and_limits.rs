//! Sites and limits with the real binary: jobs run only at their sites, and within the job limits of the
//! workflow, on one machine and on several.

use crate::common::{Sandbox, eventually};
use crate::serve::StoppedOnDrop;
use std::process::Child;

/// Jobs with the limit write a mark at their start and one at their end, and wait for `go` in between.
const MARKED: &str =
    "'echo start >> marks; until [ -e go ]; do sleep 0.02; done; sleep 0.05; echo end >> marks'";

/// A worker that is killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Worker {
    fn at(sandbox: &Sandbox, site: &str) -> Self {
        // Each has a separate state directory, as on separate machines.
        let state = format!("state-{site}");
        let args = ["worker", "--site", site, "--state-dir", &state, "--num-cpus", "8", "--persistent"];
        Self(sandbox.start(&args))
    }
}

/// The largest number of marked jobs that ran at the same time.
fn most_at_once(marks: &str) -> i32 {
    let mut now = 0;
    let after_each = marks.lines().map(|mark| {
        now += if mark == "start" { 1 } else { -1 };
        now
    });
    after_each.max().unwrap_or_default()
}

/// The statuses of all jobs whose names start with `prefix`.
fn statuses(sandbox: &Sandbox, prefix: &str) -> Vec<String> {
    let jobs = sandbox.json(&["jobs", "list", "1"]);
    let of_these =
        jobs.as_array().unwrap().iter().filter(|job| job["name"].as_str().unwrap().starts_with(prefix));
    of_these.map(|job| job["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn jobs_run_at_their_sites_within_job_limit() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.write(
        "places.yaml",
        &format!(
            "\
name: places
limits: {{licences: 2}}
jobs:
  - {{name: 'licensed_{{i}}', command: {MARKED}, limit: licences, parameters: {{i: '1:8'}}}}
  - name: '{{site}}_{{i}}'
    command: echo $WINDLASS_SITE > {{site}}_{{i}}.site
    sites: ['{{site}}']
    parameters: {{site: [north, south], i: '1:6'}}
  - {{name: far, command: echo $WINDLASS_SITE > far.site, sites: [east, west]}}
"
        ),
    );
    sandbox.windlass(&["submit", "places.yaml"]).exits(0).prints("21 jobs");
    let _workers = ["north", "south"].map(|site| Worker::at(&sandbox, site));

    // The jobs of both sites have completed, and two of the jobs with the limit have started.
    for site in ["north_", "south_"] {
        eventually(site, || statuses(&sandbox, site) == ["completed"; 6]);
    }
    eventually("two jobs hold the licences", || {
        sandbox.path("marks").exists() && sandbox.read("marks").lines().count() >= 2
    });
    assert_eq!(sandbox.read("marks"), "start\nstart\n");
    assert_eq!(statuses(&sandbox, "far"), ["ready"]);
    let waiting = statuses(&sandbox, "licensed_");
    assert_eq!(waiting.iter().filter(|status| *status == "ready").count(), 6, "{waiting:?}");
    let explanation = sandbox.windlass(&["why", "licensed_8"]).exits(0);
    let explanation = explanation.prints("ready; waiting for the limit `licences`, which is used up");
    explanation.prints("2 jobs with this limit are running or claimed, the maximum is 2");
    let explanation = sandbox.windlass(&["why", "far"]).exits(0);
    let explanation = explanation.prints("ready, but no worker is at east or west");
    explanation.prints(" is at north").prints(" is at south").prints("windlass worker --site east");

    sandbox.write("go", "");
    eventually("all that were licensed are done", || statuses(&sandbox, "licensed_") == ["completed"; 8]);
    let marks = sandbox.read("marks");
    assert_eq!((marks.lines().count(), most_at_once(&marks)), (16, 2), "{marks}");
    assert_eq!(statuses(&sandbox, "far"), ["ready"], "no worker is at its sites");

    let _west = Worker::at(&sandbox, "west");
    eventually("the last job is done", || statuses(&sandbox, "far") == ["completed"]);
    assert_eq!(sandbox.read("far.site"), "west\n");
    for site in ["north", "south"] {
        for i in 1..=6 {
            assert_eq!(sandbox.read(&format!("{site}_{i}.site")), format!("{site}\n"));
        }
    }
    served.stop();
}

#[test]
fn local_run_applies_job_limit_and_refuses_other_sites() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "one.yaml",
        &format!(
            "name: one\nlimits: {{disk: 1}}\njobs:\n  - {{name: 'j_{{i}}', command: {MARKED}, limit: disk, sites: [local], \
             parameters: {{i: '1:3'}}}}\n"
        ),
    );
    let mut run = sandbox.start(&["run", "one.yaml", "-j", "4"]);
    eventually("the first has begun", || sandbox.path("marks").exists());
    let waits = |job: &str| {
        let headline = sandbox.json(&["why", job])["headline"].as_str().unwrap().to_owned();
        headline == "ready; waiting for the limit `disk`, which is used up"
    };
    assert_eq!(["j_1", "j_2", "j_3"].into_iter().filter(|job| waits(job)).count(), 2);
    sandbox.write("go", "");
    assert!(run.wait().unwrap().success());
    assert_eq!(sandbox.read("marks"), "start\nend\n".repeat(3));

    sandbox.write("far.yaml", "name: far\njobs: [{name: a, command: 'true', sites: [north]}]\n");
    sandbox
        .windlass(&["run", "far.yaml"])
        .exits(2)
        .says("`a` runs only at north")
        .says("windlass worker --site");
}

#[test]
fn export_and_import_keep_sites_and_job_limits() {
    let sandbox = Sandbox::new();
    let spec = "name: w\nlimits: {disk: 1, spare: 7}\njobs:\n  - {name: a, command: 'true', limit: disk, sites: [north, south]}\n";
    sandbox.write("w.yaml", spec);
    sandbox.windlass(&["create", "w.yaml"]).exits(0).says("limit `spare` has no effect: no job uses it");
    let exported = sandbox.windlass(&["workflows", "export", "1"]).exits(0).stdout;
    sandbox.write("w.json", &exported);
    sandbox.windlass(&["workflows", "import", "w.json"]).exits(0);
    let parts = |text: &str| {
        let all: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut found = Vec::new();
        collect(&all, &mut found);
        found
    };
    let first = parts(&exported);
    assert_eq!(first.len(), 3, "{first:?}");
    assert_eq!(parts(&sandbox.windlass(&["workflows", "export", "2"]).exits(0).stdout), first);
}

/// Collects the values of sites and limits anywhere in an export.
fn collect(value: &serde_json::Value, found: &mut Vec<String>) {
    for item in value.as_array().into_iter().flatten() {
        collect(item, found);
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        if ["sites", "limit", "limits"].contains(&name.as_str()) && !value.is_null() {
            found.push(format!("{name}: {value}"));
        } else {
            collect(value, found);
        }
    }
}
