// Reads the settings that ModelArts gives a node, from variables and from arguments that it appends
// to those of the program.
#pragma once

#include <string>
#include <vector>

#include "node/node_options.hpp"

namespace hvd::launcher {

inline constexpr const char* kModelArts = "modelarts";

/// Returns whether `own` contains the variables of a ModelArts node.
[[nodiscard]] bool is_modelarts(const std::vector<std::string>& own);

/// Completes missing `options` from three sources, in this order: the options "--init_method",
/// "--rank" and "--world_size", which count nodes on ModelArts; the variables; and the same three
/// options among the program's arguments. Without the platform these options are refused and
/// nothing is added. Throws LaunchError (usage).
[[nodiscard]] NodeOptions with_platform(const NodeOptions& options,
                                        const std::vector<std::string>& own,
                                        const std::vector<std::string>& program);

/// Returns the file to run. A name without a slash that is not a command on PATH is searched for in
/// MA_JOB_DIR and in the folders there, since the platform copies the user's code folder into it.
/// Throws LaunchError (usage) when several of these folders have such a file.
[[nodiscard]] std::string modelarts_program(const std::string& name,
                                            const std::vector<std::string>& own);

}  // namespace hvd::launcher
