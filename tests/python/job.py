"""What the tests of horovod.torch's API share."""

import unittest

import torch

import hvd.torch as hvd


class JobTest(unittest.TestCase):
    """The ranks of a job. Each class of tests initialises hvd anew."""

    @classmethod
    def setUpClass(cls):
        hvd.init()
        cls.rank, cls.size = hvd.rank(), hvd.size()

    @classmethod
    def tearDownClass(cls):
        hvd.shutdown()

    def equal(self, tensor, expected):
        torch.testing.assert_close(tensor, torch.as_tensor(expected, dtype=tensor.dtype))

    def same(self, ours, theirs, tolerance=1e-5):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    def gradient(self, function, shape=(4,), weight=1.0):
        tensor = torch.ones(shape, requires_grad=True)
        output = function(tensor)
        output.backward(gradient=torch.full_like(output, weight))
        return tensor.grad
