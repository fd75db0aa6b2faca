"""Tests hvd.run: the results of the ranks, and what is said when one fails."""

import os
import unittest

import hvd


def add_up(start, *, scale):
    import torch

    import hvd.torch

    hvd.torch.init()
    total = hvd.torch.allreduce(torch.tensor([float(start + hvd.torch.rank())]), op=hvd.torch.Sum)
    return hvd.torch.rank(), total.item() * scale


def fail_on_one():
    if os.environ["RANK"] == "1":
        raise ValueError("no data here")


class RunTest(unittest.TestCase):
    def test_results_are_in_the_order_of_ranks(self):
        self.assertEqual(hvd.run(add_up, (5,), {"scale": 2}, np=2, start_timeout=60, use_gloo=True),
                         [(0, 22.0), (1, 22.0)])

    def test_a_failed_rank_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "exit code 1"):
            hvd.run(fail_on_one, num_proc=2)

    def test_arguments_are_checked(self):
        with self.assertRaisesRegex(ValueError, "hosts and hostfile"):
            hvd.run(fail_on_one, hosts="a:1", hostfile="b")
        with self.assertRaisesRegex(ValueError, "use_gloo and use_mpi"):
            hvd.run(fail_on_one, use_gloo=True, use_mpi=True)
        path = os.environ.pop("PATH")
        try:
            with self.assertRaisesRegex(FileNotFoundError, "hvdrun"):
                hvd.run(fail_on_one)
        finally:
            os.environ["PATH"] = path
