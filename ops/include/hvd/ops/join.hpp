// Declares join(), for ranks that run out of data before the others.
#pragma once

#include <hvd/ops/default_context.hpp>

namespace hvd {

struct JoinOptions {
  /// While some ranks have joined, averages divide by the number of the ranks that contribute. By
  /// default they divide by the number of all ranks, as if the joined ranks contributed zeros. The
  /// option of the first rank that joins counts.
  bool average_over_contributors = false;
  Context* context = nullptr;  ///< when null, the default one, `hvd::context()`
};

/// Says that this rank has no more data. Until all ranks have joined, it takes part in the
/// allreduces of the others with the identity of their operation. Returns the rank that joined
/// last, which has made every step: give all ranks its model and the state of its optimizer, with
/// `broadcast_parameters(model, last)` and `broadcast_optimizer_state(optimizer, last)`. Meanwhile
/// operations that need data of every rank fail on the others with Errc::unsupported. Collective
/// over all ranks.
inline int join(const JoinOptions& options = {}) {
  return context_of(options).join(options.average_over_contributors);
}

}  // namespace hvd
