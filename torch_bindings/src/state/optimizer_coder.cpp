#include "state/optimizer_coder.hpp"

#include <limits>

#include "collectives/tensor_traits.hpp"

namespace hvd::detail {

void FieldWriter::field(const torch::Tensor& value) {
  field(value.defined());
  if (!value.defined()) return;
  require_supported(value);
  wire_.u8(static_cast<std::uint8_t>(dtype_of(value)));
  count(static_cast<std::size_t>(value.dim()));
  for (const std::int64_t size : value.sizes()) wire_.i64(size);
  tensors_.push_back(value);
}

void FieldReader::field(bool& value) {
  const std::uint8_t byte = wire_.u8();
  if (byte > 1) wire_.fail("a flag is neither 0 nor 1");
  value = byte == 1;
}

void FieldReader::field(torch::Tensor& value) {
  bool defined = false;
  field(defined);
  value = torch::Tensor();
  if (!defined) return;

  const std::uint8_t dtype = wire_.u8();
  if (dtype >= kDTypeCount) wire_.fail("unknown dtype");
  Shape shape(wire_.count(sizeof(std::int64_t)));
  std::int64_t elements = 1;
  for (std::int64_t& size : shape) {
    size = wire_.i64();
    if (size < 0 || (size > 0 && elements > std::numeric_limits<std::int64_t>::max() / 16 / size)) {
      wire_.fail("impossible shape");
    }
    elements *= size;
  }
  const auto options =
      like_.options().dtype(scalar_type_of(static_cast<DType>(dtype))).requires_grad(false);
  value = like_.sizes() == torch::IntArrayRef(shape) ? torch::empty_like(like_.detach(), options)
                                                     : torch::empty(shape, options);
  tensors_.push_back(value);
}

}  // namespace hvd::detail
