"""Tests what horovod.torch refuses: on every rank when ranks disagree, and at once when an argument is wrong."""

import torch

import hvd.torch as hvd
import job

KINDS = {
    "allreduce": lambda tensor, name: hvd.allreduce_async(tensor, name=name, op=hvd.Sum),
    "grouped_allreduce": lambda tensor, name: hvd.grouped_allreduce_async([tensor], name=name, op=hvd.Sum),
    "allgather": lambda tensor, name: hvd.allgather_async(tensor, name=name),
    "grouped_allgather": lambda tensor, name: hvd.grouped_allgather_async([tensor], name=name),
    "broadcast": lambda tensor, name: hvd.broadcast_async(tensor, 0, name=name),
    "alltoall": lambda tensor, name: hvd.alltoall_async(tensor, name=name),
    "reducescatter": lambda tensor, name: hvd.reducescatter_async(tensor, name=name, op=hvd.Sum),
    "grouped_reducescatter": lambda tensor, name: hvd.grouped_reducescatter_async([tensor], name=name, op=hvd.Sum),
}


class ErrorsTest(job.JobTest):
    def refused(self, start, tensor, about):
        with self.assertRaises(hvd.HorovodInternalError, msg=about) as caught:
            hvd.synchronize(start(tensor, "of all ranks"))
        self.assertRegex(str(caught.exception), "rank", about)
        self.assertEqual(caught.exception.code, "mismatch", about)

    def test_ranks_disagree(self):
        rows = 2 * self.size
        for kind, start in KINDS.items():
            self.refused(start, torch.ones(rows, 3, dtype=torch.int32 if self.rank == 0 else torch.float32),
                         f"dtypes of {kind}")
            self.refused(start, torch.ones(rows, 10 * (self.rank + 1)), f"sizes of {kind}")
            self.refused(start, torch.ones((rows, 6) if self.rank == 0 else (rows, 2, 3)), f"shapes of {kind}")
            hvd.synchronize(start(torch.ones(rows, 3), "of all ranks"))  # the name is free, and the job goes on

    def test_ranks_disagree_about_the_call(self):
        for call in (lambda: hvd.broadcast(torch.ones(3), self.rank, name="roots"),
                     lambda: hvd.allreduce(torch.ones(3), op=hvd.Max if self.rank == 0 else hvd.Sum, name="operations"),
                     lambda: hvd.grouped_allreduce([torch.ones(3)] * (1 + (self.rank == 0)), name="groups")):
            with self.assertRaises(hvd.HorovodInternalError):
                call()
        self.equal(hvd.allreduce(torch.ones(3), name="operations"), torch.ones(3))

    def test_names_that_are_pending(self):
        tensor = torch.ones(2 * self.size)
        for kind, start in KINDS.items():
            if self.rank == 0:
                handle = start(tensor, "twice")
                self.assertFalse(hvd.poll(handle), kind)  # the others have not called it
                with self.assertRaisesRegex(ValueError, "pending", msg=kind):
                    start(tensor, "twice")
            hvd.barrier()
            if self.rank > 0:
                handle = start(tensor, "twice")
            hvd.synchronize(handle)
            self.assertTrue(hvd.poll(handle), kind)

    def test_errors_of_a_backward_pass(self):
        """That of SyncBatchNorm is written in C++. The other ranks leave the job instead of running it."""
        output = hvd.SyncBatchNorm(2)(torch.randn(3, 2))
        if self.rank == 0:
            with self.assertRaises(hvd.HorovodInternalError) as caught:
                output.sum().backward()
            self.assertRegex(str(caught.exception), "backward' cannot complete.* (has|have) shut down")
            self.assertIsInstance(caught.exception.code, str)
        hvd.shutdown()
        hvd.init()

    def test_calls_before_init(self):
        """Programs of Horovod expect ValueError."""
        hvd.shutdown()
        for call in (hvd.rank, hvd.size, hvd.local_rank, lambda: hvd.allreduce(torch.ones(1))):
            with self.assertRaises(ValueError) as caught:
                call()
            self.assertIsInstance(caught.exception, hvd.HorovodInternalError)
            self.assertEqual(caught.exception.code, "not initialized")
        hvd.init()

    def test_wrong_arguments(self):
        """They are refused before other ranks hear of them."""
        rows = torch.ones(self.size)
        for call in (lambda: hvd.alltoall(torch.ones(self.size + 1)),
                     lambda: hvd.alltoall(rows, [2] * self.size),
                     lambda: hvd.alltoall(rows, torch.ones(self.size)),
                     lambda: hvd.alltoall(rows, [1] * (self.size + 1)),
                     lambda: hvd.broadcast(rows, self.size),
                     lambda: hvd.broadcast(rows, -1),
                     lambda: hvd.reducescatter(torch.tensor(1.0)),
                     lambda: hvd.grouped_reducescatter([torch.tensor(1.0), rows]),
                     lambda: hvd.allreduce(rows, average=True, op=hvd.Sum),
                     lambda: hvd.allreduce(rows, op=17),
                     lambda: hvd.add_process_set([0, 0]),
                     lambda: hvd.add_process_set([self.size])):
            self.assertRaises(ValueError, call)
        self.equal(hvd.allreduce(rows), rows)

    def test_a_barrier_waits(self):
        """Nobody leaves a barrier before rank 0, which enters it last, comes."""
        if self.rank == 0:
            handle = hvd.allreduce_async(torch.ones(2), name="after the barrier")
            alone = hvd.add_process_set([0])
        else:
            hvd.add_process_set([0])
        if self.rank == 0:
            for _ in range(100):
                hvd.allreduce(torch.ones(1000), process_set=alone)
            self.assertFalse(hvd.poll(handle))
        hvd.barrier()
        if self.rank > 0:
            handle = hvd.allreduce_async(torch.ones(2), name="after the barrier")
        self.equal(hvd.synchronize(handle), torch.ones(2))

    def test_a_barrier_among_other_operations(self):
        handles = [start(torch.ones(self.size), f"before the barrier {kind}") for kind, start in KINDS.items()]
        hvd.barrier()
        for handle in handles:
            hvd.synchronize(handle)

    def test_joined_ranks(self):
        """What a rank that joined cannot take part in fails on the others, which go on."""
        for first in range(self.size):
            if self.rank != first:
                ones = torch.ones(2, dtype=torch.int64)
                self.equal(hvd.allreduce(ones * (self.rank + 1), op=hvd.Sum),
                           ones * (sum(range(1, self.size + 1)) - first - 1))
                self.equal(hvd.allreduce(ones.float()), ones * ((self.size - 1) / self.size))
                for call in (lambda: hvd.allgather(ones), lambda: hvd.broadcast(ones, first)):
                    self.assertRaises(hvd.HorovodInternalError, call)
            last = hvd.join()
            self.assertNotEqual(last, first)
            self.assertEqual(hvd.allgather_object(last), [last] * self.size)
