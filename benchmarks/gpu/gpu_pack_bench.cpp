// Packs those of ResNet-50's gradients that an allreduce packs into fusion memory and unpacks them,
// alternating with a copy of the same bytes within the device. See benchmarks/README.md.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "nccl/copier.hpp"
#include "nccl/cuda.hpp"
#include "nccl/fusion_memory.hpp"
#include "negotiation.hpp"

namespace hvd {
namespace {

using namespace detail;

constexpr int kSkipped = 77;
// The alignment of tensors that LibTorch's CUDA allocator returns.
constexpr std::size_t kTensorAlignment = 512;
// An H200 needs about 130 µs to fill this memory, and the host less than 30 µs for a launch.
constexpr std::size_t kBusyBytes = std::size_t{512} << 20;

/// Measures the time between two events in a stream.
class StreamTimer {
 public:
  StreamTimer() {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~StreamTimer() {
    for (const cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  /// Returns milliseconds, measured on the device. The device is busy before, so that it does not
  /// wait for the host, which needs longer for the launch of a pack than for that of a copy.
  template <class Work>
  [[nodiscard]] double time(cudaStream_t stream, Work work) {
    check(cudaMemsetAsync(busy_.reserve(kBusyBytes), 0, kBusyBytes, stream), "cudaMemsetAsync");
    check(cudaEventRecord(events_[0], stream), "cudaEventRecord");
    work();
    check(cudaEventRecord(events_[1], stream), "cudaEventRecord");
    check(cudaEventSynchronize(events_[1]), "cudaEventSynchronize");
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, events_[0], events_[1]), "cudaEventElapsedTime");
    return static_cast<double>(elapsed);
  }

 private:
  std::array<cudaEvent_t, 2> events_{};
  DeviceBuffer busy_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class PackBench {
 public:
  /// With `from_f32` the tensors are f32, and are packed as `dtype`.
  PackBench(DType dtype, bool from_f32) : dtype_(dtype), from_f32_(from_f32) {
    const std::size_t element = size_of(dtype);
    const std::size_t in_memory = from_f32 ? sizeof(float) : element;
    copier_ = make_kernel_copier();
    has_kernel_ = copier_ != nullptr;
    if (!copier_) copier_ = make_plain_copier();

    std::vector<TensorSlice> tensors;
    std::vector<std::size_t> offsets;
    std::size_t room = 0;
    for (const std::int64_t count : bench::resnet50_gradients()) {
      tensors.push_back({nullptr, nullptr, count});
      offsets.push_back(room);
      const std::size_t bytes = static_cast<std::size_t>(count) * in_memory;
      room += (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    }
    const FusedLayout layout(tensors, element, from_f32);
    size_ = layout.packed();
    moved_ = size_ + size_ / element * in_memory;
    std::byte* const memory = memory_.reserve(room);
    std::byte* const fused = fused_.reserve(moved_ / 2);
    static_cast<void>(other_.reserve(moved_ / 2));
    check(cudaMemset(memory, 0x3C, room), "cudaMemset");  // small numbers in every format
    check(cudaMemset(fused, 0, size_), "cudaMemset");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const FusedLayout::Place& place = layout[i];
      if (!place.is_packed) continue;
      in_.push_back({fused + place.offset, memory + offsets[i], place.bytes});
      out_.push_back({memory + offsets[i], fused + place.offset, place.bytes});
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  /// Prints one line per variant. Returns false when the packed bytes are wrong.
  [[nodiscard]] bool run(int rounds) {
    const ElementOp plain{.dtype = dtype_, .f32_destination = from_f32_};
    const ElementOp scaled{.dtype = dtype_, .factor = 0.5, .f32_destination = from_f32_};
    std::array<std::vector<double>, 4> times;
    const bool right = packs_right();
    for (int round = -3; round < rounds; ++round) {  // the first ones do not count
      const std::array<double, 4> took{
          timer_.time(stream_.get(), [&] { copy_all(); }),
          timer_.time(stream_.get(), [&] { pack(); }),
          timer_.time(stream_.get(), [&] { move(out_, plain); }),
          timer_.time(stream_.get(), [&] { move(out_, scaled); }),
      };
      for (std::size_t i = 0; round >= 0 && i < took.size(); ++i) times[i].push_back(took[i]);
    }
    constexpr std::array<std::string_view, 4> kNames{"copy", "pack", "unpack", "unpack, scaled"};
    std::array<double, 4> ms{};
    for (std::size_t i = 0; i < ms.size(); ++i) {
      ms[i] = median(times[i]);
      fmt::print("{:>5} {:>14} {:>10} {:>9.1f} {:>9.1f}\n", to_string(dtype_), kNames[i], size_,
                 ms[i] * 1e3, static_cast<double>(moved_) / ms[i] / 1e6);
    }
    fmt::print("{:>5}{} pack + unpack: {:.2f} of a copy's bandwidth, {:.2f} with a scale{}{}\n",
               to_string(dtype_), from_f32_ ? " from f32" : "", 2 * ms[0] / (ms[1] + ms[2]),
               2 * ms[0] / (ms[1] + ms[3]),
               has_kernel_ ? "" : " (no kernel in this build: one copy per tensor)",
               right ? "" : "; THE PACKED BYTES ARE WRONG");
    return right;
  }

 private:
  void copy_all() {
    const std::size_t bytes = moved_ / 2;  // it reads and writes as much as a pack does
    check(cudaMemcpyAsync(other_.reserve(bytes), fused_.reserve(bytes), bytes,
                          cudaMemcpyDeviceToDevice, stream_.get()),
          "cudaMemcpyAsync");
  }

  void move(const std::vector<DeviceCopy>& copies, const ElementOp& treatment) {
    Watch watch(Clock::now() + std::chrono::seconds(60), aborted_, "bench", "CUDA");
    copier_->run(copies, treatment, stream_.get(), watch);
  }

  void pack() { move(in_, {.dtype = dtype_, .f32_source = from_f32_}); }

  [[nodiscard]] bool packs_right() {
    pack();
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    std::vector<std::byte> packed(size_);
    check(cudaMemcpy(packed.data(), fused_.reserve(size_), size_, cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    return std::all_of(in_.begin(), in_.end(), [&](const DeviceCopy& copy) {
      const auto begin = packed.begin() + (copy.dst - fused_.reserve(size_));
      return std::all_of(begin, begin + static_cast<std::ptrdiff_t>(copy.size),
                         [](std::byte byte) { return byte == std::byte{0x3C}; });
    });
  }

  DType dtype_;
  bool from_f32_;
  std::size_t size_ = 0;   ///< bytes of all tensors, packed
  std::size_t moved_ = 0;  ///< bytes that a pack reads and writes
  bool has_kernel_ = false;
  std::atomic<bool> aborted_{false};
  CudaStream stream_;
  StreamTimer timer_;
  DeviceBuffer memory_;
  DeviceBuffer fused_;
  DeviceBuffer other_;
  std::unique_ptr<Copier> copier_;
  std::vector<DeviceCopy> in_;
  std::vector<DeviceCopy> out_;
};

int run(int argc, char** argv) {
  CLI::App app{"ResNet-50's small gradients packed and unpacked on a GPU, beside a copy"};
  int rounds = 50;
  app.add_option("--rounds", rounds, "measurements of each")->check(CLI::Range(1, 100'000));
  CLI11_PARSE(app, argc, argv);

  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    fmt::print("no GPU: nothing was measured\n");
    return kSkipped;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  fmt::print("# {}\n# dtype way bytes us GB/s (read and written)\n", properties.name);
  bool right = true;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    right = PackBench(dtype, false).run(rounds) && right;
  }
  // A build without the kernel does not convert.
  if (gpu_copies_convert()) right = PackBench(DType::bf16, true).run(rounds) && right;
  return right ? 0 : 1;
}

}  // namespace
}  // namespace hvd

int main(int argc, char** argv) {
  try {
    return hvd::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_pack_bench: {}\n", error.what());
    return 1;
  }
}
