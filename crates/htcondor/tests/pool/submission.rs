//! A DAG is submitted exactly once, in spite of crashes.

use crate::small_dags::{Dag, number};
use crate::support::{OTHER_SCHEDD, Pool, eventually};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;
use windlass_htcondor::commands::{CondorClient, CondorError};
use windlass_htcondor::submit::{
    self, DagStartup, DagSubmitError, RECORD_FILE, SubmissionRecord, SubmitLock,
};
use windlass_htcondor::watch::{DagPoller, DagState};

/// Kills a first process at some point; however many processes follow, there is one DAG.
fn one_dag_although_killed(when: &str, tool: &str, submission: u32) {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "killed");
    if submission > 1 {
        let first = submit::submit(&dag.condor(), dag.work.path(), &dag.batch).unwrap();
        eventually("the first process has ended", || {
            dag.condor().dagman_jobs(&[first.cluster]).unwrap().is_empty()
        });
        // Files that this process, which may be root, has written there.
        dag.work.give_away();
    }
    let tools = dag.killing_tools();
    tools.strike(when, tool);
    let killed = dag.hand_over(&tools.directory, submission).output().unwrap();
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    let found = number(&dag.hand_over(&tools.directory, submission).output().unwrap());
    assert_eq!(number(&dag.hand_over(&tools.directory, submission).output().unwrap()), found);
    let clusters = dag.clusters();
    assert_eq!(clusters.len(), submission as usize, "{clusters:?}");
    assert_eq!(clusters.last(), Some(&found));
    let record = SubmissionRecord::load(dag.work.path()).unwrap().unwrap();
    assert_eq!(record.submissions.len(), submission as usize, "{record:?}");
    assert!(record.submissions.iter().all(|submission| submission.has_started), "{record:?}");
}

#[test]
fn kill_during_search_leaves_one_dag() {
    one_dag_although_killed("before", "condor_q", 1);
}

#[test]
fn kill_before_submission_leaves_one_dag() {
    one_dag_although_killed("before", "condor_submit_dag", 1);
}

#[test]
fn kill_after_submission_leaves_one_dag() {
    one_dag_although_killed("after", "condor_submit_dag", 1);
}

#[test]
fn kill_before_rescue_submission_leaves_one_dag() {
    one_dag_although_killed("before", "condor_submit_dag", 2);
}

#[test]
fn kill_after_rescue_submission_leaves_one_dag() {
    one_dag_although_killed("after", "condor_submit_dag", 2);
}

#[test]
fn repeated_kills_during_recovery_leave_one_dag() {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "twice");
    let tools = dag.killing_tools();
    for (when, tool) in [("after", "condor_submit_dag"), ("after", "condor_q"), ("before", "condor_history")]
    {
        tools.strike(when, tool);
        let killed = dag.hand_over(&tools.directory, 1).output().unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    }
    let found = number(&dag.hand_over(&tools.directory, 1).output().unwrap());
    assert_eq!(dag.clusters(), [found]);
}

#[test]
fn submission_waits_for_a_command_of_a_killed_caller() {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "orphan");
    let tools = dag.killing_tools();
    tools.strike("meanwhile", "condor_submit_dag");
    let killed =
        dag.hand_over(&tools.directory, 1).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(killed.signal(), Some(9), "{killed:?}");
    let next = dag.hand_over(&tools.directory, 1).stdout(Stdio::piped()).spawn().unwrap();
    let files = format!("/proc/{}/fd", next.id());
    let is_lock =
        |file: fs::DirEntry| fs::read_link(file.path()).is_ok_and(|to| to.ends_with(submit::LOCK_FILE));
    eventually("the next one waits for the lock", || fs::read_dir(&files).unwrap().flatten().any(is_lock));
    tools.go();
    let found = number(&next.wait_with_output().unwrap());
    assert_eq!(dag.clusters(), [found]);
}

