"""Tests Adasum against the same computation in Python."""

import copy

import torch
from torch import nn

import hvd.torch as hvd
import job
import ranks


def combined(a, b):
    """Two gradients, by Maleki et al. 2020, "Scaling distributed training with adaptive summation", section 3."""
    dot = (a * b).sum()
    factors = [1 - dot / (2 * (x * x).sum()) if x.any() else 1.0 for x in (a, b)]
    return factors[0] * a + factors[1] * b


def adasum(tensors):
    """Combines the tensors of all ranks along a binary tree. The last of an odd number waits for the next level."""
    tensors = [tensor.double() for tensor in tensors]
    while len(tensors) > 1:
        pairs = [combined(a, b) for a, b in zip(tensors[::2], tensors[1::2])]
        tensors = pairs + tensors[2 * len(pairs):]
    return tensors[0]


class AdasumTest(job.JobTest):
    def values(self, shape, dtype, seed=0):
        """The tensors of all ranks."""
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(self.size)]

    def test_tensors(self):
        tolerances = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
        for case in ranks.each(dtype=tolerances, shape=[(), (1,), (5,), (3, 4), (1000, 7)]):
            everything = self.values(case["shape"], case["dtype"])
            mine, expected = everything[self.rank], adasum(everything)
            name = f"adasum of {case}"
            for result in (hvd.allreduce(mine, op=hvd.Adasum, name=name),
                           hvd.synchronize(hvd.allreduce_async(mine, op=hvd.Adasum)),
                           hvd.allreduce_(mine.clone(), op=hvd.Adasum)):
                self.assertEqual(result.dtype, case["dtype"])
                self.same([result.double()], [expected], tolerances[case["dtype"]])
            self.assertTrue(torch.equal(mine, everything[self.rank]))

    def test_every_tensor_of_a_group_has_its_own_factors(self):
        groups = [self.values((n,), torch.float64, n) for n in (1, 6, 11)]
        mine = [group[self.rank] * 10**n for n, group in enumerate(groups)]
        expected = [adasum([each * 10**n for each in group]) for n, group in enumerate(groups)]
        self.same(hvd.grouped_allreduce(mine, op=hvd.Adasum), expected, 1e-10)
        self.same(hvd.synchronize(hvd.grouped_allreduce_async_(mine, op=hvd.Adasum)), expected, 1e-10)
        self.same(mine, expected, 1e-10)

    def test_limits(self):
        """Equal gradients are averaged, orthogonal ones added, and zeros change nothing, at any scale."""
        for scale in (1.0, 1e-30, 1e30):  # whose squares are not f32
            self.equal(hvd.allreduce(torch.full((4,), scale), op=hvd.Adasum), torch.full((4,), scale))
            tensor = torch.zeros(self.size)
            tensor[self.rank] = scale
            self.equal(hvd.allreduce_(tensor, op=hvd.Adasum), torch.full((self.size,), scale))
            self.equal(hvd.allreduce(torch.full((3,), scale * (self.rank == 1)), op=hvd.Adasum), torch.full((3,), scale))

    def test_what_is_refused(self):
        with self.assertRaises(NotImplementedError):
            hvd.allreduce(torch.ones(2), op=hvd.Adasum, prescale_factor=2.0)
        with self.assertRaises(NotImplementedError):
            hvd.reducescatter(torch.ones(self.size), op=hvd.Adasum)
        with self.assertRaises(NotImplementedError):
            hvd.grouped_reducescatter([torch.ones(self.size)], op=hvd.Adasum)
        with self.assertRaises(ValueError):
            hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum)
        one = hvd.add_process_set([0])
        with self.assertRaises(NotImplementedError):
            hvd.DistributedOptimizer(torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1), op=hvd.Adasum, process_set=one)
        hvd.remove_process_set(one)

    def steps(self, make, passes=1, compression=hvd.Compression.none):
        """Yields the parameters after each step of training on this rank's rows, and those that Python computes.

        Each rank steps with its own gradients and its own state, and the changes of the parameters are combined.
        """
        torch.manual_seed(4)
        data, target = torch.randn(self.size * 4, 5), torch.randn(self.size * 4, 1)
        model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
        replicas = [copy.deepcopy(model) for _ in range(self.size)]
        optimizers = [make(replica.parameters()) for replica in replicas]
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), op=hvd.Adasum,
                                             backward_passes_per_step=passes, compression=compression)

        def backward(model, rank):
            rows = slice(4 * rank, 4 * rank + 4)
            for _ in range(passes):
                nn.functional.mse_loss(model(data[rows]), target[rows]).backward()

        for _ in range(4):
            optimizer.zero_grad()
            backward(model, self.rank)
            optimizer.step()
            before = [p.detach().clone() for p in replicas[0].parameters()]
            for rank, replica in enumerate(replicas):
                optimizers[rank].zero_grad()
                backward(replica, rank)
                optimizers[rank].step()
            with torch.no_grad():
                for start, *changed in zip(before, *[replica.parameters() for replica in replicas]):
                    after = start + adasum([p - start for p in changed]).float()
                    for p in changed:
                        p.copy_(after)
            yield list(model.parameters()), list(replicas[self.rank].parameters())

    def test_optimizer(self):
        for make in (lambda p: torch.optim.SGD(p, 0.5), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
                     lambda p: torch.optim.Adam(p, 0.01)):
            for ours, computed in self.steps(make):
                self.same(ours, computed)
        for ours, computed in self.steps(lambda p: torch.optim.SGD(p, 0.1), passes=3):
            self.same(ours, computed)
        for ours, computed in self.steps(lambda p: torch.optim.SGD(p, 0.1), compression=hvd.Compression.fp16):
            self.same(ours, computed, 1e-2)

    def test_optimizer_with_a_closure(self):
        weight, gradients = torch.ones(6), [torch.arange(6.0) + rank for rank in range(self.size)]
        parameter = nn.Parameter(weight.clone())
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 0.5), [("weight", parameter)], op=hvd.Adasum)
        loss = optimizer.step(lambda: (parameter * gradients[self.rank]).sum().backward() or torch.tensor(3.0))
        self.equal(loss, 3.0)
        self.equal(parameter.detach(), weight + adasum([-0.5 * gradient for gradient in gradients]))
        optimizer.synchronize()
        with self.assertRaises(AssertionError):
            optimizer.skip_synchronize()

    def test_two_optimizers_and_an_unused_parameter(self):
        parameters = [nn.Parameter(torch.zeros(2)) for _ in range(2)]
        optimizers = [hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=hvd.Adasum) for p in parameters]
        self.assertEqual(len({optimizer._name for optimizer in optimizers}), 2)
        for number, (p, optimizer) in enumerate(zip(parameters, optimizers)):
            if number == 0 or self.rank == 1:  # the other ranks' changes of the second are zeros
                p.sum().backward()
            optimizer.step()
            self.equal(p.detach(), torch.full((2,), -1.0))
