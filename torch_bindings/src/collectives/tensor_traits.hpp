// Describes a tensor in the types of `core`.
#pragma once

#include <torch/types.h>

#include <hvd/core/types.hpp>
#include <hvd/torch/compression.hpp>

namespace hvd::detail {

/// Throws Errc::unsupported for a dtype without collectives, and names it.
[[nodiscard]] DType dtype_of(torch::ScalarType type);
[[nodiscard]] inline DType dtype_of(const torch::Tensor& tensor) {
  return dtype_of(tensor.scalar_type());
}
[[nodiscard]] torch::ScalarType scalar_type_of(DType dtype) noexcept;
/// Throws Errc::unsupported for a device without collectives, and names it.
[[nodiscard]] Device engine_device_of(const torch::Tensor& tensor);
[[nodiscard]] Shape shape_of(const torch::Tensor& tensor);
/// Returns null for a tensor without elements.
[[nodiscard]] void* data_of(const torch::Tensor& tensor);
/// Returns the dtype in which values of `type` are sent and reduced.
[[nodiscard]] torch::ScalarType sent_type(torch::ScalarType type, Compression compression) noexcept;

/// Throws unless the tensor is defined, dense, and of a dtype and on a device that collectives
/// support.
void require_supported(const torch::Tensor& tensor);

/// Returns a tensor with the same memory and without autograd. Changes through it do not count in
/// `tensor._version()`, so another thread may write through it.
[[nodiscard]] torch::Tensor plain_alias(const torch::Tensor& tensor);
/// Returns a tensor whose memory holds its values: LibTorch conjugates and negates some tensors
/// only when they are read. Shares memory with `tensor` if that is not such a tensor.
[[nodiscard]] torch::Tensor resolved(const torch::Tensor& tensor);
/// Returns the resolved tensor; a complex one gets a last dimension of real and imaginary parts.
[[nodiscard]] torch::Tensor reals_of(const torch::Tensor& tensor);
/// Tells autograd that `tensor` is being overwritten.
void note_overwritten(const torch::Tensor& tensor);

}  // namespace hvd::detail
