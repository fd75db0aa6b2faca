// One collective through a backend, compared with the serial reference; for any kind of memory.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include <hvd/core/backend.hpp>
#include <hvd/core/wire.hpp>

#include "support/samples.hpp"

namespace hvd::test {

/// Where the tensors of a test live. Blocks stay until the memory is destroyed.
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

/// One rank's side of the checks; all ranks make the same ones. Each returns how many elements of
/// this rank's results are wrong, or of its inputs were written to.
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
  /// Rank r contributes bases[i] + r elements to tensor i; of a negative base, odd ranks three and
  /// even ones none.
  [[nodiscard]] std::int64_t allgather(DType dtype, const std::vector<std::int64_t>& bases);
  /// The part of tensor i for rank r has as many.
  [[nodiscard]] std::int64_t reducescatter(DType dtype, ReduceOp op,
                                           const std::vector<std::int64_t>& bases,
                                           const Scales& scales = {});
  /// Rank a sends base + a + 2b elements to b; of a negative base, three or none.
  [[nodiscard]] std::int64_t alltoall(DType dtype, std::int64_t base);
  /// An allreduce in which the last rank of several has nothing and wants nothing; unless it is an
  /// average, of every other tensor only.
  [[nodiscard]] std::int64_t allreduce_without_last(DType dtype, ReduceOp op,
                                                    const std::vector<std::int64_t>& counts,
                                                    const Scales& scales = {});
  /// Backends for these overlapping groups used in turn, then the whole again.
  [[nodiscard]] std::int64_t subsets(const std::vector<std::vector<int>>& groups);
};

/// Long enough for a loaded machine.
[[nodiscard]] inline Deadline soon() { return Clock::now() + std::chrono::seconds(20); }

}  // namespace hvd::test