#[test]
fn kill_while_watching_startup_leaves_one_dag() {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "watching");
    let mut first = dag.hand_over(&pool.bin(), 1).stdout(Stdio::null()).spawn().unwrap();
    let known = || {
        SubmissionRecord::load(dag.work.path())
            .unwrap()
            .is_some_and(|record| record.submissions[0].cluster.is_some())
    };
    eventually("its cluster id is recorded", known);
    first.kill().unwrap();
    first.wait().unwrap();
    let found = number(&dag.hand_over(&pool.bin(), 1).output().unwrap());
    assert_eq!(dag.clusters(), [found]);
}

#[test]
fn concurrent_submissions_make_one_dag() {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "race");
    let start =
        |_| dag.hand_over(&pool.bin(), 1).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let racers: Vec<_> = (0..4).map(start).collect();
    let told: Vec<u64> = racers.into_iter().map(|racer| number(&racer.wait_with_output().unwrap())).collect();
    assert_eq!(told, [told[0]; 4]);
    assert_eq!(dag.clusters(), [told[0]]);
}

#[test]
fn dag_rejected_by_dagman_is_reported_with_its_reason() {
    let pool = Pool::shared();
    let dag = Dag::new(&pool, "broken", "JOB a sleep.sub NOOP\nPARENT a CHILD undeclared\n");
    let refused = || {
        let error = submit::submit(&dag.condor(), dag.work.path(), &dag.batch).unwrap_err();
        let DagSubmitError::Rejected { cluster, reason } = error else { panic!("{error}") };
        assert!(reason.contains("workflow.dag (line 4)") && reason.contains("undeclared"), "{reason}");
        eventually("it is gone", || dag.condor().dagman_jobs(&[cluster]).unwrap().is_empty());
        cluster
    };
    let mut clusters = vec![refused()];
    // A repeated call submits again: the cause may have been fixed.
    clusters.push(refused());
    assert_eq!(dag.clusters(), clusters);
    dag.work.write("workflow.dag", "JOBSTATE_LOG workflow.jobstate\nJOB a sleep.sub NOOP\n");
    let corrected = submit::submit(&dag.condor(), dag.work.path(), &dag.batch).unwrap();
    clusters.push(corrected.cluster);
    assert_eq!((corrected.startup, corrected.number, dag.clusters()), (DagStartup::Started, 1, clusters));
    assert_eq!(
        submit::submit(&dag.condor(), dag.work.path(), &dag.batch).unwrap().cluster,
        corrected.cluster
    );
    assert_eq!(dag.clusters().len(), 3, "it is there");
}

/// Processes continue from the record of a rejection, written before or after the end of the process that saw
/// it.
#[test]
fn kill_around_a_rejection_is_recovered() {
    let pool = Pool::shared();
    let dag = Dag::new(&pool, "rejected", "JOB a sleep.sub NOOP\nPARENT a CHILD undeclared\n");
    let tools = dag.killing_tools();
    let killed = |when: &str, tool: &str| {
        tools.strike(when, tool);
        let killed = dag.hand_over(&tools.directory, 1).output().unwrap();
        assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    };
    let refused = || {
        let told = dag.hand_over(&tools.directory, 1).output().unwrap();
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(!told.status.success() && said.contains("undeclared"), "{said}");
        eventually("it is gone", || dag.condor().find_dags(&dag.batch).unwrap().is_empty());
    };
    killed("after", "condor_submit_dag");
    refused();
    assert_eq!(dag.clusters().len(), 1, "it was found and rejected");
    killed("before", "condor_submit_dag");
    killed("after", "condor_submit_dag");
    refused();
    assert_eq!(dag.clusters().len(), 2);
    dag.work.write("workflow.dag", "JOBSTATE_LOG workflow.jobstate\nJOB a sleep.sub NOOP\n");
    killed("after", "condor_submit_dag");
    let found = number(&dag.hand_over(&tools.directory, 1).output().unwrap());
    assert_eq!(dag.clusters().last(), Some(&found));
    assert_eq!(dag.clusters().len(), 3, "neither lost nor duplicated");
}

