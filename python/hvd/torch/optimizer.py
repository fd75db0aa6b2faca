"""Horovod's DistributedOptimizer: gradients are averaged while the backward pass runs."""

import collections
import contextlib
import warnings
import weakref

import torch

from hvd import _C
from hvd.torch.collectives import (
    allreduce,
    allreduce_async_,
    grouped_allreduce_async_,
    sparse_allreduce_async,
    synchronize,
)
from hvd.torch.compression import Compression
from hvd.torch.job import Adasum, Average, Max, Sum, global_process_set, job_number

_UNKNOWN, _DENSE, _SPARSE = range(3)  # layouts of gradients
_optimizers = collections.Counter()  # how many were made in each job for each process set


class _Wrapper:
    """What both kinds of distributed optimizers share."""

    def _trained(self):
        """The parameters that a step changes. The program may freeze, thaw and add some between two steps."""
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad or p.grad is not None]

    def load_state_dict(self, state_dict):
        """Fills the dicts that there are, where torch makes new ones: they are also those of the user's optimizer, in
        which a scheduler may change them."""
        groups, state = self.param_groups, self.state
        super().load_state_dict(state_dict)
        for kept, loaded in ((state, self.state), *zip(groups, self.param_groups)):
            items = dict(loaded)  # an optimizer with a load_state_dict of its own may have kept the dict
            kept.clear()
            kept.update(items)
        self.param_groups, self.state = groups, state


