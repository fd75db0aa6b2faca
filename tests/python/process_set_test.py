"""Tests every operation of horovod.torch in two process sets at a time: the even ranks, and the odd ones."""

import torch
from torch import nn

import hvd.torch as hvd
import job

DTYPES = [torch.float32, torch.float64, torch.float16, torch.uint8, torch.int32, torch.int64]


class ProcessSetTest(job.JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sets = [hvd.add_process_set(list(range(first, cls.size, 2))) for first in (0, 1)]
        cls.mine = cls.sets[cls.rank % 2]
        cls.ranks = cls.mine.ranks

    def test_membership(self):
        self.assertEqual(self.mine.ranks[self.mine.rank()], self.rank)
        other = self.sets[1 - self.rank % 2]
        self.assertEqual((other.included(), other.rank()), (False, -1))
        self.assertNotEqual(*[each.process_set_id for each in self.sets])
        with self.assertRaises(ValueError):
            hvd.allreduce(torch.ones(1), process_set=other)

    def test_reductions(self):
        total = sum(r + 1 for r in self.ranks)
        for dtype in DTYPES:
            tensor = torch.full((3, 2), self.rank + 1).to(dtype)
            options = {"op": hvd.Sum, "process_set": self.mine}
            self.equal(hvd.allreduce(tensor, **options), torch.full((3, 2), total))
            self.equal(hvd.allreduce_(tensor.clone(), **options), torch.full((3, 2), total))
            self.equal(hvd.synchronize(hvd.allreduce_async(tensor, **options)), torch.full((3, 2), total))
            self.equal(hvd.allreduce(tensor, op=hvd.Max, process_set=self.mine), torch.full((3, 2), max(self.ranks) + 1))
            for each in hvd.grouped_allreduce([tensor, tensor], **options):
                self.equal(each, torch.full((3, 2), total))
            rows = torch.full((2 * len(self.ranks), 2), self.rank + 1).to(dtype)
            for each in (hvd.reducescatter(rows, **options), *hvd.grouped_reducescatter([rows], **options)):
                self.equal(each, torch.full((2, 2), total))
        self.equal(hvd.allreduce(torch.full((2,), self.rank + 1.0), process_set=self.mine),
                   torch.full((2,), total / len(self.ranks)))

    def test_exchanges(self):
        for dtype in [*DTYPES, torch.bool]:
            tensor = torch.full((self.rank + 1, 2), self.rank % 2).to(dtype)
            expected = torch.full((sum(r + 1 for r in self.ranks), 2), self.rank % 2).to(dtype)
            self.equal(hvd.allgather(tensor, process_set=self.mine), expected)
            for each in hvd.grouped_allgather([tensor, tensor], process_set=self.mine):
                self.equal(each, expected)
            for root in self.ranks:  # its rank in the job
                copy = torch.full((3,), self.rank == root).to(dtype)
                self.equal(hvd.broadcast(copy, root, process_set=self.mine), torch.ones(3))
                hvd.broadcast_(copy, root, process_set=self.mine)
                self.equal(copy, torch.ones(3))
        everyone = torch.arange(len(self.ranks)) + 10 * self.rank
        self.equal(hvd.alltoall(everyone, process_set=self.mine), [10 * r + self.mine.rank() for r in self.ranks])
        output, received = hvd.alltoall(torch.full((len(self.ranks) * 2,), self.rank), [2] * len(self.ranks),
                                        process_set=self.mine)
        self.equal(output, torch.tensor(self.ranks).repeat_interleave(2))
        self.equal(received, [2] * len(self.ranks))

    def test_gradients(self):
        weight = self.rank + 1.0
        mean = sum(r + 1 for r in self.ranks) / len(self.ranks)
        own, options = (4,), {"process_set": self.mine}
        summed = {"op": hvd.Sum, **options}
        parts = torch.tensor([r + 1.0 for r in self.ranks])
        for function, shape, expected in (
                (lambda t: hvd.allreduce(t, **summed), own, mean * len(self.ranks)),
                (lambda t: hvd.allreduce(t, **options), own, mean),
                (lambda t: hvd.grouped_allreduce([t], **summed)[0], own, mean * len(self.ranks)),
                (lambda t: hvd.allgather(t, **options), own, mean),
                (lambda t: hvd.grouped_allgather([t], **options)[0], own, mean),
                (lambda t: hvd.broadcast(t, self.ranks[-1], **options), own, mean * (self.rank == self.ranks[-1])),
                (lambda t: hvd.alltoall(t, **options), parts.shape, parts),
                (lambda t: hvd.reducescatter(t, **options), parts.shape, parts),
                (lambda t: hvd.reducescatter(t, **summed), parts.shape, parts * len(self.ranks)),
                (lambda t: hvd.grouped_reducescatter([t], **summed)[0], parts.shape, parts * len(self.ranks))):
            expected = torch.as_tensor(expected, dtype=torch.float32).expand(shape)
            self.equal(self.gradient(function, shape, weight), expected)

    def test_sparse_tensors_and_objects(self):
        tensor = torch.sparse_coo_tensor([[self.rank, 0]], [6.0, 1.0], (self.size,))
        for op in (hvd.Sum, hvd.Average):
            reduced = hvd.sparse_allreduce_async(tensor, "sparse", op, process_set=self.mine)().to_dense()
            self.equal(reduced, hvd.allreduce(tensor.to_dense(), op=op, process_set=self.mine))
        self.assertEqual(hvd.allgather_object({"rank": self.rank}, process_set=self.mine), [{"rank": r} for r in self.ranks])
        self.assertEqual(hvd.broadcast_object(self.rank, self.ranks[-1], process_set=self.mine), self.ranks[-1])

    def test_barrier(self):
        """One set may pass its barrier while the other one has not begun."""
        if self.rank % 2 == 0:
            hvd.barrier(self.mine)
        hvd.barrier()
        if self.rank % 2 == 1:
            hvd.barrier(self.mine)

    def test_optimizer(self):
        """The ranks of the set train one model, and every other rank trains its own."""
        torch.manual_seed(self.rank)
        data, target = torch.randn(8, 5), torch.randn(8, 1)
        torch.manual_seed(9)
        model = nn.Linear(5, 1)
        even = self.sets[0]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(),
                                             process_set=even)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(data), target).backward()
            optimizer.step()
        weights = hvd.allgather(model.weight.detach())
        for rank in range(self.size):
            same = torch.equal(weights[rank], weights[0])
            self.assertEqual(same, rank in even.ranks, f"rank {rank}")
        for rank in range(3, self.size, 2):
            self.assertFalse(torch.equal(weights[rank], weights[1]))

    def test_optimizers_of_other_ranks(self):
        """The parameters have an optimizer for each set, and each rank uses that of its own."""
        model = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(model.weight)
        optimizers = [hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), model.named_parameters(),
                                               process_set=each) for each in self.sets]
        optimizer = optimizers[self.rank % 2]
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.full((1, 3), self.rank + 1.0)).sum().backward()
            optimizer.step()
        mean = sum(r + 1 for r in self.ranks) / len(self.ranks)
        self.equal(model.weight.detach(), torch.full((1, 3), -3 * mean))
