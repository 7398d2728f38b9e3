"""Two machines, made of network namespaces: each starts its own torchrun, and they train one model over the wire between them.

Needs to be root, and `ip` (Debian's iproute2); else it is skipped and says why.
"""

import os
import shutil
import subprocess
import sys
import unittest

import parallel_test
from program import PROGRAM, ProgramTest, english, environment

HOSTS = [f"lapse{os.getpid()}a", f"lapse{os.getpid()}b"]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
WIRE = [f"lw{os.getpid()}a"[:15], f"lw{os.getpid()}b"[:15]]


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


def plug_in():
    """Why two hosts cannot be had; None if they are there."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "only root can make network namespaces, with `ip`"
    steps = [["netns", "add", host] for host in HOSTS]
    steps += [["link", "add", WIRE[0], "netns", HOSTS[0], "type", "veth", "peer", "name", WIRE[1], "netns", HOSTS[1]]]
    for host, wire, address in zip(HOSTS, WIRE, ADDRESSES):
        steps += [["-n", host, "address", "add", f"{address}/24", "dev", wire]]
        steps += [["-n", host, "link", "set", device, "up"] for device in (wire, "lo")]
    for step in steps:
        if (done := ip(*step)).returncode != 0:
            return f"ip {' '.join(step)}: {done.stderr.strip()}"
    return None


class TwoHosts(ProgramTest):
    recorded, assert_same_run = parallel_test.Parallel.recorded, parallel_test.Parallel.assert_same_run

    @classmethod
    def setUpClass(cls):
        cls.why_not = plug_in()

    @classmethod
    def tearDownClass(cls):
        for host in HOSTS:
            ip("netns", "delete", host)

    def test_two_hosts_make_the_bits_of_one_process(self):
        if self.why_not:
            self.skipTest(self.why_not)
        config = self.config(self.write("text.txt", english(6000)), {"train": {"batch": 12}})
        whole, shared = self.folder / "whole", self.folder / "shared"
        self.succeed("train", config, "--out", whole, "--quiet", "--set", "train.parts=4")
        started = []
        for rank, (host, wire) in enumerate(zip(HOSTS, WIRE)):
            command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
            command += ["--node-rank", str(rank), "--master-addr", ADDRESSES[0], "--master-port", "29400", "--no-python"]
            command += [PROGRAM, "train", config, "--out", shared, "--quiet"]
            place = environment() | {"GLOO_SOCKET_IFNAME": wire, "OMP_NUM_THREADS": "1"}
            started.append(subprocess.Popen(command, env=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            self.addCleanup(started[-1].kill)
        said = [process.communicate(timeout=110)[0] for process in started]
        self.assertEqual([process.returncode for process in started], [0, 0], said)
        self.assert_same_run(shared, whole)


if __name__ == "__main__":
    unittest.main()
