// Brings the mirrored shards of optimizers over to the next generation.
#pragma once

#include <cstdint>
#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/core/internal/recovery.hpp>

#include "elastic/state_parts.hpp"

namespace hvd::detail {

/// Does nothing where no optimizer mirrors its shards.
class MirroredShards {
 public:
  /// `parts` must outlive this object, and be complete when other functions are called.
  explicit MirroredShards(const StateParts& parts) : parts_(parts) {}

  /// Marks the last commit as made only because both holders of a shard may leave together.
  void commit_is_temporary() noexcept { temporary_commit_ = true; }
  /// Returns whether the last `gather` found this mark on any rank, and clears it.
  [[nodiscard]] bool take_temporary_commit() noexcept;

  /// Returns what each rank has of earlier divisions. Collective.
  [[nodiscard]] std::vector<Divisions> gather(Context& context);
  /// Makes the step that this rank has not made and others have. Forgets all that is not needed.
  void go_on_with(const StateSource& source);
  /// Gives all ranks the parameters and the states of the division that is used. Collective.
  void assemble(Context& context, const StateSource& source);
  /// Begins the division of this generation. Its number is 1 if no optimizer has made a step yet.
  void begin(const StateSource& source);

 private:
  [[nodiscard]] std::vector<ShardMirror*> mirrors() const;
  [[nodiscard]] Divisions held() const;

  const StateParts& parts_;
  std::int64_t newest_ = 0;  ///< the largest number of a division on any rank
  bool temporary_commit_ = false;
};

}  // namespace hvd::detail
