// Plans the binding of this host's ranks, with what other jobs hold and where the GPUs are.
#pragma once

#include "agent/held_cores.hpp"
#include "plan/binding.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {

/// Plans with the cores that are free at this moment. `variables` are those of the ranks. Throws
/// LaunchError (usage), as `plan_binding` does.
[[nodiscard]] Binding plan_host_binding(const BindingOptions& options, int ranks,
                                        const Variables& variables);

/// Does the same, and holds the cores of the plan.
[[nodiscard]] Binding bind_host(const BindingOptions& options, int ranks,
                                const Variables& variables, HeldCores& held);

}  // namespace hvd::launcher
