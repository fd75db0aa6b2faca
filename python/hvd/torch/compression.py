"""Compressors of gradients, as Horovod has them."""

import torch


class Compressor:
    """Your own compressor has these two methods."""

    @staticmethod
    def compress(tensor):
        """Returns the tensor that is sent, and what `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        raise NotImplementedError


class NoneCompressor(Compressor):
    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class _CastingCompressor(Compressor):
    dtype = torch.float16

    @classmethod
    def compress(cls, tensor):
        if not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.dtype), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastingCompressor):
    dtype = torch.float16


class BF16Compressor(_CastingCompressor):
    dtype = torch.bfloat16


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
