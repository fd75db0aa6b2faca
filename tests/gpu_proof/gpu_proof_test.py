"""Runs scripts/gpu_proof in a folder like a bundle, with programs of this file in the place of the built ones."""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu_proof"

# Prints what train_bench prints. The share of hvd's speed is that of the model in the file "shares".
TRAIN_BENCH = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[0]).parent
value = lambda name: sys.argv[sys.argv.index(name) + 1]
model = value("--model")
with open(folder / "calls", "a") as calls:
    calls.write(model + " " + value("--batch") + "\\n")
shares = json.loads((folder / "shares").read_text())
print("    model         mode  ranks      images/s   step p50 ms backward ms    exposed ms   comm ms")
for number in range(int(value("--rounds"))):
    for mode in value("--mode").split(","):
        share, blocked = shares[model + " " + value("--batch")] if mode == "hvd" else (1, 0)
        print(f"{model:>9} {mode:>12} {1:>6} {1000 * share:>13.1f} {1:>13.3f} {2:>11.3f} {blocked:>13.3f} {3:>9.3f}")
"""

# Prints what ddp_train.py prints.
DDP_TRAIN = """
import json, sys
for number in range(3):
    for mode, share in (("python-independent", 1), ("ddp", 0.9), ("ddp-copied", 0.8)):
        print(json.dumps({"mode": mode, "images_per_s": 500 * share}))
"""

PACK_BENCH = """
print("  f32           copy   10000000      10.0    2000.0")
print("  f32 pack + unpack: 0.95 of a copy's bandwidth, 0.93 with a scale")
print(" bf16 from f32 pack + unpack: 0.98 of a copy's bandwidth, 0.85 with a scale")
"""

# Ignores SIGTERM, as does a process of its own.
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    (pathlib.Path(__file__).parent / "stubborn").write_text(f"{os.getpid()} {child}")
time.sleep(600)
"""


