// Every engine of host memory under one roof, with ranks as threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include <hvd/core/arena.hpp>
#include <hvd/core/backend.hpp>

#include "host/host_ranks.hpp"
#include "transports.hpp"

namespace hvd::test {

/// `arena` is where tensors are to lie; null: in private memory.
using BackendBody =
    std::function<void(int rank, Backend& backend, const std::shared_ptr<Arena>& arena)>;

/// A name, what it is, and the transport below unless it brings its own.
struct Engine {
  enum class Made { ring, hosts, host_private, host_arena };

  std::string name;
  Made made;
  Kind kind = Kind::in_process;

  friend std::ostream& operator<<(std::ostream& out, const Engine& engine) {
    return out << engine.name;
  }

  /// `body` on a thread per rank; one that throws fails the test. `hosts` is a seed: it places the
  /// ranks on up to three hosts, where there are any.
  void run(int ranks, std::uint64_t hosts, const BackendBody& body,
           std::size_t arena = kTestArena) const;
};

}  // namespace hvd::test
