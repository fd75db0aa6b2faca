"""Runs scripts that measure, with programs of this file in the place of the built ones."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# An hvdrun that measures one row, and fails when it is called a second time.
HVDRUN = """
import pathlib, sys
log = pathlib.Path(sys.argv[0]).parent / "arguments"
if log.exists():
    sys.exit(3)
log.write_text(" ".join(sys.argv))
pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text('[%s]')
"""


class ScriptsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()

    def write_program(self, name, text):
        program = self.bin / name
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)

    def command(self, script, *arguments):
        return [sys.executable, str(ROOT / script), "--build", str(self.folder), *arguments]

    def run_script(self, script, *arguments):
        return subprocess.run(self.command(script, *arguments), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)

    def started(self):
        """Returns the ids of the processes that run programs of the folder."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if os.fsencode(self.bin) in entry.read_bytes():
                    found.append(int(entry.parent.name))
        return found

    def kill_started(self):
        for pid in self.started():
            os.kill(pid, signal.SIGKILL)

    def expect_end_of_all(self, count, script, *arguments):
        """The script ends these processes, that it or they have started, when it gets SIGTERM."""
        self.addCleanup(self.kill_started)
        with subprocess.Popen(self.command(script, *arguments), stdin=subprocess.DEVNULL) as process:
            try:
                deadline = time.monotonic() + 60
                while len(self.started()) < count:
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
            finally:
                process.kill()
        self.assertEqual(self.started(), [])

    def expect_first_round(self, script, row, *arguments):
        """The script keeps the first round when the second one fails, and lets hvdrun bind nobody."""
        self.write_program("hvdrun", HVDRUN % json.dumps(row))
        rows = self.folder / "rows.json"
        done = self.run_script(script, "--rounds", "2", "--json", str(rows), *arguments)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--bind-to none", (self.bin / "arguments").read_text())
        self.assertEqual([row["round"] for row in json.loads(rows.read_text())], [0], done.stderr)

    def test_training_keeps_the_rounds_before_a_failure(self):
        self.expect_first_round("benchmarks/training", {"model": "cnn"}, "--models", "cnn", "--modes", "hvd")

    def test_negotiation_keeps_the_rounds_before_a_failure(self):
        self.expect_first_round("benchmarks/negotiation", {"case": "blocking", "frozen": True}, "--python", "nothing")

    def test_elastic_ends_what_it_started(self):
        self.write_program("hvdrun", "import signal\nsignal.pause()\n")
        self.expect_end_of_all(1, "benchmarks/elastic", "--models", "cnn")

    def test_soak_ends_what_it_started(self):
        self.write_program("hvdrun", "import signal\nsignal.pause()\n")
        self.write_program("churn_trainer", "")
        self.write_program("launcher_elastic_churn_test",
                           f"import subprocess\nsubprocess.run(['{self.bin}/hvdrun'])\n")
        self.expect_end_of_all(2, "scripts/soak", "--resume", str(self.folder / "soak.json"))

    def test_soak_runs_the_seed_of_a_removed_row_again(self):
        for name in ("hvdrun", "churn_trainer"):
            self.write_program(name, "")
        self.write_program("launcher_elastic_churn_test", "raise SystemExit(1)\n")
        resume = self.folder / "soak.json"

        def seeds():
            self.assertEqual(self.run_script("scripts/soak", "--resume", str(resume)).returncode, 1)
            return [job["seed"] for job in json.loads(resume.read_text())]

        self.assertEqual(seeds(), [1])
        row = json.loads(resume.read_text())[0]
        resume.write_text(json.dumps([row, {**row, "seed": 3}]))
        self.assertEqual(seeds(), [1, 3, 2])


if __name__ == "__main__":
    unittest.main()
