"""Batch normalization with the statistics of all ranks' batches."""

from torch.nn.modules.batchnorm import _BatchNorm

from hvd import _C


class SyncBatchNorm(_BatchNorm):
    """Replaces BatchNorm1d, 2d and 3d. In training, forward and backward are collective.

    It works on every device that hvd's collectives take, where Horovod's needs a GPU. The ranks'
    batches may differ in size.
    """

    _layer = None  # of the engine, made by the first forward

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input):
        if not self.training and self.track_running_stats:
            return super().forward(input)
        self._check_input_dim(input)
        if self._layer is None:
            self._layer = _C.SyncBatchNorm(self.num_features, self.affine, self.track_running_stats)
        return self._layer.forward(input, self.training, self.eps, self.momentum, self.weight,
                                   self.bias, self.running_mean, self.running_var,
                                   self.num_batches_tracked)

    def __getstate__(self):
        """A copy makes a layer of its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_layer"}
