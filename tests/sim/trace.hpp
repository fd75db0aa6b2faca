// Records the events of a run as a hash, by which two runs can be compared, and as text for
// readers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include <hvd/core/internal/splitmix64.hpp>

#include "event_queue.hpp"

namespace hvd::sim {

/// The product or the simulator has broken an invariant.
class Violation : public std::runtime_error {
 public:
  Violation(const std::string& invariant, const std::string& detail)
      : std::runtime_error(invariant + ": " + detail) {}
};

class Trace {
 public:
  explicit Trace(bool verbose) : verbose_(verbose) {}

  void mix(std::uint64_t value) {
    hash_ = (hash_ ^ value) * kGoldenRatio64;
    hash_ ^= hash_ >> 29;
  }
  void mix(std::span<const std::byte> bytes) {
    std::uint64_t word = bytes.size();
    int held = 0;
    for (const std::byte byte : bytes) {
      word = (word << 8) | static_cast<std::uint64_t>(byte);
      if (++held == 8) mix(word), held = 0;
    }
    mix(word);
  }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  [[nodiscard]] bool verbose() const noexcept { return verbose_; }
  template <class... Args>
  void say(Nanos now, int rank, fmt::format_string<Args...> format, Args&&... args) {
    if (!verbose_) return;
    fmt::print("{:>14.6f} ms  rank {:>2}  {}\n", static_cast<double>(now) / kMilli, rank,
               fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  bool verbose_;
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace hvd::sim
