// What ModelArts tells a node, in its variables and in arguments that it appends to the program's.
#pragma once

#include <string>
#include <vector>

#include "node_options.hpp"

namespace hvd::launcher {

inline constexpr const char* kModelArts = "modelarts";

/// Whether `own` has the variables of one of its nodes.
[[nodiscard]] bool is_modelarts(const std::vector<std::string>& own);

/// `options` with what they leave open: from "--init_method", "--rank" and "--world_size", which
/// count nodes there; from the variables; from the same three among the program's arguments. The
/// first that says it wins. Without a platform these are refused and nothing is added. Throws
/// LaunchError (usage).
[[nodiscard]] NodeOptions with_platform(const NodeOptions& options,
                                        const std::vector<std::string>& own,
                                        const std::vector<std::string>& program);

/// The file to run: a name without a slash that is no command along PATH is looked for in
/// MA_JOB_DIR, where the platform puts the user's code.
[[nodiscard]] std::string modelarts_program(const std::string& name,
                                            const std::vector<std::string>& own);

}  // namespace hvd::launcher
