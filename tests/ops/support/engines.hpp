// Runs tests over every engine of host memory, with ranks as threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include <hvd/core/arena.hpp>
#include <hvd/core/internal/backend.hpp>

#include "host/host_ranks.hpp"
#include "transports.hpp"

namespace hvd::test {

/// Tensors are to lie in `arena`, or in private memory when that is null.
using BackendBody =
    std::function<void(int rank, Backend& backend, const std::shared_ptr<Arena>& arena)>;

/// An engine under test. `kind` is the transport below it, unless it brings its own.
struct Engine {
  enum class Made { ring, hosts, host_private, host_arena };

  std::string name;
  Made made;
  Kind kind = Kind::in_process;

  friend std::ostream& operator<<(std::ostream& out, const Engine& engine) {
    return out << engine.name;
  }

  /// Runs `body` on one thread per rank; a rank that throws fails the test. Where the engine has
  /// hosts, `hosts` is a seed that places the ranks on up to three of them.
  void run(int ranks, std::uint64_t hosts, const BackendBody& body,
           std::size_t arena = kTestArena) const;
};

}  // namespace hvd::test
