"""Compares every operation of the backend hvd with gloo's, in the same processes."""

import atexit
import datetime
import multiprocessing
import threading
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ReduceOp
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

import hvd.torch  # registers the backend
import ranks

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
DTYPES = FLOATS + INTEGERS
SHAPES = [(), (5,), (0,), (3, 4), (1000, 33)]


def values(shape, dtype, seed=0):
    """Small whole numbers, whose sums and products are exact in every dtype."""
    generator = torch.Generator().manual_seed(1 + dist.get_rank() + 100 * seed)
    return torch.randint(1, 4, shape, generator=generator).to(dtype)


class BackendTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size = ranks.init_process_group()
        cls.gloo = dist.new_group(backend="gloo")

    def same(self, ours, theirs, about=None):
        for a, b in zip(ours, theirs, strict=True):
            self.assertEqual(a.dtype, b.dtype, about)
            self.assertTrue(torch.equal(a, b), f"{about}: {a} is not {b}")

    def compare(self, make, call, about, polls=False):
        """Calls the operation on both groups with equal tensors, blocking and not."""
        for blocking in (True, False):
            results = []
            for group in (dist.group.WORLD, self.gloo):
                tensors = make()
                work = call(tensors, group, not blocking)
                if not blocking:
                    if polls:
                        ranks.wait_until(work.is_completed)
                    work.wait()
                    self.assertTrue(work.is_completed())
                results.append([t for each in tensors for t in (each if isinstance(each, list) else [each])])
            self.same(*results, about)

    def test_all_reduce(self):
        for case in ranks.each(dtype=DTYPES, shape=SHAPES, op=[ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX,
                                                               ReduceOp.PRODUCT]):
            self.compare(lambda: [values(case["shape"], case["dtype"])],
                         lambda t, group, later: dist.all_reduce(t[0], case["op"], group, later), case)

    def test_all_reduce_of_bits(self):
        for case in ranks.each(dtype=INTEGERS, op=[ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]):
            self.compare(lambda: [values((7,), case["dtype"])],
                         lambda t, group, later: dist.all_reduce(t[0], case["op"], group, later), case)

    def test_average(self):
        tensor = torch.full((3,), float(self.rank))
        dist.all_reduce(tensor, ReduceOp.AVG)
        self.same([tensor], [torch.full((3,), (self.size - 1) / 2)])

    def test_strided(self):
        self.compare(lambda: [values((4, 6), torch.float32).t()],
                     lambda t, group, later: dist.all_reduce(t[0], group=group, async_op=later), "transposed")

    def test_complex(self):
        self.compare(lambda: [torch.complex(values((3,), torch.float32), values((3,), torch.float32, 1))],
                     lambda t, group, later: dist.all_reduce(t[0], group=group, async_op=later), "complex")

    def test_sparse(self):
        tensor = torch.sparse_coo_tensor([[self.rank, 3]], [1.0, 2.0], (4,))
        expected = tensor.to_dense()
        dist.all_reduce(expected, group=self.gloo)
        dist.all_reduce(tensor)
        self.same([tensor.to_dense()], [expected])

    def test_broadcast_and_reduce(self):
        for case in ranks.each(dtype=DTYPES + [torch.bool], shape=SHAPES, root=range(self.size)):
            make = lambda: [values(case["shape"], case["dtype"])]
            self.compare(make, lambda t, group, later: dist.broadcast(t[0], case["root"], group, later), case)
        for root in range(self.size):
            tensor = values((5,), torch.float32)
            mine = tensor.clone()
            dist.reduce(tensor, root)
            dist.all_reduce(mine, group=self.gloo)
            expected = mine if self.rank == root else values((5,), torch.float32)
            self.same([tensor], [expected], "reduce changes the tensor of the root only")

    def test_all_gather(self):
        for case in ranks.each(dtype=DTYPES + [torch.bool], shape=[(5,), (3, 4)]):
            shape, dtype = case["shape"], case["dtype"]
            self.compare(lambda: [[torch.zeros(shape, dtype=dtype) for _ in range(self.size)],
                                  values(shape, dtype)],
                         lambda t, group, later: dist.all_gather(t[0], t[1], group, later), case)
            whole = (shape[0] * self.size, *shape[1:])
            self.compare(lambda: [torch.zeros(whole, dtype=dtype), values(shape, dtype)],
                         lambda t, group, later: dist.all_gather_into_tensor(t[0], t[1], group, later), case)

    def test_reduce_scatter(self):
        for case in ranks.each(dtype=FLOATS[:2] + INTEGERS, op=[ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BXOR]):
            dtype, op = case["dtype"], case["op"]
            if op == ReduceOp.BXOR and dtype.is_floating_point:
                continue
            everything = torch.stack([values((4,), dtype, seed) for seed in range(self.size)])
            expected = everything.clone()
            dist.all_reduce(expected, op, self.gloo)
            output = torch.zeros(4, dtype=dtype)
            dist.reduce_scatter(output, list(everything.clone()), op)
            self.same([output], [expected[self.rank]], case)
            output = torch.zeros(4, dtype=dtype)
            dist.reduce_scatter_tensor(output, everything.flatten(), op, async_op=True).wait()
            self.same([output], [expected[self.rank]], case)

    def test_all_to_all(self):
        rows = [self.rank + to + 1 for to in range(self.size)]
        for case in ranks.each(dtype=DTYPES, inner=[(), (3,)]):
            dtype, inner = case["dtype"], case["inner"]
            make = lambda: [torch.zeros((sum(rows), *inner), dtype=dtype), values((sum(rows), *inner), dtype)]
            self.compare(make, lambda t, group, later:
                         dist.all_to_all_single(t[0], t[1], rows, rows, group, later), case)
            make = lambda: [[torch.zeros((n, *inner), dtype=dtype) for n in rows],
                            [values((n, *inner), dtype, to) for to, n in enumerate(rows)]]
            ours = make()
            dist.all_to_all(*ours)
            theirs = make()
            dist.all_to_all_single(*[torch.cat(theirs[1]) * 0, torch.cat(theirs[1])], rows, rows, self.gloo)
            flat = torch.cat(theirs[1]) * 0
            dist.all_to_all_single(flat, torch.cat(theirs[1]), rows, rows, self.gloo)
            self.same([torch.cat(ours[0])], [flat], case)
        even = torch.arange(2.0 * self.size) + 10 * self.rank
        self.compare(lambda: [torch.zeros_like(even), even.clone()],
                     lambda t, group, later: dist.all_to_all_single(t[0], t[1], group=group, async_op=later),
                     "even splits")

    def test_gather_and_scatter(self):
        for case in ranks.each(dtype=DTYPES, root=range(self.size)):
            dtype, root = case["dtype"], case["root"]
            room = lambda: [torch.zeros(2, 3, dtype=dtype) for _ in range(self.size)]
            self.compare(lambda: [values((2, 3), dtype), room()],
                         lambda t, group, later: dist.gather(t[0], t[1] if self.rank == root else None, root,
                                                             group, later), case)
            parts = lambda: [values((2, 3), dtype, to) for to in range(self.size)]
            self.compare(lambda: [torch.zeros(2, 3, dtype=dtype), parts()],
                         lambda t, group, later: dist.scatter(t[0], t[1] if self.rank == root else None, root,
                                                              group, later), case)

    def test_coalesced(self):
        tensors = [values((n,), torch.float32, n) for n in range(1, 5)]
        expected = [tensor.clone() for tensor in tensors]
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        for tensor in expected:
            dist.all_reduce(tensor, group=self.gloo)
        self.same(tensors, expected)
        inputs = [values((n,), torch.float32, n) for n in range(1, 5)]
        outputs = [torch.zeros(n * self.size) for n in range(1, 5)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for output, tensor in zip(outputs, inputs):
                dist.all_gather_into_tensor(output, tensor)
        manager.wait()
        for output, tensor in zip(outputs, inputs):
            expected = torch.zeros_like(output)
            dist.all_gather_into_tensor(expected, tensor, self.gloo)
            self.same([output], [expected])
        shards = [torch.zeros(n) for n in range(1, 5)]
        with dist._coalescing_manager():
            for shard, output in zip(shards, outputs):
                dist.reduce_scatter_tensor(shard, output)
        self.same(shards, [tensor * self.size for tensor in inputs])

    def test_messages(self):
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for tag in (0, 7):
            received = torch.zeros(3, 2, dtype=torch.int64).t()
            sent = torch.arange(6).reshape(2, 3) + 10 * self.rank
            works = [dist.isend(sent, after, tag=tag), dist.irecv(received, before, tag=tag)]
            for work in works:
                work.wait()
            self.same([received], [torch.arange(6).reshape(2, 3) + 10 * before])
        one = torch.full((1,), float(self.rank))
        if self.rank == 0:
            for to in range(1, self.size):
                dist.send(one, to)
        else:
            dist.recv(one, 0)
        self.assertEqual(one.item(), 0.0)
        operations = [dist.P2POp(dist.isend, torch.ones(2) * self.rank, after),
                      dist.P2POp(dist.irecv, one.resize_(2), before)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self.same([one], [torch.ones(2) * before])

    def test_messages_from_any_rank(self):
        for asynchronous in (False, True):
            dist.barrier()
            if self.rank == 0:
                senders = set()
                for index in range(2 * (self.size - 1)):
                    received = torch.zeros(2, dtype=torch.int64)
                    if asynchronous:
                        work = dist.irecv(received, tag=3)
                        work.wait()
                        sender = work._source_rank()
                        self.assertTrue(work.is_completed())
                    else:
                        sender = dist.recv(received, tag=3)
                    self.assertEqual(received[0].item(), sender)
                    senders.add(tuple(received.tolist()))
                self.assertEqual(senders, {(r, n) for r in range(1, self.size) for n in (0, 1)})
                dist.barrier()
                named = torch.zeros(2, dtype=torch.int64)
                dist.recv(named, self.size - 1, tag=3)  # of a rank whose messages were announced
                self.assertEqual(named.tolist(), [self.size - 1, 2])
            else:
                works = [dist.isend(torch.tensor([self.rank, n]), 0, tag=3) for n in (0, 1)]
                for work in works:
                    work.wait()
                dist.barrier()
                if self.rank == self.size - 1:
                    dist.send(torch.tensor([self.rank, 2]), 0, tag=3)

    def test_threads_that_receive_from_any_rank(self):
        """Each waits for another tag, and the message of the one that began last comes first."""
        dist.barrier()
        with ranks.deadline():
            for _ in range(3):
                received = {tag: torch.zeros(1, dtype=torch.int64) for tag in (11, 12)}
                if self.rank == 0:
                    threads = [threading.Thread(target=dist.recv, args=(tensor,), kwargs={"tag": tag})
                               for tag, tensor in received.items()]
                    for thread in threads:
                        thread.start()
                    self.assertFalse(dist.irecv(torch.zeros(1), tag=13).is_completed())
                    for thread in threads:
                        thread.join()
                    self.assertEqual(received, {tag: tag for tag in received})
                elif self.rank == 1:
                    for tag in reversed(received):
                        dist.send(torch.tensor([tag]), 0, tag=tag)

    def test_the_store_does_not_grow(self):
        store = dist.distributed_c10d._get_default_store()
        keys = []
        for _ in range(4):
            dist.monitored_barrier()
            if self.rank > 0:
                dist.send(torch.ones(1), 0, tag=5)
            for _ in range(self.size - 1 if self.rank == 0 else 0):
                dist.recv(torch.zeros(1), tag=5)
            dist.barrier(self.gloo)
            keys.append(store.num_keys())
            dist.barrier(self.gloo)
        self.assertEqual(keys[1:], keys[1:2] * 3)

    def test_nobody_sends(self):
        group = dist.new_group(timeout=datetime.timedelta(seconds=60))
        with self.assertRaisesRegex(dist.DistBackendError, "no rank has sent"):
            dist.irecv(torch.zeros(1), group=group).wait(datetime.timedelta(milliseconds=20))
        dist.barrier(self.gloo)
        dist.destroy_process_group(group)

    def test_multiplied_sums(self):
        for factor in (0.5, torch.tensor([float(self.rank + 1)])):
            op = dist._make_nccl_premul_sum(factor)
            weights = [0.5 if isinstance(factor, float) else r + 1.0 for r in range(self.size)]
            expected = sum(w * (r + 1) for r, w in enumerate(weights))
            tensor = torch.full((5,), self.rank + 1.0)
            dist.all_reduce(tensor, op)
            self.same([tensor], [torch.full((5,), expected)])
            tensor, part = torch.full((2 * self.size,), self.rank + 1.0), torch.zeros(2)
            dist.reduce_scatter_tensor(part, tensor, op)
            self.same([tensor, part], [torch.full((2 * self.size,), self.rank + 1.0), torch.full((2,), expected)])

    def test_profiles(self):
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(torch.ones(3, 2))
            dist.all_reduce(torch.ones(4), async_op=True).wait()
        events = [e for e in profile.function_events if e.name == "hvd:all_reduce"]
        self.assertEqual([e.input_shapes for e in events], [[[3, 2]], [[4]]])

    def test_many_at_once(self):
        tensors = [torch.full((10,), float(i)) for i in range(40)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        self.same(tensors, [torch.full((10,), float(i * self.size)) for i in range(40)])

    def test_futures(self):
        tensor = torch.ones(4)
        doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
        self.same([doubled.wait()], [torch.full((4,), 2.0 * self.size)])

    def test_inference_mode(self):
        """Tensors that were made in this mode may be written only in it, also by the threads of the engine."""
        strided = lambda: [values((4, 6), torch.int64).t()]
        lists = lambda: [[torch.zeros(3) for _ in range(self.size)], values((3,), torch.float32)]
        with torch.inference_mode():
            for about, make, call in (
                    ("reduced", strided, lambda t, group, later: dist.all_reduce(t[0], group=group, async_op=later)),
                    ("bits", strided, lambda t, group, later: dist.all_reduce(t[0], ReduceOp.BXOR, group, later)),
                    ("broadcast", strided, lambda t, group, later: dist.broadcast(t[0], 1, group, later)),
                    ("gathered", lists, lambda t, group, later: dist.all_gather(*t, group, later)),
                    ("gathered on one", lists, lambda t, group, later:
                     dist.gather(t[1], t[0] if self.rank == 0 else None, 0, group, later))):
                self.compare(make, call, about, polls=True)

    def test_a_forked_child_ends(self):
        """It has the groups of its parent, but none of their threads."""
        group = dist.new_group()
        for ends in (atexit._run_exitfuncs, lambda: dist.destroy_process_group(group)):
            dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future().wait()
            if self.rank < 2:
                (dist.send if self.rank == 0 else dist.recv)(torch.ones(1), 1 - self.rank, group=group)
            child = multiprocessing.get_context("fork").Process(target=ends)
            child.start()
            child.join(60)
            child.kill()
            child.join()
            self.assertEqual(child.exitcode, 0)
        dist.destroy_process_group(group)

    def sum_on_rank_1_last(self, tensor, callback, group=None):
        """Returns the future of a sum with a callback, which the other ranks have before the operation ends."""
        if self.rank == 1:
            dist.barrier(self.gloo)
        work = dist.all_reduce(tensor, group=group, async_op=True)
        future = work.get_future().then(callback)
        if self.rank != 1:
            dist.barrier(self.gloo)
        return work, future

    def test_a_callback_that_waits_for_another_operation(self):
        value = lambda future: future.value()[0]
        again = lambda future: self.sum_on_rank_1_last(value(future), value)[1].wait()
        with ranks.deadline():
            _, future = self.sum_on_rank_1_last(torch.ones(3), again)
            self.same([future.wait()], [torch.full((3,), float(self.size**2))])

    def test_a_work_that_outlives_its_group(self):
        """Its last owner is the thread of the program, which holds Python's lock, or a callback of its future."""
        for owner in ("program", "callback"):
            group = dist.new_group()
            box = []

            def callback(future, box=box):
                if self.rank == 0:
                    dist.recv(torch.zeros(1), 1, group=self.gloo)
                    sum(range(2_000_000))  # meanwhile the program releases its handles
                box.clear()

            with ranks.deadline():
                work, future = self.sum_on_rank_1_last(torch.ones(3), callback, group)
                if owner == "callback":
                    box.append(work)
                    del work
                dist.destroy_process_group(group)
                if self.rank == 1:
                    dist.send(torch.zeros(1), 0, group=self.gloo)
                del group
                if owner == "program":
                    del work
                future.wait()

    def test_messages_while_a_collective_waits_for_its_name(self):
        """Nine alike operations need nine names, of which there are eight."""
        tensors = [torch.ones(11) for _ in range(9)]

        def reduce():
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                work.wait()

        thread = threading.Thread(target=reduce)
        with ranks.deadline():
            if self.rank == 0:
                thread.start()
            if self.rank <= 1:
                for _ in range(100):
                    (dist.send if self.rank == 0 else dist.recv)(torch.ones(1), 1 - self.rank)
            if self.rank == 0:
                thread.join()
            else:
                reduce()
        self.same(tensors, [torch.full((11,), float(self.size))] * 9)

    def test_objects_and_barrier(self):
        gathered = [None] * self.size
        dist.all_gather_object(gathered, {"rank": self.rank, "text": "x" * self.rank})
        self.assertEqual(gathered, [{"rank": r, "text": "x" * r} for r in range(self.size)])
        box = [f"from {self.rank}"]
        dist.broadcast_object_list(box, src=self.size - 1)
        self.assertEqual(box, [f"from {self.size - 1}"])
        dist.barrier()
        dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=30), True)

    def test_monitored_barrier_where_devices_have_backends(self):
        group = dist.new_group(backend="cpu:hvd", timeout=datetime.timedelta(seconds=60))
        dist.monitored_barrier(group)
        if self.rank == 1:
            dist.barrier(self.gloo)  # the others have given up by then
            with self.assertRaisesRegex(dist.DistBackendError, "no answer of Rank 1$"):
                dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=30))
        else:
            with self.assertRaisesRegex(dist.DistBackendError, "Rank 1 failed to pass|no answer of Rank 1$"):
                dist.monitored_barrier(group, timeout=0.05 if self.rank == 0 else 30.0)
            dist.barrier(self.gloo)
        dist.destroy_process_group(group)

    def test_late_rank_in_monitored_barrier(self):
        if self.rank == 1:
            dist.barrier(self.gloo)  # the others have given up by then
            with self.assertRaisesRegex(dist.DistBackendError, "no answer of Rank 1$"):
                dist.monitored_barrier(timeout=datetime.timedelta(seconds=30), wait_all_ranks=True)
        else:
            with self.assertRaisesRegex(dist.DistBackendError, "Rank 1 failed to pass|no answer of Rank 1$"):
                dist.monitored_barrier(timeout=0.05 if self.rank == 0 else 30.0)
            dist.barrier(self.gloo)
        dist.monitored_barrier(self.gloo)

    def test_groups(self):
        for members in ([0], [1, 0], [1], list(range(self.size))):
            group = dist.new_group(members)
            if self.rank not in members:
                continue
            self.assertEqual(dist.get_backend(group), "hvd")
            tensor = torch.full((3,), float(self.rank + 1))
            dist.all_reduce(tensor, group=group)
            self.same([tensor], [torch.full((3,), float(sum(r + 1 for r in members)))])
            dist.broadcast(tensor, members[-1], group=group)
            dist.destroy_process_group(group)

    def test_mismatch(self):
        tensor = torch.ones(2 + (self.rank == 0))
        group = dist.new_group()
        with self.assertRaises(dist.DistBackendError):
            dist.broadcast(tensor, 0, group=group, async_op=True).wait(datetime.timedelta(seconds=1))
        dist.barrier(self.gloo)
        group.abort()

    def test_timeout(self):
        group = dist.new_group(timeout=datetime.timedelta(seconds=1))
        if self.rank == 0:
            with self.assertRaisesRegex(dist.DistBackendError, " timeout .*1"):
                dist.all_reduce(torch.ones(3), group=group)
            with self.assertRaises(dist.DistBackendError):  # the group stays broken
                dist.all_reduce(torch.ones(3), group=group)
        dist.barrier(self.gloo)
        group.abort()

    def test_large_gradients_are_born_in_shared_memory(self):
        """malloc would return their pages when they are freed."""
        layer = nn.Linear(3000, 3000)  # 34 MiB
        layer(torch.ones(1, 3000)).sum().backward()
        self.assertTrue(ranks.is_shared(layer.weight.grad))
        self.assertFalse(ranks.is_shared(layer.weight))
        self.assertFalse(ranks.is_shared(layer.bias.grad))

    @unittest.skipIf(torch.cuda.is_available(), "needs a machine without a GPU")
    def test_buckets_of_ddp_lie_in_shared_memory(self):
        """Ranks then read each other's gradients there."""
        model = nn.parallel.DistributedDataParallel(nn.Linear(50, 3), gradient_as_bucket_view=True)
        for _ in range(3):  # DDP lays out its buckets anew after the first step
            model(torch.ones(1, 50)).sum().backward()
            self.assertTrue(all(ranks.is_shared(p.grad) for p in model.parameters()))
        grads = [p.grad for p in model.parameters()]
        del model  # its gradients outlive it
        self.assertTrue(all((grad == 3).all() for grad in grads))

    def test_ddp_with_compressed_gradients(self):
        """The callbacks of torch's hook wait for operations that they start."""
        torch.manual_seed(3)
        model = nn.parallel.DistributedDataParallel(nn.Linear(20, 20))
        model.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
        with ranks.deadline():
            for step in range(5):
                model.zero_grad()
                model(torch.full((2, 20), self.rank + step + 1.0)).sum().backward()
        mean = (self.size + 1) / 2 + 4  # a matrix of rank one, which the compression keeps
        torch.testing.assert_close(model.module.weight.grad, torch.full((20, 20), 2 * mean))

    def test_ddp(self):
        """Training with DDP gives the same parameters over both backends."""
        torch.manual_seed(5)
        data = torch.randn(self.size * 8, 6)
        target = data.sum(1, keepdim=True)

        def train(group):
            torch.manual_seed(self.rank)  # DDP broadcasts those of rank 0
            model = nn.Sequential(nn.Linear(6, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
            model = nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            mine = slice(self.rank * 8, self.rank * 8 + 8)
            for _ in range(30):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(data[mine]), target[mine])
                loss.backward()
                optimizer.step()
            return list(model.state_dict().values()), loss.item()

        (ours, loss), (theirs, _) = train(None), train(self.gloo)
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        self.assertLess(loss, 1.0)
        for tensor in ours:
            copy = tensor.clone().float()
            dist.all_reduce(copy, ReduceOp.MAX)
            if tensor.dim() == 2:
                self.same([copy], [tensor])  # all ranks have the same bits