#[test]
fn files_do_not_change_while_a_dag_is_queued_or_ending() {
    let pool = Pool::shared();
    let dag = Dag::long(&pool, "prepared");
    let condor = dag.condor();
    let lock = || SubmitLock::open(&condor, dag.work.path(), &dag.batch).unwrap();
    assert!(lock().may_change_files(1).unwrap());
    let first = submit::submit(&condor, dag.work.path(), &dag.batch).unwrap();
    assert!(!lock().may_change_files(1).unwrap(), "it is made");
    let early = lock().check_not_running().unwrap_err();
    assert!(matches!(early, DagSubmitError::StillQueued { cluster } if cluster == first.cluster), "{early}");
    let log = || dag.work.read("workflow.jobstate");
    eventually("its node is in the queue", || log().contains("a SUBMIT"));
    assert!(condor.remove(first.cluster, "to be rescued").unwrap());
    eventually("it may be prepared", || match lock().may_change_files(2) {
        Err(DagSubmitError::StillQueued { .. } | DagSubmitError::StillEnding { .. }) => false,
        other => other.unwrap(),
    });
    assert_eq!(condor.count_jobs(&dag.batch).unwrap(), 0, "no jobs of the previous one are left");
    let lock = lock();
    assert_eq!((lock.next_number(), lock.was_submitted()), (2, true));
}

#[test]
fn unknown_schedd_is_unreachable_and_leaves_no_record() {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "nowhere");
    let condor = CondorClient { schedd: Some("schedd@nowhere.example".into()), ..dag.condor() };
    let error = submit::submit(&condor, dag.work.path(), &dag.batch).unwrap_err();
    assert!(matches!(&error, DagSubmitError::Condor(CondorError::Unreachable { .. })), "{error}");
    assert!(error.is_transient() && error.to_string().contains("schedd@nowhere.example"), "{error}");
    let submitted = submit::submit(&dag.condor(), dag.work.path(), &dag.batch).unwrap();
    assert_eq!((submitted.number, submitted.schedd, dag.clusters()), (1, None, vec![submitted.cluster]));
}

#[test]
fn submission_that_times_out_is_found_later() {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "slow");
    let real = pool.bin();
    let slow = format!("#!/bin/sh\n{}/condor_submit_dag \"$@\"\nsleep 1000\n", real.display());
    dag.work.write_script("tools/condor_submit_dag", &slow);
    dag.work.write_script("tools/condor_q", &format!("#!/bin/sh\nexec {}/condor_q \"$@\"\n", real.display()));
    let condor = CondorClient {
        tools_directory: Some(dag.work.path().join("tools")),
        timeout: Duration::from_secs(10),
        ..dag.condor()
    };
    let error = submit::submit(&condor, dag.work.path(), &dag.batch).unwrap_err();
    assert!(matches!(&error, DagSubmitError::Condor(CondorError::TimedOut { .. })), "{error}");
    let found = submit::submit(&dag.condor(), dag.work.path(), &dag.batch).unwrap();
    assert_eq!(dag.clusters(), [found.cluster]);
}

#[test]
fn rescue_waits_for_the_end_and_keeps_completed_nodes() {
    let pool = Pool::shared();
    let dag = Dag::new(
        &pool,
        "rescue",
        "JOB done sleep.sub NOOP\nJOB a sleep.sub NOOP\nSCRIPT PRE a /usr/bin/test -e ok\n\
                       JOB stays sleep.sub\n",
    );
    let condor = dag.condor();
    let first = submit::submit(&condor, dag.work.path(), &dag.batch).unwrap();
    let early = submit::submit_rescue(&condor, dag.work.path(), &dag.batch, 2).unwrap_err();
    assert!(matches!(early, DagSubmitError::StillQueued { cluster } if cluster == first.cluster), "{early}");
    assert!(early.is_transient());
    eventually("two nodes have ended", || {
        let log = dag.work.read("workflow.jobstate");
        log.contains("done JOB_SUCCESS") && log.contains("a PRE_SCRIPT_FAILURE")
    });
    assert!(condor.remove(first.cluster, "to be rescued").unwrap());
    eventually("it is gone", || condor.dagman_jobs(&[first.cluster]).unwrap().is_empty());
    dag.work.write("ok", "");
    let skipped = submit::submit_rescue(&condor, dag.work.path(), &dag.batch, 3).unwrap_err();
    assert!(matches!(skipped, DagSubmitError::WrongNumber { number: 3, next: 2 }), "{skipped}");
    let second = submit::submit_rescue(&condor, dag.work.path(), &dag.batch, 2).unwrap();
    assert_eq!(second.startup, DagStartup::Started);
    assert_eq!(submit::submit_rescue(&condor, dag.work.path(), &dag.batch, 2).unwrap(), second);
    assert_eq!(submit::submit(&condor, dag.work.path(), &dag.batch).unwrap().cluster, first.cluster);
    eventually("the failed node succeeds", || dag.work.read("workflow.jobstate").contains("a JOB_SUCCESS"));
    let log = dag.work.read("workflow.jobstate");
    assert_eq!(log.matches("done JOB_SUCCESS").count(), 1, "completed nodes do not run again: {log}");
    assert_eq!(dag.clusters(), [first.cluster, second.cluster]);
}

