// Runs ranks as threads, each with the engine of its host.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/backends.hpp>

namespace hvd::test {

using HostBody = std::function<void(int rank, HostEngine& engine)>;

inline constexpr std::size_t kTestArena = std::size_t{64} << 20;

/// Runs `body` on one thread per rank and returns what each threw, null where nothing.
[[nodiscard]] std::vector<std::exception_ptr> run_host_ranks(int size, const HostBody& body,
                                                             std::size_t arena = kTestArena);
/// Does the same; a rank that throws fails the test.
void expect_host_ranks(int size, const HostBody& body, std::size_t arena = kTestArena);

/// A block of the arena, or of private memory when `arena` is null.
class Block {
 public:
  Block(std::shared_ptr<Arena> arena, std::size_t bytes);
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::shared_ptr<Arena> arena_;
  std::vector<std::byte> own_;
  std::byte* data_ = nullptr;
};

}  // namespace hvd::test
