"""Tests hvd.elastic: a rank is lost, the training goes on, and another rank joins it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from hvd.torch import HorovodInternalError, elastic

TRAINER = pathlib.Path(__file__).with_name("elastic_trainer.py")


class ElasticTest(unittest.TestCase):
    def test_training_goes_on_without_a_lost_rank_and_with_a_new_one(self):
        with tempfile.TemporaryDirectory() as folder:
            job = subprocess.run(["hvdrun", "-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1,1",
                                  sys.executable, TRAINER, folder],
                                 capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
            seen = [json.loads(file.read_text()) for file in pathlib.Path(folder).iterdir()]
        self.assertEqual(len(seen), 2, job.stderr)
        self.assertEqual(seen[0], seen[1])
        step, together, sizes = seen[0][:3]
        self.assertEqual((together, sizes), (5, [1, 2]))
        self.assertGreaterEqual(step, 8)  # three before the loss, and those together

    def test_a_commit_counts_once_its_content_is_there(self):
        """Otherwise a rank that could not get it would send its older content in the next generation."""
        state = elastic.ObjectState(step=1)
        with mock.patch.object(elastic.job, "learn_hosts"), \
                mock.patch.object(elastic, "allgather_object", lambda mine, name: [mine, 2, 5]):
            with mock.patch.object(state, "_broadcast", side_effect=HorovodInternalError):
                self.assertRaises(HorovodInternalError, state._meet)
            self.assertEqual((state._saves, state.step), (0, 1))
            with mock.patch.object(state, "_broadcast", return_value={"step": 6}) as broadcast:
                state._meet()
            broadcast.assert_called_once_with({"step": 1}, 2)
        self.assertEqual((state._saves, state.step), (5, 6))

    def test_sampler_divides_what_is_left(self):
        samplers = [elastic.ElasticSampler(range(10), seed=4) for _ in range(3)]
        self.assertEqual(sorted(samplers[0]), list(range(10)))
        for rank, sampler in enumerate(samplers):
            sampler.load_state_dict({"epoch": 2, "processed_num": 3})
            sampler.num_replicas, sampler.rank, sampler.num_samples = 3, rank, 3
        parts = [list(sampler) for sampler in samplers]
        self.assertEqual([len(part) for part in parts], [3, 3, 3])
        self.assertEqual(set(sum(parts, [])), set(samplers[0].remaining_indices))
        self.assertEqual(len(samplers[0].remaining_indices), 7)
        samplers[0].record_batch(0, 2)
        self.assertEqual(samplers[0].state_dict(), {"epoch": 2, "processed_num": 9})
