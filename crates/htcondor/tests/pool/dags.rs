//! Small runs with the files in the places that Windlass uses, and shell scripts instead of its binary: they test
//! how DAGMan behaves and how its files are parsed.

use crate::support::{Pool, Work};
use std::fmt::Write as _;
use std::path::Path;

pub(crate) const NODES: [&str; 4] = ["landing", "proc_000000", "proc_000001", "merge"];

/// A POST script creates a file as its last action, whose time marks its end.
const POST: &str =
    "#!/bin/sh\n[ \"$2\" = 43 ] && touch abort\n[ \"$2\" -lt 0 ] && exit 1\ntouch \"$1.over\"\nexit \"$2\"\n";
const UNIT: &str = "#!/bin/sh\n[ -e abort ] && exit 43\ntouch over\nexit \"$1\"\n";
/// The behavior of a job is in a file, which a test changes before a rescue.
const JOB: &str = "#!/bin/sh\ncase \"$(cat \"$1\" 2>/dev/null)\" in\n  fail) exit 42;; abort) exit 43;; slow) sleep 600;;\n  \
    wait) while [ -e \"$1\" ]; do sleep 0.1; done;; esac\n";

/// A run of `units` units with four nodes each.
pub(crate) fn write_run(work: &Work, units: u32) {
    work.write_script("post.sh", POST);
    work.write_script("unit.sh", UNIT);
    work.write_script("job.sh", JOB);
    work.write("dagman.config", "DAGMAN_USER_LOG_SCAN_INTERVAL = 1\nDAGMAN_MAX_JOB_HOLDS = 100\n");
    let run = work.path().display();
    let submit = format!(
        "executable = {run}/job.sh\narguments = {run}/$(unit)/$(JOB).mode\noutput = $(JOB).out\nerror = $(JOB).err\n\
         request_cpus = 1\nrequest_memory = 50\nrequest_disk = 1MB\nulog_execute_attrs = GLIDEIN_CMSSite\nqueue\n"
    );
    work.write("job.sub", &submit);
    let mut outer = String::from(
        "CONFIG dagman.config\nNODE_STATUS_FILE workflow.status 5\nJOBSTATE_LOG workflow.jobstate\n",
    );
    for unit in (0..units).map(|number| format!("mg_{number:06}")) {
        writeln!(outer, "SUBDAG EXTERNAL {unit} group.dag DIR {unit}").unwrap();
        writeln!(outer, "SCRIPT POST {unit} {run}/unit.sh $RETURN").unwrap();
        writeln!(outer, "ABORT-DAG-ON {unit} 43 RETURN 1").unwrap();
        work.write(&format!("{unit}/group.dag"), &group(&unit));
    }
    work.write("workflow.dag", &outer);
}

fn group(unit: &str) -> String {
    let mut group = String::from("NODE_STATUS_FILE group.status 5\nJOBSTATE_LOG group.jobstate\n");
    for node in NODES {
        writeln!(group, "JOB {node} ../job.sub\nVARS {node} unit=\"{unit}\"").unwrap();
        writeln!(group, "SCRIPT POST {node} ../post.sh $JOB $RETURN\nRETRY {node} 1 UNLESS-EXIT 42").unwrap();
        writeln!(group, "ABORT-DAG-ON {node} 43 RETURN 1").unwrap();
    }
    group += "PARENT landing CHILD proc_000000 proc_000001\nPARENT proc_000000 proc_000001 CHILD merge\n";
    group
}

/// Sets the behavior of a node from now on.
pub(crate) fn set_mode(work: &Work, unit: &str, node: &str, mode: &str) {
    work.write(&format!("{unit}/{node}.mode"), mode);
}

/// Submits the DAG; returns the cluster of its DAGMan.
pub(crate) fn submit(pool: &Pool, run: &Path) -> u64 {
    let mut command = pool.command(pool.bin().join("condor_submit_dag"));
    let output = command.arg("workflow.dag").current_dir(run).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let cluster = told.lines().find_map(|line| line.strip_prefix("1 job(s) submitted to cluster "));
    cluster.and_then(|rest| rest.trim_end_matches('.').parse().ok()).unwrap_or_else(|| panic!("{output:?}"))
}
