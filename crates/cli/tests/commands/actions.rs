//! Workflow actions: when and how often they run, and how they are shown.

use crate::common::{Sandbox, children_of, documented_keys, eventually, is_alive, kill};
use crate::serve::StoppedOnDrop;
use serde_json::Value;
use std::fs;

const AROUND: &str = "\
name: around
jobs:
  - {name: a, command: 'echo a >> $TORC_OUTPUT_DIR/order'}
  - {name: b, command: 'echo b >> $TORC_OUTPUT_DIR/order', depends_on: [a]}
actions:
  - {trigger_type: on_worker_complete, action_type: run_commands, commands: ['echo worker-end >> order']}
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ['echo end >> order']}
  - {trigger_type: on_worker_start, action_type: run_commands, persistent: true, commands: ['echo worker >> order']}
  - trigger_type: on_workflow_start
    action_type: run_commands
    commands: ['echo start >> order', 'echo $WINDLASS_WORKFLOW_ID/$TORC_RUN_ID > who', 'echo said']
  - {trigger_type: on_jobs_complete, action_type: run_commands, jobs: [a, b], commands: ['touch both']}
";

fn states(sandbox: &Sandbox) -> Vec<String> {
    let listed = sandbox.json(&["workflows", "actions"]);
    let word = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let state = |one: &Value| format!("{} {}", word(one, "trigger_type"), word(one, "state"));
    documented_keys(&listed[0]);
    listed.as_array().unwrap().iter().map(state).collect()
}

fn categories(sandbox: &Sandbox) -> String {
    sandbox.windlass(&["events"]).exits(0).stdout
}

#[test]
fn actions_run_once_at_their_trigger() {
    let sandbox = Sandbox::new();
    sandbox.write("around.yaml", AROUND);
    let output = sandbox.windlass(&["run", "around.yaml"]).exits(0);
    assert!(!output.stderr.contains("not carried out"), "{}", output.stderr);
    let read = |name: &str| fs::read_to_string(sandbox.path("windlass_output").join(name)).unwrap();
    assert_eq!(read("order"), "start\nworker\na\nb\nend\nworker-end\n");
    assert_eq!(read("who"), "1/1\n");
    assert_eq!(read("actions/action_wf1_a4_r1_n1.log"), "said\n");
    assert!(sandbox.path("windlass_output/both").exists());
    assert!(states(&sandbox).iter().all(|state| state.ends_with(" completed")), "{:?}", states(&sandbox));
    let told = categories(&sandbox);
    for category in ["action_triggered", "action_started", "action_completed"] {
        assert_eq!(told.matches(category).count(), 5, "{category}: {told}");
    }
    sandbox.windlass(&["run", "around.yaml"]).exits(0);
    assert_eq!(read("order").lines().count(), 6, "nothing is left to do");
}

#[test]
fn failed_action_is_reported_and_can_be_retried() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "shaky.yaml",
        "name: shaky\njobs: [{name: a, command: 'true'}]\nactions:\n  - {trigger_type: on_workflow_complete, \
         action_type: run_commands, commands: ['echo tried >> tries', 'test -e ../allowed', 'touch later']}\n",
    );
    sandbox.windlass(&["run", "shaky.yaml"]).exits(0).says("action 1 failed").says("command 2 of 3");
    assert_eq!(states(&sandbox), ["on_workflow_complete failed"]);
    assert!(!sandbox.path("windlass_output/later").exists());
    assert!(categories(&sandbox).contains("action_failed"));
    sandbox.write("allowed", "");
    sandbox.windlass(&["workflows", "actions", "retry", "1"]).exits(0).says("action 1 completed");
    assert_eq!(states(&sandbox), ["on_workflow_complete completed"]);
    let tries = fs::read_to_string(sandbox.path("windlass_output/tries")).unwrap();
    assert_eq!(tries.lines().count(), 2);
    sandbox.windlass(&["workflows", "actions", "show", "1"]).exits(0).prints("completed");
}

#[test]
fn retry_repeats_only_actions_of_rerun_jobs_and_workflow_end() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "again.yaml",
        "name: again\njobs:\n  - {name: good, command: 'true'}\n  - {name: bad, command: 'test -e fixed'}\nactions:\n\
         \x20 - {trigger_type: on_workflow_start, action_type: run_commands, commands: ['echo start >> order']}\n\
         \x20 - {trigger_type: on_jobs_complete, action_type: run_commands, jobs: [good], commands: ['echo good >> order']}\n\
         \x20 - {trigger_type: on_jobs_complete, action_type: run_commands, jobs: [bad], commands: ['echo bad >> order']}\n\
         \x20 - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ['echo end >> order']}\n",
    );
    sandbox.windlass(&["run", "again.yaml"]).exits(1);
    sandbox.write("fixed", "");
    sandbox.windlass(&["resume", "--retry-failed"]).exits(0);
    let order = fs::read_to_string(sandbox.path("windlass_output/order")).unwrap();
    let mut first: Vec<&str> = order.lines().take(4).collect();
    first.sort_unstable();
    assert_eq!(first, ["bad", "end", "good", "start"]);
    assert_eq!(order.lines().skip(4).collect::<Vec<_>>(), ["bad", "end"], "{order}");
}