class _Distributed(_Wrapper):
    """What a distributed optimizer has beyond the class of the user's optimizer."""

    def _distribute(self, number, named_parameters, compression, passes, op, predivide, groups,
                    sparse_as_dense, process_set):
        self._number = number
        self._compression = compression
        self._op = op
        self._predivide = predivide
        self._sparse_as_dense = sparse_as_dense
        self._process_set = process_set
        self._parameter_names = _names_of(self.param_groups, named_parameters, number)
        self._groups = _groups_of(groups, self.param_groups)
        self._handles = {}  # parameter to what finishes its reduction, or None until its group starts
        self._synchronized = False
        self._should_synchronize = True
        self.backward_passes_per_step = passes
        self._passes_left = {}
        self._ready = {}  # group to the parameters whose gradients are there
        self._hooks = []
        # The parameters outlive this optimizer, and may get another one.
        weakref.finalize(self, _remove, self._hooks).atexit = False
        self._watch(self._trained())
        self._layouts = {}  # of the parameters that some rank has used, the same on all ranks
        self._job = None  # the following is known for one job and generation of ranks
        self._placement = None  # of the gradients, in shared memory

    def _watch(self, parameters):
        """Reduces their gradients during backward passes from now on. Torch takes no hook for a frozen one."""
        for p in parameters:
            if p in self._passes_left:
                continue
            self._parameter_names.setdefault(p, f"noname.{self._number}.{len(self._parameter_names)}")
            if p.requires_grad:
                self._passes_left[p] = self.backward_passes_per_step
                self._hooks += [p.register_hook(_with_own_memory),
                                p.register_post_accumulate_grad_hook(_weakly(self._on_gradient))]

    def _takes_part(self):
        return self._process_set is global_process_set or self._process_set.included()

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes
        self._expect_all_passes()

    def _on_gradient(self, p):
        if not self._takes_part():
            return
        if p in self._handles or self._passes_left[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). Increase backward_passes_per_step to accumulate gradients locally.")
        self._passes_left[p] -= 1
        if self._passes_left[p] == 0:
            self._submit(p)

    def _submit(self, p):
        group = self._groups.get(p)
        if group is None:
            self._handles[p] = self._start(p)
            return
        ready = self._ready.setdefault(group, set())
        ready.add(p)
        self._handles[p] = None
        if len(ready) == len(group):
            self._submit_group(group)

    def _submit_group(self, group):
        ready = self._ready.pop(group)
        members = [p for p in group if p in ready]
        self._handles.update(dict.fromkeys(members, self._start_group(members)))

    def _scales(self):
        """The factors before and after the sum. `predivide` moves a part of the division."""
        if self._predivide == 1.0:
            return self._op, 1.0, 1.0
        return Sum, 1.0 / self._predivide, self._predivide / self._process_set.size()

    def _start(self, p):
        op, before, after = self._scales()
        name = f"gradient.{self._parameter_names[p]}"
        if p.grad is None:  # another rank may have used the parameter
            zeros = torch.zeros_like(p)
            p.grad = zeros.to_sparse(1) if self._layouts.get(p) == _SPARSE else zeros
        if p.grad.is_sparse and not self._sparse_as_dense:
            handle = sparse_allreduce_async(p.grad * before, name, op, self._process_set)

            def finish_sparse():
                p.grad = synchronize(handle) * after

            return finish_sparse
        # Some optimizers take only sparse gradients, so a sparse one is sparse again in the end.
        sparse_dim = p.grad.sparse_dim() if p.grad.is_sparse else None
        sent, context = self._compression.compress(p.grad if sparse_dim is None else p.grad.to_dense())
        handle = allreduce_async_(sent, name=name, op=op, prescale_factor=before,
                                  postscale_factor=after, process_set=self._process_set)

        def finish():
            reduced = synchronize(handle)
            if sparse_dim is not None:
                p.grad = self._compression.decompress(reduced, context).to_sparse(sparse_dim)
            elif reduced is not p.grad:
                p.grad.copy_(self._compression.decompress(reduced, context))

        return finish

    def _start_group(self, group):
        op, before, after = self._scales()
        name = f"gradients.{self._parameter_names[group[0]]}"
        for p in group:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        sent, contexts = zip(*[self._compression.compress(p.grad) for p in group])
        handle = grouped_allreduce_async_(sent, name=name, op=op, prescale_factor=before,
                                          postscale_factor=after, process_set=self._process_set)

        def finish():
            for p, reduced, context in zip(group, synchronize(handle), contexts):
                if reduced is not p.grad:
                    p.grad.copy_(self._compression.decompress(reduced, context))

        return finish

    def _begin_job(self, trained):
        job = job_number()
        if job == self._job:
            return
        self._job = job
        self._layouts = {}  # newcomers know nothing
        self._placement = _C.GradientPlacement(trained)

    def _agree_on_layouts(self, trained):
        """A rank that has not used a parameter learns whether its gradient is sparse."""
        unknown = [p for p in trained if p not in self._layouts]
        if not unknown:
            return
        mine = [_UNKNOWN if p.grad is None else _SPARSE if p.grad.is_sparse else _DENSE for p in unknown]
        agreed = allreduce(torch.tensor(mine, dtype=torch.uint8, device="cpu"), op=Max, process_set=self._process_set,
                           name=f"layouts.{self._parameter_names[unknown[0]]}")
        self._layouts.update((p, layout) for p, layout in zip(unknown, agreed.tolist()) if layout != _UNKNOWN)

    def load_state_dict(self, state_dict):
        """Also forgets what a backward pass has begun, as after the loss of a rank."""
        self._forget_pass()
        super().load_state_dict(state_dict)

    def _forget_pass(self):
        self._handles.clear()
        self._ready.clear()
        self._synchronized = False
        self._expect_all_passes()

    def synchronize(self):
        """Waits until all gradients are averaged. After an error `zero_grad()` and the next step are possible."""
        try:
            if self._takes_part():
                self._submit_rest()
                self._finish()
        finally:
            self._forget_pass()
        self._synchronized = True

    def _submit_rest(self):
        trained = self._trained()
        self._watch(trained)
        self._begin_job(trained)
        self._agree_on_layouts(trained)
        # A parameter that this rank has not used: another rank may have.
        for p in trained:
            if p not in self._handles:
                self._submit(p)
        for group in list(self._ready):  # the rest of it is frozen
            self._submit_group(group)

    def _finish(self):
        """Waits for all reductions also if one fails, since the next step needs their names. Raises the first error."""
        errors = []
        with torch.no_grad():
            for finish in dict.fromkeys(self._handles.values()):
                try:
                    finish()
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Within it `step()` does not call `synchronize()`, which the program has called."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def _evaluate(self, closure):
        """Returns the loss of all ranks, so that an optimizer that looks at it, as LBFGS, does the same on each."""
        self._synchronized = False
        loss = closure()
        if self._should_synchronize and not self._synchronized:
            self.synchronize()
        if loss is None or not self._takes_part():
            return loss
        if not isinstance(loss, torch.Tensor):
            loss = torch.tensor(loss, device="cpu")
        return allreduce(loss.detach(), name=f"loss.{self._number}", op=self._op, process_set=self._process_set)

    def step(self, closure=None):
        if closure is not None:  # the base calls it, also several times, and then reads the gradients
            loss = super().step(lambda: self._evaluate(closure))
            self._synchronized = False
            return loss
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown. You may want to "
                    "consider using optimizer.skip_synchronize() context if you use "
                    "optimizer.synchronize() in your code.")
            self.synchronize()
        self._synchronized = False
        return super().step(closure)

    step.hooked = True  # the step of the user's class calls the hooks of steps, so torch must not wrap this one

    def zero_grad(self, *args, **kwargs):
        if self._handles:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause a "
                "race condition.")
        self._expect_all_passes()
        return super().zero_grad(*args, **kwargs)

    def _expect_all_passes(self):
        self._passes_left = dict.fromkeys(self._passes_left, self.backward_passes_per_step)


