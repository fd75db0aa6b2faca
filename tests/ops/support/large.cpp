#include "support/large.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <memory>
#include <system_error>
#include <vector>

#include <sys/mman.h>

#include <hvd/core/internal/fd.hpp>

#include "values.hpp"

namespace hvd::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPeriod = (std::size_t{2} << 20) + kPage;
constexpr std::size_t kOwn = std::size_t{64} << 10;  // before element 2^31
constexpr std::int64_t kFew = 1'000;

std::int64_t size_of_element(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

/// Returns the offset of the tail in bytes.
std::size_t tail_begin(DType dtype) { return (std::size_t{1} << 31) * size_of(dtype) - kOwn; }

/// Returns a deadline that leaves a busy machine time for gigabytes.
Deadline patient() { return Clock::now() + std::chrono::seconds(100); }

[[noreturn]] void throw_errno(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

/// A tensor of few elements, or of more than 2^31.
class Tensor {
 public:
  Tensor(DType dtype, std::int64_t count) : dtype_(dtype), count_(count) {
    if (count >= kLarge) {
      large_ = std::make_unique<LargeTensor>(dtype, count);
    } else {
      few_.resize(static_cast<std::size_t>(count * size_of_element(dtype)));
    }
  }

  /// Returns null for an empty tensor, as callers of a backend pass it.
  [[nodiscard]] std::byte* data() {
    if (large_) return large_->data();
    return few_.empty() ? nullptr : few_.data();
  }
  template <class Fn>
  void for_each(Fn fn) const {
    if (large_) return large_->for_each(fn);
    for (std::int64_t i = 0; i < count_; ++i) fn(i);
  }
  /// Sets element i to value(i).
  template <class Fn>
  Tensor& fill(Fn value) {
    for_each([&](std::int64_t i) { store(dtype_, data(), i, static_cast<double>(value(i))); });
    return *this;
  }
  /// Returns the number of elements i that are not value(i).
  template <class Fn>
  [[nodiscard]] std::int64_t wrong(Fn value) {
    std::int64_t count = 0;
    for_each([&](std::int64_t i) { count += load_integer(dtype_, data(), i) != value(i); });
    return count;
  }

 private:
  DType dtype_;
  std::int64_t count_;
  std::unique_ptr<LargeTensor> large_;
  std::vector<std::byte> few_;
};

/// Returns the counts of the ranks: kLarge for rank 0, and kFew for the others.
std::vector<std::int64_t> uneven(int ranks) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), kFew);
  counts.front() = kLarge;
  return counts;
}

}  // namespace

std::int64_t LargeTensor::period(DType dtype) noexcept {
  return static_cast<std::int64_t>(kPeriod) / size_of_element(dtype);
}

std::int64_t LargeTensor::tail(DType dtype) noexcept {
  return static_cast<std::int64_t>(tail_begin(dtype)) / size_of_element(dtype);
}

LargeTensor::LargeTensor(DType dtype, std::int64_t count) : dtype_(dtype), count_(count) {
  const std::size_t begin = tail_begin(dtype);
  const std::size_t end = static_cast<std::size_t>(count) * size_of(dtype);
  const std::size_t tail_bytes = (end - begin + kPage - 1) / kPage * kPage;
  bytes_ = begin + tail_bytes;
  const UniqueFd file(::memfd_create("hvd-test-large", MFD_CLOEXEC));
  if (!file) throw_errno("memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(kPeriod + tail_bytes)) != 0) {
    throw_errno("ftruncate");
  }
  void* const space =
      ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) throw_errno("mmap");
  data_ = static_cast<std::byte*>(space);
  const auto map = [&](std::size_t at, std::size_t size, std::size_t offset) {
    if (::mmap(data_ + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
               file.get(), static_cast<off_t>(offset)) == MAP_FAILED) {
      const int error = errno;
      ::munmap(data_, bytes_);
      errno = error;
      throw_errno("mmap");
    }
  };
  for (std::size_t at = 0; at < begin; at += kPeriod) map(at, std::min(kPeriod, begin - at), 0);
  map(begin, tail_bytes, kPeriod);
}

LargeTensor::~LargeTensor() { ::munmap(data_, bytes_); }

