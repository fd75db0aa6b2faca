// Declares the interface of a peer library that is measured: an allreduce of floats on one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hvd::peers {

enum class Combine { sum, maximum };

/// One thread uses it. All functions but the first three are collective.
class Library {
 public:
  virtual ~Library() = default;
  [[nodiscard]] virtual std::string name() const = 0;  ///< with its version
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;

  /// Returns zeroed memory of this rank, aligned to a cache line, for the buffers of one size. It
  /// replaces the memory of the previous call.
  [[nodiscard]] virtual float* memory(std::size_t bytes);
  /// Returns the algorithms for this size. The fastest one is measured.
  [[nodiscard]] virtual std::vector<std::string> ways(std::size_t bytes) const;
  /// Sums over all ranks, in place, with the algorithm `way`. `data` lies in `memory`.
  virtual void allreduce(float* data, std::size_t count, const std::string& way) = 0;
  virtual void barrier() = 0;
  /// Combines the values element by element over all ranks, in place.
  virtual void combine(std::span<double> values, Combine how) = 0;

 private:
  struct alignas(64) Block {
    std::byte bytes[64];
  };
  std::vector<Block> memory_;
};

}  // namespace hvd::peers
