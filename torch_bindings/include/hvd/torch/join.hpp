// Ranks that run out of data before the others.
#pragma once

#include <hvd/hvd.hpp>

namespace hvd {

struct JoinOptions {
  /// Averages divide by the ranks that took part, while some have joined; by default by all, as if
  /// those had given zeros. What the first rank to join asks for counts.
  bool average_over_contributors = false;
};

/// This rank has no more data: takes part in the others' allreduces, with what leaves the result as
/// it is, until all have joined. Returns the last rank to join, which is the one whose model has
/// seen the most: `broadcast_parameters(model, hvd::join({.average_over_contributors = true}))`.
/// What needs data of every rank fails on the others meanwhile, with Errc::unsupported.
/// Collective over all ranks.
inline int join(Context& context, const JoinOptions& options = {}) {
  return context.join(options.average_over_contributors);
}
inline int join(const JoinOptions& options) { return join(context(), options); }

}  // namespace hvd
