#include "collectives/tensor_traits.hpp"

#include <sstream>

#include <hvd/core/error.hpp>

namespace hvd::detail {

namespace {

constexpr std::array<std::pair<torch::ScalarType, DType>, kDTypeCount> kDTypes{{
    {torch::kUInt8, DType::u8},
    {torch::kInt8, DType::i8},
    {torch::kInt16, DType::i16},
    {torch::kInt32, DType::i32},
    {torch::kInt64, DType::i64},
    {torch::kFloat16, DType::f16},
    {torch::kBFloat16, DType::bf16},
    {torch::kFloat32, DType::f32},
    {torch::kFloat64, DType::f64},
    {torch::kBool, DType::boolean},
    {torch::kComplexFloat, DType::c64},
    {torch::kComplexDouble, DType::c128},
}};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace

DType dtype_of(torch::ScalarType type) {
  for (const auto& [scalar, dtype] : kDTypes) {
    if (type == scalar) return dtype;
  }
  throw Error(Errc::unsupported, text("tensors of dtype ", type, " have no collectives"));
}

torch::ScalarType scalar_type_of(DType dtype) noexcept {
  for (const auto& [scalar, known] : kDTypes) {
    if (known == dtype) return scalar;
  }
  return torch::ScalarType::Undefined;
}

Device engine_device_of(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return {};
  if (tensor.is_cuda()) return {Device::Kind::cuda, tensor.get_device()};
  throw Error(Errc::unsupported, text("tensors on ", tensor.device(), " have no collectives"));
}

Shape shape_of(const torch::Tensor& tensor) { return tensor.sizes().vec(); }

void* data_of(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : tensor.data_ptr();
}

torch::ScalarType sent_type(torch::ScalarType type, Compression compression) noexcept {
  const bool compressible = type == torch::kFloat32 || type == torch::kFloat64;
  if (!compressible || compression == Compression::none) return type;
  return compression == Compression::fp16 ? torch::kFloat16 : torch::kBFloat16;
}

void require_supported(const torch::Tensor& tensor) {
  if (!tensor.defined()) throw Error(Errc::invalid_argument, "the tensor is undefined");
  if (tensor.layout() != torch::kStrided) {
    throw Error(Errc::unsupported,
                text("tensors of layout ", tensor.layout(),
                     " have no collectives but sparse_allreduce; make it dense with to_dense()"));
  }
  static_cast<void>(dtype_of(tensor));
  static_cast<void>(engine_device_of(tensor));
}

torch::Tensor plain_alias(const torch::Tensor& tensor) { return tensor.variable_data(); }

torch::Tensor resolved(const torch::Tensor& tensor) { return tensor.resolve_conj().resolve_neg(); }

torch::Tensor reals_of(const torch::Tensor& tensor) {
  return tensor.is_complex() ? torch::view_as_real(resolved(tensor)) : resolved(tensor);
}

void note_overwritten(const torch::Tensor& tensor) {
  if (!tensor.is_inference()) torch::autograd::impl::bump_version(tensor);
}

}  // namespace hvd::detail
