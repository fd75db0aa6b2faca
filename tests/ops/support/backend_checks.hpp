// Compares single collectives of a backend with the serial reference, for any kind of memory.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/wire.hpp>

#include "support/samples.hpp"

namespace hvd::test {

/// Allocates the tensors of a test. Blocks stay until the memory is destroyed.
class TestMemory {
 public:
  virtual ~TestMemory() = default;
  [[nodiscard]] virtual std::byte* put(const Bytes& bytes) = 0;
  [[nodiscard]] virtual Bytes get(const std::byte* data, std::size_t size) = 0;
};

class HostMemory final : public TestMemory {
 public:
  [[nodiscard]] std::byte* put(const Bytes& bytes) override {
    return blocks_.emplace_back(bytes).data();
  }
  [[nodiscard]] Bytes get(const std::byte* data, std::size_t size) override {
    return {data, data + size};
  }

 private:
  std::list<Bytes> blocks_;
};

/// The checks of one rank; all ranks make the same ones. Each returns how many elements of this
/// rank's results are wrong, or of its inputs were modified.
struct BackendChecks {
  Backend& backend;
  TestMemory& memory;
  Device device;
  int rank = 0;
  int size = 1;

  [[nodiscard]] std::int64_t allreduce(DType dtype, ReduceOp op,
                                       const std::vector<std::int64_t>& counts, bool in_place,
                                       const Scales& scales = {});
  [[nodiscard]] std::int64_t broadcast(DType dtype, int root,
                                       const std::vector<std::int64_t>& counts);
  /// Rank r contributes bases[i] + r elements to tensor i. For a negative base, odd ranks
  /// contribute three and even ranks none.
  [[nodiscard]] std::int64_t allgather(DType dtype, const std::vector<std::int64_t>& bases);
  /// Rank r gets bases[i] + r elements of tensor i, with the same rule for a negative base.
  [[nodiscard]] std::int64_t reducescatter(DType dtype, ReduceOp op,
                                           const std::vector<std::int64_t>& bases,
                                           const Scales& scales = {});
  /// Rank a sends base + a + 2b elements to b; for a negative base, three or none.
  [[nodiscard]] std::int64_t alltoall(DType dtype, std::int64_t base);
  /// An allreduce in which the last of several ranks contributes and receives nothing, for every
  /// second tensor only, unless it is an average.
  [[nodiscard]] std::int64_t allreduce_without_last(DType dtype, ReduceOp op,
                                                    const std::vector<std::int64_t>& counts,
                                                    const Scales& scales = {});
  /// Uses backends for these overlapping groups in turn, and then the whole again.
  [[nodiscard]] std::int64_t subsets(const std::vector<std::vector<int>>& groups);
};

/// Long enough for a busy machine.
[[nodiscard]] inline Deadline soon() { return Clock::now() + std::chrono::seconds(20); }

}  // namespace hvd::test
