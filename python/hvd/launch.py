"""Runs a function on ranks that hvdrun starts: `hvd.run(train, np=4)`."""

import argparse
import ctypes
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile

try:
    import cloudpickle as function_pickle  # also takes functions of __main__, lambdas and closures
except ImportError:
    function_pickle = pickle


_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl  # found here, because a forked child of a program with threads must not load anything


def _end_with(parent):
    """Lets this process get SIGTERM when its parent ends, however that ends. A program that it executes inherits this."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def _hvdrun():
    """The program beside this Python, as a wheel installs it, or on the PATH."""
    beside = os.path.dirname(sys.executable) + os.pathsep
    found = shutil.which("hvdrun", path=beside + os.environ.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError("hvd.run: there is no hvdrun beside this Python or on the PATH")
    return found


def _grace(options):
    """The seconds that hvdrun gives the ranks to end. It gives ranks that have agreed to stop twice as long."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--grace", type=float, default=5.0)
    return parser.parse_known_args([str(option) for option in options])[0].grace


def _end(job, patience):
    """Ends hvdrun, which ends the ranks. A terminal sends its interrupt to hvdrun too, and a second signal would kill
    the ranks, so hvdrun may first end without one."""
    try:
        job.wait(patience)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        job.terminate()
        job.wait()


def run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None,
        reset_limit=None, cooldown_range=None, hosts=None, hostfile=None, start_timeout=None,
        ssh_port=None, ssh_identity_file=None, disable_cache=None, output_filename=None,
        verbose=False, use_gloo=None, use_mpi=None, mpi_args=None, network_interface=None,
        executable=None, np=None, min_np=None, max_np=None, options=()):
    """Calls `func(*args, **kwargs)` on `num_proc` ranks, and returns their results in rank order.

    The arguments are those of `horovod.run`; `np` is another name of `num_proc`. `options` are
    further options of hvdrun. With `hosts` or `hostfile`, all hosts share the working directory.
    `use_gloo`, `use_mpi`, `mpi_args` and `disable_cache`, which say how Horovod starts the ranks,
    have no effect: hvdrun starts them. Elastic jobs have no results of ranks, so the arguments of
    such jobs raise NotImplementedError: `hvdrun --min-np` starts them.
    The function, its arguments and its result are pickled; with the package cloudpickle the
    function may be defined in the main program. Raises RuntimeError when a rank fails; what the
    rank printed says why.

    When this process ends, even by SIGKILL, hvdrun ends the ranks. If a signal ends it, the folder
    `.hvd_run.*` with the pickled function stays, in the folder of temporary files or, with `hosts`
    or `hostfile`, in the working directory.
    """
    if hosts is not None and hostfile is not None:
        raise ValueError("hvd.run: hosts and hostfile exclude each other")
    if use_gloo and use_mpi:
        raise ValueError("hvd.run: use_gloo and use_mpi exclude each other")
    elastic = {"min_num_proc": min_num_proc, "max_num_proc": max_num_proc, "slots": slots, "reset_limit": reset_limit,
               "cooldown_range": cooldown_range, "min_np": min_np, "max_np": max_np}
    refused = [name for name, value in elastic.items() if value is not None]
    if refused:
        raise NotImplementedError(f"hvd.run starts no elastic jobs, so it does not take {', '.join(refused)}: "
                                  "start the program with hvdrun --min-np")
    if function_pickle is pickle and getattr(func, "__module__", None) == "__main__":
        raise ImportError("hvd.run: a function of the main program needs the package cloudpickle, or to be in a module "
                          "of its own", name="cloudpickle")
    del disable_cache, mpi_args
    ranks = num_proc if np is None else np
    command = [_hvdrun(), "-np", str(ranks), *options]
    for option, value in (("--hosts", hosts), ("--hostfile", hostfile),
                          ("--start-timeout", start_timeout), ("--ssh-port", ssh_port),
                          ("--ssh-identity-file", ssh_identity_file),
                          ("--network-interfaces", network_interface),
                          ("--output-filename", output_filename)):
        command += [] if value is None else [option, str(value)]
    command += ["--verbose"] if verbose else []
    shared = hosts is not None or hostfile is not None
    with tempfile.TemporaryDirectory(prefix=".hvd_run.", dir=os.getcwd() if shared else None) as folder:
        with open(os.path.join(folder, "function"), "wb") as file:
            pickle.dump(sys.path, file)  # the function's module may be found only with it
            function_pickle.dump((func, args, kwargs or {}), file)
        command += [executable or sys.executable, "-m", "hvd.run_rank", folder]
        parent = os.getpid()
        with subprocess.Popen(command, preexec_fn=lambda: _end_with(parent)) as job:
            try:
                code = job.wait()
            except BaseException as error:
                _end(job, 2 * _grace(options) + 2 if isinstance(error, KeyboardInterrupt) else 0)
                raise
        if code != 0:
            raise RuntimeError(f"hvd.run: the job ended with exit code {code}")
        results = []
        for rank in range(ranks):
            with open(os.path.join(folder, f"result.{rank}"), "rb") as file:
                results.append(pickle.load(file))
        return results
