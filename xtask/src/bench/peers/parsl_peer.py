"""Runs a graph of commands with parsl's thread pool: parsl_peer.py GRAPH.json"""

import json
import sys

import parsl
from parsl.config import Config
from parsl.executors.threads import ThreadPoolExecutor


@parsl.bash_app
def job(command, inputs=()):
    return command


def main():
    with open(sys.argv[1]) as file:
        graph = json.load(file)
    parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=graph["slots"])]))
    futures = []
    for entry in graph["jobs"]:
        futures.append(job(entry["command"], inputs=[futures[need] for need in entry["needs"]]))
    for future in futures:
        future.result()
    parsl.dfk().cleanup()


main()
