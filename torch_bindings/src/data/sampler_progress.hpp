// Gives ElasticState access to how far an ElasticSampler has come.
#pragma once

#include <cstdint>
#include <functional>

#include <hvd/core/types.hpp>
#include <hvd/torch/elastic_sampler.hpp>

namespace hvd::detail {

/// A moment of a sampler. It costs nothing to take, and means something on this rank only.
struct SamplerMark {
  std::uint64_t pass = 0;   ///< the number of the pass on this rank
  std::size_t trained = 0;  ///< the examples of this rank, or the steps, that were recorded in it
};

struct SamplerProgress {
  /// Makes `record_batch` call the function after it has recorded. An empty function ends that.
  static void on_record(ElasticSampler& sampler, std::function<void()> function);
  [[nodiscard]] static SamplerMark mark(const ElasticSampler& sampler);
  /// Returns which examples all ranks of the pass have recorded now.
  [[nodiscard]] static Bytes now(const ElasticSampler& sampler);
  /// Returns which examples all ranks of the pass had recorded at that moment, which is that of the
  /// last call of `mark` or a later one. Every rank has recorded as many as this one.
  [[nodiscard]] static Bytes at(const ElasticSampler& sampler, const SamplerMark& mark);
  /// Makes the sampler continue there. An epoch of which nothing is left has an empty pass then, so
  /// that a program's loop over epochs counts it. Throws Errc::mismatch when the bytes are those of
  /// another data set or seed.
  static void go_on(ElasticSampler& sampler, const Bytes& progress, const Context& context);
};

}  // namespace hvd::detail
