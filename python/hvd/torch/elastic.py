"""Horovod's elastic training: ranks come and go, and training goes on.

    state = hvd.elastic.TorchState(model, optimizer, epoch=0)

    @hvd.elastic.run
    def train(state): ...                       # calls state.commit() between two steps

    train(state)                                # hvdrun -np 4 --min-np 2 python train.py

After a failure all ranks go back to the last commit that any of them has made.
"""

import copy
import functools
import math
import random
import sys

import torch

from hvd import _C
from hvd.torch import job
from hvd.torch.state import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)


class HostsUpdatedInterrupt(RuntimeError):
    """Leaves the function of `run` on all ranks, because ranks are to join or to leave."""


class State:
    """What the ranks have in common. Subclasses say how it is saved, restored and sent."""

    def __init__(self):
        self._reset_callbacks = []
        self._saves = 0  # since the job began; a newcomer has made none

    def register_reset_callbacks(self, callbacks):
        """Adds functions that ranks which were there before call when the ranks have changed."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self):
        """Keeps a copy of the state in memory. Raises HostsUpdatedInterrupt when ranks change."""
        self._save()
        self.check_host_updates()

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt on all ranks when ranks are to join or to leave."""
        if _C.generation_ends():
            raise HostsUpdatedInterrupt("the ranks of the job change")

    def save(self):
        raise NotImplementedError

    def restore(self):
        raise NotImplementedError

    def sync(self):
        raise NotImplementedError

    def reset(self):
        """Is called when the ranks have changed, before the callbacks."""

    def _save(self):
        self.save()
        self._saves += 1

    def _go_back(self):
        self.restore()
        self.on_reset()

    def _meet(self):
        """Gives all ranks the state of the one with the latest commit, the first of several."""
        job.learn_hosts()
        saves = allgather_object(self._saves, "elastic.saves")
        latest = max(saves)
        self._root = saves.index(latest)
        self.sync()
        self._saves = latest  # only now: after a failure this rank still has its own commit


class ObjectState(State):
    """Holds objects that are pickled, as attributes with the names of the arguments."""

    def __init__(self, bcast_object=broadcast_object, get_rank=job.rank, **kwargs):
        super().__init__()
        del get_rank
        self._broadcast = bcast_object
        self._root = 0  # the rank whose state `sync` sends
        self._saved = copy.deepcopy(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)

    def save(self):
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self):
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)

    def sync(self):
        if self._saved:
            mine = {name: getattr(self, name) for name in self._saved}
            for name, value in self._broadcast(mine, self._root).items():
                setattr(self, name, value)
        self.save()


def _send_model(model, root):
    broadcast_parameters(model.state_dict(), root)


def _send_with_state_dict(value, root):
    value.load_state_dict(broadcast_object(value.state_dict(), root))


class ElasticSampler(torch.utils.data.Sampler):
    """Divides the examples that are left of an epoch among the ranks that there are.

    Add it to the state, call `record_batch` after each step, and `set_epoch` at the end of an epoch.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0  # by all ranks, in this epoch
        self.reset()

    def set_epoch(self, epoch):
        """Begins another epoch, of which nothing is processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """Says that every rank has processed so many examples."""
        del batch_idx
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self):
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict):
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self):
        """Divides what is left among the present ranks. Before `run` this rank counts as the only one."""
        together = job.is_initialized()
        self.num_replicas = job.size() if together else 1
        self.rank = job.rank() if together else 0
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num:]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)

    def __iter__(self):
        """All ranks get equally many examples, so the first ones may be used twice at the end."""
        left = self.remaining_indices
        padded = left + (left * self.num_replicas)[:self.num_samples * self.num_replicas - len(left)]
        return iter(padded[self.rank::self.num_replicas])

    def __len__(self):
        return self.num_samples


# How the parts of a TorchState are sent. All of them have state_dict and load_state_dict.
_SENDERS = (
    (torch.nn.Module, _send_model),
    (torch.optim.Optimizer, broadcast_optimizer_state),
    (torch.optim.lr_scheduler.LRScheduler, _send_with_state_dict),
    (ElasticSampler, _send_with_state_dict),
)


def _sender(value):
    return next((send for kind, send in _SENDERS if isinstance(value, kind)), None)


class TorchState(ObjectState):
    """Holds models, optimizers, learning rate schedulers, samplers, and objects that are pickled."""

    def __init__(self, model=None, optimizer=None, **kwargs):
        values = dict(kwargs, model=model, optimizer=optimizer)
        self._parts = [name for name, value in values.items() if _sender(value)]
        self._saved_parts = {}
        super().__init__(**{name: value for name, value in values.items() if name not in self._parts})
        for name in self._parts:
            setattr(self, name, values[name])
        self.save()

    def save(self):
        self._saved_parts = {name: copy.deepcopy(getattr(self, name).state_dict()) for name in self._parts}
        super().save()

    def restore(self):
        for name, saved in self._saved_parts.items():
            getattr(self, name).load_state_dict(copy.deepcopy(saved))
        super().restore()

    def sync(self):
        for name in self._parts:
            value = getattr(self, name)
            _sender(value)(value, self._root)
            if hasattr(value, "zero_grad"):  # a failed step leaves gradients, and a newcomer has none
                value.zero_grad()
        super().sync()


def run(func):
    """Decorates `func(state, ...)`, which is called once in each generation of ranks.

    It returns what `func` returns. A worker that was asked to leave exits with code 0 instead.
    """

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        result = None

        def train():
            nonlocal result
            try:
                result = func(state, *args, **kwargs)
            except HostsUpdatedInterrupt:
                return True
            return False

        if not _C.elastic_run(state._go_back, state._meet, state._save, train):
            sys.exit(0)
        return result

    return wrapper
