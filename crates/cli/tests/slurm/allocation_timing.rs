//! When allocations are requested for blocked jobs.

use crate::support::Cluster;
use crate::test_server::TestServer;

#[test]
fn dependent_jobs_of_one_group_get_allocations() {
    let cluster = Cluster::shared();
    let spec = "\
name: test
resource_requirements: [{name: small, num_cpus: 1, memory: 100m, runtime: PT1M}]
files: [{name: 'f_{i}', path: 'f_{i}', parameters: {i: '1:4'}}]
jobs:
  - name: s_{i}
    command: test -e f_{i} && touch f_{j}
    resource_requirements: small
    input_files: ['f_{i}']
    output_files: ['f_{j}']
    parameters: {i: '1:3', j: '2:4'}
    parameter_mode: zip
";
    let test_server = TestServer::with_reconciler(&cluster, "chain");
    test_server.work.write("f_1", "");
    test_server.work.write("spec.yaml", spec);
    test_server.windlass(&["submit", "--slurm", "--account", "lab", "spec.yaml"]);
    for name in ["s_1", "s_2", "s_3"] {
        test_server.await_status(name, "completed");
    }
}

/// Jobs of the second stage request whole nodes, so they have allocations of their own.
#[test]
fn failed_job_does_not_hold_back_other_allocations() {
    let cluster = Cluster::shared();
    let spec = "\
name: test
compute_node_wait_for_new_jobs_seconds: 2
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: PT1M}
  - {name: big, num_cpus: 4, memory: 1g, runtime: PT1M}
jobs:
  - {name: 'first_{i}', command: 'test {i} != 2', resource_requirements: small, parameters: {i: '1:4'}}
  - {name: 'second_{i}', command: 'true', resource_requirements: big, depends_on: ['first_{i}'], parameters: {i: '1:4'}}
";
    let test_server = TestServer::with_reconciler(&cluster, "gate");
    test_server.work.write("spec.yaml", spec);
    test_server.windlass(&["submit", "--slurm", "--account", "lab", "spec.yaml"]);
    for (name, expected) in [
        ("first_1", "completed"),
        ("first_2", "failed"),
        ("second_1", "completed"),
        ("second_2", "canceled"),
        ("second_3", "completed"),
        ("second_4", "completed"),
    ] {
        test_server.await_status(name, expected);
    }
}
