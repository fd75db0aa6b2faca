// What a peer has to offer to be measured: an allreduce of floats, as one rank sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hvd::peers {

enum class Combine { sum, maximum };

/// One thread uses it. All but the first three are collective.
class Library {
 public:
  virtual ~Library() = default;
  [[nodiscard]] virtual std::string name() const = 0;  ///< with its version
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int ranks() const = 0;

  /// Zeroed memory of this rank, aligned to a cache line, for the buffers of one size; what the
  /// call before returned is gone.
  [[nodiscard]] virtual float* memory(std::size_t bytes);
  /// The ways in which it can reduce so many bytes; the quickest of them is what gets measured.
  [[nodiscard]] virtual std::vector<std::string> ways(std::size_t bytes) const;
  /// Sum over all ranks, in place, by the way of this name; `data` lies in `memory`.
  virtual void allreduce(float* data, std::size_t count, const std::string& way) = 0;
  virtual void barrier() = 0;
  /// Element by element over all ranks, in place.
  virtual void combine(std::span<double> values, Combine how) = 0;

 private:
  struct alignas(64) Block {
    std::byte bytes[64];
  };
  std::vector<Block> memory_;
};

}  // namespace hvd::peers
