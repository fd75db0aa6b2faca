// Runs hvdrun as the front end of a program that has other means to start agents, such as the tasks
// of a Spark stage. That program passes a stream to each agent, reads the output of the ranks from
// hvdrun's standard streams, and learns from hvdrun how the job ended.
#pragma once

#include <string_view>

namespace hvd::launcher {

/// The hidden argument that makes hvdrun such a front end.
inline constexpr std::string_view kAttachedArgument = "--attached";

/// Reads the job from standard input, up to its end, as JSON:
///   {"agents": [{"stream": 5, "name": "a", "machine": "key", "ranks": 2}, …], "outcome": 7,
///    "timestamps": false, "quoted_lines": 100}
/// "stream" and "outcome" are inherited descriptors. Agents with the same "machine" are on one
/// machine. Each agent is started as `hvdrun --remote-agent FD` with its own part of the job, so
/// that neither program nor secret is sent over its stream.
///
/// At the end it writes to "outcome", as JSON:
///   {"code": 7, "rank": 1, "lost": false, "what": "rank 1 on a (local 1, pid 9) exited 7 after …",
///    "quoted": 1, "lines": ["[1]<stderr>:…", …]}
/// "rank" is the rank to blame, or null; "lost" says that it was lost together with its agent.
/// Returns the exit code. Throws LaunchError.
[[nodiscard]] int run_attached();

}  // namespace hvd::launcher
