//! Tests of the pool itself: properties on which all other tests rely.

use crate::support::{Pool, SITES, eventually};

#[test]
fn every_site_of_the_pool_advertises_slots() {
    let pool = Pool::shared();
    let arguments = ["-constraint", "PartitionableSlot", "-autoformat", "GLIDEIN_CMSSite"];
    let told = pool.condor("condor_status", &arguments);
    let mut sites: Vec<_> = told.split_whitespace().collect();
    sites.sort_unstable();
    let mut expected = SITES;
    expected.sort_unstable();
    assert_eq!(sites, expected);
}

#[test]
fn job_runs_windlass_as_the_pool_user_at_its_site() {
    let pool = Pool::shared();
    let work = pool.work("bed");
    let windlass = work.windlass();
    work.write(
        "where.sub",
        &format!(
            "executable = where.sh\narguments = {}\noutput = out\nlog = log\nrequest_memory = 64\nrequest_disk = 1\n\
             +DESIRED_Sites = \"T2_CH_Gamma\"\nenvironment = \"SITE=$$(GLIDEIN_CMSSite)\"\nqueue\n",
            windlass.display()
        ),
    );
    work.write_script("where.sh", "#!/bin/sh\nid -u; echo $SITE; $1 --version | cut -d' ' -f1\n");
    let mut submit = pool.command("condor_submit");
    assert!(submit.arg("where.sub").current_dir(work.path()).output().unwrap().status.success());
    eventually("the job has ended", || work.read("log").contains("(1) Normal termination"));
    assert_eq!(work.read("out"), "20000\nT2_CH_Gamma\nwindlass\n");
}

#[test]
fn private_pool_keeps_its_queue_over_a_restart() {
    let pool = Pool::private();
    let work = pool.work("private");
    work.write("sleep.sub", "executable = /bin/sleep\narguments = 600\nhold = true\nqueue\n");
    let mut submit = pool.command("condor_submit");
    assert!(submit.arg("sleep.sub").current_dir(work.path()).output().unwrap().status.success());
    pool.stop();
    let mut queue = pool.command("condor_q");
    assert!(!queue.current_dir("/").output().unwrap().status.success());
    pool.start();
    assert_eq!(pool.condor("condor_q", &["-autoformat", "ClusterId", "JobStatus"]), "1 5\n");
}
