// Brings the shards of optimizers that mirror them into the next generation.
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

  /// The last commit was made only because ranks may leave who have all that there is of a shard.
  void commit_is_temporary() noexcept { temporary_commit_ = true; }
  /// Returns whether it was on any rank at the last `gather`, and forgets it.
  [[nodiscard]] bool take_temporary_commit() noexcept;

  /// Returns what each rank has of earlier divisions. Collective.
  [[nodiscard]] std::vector<Divisions> gather(Context& context);
  /// Makes the step that this rank has not made and others have. Forgets all that is not needed.
  void go_on_with(const StateSource& source);
  /// Gives all ranks the parameters and the states of the division that goes on. Collective.
  void assemble(Context& context, const StateSource& source);
  /// The division of this generation begins. Number 1 is that of optimizers that have not begun.
  void begin(const StateSource& source);

 private:
  [[nodiscard]] std::vector<ShardMirror*> mirrors() const;
  [[nodiscard]] Divisions held() const;

  const StateParts& parts_;
  std::int64_t newest_ = 0;  ///< the largest number of a division on any rank
  bool temporary_commit_ = false;
};

}  // namespace hvd::detail