def load():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("gpu_proof", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_proof", loader))
    sys.modules["gpu_proof"] = module
    loader.exec_module(module)
    return module


def is_alive(pid):
    """Whether the process runs. One that has ended and that nobody has waited for does not."""
    with contextlib.suppress(OSError):
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return stat.rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class ScriptTest(InAFolder):
    """The script as its users call it."""

    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        (self.folder / "lib").mkdir()
        shutil.copy(SCRIPT, self.folder / "gpu_proof")
        self.out = self.folder / "results"

    def write_program(self, name, text=""):
        program = self.bin / name
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)

    def write_speed(self, shares):
        """Writes the programs of part c, and what makes the script believe in a torch with CUDA."""
        (self.folder / "lib" / "libtorch_cuda.so").write_text("")
        self.write_program("gpu_pack_bench", PACK_BENCH)
        self.write_program("train_bench", TRAIN_BENCH)
        self.write_program("hvd_bench", "print('a row')\n")
        (self.folder / "ddp_train.py").write_text(DDP_TRAIN)
        self.write_shares(shares)

    def write_shares(self, shares):
        (self.bin / "shares").write_text(json.dumps(shares))

    def calls(self):
        path = self.bin / "calls"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text.splitlines()

    def command(self, *arguments):
        return [sys.executable, "-B", str(self.folder / "gpu_proof"), "--out", str(self.out), *arguments]

    def run_script(self, *arguments):
        return subprocess.run(self.command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=90, check=False)

    def steps(self, part):
        return json.loads((self.out / f"{part}.json").read_text())["steps"]

    def test_a_missed_mark_is_told_and_not_repeated(self):
        good = {"resnet50 8": [0.95, 0.05], "resnet50 32": [0.85, 0.05], "resnet50 128": [0.999, 0.2],
                "mlp25m 64": [0.99, 0.1], "gpt2 4": [1, 0]}
        self.write_speed(good)
        first = self.run_script("--parts", "c")
        self.assertEqual(first.returncode, 1, first.stderr)
        self.assertIn("| c | resnet50 32 | missed | hvd / independent 0.85 < 0.98 |", first.stdout)
        self.assertIn("| c | resnet50 128 | missed | blocked ms 0.2 > 0.1 |", first.stdout)
        self.assertIn("| c | pack and unpack | missed | bf16 from f32, scaled / copy 0.85 < 0.9 |", first.stdout)
        self.assertIn("| c | resnet50 32 in Python, without and with DDP over NCCL | missed | "
                      "hvd / independent 0.85 < 0.9 of DDP |", first.stdout)
        steps = self.steps("c")
        # The speed of small batches has no mark but DDP's, and a miss keeps nothing else from running.
        for name in ("resnet50 8", "mlp25m 64", "gpt2 4", "hvd_bench",
                     "resnet50 8 in Python, without and with DDP over NCCL"):
            self.assertEqual(steps[name]["status"], "passed", steps[name])
        self.assertEqual(steps["resnet50 8"]["figures"]["hvd / independent in each round"], [0.95] * 3)
        self.assertEqual(steps["resnet50 8 in Python, without and with DDP over NCCL"]["figures"]
                         ["ddp-copied / independent"], 0.8)
        self.assertEqual(len(self.calls()), 5)

        # The result is printed at the end.
        printed = json.loads(first.stdout.splitlines()[-1])
        self.assertEqual(printed["steps"]["resnet50 32"]["status"], "missed")

        second = self.run_script("--parts", "c")
        self.assertEqual(second.returncode, 1, second.stdout)
        self.assertNotIn("| missed |", second.stdout)
        self.assertEqual(self.calls(), [])

        self.write_program("gpu_pack_bench", PACK_BENCH.replace("0.85", "0.91"))
        self.write_shares({**good, "resnet50 32": [0.985, 0.05], "resnet50 128": [0.999, 0.05]})
        third = self.run_script("--parts", "c", "--again")
        self.assertEqual(third.returncode, 0, third.stdout)
        self.assertEqual(self.calls(), ["resnet50 32", "resnet50 128"])

    def test_rows_that_cannot_be_read_are_a_failure(self):
        self.write_speed({})
        self.write_program("gpu_pack_bench", "print('no GPU')\n")
        done = self.run_script("--parts", "c")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("| c | pack and unpack | failed | cannot read the output", done.stdout)

    def test_the_archive_has_what_a_second_run_needs(self):
        self.write_program("ops_nccl_backend_test")
        self.write_program("torch_device_test", "raise SystemExit(3)\n")
        archive = self.folder / "back" / "all.tgz"
        arguments = ("--fake", "--parts", "a", "--archive", str(archive))
        first = self.run_script(*arguments)
        self.assertEqual(first.returncode, 1, first.stderr)
        self.assertEqual([path.name for path in archive.parent.iterdir()], ["all.tgz"])

        self.out = self.folder / "unpacked"
        with tarfile.open(archive) as file:
            self.assertIn("a01.log", file.getnames())
            file.extractall(self.out)
        self.write_program("ops_nccl_backend_test", "raise SystemExit(3)\n")
        self.write_program("torch_device_test")
        second = self.run_script(*arguments)
        self.assertEqual(second.returncode, 0, second.stdout)
        self.assertIn("| a | training on the fake | passed |", second.stdout)
        self.assertNotIn("| a | backend on the fake |", second.stdout)

    def test_a_signal_ends_the_step_and_keeps_the_results(self):
        self.write_program("ops_nccl_backend_test")
        self.write_program("torch_device_test", STUBBORN)
        pids = []

        def kill_all():
            for pid in filter(is_alive, pids):
                os.kill(pid, signal.SIGKILL)

        self.addCleanup(kill_all)
        with subprocess.Popen(self.command("--fake", "--parts", "a,b"), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True) as process:
            try:
                written = self.bin / "stubborn"
                deadline = time.monotonic() + 60
                while not written.exists() or len(written.read_text().split()) < 2:
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.01)
                pids += map(int, written.read_text().split())
                # Whoever ends the session of the script ends its steps.
                self.assertEqual([os.getsid(pid) for pid in pids], [os.getsid(process.pid)] * 2)
                process.send_signal(signal.SIGTERM)
                output = process.communicate(timeout=60)[0]
            finally:
                process.kill()
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertEqual([pid for pid in pids if is_alive(pid)], [])
        self.assertIn("| a | training on the fake | not run | only 0 of 1 runs fit before SIGTERM |", output)
        steps = self.steps("a")
        self.assertEqual([step["status"] for step in steps.values()], ["passed", "not run"])
        self.assertFalse((self.out / "b.json").exists())

    def test_nothing_starts_when_the_time_does_not_suffice(self):
        self.write_program("ops_nccl_backend_test", "raise SystemExit(3)\n")
        self.write_program("torch_device_test", "raise SystemExit(3)\n")
        # The time for the end of a program is part of these seconds.
        done = self.run_script("--fake", "--parts", "a", "--seconds", "35")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("| not run | no time was left; run it again |"), 2)


