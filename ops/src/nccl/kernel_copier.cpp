// Implements the copier with a kernel of its own.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "fusion/address.hpp"
#include "fusion/identity.hpp"
#include "nccl/copier.hpp"
#include "nccl/copy_table.hpp"
#include "nccl/cuda.hpp"

namespace hvd::detail {
namespace {

// The largest part, 2 GiB, so that its bytes are counted in 32 bits. A larger copy is split at
// multiples of it, which keeps the alignment.
constexpr std::size_t kMaxPart = std::size_t{1} << 31U;

CopyElement element_of(const ElementOp& element_op) {
  if (element_op.factor == 1.0 && !element_op.converts()) return CopyElement::bytes;
  switch (element_op.dtype) {
    case DType::u8:
      return CopyElement::u8;
    case DType::i8:
      return CopyElement::i8;
    case DType::i16:
      return CopyElement::i16;
    case DType::i32:
      return CopyElement::i32;
    case DType::i64:
      return CopyElement::i64;
    case DType::f16:
      return CopyElement::f16;
    case DType::bf16:
      return CopyElement::bf16;
    case DType::f32:
      return CopyElement::f32;
    case DType::f64:
      return CopyElement::f64;
    case DType::boolean:
      return element_op.factor == 0.0 ? CopyElement::u8 : CopyElement::bytes;
    case DType::c64:  // calls have no complex types
    case DType::c128:
      break;
  }
  return CopyElement::bytes;
}

/// Fills a table and launches it whenever it is full.
class Launcher {
 public:
  Launcher(const ElementOp& element_op, cudaStream_t stream) : stream_(stream) {
    table_.factor = element_op.factor;
    table_.element = element_of(element_op);
    table_.dst_is_half = element_op.f32_source;
    table_.src_is_half = element_op.f32_destination;
    std::array<std::byte, kCopyUnit> fill{};
    fill_identity(element_op.dtype, element_op.identity_of, fill.data(),
                  static_cast<std::int64_t>(kCopyUnit / size_of(element_op.dtype)));
    std::memcpy(table_.fill.word, fill.data(), fill.size());
    clear();
  }

  void add(const DeviceCopy& copy) {
    const bool idle = copy.dst == copy.src && table_.element == CopyElement::bytes;
    if (idle) return;
    const bool converts = table_.src_is_half || table_.dst_is_half;
    const std::size_t all = converts ? 2 * copy.size : copy.size;  // bytes of the longer side
    for (std::size_t begin = 0; begin < all; begin += kMaxPart) {
      const std::size_t size = std::min(kMaxPart, all - begin);
      if (table_.parts == CopyTable::kMaxParts) launch();
      const std::uint32_t part = table_.parts++;
      table_.dst[part] = copy.dst + (table_.dst_is_half ? begin / 2 : begin);
      table_.src[part] = moved(copy.src, table_.src_is_half ? begin / 2 : begin);
      table_.size[part] = static_cast<std::uint32_t>(size);
      table_.first_tile[part] = table_.tiles;
      table_.tiles += tiles_of(table_.size[part]);
    }
  }

  void launch() {
    if (table_.parts > 0) {
      std::fill(table_.first_tile + table_.parts, std::end(table_.first_tile), table_.tiles);
      check(launch_copies(table_, stream_), "the copy kernel");
    }
    clear();
  }

 private:
  void clear() noexcept { table_.parts = table_.tiles = 0; }

  cudaStream_t stream_;
  CopyTable table_;
};

/// Writes 75 as "7.5".
std::string capability(int architecture) {
  return fmt::format("{}.{}", architecture / 10, architecture % 10);
}

[[noreturn]] void refuse_gpu() {
  int device = 0;
  int major = 0;
  int minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "cudaDeviceGetAttribute");
  std::vector<std::string> compiled;
  for (const int each : copy_architectures()) compiled.push_back(capability(each / 10));
  throw Error(Errc::unsupported,
              fmt::format("this build of hvd has no code for cuda:{}, a GPU of {}, but for {} and "
                          "later; build it with -DHVD_CUDA_ARCHITECTURES={}, or without nvcc "
                          "(-DHVD_WITH_NVCC=OFF)",
                          device, capability(10 * major + minor), fmt::join(compiled, ", "),
                          10 * major + minor));
}

class KernelCopier final : public Copier {
 public:
  void load() override {
    const cudaError_t result = load_copies();
    if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction) {
      static_cast<void>(cudaGetLastError());
      refuse_gpu();
    }
    check(result, "loading the copy kernel");
  }
  [[nodiscard]] bool scales(DType) const noexcept override { return true; }
  [[nodiscard]] bool scales_for_free() const noexcept override { return true; }

  void run(std::span<const DeviceCopy> copies, const ElementOp& element_op, cudaStream_t stream,
           Watch&) override {
    Launcher launcher(element_op, stream);
    for (const DeviceCopy& copy : copies) launcher.add(copy);
    launcher.launch();
  }
};

}  // namespace

std::unique_ptr<Copier> make_kernel_copier() { return std::make_unique<KernelCopier>(); }

}  // namespace hvd::detail

bool hvd::gpu_copies_convert() noexcept { return true; }
