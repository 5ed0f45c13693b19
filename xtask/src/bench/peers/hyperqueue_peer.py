"""Runs a graph of commands with HyperQueue's Python API: hyperqueue_peer.py GRAPH.json [--submit-only]

With --submit-only the tasks are handed to a server that has no worker: that is the creation alone.
"""

import json
import os
import sys

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def main():
    with open(sys.argv[1]) as file:
        graph = json.load(file)
    submit_only = "--submit-only" in sys.argv
    with LocalCluster(server_dir=os.path.abspath("server")) as cluster:
        if not submit_only:
            cluster.start_worker(WorkerConfig(cores=graph["slots"]))
        client = cluster.client()
        job = Job()
        tasks = []
        for entry in graph["jobs"]:
            needs = [tasks[need] for need in entry["needs"]]
            tasks.append(job.program(["/bin/sh", "-c", entry["command"]], deps=needs))
        submitted = client.submit(job)
        if not submit_only:
            client.wait_for_jobs([submitted])


main()
