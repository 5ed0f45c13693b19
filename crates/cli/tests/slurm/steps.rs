//! Jobs that run as steps of the allocation.

use crate::house::House;
use crate::support::Cluster;

#[test]
fn slurm_keeps_the_limits_and_says_what_was_exceeded() {
    let cluster = Cluster::shared();
    let mut house = House::open(&cluster, "steps");
    let jobs = "\
name: test
execution_config: {mode: slurm}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: PT1M}
  - {name: short, num_cpus: 1, memory: 100m, runtime: PT2S}
  - {name: wide, num_cpus: 1, num_nodes: 2, memory: 100m, runtime: PT1M}
jobs:
  - {name: greedy, command: 'python3 -c \"x = bytearray(400 << 20)\"', resource_requirements: small}
  - {name: slow, command: sleep 1000, resource_requirements: short}
  - {name: wide, command: 'echo $SLURMD_NODENAME >> nodes', resource_requirements: wide}
  - {name: wrong, command: 'echo \"$SLURM_STEP_ID it is\" > words; exit 3', resource_requirements: small}
";
    house.submit(jobs);
    let nodes = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=4", "--mem=2000", "--time=5"];
    let job = house.allocate(&nodes);
    house.await_status("greedy", "failed");
    house.await_status("slow", "terminated");
    house.await_status("wide", "completed");
    house.await_status("wrong", "failed");
    let results = house.windlass(&["results", "list", "1"]);
    assert!(results.contains("out of memory (137)"), "{results}");
    assert!(results.contains("time limit (152)"), "{results}");
    assert!(results.contains("exit code 3"), "{results}");
    assert_eq!(house.work.read("nodes").lines().count(), 2);
    assert!(house.work.read("words").ends_with(" it is\n"));
    cluster.await_state(job, &["COMPLETED", "FAILED"]);
}