class _DistributedAdasum(_Wrapper):
    """What an optimizer with op=Adasum has beyond the class of the user's optimizer.

    Each rank steps with its own gradients, and Adasum combines the changes of the parameters.
    """

    def synchronize(self):
        """Does nothing, since gradients stay local."""

    def skip_synchronize(self):
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes

    def step(self, closure=None):
        loss = None if closure is None else closure()
        parameters = self._trained()
        for p in parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)  # another rank may have used the parameter
        if not parameters:
            return loss
        with torch.no_grad():
            before = [p.clone() for p in parameters]
            super().step()
            changes = [self._compression.compress(p - start) for p, start in zip(parameters, before)]
            try:
                _C.adasum_([change for change, _ in changes], self._name, 0)
            except Exception:  # the ranks' own steps differ
                for p, start in zip(parameters, before):
                    p.copy_(start)
                raise
            for p, start, (change, context) in zip(parameters, before, changes):
                p.copy_(start + self._compression.decompress(change, context))
        return loss

    step.hooked = True  # as above


def _with_own_memory(gradient):
    """A tensor hook of each parameter. Autograd may take this tensor, or a view of it, as `p.grad` without a copy, and
    `p.grad` is reduced in place during the backward pass. Where other tensors share its memory, other branches of the
    pass may still read it, so it is copied."""
    return None if _C.has_own_memory(gradient) else gradient.clone()


def _weakly(method):
    """Returns a function that calls the method as long as its object lives, without keeping it alive."""
    reference = weakref.WeakMethod(method)

    def call(*arguments):
        alive = reference()
        if alive is not None:
            alive(*arguments)

    return call


def _remove(hooks):
    for hook in hooks:
        hook.remove()


def _next_number(process_set):
    """Returns a text that tells optimizers apart whose parameters have no names. All ranks make them in one order."""
    job = job_number()  # a rank that joins has not made the optimizers of earlier generations
    among = job, process_set.process_set_id
    _optimizers[among] += 1
    generation = job[1]
    return f"{generation}.{_optimizers[among]}"


def _names_of(param_groups, named_parameters, number):
    parameters = [p for group in param_groups for p in group["params"]]
    if named_parameters is None:
        return {p: f"noname.{number}.{index}" for index, p in enumerate(parameters)}
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in named):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), "
                         "usually produced by model.named_parameters().")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: "
                         f"{', '.join(twice)}")
    of_parameter = {p: name for name, p in named}
    if any(p not in of_parameter for p in parameters):
        raise ValueError("named_parameters was specified, but one or more model parameters were "
                         "not named. Python object ids: "
                         f"{', '.join(str(id(p)) for p in parameters if p not in of_parameter)}")
    return of_parameter


def _groups_of(groups, param_groups):
    """Maps each parameter of a group to the tuple of the group's parameters.

    Parameters of other optimizers are left out, since this one must not wait for their gradients.
    """
    if groups is None:
        return {}
    trained = [p for group in param_groups for p in group["params"] if p.requires_grad]
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError("groups should be a non-negative integer or a list of list of "
                             "torch.Tensor.")
        if groups == 0:
            return {}
        length = -(-len(trained) // groups)
        groups = [trained[i:i + length] for i in range(0, len(trained), length)]
    mine = set(trained)
    made = [tuple(p for p in group if p in mine) for group in groups]
    of_parameter = {p: group for group in made for p in group}
    if len(of_parameter) != sum(len(group) for group in made):
        raise ValueError("A parameter can only appear once in groups.")
    return of_parameter


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0,
                         num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set):
    """Returns an optimizer of the same class that averages the gradients over the ranks.

    It shares parameter groups and state with `optimizer`, which is not to be used any more.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups:
        warnings.warn("Parameter `num_groups` has been replaced by `groups`", DeprecationWarning)
        groups = num_groups if groups is None else groups
    if op == Adasum and process_set != global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet")
    base = optimizer.__class__
    way = _DistributedAdasum if op == Adasum else _Distributed
    distributed = object.__new__(type(base.__name__, (way, base), {}))
    distributed.__dict__.update(optimizer.__dict__)
    # A learning rate scheduler may have put the old `step` there.
    distributed.__dict__.pop("step", None)
    optimizer._opt_called = True  # the scheduler would warn that this one has not stepped
    number = _next_number(process_set)
    if op == Adasum:
        _names_of(optimizer.param_groups, named_parameters, number)  # throws where names are missing
        distributed._compression = compression
        distributed._name = f"adasum.changes.{number}"
        distributed.backward_passes_per_step = backward_passes_per_step
        return distributed
    distributed._distribute(number, named_parameters, compression, backward_passes_per_step, op,
                            gradient_predivide_factor, groups, sparse_as_dense, process_set)
    return distributed
