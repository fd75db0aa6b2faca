#include "host/host_ranks.hpp"

#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/core/store.hpp>

namespace hvd::test {

std::vector<std::exception_ptr> run_host_ranks(int size, const HostBody& body, std::size_t arena) {
  const auto store = make_hash_store();
  return run_threads(size, [&](int rank) {
    Config config = thread_config(rank, size);
    config.arena_size = arena;
    Session session(config, store);
    HostEngine engine = make_host_engine(session);
    body(rank, engine);
  });
}

void expect_host_ranks(int size, const HostBody& body, std::size_t arena) {
  const auto errors = run_host_ranks(size, body, arena);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank]) continue;
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
    }
  }
}

Block::Block(std::shared_ptr<Arena> arena, std::size_t bytes) : arena_(std::move(arena)) {
  if (!arena_) {
    own_.resize(bytes + 1);
    data_ = own_.data();
    return;
  }
  data_ = static_cast<std::byte*>(arena_->allocate(bytes));
  if (data_ == nullptr) throw std::runtime_error("the arena is full");
}

Block::~Block() {
  if (arena_) arena_->deallocate(data_);
}

Block::Block(Block&& other) noexcept
    : arena_(std::move(other.arena_)),
      own_(std::move(other.own_)),
      data_(std::exchange(other.data_, nullptr)) {}

}  // namespace hvd::test
