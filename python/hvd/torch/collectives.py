"""The collectives of horovod.torch. Names are per kind, so that one name serves several kinds."""

import torch

from hvd import _C
from hvd.torch.compression import Compression
from hvd.torch.job import Adasum, Average, Sum, global_process_set, rank


class _Handle:
    """An operation that runs. `synchronize` returns its result."""

    def __init__(self, work, result=lambda value: value):
        self._work = work
        self._result = result

    def done(self):
        return self._work.done()

    def wait(self):
        return self._result(self._work.wait())

    __call__ = wait  # Horovod's handle of a sparse allreduce is a function


class _Done:
    """An operation that has ended already."""

    def __init__(self, value):
        self._value = value

    def done(self):
        return True

    def wait(self):
        return self._value


def poll(handle):
    """Whether the operation has ended, so that `synchronize` does not wait."""
    return handle.done()


def synchronize(handle):
    """Waits for the operation and returns its result. Raises HorovodInternalError."""
    return handle.wait()


def _name(kind, name):
    return f"{kind}.{name}" if name else ""


def _op(op, average):
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is None:
        return Average if average is None or average else Sum  # Horovod takes any true or false value
    return op


def _no_adasum(op):
    if op == Adasum:
        raise NotImplementedError("reducescatter has no op=Adasum")
    return op


def _adasum(tensors, name, process_set, before, after):
    if before != 1.0 or after != 1.0:
        raise NotImplementedError("Adasum does not support prescale_factor and postscale_factor")
    _C.adasum_(tensors, name, process_set._id())


def _start_allreduce(tensor, name, op, before, after, process_set, in_place):
    name = _name("allreduce", name)
    if op == Adasum:  # it has no asynchronous form
        output = tensor if in_place else tensor.clone()
        _adasum([output], name, process_set, before, after)
        return _Done(output)
    return _Handle(_C.allreduce_async(tensor, name, op, before, after, process_set._id(), in_place))


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                    postscale_factor=1.0, process_set=global_process_set):
    return _start_allreduce(tensor, name, _op(op, average), prescale_factor, postscale_factor,
                            process_set, False)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                     postscale_factor=1.0, process_set=global_process_set):
    return _start_allreduce(tensor, name, _op(op, average), prescale_factor, postscale_factor,
                            process_set, True)


def _allreduce(tensor, name, op, before, after, process_set, in_place):
    if op == Adasum:
        return _start_allreduce(tensor, name, op, before, after, process_set, in_place).wait()
    return _C.allreduce(tensor, _name("allreduce", name), op, before, after, process_set._id(),
                        in_place)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, *arguments):
        ctx.arguments = arguments
        return _allreduce(tensor, *arguments, False)

    @staticmethod
    def backward(ctx, gradient):
        name, *others = ctx.arguments
        return _Allreduce.apply(gradient, _backward(name), *others), *[None] * 5


