// Tests the copies of fused operations. The kernel's own code runs on the host, once for every
// thread of every block.
#include "nccl/copier.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "cuda_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "fusion/identity.hpp"
#include "nccl/copy_table.hpp"
#include "nccl/cuda.hpp"
#include "reduce/scale.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

enum class Way { kernel, plain };

class CopierTest : public ::testing::TestWithParam<Way> {
 protected:
  CopierTest() {
    fake_gpu::reset(1);
    stream_ = std::make_unique<CudaStream>();
    memory_ = std::make_unique<CudaMemory>();
    copier_ = is_kernel() ? make_kernel_copier() : make_plain_copier();
    copier_->load();
  }
  ~CopierTest() override { fake_gpu::reset(0); }

  void TearDown() override {
    copier_.reset();
    memory_.reset();
    stream_.reset();
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
  }

  [[nodiscard]] static bool is_kernel() { return GetParam() == Way::kernel; }

  void run(const std::vector<DeviceCopy>& copies, const ElementOp& element_op = {}) {
    const std::atomic<bool> aborted{false};
    Watch watch(soon(), aborted, "copies", "the fake");
    copier_->run(copies, element_op, stream_->get(), watch);
    while (cudaStreamQuery(stream_->get()) == cudaErrorNotReady) watch.pause();
  }

  [[nodiscard]] Bytes random_bytes(std::size_t size) {
    Bytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }

  std::mt19937 random_{7};
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<CudaMemory> memory_;
  std::unique_ptr<Copier> copier_;
};

TEST_P(CopierTest, EverySizeAtEveryAlignment) {
  const std::vector<std::size_t> edges{0,  1,     2,     3,     4,      8,      15,     16,    17,
                                       31, 4'095, 4'096, 4'097, 16'383, 16'384, 16'385, 40'000};
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < 3 * CopyTable::kMaxParts; ++i) {
    sizes.push_back(i % 4 == 0 ? edges[random_() % edges.size()] : random_() % 70);
  }
  std::size_t room = 0;
  for (const std::size_t size : sizes) room += size + 32;
  const Bytes source = random_bytes(room);
  const std::byte* const src = memory_->put(source);
  Bytes expected = random_bytes(room);
  std::byte* const dst = memory_->put(expected);

  std::vector<DeviceCopy> copies;
  std::size_t from = 0;
  std::size_t to = 0;
  for (const std::size_t size : sizes) {
    from += random_() % 17;
    to += random_() % 17;
    copies.push_back({dst + to, src + from, size});
    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), size,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    from += size;
    to += size;
  }
  std::shuffle(copies.begin(), copies.end(), random_);
  run(copies);
  EXPECT_EQ(memory_->get(dst, room), expected) << "bytes between them included";
  EXPECT_EQ(fake_gpu::calls("launch_copies"), is_kernel() ? 3 : 0);
}

TEST_P(CopierTest, OfManyTilesEachByteIsMovedOnce) {
  const Bytes source = random_bytes(std::size_t{kCopyTile} * kCopyUnit * 5 + 7);
  std::byte* const dst = memory_->put(Bytes(source.size()));
  run({{dst, memory_->put(source), source.size()}});
  EXPECT_EQ(memory_->get(dst, source.size()), source);
}

TEST_P(CopierTest, WithoutASourceTheIdentityIsWritten) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      const std::size_t size = 1'003 * size_of(dtype);
      Bytes expected(size);
      fill_identity(dtype, op, expected.data(), 1'003);
      std::byte* const dst = memory_->put(Bytes(size, std::byte{0x55}));
      run({{dst, nullptr, size}}, {dtype, op, 1.0});
      EXPECT_EQ(memory_->get(dst, size), expected) << to_string(dtype) << ' ' << to_string(op);
    }
  }
}

/// Removes NaN and infinity from random bits, because the bits of a NaN depend on the processor.
Bytes finite(DType dtype, Bytes values) {
  const std::size_t element = size_of(dtype);
  const std::map<DType, std::uint16_t> exponents{
      {DType::f16, 0x7C00}, {DType::bf16, 0x7F80}, {DType::f32, 0x7F80}, {DType::f64, 0x7FF0}};
  const auto exponent = exponents.find(dtype);
  for (std::size_t end = element; end <= values.size(); end += element) {
    if (dtype == DType::boolean) values[end - 1] &= std::byte{1};
    if (exponent == exponents.end()) continue;
    std::uint16_t top = 0;
    std::memcpy(&top, values.data() + end - sizeof top, sizeof top);
    if ((top & exponent->second) == exponent->second) values[end - 1] = std::byte{0};
  }
  return values;
}

