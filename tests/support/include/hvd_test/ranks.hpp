// Runs ranks as threads of the test, with one hash store.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/config.hpp>
#include <hvd/core/store.hpp>

namespace hvd::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

/// Returns the numbers of ranks with which a suite is instantiated. A sanitizer slows every rank
/// down, so more than three are left to the release preset.
inline std::vector<int> rank_counts(std::vector<int> counts) {
  if (kSanitized) std::erase_if(counts, [](int count) { return count > 3; });
  return counts;
}

/// Returns the configuration of rank `rank` of `size` threads.
inline Config thread_config(int rank, int size) {
  Config config;
  config.rank = rank;
  config.size = size;
  config.start_timeout = std::chrono::seconds(30);
  config.collective_timeout = std::chrono::seconds(30);
  config.shutdown_timeout = std::chrono::seconds(30);
  // Sanitizers and a busy machine delay every thread. Tests of failures set their own timeout.
  config.peer_timeout = std::chrono::seconds(20);
  // The ranks of many contexts share the address space of one process.
  config.arena_size = std::size_t{256} << 20;
  return config;
}

/// Runs `body(rank)` on `size` threads and returns the exception of each, or null.
inline std::vector<std::exception_ptr> run_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Does the same and fails the test when a rank throws.
inline void expect_threads(int size, const std::function<void(int)>& body) {
  const auto errors = run_threads(size, body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank]) continue;
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
    }
  }
}

}  // namespace hvd::test
