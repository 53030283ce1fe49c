"""A Ray cluster of two nodes on this machine, until standard input ends: says its address and its token, then "ready".

A line "kill" kills the second node with all that runs on it, and starts another.
"""

import os
import secrets
import sys

os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from ray.cluster_utils import Cluster

settings = dict(num_cpus=1, object_store_memory=80_000_000)
cluster = Cluster(initialize_head=True, head_node_args=dict(include_dashboard=False, **settings))
second = cluster.add_node(**settings)
print(cluster.address, file=out)
print(os.environ["RAY_AUTH_TOKEN"], file=out)
print("ready", file=out, flush=True)
for line in sys.stdin:
    if line.strip() == "kill":
        cluster.remove_node(second, allow_graceful=False)
        second = cluster.add_node(**settings)
        print("ready", file=out, flush=True)
cluster.shutdown()