class StepTest(InAFolder):
    """A step with the time that it gets."""

    @classmethod
    def setUpClass(cls):
        cls.proof = load()

    def run_step(self, left, earlier=None, sleep=0, **options):
        """Runs a step while `left` seconds of its part are left, and returns its record."""
        command = ["sh", "-c", f"echo run >>'{self.folder}/runs'; sleep {sleep}"]
        return self.proof.run(self.proof.Step("step", command, **options), dict(os.environ), str(self.folder / "log"),
                              time.monotonic() + left, earlier or {})

    def runs(self):
        return len((self.folder / "runs").read_text().splitlines())

    def test_fewer_runs_than_asked_for_do_not_pass(self):
        # After the first run less than a tenth of the step's time is left.
        first = self.run_step(30, times=3, seconds=3000)
        self.assertEqual((first["status"], first["runs"]), ("not run", 1))
        self.assertEqual(first["reason"], "only 1 of 3 runs fit into the time")
        second = self.run_step(3000, first, times=3, seconds=3000)
        self.assertEqual((second["status"], second["runs"]), ("passed", 3))
        self.assertEqual(self.runs(), 3)
        self.assertNotIn("reason", second)

    def test_a_soak_passes_with_the_runs_that_fit(self):
        record = self.run_step(30, times=3, seconds=3000, as_many_as_fit=True)
        self.assertEqual((record["status"], record["runs"]), ("passed", 1))

    def test_a_failed_run_starts_anew(self):
        record = self.run_step(3000, {"status": "failed", "runs": 2}, times=3, seconds=3000)
        self.assertEqual((record["status"], self.runs()), ("passed", 3))

    def test_the_end_of_the_part_is_no_failure_of_a_step(self):
        record = self.run_step(0.1, sleep=600, as_many_as_fit=True)
        self.assertEqual((record["status"], record["reason"]), ("not run", "only 0 of 1 runs fit into the time"))

    def test_a_step_that_takes_too_long_fails(self):
        record = self.run_step(3000, sleep=600, seconds=1)
        self.assertEqual((record["status"], record["reason"]), ("failed", "it did not end in time"))

    @unittest.skipUnless(os.path.exists(os.environ.get("TRAIN_BENCH", "")), "TRAIN_BENCH")
    def test_the_rows_of_train_bench_are_understood(self):
        rows = self.folder / "rows.json"
        done = subprocess.run([os.environ["TRAIN_BENCH"], "--model", "cnn", "--batch", "4", "--steps", "10", "--mode",
                               "independent,hvd", "--rounds", "2", "--json", str(rows)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = json.loads(rows.read_text())
        self.assertEqual([row["mode"] for row in rows], ["independent", "hvd"] * 2)
        figures, _ = self.proof.train_marks("cnn", 4)(done.stdout, {})
        speeds = [row["images_per_s"] for row in rows]
        self.assertAlmostEqual(figures["hvd / independent"],
                               statistics.median([speeds[1] / speeds[0], speeds[3] / speeds[2]]), places=2)
        self.assertAlmostEqual(figures["blocked ms"],
                               statistics.median([rows[i]["exposed_comm_ms"] for i in (1, 3)]), places=2)


if __name__ == "__main__":
    unittest.main()
