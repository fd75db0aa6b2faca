"""Tests what horovod.torch promises: results, gradients, names and the optimizer."""

import copy
import functools
import importlib.util
import json
import math
import os
import pickle
import tempfile
import unittest
import warnings
from unittest import mock

import torch
from torch import nn
from torch._lazy import ts_backend

import hvd.torch as hvd
import job
import ranks

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = FLOATS + [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@functools.cache
def another_device():
    """Torch's lazy device, which can be initialised once, stands for a GPU."""
    ts_backend.init()
    return "lazy"


class HorovodTest(job.JobTest):
    def sum_of(self, function):
        return sum(function(rank) for rank in range(self.size))

    def test_job(self):
        self.assertTrue(hvd.is_initialized())
        self.assertEqual((self.rank, self.size), (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
        self.assertEqual((hvd.local_rank(), hvd.local_size()), (self.rank, self.size))
        self.assertEqual((hvd.cross_rank(), hvd.cross_size()), (0, 1))
        self.assertTrue(hvd.is_homogeneous())
        self.assertFalse(hvd.gloo_built() or hvd.ddl_built() or hvd.ccl_built() or hvd.rocm_built())
        self.assertIn(hvd.mpi_built(), (True, False))
        self.assertTrue(hvd.nccl_built() == 0 or hvd.nccl_built() > 21000)  # a version
        self.assertFalse(hvd.mpi_enabled())
        hvd.init(process_sets="dynamic")

    def test_a_second_init(self):
        hvd.shutdown()
        self.assertFalse(hvd.is_initialized())
        hvd.init()
        self.assertTrue(hvd.is_initialized())
        self.assertEqual((hvd.rank(), hvd.size()), (self.rank, self.size))
        self.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), self.size))

    def test_jobs_of_some_ranks(self):
        hvd.shutdown()
        with self.assertRaisesRegex(ValueError, "no list of some"):
            hvd.init(comm=[self.rank, self.size])
        comm = [0] if self.rank == 0 else list(range(self.size - 1, 0, -1))
        hvd.init(comm)
        self.assertEqual((hvd.rank(), hvd.size()), (comm.index(self.rank), len(comm)))
        self.equal(hvd.allreduce(torch.tensor(self.rank), op=hvd.Sum), sum(comm))
        self.assertTrue(hvd.is_homogeneous())
        hvd.shutdown()
        hvd.init()
        self.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), self.size))

    def test_another_torch_is_refused(self):
        with mock.patch("hvd.build.TORCH_VERSION", "1.13.1"):
            with self.assertRaisesRegex(ImportError, "built for torch 1.13.1 and torch .* is installed"):
                importlib.reload(hvd)
        importlib.reload(hvd)

    def test_allreduce(self):
        for case in ranks.each(dtype=DTYPES, shape=[(), (17,), (3, 4, 5)]):
            tensor = torch.full(case["shape"], self.rank + 1).to(case["dtype"])
            total = self.sum_of(lambda r: r + 1)
            self.equal(hvd.allreduce(tensor, op=hvd.Sum), torch.full(case["shape"], total))
            for false in (False, 0, torch.tensor(False)):
                self.equal(hvd.allreduce(tensor, average=false), torch.full(case["shape"], total))
            self.equal(hvd.allreduce(tensor, op=hvd.Max), torch.full(case["shape"], self.size))
            self.equal(hvd.allreduce(tensor, op=hvd.Min), torch.full(case["shape"], 1))
            self.equal(hvd.allreduce(tensor, op=hvd.Product), torch.full(case["shape"], math.factorial(self.size)))
            if case["dtype"] in FLOATS:
                self.equal(hvd.allreduce(tensor), torch.full(case["shape"], total / self.size))
            self.equal(tensor, torch.full(case["shape"], self.rank + 1))
            self.assertIs(hvd.allreduce_(tensor, op=hvd.Sum), tensor)
            self.equal(tensor, torch.full(case["shape"], total))
        with self.assertRaises(ValueError):
            hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)

    def test_scales(self):
        """Also of integers."""
        for case in ranks.each(dtype=DTYPES, shape=[(17,), (3, 4, 5)]):
            tensor = torch.full((self.size * case["shape"][0], *case["shape"][1:]), 2 * self.rank + 2).to(case["dtype"])
            scaled = self.sum_of(lambda r: 3 * r + 3)
            for scales in ({"prescale_factor": 1.5}, {"postscale_factor": 1.5},
                           {"prescale_factor": 0.5, "postscale_factor": 3.0}):
                options = {"op": hvd.Sum, **scales}
                self.equal(hvd.allreduce(tensor, **options), torch.full(tensor.shape, scaled))
                self.equal(hvd.allreduce_(tensor.clone(), **options), torch.full(tensor.shape, scaled))
                self.equal(hvd.grouped_allreduce([tensor], **options)[0], torch.full(tensor.shape, scaled))
                self.equal(hvd.reducescatter(tensor, **options), torch.full(case["shape"], scaled))
                self.equal(hvd.grouped_reducescatter([tensor], **options)[0], torch.full(case["shape"], scaled))

    def test_compression(self):
        ones = torch.ones(5)
        for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
            reduced = hvd.allreduce(ones, compression=compression)
            self.assertEqual(reduced.dtype, torch.float32)
            self.equal(reduced, ones)
            for tensor in (torch.tensor([1.0, 1.0 + 2**-9]), torch.tensor([1, 2**20 + 1])):
                sent, context = compression.compress(tensor)
                received = compression.decompress(sent, context)
                self.assertEqual(received.dtype, tensor.dtype)
                exact = compression is not hvd.Compression.bf16 or tensor.dtype == torch.int64
                self.assertEqual(torch.equal(received, tensor), exact)

    def test_handles(self):
        handles = [hvd.allreduce_async(torch.full((100,), float(i)), name=f"many.{i}", op=hvd.Sum) for i in range(50)]
        for i, handle in reversed(list(enumerate(handles))):
            self.equal(hvd.synchronize(handle), torch.full((100,), float(i * self.size)))
            self.assertTrue(hvd.poll(handle))
        tensor = torch.ones(3)
        self.assertIs(hvd.synchronize(hvd.allreduce_async_(tensor)), tensor)

    def test_inference_mode(self):
        """An operation goes on in the mode in which it began, whichever thread finishes it."""
        with torch.inference_mode():
            tensor = torch.ones(4, 3).t()
            handles = [hvd.allreduce_async_(tensor, op=hvd.Sum), hvd.allgather_async(torch.ones(2))]
            for handle in handles:
                ranks.wait_until(functools.partial(hvd.poll, handle))
            self.assertIs(hvd.synchronize(handles[0]), tensor)
            self.assertTrue(hvd.synchronize(handles[1]).is_inference())
        self.equal(tensor, torch.full((3, 4), self.size))
        for _ in range(50):
            handle = hvd.allgather_async(torch.ones(2), name="of the ordinary mode")
            with torch.inference_mode():
                hvd.allreduce(torch.ones(1), name="of inference mode")  # its thread may run the other one too
            self.assertFalse(hvd.synchronize(handle).is_inference())

    def test_a_default_device(self):
        """It is for the tensors of the program. On this one tensors have no values."""
        self.addCleanup(torch.set_default_device, None)
        torch.set_default_device("meta")
        cpu = functools.partial(torch.ones, device="cpu", requires_grad=True)
        hvd.shutdown()
        hvd.init()
        self.assertTrue(hvd.is_homogeneous())
        self.assertEqual(hvd.broadcast_object(self.rank, 1), 1)
        self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))
        output, received = hvd.alltoall(cpu(self.size), [1] * self.size)
        self.assertEqual(received.tolist(), [1] * self.size)
        self.assertEqual(hvd.synchronize(hvd.alltoall_async(output.detach(), [1] * self.size))[1].tolist(),
                         [1] * self.size)
        rows = cpu(self.rank + 1)
        (hvd.allgather(rows).sum() + hvd.grouped_allgather([rows])[0].sum()).backward()
        self.assertEqual(rows.grad.tolist(), [2.0] * (self.rank + 1))
        parameter = nn.Parameter(cpu(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0, momentum=0.5))
        parameter.sum().backward()
        optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        for loss, expected in ((2.0, 2.0), (cpu(()), 1.0)):
            self.assertEqual(optimizer.step(lambda: loss).item(), expected)

    def test_names_are_per_kind(self):
        tensor = torch.ones(2)
        handles = [hvd.allreduce_async(tensor, name="x"), hvd.allgather_async(tensor, name="x"),
                   hvd.broadcast_async(tensor, 0, name="x")]
        self.assertEqual([len(hvd.synchronize(handle)) for handle in handles], [2, 2 * self.size, 2])

    def test_grouped(self):
        tensors = [torch.full((n,), float(self.rank)) for n in range(1, 4)]
        mean = (self.size - 1) / 2
        for reduced in (hvd.grouped_allreduce(tensors), hvd.synchronize(hvd.grouped_allreduce_async(tensors))):
            for n, tensor in enumerate(reduced, 1):
                self.equal(tensor, torch.full((n,), mean))
        copies = [tensor.clone() for tensor in tensors]
        hvd.grouped_allreduce_(copies, op=hvd.Sum)
        self.equal(copies[2], torch.full((3,), mean * self.size))
        gathered = hvd.grouped_allgather(tensors)
        self.equal(gathered[0], torch.arange(float(self.size)))
        parts = hvd.grouped_reducescatter([torch.ones(self.size, 2), torch.ones(2 * self.size)], op=hvd.Sum)
        self.assertEqual([tuple(part.shape) for part in parts], [(1, 2), (2,)])
        self.equal(parts[1], torch.full((2,), self.size))

    def test_gather_broadcast_exchange(self):
        for dtype in DTYPES + [torch.bool]:
            tensor = torch.full((self.rank + 1, 2), self.rank % 2).to(dtype)
            gathered = hvd.allgather(tensor)
            expected = torch.cat([torch.full((r + 1, 2), r % 2).to(dtype) for r in range(self.size)])
            self.assertTrue(torch.equal(gathered, expected))
            for root in range(self.size):
                copy = torch.full((3,), self.rank).to(dtype)
                self.equal(hvd.broadcast(copy, root), torch.full((3,), root))
                self.assertIs(hvd.broadcast_(copy, root), copy)
                self.equal(copy, torch.full((3,), root))
        splits = [to + 1 for to in range(self.size)]
        tensor = torch.full((sum(splits),), self.rank)
        output, received = hvd.alltoall(tensor, splits)
        self.assertEqual(received.tolist(), [self.rank + 1] * self.size)
        self.equal(output, torch.arange(self.size).repeat_interleave(self.rank + 1))
        self.equal(hvd.alltoall(torch.arange(self.size) + 10 * self.rank),
                   torch.arange(self.size) * 10 + self.rank)

    def test_reducescatter(self):
        rows = self.size + 1
        tensor = torch.arange(rows * 2.0).view(rows, 2)
        mine = [slice(0, 2)] + [slice(r + 1, r + 2) for r in range(1, self.size)]
        self.equal(hvd.reducescatter(tensor), tensor[mine[self.rank]])
        self.equal(hvd.reducescatter(tensor, op=hvd.Sum), tensor[mine[self.rank]] * self.size)

    def test_sparse(self):
        tensor = torch.sparse_coo_tensor([[self.rank]], [6.0], (self.size,))
        for op, expected in ((hvd.Sum, 6.0), (hvd.Average, 6.0 / self.size)):
            reduced = hvd.synchronize(hvd.sparse_allreduce_async(tensor, "sparse", op))
            self.equal(reduced.to_dense(), torch.full((self.size,), expected))

    def test_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(2):
                name = os.path.join(folder, f"trace{number}.json")
                hvd.start_timeline(name, mark_cycles=True)
                hvd.allreduce(torch.ones(3), name=f"recorded {number}")
                hvd.stop_timeline()
                hvd.allreduce(torch.ones(3), name="not recorded")
                with open(os.path.join(folder, f"trace{number}.rank{self.rank}.json"), encoding="utf-8") as file:
                    text = file.read()
                self.assertTrue(json.loads(text))
                self.assertIn(f"allreduce.recorded {number}", text)
                self.assertNotIn("not recorded", text)
                self.assertNotIn(f"recorded {1 - number}", text)

    def test_gradients(self):
        """They are Horovod's: those of allgather and broadcast are averages."""
        mean = (self.size + 1) / 2  # of rank + 1
        weight = self.rank + 1.0
        self.equal(self.gradient(lambda t: hvd.allreduce(t, op=hvd.Sum), weight=weight), torch.full((4,), mean * self.size))
        self.equal(self.gradient(hvd.allreduce, weight=weight), torch.full((4,), mean))
        self.equal(self.gradient(lambda t: hvd.allgather(t), weight=weight), torch.full((4,), mean))
        self.equal(self.gradient(lambda t: hvd.grouped_allreduce([t])[0], weight=weight), torch.full((4,), mean))
        self.equal(self.gradient(lambda t: hvd.grouped_allgather([t])[0], weight=weight), torch.full((4,), mean))
        for root in range(self.size):
            self.equal(self.gradient(lambda t: hvd.broadcast(t, root), weight=weight),
                       torch.full((4,), mean if self.rank == root else 0.0))
        rows = (self.size,)
        per_rank = torch.arange(1.0, self.size + 1)
        self.equal(self.gradient(lambda t: hvd.alltoall(t), rows, weight), per_rank)
        self.equal(self.gradient(lambda t: hvd.alltoall(t, [1] * self.size)[0], rows, weight), per_rank)
        self.equal(self.gradient(lambda t: hvd.reducescatter(t), rows, weight), per_rank)
        self.equal(self.gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), rows, weight), per_rank * self.size)
        self.equal(self.gradient(lambda t: hvd.grouped_reducescatter([t])[0], rows, weight), per_rank)

    def test_process_sets(self):
        self.assertEqual(hvd.global_process_set.ranks, list(range(self.size)))
        pair = hvd.add_process_set([0, 1])
        rest = hvd.ProcessSet([self.size - 1])
        hvd.add_process_set(rest)
        self.assertEqual((pair.size(), pair.rank(), pair.included()),
                         (2, self.rank if self.rank < 2 else -1, self.rank < 2))
        if pair.included():
            self.equal(hvd.allreduce(torch.full((2,), float(self.rank)), process_set=pair), [0.5, 0.5])
            self.equal(hvd.allgather(torch.tensor([self.rank]), process_set=pair), [0, 1])
            self.equal(self.gradient(lambda t: hvd.allgather(t, process_set=pair), weight=self.rank + 1.0),
                       torch.full((4,), 1.5))
            self.assertEqual(hvd.broadcast_object(self.rank, 1, process_set=pair), 1)
        with self.assertRaises(ValueError):
            hvd.add_process_set(pair)
        self.assertTrue(hvd.remove_process_set(pair))
        self.assertFalse(hvd.remove_process_set(pair))
        self.assertFalse(hvd.remove_process_set(hvd.global_process_set))
        with self.assertRaises(ValueError):
            hvd.allreduce(torch.ones(1), process_set=pair)
        hvd.remove_process_set(rest)

    def test_process_sets_of_an_earlier_job(self):
        pair = hvd.add_process_set([0, 1])
        hvd.shutdown()
        hvd.init()
        self.assertIsNone(pair.process_set_id)
        hvd.add_process_set([0])  # it has the number that the pair had
        for call in (pair.size, lambda: hvd.allreduce(torch.ones(1), process_set=pair)):
            with self.assertRaisesRegex(ValueError, "earlier job"):
                call()
        self.assertFalse(hvd.remove_process_set(pair))
        hvd.add_process_set(pair)
        if pair.included():
            self.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=pair), [2.0, 2.0])

    def test_join(self):
        for _ in range(self.rank + 1):
            self.equal(hvd.allreduce(torch.ones(3), op=hvd.Max), torch.ones(3))
        self.assertEqual(hvd.join(), self.size - 1)
        hvd.barrier()

    def test_objects(self):
        self.assertEqual(hvd.broadcast_object({"from": self.rank}, root_rank=self.size - 1), {"from": self.size - 1})
        self.assertEqual(hvd.allgather_object(["x"] * self.rank), [["x"] * r for r in range(self.size)])
        text = "x" * (4 << 20)
        with mock.patch.object(torch.UntypedStorage, "__iter__", side_effect=AssertionError("each byte is an object")):
            self.assertTrue(hvd.broadcast_object(text if self.rank == 0 else None) == text)
            self.assertTrue(hvd.allgather_object(text + str(self.rank)) == [text + str(r) for r in range(self.size)])

    @unittest.skipUnless(importlib.util.find_spec("cloudpickle"), "cloudpickle")
    def test_objects_that_pickle_refuses(self):
        mine = self.rank
        function = hvd.broadcast_object(lambda more: mine + more, root_rank=1)
        self.assertEqual(function(5), 6)
        functions = hvd.allgather_object(lambda more: mine + more)
        self.assertEqual([each(5) for each in functions], list(range(5, 5 + self.size)))

    def test_parameters_without_names_are_broadcast(self):
        torch.manual_seed(self.rank)
        layer = nn.Linear(3, 2)
        with ranks.deadline():
            hvd.broadcast_parameters(list(layer.parameters()), root_rank=1)
        torch.manual_seed(1)
        self.same(layer.parameters(), nn.Linear(3, 2).parameters(), 0)

    def model(self):
        torch.manual_seed(self.rank)
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))

    def test_broadcast_parameters_and_state(self):
        for make in (lambda p: torch.optim.SGD(p, 0.1 * (self.rank + 1), momentum=0.9),
                     lambda p: torch.optim.Adam(p, 0.1), lambda p: torch.optim.LBFGS(p, 0.1),
                     lambda p: torch.optim.NAdam(p, 0.1)):
            model = self.model().double()  # a part of NAdam's state is of float32
            optimizer = make(model.parameters())
            if self.rank == 0:  # the others have no state yet
                optimizer.step(lambda: model(torch.ones(2, 5).double()).sum().backward() or torch.zeros(()))
            before = [p.clone() for p in model.parameters()]
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            for p, old in zip(model.parameters(), before):
                self.assertTrue(torch.equal(p, old), "it takes no step")
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            states = hvd.allgather_object((optimizer.state_dict(), model.state_dict()))
            for state, parameters in states[1:]:
                self.assertEqual(str(state), str(states[0][0]))
                self.assertEqual(str(parameters), str(states[0][1]))
        with self.assertRaises(ValueError):
            hvd.broadcast_parameters(torch.ones(1), 0)

    def test_the_state_of_an_optimizer_on_another_device(self):
        """The state is there, but for Adam's count of steps."""
        parameter = nn.Parameter(torch.ones(3, device=another_device()))
        optimizer = torch.optim.Adam([parameter], foreach=False)
        if self.rank == 0:
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        state = optimizer.state[parameter]
        self.assertEqual({key: value.device for key, value in state.items()},
                         {"step": torch.device("cpu"), "exp_avg": parameter.device, "exp_avg_sq": parameter.device})
        self.equal(state["exp_avg"].cpu(), torch.full((3,), 0.1))
        self.equal(state["step"], 1.0)

    def train(self, steps=6, passes=1, reference=False, make=None, step=None, named=True, **options):
        """Returns the parameters after training on this rank's rows, or in one process on all."""
        torch.manual_seed(3)
        data, target = torch.randn(self.size * 4, 5), torch.randn(self.size * 4, 1)
        mine = slice(None) if reference else slice(self.rank * 4, self.rank * 4 + 4)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = (make or (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)))(model.parameters())
        if not reference:
            names = model.named_parameters() if named else None
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=names,
                                                 backward_passes_per_step=passes, **options)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(passes):
                nn.functional.mse_loss(model(data[mine]), target[mine]).backward()
            (step or (lambda o: o.step()))(optimizer)
            scheduler.step()
        return list(model.parameters())

    def test_optimizer_equals_one_process(self):
        expected = self.train(reference=True)
        self.same(self.train(), expected)
        self.same(self.train(groups=2), expected)
        self.same(self.train(gradient_predivide_factor=2.0), expected)
        self.same(self.train(compression=hvd.Compression.fp16), expected, 1e-2)
        self.same(self.train(process_set=hvd.global_process_set), expected)
        self.same(self.train(passes=2), self.train(passes=2, reference=True))
        adam = lambda p: torch.optim.AdamW(p, 0.01)
        self.same(self.train(make=adam), self.train(make=adam, reference=True))
        summed = lambda p: torch.optim.SGD(p, 0.1 / self.size, momentum=0.9)
        self.same(self.train(make=summed, op=hvd.Sum), expected)

    def test_a_second_optimizer_of_the_parameters(self):
        """It takes the place of the first, which the program holds no longer."""
        for named in (True, False):
            model = nn.Linear(3, 1, bias=False)
            nn.init.zeros_(model.weight)
            for _ in range(2):
                optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0),
                                                     model.named_parameters() if named else None, op=hvd.Sum)
                for _ in range(2):
                    optimizer.zero_grad()
                    model(torch.full((1, 3), self.rank + 1.0)).sum().backward()
                    optimizer.step()
            self.equal(model.weight.detach(), torch.full((1, 3), -4 * self.sum_of(lambda rank: rank + 1.0)))

    def test_an_optimizer_of_an_earlier_job(self):
        """A rank that has joined since has a new one, as has every rank but 0 here."""
        weight = nn.Parameter(torch.zeros(2))
        make = lambda: hvd.DistributedOptimizer(torch.optim.SGD([weight], 1.0), [("weight", weight)])

        def step():
            optimizer.zero_grad()
            weight.sum().backward()
            with ranks.deadline():
                optimizer.step()
                hvd.barrier()

        optimizer = make()
        step()
        hvd.shutdown()
        hvd.init()
        if self.rank > 0:
            del optimizer
            optimizer = make()
        step()
        self.equal(weight.detach(), [-2.0, -2.0])
        hvd.shutdown()  # the ranks have made different numbers of optimizers in this job
        hvd.init()

    def test_a_step_after_a_failed_reduction(self):
        fails = True

        class Mixed:
            """Sends another dtype on rank 0 while `fails`, but for the gradient of the bias."""

            @staticmethod
            def compress(tensor):
                return tensor.to(torch.float64 if fails and rank == 0 and tensor.numel() > 1 else tensor.dtype), None

            @staticmethod
            def decompress(tensor, _):
                return tensor

        rank = self.rank
        model = nn.Linear(3, 1)
        nn.init.zeros_(model.weight)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), model.named_parameters(),
                                             compression=Mixed)
        loss = lambda: model(torch.full((1, 3), rank + 1.0)).sum()
        loss().backward()
        with self.assertRaises(hvd.HorovodInternalError) as caught:
            optimizer.step()
        self.assertEqual(caught.exception.code, "mismatch")
        fails = False
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        self.equal(model.weight.detach(), torch.full((1, 3), -(self.size + 1) / 2))

    def test_gradients_are_born_in_shared_memory(self):
        model = self.model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 5)).sum().backward()
            optimizer.step()
        self.assertTrue(all(ranks.is_shared(p.grad) for p in model.parameters()))
        with mock.patch.object(torch.Tensor, "clone", side_effect=AssertionError("a gradient is copied")):
            optimizer.zero_grad()
            model(torch.ones(4, 5)).sum().backward()
            optimizer.step()
        del optimizer
        self.assertTrue(all(torch.isfinite(p.grad).all() for p in model.parameters()))

    def test_memory_that_another_branch_reads(self):
        """The gradient of the position is a view of what the layer's backward reads later."""
        layer, position = nn.Linear(3, 4), nn.Parameter(torch.zeros(4))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([position, *layer.parameters()], 0.1))
        output, read = layer(torch.ones(1, 3)), []
        output.register_hook(lambda gradient: read.append(gradient.data_ptr()))
        ((output + position.unsqueeze(0)) * torch.full((1, 4), self.rank + 1.0)).sum().backward()
        self.assertNotIn(position.grad.data_ptr(), read)
        optimizer.synchronize()
        for p in (position, layer.bias, layer.weight):
            self.equal(p.grad, torch.full(p.shape, (self.size + 1) / 2))

    def test_groups_of_parameters_without_names(self):
        make = lambda p: torch.optim.SGD([{"params": p[:2], "lr": 0.2}, {"params": p[2:], "momentum": 0.5}], 0.1)
        of_list = lambda p: make(list(p))
        optimizer = hvd.DistributedOptimizer(of_list(self.model().parameters()))
        names = list(optimizer._parameter_names.values())
        self.assertEqual(len(set(names)), 4)
        self.assertEqual(hvd.allgather_object(names), [names] * self.size)
        self.same(self.train(make=of_list, named=False), self.train(make=of_list, reference=True))

    def test_the_state_of_a_distributed_optimizer_is_broadcast(self):
        model = self.model()
        options = {"lr": 0.1 * (self.rank + 1), "momentum": 0.5 + 0.1 * self.rank, "weight_decay": 0.1 * self.rank}
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), **options), model.named_parameters())
        model(torch.ones(1, 5)).sum().backward()
        optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        for key, value in (("lr", 0.2), ("momentum", 0.6), ("weight_decay", 0.1)):
            self.assertEqual([group[key] for group in optimizer.param_groups], [value])
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 5)).sum().backward()
            optimizer.step()
        weights = hvd.allgather(model[0].weight.detach().unsqueeze(0))
        self.assertTrue(all(torch.equal(weights[0], each) for each in weights))

    def test_a_scheduler_of_the_wrapped_optimizer(self):
        for op in (hvd.Average, hvd.Adasum):
            model = self.model()
            sgd = torch.optim.SGD(model.parameters(), 0.1 * (self.rank + 1), momentum=0.9)
            scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1, 0.5)
            optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), op=op)
            hooked = mock.Mock()
            self.enterContext(warnings.catch_warnings())
            warnings.simplefilter("error")
            optimizer.register_step_post_hook(hooked)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            self.assertIs(optimizer.state, sgd.state)
            for lr in (0.1, 0.05, 0.025):
                self.assertEqual([group["lr"] for group in optimizer.param_groups], [lr])
                optimizer.zero_grad()
                model(torch.ones(1, 5)).sum().backward()
                optimizer.step()
                scheduler.step()
            self.assertEqual(hooked.call_count, 3)

    def test_a_failed_adasum_step_changes_no_parameter(self):
        model = self.model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(),
                                             op=hvd.Adasum)
        before = [p.detach().clone() for p in model.parameters()]
        model(torch.ones(1, 5)).sum().backward()
        module = importlib.import_module("hvd.torch.optimizer")
        with mock.patch.object(module._C, "adasum_", side_effect=RuntimeError), self.assertRaises(RuntimeError):
            optimizer.step()
        self.same(model.parameters(), before)

    def test_step_with_a_closure(self):
        def trained(make, rows, wrap):
            torch.manual_seed(0)
            data, target = torch.randn(self.size * 4, 5).double(), torch.randn(self.size * 4, 1).double()
            model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).double()
            optimizer = wrap(make(model.parameters()))

            def closure():
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(data[rows]), target[rows])
                loss.backward()
                return loss

            losses = [optimizer.step(closure).detach() for _ in range(3)]
            return [*losses, *model.parameters()]

        for make in (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
                     lambda p: torch.optim.LBFGS(p, 0.5, max_iter=4),
                     lambda p: torch.optim.LBFGS(p, max_iter=4, line_search_fn="strong_wolfe")):
            mine = slice(self.rank * 4, self.rank * 4 + 4)
            self.same(trained(make, mine, hvd.DistributedOptimizer), trained(make, slice(None), lambda o: o))

    def test_parameters_that_are_thawed_frozen_or_added(self):
        mean = (self.size + 1) / 2
        for groups in (0, 1):
            parameters = [nn.Parameter(torch.zeros(2)) for _ in range(4)]
            always, frozen_later, thawed, added = parameters
            thawed.requires_grad_(False)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters[:3], 1.0), groups=groups)

            def step():
                optimizer.zero_grad()
                trained = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
                (sum(p.sum() for p in trained) * (self.rank + 1)).backward()
                optimizer.step()

            step()
            self.assertIsNone(thawed.grad)
            frozen_later.requires_grad_(False)
            thawed.requires_grad_(True)
            optimizer.add_param_group({"params": [added]})
            step()
            step()
            for p, steps in ((always, 3), (frozen_later, 1), (thawed, 2), (added, 2)):
                self.equal(p.detach(), torch.full((2,), -mean * steps))

    def test_networks_that_are_trained_in_turns(self):
        """Parameters that need no gradient in a pass are in none of its reductions."""
        torch.manual_seed(2)
        networks = [nn.Linear(3, 4), nn.Linear(4, 1)]
        optimizers = [hvd.DistributedOptimizer(torch.optim.SGD(each.parameters(), 0.1), each.named_parameters(f"{n}"))
                      for n, each in enumerate(networks)]
        for step in range(4):
            trained = step % 2
            for number, network in enumerate(networks):
                network.requires_grad_(number == trained)
                optimizers[number].zero_grad()
            before = [[p.clone() for p in network.parameters()] for network in networks]
            networks[1](networks[0](torch.full((1, 3), self.rank + 1.0))).sum().backward()
            optimizers[trained].step()
            for number, network in enumerate(networks):
                for p, old in zip(network.parameters(), before[number]):
                    self.assertEqual(torch.equal(p, old), number != trained)
                    self.equal(hvd.allreduce(p.detach(), op=hvd.Max), p.detach())

    def test_two_optimizers_with_groups(self):
        """Each trains a part of the model, and one backward pass computes the gradients of both."""
        for named, groups in ((True, 1), (True, 2), (False, 0), (False, 1), (True, "all")):
            torch.manual_seed(4)
            model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
            reference = copy.deepcopy(model)
            of_rank = lambda network, rank: network(torch.full((3, 5), rank + 1.0)).sum()
            (self.sum_of(lambda rank: of_rank(reference, rank)) / self.size).backward()
            optimizers = [
                hvd.DistributedOptimizer(torch.optim.SGD(part.parameters(), 0.1), model.named_parameters() if named else None,
                                         groups=[list(model.parameters())] if groups == "all" else groups)
                for part in (model[0], model[2])]
            of_rank(model, self.rank).backward()
            for optimizer in optimizers:
                optimizer.synchronize()
            self.same([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])

    def test_clipping(self):
        def clip(optimizer):
            if hasattr(optimizer, "synchronize"):
                optimizer.synchronize()
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, 0.05)
            if hasattr(optimizer, "synchronize"):
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()

        self.same(self.train(step=clip), self.train(step=clip, reference=True))

    def test_sync_batch_norm(self):
        for options in ({}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}):
            data = torch.randn(self.size * 3, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            weights = torch.arange(data.numel(), dtype=data.dtype).reshape(data.shape) / 7
            mine = slice(self.rank * 3, self.rank * 3 + 3)
            layers = [nn.BatchNorm1d(4, **options).double(), copy.deepcopy(hvd.SyncBatchNorm(4, **options)).double()]
            results = []
            for layer, rows in zip(layers, (slice(None), mine)):
                for _ in range(2):
                    layer.zero_grad()
                    input = data[rows].clone().requires_grad_()
                    output = layer(input)
                    (output * weights[rows]).sum().backward()
                gradients = [p.grad for p in layer.parameters()]
                results.append([output, input.grad, *gradients, *layer.buffers(), layer.eval()(data[rows])])
            (output, input, *rest), (own_output, own_input, *own_rest) = results
            self.same([own_output, own_input], [output[mine], input[mine]], 1e-9)
            for p, own in zip(layers[0].parameters(), own_rest):
                self.same([hvd.allreduce(own, op=hvd.Sum)], [p.grad], 1e-9)
            count = len(list(layers[0].parameters()))
            self.same(own_rest[count:-1], rest[count:-1], 1e-9)
            self.same([own_rest[-1]], [rest[-1][mine]], 1e-9)
            pickle.loads(pickle.dumps(layers[1]))
        with self.assertRaises(ValueError):
            hvd.SyncBatchNorm(4)(torch.ones(4))

    def test_sync_batch_norm_of_an_earlier_job(self):
        """A rank that has joined since has a new layer, as has every rank but 0 here."""
        layer, data = hvd.SyncBatchNorm(4), torch.randn(3, 4)
        layer(data)
        hvd.shutdown()
        hvd.init()
        layer = layer if self.rank == 0 else hvd.SyncBatchNorm(4)
        self.equal(hvd.allreduce(layer(data).detach().mean(0)), torch.zeros(4))

    def test_optimizer_is_of_its_class(self):
        model = self.model()
        optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), 0.1, betas=(0.5, 0.6)))
        self.assertIsInstance(optimizer, torch.optim.Adam)
        self.assertEqual(type(optimizer).__name__, "Adam")
        self.assertEqual(optimizer.defaults["betas"], (0.5, 0.6))
        model(torch.ones(1, 5)).sum().backward()
        optimizer.step()
        self.assertEqual(len(optimizer.state_dict()["state"]), 4)

    def test_unused_parameters(self):
        """A parameter that only rank 0 used gets zeros of the others."""
        used, unused = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
        parameters = [("used", used.weight), ("unused", unused.weight)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in parameters], 1.0), parameters)
        loss = used(torch.ones(2)) + (unused(torch.ones(2)) if self.rank == 0 else 0)
        loss.sum().backward()
        optimizer.synchronize()
        self.equal(used.weight.grad, torch.ones(1, 2))
        self.equal(unused.weight.grad, torch.full((1, 2), 1 / self.size))

    def test_sparse_gradients(self):
        for sparse_as_dense in (False, True):
            embedding = nn.Embedding(self.size, 2, sparse=True)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), 1.0),
                                                 embedding.named_parameters(), sparse_as_dense=sparse_as_dense)
            embedding(torch.tensor([self.rank])).sum().backward()
            optimizer.synchronize()
            gradient = embedding.weight.grad
            self.assertTrue(gradient.is_sparse)
            self.equal(gradient.to_dense(), torch.full((self.size, 2), 1 / self.size))

    def test_a_sparse_parameter_that_one_rank_does_not_use(self):
        for sparse_as_dense in (False, True):
            embedding = nn.Embedding(4, 2, sparse=True)
            nn.init.ones_(embedding.weight)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0),
                                                 embedding.named_parameters(), sparse_as_dense=sparse_as_dense)
            for _ in range(2):
                optimizer.zero_grad()
                if self.rank > 0:
                    embedding(torch.tensor([self.rank])).sum().backward()
                optimizer.synchronize()
                self.assertTrue(embedding.weight.grad.is_sparse)
                with optimizer.skip_synchronize():
                    optimizer.step()
            rows = [1.0] + [1 - 2 / self.size] * (self.size - 1) + [1.0] * (4 - self.size)
            self.equal(embedding.weight.detach(), torch.tensor(rows).unsqueeze(1).expand(4, 2))

    def test_elastic_state_in_an_ordinary_job(self):
        model = nn.Linear(2, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
        state = hvd.elastic.TorchState(model, optimizer, epoch=self.rank, history=[self.rank])
        with self.assertRaises(hvd.HorovodInternalError) as caught:
            raise_elsewhere = hvd.elastic.run(lambda state: (_ for _ in ()).throw(hvd.HorovodInternalError("mine")))
            raise_elsewhere(state)
        self.assertEqual(str(caught.exception), "mine")

        @hvd.elastic.run
        def train(state, more):
            self.assertEqual((state.epoch, state.history), (0, [0]), "the state is that of rank 0")
            weights = [hvd.broadcast(p.detach(), 0, name=f"weight {i}") for i, p in enumerate(model.parameters())]
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(weights, model.parameters())))
            state.epoch = 5
            state.history.append(1)
            state.commit()
            model(torch.ones(1, 2)).sum().backward()  # its gradients are pending when the state goes back
            state.epoch = 7
            state.history.append(2)
            with torch.no_grad():
                model.weight.fill_(9)
            state.restore()
            self.assertTrue(torch.equal(model.weight, weights[0]))
            optimizer.zero_grad()
            return state.epoch + more, state.history

        self.assertEqual(train(state, more=1), (6, [0, 1]))

    def test_wrong_use_of_the_optimizer(self):
        model = self.model()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        with self.assertRaises(ValueError):
            hvd.DistributedOptimizer(sgd, [("same", p) for p in model.parameters()])
        with self.assertRaises(ValueError):
            hvd.DistributedOptimizer(sgd, list(model.named_parameters())[:2])
        with self.assertRaises(ValueError):
            hvd.DistributedOptimizer(sgd, op=hvd.Sum, gradient_predivide_factor=2.0)
        optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters())
        model(torch.ones(1, 5)).sum().backward()
        with self.assertRaises(AssertionError):
            optimizer.zero_grad()
        with self.assertRaises(AssertionError):
            model(torch.ones(1, 5)).sum().backward()
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        self.assertTrue(any("skip_synchronize" in str(each.message) for each in caught))
