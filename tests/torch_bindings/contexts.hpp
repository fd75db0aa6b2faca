// Runs ranks as threads, each with its own context and its own thread-local LibTorch state.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

namespace hvd::test {

/// Runs `body` as every rank of a job. Its contexts end by their destructors. A rank that throws
/// fails the test.
inline void on_ranks(int size, const std::function<void(Context&)>& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  expect_threads(size, [&](int rank) {
    const auto context = make_context(thread_config(rank, size), store);
    body(*context);
  });
}

/// Returns the code of the error that `call` throws, or nothing when it succeeds.
inline std::optional<Errc> code_of(const std::function<void()>& call,
                                   std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message) *message = error.what();
    return error.code();
  }
  return std::nullopt;
}

/// Returns normally distributed numbers, which are the same for the same seed on every thread.
inline torch::Tensor normal(torch::IntArrayRef shape, std::uint64_t seed, double deviation = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::empty(shape).normal_(0, deviation, generator);
}

inline bool equal_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && torch::equal(a, b);
}

}  // namespace hvd::test
