// What an agent knows better than the hvdrun that it obeys: the agent was started by somebody else
// on its own machine, with a program, an environment and a secret of its own.
#pragma once

#include "transport/frames.hpp"

namespace hvd::launcher {

/// Puts program, directory, environment, interfaces and secret of `own` in the place of what came
/// in `frame`; an empty secret leaves the one that came. Of what came stays who the ranks are and
/// where they meet. Variables of the first rank of `own` are added to the first rank that came.
void apply_own_part(const Prepare& own, Prepare& frame);
/// Drops all variables but those that say who a rank is and where it meets the others.
void keep_identity(std::vector<std::string>& variables);

/// Reads an encoded Prepare from the beginning of an inherited file, whose descriptor is `fd`, and
/// closes it. Throws Error (protocol, resource).
[[nodiscard]] Prepare read_own_part(int fd);

}  // namespace hvd::launcher