TEST_P(CopierTest, ScalesToTheBitAsTheHostDoes) {
  if (!is_kernel()) return;  // factors are rounded to the type
  for (const DType dtype : kAllDTypes) {
    for (const double factor : {0.3, -2.0, 0.0, 1.0 / 3.0, 1e30}) {
      const std::size_t element = size_of(dtype);
      const Bytes values = finite(dtype, random_bytes(997 * element));
      Bytes expected(values.size());
      scale(dtype, expected.data(), values.data(), 997, factor);
      // The part of the tensor begins with a word, or in the middle of one.
      for (const std::size_t begin : {std::size_t{0}, element}) {
        const std::size_t size = values.size() - begin;
        std::byte* const data = memory_->put(values);
        run({{data + begin, data + begin, size}}, {dtype, ReduceOp::sum, factor});
        const Bytes result = memory_->get(data + begin, size);
        EXPECT_TRUE(std::equal(result.begin(), result.end(),
                               expected.begin() + static_cast<std::ptrdiff_t>(begin)))
            << to_string(dtype) << " by " << factor << " from byte " << begin;
      }
    }
  }
}

TEST_P(CopierTest, ScalesTheLastElements) {
  for (const std::size_t count : {1, 4'096, 4'097, 131'073, 262'147}) {
    const std::vector<float> values(count, 3.0F);
    Bytes bytes(count * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    std::byte* const data = memory_->put(bytes);
    run({{data, data, bytes.size()}}, {DType::f32, ReduceOp::sum, 0.5});
    const std::vector<float> expected(count, 1.5F);
    std::memcpy(bytes.data(), expected.data(), bytes.size());
    EXPECT_TRUE(memory_->get(data, bytes.size()) == bytes) << count << " elements";
  }
}

TEST_P(CopierTest, ConvertsEveryCountAtEveryAlignment) {
  if (!is_kernel()) return;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const double factor : {1.0, 1.0 / 3.0}) {
      std::vector<DeviceCopy> in;
      std::vector<DeviceCopy> out;
      std::vector<std::pair<const std::byte*, Bytes>> expected;
      for (std::int64_t count = 1; count < 9'000; count += 1 + count / 5) {
        const auto elements = static_cast<std::size_t>(count);
        const std::size_t begin = elements % 5;  // elements by which the memory is not aligned
        const Bytes values = random_values(DType::f32, count, elements);
        Bytes half(elements * 2);
        for (std::int64_t i = 0; i < count; ++i) {
          store(dtype, half.data(), i, load(DType::f32, values.data(), i));
        }
        Bytes scaled_half(half.size());
        scale(dtype, scaled_half.data(), half.data(), count, factor);
        Bytes whole(elements * 4);
        for (std::int64_t i = 0; i < count; ++i) {
          store(DType::f32, whole.data(), i, load(dtype, scaled_half.data(), i));
        }
        const auto put = [&](Bytes bytes, std::size_t shift) {
          bytes.insert(bytes.begin(), shift, std::byte{});
          return memory_->put(bytes) + shift;
        };
        std::byte* const narrow = put(Bytes(half.size()), begin * 2);
        in.push_back({narrow, put(values, begin * 4), half.size()});
        expected.emplace_back(narrow, scaled_half);
        std::byte* const wide = put(Bytes(whole.size()), begin * 4);
        out.push_back({wide, put(half, (begin + 1) * 2), half.size()});
        expected.emplace_back(wide, whole);
      }
      run(in, {.dtype = dtype, .factor = factor, .f32_source = true});
      run(out, {.dtype = dtype, .factor = factor, .f32_destination = true});
      for (const auto& [data, bytes] : expected) {
        EXPECT_EQ(memory_->get(data, bytes.size()), bytes) << to_string(dtype) << " by " << factor;
      }
    }
  }
}

TEST_P(CopierTest, WithoutASourceTheIdentityOfTheShortTypeIsWritten) {
  if (!is_kernel()) return;
  Bytes expected(1'003 * 2);
  fill_identity(DType::bf16, ReduceOp::min, expected.data(), 1'003);
  std::byte* const dst = memory_->put(Bytes(expected.size()));
  run({{dst, nullptr, expected.size()}},
      {.dtype = DType::bf16, .identity_of = ReduceOp::min, .f32_source = true});
  EXPECT_EQ(memory_->get(dst, expected.size()), expected);
}

std::string name_of(const ::testing::TestParamInfo<Way>& info) {
  return info.param == Way::kernel ? "kernel" : "plain";
}

INSTANTIATE_TEST_SUITE_P(Ways, CopierTest, ::testing::Values(Way::kernel, Way::plain), name_of);

}  // namespace
}  // namespace hvd::test