/// A rescue needs only the files of the DAG: it may run at another schedd.
#[test]
fn rescue_continues_at_another_schedd() {
    let pool = Pool::shared();
    let dag = Dag::new(&pool, "moved", "JOB a sleep.sub NOOP\nJOB b sleep.sub\nPARENT a CHILD b\n");
    let (here, directory) = (dag.condor(), dag.work.path());
    let there = CondorClient { schedd: Some(OTHER_SCHEDD.into()), ..dag.condor() };
    let first = submit::submit(&there, directory, &dag.batch).unwrap();
    let log = || dag.work.read("workflow.jobstate");
    eventually("it is half done", || log().contains("b SUBMIT"));
    let lock = || SubmitLock::open(&here, directory, &dag.batch).unwrap();
    let early = lock().check_not_running().unwrap_err();
    assert!(matches!(early, DagSubmitError::StillQueued { cluster } if cluster == first.cluster), "{early}");
    assert!(there.remove(first.cluster, "its schedd is stopped").unwrap());
    eventually("none of its jobs are left there", || match lock().may_change_files(2) {
        Err(DagSubmitError::StillQueued { .. } | DagSubmitError::StillEnding { .. }) => false,
        other => other.unwrap(),
    });
    let second = submit::submit_rescue(&here, directory, &dag.batch, 2).unwrap();
    assert_eq!((second.schedd, second.number), (None, 2));
    assert_eq!(dag.clusters(), [second.cluster], "it is in the queue here");
    assert_eq!(lock().find_with_schedd(1).unwrap(), Some((Some(OTHER_SCHEDD.to_owned()), first.cluster)));
    assert_eq!(lock().find_with_schedd(2).unwrap(), Some((None, second.cluster)));
    eventually("it continues", || log().matches("b SUBMIT").count() == 2);
    assert_eq!(log().matches("a JOB_SUCCESS").count(), 1, "completed nodes do not run again: {}", log());
    let look = DagPoller::for_cluster(directory, Some(second.cluster), 0).poll();
    assert_eq!(look.state, DagState::Running, "the outcome of the other one says nothing about it");
    assert!(here.remove(second.cluster, "enough").unwrap());
    eventually("it is gone", || here.count_jobs(&dag.batch).unwrap() == 0);

    // That schedd is taken out of service for good.
    let mut record: serde_json::Value = serde_json::from_str(&dag.work.read(RECORD_FILE)).unwrap();
    record["submissions"].as_array_mut().unwrap().truncate(1);
    let gone = record.to_string().replace(OTHER_SCHEDD, "second@nowhere.pool.test");
    assert_ne!(gone, record.to_string());
    dag.work.write(RECORD_FILE, &gone);
    assert!(lock().may_change_files(2).unwrap(), "it has no queue that could contain jobs");
    let unknown_schedd = CondorClient { schedd: Some("second@nowhere.pool.test".into()), ..dag.condor() };
    let asked =
        SubmitLock::open(&unknown_schedd, directory, &dag.batch).unwrap().check_not_running().unwrap_err();
    assert!(
        matches!(asked, DagSubmitError::Condor(_)),
        "the schedd of the submission has to answer: {asked}"
    );
}
