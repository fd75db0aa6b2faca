#include "fusion/buffer.hpp"

#include <new>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

void FusionBuffer::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete (memory, std::align_val_t{kAlignment});
}

std::byte* FusionBuffer::reserve(std::size_t size) {
  if (size <= capacity_) return memory_.get();
  memory_.reset();  // the old memory goes first, since both at once might not fit
  capacity_ = 0;
  void* memory = ::operator new (size, std::align_val_t{kAlignment}, std::nothrow);
  if (memory == nullptr) {
    throw Error(Errc::resource, fmt::format("no memory for a fusion buffer of {} bytes", size));
  }
  memory_.reset(static_cast<std::byte*>(memory));
  capacity_ = size;
  return memory_.get();
}

}  // namespace hvd::detail