#[test]
fn interrupted_action_is_shown_and_not_repeated() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "killed.yaml",
        "name: killed\njobs: [{name: a, command: 'true'}]\nactions:\n  - {trigger_type: on_workflow_start, \
         action_type: run_commands, commands: ['echo $$ >> began; exec sleep 1000']}\n",
    );
    let mut run = sandbox.start(&["run", "killed.yaml"]);
    let began = || fs::read_to_string(sandbox.path("windlass_output/began")).unwrap_or_default();
    eventually("the action runs", || began().ends_with('\n'));
    let action: u32 = began().trim().parse().unwrap();
    assert_eq!(states(&sandbox), ["on_workflow_start running"]);
    kill(run.id(), "STOP");
    for worker in children_of(run.id()).into_iter().filter(|pid| *pid != action) {
        kill(worker, "KILL");
    }
    kill(run.id(), "KILL");
    run.wait().unwrap();
    assert!(is_alive(action), "no process was left to end it");
    sandbox.windlass(&["resume"]).exits(0).says("an action was running");
    assert!(!is_alive(action));
    assert_eq!(states(&sandbox), ["on_workflow_start interrupted"]);
    assert_eq!(began().lines().count(), 1);
}

/// A workflow with actions that workers of a server execute.
const SERVED: &str = "\
name: served
jobs:
  - {name: a, command: 'echo a >> $TORC_OUTPUT_DIR/order'}
actions:
  - {trigger_type: on_worker_complete, action_type: run_commands, persistent: true, commands: ['echo worker-end >> order']}
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ['echo end >> order', 'test -e ../allowed']}
  - {trigger_type: on_worker_start, action_type: run_commands, persistent: true, commands: ['echo worker >> order']}
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: ['echo start >> order; echo $WINDLASS_URL > url']}
";

#[test]
fn server_worker_runs_actions_around_its_jobs() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.write("served.yaml", SERVED);
    let output = sandbox.windlass(&["submit", "served.yaml"]).exits(0);
    assert!(!output.stderr.contains("not carried out"), "{}", output.stderr);
    sandbox.windlass(&["worker", "-w", "1"]).exits(0);
    let read = |name: &str| fs::read_to_string(sandbox.path("windlass_output").join(name)).unwrap();
    assert_eq!(read("order"), "start\nworker\na\nend\nworker-end\n");
    assert!(read("url").starts_with("http://"), "{}", read("url"));
    let failed = ["on_worker_complete completed", "on_workflow_complete failed"];
    assert_eq!(states(&sandbox)[..2], failed);
    assert!(categories(&sandbox).contains("action_failed"));

    // Retried: the next worker that connects executes it.
    sandbox.write("allowed", "");
    sandbox.windlass(&["workflows", "actions", "retry", "2"]).exits(0).says("next available worker");
    assert_eq!(states(&sandbox)[1], "on_workflow_complete due");
    sandbox.windlass(&["worker", "-w", "1"]).exits(0);
    assert_eq!(states(&sandbox)[1], "on_workflow_complete completed");
    let again = read("order");
    assert_eq!(again.lines().filter(|line| *line == "end").count(), 2, "{again}");
    sandbox.windlass(&["workflows", "actions", "retry", "4711"]).exits(2).says("no action 4711");
    served.stop();
}

#[test]
fn action_of_killed_worker_and_server_is_not_repeated() {
    let sandbox = Sandbox::new();
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0", "--lease", "2s"]);
    sandbox.write(
        "killed.yaml",
        "name: killed\njobs: [{name: a, command: 'true'}]\nactions:\n  - {trigger_type: on_workflow_start, \
         action_type: run_commands, commands: ['echo $$ >> began; exec sleep 1000']}\n",
    );
    sandbox.windlass(&["submit", "killed.yaml"]).exits(0);
    let mut worker = sandbox.start(&["worker", "-w", "1"]);
    let began = || fs::read_to_string(sandbox.path("windlass_output/began")).unwrap_or_default();
    eventually("the action runs", || began().ends_with('\n'));
    assert_eq!(states(&sandbox), ["on_workflow_start running"]);
    kill(worker.id(), "KILL");
    worker.wait().unwrap();
    drop(served);
    let served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0", "--lease", "2s"]);
    let is_found = || sandbox.command(&["ping"]).output().unwrap().status.success();
    eventually("the server that was started anew is found", is_found);
    // Another worker on this machine kills the remaining processes of the dead one, and continues with the
    // jobs.
    sandbox.windlass(&["worker", "-w", "1"]).exits(0).says("1 job completed");
    assert_eq!(states(&sandbox), ["on_workflow_start interrupted"]);
    assert_eq!(began().lines().count(), 1);
    assert!(!is_alive(began().trim().parse().unwrap()));
    served.stop();
}
