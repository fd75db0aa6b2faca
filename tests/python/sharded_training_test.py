"""Trains with the parts of torch.distributed that shard, over the backend hvd: on the GPU if there is one."""

import copy
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ReduceOp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

import hvd.torch  # registers the backend
import ranks

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
STEPS = 12
BATCH = 8


class ShardedTrainingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size = ranks.init_process_group()

    def setUp(self):
        torch.manual_seed(5)
        self.data = torch.randn(self.size * BATCH, 6, device=DEVICE)
        self.target = self.data.sum(1, keepdim=True)
        self.model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 1)).to(DEVICE)
        alone = copy.deepcopy(self.model)
        self.train(alone, torch.optim.AdamW(alone.parameters(), lr=0.01), slice(None))
        self.expected = [p.detach() for p in alone.parameters()]

    def train(self, model, optimizer, examples):
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(self.data[examples]), self.target[examples]).backward()
            optimizer.step()

    def mine(self):
        return slice(self.rank * BATCH, (self.rank + 1) * BATCH)

    def expect_training(self, parameters):
        """As one process trains with the examples of all ranks."""
        for ours, alone in zip(parameters, self.expected, strict=True):
            torch.testing.assert_close(ours.detach(), alone, rtol=1e-3, atol=1e-4)

    def test_collectives(self):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            for count in (1, 1000, 300_001):
                tensor = torch.full((count,), self.rank + 1, dtype=dtype, device=DEVICE)
                dist.all_reduce(tensor)
                self.assertTrue((tensor == sum(range(1, self.size + 1))).all(), (dtype, count))
                dist.all_reduce(tensor.fill_(self.rank), ReduceOp.MAX)
                self.assertTrue((tensor == self.size - 1).all(), (dtype, count))
                dist.broadcast(tensor.fill_(self.rank), self.size - 1)
                self.assertTrue((tensor == self.size - 1).all(), (dtype, count))
                rows = torch.empty(self.size, count, dtype=dtype, device=DEVICE)
                dist.all_gather_into_tensor(rows, tensor.fill_(self.rank))
                of_ranks = torch.arange(self.size, device=DEVICE).to(dtype)
                self.assertTrue((rows == of_ranks[:, None]).all(), (dtype, count))
                dist.reduce_scatter_tensor(tensor, rows)
                self.assertTrue((tensor == self.size * self.rank).all(), (dtype, count))
                sent = torch.full((self.size, count), self.rank, dtype=dtype, device=DEVICE)
                dist.all_to_all_single(rows, sent)
                self.assertTrue((rows == of_ranks[:, None]).all(), (dtype, count))

    def test_follows_the_stream(self):
        """A collective takes what the stream computes before it, and the stream waits for the result."""
        large = torch.ones(1024, 1024, device=DEVICE)
        for step in range(5):
            product = large
            for _ in range(20):
                product = product @ large / 1024
            dist.all_reduce(product, async_op=True).wait()
            self.assertTrue((product == self.size).all(), step)

    def test_ddp(self):
        model = nn.parallel.DistributedDataParallel(self.model, bucket_cap_mb=0.001)
        self.train(model, torch.optim.AdamW(model.parameters(), lr=0.01), self.mine())
        self.expect_training(model.parameters())

    def test_horovod(self):
        hvd.torch.init()
        optimizer = hvd.torch.DistributedOptimizer(torch.optim.AdamW(self.model.parameters(), lr=0.01),
                                                   named_parameters=self.model.named_parameters())
        self.train(self.model, optimizer, self.mine())
        self.expect_training(self.model.parameters())

    def test_fsdp2(self):
        mesh = init_device_mesh(DEVICE.type, (self.size,))
        for layer in (self.model[0], self.model[2], self.model):
            fully_shard(layer, mesh=mesh)
        self.train(self.model, torch.optim.AdamW(self.model.parameters(), lr=0.01), self.mine())
        own = self.model[0].weight.to_local()
        self.assertEqual(own.numel() < self.model[0].weight.numel(), self.size > 1)
        self.expect_training([p.full_tensor() for p in self.model.parameters()])

    def test_zero(self):
        model = nn.parallel.DistributedDataParallel(self.model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
        self.train(model, optimizer, self.mine())
        self.expect_training(model.parameters())