def _backward(name):
    return f"{name}.backward" if name else None


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Returns the reduction, by default the average, as a new tensor. Autograd records it."""
    sent, context = compression.compress(tensor)
    arguments = name, _op(op, average), prescale_factor, postscale_factor, process_set
    if sent.requires_grad and torch.is_grad_enabled():
        reduced = _Allreduce.apply(sent, *arguments)
    else:
        reduced = _allreduce(sent, *arguments, False)
    return compression.decompress(reduced, context)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """Overwrites the tensor with the reduction, and returns it."""
    return _allreduce(tensor, name, _op(op, average), prescale_factor, postscale_factor,
                      process_set, True)


def _start_grouped_allreduce(tensors, name, op, before, after, process_set, in_place):
    tensors = list(tensors)
    name = _name("grouped_allreduce", name)
    if op == Adasum:
        outputs = tensors if in_place else [tensor.clone() for tensor in tensors]
        _adasum(outputs, name, process_set, before, after)
        return _Done(outputs)
    return _Handle(_C.grouped_allreduce_async(tensors, name, op, before, after, process_set._id(),
                                              in_place))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    return _start_grouped_allreduce(tensors, name, _op(op, average), prescale_factor,
                                    postscale_factor, process_set, False)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    return _start_grouped_allreduce(tensors, name, _op(op, average), prescale_factor,
                                    postscale_factor, process_set, True)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, before, after, process_set, *tensors):
        ctx.arguments = name, op, before, after, process_set
        return tuple(
            _start_grouped_allreduce(tensors, name, op, before, after, process_set, False).wait())

    @staticmethod
    def backward(ctx, *gradients):
        name, *others = ctx.arguments
        return *[None] * 5, *_GroupedAllreduce.apply(_backward(name), *others, *gradients)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Reduces the tensors together: none before all of them are there on all ranks."""
    if not tensors:
        return []
    sent, contexts = zip(*[compression.compress(tensor) for tensor in tensors])
    reduced = _GroupedAllreduce.apply(name, _op(op, average), prescale_factor, postscale_factor,
                                      process_set, *sent)
    return [compression.decompress(*pair) for pair in zip(reduced, contexts)]


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=global_process_set):
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor,
                                    process_set).wait()


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Reduces COO tensors by gathering their values."""
    return _Handle(_C.sparse_allreduce_async(tensor, _name("sparse_allreduce", name), op,
                                             process_set._id()))


def allgather_async(tensor, name=None, process_set=global_process_set):
    return _Handle(_C.allgather_async(tensor, _name("allgather", name), process_set._id()))


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.rows, ctx.name, ctx.process_set = tensor.shape[0] if tensor.dim() else 1, name, process_set
        return allgather_async(tensor, name, process_set).wait()

    @staticmethod
    def backward(ctx, gradient):
        # As in Horovod the gradient is averaged. The C++ API sums it.
        reduced = allreduce(gradient, op=Average, name=_backward(ctx.name),
                            process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows], device="cpu"), process_set=ctx.process_set).tolist()
        first = sum(rows[:ctx.process_set.rank()])
        return reduced.narrow(0, first, ctx.rows), None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """Concatenates the ranks' tensors along the first dimension. Autograd records it."""
    return _Allgather.apply(tensor, name, process_set)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    return _Handle(_C.grouped_allgather_async(list(tensors), _name("grouped_allgather", name),
                                              process_set._id()))


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.rows, ctx.process_set = [tensor.shape[0] for tensor in tensors], process_set
        return tuple(grouped_allgather_async(tensors, name, process_set).wait())

    @staticmethod
    def backward(ctx, *gradients):
        reduced = grouped_allreduce(gradients, op=Average, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows], device="cpu"), process_set=ctx.process_set)
        first = rows[:ctx.process_set.rank()].sum(0).tolist()
        return None, None, *[part.narrow(0, start, count)
                             for part, start, count in zip(reduced, first, ctx.rows)]


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    return list(_GroupedAllgather.apply(name, process_set, *tensors))


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    return _Handle(_C.broadcast_async(tensor, root_rank, _name("broadcast", name),
                                      process_set._id(), False))


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    return _Handle(_C.broadcast_async(tensor, root_rank, _name("broadcast", name),
                                      process_set._id(), True))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.arguments = root_rank, name, process_set
        return broadcast_async(tensor, root_rank, name, process_set).wait()

    @staticmethod
    def backward(ctx, gradient):
        root_rank, name, process_set = ctx.arguments
        reduced = allreduce(gradient, op=Average, name=_backward(name), process_set=process_set)
        if rank() != root_rank:
            reduced = torch.zeros_like(reduced)
        return reduced, None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """Returns the values of rank `root_rank` as a new tensor. Autograd records it."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def _splits(splits):
    if splits is None or len(splits) == 0:
        return []
    splits = torch.as_tensor(splits, device="cpu")
    if splits.is_floating_point():
        raise ValueError(f"splits are integers, not {splits.dtype}")
    return splits.tolist()


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    def result(value):
        output, received = value
        if splits is None:
            return output
        return output, torch.tensor(received, dtype=torch.int32, device="cpu")

    work = _C.alltoall_async(tensor, _splits(splits), _name("alltoall", name), process_set._id())
    return _Handle(work, result)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        work = _C.alltoall_async(tensor, _splits(splits), _name("alltoall", name),
                                 process_set._id())
        output, ctx.received = work.wait()
        ctx.process_set = process_set
        received = torch.tensor(ctx.received, dtype=torch.int32, device="cpu")
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, gradient, _):
        returned, _ = _Alltoall.apply(gradient, ctx.received, None, ctx.process_set)
        return returned, None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends `splits[i]` rows to rank i. With splits it also returns the received splits."""
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set,
                        prescale_factor=1.0, postscale_factor=1.0):
    return _Handle(_C.reducescatter_async(tensor, _name("reducescatter", name), _no_adasum(op),
                                          prescale_factor, postscale_factor, process_set._id()))


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, process_set, before, after):
        # As in Horovod, gradients are those of the mean of the ranks' losses times their number.
        ctx.factor = before * after * (process_set.size() if op == Sum else 1)
        ctx.process_set = process_set
        return reducescatter_async(tensor, name, op, process_set, before, after).wait()

    @staticmethod
    def backward(ctx, gradient):
        return (allgather(gradient * ctx.factor, process_set=ctx.process_set), *[None] * 5)


def reducescatter(tensor, name=None, compression=Compression.none, op=Average,
                  process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Returns this rank's rows of the reduction. Autograd records it."""
    sent, context = compression.compress(tensor)
    reduced = _Reducescatter.apply(sent, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    return _Handle(_C.grouped_reducescatter_async(
        list(tensors), _name("grouped_reducescatter", name), _no_adasum(op), prescale_factor,
        postscale_factor, process_set._id()))


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, before, after, *tensors):
        ctx.factor = before * after * (process_set.size() if op == Sum else 1)
        ctx.process_set = process_set
        return tuple(grouped_reducescatter_async(tensors, name, op, process_set, before, after).wait())

    @staticmethod
    def backward(ctx, *gradients):
        scaled = [gradient * ctx.factor for gradient in gradients]
        return *[None] * 5, *grouped_allgather(scaled, process_set=ctx.process_set)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    if not tensors:
        return []
    sent, contexts = zip(*[compression.compress(tensor) for tensor in tensors])
    reduced = _GroupedReducescatter.apply(name, op, process_set, prescale_factor, postscale_factor,
                                          *sent)
    return [compression.decompress(*pair) for pair in zip(reduced, contexts)]


def barrier(process_set=global_process_set):
    _C.barrier(process_set._id())


def join(device=-1):
    """Says that this rank has no more data. Returns the rank that joined last."""
    del device
    return _C.join()
