"""Gives all ranks the same parameters, optimizer state and objects."""

import collections.abc
import ctypes
import pickle

import torch

from hvd.launch import function_pickle
from hvd.torch.collectives import allgather_async, broadcast_, broadcast_async_, synchronize
from hvd.torch.job import global_process_set, rank


def broadcast_parameters(params, root_rank, prefix=None):
    """Overwrites a state_dict, or parameters with or without names, with those of rank `root_rank`."""
    if isinstance(params, collections.abc.Mapping):
        params = sorted(params.items())
    elif isinstance(params, torch.Tensor) or not isinstance(params, collections.abc.Iterable):
        raise ValueError(f"broadcast_parameters takes a dict or named parameters, not {type(params)}")
    prefix = "" if prefix is None else prefix
    pairs = [each if isinstance(each, tuple) else (str(index), each) for index, each in enumerate(params)]
    named = [(name, p) for name, p in pairs if isinstance(p, torch.Tensor)]
    with torch.no_grad():
        handles = [broadcast_async_(p, root_rank, f"{prefix}parameter.{name}") for name, p in named]
        for handle in handles:
            synchronize(handle)


def _pickled(obj):
    try:
        data = pickle.dumps(obj)
    except (pickle.PicklingError, AttributeError, TypeError):  # as for lambdas and local classes
        data = function_pickle.dumps(obj)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _unpickled(tensor):
    return pickle.loads(ctypes.string_at(tensor.data_ptr(), tensor.numel()))


def broadcast_object(obj=None, root_rank=0, name=None, process_set=global_process_set):
    """Returns the object of rank `root_rank`, which is pickled: only ranks of the job send it."""
    name = "broadcast_object" if name is None else name
    sends = rank() == root_rank
    data = _pickled(obj) if sends else None
    size = torch.tensor([data.numel() if sends else 0], device="cpu")
    broadcast_(size, root_rank, f"{name}.size", process_set)
    if not sends:
        data = torch.empty(int(size), dtype=torch.uint8, device="cpu")
    broadcast_(data, root_rank, f"{name}.data", process_set)
    return obj if sends else _unpickled(data)


def allgather_object(obj, name=None, process_set=global_process_set):
    """Returns the objects of all ranks, in rank order. They are pickled."""
    name = "allgather_object" if name is None else name
    data = _pickled(obj)
    sizes = allgather_async(torch.tensor([data.numel()], device="cpu"), f"{name}.sizes", process_set)
    everything = allgather_async(data, f"{name}.data", process_set)
    sizes = synchronize(sizes).tolist()
    return [_unpickled(part) for part in synchronize(everything).split(sizes)]


class _Placeholder:
    """Stands for a tensor of the state, which is broadcast after the structure."""

    def __init__(self, tensor):
        self.shape, self.dtype, self.device = tuple(tensor.shape), tensor.dtype, tensor.device.type


def _without_tensors(value, tensors):
    """Returns the structure with placeholders, and collects its tensors."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Placeholder(value)
    if isinstance(value, dict):
        return {key: _without_tensors(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_tensors(each, tensors) for each in value)
    return value


def _with_tensors(value, tensors):
    if isinstance(value, _Placeholder):
        return next(tensors)
    if isinstance(value, dict):
        return {key: _with_tensors(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_tensors(each, tensors) for each in value)
    return value


def _placeholders(value):
    if isinstance(value, _Placeholder):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _placeholders(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _placeholders(each)


def broadcast_optimizer_state(optimizer, root_rank, model=None):
    """Gives all ranks the state and the options of rank `root_rank`'s optimizer.

    State that other ranks lack is made there and no step is taken, also where Horovod takes one.
    """
    del model
    tensors = []
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    sent = None
    if rank() == root_rank:
        sent = _without_tensors(optimizer.state_dict(), tensors), [p.device.type for p in parameters]
    structure, types = broadcast_object(sent, root_rank, "optimizer_state")
    placeholders = list(_placeholders(structure))
    # They travel through host memory, since each rank may have another GPU.
    if rank() == root_rank:
        tensors = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
    else:
        tensors = [torch.empty(each.shape, dtype=each.dtype, device="cpu") for each in placeholders]
    handles = [broadcast_async_(tensor, root_rank, f"optimizer_state.{index}")
               for index, tensor in enumerate(tensors)]
    for handle in handles:
        synchronize(handle)
    if rank() == root_rank:
        return
    optimizer.load_state_dict(_with_tensors(structure, iter(tensors)))
    # It has converted most tensors to the type and the device of their parameter. The root has not done so, and may
    # keep some on the CPU beside a parameter on a GPU.
    loaded = []
    _without_tensors(optimizer.state_dict(), loaded)
    if len(loaded) != len(tensors):
        return  # the optimizer has a load_state_dict of its own
    state = structure.get("state", {})
    owners = {id(each): key for key, values in state.items() if isinstance(key, int) for each in _placeholders(values)}
    placed = {}
    for each, tensor, now in zip(placeholders, tensors, loaded):
        type_on_root = types[owners[id(each)]] if id(each) in owners else each.device
        placed[id(each)] = tensor.to(now.device if each.device == type_on_root else each.device)
    for key, values in optimizer.state_dict().get("state", {}).items():
        if isinstance(values, dict) and key in state:
            values.update(_with_tensors(state[key], (placed[id(each)] for each in _placeholders(state[key]))))
