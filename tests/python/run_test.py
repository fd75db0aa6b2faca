"""Tests hvd.run: the results of the ranks, and what is said when one fails. Also which torch a wheel is built with."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import hvd


def add_up(start, *, scale):
    import torch

    import hvd.torch

    hvd.torch.init()
    total = hvd.torch.allreduce(torch.tensor([float(start + hvd.torch.rank())]), op=hvd.torch.Sum)
    return hvd.torch.rank(), total.item() * scale


def fail_on_one():
    if os.environ["RANK"] == "1":
        raise ValueError("no data here")


def tell_and_wait(folder):
    pathlib.Path(folder, os.environ["RANK"]).write_text(f"{os.getpid()} {os.getppid()}\n")
    signal.pause()


PROGRAM = "import sys, hvd, run_test; hvd.run(run_test.tell_and_wait, (sys.argv[1],), np=2)"


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class RunTest(unittest.TestCase):
    def test_results_are_in_the_order_of_ranks(self):
        self.assertEqual(hvd.run(add_up, (5,), {"scale": 2}, np=2, start_timeout=60, use_gloo=True),
                         [(0, 22.0), (1, 22.0)])

    def test_a_failed_rank_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "exit code 1"):
            hvd.run(fail_on_one, num_proc=2)

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def end_caller(self, program, number):
        """Sends the signal to a program that runs two ranks, checks that none is left, and returns its exit code."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.pathsep.join(filter(None, (os.path.dirname(__file__), os.environ.get("PYTHONPATH"))))
            with subprocess.Popen([sys.executable, "-c", program, folder], stderr=subprocess.DEVNULL,
                                  env={**os.environ, "PYTHONPATH": path, "TMPDIR": folder}) as caller:
                pids = []
                try:
                    files = [pathlib.Path(folder, str(rank)) for rank in range(2)]
                    self.wait_until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))
                    pids = " ".join(file.read_text() for file in files).split()
                    caller.send_signal(number)
                    caller.wait(60)
                    self.wait_until(lambda: not any(map(runs, pids)))
                finally:
                    caller.kill()
                    for pid in filter(runs, pids):
                        os.kill(int(pid), signal.SIGKILL)
            return caller.returncode

    def test_no_process_is_left_when_the_caller_is_killed(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            self.assertEqual(self.end_caller(PROGRAM, number), -number)

    def test_an_exception_of_a_signal_handler_ends_the_ranks(self):
        handler = "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
        self.assertEqual(self.end_caller(PROGRAM.replace("; ", f"\n{handler}\n", 1), signal.SIGTERM), 7)

    def test_an_interrupt_of_the_caller_alone_ends_the_ranks(self):
        """A terminal would send it to hvdrun too."""
        self.assertEqual(self.end_caller(PROGRAM.replace("np=2", "np=2, options=['--grace', '0.1']"), signal.SIGINT),
                         -signal.SIGINT)

    def test_arguments_are_checked(self):
        with self.assertRaisesRegex(ValueError, "hosts and hostfile"):
            hvd.run(fail_on_one, hosts="a:1", hostfile="b")
        with self.assertRaisesRegex(ValueError, "use_gloo and use_mpi"):
            hvd.run(fail_on_one, use_gloo=True, use_mpi=True)
        for name in ("min_num_proc", "max_num_proc", "slots", "reset_limit", "cooldown_range", "min_np", "max_np"):
            with self.assertRaisesRegex(NotImplementedError, f"elastic.* {name}:"):
                hvd.run(fail_on_one, **{name: 1})
        path = os.environ.pop("PATH")
        try:
            with self.assertRaisesRegex(FileNotFoundError, "hvdrun"):
                hvd.run(fail_on_one, disable_cache=True, mpi_args="--oversubscribe")
        finally:
            os.environ["PATH"] = path

    def test_a_function_of_the_main_program_needs_cloudpickle(self):
        def train():
            pass

        train.__module__ = "__main__"
        with mock.patch("hvd.launch.function_pickle", pickle), self.assertRaisesRegex(ImportError, "cloudpickle"):
            hvd.run(train)


class WheelTest(unittest.TestCase):
    def test_torch_in_the_folder_of_the_user(self):
        program = pathlib.Path(__file__).resolve().parents[2] / "python" / "wheel_metadata.py"
        with tempfile.TemporaryDirectory() as home:
            def start(*arguments):
                return subprocess.run([sys.executable, *arguments], env={**os.environ, "HOME": home}, check=False,
                                      capture_output=True, text=True, timeout=60)

            def answer(*arguments):
                done = start(*arguments)
                done.check_returncode()
                return done.stdout.strip()

            packages, enabled = answer("-E", "-c", "import site; print(site.getusersitepackages(), "
                                       "site.ENABLE_USER_SITE, sep='\\n')").splitlines()
            if enabled != "True":
                self.skipTest("a Python that is no virtual environment")
            metadata = "Metadata-Version: 2.1\nName: torch\nVersion: %s\n"
            for name, text in (("torch/__init__.py", ""), ("torch-2.8.0.dist-info/METADATA", metadata % "2.8.0")):
                file = pathlib.Path(packages, name)
                file.parent.mkdir(parents=True)
                file.write_text(text)
            self.assertEqual(answer(program), str(pathlib.Path(packages, "torch")))
            file.write_text(metadata % "2.7.1+cpu")
            refused = start(program)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, "needs torch 2.8 or newer, and .* has 2.7.1")
