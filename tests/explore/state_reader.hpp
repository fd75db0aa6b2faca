// Hashes and copies the product's objects with all their private state. A structured binding names
// every member of a class, so a member that is added and not considered here does not compile.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <hvd/core/internal/membership.hpp>

#include "engine/local_batch.hpp"
#include "engine/tensor_table.hpp"
#include "policy/protocol.hpp"
#include "state_hash.hpp"

namespace hvd::detail {

/// The copies of tensors that a table and the batches of its executor share.
class TensorCopies {
 public:
  [[nodiscard]] std::shared_ptr<PendingTensor> of(const std::shared_ptr<PendingTensor>& tensor);
  [[nodiscard]] LocalBatch of(const LocalBatch& batch);

 private:
  std::vector<std::pair<const PendingTensor*, std::shared_ptr<PendingTensor>>> copies_;
};

/// Is a friend of the classes that it reads. Times count relative to `now`, or to the last tick.
/// Texts and times that no decision depends on are left out, and so is everything of an object that
/// has ended.
struct StateReader {
  static void read(explore::StateHasher& hasher, const Protocol& protocol, Clock::time_point now);
  static void read(explore::StateHasher& hasher, const TensorTable& table);
  static void read(explore::StateHasher& hasher, const LocalBatch& batch);
  static void read(explore::StateHasher& hasher, const Membership& membership,
                   Clock::time_point now);
  [[nodiscard]] static std::unique_ptr<TensorTable> copy(const TensorTable& table, int rank,
                                                         int size, TensorCopies& copies);

 private:
  struct Parts;
};

}  // namespace hvd::detail
