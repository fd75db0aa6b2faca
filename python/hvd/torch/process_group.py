"""Registers the backend "hvd" of torch.distributed."""

import atexit

from torch import distributed

from hvd import _C


def _create(options, _backend_options):
    timeout = options.timeout
    return _C.create_backend(
        options.store,
        options.group_rank,
        options.group_size,
        options.group_id,
        not options.global_ranks_in_group,
        timeout.total_seconds(),
    )


def register():
    if not distributed.is_available() or "hvd" in distributed.Backend.backend_list:
        return
    distributed.Backend.register_backend("hvd", _create, extended_api=True, devices="cpu")
    # A program that ends without destroy_process_group() must not leave threads of the engine
    # behind while Python ends.
    atexit.register(_C.leave_groups)
