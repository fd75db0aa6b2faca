// What a tensor is in core's vocabulary.
#pragma once

#include <torch/types.h>

#include <hvd/core/types.hpp>

namespace hvd {

/// Throws Errc::unsupported naming the dtype.
[[nodiscard]] DType dtype_of(const torch::Tensor& tensor);
[[nodiscard]] torch::ScalarType scalar_type_of(DType dtype) noexcept;
/// Throws Errc::unsupported naming the device.
[[nodiscard]] Device engine_device_of(const torch::Tensor& tensor);
[[nodiscard]] Shape shape_of(const torch::Tensor& tensor);

/// Defined, strided, of a dtype and on a device that collectives know; throws otherwise.
void require_supported(const torch::Tensor& tensor);

/// A view of the same memory without autograd, whose changes do not count in `tensor._version()`:
/// what another thread may write through.
[[nodiscard]] torch::Tensor plain_alias(const torch::Tensor& tensor);
/// Tells autograd that `tensor` is being overwritten.
void note_overwritten(const torch::Tensor& tensor);

}  // namespace hvd
