//! Queries to a schedd, and commands for its DAGs.

use crate::small_dags::Dag;
use crate::support::{OTHER_SCHEDD, Pool, eventually};
use std::time::Duration;
use windlass_htcondor::commands::{CondorClient, CondorError, DagmanJob, DagmanJobState};
use windlass_htcondor::submit;

fn in_queue(condor: &CondorClient, cluster: u64) -> Option<DagmanJob> {
    condor.dagman_jobs(&[cluster]).unwrap().pop()
}

#[test]
fn dag_can_be_found_held_released_and_removed() {
    let pool = Pool::shared();
    let dag = Dag::long(&pool, "verbs");
    let condor = dag.condor();
    assert_eq!(condor.find_dags(&dag.batch).unwrap(), []);
    let cluster = submit::submit(&condor, dag.work.path(), &dag.batch).unwrap().cluster;
    let found = condor.find_dags(&dag.batch).unwrap();
    assert_eq!((found.len(), found[0].cluster, &found[0].state), (1, cluster, &DagmanJobState::Running));
    assert!(condor.all_dags().unwrap().iter().any(|job| job.cluster == cluster && job.batch == dag.batch));
    assert_eq!(condor.find_job_in_history(cluster).unwrap(), None);

    assert!(condor.hold(cluster, "operator said \"wait\"").unwrap());
    let DagmanJobState::Held(hold) = in_queue(&condor, cluster).unwrap().state else { panic!("not held") };
    assert!(hold.reason.contains("operator said 'wait'"), "{hold:?}");
    assert!(!condor.hold(cluster, "again").unwrap(), "it is held already");
    assert!(condor.release(cluster, "continue").unwrap());
    eventually("DAGMan works again", || in_queue(&condor, cluster).unwrap().state == DagmanJobState::Running);
    assert!(!condor.release(cluster, "again").unwrap(), "it is not held");

    assert!(condor.remove(cluster, "enough").unwrap());
    eventually("it is gone", || in_queue(&condor, cluster).is_none());
    assert!(!condor.remove(cluster, "again").unwrap(), "it is gone");
    let over = condor.find_job_in_history(cluster).unwrap().unwrap();
    assert!(over.is_over() && over.removal.as_deref().unwrap_or_default().contains("enough"), "{over:?}");
}

#[test]
fn dag_and_its_jobs_run_at_the_named_schedd() {
    let pool = Pool::shared();
    let dag = Dag::new(&pool, "other", "SUBDAG EXTERNAL inner inner.dag\n");
    dag.work.write("inner.dag", "JOB a sleep.sub\n");
    let other = CondorClient { schedd: Some(OTHER_SCHEDD.into()), ..dag.condor() };
    let submitted = submit::submit(&other, dag.work.path(), &dag.batch).unwrap();
    assert_eq!(submitted.schedd.as_deref(), Some(OTHER_SCHEDD));
    let ours = format!("JobBatchName == \"{}\"", dag.batch);
    let arguments = ["-name", OTHER_SCHEDD, "-constraint", &ours, "-autoformat", "JobUniverse"];
    eventually("two DAGMans and a job are queued", || {
        let mut universes: Vec<_> = pool.condor("condor_q", &arguments).lines().map(str::to_owned).collect();
        universes.sort_unstable();
        universes == ["5", "7", "7"]
    });
    assert!(dag.clusters().is_empty(), "the local schedd has none of its jobs");
    let found = other.find_dags(&dag.batch).unwrap();
    assert_eq!(
        found.iter().map(|job| job.cluster).collect::<Vec<_>>(),
        [submitted.cluster],
        "without SUBDAGs"
    );
    assert!(other.remove(submitted.cluster, "enough").unwrap());
    eventually("it is gone", || in_queue(&other, submitted.cluster).is_none());
    assert!(other.find_job_in_history(submitted.cluster).unwrap().is_some_and(|job| job.is_over()));
}

#[test]
fn stopped_pool_is_unreachable_and_keeps_its_dags() {
    let pool = Pool::private();
    let dag = Dag::long(&pool, "down");
    let condor = dag.condor();
    let cluster = submit::submit(&condor, dag.work.path(), &dag.batch).unwrap().cluster;
    pool.stop();
    let refusals = [
        condor.find_dags(&dag.batch).unwrap_err(),
        condor.all_dags().unwrap_err(),
        condor.hold(cluster, "why").unwrap_err(),
        condor.remove(cluster, "why").unwrap_err(),
    ];
    for error in refusals {
        assert!(matches!(&error, CondorError::Unreachable { .. }) && error.is_transient(), "{error:?}");
    }
    pool.start();
    eventually("DAGMan works again", || {
        in_queue(&condor, cluster).is_some_and(|job| job.state == DagmanJobState::Running)
    });
}

#[test]
fn hanging_command_times_out() {
    let pool = Pool::shared();
    let dag = Dag::short(&pool, "hangs");
    dag.work.write_script("tools/condor_q", "#!/bin/sh\nsleep 1000\n");
    let tools = Some(dag.work.path().join("tools"));
    let condor =
        CondorClient { tools_directory: tools, timeout: Duration::from_secs(1), ..CondorClient::default() };
    let error = condor.find_dags(&dag.batch).unwrap_err();
    assert!(matches!(&error, CondorError::TimedOut { tool, .. } if tool == "condor_q"), "{error}");
    assert!(error.is_transient());
}

#[test]
fn batch_priority_is_set_by_role_but_not_for_dagman() {
    let pool = Pool::shared();
    let dag = Dag::new(
        &pool,
        "priority",
        "JOB a idle.sub\nVARS a role=\"Processing\"\nJOB b idle.sub\nVARS b role=\"Merge\"\n",
    );
    let nowhere = "executable = /bin/true\nrequirements = false\nMY.CMS_NodeRole = \"$(role)\"\nqueue\n";
    dag.work.write("idle.sub", nowhere);
    let condor = dag.condor();
    condor.set_priority(&dag.batch, "Processing", 7).unwrap();
    let cluster = submit::submit(&condor, dag.work.path(), &dag.batch).unwrap().cluster;
    let ours = format!("JobBatchName == \"{}\"", dag.batch);
    let arguments = ["-constraint", &ours, "-autoformat", "JobUniverse", "CMS_NodeRole", "JobPrio"];
    let priorities = || {
        let mut lines: Vec<_> = pool.condor("condor_q", &arguments).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    eventually("both nodes wait", || priorities() == ["5 Merge 0", "5 Processing 0", "7 undefined 0"]);
    for _ in 0..2 {
        condor.set_priority(&dag.batch, "Processing", 7).unwrap();
    }
    condor.set_priority(&dag.batch, "Merge", 17).unwrap();
    assert_eq!(priorities(), ["5 Merge 17", "5 Processing 7", "7 undefined 0"]);
    assert!(condor.remove(cluster, "enough").unwrap());
}