std::int64_t large_value(DType dtype, int rank, std::int64_t index) noexcept {
  std::uint64_t bits = static_cast<std::uint64_t>(LargeTensor::place_of(dtype, index)) * 8 +
                       static_cast<std::uint64_t>(rank);
  bits = (bits ^ (bits >> 30)) * 0xBF58'476D'1CE4'E5B9U;  // SplitMix64, Vigna 2015
  return wrap(dtype, bits >> 24);
}

std::int64_t largest_value(DType dtype, int ranks, std::int64_t index) noexcept {
  std::int64_t largest = std::numeric_limits<std::int64_t>::min();
  for (int rank = 0; rank < ranks; ++rank) {
    largest = std::max(largest, large_value(dtype, rank, index));
  }
  return largest;
}

std::int64_t LargeChecks::allreduce() const {
  const auto own = [&](std::int64_t i) { return large_value(dtype, rank, i); };
  Tensor input(dtype, kLarge);
  Tensor output(dtype, kLarge);
  const TensorSlice slice{input.fill(own).data(), output.data(), kLarge};
  backend.allreduce({{&slice, 1}, {}, dtype, ReduceOp::max}, patient());
  return input.wrong(own) +
         output.wrong([&](std::int64_t i) { return largest_value(dtype, size, i); });
}

std::int64_t LargeChecks::broadcast() const {
  const int root = size - 1;
  Tensor data(dtype, kLarge);
  data.fill([&](std::int64_t i) { return large_value(dtype, rank, i); });
  const TensorSlice slice{data.data(), data.data(), kLarge};
  backend.broadcast({{&slice, 1}, {}, dtype, root}, patient());
  return data.wrong([&](std::int64_t i) { return large_value(dtype, root, i); });
}

std::int64_t LargeChecks::allgather() const {
  const std::vector<std::int64_t> counts = uneven(size);
  const auto own = [&](std::int64_t i) { return large_value(dtype, rank, i); };
  Tensor input(dtype, counts[static_cast<std::size_t>(rank)]);
  Tensor output(dtype, kLarge + (size - 1) * kFew);
  const GatherSlice slice{input.fill(own).data(), output.data(), counts};
  backend.allgather({{&slice, 1}, {}, dtype}, patient());
  return input.wrong(own) + output.wrong([&](std::int64_t i) {
    if (i < kLarge) return large_value(dtype, 0, i);
    const std::int64_t beyond = i - kLarge;
    return large_value(dtype, static_cast<int>(1 + beyond / kFew), beyond % kFew);
  });
}

std::int64_t LargeChecks::reducescatter() const {
  const std::vector<std::int64_t> counts = uneven(size);
  const auto own = [&](std::int64_t i) { return large_value(dtype, rank, i); };
  Tensor input(dtype, kLarge + (size - 1) * kFew);
  Tensor output(dtype, counts[static_cast<std::size_t>(rank)]);
  const ScatterSlice slice{input.fill(own).data(), output.data(), counts};
  backend.reducescatter({{&slice, 1}, {}, dtype, ReduceOp::max}, patient());
  const std::int64_t begin = rank == 0 ? 0 : kLarge + (rank - 1) * kFew;
  return input.wrong(own) +
         output.wrong([&](std::int64_t i) { return largest_value(dtype, size, begin + i); });
}

std::int64_t LargeChecks::alltoall() const {
  constexpr std::int64_t kBack = 3;  // rank 1 sends so many to rank 0, and kFew to itself
  const bool first = rank == 0;
  const std::vector<std::int64_t> sends =
      first ? std::vector<std::int64_t>{0, kLarge} : std::vector<std::int64_t>{kBack, kFew};
  const std::vector<std::int64_t> receives =
      first ? std::vector<std::int64_t>{0, kBack} : std::vector<std::int64_t>{kLarge, kFew};
  const auto own = [&](std::int64_t i) { return large_value(dtype, rank, i); };
  Tensor input(dtype, sends[0] + sends[1]);
  Tensor output(dtype, receives[0] + receives[1]);
  backend.alltoall({input.fill(own).data(), output.data(), sends, receives, {}, dtype}, patient());
  return input.wrong(own) + output.wrong([&](std::int64_t i) {
    if (first) return large_value(dtype, 1, i);
    return i < kLarge ? large_value(dtype, 0, i) : large_value(dtype, 1, kBack + i - kLarge);
  });
}

}  // namespace hvd::test
