// Do the ranks train on different examples, and together on all?
#pragma once

#include <hvd/torch/distributed_sampler.hpp>
#include <hvd/torch/elastic_sampler.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

/// Whether the shards of the pass that was begun last are of one size and together every example
/// that is to come, each once; where that does not come out, a DistributedSampler that drops leaves
/// fewer than one per rank out, and otherwise fewer than one per rank come twice.
/// `first_difference` says what is wrong, the same on every rank; `identical` means all is well.
/// Collective; every rank sees all indices, so this is for the first epoch or a test.
[[nodiscard]] Verification verify(Context& context, const DistributedSampler& sampler);
[[nodiscard]] Verification verify(const DistributedSampler& sampler);
[[nodiscard]] Verification verify(Context& context, const ElasticSampler& sampler);
[[nodiscard]] Verification verify(const ElasticSampler& sampler);

}  // namespace hvd
