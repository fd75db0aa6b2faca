// Handles an agent's own part of a job. An agent that hvdrun has not started itself, such as the
// hvdrun of another node, has a program, an environment and a secret of its own, which replace
// hvdrun's.
#pragma once

#include "transport/frames.hpp"

namespace hvd::launcher {

/// Replaces program, directory, environment, interfaces, binding and secret in `frame` by those of
/// `own`, except where the secret of `own` is empty. The ranks' identities and the store in `frame`
/// stay. Variables of the first rank of `own` are added to the first rank in `frame`.
void apply_own_part(const Prepare& own, Prepare& frame);
/// Drops all variables but those that say which rank it is and where it meets the others.
void keep_identity(std::vector<std::string>& variables);

/// Reads an encoded Prepare from the beginning of an inherited file, whose descriptor is `fd`, and
/// closes it. Throws Errc::protocol and Errc::resource.
[[nodiscard]] Prepare read_own_part(int fd);

}  // namespace hvd::launcher
