// Reads the batches of a rank, in the order of its sampler.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <utility>

#include <hvd/torch.hpp>

#include "mnist/dataset.hpp"

namespace mnist {

/// Returns the batches of this rank's shard, and begins a new epoch after the last one. Throws when
/// a batch has no image.
class Batches {
 public:
  Batches(Dataset data, hvd::DistributedSampler sampler, std::size_t batch_size)
      : data_(std::move(data)), sampler_(std::move(sampler)), batch_size_(batch_size) {
    if (batch_size_ == 0) throw std::invalid_argument("a batch needs an image for each rank");
  }

  Dataset next() {
    auto chosen = sampler_.next(batch_size_);
    if (!chosen) {
      sampler_.reset();
      chosen = sampler_.next(batch_size_);
    }
    return data_.pick(*chosen);
  }

 private:
  Dataset data_;
  hvd::DistributedSampler sampler_;
  std::size_t batch_size_;
};

}  // namespace mnist
