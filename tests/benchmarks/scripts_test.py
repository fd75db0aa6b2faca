"""Runs scripts that measure, with programs of this file in the place of the built ones."""

import json
import pathlib
import subprocess
import sys
import tempfile
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


if __name__ == "__main__":
    unittest.main()
